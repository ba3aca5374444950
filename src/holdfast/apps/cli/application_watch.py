"""`holdfast watch` where a GitOps controller answers: applications, and lines of the journal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from holdfast.apps.cli.controller import Controller
from holdfast.apps.cli.screen import API_VERSION, Screen
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.application_watch import draw
from holdfast.apps.cli.views.forms import masked
from holdfast.core.errors import NotFound, TargetUnavailable
from holdfast.wire.gitops_http_v1 import FollowedForm, JournalEntryForm, JournalForm

POLL = 2.0
"""Seconds between two looks. Both are answered from the controller's memory and ledger."""
PAGE = 100
RECENT = 8
"""Lines of the journal that are listed under the table."""


@dataclass(kw_only=True)
class Look:
    """What the controller said last."""

    applications: Sequence[FollowedForm] = ()
    lines: Sequence[JournalEntryForm] = ()
    """New since the look before, oldest first; at the first look the last few."""
    silent_since: datetime | None = None
    """When it stopped answering; what is shown is from before."""


def watch_applications(
    session: Session, controller: Controller, name: str, *, timeout: float | None
) -> None:
    """Follow one application, or all of the project, until the time is up or Ctrl-C."""
    id = controller.ask(controller.api.application(name)).id if name else ""
    looks = _Looks(controller, id)
    end = None if timeout is None else time.monotonic() + timeout
    if session.screen.live and session.screen.output != "jsonl":
        _redraw(session, looks.until(end))
    else:
        _stream(session.screen, looks.until(end))


def changes(
    before: Mapping[str, FollowedForm] | None, after: Mapping[str, FollowedForm]
) -> Iterator[tuple[str, FollowedForm]]:
    """Compare two looks; `before` is None at the first. That it was looked at is no change."""
    for id, found in after.items():
        if before is None:
            yield "present", found
        elif id not in before:
            yield "created", found
        elif _timeless(before[id]) != _timeless(found):
            yield "updated", found
    for id, found in (before or {}).items():
        if id not in after:
            yield "deleted", found


def _timeless(found: FollowedForm) -> FollowedForm:
    source = msgspec.structs.replace(found.source, fetched_at=None)
    return msgspec.structs.replace(found, looked_at=None, source=source)


@dataclass
class _Looks:
    """Asks again and again; a controller that is away is waited for."""

    controller: Controller
    id: str
    seen: int | None = field(default=None, init=False)
    """The newest line of the journal that was given."""

    def until(self, end: float | None) -> Iterator[Look]:
        last = Look()
        while True:
            try:
                last = Look(applications=self._applications(), lines=self._lines())
            except TargetUnavailable:
                since = last.silent_since or datetime.now(UTC)
                last = Look(applications=last.applications, silent_since=since)
            yield last
            pause = POLL if end is None else min(POLL, end - time.monotonic())
            if pause <= 0:
                return
            time.sleep(pause)

    def _applications(self) -> Sequence[FollowedForm]:
        found = self.controller.ask(self.controller.api.follows())
        if found is None:
            raise NotFound("There is no GitOps controller at this address any more.")
        return [each for each in found if self.id in ("", each.id)]

    def _lines(self) -> Sequence[JournalEntryForm]:
        found: list[JournalEntryForm] = []
        first, before = self.seen is None, 0
        while True:
            page = self._page(before, RECENT if first else PAGE)
            new = [each for each in page.entries if each.seq > (self.seen or 0)]
            found += new
            if first or page.next is None or len(new) < len(page.entries):
                break
            before = page.next
        self.seen = found[0].seq if found else self.seen or 0
        return found[::-1]

    def _page(self, before: int, limit: int) -> JournalForm:
        return self.controller.ask(
            self.controller.api.history(application=self.id, before=before, limit=limit)
        )


def _stream(screen: Screen, looks: Iterator[Look]) -> None:
    """Write each change as a line of JSON. The journal begins where the watch does."""
    screen.record({"type": "version", "apiVersion": API_VERSION, "kind": "Watch"})
    known: dict[str, FollowedForm] | None = None
    for look in looks:
        if look.silent_since is not None:
            continue
        if known is not None:
            for line in look.lines:
                screen.record({"type": "journal", "at": line.at, "entry": masked(line)})
        after = {each.id: each for each in look.applications}
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        for kind, found in changes(known, after):
            screen.record({"type": kind, "at": at, "application": masked(found)})
        known = after


def _redraw(session: Session, looks: Iterator[Look]) -> None:
    recent: list[JournalEntryForm] = []
    for look in looks:
        recent = [*recent, *look.lines][-RECENT:]
        draw(
            session.screen, look.applications, recent, place=session.place,
            silent_since=look.silent_since, now=datetime.now(UTC),
        )  # fmt: skip
    session.screen.next("holdfast status")
