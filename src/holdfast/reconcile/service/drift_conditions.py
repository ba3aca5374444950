"""What has drifted and what follows from it: of objects, and of what pods serve. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.core.cost import Cost, total_cost
from holdfast.core.policy import DecisionAction, OnDrift, Reason
from holdfast.core.service.facts import ChildDrift, ConditionReason, ConditionReport
from holdfast.reconcile.service.decisions import ChildDecision
from holdfast.reconcile.service.messages import (
    LEFT_LARGER,
    LEFT_SUSPENDED,
    PUT_BACK,
    RECREATED,
    change_paths,
    describe_altered,
    describe_costs,
    describe_drift,
    describe_drifts,
    describe_fights,
    describe_obstacle,
    describe_unknown_fields,
    describe_unverified,
    drift_of,
    runtime_drifts,
    truncate,
)
from holdfast.reconcile.service.status_inputs import (
    FALSE,
    TRUE,
    UNKNOWN,
    StatusInputs,
    condition_of,
    count_pods,
    make_report,
)

LEFT_BY_POLICY = {
    OnDrift.FAIL: (ConditionReason.REFUSED, "Nothing was written to it, as onDrift: fail says."),
    OnDrift.DRY_RUN: (ConditionReason.PLANNED, "status.plan says what would be put back."),
    OnDrift.WARN: (ConditionReason.LEFT, "It was left, as onDrift: warn says."),
}


def runtime_conditions(inputs: StatusInputs) -> list[ConditionReport]:
    """Whether pods serve what is declared, by their engines' own word. Unknown is not in sync."""
    found = inputs.runtime
    if found is None:
        return []
    if found.differences:
        message = truncate(f"{describe_served(inputs)} {runtime_follows(inputs)}")
        drift = ConditionReason.RUNTIME
        return [make_report("RuntimeVerified", FALSE, drift, message, found.differences)]
    if found.not_asked is not None or found.unknown_fields:
        why = "NotAsked" if found.not_asked is not None else "Unreported"
        return [make_report("RuntimeVerified", UNKNOWN, why, describe_unverified(found))]
    fields = dict.fromkeys(each.field for pod in found.pods for each in pod.comparisons)
    served = f"{count_pods(len(found.pods))} serving what is declared: {', '.join(fields)}."
    return [make_report("RuntimeVerified", TRUE, "AsDeclared", served)]


def describe_served(inputs: StatusInputs) -> str:
    """Say what pods serve otherwise than declared."""
    differences = inputs.runtime.differences if inputs.runtime else ()
    return describe_drifts(runtime_drifts(inputs.service, differences))


def runtime_follows(inputs: StatusInputs) -> str:
    """Say what is done about what pods serve otherwise."""
    if inputs.policy is OnDrift.RECONCILE:
        obstacles = inputs.runtime.obstacles if inputs.runtime else ()
        return " ".join(map(describe_obstacle, obstacles)) or "It is being put back."
    if inputs.policy is OnDrift.IGNORE:
        return "It is left, as onDrift: ignore says."
    return LEFT_BY_POLICY[inputs.policy][1]


def drift_condition(inputs: StatusInputs) -> ConditionReport:
    """Drift of the objects first; what pods serve where all objects are as they should be."""
    found = _object_drift(inputs)
    differences = inputs.runtime.differences if inputs.runtime else ()
    if found.status == TRUE or not (differences or inputs.runtime_healed):
        return found
    drifts = runtime_drifts(inputs.service, differences or inputs.runtime_healed)
    if not differences:
        return _report_drift(FALSE, ConditionReason.HEALED, drifts, PUT_BACK)
    if inputs.policy is OnDrift.IGNORE:
        return make_report("DriftDetected", FALSE, "Ignored", describe_drifts(drifts))
    report = _report_drift(TRUE, ConditionReason.RUNTIME, drifts, runtime_follows(inputs))
    return replace(report, message=truncate(report.message))


