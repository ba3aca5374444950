"""Drifts in a list: searched, filtered, put into groups and given in pages.

One way for all of them, whatever they are drifts of: an object that an application declares, or a
workload.
"""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Generic, TypeAlias, TypeVar

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.ledger import DriftEntry, DriftRecord

MAX_QUERY = 200
"""Characters of a search."""
MAX_CURSOR = 200
DriftOrder: TypeAlias = tuple[float, str]
"""Sorts drifts newest first. It stays the same for as long as a drift is known."""
_CAUSE_ORDER = {cause: place for place, cause in enumerate(Cause)}


class ListedDrift(ABC):
    """One drift of a list. What is made of it for a search is made once."""

    def __init__(
        self,
        *,
        id: str,
        first_seen: datetime,
        kinds: Sequence[DriftKind],
        entries: Sequence[DriftEntry],
        order: DriftOrder | None = None,
    ) -> None:
        self.id = id
        self.first_seen = first_seen
        self.kinds = kinds
        self.entries = entries
        self.order = order or (-first_seen.timestamp(), id)

    @abstractmethod
    def names(self) -> Iterable[str]:
        """What it is called besides its id: names and notes, and never a value."""

    @cached_property
    def text(self) -> str:
        """What is searched, in lower case: names, paths and writers, and never a value."""
        parts = [self.id, *self.names()]
        for entry in self.entries:
            parts.append(entry.path)
            if entry.writer is not None:
                parts += [entry.writer.manager, entry.writer.actor or ""]
        return "\n".join(parts).lower()

    @cached_property
    def writers(self) -> frozenset[str]:
        """The managers that wrote it."""
        return frozenset(each.writer.manager for each in self.entries if each.writer)

    @cached_property
    def origin(self) -> tuple[Cause, str]:
        """The cause and the manager it is grouped under: of its first field of a known cause."""
        first: DriftEntry | None = min(
            self.entries, key=lambda entry: _CAUSE_ORDER[entry.cause], default=None
        )
        if first is None:
            return Cause.UNKNOWN, ""
        return first.cause, first.writer.manager if first.writer else ""


class ListedWorkloadDrift(ListedDrift):
    """One drift of a workload in a list; `seq` is its place where a store gave it one."""

    def __init__(self, drift: DriftRecord, *, seq: int | None = None) -> None:
        super().__init__(
            id=drift.id,
            first_seen=drift.first_seen,
            kinds=drift.kinds,
            entries=drift.fields,
            order=None if seq is None else (-seq, ""),
        )
        self.drift = drift
        self.seq = seq

    def names(self) -> Iterable[str]:
        return (str(self.drift.workload),)


L = TypeVar("L", bound=ListedDrift)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFilter:
    """Which drifts are asked for. Empty conditions match all."""

    kind: str = ""
    cause: Cause | None = None
    writer: str = ""
    words: tuple[str, ...] = ()
    """All of them have to be found."""

    def matches(self, drift: ListedDrift) -> bool:
        """True for a drift that is asked for; one of several kinds or causes matches each."""
        return (
            (not self.kind or self.kind in drift.kinds)
            and (self.cause is None or any(e.cause is self.cause for e in drift.entries))
            and (not self.writer or self.writer in drift.writers)
            and all(word in drift.text for word in self.words)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftGroup(Generic[L]):
    """Drifts of one cause and one writer, in the order of their list."""

    cause: Cause
    writer: str
    members: Sequence[L]

    @property
    def kinds(self) -> list[DriftKind]:
        """The kinds among them, each once, in the order of the enum."""
        found = {kind for member in self.members for kind in member.kinds}
        return [kind for kind in DriftKind if kind in found]


def group_by_origin(drifts: Iterable[L]) -> list[DriftGroup[L]]:
    """Put together what has one cause and one writer, the largest group first."""
    found: dict[tuple[Cause, str], list[L]] = {}
    for drift in drifts:
        found.setdefault(drift.origin, []).append(drift)
    groups = [
        DriftGroup(cause=cause, writer=writer, members=members)
        for (cause, writer), members in found.items()
    ]
    return sorted(groups, key=lambda each: (-len(each.members), each.cause, each.writer))


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


def encode_cursor(drift: ListedDrift) -> str:
    """Name the place behind a drift. It holds however many drifts come and go."""
    text = f"{drift.first_seen.isoformat()} {drift.id}"
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
        raise unknown_cursor_error() from None


def unknown_cursor_error() -> ValidationError:
    """Refuse a cursor that no list gave."""
    problem = Problem(
        field="cursor",
        reason="it is not one that a list gave.",
        fix="Give the `next` of the page before, or leave it out.",
    )
    return ValidationError(problems=[problem])


def page_of(drifts: Sequence[L], *, after: DriftOrder | None, limit: int) -> list[L]:
    """Return the drifts behind a place, in order."""
    start = 0
    if after is not None:
        start = bisect_left(drifts, after, key=lambda each: each.order)
        if start < len(drifts) and drifts[start].order == after:
            start += 1
    return list(drifts[start : start + limit])


def next_cursor(page: Sequence[ListedDrift], drifts: Sequence[ListedDrift]) -> str:
    """Return the cursor of the page behind one; empty for the last."""
    more = bool(page) and page[-1].order < drifts[-1].order
    return encode_cursor(page[-1]) if more else ""
