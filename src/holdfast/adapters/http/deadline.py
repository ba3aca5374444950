"""One total deadline for a whole call, however many requests, reads and waits it takes.

HTTP libraries bound each read and write by itself, so a peer that sends one byte now and then
can hold a caller for ever. Here every read asks how much of the total is left.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.reconcile.ports import Clock

NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """The moment by which a call must have ended."""

    clock: Clock
    seconds: float
    """The whole budget, for messages."""
    at: float
    """On the monotonic clock."""

    def left(self) -> float:
        """Seconds that remain; zero or less when the time is up."""
        return self.at - self.clock.monotonic()


def deadline_in(seconds: float | None, clock: Clock) -> Deadline:
    """Start a budget now; None is no bound."""
    budget = NEVER if seconds is None else seconds
    return Deadline(clock=clock, seconds=budget, at=clock.monotonic() + budget)


class Allowance(float):
    """What the HTTP library hands to each read and write as its time-out.

    It passes the object along untouched, so the socket can ask it anew each time.
    """

    deadline: Deadline
    idle: float

    def __new__(cls, deadline: Deadline, idle: float = NEVER) -> Allowance:
        """Bound each operation by `idle` and all of them by the deadline."""
        made = super().__new__(cls, min(max(deadline.left(), 0.0), idle, 86_400.0))
        made.deadline = deadline
        made.idle = idle
        return made

    def now(self) -> float:
        """Seconds that the next operation may take."""
        return min(max(self.deadline.left(), 0.001), self.idle, 86_400.0)


def allowed(timeout: float | None) -> float | None:
    """Turn what the library passed along into seconds for the next operation."""
    return timeout.now() if isinstance(timeout, Allowance) else timeout
