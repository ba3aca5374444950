"""What is too much, or too strange, to be done without asking a person.

An error that looks like an empty or shrunken repository is the worst accident that a tool of
this kind can have, so these are separate questions with separate answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.core.gitops.application import GuardSpec
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.source import Ancestry
from holdfast.core.plan import Action

_NOTHING = (
    "The repository declares nothing any more. Nothing is deleted unless sync.allowEmpty says that "
    "this may be meant, and somebody agrees."
)
OBJECTS = 5
PERCENT = 20
TOGETHER = timedelta(minutes=1)
"""Heals that lie closer than this count as one."""


class Park(StrEnum):
    """Why a plan waits for a person."""

    EMPTY = "empty"
    MASS_DELETE = "mass-delete"
    MASS_HEAL = "mass-heal"
    REWOUND = "rewound"
    DIVERGED = "diverged"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """One reason, in a sentence for whoever is asked."""

    why: Park
    told: str


def limit(inventory: int, guard: GuardSpec | None) -> int:
    """How many objects may go at once: the larger of a number and a share."""
    guard = guard or GuardSpec()
    objects = OBJECTS if guard.objects is None else guard.objects
    percent = PERCENT if guard.percent is None else guard.percent
    return max(objects, inventory * percent // 100)


def park_commit(ancestry: Ancestry, commit: str) -> Parked | None:
    """Say why a commit as a whole is not followed before somebody agrees."""
    shown = commit[:7]
    match ancestry:
        case Ancestry.UNRELATED:
            told = f"Commit {shown} has no history in common with what was applied."
            return Parked(why=Park.UNRELATED, told=told)
        case Ancestry.REWOUND:
            told = f"The branch was set back to {shown}, which is older than what was applied."
            return Parked(why=Park.REWOUND, told=told)
        case _:
            return None


def park_sync(
    plan: SyncPlan, *, inventory: int, declared: int, guard: GuardSpec | None, ancestry: Ancestry
) -> tuple[Parked, ...]:
    """Say why a plan must not be carried out by itself. Nothing to delete, nothing to fear."""
    deletes = [step for step in plan.steps if step.action is Action.DELETE]
    found: list[Parked] = []
    if inventory and not declared:
        found.append(Parked(why=Park.EMPTY, told=_NOTHING))
    most = limit(inventory, guard)
    if len(deletes) > most:
        told = f"{len(deletes)} of {inventory} objects would be deleted; {most} may be at once."
        found.append(Parked(why=Park.MASS_DELETE, told=told))
    if deletes and ancestry is Ancestry.DIVERGED:
        told = f"The branch was rewritten, and {len(deletes)} objects would be deleted."
        found.append(Parked(why=Park.DIVERGED, told=told))
    return tuple(found)


def park_heals(
    now: datetime,
    *,
    healing: int,
    rounds: Sequence[datetime],
    inventory: int,
    guard: GuardSpec | None,
) -> Parked | None:
    """Say why so much drift at once is not healed by itself.

    `rounds` are heals of the recent past: drift comes in as it is noticed, not all in one pass.
    """
    together = healing + sum(now - at < TOGETHER for at in rounds)
    most = limit(inventory, guard)
    if together <= most:
        return None
    told = f"{together} of {inventory} objects drifted at once; {most} are healed by themselves."
    return Parked(why=Park.MASS_HEAL, told=told)
