"""What `holdfast drift` and `holdfast watch` do where a GitOps controller answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from holdfast.apps.cli.connect import ControllerClient
from holdfast.apps.cli.screen import API_VERSION, Screen
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.application_drifts import (
    show_application_drift,
    show_application_drift_explanation,
    show_application_drifts,
    summarize_application_drift,
)
from holdfast.apps.cli.views.applications import draw_applications
from holdfast.apps.cli.views.drifts import show_causes
from holdfast.apps.cli.views.output import masked_json
from holdfast.core.drift_list import DriftFilter
from holdfast.core.errors import NotFound, TargetUnavailable
from holdfast.wire.gitops_http_v1 import FollowedForm, JournalEntryForm
from holdfast.wire.gitops_v1 import ApplicationDriftForm

POLL_SECONDS = 2.0
"""The controller answers from its memory and its ledger, so asking often is cheap."""
JOURNAL_PAGE = 100
RECENT_LINES = 8
"""Lines of the journal that are listed under the table."""


def list_application_drifts(
    session: Session,
    controller: ControllerClient,
    name: str,
    *,
    state: str,
    wanted: DriftFilter | None = None,
    namespace: str = "",
    grouped: bool = False,
) -> list[ApplicationDriftForm]:
    """Show drifts of applications, and return them."""
    wanted = wanted or DriftFilter()
    found = controller.call(
        controller.api.drifts(
            state=state,
            application=name,
            type=wanted.kind,
            namespace=namespace,
            cause=wanted.cause or "",
            writer=wanted.writer,
            words=" ".join(wanted.words),
        )
    )
    now = datetime.now(UTC)
    if grouped:
        show_causes(session.screen, [*map(summarize_application_drift, found)], now=now)
    else:
        tolerated = 0
        if state == "open" and not namespace and wanted == DriftFilter():
            chosen = [controller.call(controller.api.application(name))] if name else None
            tolerated = sum(each.tolerated for each in chosen or controller.applications)
        show_application_drifts(session.screen, found, tolerated=tolerated, now=now)
    session.screen.next(f"holdfast drift show {found[0].id}" if found else "holdfast status")
    return found


def describe_application_drift(session: Session, controller: ControllerClient, id: str) -> None:
    """Show one drift, and what can be done about it."""
    drift = controller.call(controller.api.drift(id))
    show_application_drift(session.screen, drift, now=datetime.now(UTC))
    session.screen.next(next_command_for(drift))


def explain_application_drifts(session: Session, controller: ControllerClient, name: str) -> None:
    """Explain one drift by its id, or those of an application, or all."""
    if name.startswith("drf-"):
        chosen = [controller.call(controller.api.drift(name))]
    else:
        chosen = controller.call(controller.api.drifts(application=name))
    if not session.screen.for_people:
        show_application_drifts(session.screen, chosen, tolerated=0, now=datetime.now(UTC))
        return
    if not chosen:
        chosen = controller.call(controller.api.drifts(state="all", application=name, limit=1))
        session.screen.line("No drift is open." + (" The last one:" if chosen else ""))
    for each in chosen:
        show_application_drift_explanation(session.screen, each, now=datetime.now(UTC))
    session.screen.next(next_command_for(chosen[0]) if chosen else "holdfast status")


def next_command_for(drift: ApplicationDriftForm) -> str:
    """Say what a person would do next about a drift."""
    if drift.resolved_at is not None:
        return f"holdfast history {drift.application}"
    match drift.state:
        case "awaiting-approval":
            return f"holdfast approve {drift.id}, or reject, snooze, codify"
        case "held":
            return f"holdfast resume {drift.application}"
        case "pull-request":
            return f"merge or close its pull request, or holdfast revert {drift.id}"
        case "approved" | "healing":
            return f"holdfast drift show {drift.id}"
        case _ if not drift.where:
            return f"holdfast revert {drift.id} deletes it, codify declares it"
        case _ if any(each.kind == "model" for each in drift.entries):
            return f"holdfast codify {drift.id} bumps the pin by pull request"
        case _ if not drift.healable:
            return f"holdfast status {drift.application}"
        case _:
            return f"holdfast revert {drift.id} puts Git's value back, codify keeps the live one"


@dataclass(kw_only=True)
class ApplicationSnapshot:
    """What the controller said last."""

    applications: Sequence[FollowedForm] = ()
    lines: Sequence[JournalEntryForm] = ()
    """New since the snapshot before, oldest first; in the first one the last few."""
    silent_since: datetime | None = None
    """When the controller stopped answering; what is shown is from before."""


def watch_applications(
    session: Session, controller: ControllerClient, name: str, *, timeout: float | None
) -> None:
    """Follow one application, or all of the project, until the time is up or Ctrl-C."""
    id = controller.call(controller.api.application(name)).id if name else ""
    end = None if timeout is None else time.monotonic() + timeout
    snapshots = _SnapshotPoller(controller, id).until(end)
    if session.screen.live and session.screen.output != "jsonl":
        _redraw_table(session, snapshots)
    else:
        _stream_changes(session.screen, snapshots)


def application_changes(
    before: Mapping[str, FollowedForm] | None, after: Mapping[str, FollowedForm]
) -> Iterator[tuple[str, FollowedForm]]:
    """Compare two snapshots; `before` is None at first. That it was observed again is no change."""
    for id, found in after.items():
        if before is None:
            yield "present", found
        elif id not in before:
            yield "created", found
        elif _without_timestamps(before[id]) != _without_timestamps(found):
            yield "updated", found
    for id, found in (before or {}).items():
        if id not in after:
            yield "deleted", found


def _without_timestamps(found: FollowedForm) -> FollowedForm:
    source = msgspec.structs.replace(found.source, fetched_at=None)
    return msgspec.structs.replace(found, looked_at=None, source=source)


@dataclass
class _SnapshotPoller:
    """Takes snapshots; a controller that does not answer is waited for."""

    controller: ControllerClient
    id: str
    last_seq: int | None = field(default=None, init=False)
    """The newest line of the journal that was given."""

    def until(self, end: float | None) -> Iterator[ApplicationSnapshot]:
        last = ApplicationSnapshot()
        while True:
            try:
                last = ApplicationSnapshot(applications=self._applications(), lines=self._lines())
            except TargetUnavailable:
                since = last.silent_since or datetime.now(UTC)
                last = ApplicationSnapshot(applications=last.applications, silent_since=since)
            yield last
            pause = POLL_SECONDS if end is None else min(POLL_SECONDS, end - time.monotonic())
            if pause <= 0:
                return
            time.sleep(pause)

    def _applications(self) -> Sequence[FollowedForm]:
        found = self.controller.call(self.controller.api.follows())
        if found is None:
            raise NotFound("There is no GitOps controller at this address any more.")
        return [each for each in found if self.id in ("", each.id)]

    def _lines(self) -> Sequence[JournalEntryForm]:
        found: list[JournalEntryForm] = []
        first, before = self.last_seq is None, 0
        while True:
            limit = RECENT_LINES if first else JOURNAL_PAGE
            page = self.controller.call(
                self.controller.api.history(application=self.id, before=before, limit=limit)
            )
            new = [each for each in page.entries if each.seq > (self.last_seq or 0)]
            found += new
            if first or page.next is None or len(new) < len(page.entries):
                break
            before = page.next
        self.last_seq = found[0].seq if found else self.last_seq or 0
        return found[::-1]


def _stream_changes(screen: Screen, snapshots: Iterator[ApplicationSnapshot]) -> None:
    """Write each change as a line of JSON. The journal begins where the watch does."""
    screen.record({"type": "version", "apiVersion": API_VERSION, "kind": "Watch"})
    known: dict[str, FollowedForm] | None = None
    for snapshot in snapshots:
        if snapshot.silent_since is not None:
            continue
        if known is not None:
            for line in snapshot.lines:
                screen.record({"type": "journal", "at": line.at, "entry": masked_json(line)})
        after = {each.id: each for each in snapshot.applications}
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        for kind, found in application_changes(known, after):
            screen.record({"type": kind, "at": at, "application": masked_json(found)})
        known = after


def _redraw_table(session: Session, snapshots: Iterator[ApplicationSnapshot]) -> None:
    recent: list[JournalEntryForm] = []
    for snapshot in snapshots:
        recent = [*recent, *snapshot.lines][-RECENT_LINES:]
        draw_applications(
            session.screen,
            snapshot.applications,
            recent,
            connected_to=session.connected_to,
            silent_since=snapshot.silent_since,
            now=datetime.now(UTC),
        )
    session.screen.next("holdfast status")
