"""How much drifted in a time, for how long, by whose hand, and who decided about it. Pure."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime

from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.facts import JournalAction

UNKNOWN, OPEN = "unknown", "open"


@dataclass(slots=True)
class DriftCount:
    """How many drifts, and for how long they lasted together within the time."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.count += 1
        self.seconds += seconds


@dataclass(slots=True)
class DecisionCount:
    """How often somebody decided what. The fields are named after the journal's actions."""

    approved: int = 0
    rejected: int = 0
    codified: int = 0
    reverted: int = 0
    snoozed: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(getattr(self, each.name) for each in fields(self))


DECISIONS = {
    JournalAction.APPROVED: "approved",
    JournalAction.FIRST_APPROVED: "approved",
    JournalAction.REJECTED: "rejected",
    JournalAction.CODIFY_REQUESTED: "codified",
    JournalAction.REVERT_REQUESTED: "reverted",
    JournalAction.SNOOZED: "snoozed",
}
"""Lines of the journal that are decisions."""

Counts = dict[str, DriftCount]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedDrift:
    """What is counted of one drift."""

    project: str
    application: str
    first_seen: datetime
    resolved_at: datetime | None
    resolution: str
    """Empty where nobody said how it ended."""
    causes: tuple[str, ...]
    writers: tuple[str, ...]
    kinds: tuple[str, ...]


def count_drift(drift: ObjectDrift) -> CountedDrift:
    """Reduce a drift to what is counted."""
    writers = {each.writer.manager if each.writer else UNKNOWN for each in drift.entries}
    return CountedDrift(
        project=sys.intern(drift.project),
        application=sys.intern(str(drift.application)),
        first_seen=drift.first_seen,
        resolved_at=drift.resolved_at,
        resolution=drift.resolution.value if drift.resolution else "",
        causes=_interned(cause.value for cause in drift.causes),
        writers=_interned(writers),
        kinds=_interned(kind.value for kind in drift.kinds),
    )


def _interned(names: Iterable[str]) -> tuple[str, ...]:
    """Many drifts have few names between them."""
    return tuple(sorted(sys.intern(name) for name in set(names)))


@dataclass(slots=True, kw_only=True)
class DriftStatistics:
    """Figures of the drifts that there were between two times; add them one by one."""

    since: datetime
    until: datetime
    whole: DriftCount = field(default_factory=DriftCount)
    open: int = 0
    """Not ended at the end of the time."""
    by_cause: Counts = field(default_factory=dict)
    by_writer: Counts = field(default_factory=dict)
    by_kind: Counts = field(default_factory=dict)
    by_resolution: Counts = field(default_factory=dict)
    by_application: Counts = field(default_factory=dict)
    decisions: dict[str, DecisionCount] = field(default_factory=dict)
    """By who decided."""
    _resolved: list[float] = field(default_factory=list)

    def add(self, drift: CountedDrift) -> None:
        """Count a drift, if it was there within the time.

        One of several kinds, causes or writers counts under each of them.
        """
        ended = drift.resolved_at
        if drift.first_seen >= self.until or (ended is not None and ended < self.since):
            return
        gone = ended is not None and ended < self.until
        last = ended if ended is not None and gone else self.until
        seconds = max((last - max(drift.first_seen, self.since)).total_seconds(), 0.0)
        self.whole.add(seconds)
        if ended is not None and gone:
            self._resolved.append(max((ended - drift.first_seen).total_seconds(), 0.0))
        else:
            self.open += 1
        how = (drift.resolution or UNKNOWN) if gone else OPEN
        for counts, keys in (
            (self.by_cause, drift.causes),
            (self.by_writer, drift.writers),
            (self.by_kind, drift.kinds),
            (self.by_resolution, (how,)),
            (self.by_application, (drift.application,)),
        ):
            for key in keys or (UNKNOWN,):
                counts.setdefault(key, DriftCount()).add(seconds)

    def add_decision(self, actor: str, action: str) -> None:
        """Count a line of the journal, if it is a decision."""
        named = DECISIONS.get(JournalAction(action)) if action in _ACTIONS else None
        if named is not None:
            made = self.decisions.setdefault(actor, DecisionCount())
            setattr(made, named, getattr(made, named) + 1)

    @property
    def resolved(self) -> int:
        """How many ended within the time."""
        return len(self._resolved)

    def time_to_resolve(self, part: float) -> float | None:
        """Seconds within which this part of those that ended did; None when none did."""
        return nearest_rank(sorted(self._resolved), part)


_ACTIONS = frozenset(action.value for action in JournalAction)


def nearest_rank(values: Sequence[float], part: float) -> float | None:
    """Return the value that this part of some sorted values does not exceed."""
    return values[max(math.ceil(part * len(values)) - 1, 0)] if values else None


def largest_first(counts: Counts) -> Iterable[tuple[str, DriftCount]]:
    """Give the keys with their counts, the most frequent first."""
    return sorted(counts.items(), key=lambda each: (-each[1].count, each[0]))
