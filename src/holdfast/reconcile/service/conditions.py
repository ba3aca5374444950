"""The conditions of a service that can be served. Pure.

`Available` says that requests are answered now and stays so during a healthy rollout; `Ready`
says besides that everything is as declared and no pod is failing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC

from holdfast.core.errors import PermissionDenied, ValidationError
from holdfast.core.policy import DecisionAction, OnDrift, Reason
from holdfast.core.service.children import SCALED_OBJECT
from holdfast.core.service.facts import ConditionReason, ConditionReport, ConditionReports
from holdfast.core.service.idle import IdleDecision, IdleReason
from holdfast.core.service.pod_health import ProblemKind
from holdfast.core.service.split import route_accepted
from holdfast.core.tree import Fields
from holdfast.reconcile.service.decisions import ChildDecision
from holdfast.reconcile.service.drift_conditions import (
    LEFT_BY_POLICY,
    count_drift,
    describe_served,
    drift_condition,
    leaves_drift,
    runtime_conditions,
    runtime_follows,
)
from holdfast.reconcile.service.messages import (
    LEFT_LARGER,
    LEFT_SUSPENDED,
    describe_altered,
    describe_delegated,
    describe_drift,
    describe_fights,
    describe_foreign,
    describe_pods,
    describe_postponed,
    describe_unknown_fields,
    truncate,
)
from holdfast.reconcile.service.model_status import model_cached_condition, model_moved_conditions
from holdfast.reconcile.service.observe import (
    ChildRole,
    RolloutStatus,
    conditions_of,
    controller_of,
    pod_security_refusal,
    rollout_of,
)
from holdfast.reconcile.service.status_inputs import (
    FALSE,
    TRUE,
    UNKNOWN,
    StatusInputs,
    by_type,
    clean_text,
    condition_of,
    count_pods,
    describe_error,
    make_report,
)


def report_conditions(inputs: StatusInputs) -> ConditionReports:
    """Give every condition that there is something to say of."""
    available = _available(inputs)
    up_to_date = _up_to_date(inputs)
    routes = _routes(inputs)
    degraded = _degraded(inputs)
    # Drift that the policy leaves keeps nobody from being served; where it does, it is `fail`.
    needed: tuple[ConditionReport, ...] = (
        (available, routes)
        if up_to_date.reason == ConditionReason.DRIFTED and leaves_drift(inputs)
        else (available, up_to_date, routes)
    )
    if inputs.asleep:
        needed = tuple(each for each in needed if each is not available)
    made = [
        _ready(inputs, needed, degraded),
        available,
        up_to_date,
        _progressing(inputs),
        routes,
    ]
    if inputs.service.spec.canary is not None:
        made.append(_canary(inputs))
    if inputs.service.spec.scales_by_load or inputs.other_autoscaler:
        made.append(_autoscaling(inputs))
    if inputs.cache is not None:
        made.append(model_cached_condition(inputs.cache))
    made += model_moved_conditions(inputs)
    made += _rest(inputs)
    made += [
        drift_condition(inputs),
        degraded,
        *runtime_conditions(inputs),
        *_suspended(inputs),
        *_reconciling(inputs),
    ]
    return by_type(*made)


def _ready(
    inputs: StatusInputs, needed: Sequence[ConditionReport], degraded: ConditionReport
) -> ConditionReport:
    drifted = [each for each in inputs.children if each.action is DecisionAction.REFUSE]
    if drifted:
        return make_report("Ready", FALSE, ConditionReason.DRIFTED, describe_drift(drifted))
    if inputs.served_otherwise and inputs.policy is OnDrift.FAIL:
        return make_report("Ready", FALSE, ConditionReason.DRIFTED, describe_served(inputs))
    # A pod that does not stay ready may be ready now, and then the service is.
    if degraded.status == TRUE and degraded.reason != ConditionReason.PODS_FLAPPING:
        return make_report("Ready", FALSE, degraded.reason, degraded.message)
    for status in (FALSE, UNKNOWN):
        for each in needed:
            if each.status != status:
                continue
            if inputs.waking and each.reason in (_NOBODY_READY, ConditionReason.ROLLING_OUT):
                message = f"{_WAKING} {each.message}"
                return make_report("Ready", FALSE, ConditionReason.WAKING, truncate(message))
            return make_report("Ready", status, each.reason, each.message)
    if inputs.asleep and inputs.idle is not None:
        resting = _scaled_to_zero(inputs, inputs.idle)
        if not inputs.idle.wakeable:
            return make_report("Ready", FALSE, "NoDataPlane", resting.message)
        return make_report("Ready", TRUE, ConditionReason.SCALED_TO_ZERO, resting.message)
    counted = describe_rollout(inputs.primary)
    if inputs.primary is not None and not inputs.primary.complete:
        return make_report("Ready", FALSE, "ReplicasNotReady", counted)
    word = count_drift(inputs)
    be = "is" if word == "1 field" else "are"
    left = f" {word} {be} not as declared." if inputs.left or inputs.served_otherwise else ""
    return make_report("Ready", TRUE, "Serving", counted + left)


def _available(inputs: StatusInputs) -> ConditionReport:
    if inputs.unread:
        return make_report(
            "Available", UNKNOWN, "ApiError", describe_error(inputs.errors[ChildRole.PRIMARY])
        )
    canary = rollout_of(inputs.live.get(ChildRole.CANARY)) if inputs.split.weight else None
    if inputs.asleep:
        message = "It has no replicas while nobody asks."
        return make_report("Available", FALSE, ConditionReason.SCALED_TO_ZERO, message)
    serving = sum(each.available for each in (inputs.primary, canary) if each is not None)
    if serving:
        return make_report("Available", TRUE, "Serving", f"{count_pods(serving)} answering.")
    return make_report("Available", FALSE, _NOBODY_READY, _with("No replica is ready.", inputs))


_NOBODY_READY = "NoReplicaReady"


def _progressing(inputs: StatusInputs) -> ConditionReport:
    primary = inputs.primary
    if inputs.unread:
        return make_report("Progressing", UNKNOWN, "ApiError", "The primary could not be read.")
    if primary is None:
        return make_report("Progressing", FALSE, "NotStarted", "There is no primary yet.")
    if primary.stuck:
        return make_report("Progressing", FALSE, "Stuck", clean_text(primary.stuck))
    if inputs.asleep and primary.total:
        return make_report("Progressing", TRUE, "ScalingToZero", "Its replicas are being stopped.")
    if primary.rolling:
        return make_report("Progressing", TRUE, "RollingOut", describe_rollout(primary))
    if not primary.complete:
        return make_report("Progressing", TRUE, "Starting", describe_rollout(primary))
    return make_report("Progressing", FALSE, "Done", describe_rollout(primary))


def _up_to_date(inputs: StatusInputs) -> ConditionReport:
    primary, left, policy = inputs.primary, inputs.left, inputs.policy
    foreign = [each for each in inputs.children if each.reason is Reason.FOREIGN]
    if foreign:
        owners = [(each.ref, controller_of(each.live or {})) for each in foreign]
        message = describe_foreign(foreign)
        return make_report("UpToDate", FALSE, ConditionReason.FOREIGN_OBJECT, message, owners)
    refused = [each for each in inputs.children if each.action is DecisionAction.REFUSE]
    if refused:
        return make_report("UpToDate", FALSE, ConditionReason.DRIFTED, describe_drift(refused))
    denied = _refused_writes(inputs.children)
    if denied:
        errors = [each.error for each in denied if each.error is not None]
        message = truncate(" ".join(map(describe_error, errors)))
        said = [(each.code, each.happened) for each in errors]
        return make_report("UpToDate", FALSE, ConditionReason.WRITE_REFUSED, message, said)
    if inputs.errors:
        first = next(iter(inputs.errors.values()))
        return make_report("UpToDate", UNKNOWN, "ApiError", describe_error(first))
    if inputs.cache is not None and inputs.waits_for_model:
        return make_report("UpToDate", FALSE, inputs.cache.reason, inputs.cache.message)
    altered = [each for each in inputs.children if each.altered]
    if altered:
        return make_report("UpToDate", FALSE, ConditionReason.ALTERED, describe_altered(altered))
    fights = [each for each in inputs.children if each.fight_until is not None]
    if fights:
        return make_report("UpToDate", FALSE, ConditionReason.FIGHTING, describe_fights(fights))
    if inputs.scaler_problem is not None:
        message = _SCALER_PROBLEMS[inputs.scaler_problem]
        return make_report("UpToDate", FALSE, inputs.scaler_problem, message)
    waiting = [each for each in inputs.children if each.action is DecisionAction.WAIT]
    if waiting:
        names = ", ".join(f"{each.ref.kind} {each.ref.name}" for each in waiting)
        return make_report("UpToDate", FALSE, "Waiting", f"{names} is being deleted.")
    postponed = [each.ref for each in inputs.children if each.postponed]
    if postponed or inputs.to_remove:
        message = describe_postponed(postponed, inputs.to_remove)
        return make_report("UpToDate", FALSE, ConditionReason.SUSPENDED, message)
    if any(each.action is DecisionAction.PLAN and each.pending for each in inputs.children):
        message = "The new declaration waits until the drift is over; status.plan has both."
        return make_report("UpToDate", FALSE, "Planned", message)
    if any(each.reason is Reason.HELD for each in left):
        message = f"{describe_drift(left)} {LEFT_SUSPENDED}"
        return make_report("UpToDate", FALSE, ConditionReason.DRIFTED, message)
    larger = [each for each in left if each.reason is Reason.UNHEALABLE]
    if larger:
        message = truncate(f"{describe_drift(larger)} {LEFT_LARGER}")
        return make_report("UpToDate", FALSE, ConditionReason.DRIFTED, message)
    if left and policy in LEFT_BY_POLICY:
        message = f"{describe_drift(left)} {LEFT_BY_POLICY[policy][1]}"
        return make_report("UpToDate", FALSE, ConditionReason.DRIFTED, message)
    if inputs.served_otherwise and policy is not OnDrift.IGNORE:
        message = truncate(f"{describe_served(inputs)} {runtime_follows(inputs)}")
        return make_report("UpToDate", FALSE, ConditionReason.DRIFTED, message)
    if inputs.service.unknown:
        unknown = inputs.service.unknown
        message = describe_unknown_fields(inputs.service.unknown)
        return make_report("UpToDate", UNKNOWN, ConditionReason.UNKNOWN_FIELDS, message, unknown)
    # At rest it has no pods that could be of an older template: what is declared is written.
    if primary is None or (primary.rolling and not inputs.asleep):
        return make_report(
            "UpToDate", FALSE, ConditionReason.ROLLING_OUT, describe_rollout(primary)
        )
    if left:
        drift = describe_drift(left)
        message = f"Everything declared is in place, but for what onDrift: ignore leaves. {drift}"
        return make_report("UpToDate", TRUE, "DriftIgnored", truncate(message))
    if any(each.delegated for each in inputs.children):
        lent = describe_delegated(inputs.children)
        message = f"Everything declared is in place, but for what is left to others. {lent}"
        return make_report("UpToDate", TRUE, "Delegated", truncate(message))
    return make_report("UpToDate", TRUE, "AsDeclared", "Everything declared is in place.")


def _routes(inputs: StatusInputs) -> ConditionReport:
    if inputs.gateway is None:
        if ChildRole.ENTRY_SERVICE in inputs.live:
            message = "Requests go through the Service; no gateway is set up."
            return make_report("RoutesReady", TRUE, "ServiceOnly", message)
        return make_report("RoutesReady", FALSE, "NotCreated", "The Service is not there yet.")
    route = inputs.live.get(ChildRole.ROUTE)
    if route is not None and route_accepted(route):
        return make_report("RoutesReady", TRUE, "Accepted", "The gateway took over the route.")
    message = "The gateway has not accepted the route as it stands now."
    return make_report("RoutesReady", FALSE, "NotAccepted", message)


def _canary(inputs: StatusInputs) -> ConditionReport:
    rollout = rollout_of(inputs.live.get(ChildRole.CANARY))
    weight = inputs.service.spec.canary.weight if inputs.service.spec.canary else 0
    share = f"It gets {inputs.split.weight} % of the requests; {weight} % is declared."
    reason = inputs.canary.reason if inputs.canary else ""
    message = inputs.canary_message or share
    if rollout is None:
        message = inputs.canary_message or "There is no canary now."
        return make_report("CanaryReady", FALSE, reason or "NotCreated", message)
    message = f"{describe_rollout(rollout)} {message}"
    if not rollout.complete:
        return make_report("CanaryReady", FALSE, reason or "NotReady", message)
    return make_report("CanaryReady", TRUE, reason or "Serving", message)


def _autoscaling(inputs: StatusInputs) -> ConditionReport:
    if inputs.other_autoscaler:
        message = (
            f"{inputs.other_autoscaler} scales the primary too, so its number of replicas is left"
            " alone. Delete it, or leave minReplicas and maxReplicas out."
        )
        return make_report("AutoscalingReady", FALSE, "AnotherAutoscaler", message)
    if inputs.scaler_problem is not None:
        message = _SCALER_PROBLEMS[inputs.scaler_problem]
        return make_report("AutoscalingReady", FALSE, inputs.scaler_problem, message)
    if inputs.asleep:
        message = "The autoscaler rests while there are no replicas."
        return make_report("AutoscalingReady", FALSE, ConditionReason.SCALED_TO_ZERO, message)
    live = inputs.live.get(ChildRole.AUTOSCALER)
    if live is None:
        return make_report("AutoscalingReady", FALSE, "NotCreated", "There is no autoscaler yet.")
    if live.get("kind") == SCALED_OBJECT[1]:
        return _keda_ready(live)
    for name in ("AbleToScale", "ScalingActive"):
        found = conditions_of(live).get(name)
        if found is None:
            return make_report(
                "AutoscalingReady", UNKNOWN, "NotReported", "It has not said so yet."
            )
        if found.get("status") != TRUE:
            message = clean_text(str(found.get("message") or ""))
            return make_report("AutoscalingReady", FALSE, str(found.get("reason") or name), message)
    return make_report("AutoscalingReady", TRUE, "Scaling", "The autoscaler gets its metrics.")


def _keda_ready(live: Fields) -> ConditionReport:
    found = conditions_of(live)
    if found.get("Paused", {}).get("status") == TRUE:
        message = clean_text(str(found["Paused"].get("message") or "KEDA was told to pause."))
        return make_report("AutoscalingReady", FALSE, "Paused", message)
    ready = found.get("Ready", {})
    if ready.get("status") == TRUE:
        return make_report("AutoscalingReady", TRUE, "Scaling", "KEDA gets its metrics.")
    if ready.get("status") != FALSE:
        return make_report("AutoscalingReady", UNKNOWN, "NotReported", "KEDA has not said so yet.")
    message = clean_text(str(ready.get("message") or ""))
    return make_report("AutoscalingReady", FALSE, str(ready.get("reason") or "NotReady"), message)


_SCALER_PROBLEMS = {
    ConditionReason.KEDA_NOT_INSTALLED: "scaler: keda needs KEDA (keda.sh/v1alpha1), and the "
    "cluster does not serve its ScaledObjects. No autoscaler was made or removed. Install KEDA, or "
    "choose hpa.",
    ConditionReason.NO_PROMETHEUS: "KEDA asks a Prometheus for metrics of pods, and the operator "
    "was told of none. No autoscaler was made or removed. Start the operator with --prometheus, or "
    "choose hpa.",
}


def _degraded(inputs: StatusInputs) -> ConditionReport:
    primary = inputs.primary
    foreign = [each for each in inputs.children if each.reason is Reason.FOREIGN]
    if foreign:
        return make_report(
            "Degraded", TRUE, ConditionReason.FOREIGN_OBJECT, describe_foreign(foreign)
        )
    deployments = (inputs.live.get(role) for role in (ChildRole.PRIMARY, ChildRole.CANARY))
    if refusal := pod_security_refusal(map(rollout_of, deployments)):
        return make_report("Degraded", TRUE, ConditionReason.PODS_REFUSED, clean_text(refusal))
    if primary is not None and primary.stuck:
        return make_report(
            "Degraded", TRUE, "RolloutStuck", _with(clean_text(primary.stuck), inputs)
        )
    problems = inputs.pods.problems
    hardware = any(each.hardware or each.kind is ProblemKind.HARDWARE for each in problems)
    if inputs.pods.flapping and not hardware:
        return make_report(
            "Degraded", TRUE, ConditionReason.PODS_FLAPPING, describe_pods(inputs.pods)
        )
    if problems:
        reason = ConditionReason.PODS_FAILING
        if hardware:
            reason = ConditionReason.HARDWARE_FAILING
        elif all(problem.lasts for problem in problems):
            reason = ConditionReason.PODS_CANNOT_START
        return make_report("Degraded", TRUE, reason, describe_pods(inputs.pods))
    if inputs.pods.unread:
        unread = "The pods could not be listed: whether one of them fails is not known."
        return make_report("Degraded", UNKNOWN, "PodsUnread", unread)
    if inputs.pods.starting:
        return make_report(
            "Degraded", FALSE, "Healthy", "Pods are starting; none is known to fail."
        )
    return make_report("Degraded", FALSE, "Healthy", "No pod is failing.")


def _rest(inputs: StatusInputs) -> list[ConditionReport]:
    """Said only of a service that may have no replicas, or had none until now."""
    if inputs.waking:
        return [make_report("ScaledToZero", FALSE, ConditionReason.WAKING, _WAKING)]
    if inputs.idle is not None:
        return [_scaled_to_zero(inputs, inputs.idle)]
    before = condition_of(inputs.service.status, "ScaledToZero")
    if before is None:
        return []
    # By this it is started again, where the pass that was to do it was held up or failed.
    rests = before.status == TRUE and inputs.primary is not None and inputs.primary.desired == 0
    if not rests and not inputs.unread:
        return []
    return [make_report(before.type, before.status, before.reason, before.message)]


_WAKING = "It is being started after it was scaled to zero."


def _scaled_to_zero(inputs: StatusInputs, idle: IdleDecision) -> ConditionReport:
    if not inputs.asleep:
        return make_report("ScaledToZero", FALSE, idle.reason, _AWAKE[idle.reason])
    before = condition_of(inputs.service.status, "ScaledToZero")
    since = inputs.now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if before is not None and before.status == TRUE:
        since = before.last_transition_time or since
    message = f"Scaled to zero since {since}."
    if idle.wakeable:
        wakes = "The next request through a data plane starts it; one to its Service does not."
        return make_report("ScaledToZero", TRUE, idle.reason, f"{message} {wakes}")
    nobody = "No data plane is there to start it: run holdfast serve, or raise minReplicas."
    return make_report("ScaledToZero", TRUE, IdleReason.NO_DATA_PLANE, f"{message} {nobody}")


_AWAKE = {
    IdleReason.REQUESTED: "It was asked, or became ready, less than autoscaling.idleAfter ago.",
    IdleReason.IDLE: "It is being scaled to zero: nobody asked for autoscaling.idleAfter.",
    IdleReason.NO_DATA_PLANE: "No data plane is there that would start it again, so it stays up.",
    IdleReason.CANARY: "It stays up while a canary is declared.",
}


def _suspended(inputs: StatusInputs) -> list[ConditionReport]:
    """Said only of a service that declares it, so that its end is seen to be one."""
    given = inputs.service.spec.suspend
    if given is None:
        return []
    details = (given.reason, given.until)
    if not inputs.suspended:
        message = (
            f"suspend.until, {given.until}, has passed, so the service is reconciled. "
            "Take suspend out of the spec, or give it another end."
        )
        reason = ConditionReason.SUSPENSION_ENDED
        return [make_report("Suspended", FALSE, reason, message, details)]
    end = f"until {given.until}" if given.until else "until suspend is taken out of the spec"
    message = truncate(clean_text(f"Nothing is written to its objects {end}: {given.reason}"))
    return [make_report("Suspended", TRUE, ConditionReason.SUSPENDED, message, details)]


def _reconciling(inputs: StatusInputs) -> list[ConditionReport]:
    """Said only when something went wrong: tools that know the name wait while it is True."""
    if not inputs.errors:
        return []
    message = " ".join(f"{role}: {describe_error(error)}" for role, error in inputs.errors.items())
    reason = ConditionReason.WRITE_REFUSED if _refused_writes(inputs.children) else "ApiError"
    return [make_report("Reconciling", FALSE, reason, truncate(message))]


def _refused_writes(children: Sequence[ChildDecision]) -> list[ChildDecision]:
    """The children that the cluster refused to write: by admission, its schema, or our rights."""
    kinds = (ValidationError, PermissionDenied)
    return [each for each in children if each.action.writes and isinstance(each.error, kinds)]


def describe_rollout(rollout: RolloutStatus | None) -> str:
    """Say how far a rollout is."""
    if rollout is None:
        return "There are no replicas yet."
    if not rollout.observed:
        ready = count_pods(rollout.ready)
        return f"A change was just written and is not rolled out yet. {ready} ready."
    if rollout.total > rollout.updated:
        newest = "has" if rollout.updated == 1 else "have"
        return (
            f"A rollout is under way: {rollout.updated} of {rollout.desired} replicas {newest} the"
            f" newest version. {count_pods(rollout.ready)} ready."
        )
    if rollout.desired == rollout.ready == 0:
        return "It has no replicas."
    if rollout.ready > rollout.desired:
        return f"{count_pods(rollout.ready)} ready, {rollout.desired} wanted."
    if rollout.desired == 1:
        return f"The replica is {'ready' if rollout.ready else 'not ready yet'}."
    return f"{rollout.ready} of {rollout.desired} replicas {_be(rollout.ready)} ready."


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _with(message: str, inputs: StatusInputs) -> str:
    return truncate(f"{message} {describe_pods(inputs.pods)}".strip())
