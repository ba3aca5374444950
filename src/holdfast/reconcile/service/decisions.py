"""What is to be done about one child: its diff and the circumstances, put to the one `decide`.

Pure. The pass decides about every child before it writes anything, so that the writers of drift
are on record before healing erases them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.core.cost import NO_COST, Cost
from holdfast.core.drift import Situation
from holdfast.core.errors import HoldfastError
from holdfast.core.fight import Heal, is_fighting, next_heal_at
from holdfast.core.object_plan import ObjectStep, StepReason, fields_to_show
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.object_diff import ObjectDiff, ObjectState
from holdfast.core.ownership.signals import Declaration, FieldDrift
from holdfast.core.plan import Action, StepPlan
from holdfast.core.policy import Circumstances, Decision, DecisionAction, Policy, Reason, decide
from holdfast.core.quantity import parse_quantity
from holdfast.core.tree import Fields, show_path
from holdfast.reconcile.kube import ObjectRef
from holdfast.reconcile.objects.resource_manager import WriteResult
from holdfast.reconcile.service.observe import ChildRole

_WHOLE_OBJECT = ("", "")
"""A deletion: all of the object, by somebody who left no trace."""
_OWNERSHIP_RECORD = ("metadata.managedFields", "")
"""The record of ownership, by somebody who wiped themselves off it, too."""
_LEFT_ON_PURPOSE = (Reason.POLICY, Reason.UNKNOWN_FIELDS, Reason.HELD, Reason.UNHEALABLE)
_STORAGE_PATH = ("spec", "resources", "requests", "storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """While nothing is to be written to a service."""

    until: datetime | None
    """None: until it is taken out of the spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildDecision:
    """One child: what is declared, what is there, what is to be done about it, what was done."""

    role: ChildRole
    ref: ObjectRef
    decision: Decision
    declared: Declaration | None = None
    live: Fields | None = None
    diff: ObjectDiff | None = None
    """None where there was nothing of ours to compare."""
    error: HoldfastError | None = None
    """Why it could not be read or written."""
    written: WriteResult | None = None
    """What became of the write, by the server's answer; None when nothing was written."""
    deleted: bool = False
    """It was there before, and somebody deleted it."""
    contested: tuple[FieldDrift, ...] = ()
    """What somebody changes each time it is put back, and is left for now."""
    fight_until: datetime | None = None
    """When what is contested may be put back again."""
    creation_cost: Cost | None = None
    """What it cost to create it again, where somebody had deleted it."""

    @property
    def action(self) -> DecisionAction:
        return self.decision.action

    @property
    def reason(self) -> Reason:
        return self.decision.reason

    @property
    def altered(self) -> tuple[FieldDrift, ...]:
        """What cannot be as declared, since the server stores it differently than it is sent."""
        if self.written is not None:
            return self.written.altered
        return self.diff.altered if self.diff and self.reason is Reason.ALTERED else ()

    @property
    def drifted(self) -> tuple[FieldDrift, ...]:
        """What moved without being declared."""
        return self.diff.drifted if self.diff else ()

    @property
    def pending(self) -> tuple[FieldDrift, ...]:
        """What was declared anew and is not there yet."""
        return pending_fields(self.diff) if self.diff else ()

    @property
    def delegated(self) -> tuple[FieldDrift, ...]:
        """What differs and is left to an autoscaler or its like."""
        fields = self.diff.field_drifts if self.diff else ()
        return tuple(each for each in fields if each.field_class is FieldClass.DELEGATED)

    @property
    def has_moved(self) -> bool:
        """True when it is not as it was applied last: changed, deleted, or its record wiped."""
        wiped = self.diff is not None and self.diff.state is ObjectState.WIPED
        return bool(self.drifted) or wiped or self.deleted

    @property
    def postponed(self) -> bool:
        """True when something was declared that a suspension keeps from being written."""
        if self.reason is not Reason.HELD:
            return False
        return bool(self.pending) or (self.live is None and not self.deleted)

    @property
    def cost(self) -> Cost | None:
        """What it costs to make it as declared; None where nobody asked, or nobody can tell."""
        if self.action is DecisionAction.CREATE:
            return self.creation_cost
        return self.diff.cost_of((*self.drifted, *self.pending)) if self.diff else NO_COST

    @property
    def leaves_drift(self) -> bool:
        """True when drift stays: by the policy, for a field that is not known, or as no write can
        end it."""
        match self.action:
            case DecisionAction.REPORT | DecisionAction.PLAN | DecisionAction.UPDATE_AROUND_DRIFT:
                return True
            case DecisionAction.LEAVE:
                return self.reason in _LEFT_ON_PURPOSE and self.has_moved
            case _:
                return False

    @property
    def healed(self) -> bool:
        """True when a heal ended something, by the server's answer to it."""
        if self.action is not DecisionAction.HEAL or self.written is None or self.diff is None:
            return False
        left = {field.change.path for field in (*self.altered, *self.contested)}
        wiped = self.diff.state is ObjectState.WIPED
        return wiped or any(field.change.path not in left for field in self.drifted)

    @property
    def healed_changes(self) -> frozenset[tuple[str, str]]:
        """What putting it back ends: each field with the tool that had changed it."""
        if self.action is DecisionAction.CREATE:
            return frozenset({_WHOLE_OBJECT}) if self.deleted else frozenset()
        left = {field.change.path for field in (*self.contested, *self.altered)}
        ended = {_change_of(field) for field in self.drifted if field.change.path not in left}
        return frozenset(ended or {_OWNERSHIP_RECORD})


