"""The live stream of applications: one more projection of what was committed to the ledger.

An event says what to read anew, and never what it is: whoever hears it asks with their own rights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from holdfast.apps.server.gitops_routes import require_gitops
from holdfast.apps.server.live_events import EventHub, live_events_response
from holdfast.apps.server.request import HttpStream, Request
from holdfast.apps.server.services import Services
from holdfast.core.gitops.application import Application, ApplicationId, ApplicationStatus
from holdfast.core.page_links import application_link, drift_link, plan_link, project_link
from holdfast.reconcile.gitops.application_state import StateCommit
from holdfast.reconcile.gitops.ports import JournalEntry, LedgerWrite, RecordKind
from holdfast.wire.gitops_http_v1 import LiveEventForm
from holdfast.wire.gitops_v1 import parse_app_id

_RECORD_EVENTS = {
    RecordKind.DRIFT: "drift",
    RecordKind.HOLD: "hold",
    RecordKind.PLAN: "plan",
}
_KINDS_BY_ID = (
    ("drf-", RecordKind.DRIFT),
    ("plan-", RecordKind.PLAN),
    ("hold-", RecordKind.HOLD),
)
GONE = "gone"
_OF_THE_APPLICATION = frozenset({RecordKind.PULL, RecordKind.RULE})
"""Records that are shown with their application."""


async def stream_application_events(services: Services, request: Request) -> HttpStream:
    """Follow what happens to applications: each event says what to read anew.

    Goes on behind the id in the header `Last-Event-ID`, or in `after`. What was missed comes
    first; where that is not known any more, one event `reset` says to read everything anew.
    """
    require_gitops(services)
    assert services.application_events is not None  # noqa: S101  # set with the review service
    return live_events_response(services, request, services.application_events.hub)


class ApplicationEvents:
    """Hears what is committed, and tells the streams of the project concerned."""

    def __init__(self, hub: EventHub) -> None:
        self.hub = hub

    def on_commit(self, commit: StateCommit) -> None:
        """Tell of the records and the lines of one commit."""
        for write in commit.writes:
            if (event := _RECORD_EVENTS.get(write.kind)) is not None:
                form = LiveEventForm(
                    id=write.key,
                    application=write.application,
                    state=_state_of(write),
                    at=commit.at,
                    url=self._record_link(commit.project, write.kind, write.key),
                )
                self._publish(commit.project, event, form)
        if any(write.kind in _OF_THE_APPLICATION for write in commit.writes):
            self._tell_application(commit.project, commit.application, "", commit.at)
        self.on_entries(commit.project, commit.entries)

    def on_entries(self, project: str, entries: Sequence[JournalEntry]) -> None:
        """Tell of new lines of the journal."""
        for entry in entries:
            label = parse_app_id(entry.application).label
            form = LiveEventForm(
                id=entry.subject or label,
                application=entry.application,
                state=entry.action,
                at=entry.at,
                url=self._subject_link(project, entry.subject, label),
            )
            self._publish(project, "journal", form)

    def on_status(
        self, application: Application, status: ApplicationStatus | None, now: datetime
    ) -> None:
        """Tell that an application stands otherwise than before, or that it is gone."""
        known = application.status
        if status is None:
            self._tell_application(application.spec.project, application.id, GONE, now)
        elif known is None or replace(known, fetched_at=status.fetched_at) != status:
            self._tell_application(application.spec.project, application.id, status.sync, now)

    def _tell_application(self, project: str, id: ApplicationId, state: str, at: datetime) -> None:
        url = self._subject_link(project, "", id.label) if state != GONE else ""
        form = LiveEventForm(id=id.label, application=str(id), state=state, at=at, url=url)
        self._publish(project, "application", form)

    def _record_link(self, project: str, kind: RecordKind, id: str) -> str:
        base_url = self.hub.base_url
        match kind:
            case RecordKind.DRIFT:
                return drift_link(base_url, project, id) or ""
            case RecordKind.PLAN:
                return plan_link(base_url, project, id) or ""
            case _:
                return project_link(base_url, project, "holds") or ""

    def _subject_link(self, project: str, subject: str, label: str) -> str:
        """Link what a line of the journal is about: by its id, or else its application."""
        for start, kind in _KINDS_BY_ID:
            if subject.startswith(start):
                return self._record_link(project, kind, subject)
        return application_link(self.hub.base_url, project, label) or ""

    def _publish(self, project: str, event: str, form: LiveEventForm) -> None:
        if project:
            self.hub.publish(project, form, event=event)


def _state_of(write: LedgerWrite) -> str:
    found = (write.body or {}).get("state") if write.kind is RecordKind.DRIFT else None
    return str(found) if found else write.state
