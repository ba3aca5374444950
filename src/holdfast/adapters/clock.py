"""The machine's own clock, in both colours."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """For code that runs in an event loop."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait without holding up the loop."""
        import asyncio  # a sync client never needs it, and it is slow to load

        await asyncio.sleep(seconds)


class BlockingClock(SystemClock):
    """For the sync apps: `sleep` blocks and never suspends."""

    async def sleep(self, seconds: float) -> None:
        """Wait in place."""
        time.sleep(seconds)  # noqa: ASYNC251  # blocking is this class's purpose