def _object_drift(inputs: StatusInputs) -> ConditionReport:
    altered = [each for each in inputs.children if each.altered]
    if altered:
        paths = [(each.ref, [field.change.path for field in each.altered]) for each in altered]
        message = describe_altered(altered)
        return make_report("DriftDetected", TRUE, ConditionReason.ALTERED, message, paths)
    fights = [each for each in inputs.children if each.fight_until is not None]
    if fights:
        rounds = [
            (each.ref, each.deleted, each.fight_until, change_paths(each.contested))
            for each in fights
        ]
        message = describe_fights(fights)
        return make_report("DriftDetected", TRUE, ConditionReason.FIGHTING, message, rounds)
    drifted = [each for each in inputs.children if _has_drift(each)]
    policy = inputs.policy
    held = [each for each in drifted if each.reason is Reason.UNKNOWN_FIELDS]
    if held and policy is OnDrift.RECONCILE:
        follows = f"It was left. {describe_unknown_fields(inputs.service.unknown)}"
        report = _report_drift(TRUE, ConditionReason.UNKNOWN_FIELDS, _drifts(held), follows)
        return replace(report, message=truncate(report.message), details=inputs.service.unknown)
    if any(each.reason is Reason.HELD for each in drifted):
        return _report_drift(TRUE, ConditionReason.LEFT, _drifts(drifted), LEFT_SUSPENDED)
    if drifted and policy is OnDrift.IGNORE:
        return make_report("DriftDetected", FALSE, "Ignored", describe_drift(drifted))
    larger = [each for each in drifted if each.reason is Reason.UNHEALABLE]
    drifted = [each for each in drifted if each not in larger]
    if larger and not drifted:
        return _report_drift(TRUE, ConditionReason.LEFT, _drifts(larger), LEFT_LARGER)
    if drifted and policy is OnDrift.RECONCILE:
        if any(each.error for each in drifted):
            follows = "It could not be put back yet."
            return _report_drift(TRUE, ConditionReason.HEALING, _drifts(drifted), follows)
        if inputs.healing:
            follows = "It is being put back."
            return _report_drift(TRUE, ConditionReason.HEALING, _drifts(drifted), follows)
        follows = f"{PUT_BACK} {describe_costs(drifted)}"
        return _report_drift(FALSE, ConditionReason.HEALED, _drifts(drifted), follows)
    if drifted:
        reason, follows = LEFT_BY_POLICY[policy]
        follows = f"{follows} {describe_costs(drifted)}"
        return _report_drift(TRUE, reason, _drifts(drifted), follows)
    recreated = [each for each in inputs.children if each.deleted]
    if recreated and any(each.error for each in recreated):
        follows = "It could not be created again yet."
        return _report_drift(TRUE, ConditionReason.HEALING, _drifts(recreated), follows)
    if recreated:
        follows = f"{RECREATED} {describe_costs(recreated)}"
        return _report_drift(FALSE, ConditionReason.HEALED, _drifts(recreated), follows)
    before = condition_of(inputs.service.status, "DriftDetected")
    if before is not None and before.reason in (ConditionReason.HEALED, ConditionReason.HEALING):
        # What was healed last stays to be read: healing erased every other trace of it.
        if inputs.unfinished:
            return _report_drift(FALSE, ConditionReason.HEALED, inputs.unfinished, PUT_BACK)
        return make_report("DriftDetected", FALSE, ConditionReason.HEALED, before.message)
    if inputs.service.unknown:
        known = "Nothing has drifted of what is known."
        message = truncate(f"{known} {describe_unknown_fields(inputs.service.unknown)}")
        return make_report("DriftDetected", UNKNOWN, ConditionReason.UNKNOWN_FIELDS, message)
    if inputs.waits_for_model and inputs.primary is not None:
        message = "What runs is not compared until the model that is declared is downloaded."
        return make_report("DriftDetected", UNKNOWN, ConditionReason.DOWNLOADING, message)
    return make_report("DriftDetected", FALSE, "None", "Nothing has drifted.")


def _drifts(children: Sequence[ChildDecision]) -> tuple[ChildDrift, ...]:
    return tuple(map(drift_of, children))


def _report_drift(
    status: str, reason: ConditionReason, drifts: tuple[ChildDrift, ...], follows: str
) -> ConditionReport:
    return ConditionReport(
        type="DriftDetected",
        status=status,
        reason=reason,
        message=truncate(f"{describe_drifts(drifts)} {follows}"),
        drifts=drifts,
    )


def _has_drift(child: ChildDecision) -> bool:
    """True when something drifted on a child and is seen to, or left on purpose."""
    acts = child.action in (DecisionAction.HEAL, DecisionAction.REFUSE)
    return acts or child.leaves_drift


def count_drift(inputs: StatusInputs) -> str:
    """How many fields are not as declared, in words."""
    count = sum(len(each.altered) for each in inputs.children) + len(inputs.served_otherwise)
    for each in inputs.children:
        fights = each.action is DecisionAction.LEAVE and each.reason is Reason.FIGHT
        if fights or each.leaves_drift or each.action is DecisionAction.REFUSE:
            count += len(each.drifted) or 1
    return "none" if not count else "1 field" if count == 1 else f"{count} fields"


def cost_of_drift(inputs: StatusInputs) -> Cost | None:
    """What it costs to put back what stays as it drifted; None where nothing does, or nobody knows.

    Not said of what `onDrift: ignore` leaves, which is nobody's to decide: what is free in a
    cluster changes all the time, and would be written for nobody.
    """
    if inputs.policy is OnDrift.IGNORE:
        return None
    costs = [_cost_of_child(each) for each in inputs.children if _stays_drifted(each)]
    return total_cost(costs) if costs else None


def _stays_drifted(child: ChildDecision) -> bool:
    failed = child.action is DecisionAction.HEAL and child.error is not None
    stuck = bool(child.altered) or child.fight_until is not None or failed
    return stuck or child.leaves_drift or child.action is DecisionAction.REFUSE


def _cost_of_child(child: ChildDecision) -> Cost | None:
    """None where nobody asked: of what is not there, and of what is not left on purpose."""
    asked = child.leaves_drift or child.action is DecisionAction.REFUSE
    return child.cost if asked and child.diff is not None else None


def leaves_drift(inputs: StatusInputs) -> bool:
    """True when drift stays because the policy says so, and everything else is as declared."""
    leaves_served = bool(inputs.served_otherwise) and inputs.policy in (
        OnDrift.WARN,
        OnDrift.DRY_RUN,
    )
    return bool(inputs.left) or leaves_served
