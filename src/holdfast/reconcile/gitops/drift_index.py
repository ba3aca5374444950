"""The open drifts of a project in order, found again without being sorted or read anew.

A list of 10,000 drifts is asked for page by page, by many pages at once. Rows are sorted when a
drift came, went or changed, and what is searched in a row is put together once for each drift.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TypeAlias

from holdfast.core.drift import Cause
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.ledger import DriftEntry
from holdfast.reconcile.gitops.application_context import ApplicationContext

MAX_QUERY = 200
"""Characters of a search."""
MAX_CURSOR = 200
DriftOrder: TypeAlias = tuple[float, str]
"""Sorts drifts newest first. It stays the same for as long as a drift is known."""
_CAUSE_ORDER = {cause: place for place, cause in enumerate(Cause)}


class DriftRow:
    """One drift of a list. What is made of it for a search is made once."""

    def __init__(self, drift: ObjectDrift, context: ApplicationContext | None = None) -> None:
        self.drift = drift
        self.context = context
        """None for a drift of an application that is gone."""
        self.order: DriftOrder = (-drift.first_seen.timestamp(), drift.id)

    @cached_property
    def text(self) -> str:
        """What is searched, in lower case: names, paths and writers, and never a value."""
        drift = self.drift
        parts = [drift.id, str(drift.application), str(drift.object), drift.note]
        for entry in drift.entries:
            parts.append(entry.path)
            if entry.writer is not None:
                parts += [entry.writer.manager, entry.writer.actor or ""]
        return "\n".join(parts).lower()

    @cached_property
    def writers(self) -> frozenset[str]:
        """The managers that wrote it."""
        return frozenset(each.writer.manager for each in self.drift.entries if each.writer)

    @cached_property
    def origin(self) -> tuple[Cause, str]:
        """The cause and the manager it is grouped under: of its first field of a known cause."""
        first: DriftEntry | None = min(
            self.drift.entries, key=lambda entry: _CAUSE_ORDER[entry.cause], default=None
        )
        if first is None:
            return Cause.UNKNOWN, ""
        return first.cause, first.writer.manager if first.writer else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFilter:
    """Which drifts are asked for. Empty conditions match all."""

    states: frozenset[DriftState] = frozenset()
    applications: frozenset[ApplicationId] | None = None
    kind: str = ""
    namespace: str = ""
    cause: Cause | None = None
    writer: str = ""
    words: tuple[str, ...] = ()
    """All of them have to be found."""
    waiting: Callable[[DriftRow], bool] | None = None

    def matches(self, row: DriftRow) -> bool:
        """True for a drift that is asked for."""
        drift = row.drift
        return (
            (not self.states or drift.state in self.states)
            and (self.applications is None or drift.application in self.applications)
            and (not self.namespace or drift.object.namespace == self.namespace)
            and (not self.kind or self.kind in drift.kinds)
            and (self.cause is None or any(e.cause is self.cause for e in drift.entries))
            and (not self.writer or self.writer in row.writers)
            and all(word in row.text for word in self.words)
            and (self.waiting is None or self.waiting(row))
        )


def parse_words(text: str) -> tuple[str, ...]:
    """Read what is searched for. Raises ValidationError for what nobody types."""
    if len(text) > MAX_QUERY or not text.isprintable():
        raise ValidationError(
            problems=[
                Problem(
                    field="q",
                    reason=f"it is longer than {MAX_QUERY} characters, or has some that cannot be"
                    " printed.",
                    fix="Give a few words.",
                )
            ]
        )
    return tuple(dict.fromkeys(text.lower().split()))


def encode_cursor(row: DriftRow) -> str:
    """Name the place behind a row. It holds however many rows come and go."""
    text = f"{row.drift.first_seen.isoformat()} {row.drift.id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_cursor(text: str) -> DriftOrder:
    """Read the place behind which a page begins. Raises ValidationError."""
    try:
        if len(text) > MAX_CURSOR:
            raise ValueError("too long")
        padded = text + "=" * (-len(text) % 4)
        seen, _, id = (
            base64.b64decode(padded, altchars=b"-_", validate=True).decode().partition(" ")
        )
        at = datetime.fromisoformat(seen)
        if at.tzinfo is None or not id:
            raise ValueError("not ours")
        return -at.timestamp(), id
    except (ValueError, binascii.Error, OverflowError):
        problem = Problem(
            field="cursor",
            reason="it is not one that a list gave.",
            fix="Give the `next` of the page before, or leave it out.",
        )
        raise ValidationError(problems=[problem]) from None


def page_of(rows: Sequence[DriftRow], *, after: DriftOrder | None, limit: int) -> list[DriftRow]:
    """Return the rows behind a place, in order."""
    start = 0
    if after is not None:
        start = bisect_left(rows, after, key=lambda row: row.order)
        if start < len(rows) and rows[start].order == after:
            start += 1
    return list(rows[start : start + limit])


class DriftIndex:
    """The open drifts of every project, newest first."""

    def __init__(self, contexts: Mapping[ApplicationId, ApplicationContext]) -> None:
        self._contexts = contexts
        self._known: dict[str, tuple[tuple[object, ...], list[DriftRow]]] = {}

    def rows(self, project: str) -> Sequence[DriftRow]:
        """Return every open drift of a project, newest first. Not to be changed."""
        contexts = [
            each for each in self._contexts.values() if each.application.spec.project == project
        ]
        made_from = tuple(part for each in contexts for part in (each.state, each.state.changes))
        known = self._known.get(project)
        if known is not None and known[0] == made_from:
            return known[1]
        before = {row.drift.id: row for row in known[1]} if known else {}
        rows = sorted(_make_rows(contexts, before), key=lambda row: row.order)
        if rows or contexts:
            self._known[project] = made_from, rows
        else:
            self._known.pop(project, None)
        return rows


def _make_rows(
    contexts: Iterable[ApplicationContext], before: Mapping[str, DriftRow]
) -> Iterable[DriftRow]:
    for context in contexts:
        for drift in context.state.drifts.values():
            row = before.get(drift.id)
            if row is None or row.drift is not drift or row.context is not context:
                row = DriftRow(drift, context)
            yield row
