"""Says what changed from one status to the next, as notes that become events.

Only transitions: a state that lasts says nothing more. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.core.service.spec import Condition, InferenceServiceStatus
from holdfast.reconcile.service.intent import Intent, Move
from holdfast.reconcile.service.result import Note
from holdfast.reconcile.service.status import FIGHTING, REFUSED, UNKNOWN_FIELDS
from holdfast.reconcile.service.words import cut, told

ROUTINE = frozenset({"Created", "Updated", "Deleted"})
"""What follows from a declaration by itself. When not all can be told, this is left out first:
drift, heals, promotions and failures are what people look for afterwards."""
_OBSTACLES = ("ForeignObject", REFUSED, UNKNOWN_FIELDS)
"""Why something is not as declared that people have to do something about."""
_DRIFT_NOTES = {
    "Left": "DriftLeft",
    "AlteredByAdmission": "AlteredByAdmission",
    FIGHTING: FIGHTING,
}
"""Reasons of the condition that are told under a name of their own."""


def of_writes(done: Sequence[Intent]) -> Iterator[Note]:
    """What was written: each write is a transition of its own."""
    for each in done:
        if each.error is not None:
            continue
        name = f"{each.ref.kind} {each.ref.name}"
        if each.move is Move.CREATE and each.deleted:
            said = f"{told([each])} It was created again."
            yield Note(warning=True, reason="DriftHealed", message=said)
        elif each.move is Move.CREATE:
            yield Note(warning=False, reason="Created", message=f"{name} was created.")
        elif each.move in (Move.UPDATE, Move.BESIDE):
            yield Note(warning=False, reason="Updated", message=f"{name} was made as declared.")
        elif each.move is Move.HEAL and each.put_back:
            said = cut(f"{told([each], healed=True)} It was put back.")
            yield Note(warning=True, reason="DriftHealed", message=said)


def of_status(
    before: InferenceServiceStatus | None, after: InferenceServiceStatus
) -> Iterator[Note]:
    """What the conditions say that they did not say before."""
    old = {each.type: each for each in before.conditions} if before else {}
    new = {each.type: each for each in after.conditions}
    ready, drift = new["Ready"], new.get("DriftDetected")
    if _said_anew(old, ready):
        if ready.status == "True":
            yield Note(warning=False, reason="Ready", message=ready.message)
        elif ready.reason == "InvalidSpec":
            yield Note(warning=True, reason="InvalidSpec", message=ready.message)
        elif _was(old, "Ready", "True"):
            # A rollout that somebody asked for is no reason to worry.
            worry = ready.reason != "RollingOut"
            yield Note(warning=worry, reason="NotReady", message=ready.message)
    if drift and drift.status == "True" and _changed(old, drift):
        reason = _DRIFT_NOTES.get(drift.reason, "DriftDetected")
        yield Note(warning=True, reason=reason, message=drift.message)
    up_to_date = new.get("UpToDate")
    if up_to_date and up_to_date.reason in _OBSTACLES and _changed(old, up_to_date):
        yield Note(warning=True, reason=up_to_date.reason, message=up_to_date.message)


def _said_anew(old: dict[str, Condition], new: Condition) -> bool:
    """A flip, or another problem of a spec that was refused before."""
    if new.reason == "InvalidSpec":
        return _changed(old, new)
    before = old.get(new.type)
    return before is None or before.status != new.status


def _changed(old: dict[str, Condition], new: Condition) -> bool:
    before = old.get(new.type)
    return before is None or (before.reason, before.message) != (new.reason, new.message)


def _was(old: dict[str, Condition], kind: str, status: str) -> bool:
    return kind in old and old[kind].status == status