def decide_absent(
    child: ChildDecision,
    heals: Sequence[Heal],
    now: datetime,
    *,
    suspension: Suspension | None = None,
) -> ChildDecision:
    """Create a child, unless somebody deletes it each time it is created."""
    if suspension is not None:
        circumstances = Circumstances(held=True, held_until=suspension.until)
        return replace(child, decision=decide(Situation.ABSENT, Policy.HEAL, circumstances))
    until = _next_heal(_WHOLE_OBJECT, heals, now) if child.deleted else None
    decision = decide(Situation.ABSENT, Policy.HEAL, Circumstances(fight_until=until))
    return replace(child, decision=decision, fight_until=until)


def decide_present(
    child: ChildDecision,
    diff: ObjectDiff,
    policy: Policy,
    heals: Sequence[Heal],
    now: datetime,
    *,
    unknown_fields: bool,
    suspension: Suspension | None = None,
) -> ChildDecision:
    """Decide about a child that is there and ours.

    A suspension holds back what would be written; what the policy says besides stays said.

    An object whose record of ownership was wiped counts as drifted: what moved on it cannot be
    told any more. Fights are counted for each field and writer: other drift of the same object is
    put back at once, so the child is left only when all that moved is contested.
    """
    wiped = diff.state is ObjectState.WIPED
    if not diff.drifted and not wiped:
        situation = Situation.PENDING if diff.differing else Situation.IN_SYNC
    else:
        situation = Situation.DRIFTED
    circumstances = Circumstances(
        pending=bool(pending_fields(diff)),
        unknown_fields=unknown_fields,
        altered=bool(diff.altered) and not diff.healable and not wiped,
        unhealable=child.role is ChildRole.MODEL_CLAIM and _is_larger(diff),
    )
    decision = decide(situation, policy, circumstances)
    if suspension is not None and decision.action.writes:
        held = replace(circumstances, held=True, held_until=suspension.until)
        return replace(child, diff=diff, decision=decide(situation, policy, held))
    child = replace(child, diff=diff, decision=decision)
    if situation is not Situation.DRIFTED or policy is not Policy.HEAL:
        return child
    if circumstances.altered or circumstances.unhealable:
        return child
    waits = [(field, _next_heal(_change_of(field), heals, now)) for field in diff.drifted]
    contested = tuple(field for field, until in waits if until is not None)
    times = [until for _, until in waits if until is not None]
    if not waits and (until := _next_heal(_OWNERSHIP_RECORD, heals, now)) is not None:
        times.append(until)
    if not times:
        return child
    until = min(times)
    if len(contested) == len(waits):
        # Any write restores a record that somebody keeps wiping, so nothing lands beside that.
        pending = circumstances.pending and bool(waits)
        fought = replace(circumstances, fight_until=until, pending=pending)
        decision = decide(situation, policy, fought)
    return replace(child, decision=decision, contested=contested, fight_until=until)


def make_dry_run_plan(children: Iterable[ChildDecision]) -> StepPlan[ObjectStep]:
    """Plan what a dry run leaves: its drift would be put back, and what waits for that written."""
    return StepPlan(
        steps=tuple(
            ObjectStep(
                ref=child.ref,
                action=Action.UPDATE,
                reason=StepReason.DRIFTED,
                fields=fields_to_show((*child.drifted, *child.pending)),
                cost=child.cost,
            )
            for child in children
            if child.action is DecisionAction.PLAN
        )
    )


def pending_fields(diff: ObjectDiff) -> tuple[FieldDrift, ...]:
    """What was declared since the last apply. The digest tells, so no dry run has to confirm it."""
    return tuple(
        field
        for field in diff.field_drifts
        if field.pending and field.field_class is FieldClass.OWNED
    )


def _is_larger(diff: ObjectDiff) -> bool:
    """True for a claim that somebody made larger: the API server lets none become smaller."""
    for field in diff.drifted:
        desired, live = field.change.desired, field.change.live
        if field.change.path == _STORAGE_PATH and desired is not None and live is not None:
            declared, there = parse_quantity(str(desired)), parse_quantity(str(live))
            return declared is not None and there is not None and there > declared
    return False


def _change_of(field: FieldDrift) -> tuple[str, str]:
    return show_path(field.change.path), field.writer.manager if field.writer else ""


def _next_heal(change: tuple[str, str], heals: Sequence[Heal], now: datetime) -> datetime | None:
    """When a change that came back after each of several heals may be ended again."""
    rounds = [heal.at for heal in heals if change in heal.fields]
    return next_heal_at(rounds, now) if is_fighting(rounds, now) else None
