"""One workload, one pass, top to bottom: observe, diff, decide, plan, apply."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.drift import Drift, find_drift
from holdfast.core.errors import Conflict, HoldfastError, ValidationError
from holdfast.core.live import Live, Observation
from holdfast.core.names import WorkloadId
from holdfast.core.outcome import EndpointRef, Outcome
from holdfast.core.plan import Action, Plan, check_fresh, make_plan, with_cost
from holdfast.core.policy import DecisionAction, OnAbsent, OnDrift, decide
from holdfast.core.workload import Desired
from holdfast.reconcile.ports import Target

MAX_ATTEMPTS = 8
"""How often a pass is begun anew because another writer was first."""


_OUTCOME_WITHOUT_WRITE = {
    DecisionAction.NOTHING: Outcome.UNCHANGED,
    DecisionAction.PLAN: Outcome.PLANNED,
    DecisionAction.REPORT: Outcome.LEFT,
    DecisionAction.LEAVE: Outcome.LEFT,
    DecisionAction.REFUSE: Outcome.REFUSED,
}


async def ensure(
    target: Target,
    desired: Desired,
    *,
    on_drift: OnDrift = OnDrift.RECONCILE,
    on_absent: OnAbsent = OnAbsent.CREATE,
    key: str,
) -> EndpointRef:
    """Make the live side match, as far as the policy allows, and say what happened.

    `key` makes the writes of this call safe to repeat; a new call needs a new key. Raising
    or warning about drift is left to the app: here, drift is a value. What a plan costs is said
    where it is not carried out: no write waits for that question.
    """
    for attempt in range(MAX_ATTEMPTS):
        observed = await target.observe(desired.id)
        check_supported(target, [desired])
        drift = find_drift(desired=desired, live=observed)
        plan = make_plan([drift])
        action = decide(drift.situation, on_drift.policy, on_absent=on_absent).action
        if not action.writes:
            priced = await add_costs(target, plan)
            return _ref(drift, priced, _OUTCOME_WITHOUT_WRITE[action], drift.live)
        try:
            live = await target.perform(plan.steps[0], key=f"{key}-{attempt}")
        except Conflict:
            continue
        created = action is DecisionAction.CREATE
        return _ref(drift, plan, Outcome.CREATED if created else Outcome.UPDATED, live)
    raise Conflict(
        f"Others changed workload {desired.id} {MAX_ATTEMPTS} times while it was reconciled.",
        changed="Nothing was changed by this call.",
        hint="Find out who keeps writing it (holdfast drift history) and try again.",
    )


async def plan(target: Target, desired: Sequence[Desired]) -> tuple[Plan, tuple[Drift, ...]]:
    """Say what `ensure` would do, and not yet what that costs. Changes nothing in any situation."""
    observed = [await target.observe(each.id) for each in desired]
    check_supported(target, desired)
    drifts = tuple(
        find_drift(desired=each, live=live) for each, live in zip(desired, observed, strict=True)
    )
    return make_plan(drifts), drifts


async def add_costs(target: Target, plan: Plan) -> Plan:
    """Say of every step what it costs, as far as the target knows."""
    steps = []
    for step in plan.steps:
        cost = None if step.action is Action.NOTHING else await target.cost(step)
        steps.append(with_cost(step, cost))
    return Plan(steps=tuple(steps))


async def apply(target: Target, plan: Plan, *, key: str) -> tuple[Live | None, ...]:
    """Carry out exactly this plan, or refuse it as stale before the first write.

    A target that does not answer is no reason to call the plan stale: that error passes
    through, and the same plan may be tried again.
    """
    observed: dict[WorkloadId, Observation] = {
        step.id: await target.observe(step.id) for step in plan.steps
    }
    check_fresh(plan, observed)
    results: list[Live | None] = []
    for index, step in enumerate(plan.steps):
        try:
            after = await target.perform(step, key=f"{key}-{index}")
        except HoldfastError as error:
            done = sum(each.action is not Action.NOTHING for each in plan.steps[:index])
            error.add_changes(f"{done} of {len(plan.changes)} changes were made before that.")
            raise
        results.append(after if isinstance(after, Live) else None)
    return tuple(results)


def check_supported(target: Target, desired: Sequence[Desired]) -> None:
    """Refuse what the target cannot honour, before anything is planned or written.

    Asked after the first observation: a control plane says what it is in its first answer.
    """
    problems = [problem for each in desired for problem in target.refuses(each)]
    if problems:
        raise ValidationError("This target cannot honour the declaration.", problems=problems)


def _ref(drift: Drift, plan: Plan, outcome: Outcome, live: Observation) -> EndpointRef:
    return EndpointRef(
        project_slug=drift.desired.id.project,
        workload_slug=drift.desired.id.slug,
        outcome=outcome,
        plan=plan,
        drift=drift,
        live=live if isinstance(live, Live) else None,
    )
