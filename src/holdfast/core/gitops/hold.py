"""Emergency changes: a hold that ends, with a reason and somebody who asked for it.

Kept in the ledger, asked by `decide`, and ended by `reconcile/gitops/holds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.core.gitops.application import AppId, HoldEnd
from holdfast.core.objects import ObjectRef

PAUSED_UNTIL = "holdfast.dev/paused-until"
PAUSE_REASON = "holdfast.dev/pause-reason"
BREAK_GLASS = "holdfast.dev/break-glass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Nothing is written to an object, or to a whole application, until it ends."""

    id: str
    application: AppId
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

    def holds(self, ref: ObjectRef, now: datetime) -> bool:
        """True while an object must not be written."""
        return now < self.until and (self.object is None or self.object == ref)
