"""What of a sync's plan is carried out now, and what of it waits for a person.

`plan.py` says what would be done to each object, and `guard.py` what of it is too much or too
strange. Here both become one decision about the whole plan, by who asked for it and when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.core.gitops.guard import ApprovalRequirement
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.records import ApprovalReason, PendingPlan
from holdfast.core.plan import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTerms:
    """Who asked for a sync, and what an application allows."""

    requested: bool = False
    """A person asked for it."""
    forced: bool = False
    """They asked for what a guard holds back, too."""
    automatic: bool = False
    window_open: bool = True
    prunes: bool = False
    """The application, or the person, wants deleted what is no longer declared."""
    allow_empty: bool = False
    """An empty repository may be meant."""

    @property
    def acts(self) -> bool:
        """True when something may be written now that nobody has to agree to."""
        return self.requested or (self.automatic and self.window_open)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncDecision:
    """What becomes of a plan."""

    now: SyncPlan | None = None
    """What is carried out; None where this is no time to write at all."""
    waiting: SyncPlan | None = None
    """What a person has to agree to first."""
    approval: PendingPlan | None = None
    """The approval that `now` rests on, which is used up by it."""
    unapproved: bool = False
    """True where nobody asked for `now` or agreed to it: the guards count it for a day."""


def decide_sync(
    plan: SyncPlan,
    requirements: Sequence[ApprovalRequirement],
    terms: SyncTerms,
    pending: Mapping[str, PendingPlan],
) -> SyncDecision:
    """Say what of a plan is carried out now, and what waits. Total over all that counts.

    Where only deletions are in question, they alone wait, and the rest is done. An approval holds
    for exactly the plan that waited, and outside of windows too: who gave it was there to see it.
    `pending` are the plans that wait or were approved, by id.
    """
    if not terms.allow_empty and any(each.why is ApprovalReason.EMPTY for each in requirements):
        plan = _without_deletions(plan)  # an approval alone does not make it meant
    whole = any(each.whole for each in requirements)
    asked = _asked_about(plan, terms, whole=whole)
    known = pending.get(asked.id)
    agreed = known is not None and bool(known.approved_by) and known.digest == asked.digest
    waits = bool(requirements) and not agreed and not (terms.requested and terms.forced)
    if not terms.acts:
        now = asked if agreed else None
    elif whole:
        now = replace(plan, steps=()) if waits else asked
    elif waits or not (terms.prunes or agreed):
        now = _without_deletions(plan)
    else:
        now = plan
    return SyncDecision(
        now=now,
        waiting=asked if waits else None,
        approval=known if agreed else None,
        unapproved=bool(now) and not (terms.requested or agreed),
    )


def _asked_about(plan: SyncPlan, terms: SyncTerms, *, whole: bool) -> SyncPlan:
    """The part of a plan that a person has to agree to where the guards ask for that."""
    if not whole:
        return replace(
            plan, steps=tuple(step for step in plan.steps if step.action is Action.DELETE)
        )
    return plan if terms.prunes else _without_deletions(plan)


def _without_deletions(plan: SyncPlan) -> SyncPlan:
    return replace(
        plan, steps=tuple(step for step in plan.steps if step.action is not Action.DELETE)
    )
