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

FIRST_BACKOFF = timedelta(seconds=5)
MAX_BACKOFF = timedelta(minutes=5)
FIGHT_PERIOD = timedelta(minutes=10)
FIGHT_ROUNDS = 3
"""So many heals within the period, and the next drift is a fight."""
API_SERVER = "the API server itself or an admission webhook"
"""Which of the two it was is on no record."""
_MAX_FIELDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Heal:
    """When fields of one object were put back, and who had changed them."""

    at: datetime
    fields: frozenset[tuple[str, str]]
    """Paths, each with the tool that had written it; "" where none is on record."""


def heal_of(entries: Iterable[DriftEntry], at: datetime) -> Heal:
    """Note a heal of some fields."""
    return Heal(at=at, fields=frozenset(map(_field_and_writer, entries)))


def rounds_of(entries: Iterable[DriftEntry], heals: Iterable[Heal]) -> tuple[datetime, ...]:
    """When one of the fields was healed, whoever had changed it. Slows the next heal down."""
    paths = {entry.path for entry in entries}
    rounds = {heal.at for heal in heals if paths & {path for path, _ in heal.fields}}
    return tuple(sorted(rounds))


def is_fought(entry: DriftEntry, heals: Iterable[Heal], now: datetime) -> bool:
    """True when the same writer changed the same field after each of several heals.

    Others who change the field, or other fields that were healed, are no round of a fight.
    """
    changed = _field_and_writer(entry)
    return is_fighting([heal.at for heal in heals if changed in heal.fields], now)


def recent_rounds(rounds: Sequence[datetime], now: datetime) -> tuple[datetime, ...]:
    """The heals that still count. A clock that was set back makes none of them count for ever."""
    return tuple(at for at in rounds if timedelta(0) <= now - at < FIGHT_PERIOD)


def is_fighting(rounds: Sequence[datetime], now: datetime) -> bool:
    """True when it was healed so often lately that somebody must be putting it back."""
    return len(recent_rounds(rounds, now)) >= FIGHT_ROUNDS


def next_heal_at(rounds: Sequence[datetime], now: datetime) -> datetime | None:
    """When it may be healed again; None for at once. The first heal never waits.

    Doubles with every round that counts, and starts anew after a quiet period.
    """
    counted = recent_rounds(rounds, now)
    if not counted:
        return None
    wait = min(FIRST_BACKOFF * 2 ** (len(counted) - 1), MAX_BACKOFF)
    at = counted[-1] + wait
    return at if at > now else None


def fight_writers(entries: Sequence[DriftEntry]) -> tuple[str, ...]:
    """Who changes the fields: the writers on record, or the server where it leaves none."""
    writers = sorted({str(entry.writer) for entry in entries if entry.writer})
    rewritten = any(entry.cause is Cause.ADMISSION for entry in entries)
    return (*writers, API_SERVER) if rewritten else tuple(writers)


def describe_fight(entries: Sequence[DriftEntry]) -> str:
    """Say that fields came back after each heal."""
    others = fight_writers(entries)
    if others == (API_SERVER,):
        fields = _field_list(entries)
        return f"{_capitalised(API_SERVER)} stores {fields} differently each time it is written."
    rival = " and ".join(others) or "somebody who leaves no trace"
    return f"{_capitalised(rival)} and holdfast-gitops keep changing {_field_list(entries)}."


def describe_rewrite(entries: Sequence[DriftEntry]) -> tuple[str, tuple[str, ...]]:
    """Say why fields differ right after they were written, and who did that.

    `entries` are what was observed after the write. A removal leaves no trace of its writer, so
    without one only a dry run that gives the same shows that it was the server.
    """
    fields = _field_list(entries)
    writers = tuple(each for each in fight_writers(entries) if each != API_SERVER)
    if writers:
        names = _capitalised(" and ".join(writers))
        return f"{names} changed {fields} as soon as it was written.", writers
    ways = "Declare what is stored, or ignore the field."
    if all(entry.cause is Cause.ADMISSION for entry in entries):
        message = f"It was written, nobody else wrote since, and it still differs in {fields}"
        return f"{message}: {API_SERVER} stores it differently. {ways}", (API_SERVER,)
    message = f"It was written and still differs in {fields}, with no writer on record"
    return f"{message}: it was removed at once, or {API_SERVER} stores it differently. {ways}", ()


def describe_admission_change(entries: Iterable[DriftEntry]) -> str:
    """Say that no apply can put fields back, since the server changes what it is sent."""
    return (
        f"The API server stores {_field_list(entries)} differently from what is sent: an admission "
        "policy or webhook changes it. It cannot be put back. Declare what is stored, change the "
        "policy, or ignore the field."
    )


def _field_and_writer(entry: DriftEntry) -> tuple[str, str]:
    return entry.path, entry.writer.manager if entry.writer else ""


def _field_list(entries: Iterable[DriftEntry]) -> str:
    paths = [entry.path or "the object" for entry in entries]
    more = f" and {len(paths) - _MAX_FIELDS} more" if len(paths) > _MAX_FIELDS else ""
    return ", ".join(paths[:_MAX_FIELDS]) + more


def _capitalised(text: str) -> str:
    """Begin a sentence; the name of a tool stays as it is."""
    return text[:1].upper() + text[1:] if text.startswith(("the ", "somebody ")) else text
