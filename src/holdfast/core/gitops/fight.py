"""When to heal again what somebody keeps changing, and when to stop and say so.

A fight is about one field that one writer changes after each heal.

Asked by `decide`; the ledger keeps when a drift was healed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.core.drift import Cause
from holdfast.core.ledger import DriftEntry

FIRST = timedelta(seconds=5)
LONGEST = timedelta(minutes=5)
PERIOD = timedelta(minutes=10)
ROUNDS = 3
"""So many heals within the period, and the next drift is a fight."""
SERVER = "the API server itself or an admission webhook"
"""Which of the two it was is on no record."""
_MOST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Heal:
    """When fields of one object were put back, and who had changed them."""

    at: datetime
    fields: frozenset[tuple[str, str]]
    """Paths, each with the tool that had written it; "" where none is on record."""


def heal_of(entries: Iterable[DriftEntry], at: datetime) -> Heal:
    """Note a heal of some fields."""
    return Heal(at=at, fields=frozenset(map(_changed, entries)))


def rounds_of(entries: Iterable[DriftEntry], heals: Iterable[Heal]) -> tuple[datetime, ...]:
    """When one of the fields was healed, whoever had changed it. Slows the next heal down."""
    paths = {entry.path for entry in entries}
    return tuple(sorted({
        heal.at for heal in heals if paths & {path for path, _ in heal.fields}
    }))  # fmt: skip


def kept_up_by(entry: DriftEntry, heals: Iterable[Heal], now: datetime) -> bool:
    """True when the same writer changed the same field after each of several heals.

    Others who change the field, or other fields that were healed, are no round of a fight.
    """
    changed = _changed(entry)
    return fighting([heal.at for heal in heals if changed in heal.fields], now)


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


def rivals(entries: Sequence[DriftEntry]) -> tuple[str, ...]:
    """Who changes the fields: the writers on record, or the server where it leaves none."""
    writers = sorted({str(entry.writer) for entry in entries if entry.writer})
    rewritten = any(entry.cause is Cause.ADMISSION for entry in entries)
    return (*writers, SERVER) if rewritten else tuple(writers)


def kept_up(entries: Sequence[DriftEntry]) -> str:
    """Say that fields came back after each heal."""
    others = rivals(entries)
    if others == (SERVER,):
        return f"{_capital(SERVER)} stores {_fields(entries)} differently each time it is written."
    rival = " and ".join(others) or "somebody who leaves no trace"
    return f"{_capital(rival)} and holdfast-gitops keep changing {_fields(entries)}."


def rewritten(entries: Sequence[DriftEntry]) -> tuple[str, tuple[str, ...]]:
    """Say why fields differ right after they were written, and who did that.

    `entries` are those of the look after the write. A removal leaves no trace of its writer, so
    without one only a dry run that gives the same tells that it was the server.
    """
    writers = tuple(each for each in rivals(entries) if each != SERVER)
    if writers:
        names = " and ".join(writers)
        told = f"{_capital(names)} changed {_fields(entries)} as soon as it was written."
        return told, writers
    ways = "Declare what is stored, or ignore the field."
    if all(entry.cause is Cause.ADMISSION for entry in entries):
        told = (
            f"It was written, nobody else wrote since, and it still differs in {_fields(entries)}"
        )
        return f"{told}: {SERVER} stores it differently. {ways}", (SERVER,)
    told = f"It was written and still differs in {_fields(entries)}, with no writer on record"
    return f"{told}: it was removed at once, or {SERVER} stores it differently. {ways}", ()


def altered(entries: Iterable[DriftEntry]) -> str:
    """Say that no apply can put fields back, since the server changes what it is sent."""
    return (
        f"The API server stores {_fields(entries)} differently from what is sent: an admission "
        "policy or webhook changes it. It cannot be put back. Declare what is stored, change the "
        "policy, or ignore the field."
    )


def _changed(entry: DriftEntry) -> tuple[str, str]:
    return entry.path, entry.writer.manager if entry.writer else ""


def _fields(entries: Iterable[DriftEntry]) -> str:
    paths = [entry.path or "the object" for entry in entries]
    more = f" and {len(paths) - _MOST} more" if len(paths) > _MOST else ""
    return ", ".join(paths[:_MOST]) + more


def _capital(text: str) -> str:
    """Begin a sentence; the name of a tool stays as it is."""
    return text[:1].upper() + text[1:] if text.startswith(("the ", "somebody ")) else text
