"""Emergency changes: a hold that ends, with a reason and somebody who asked for it.

Kept in the ledger, asked by `decide`, and ended by `reconcile/gitops/holds.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from holdfast.core.gitops.application import ApplicationId, HoldEnd
from holdfast.core.object_ref import ObjectRef

PAUSED_UNTIL = "holdfast.dev/paused-until"
PAUSE_REASON = "holdfast.dev/pause-reason"
BREAK_GLASS = "holdfast.dev/break-glass"
ANNOTATION_BUDGET = timedelta(hours=24)
"""So long annotations may hold one object, all their holds together, within the period."""
ANNOTATION_PERIOD = timedelta(days=7)
MIN_GRANTED = timedelta(minutes=10)
"""What is left of the budget is granted from here on: less would be a hold every other minute."""
HoldTime: TypeAlias = tuple[datetime, datetime]
"""When a hold began, and when it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Nothing is written to an object, or to a whole application, until it ends."""

    id: str
    application: ApplicationId
    object: ObjectRef | None
    """None holds everything of the application."""
    reason: str
    by: str
    since: datetime
    until: datetime
    end: HoldEnd
    from_annotation: bool = False
    """Set on the object itself; removing the annotation ends it."""
    asked: datetime | None = None
    """The end that the annotation names, which may be later than it is granted."""
    used: tuple[HoldTime, ...] = ()
    """Earlier holds of the object by annotation that count on the same budget."""
    refused: bool = False
    """It was asked for and not granted: the budget is used up, or annotations hold nothing."""

    @property
    def cut_short(self) -> bool:
        """True for one that was granted for less than was asked for."""
        return self.from_annotation and self.asked is not None and self.until < self.asked

    def ended(self, now: datetime) -> Hold:
        """The same, once it is over, with its own time among those that were used."""
        if not self.from_annotation or self.refused:
            return self
        own = (self.since, max(self.since, min(self.until, now)))
        return replace(self, used=tuple(recent_times((*self.used, own), now)))

    def holds(self, ref: ObjectRef, now: datetime) -> bool:
        """True while an object must not be written."""
        return now < self.until and (self.object is None or self.object == ref)


def recent_times(times: Iterable[HoldTime], now: datetime) -> list[HoldTime]:
    """What still counts on the budget, each once."""
    return sorted({each for each in times if now - each[1] < ANNOTATION_PERIOD})


def budget_left(times: Iterable[HoldTime], now: datetime) -> timedelta:
    """How long an object may still be held by annotation, from now on."""
    begin = now - ANNOTATION_PERIOD
    spent = sum(
        (end - max(start, begin) for start, end in recent_times(times, now)), start=timedelta(0)
    )
    return max(timedelta(0), ANNOTATION_BUDGET - spent)
