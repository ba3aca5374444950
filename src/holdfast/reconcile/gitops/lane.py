"""One channel of the notifier: what waits for it, how fast it may go, how it fares.

Touched by the notifier alone. A lane without a channel keeps what waits until the channel is
there, since after a start notices are read before the applications that name the channels.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from holdfast.core.gitops.grouping import Bucket, Limits, Waiting, batch
from holdfast.core.gitops.notice import Severity
from holdfast.reconcile.gitops.ports import Channel

FIRST_RETRY = 5.0
LONGEST_RETRY = 600.0
ABSENT = 3600.0
"""Seconds that notices wait for a channel that nobody names."""


@dataclass(slots=True)
class Lane:
    """The way to one channel."""

    name: str
    bucket: Bucket
    channel: Channel | None = None
    absent_since: float = 0.0
    waiting: dict[str, Waiting] = field(default_factory=dict)
    unmarked: dict[str, str] = field(default_factory=dict)
    """Notices that the channel has while the ledger does not say so yet."""
    failures: int = 0
    error: str = ""
    undelivered: int = 0
    not_before: float = 0.0
    """After a failure: when to try again."""
    next_at: float | None = None
    """When there is something to do; None when nothing waits."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    task: asyncio.Task[None] | None = None

    def add(self, waiting: Waiting, limits: Limits) -> None:
        """Queue a notice."""
        self.waiting[waiting.notice.id] = waiting
        urgent = waiting.notice.severity is Severity.CRITICAL
        delay = limits.flapping if waiting.held else 0.0 if urgent else limits.window
        at = max(waiting.since + delay, self.not_before)
        if len(self.waiting) > limits.waiting:
            at = waiting.since  # the older are folded, also while the channel is down
        self.next_at = at if self.next_at is None else min(self.next_at, at)

    def failed(self, now: float, why: str, *, asked: float | None, chance: float) -> None:
        """Wait before the next attempt: doubling, with jitter, and at least as long as asked."""
        wait = min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(self.failures, 20))
        self.failures += 1
        self.error = why
        self.not_before = now + max(wait * (0.5 + chance / 2), asked or 0.0)

    def succeeded(self) -> None:
        """Forget the failures."""
        self.failures = 0
        self.error = ""
        self.not_before = 0.0

    def plan_next(self, now: float, limits: Limits) -> None:
        """Set when there is something to do again."""
        self.next_at = None
        if self.waiting:
            due = batch(list(self.waiting.values()), now=now, limits=limits, tokens=1)
            if due.groups or due.digest:
                self.next_at = now + self.bucket.filled(now, limits).wait(limits)
            elif due.again_in is not None:
                self.next_at = now + due.again_in
        if self.unmarked:
            self.next_at = now
        if self.next_at is not None:
            self.next_at = max(self.next_at, self.not_before)
            if self.channel is None and not self.unmarked:
                self.next_at = max(self.next_at, self.absent_since + ABSENT)
