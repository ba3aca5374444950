"""What one pass over a service returns. The operator's loop reads it, and so do library users."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.service.canary import Note
from holdfast.core.service.spec import InferenceServiceStatus

__all__ = ["Note", "Result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a pass."""

    status: InferenceServiceStatus
    requeue_after: float | None = None
    """Seconds until time alone may change something; None when only an event can."""
    notes: tuple[Note, ...] = ()
