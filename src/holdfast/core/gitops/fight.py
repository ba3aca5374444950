"""When to heal again what somebody keeps changing, and when to stop and say so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

FIRST = timedelta(seconds=5)
LONGEST = timedelta(minutes=5)
PERIOD = timedelta(minutes=10)
ROUNDS = 3
"""So many heals within the period, and the next drift is a fight."""


def recent(rounds: Sequence[datetime], now: datetime) -> tuple[datetime, ...]:
    """The heals that still count. A clock that was set back makes none of them count for ever."""
    return tuple(at for at in rounds if timedelta(0) <= now - at < PERIOD)


def fighting(rounds: Sequence[datetime], now: datetime) -> bool:
    """True when it was healed so often lately that somebody must be putting it back."""
    return len(recent(rounds, now)) >= ROUNDS


def not_before(rounds: Sequence[datetime], now: datetime) -> datetime | None:
    """When it may be healed again; None for at once. The first heal never waits.

    Doubles with every round that counts, and starts anew after a quiet period.
    """
    counted = recent(rounds, now)
    if not counted:
        return None
    wait = min(FIRST * 2 ** (len(counted) - 1), LONGEST)
    at = counted[-1] + wait
    return at if at > now else None
