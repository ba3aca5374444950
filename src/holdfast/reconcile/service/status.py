"""Makes the status of a service from what one pass saw and did. Pure.

`Available` says that requests are answered now and stays so during a healthy rollout; `Ready`
says besides that everything is as declared and no pod is failing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

from holdfast.core.backends import DEFAULT_BACKEND, POD_PORT, backend_profile
from holdfast.core.engine_report import RuntimeDifference
from holdfast.core.errors import HoldfastError, InvalidSpec, PermissionDenied, ValidationError
from holdfast.core.object_ref import ObjectRef
from holdfast.core.policy import DecisionAction, OnDrift, Reason
from holdfast.core.redact import redact
from holdfast.core.service import facts
from holdfast.core.service.children import PRIMARY, SCALED_OBJECT, Gateway, selector
from holdfast.core.service.facts import (
    ChildDrift,
    ConditionReason,
    ConditionReport,
    ConditionReports,
    Note,
    ServiceFact,
)
from holdfast.core.service.idle import IdleDecision, IdleReason
from holdfast.core.service.model_cache import resolved_model
from holdfast.core.service.model_head import ModelHead
from holdfast.core.service.pod_health import ProblemKind, hardware_failures
from holdfast.core.service.spec import (
    AppliedChild,
    CanaryState,
    Condition,
    InferenceService,
    InferenceServiceStatus,
    ModelStatus,
)
from holdfast.core.service.split import SplitMode, TrafficSplit, route_accepted
from holdfast.core.tree import Fields
from holdfast.reconcile.service.decisions import ChildDecision, make_dry_run_plan
from holdfast.reconcile.service.messages import (
    LEFT_LARGER,
    LEFT_SUSPENDED,
    PUT_BACK,
    RECREATED,
    change_paths,
    describe_altered,
    describe_costs,
    describe_delegated,
    describe_drift,
    describe_drifts,
    describe_fights,
    describe_foreign,
    describe_not_asked,
    describe_obstacle,
    describe_pods,
    describe_postponed,
    describe_unknown_fields,
    describe_unverified,
    drift_of,
    note_of,
    plan_lines,
    runtime_drifts,
    runtime_plan_lines,
    truncate,
)
from holdfast.reconcile.service.observe import (
    NO_POD_PROBLEMS,
    CacheProgress,
    ChildRole,
    PodReport,
    RolloutStatus,
    conditions_of,
    controller_of,
    pod_security_refusal,
    rollout_of,
)
from holdfast.reconcile.service.runtime import RuntimeFindings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """The outcome of a pass."""

    status: InferenceServiceStatus
    requeue_after: float | None = None
    """Seconds until time alone may change something; None when only an event can."""
    facts: tuple[ServiceFact, ...] = ()

    @property
    def notes(self) -> tuple[Note, ...]:
        """What happened, in words."""
        return tuple(map(note_of, self.facts))


TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


@dataclass(frozen=True, kw_only=True)
class StatusInputs:
    """Everything a status is made from."""

    service: InferenceService
    now: datetime
    live: Mapping[ChildRole, Fields]
    """After the writes of this pass."""
    children: Sequence[ChildDecision]
    errors: Mapping[ChildRole, HoldfastError]
    split: TrafficSplit
    gateway: Gateway | None
    other_autoscaler: str | None = None
    scaler_problem: ConditionReason | None = None
    """Why KEDA cannot scale a service that asks for it."""
    pods: PodReport = NO_POD_PROBLEMS
    """What ails them; empty where nobody asked."""
    canary: CanaryState | None = None
    canary_message: str = ""
    """How it is doing, in the words of the move that was made."""
    applied: Mapping[str, str] = field(default_factory=dict)
    """The digest of what was applied last to each child."""
    suspended: bool = False
    """Nothing is written for now, as the spec says."""
    to_remove: tuple[ObjectRef, ...] = ()
    """What is no longer declared, and stays while the service is suspended."""
    idle: IdleDecision | None = None
    """Whether it is to have replicas at all; None where it always has some."""
    healing: bool = False
    """Drift was detected and is about to be put back."""
    unfinished: tuple[ChildDrift, ...] = ()
    """Drift that an earlier pass wrote down to put it back, and did not get to report on."""
    runtime: RuntimeFindings | None = None
    """What pods serve; None where nobody asks."""
    runtime_healed: tuple[RuntimeDifference, ...] = ()
    """What they serve as declared again since the last pass."""
    cache: CacheProgress | None = None
    head: ModelHead | None = None
    """What is known of the branch of the model; None where nobody asks."""

    @property
    def waits_for_model(self) -> bool:
        """True while a Deployment is left alone until its model is there."""
        return self.cache is not None and bool(self.cache.waiting)

    @cached_property
    def primary(self) -> RolloutStatus | None:
        return rollout_of(self.live.get(ChildRole.PRIMARY))

    @property
    def unread(self) -> bool:
        """True when the primary could not be read."""
        return ChildRole.PRIMARY in self.errors and self.primary is None

    @property
    def asleep(self) -> bool:
        """True when it has no replicas because nobody asks."""
        to_rest = self.idle is not None and self.idle.asleep
        return to_rest and self.primary is not None and self.primary.desired == 0

    @property
    def waking(self) -> bool:
        """True from the end of its rest until a pod is ready for the first time."""
        if self.primary is None or not self.primary.desired or self.primary.available:
            return False
        before = condition_of(self.service.status, "ScaledToZero")
        if before is None:
            return False
        return before.status == TRUE or before.reason == ConditionReason.WAKING

    @property
    def policy(self) -> OnDrift:
        return self.service.spec.on_drift or OnDrift.RECONCILE

    @cached_property
    def left(self) -> list[ChildDecision]:
        """The children whose drift stays on purpose."""
        return [each for each in self.children if each.leaves_drift]

    @property
    def served_otherwise(self) -> tuple[RuntimeDifference, ...]:
        """What pods serve otherwise than declared, and goes on to be served so."""
        found = self.runtime
        if found is None or (self.policy is OnDrift.RECONCILE and not found.obstacles):
            return ()
        return found.differences


def make_status(inputs: StatusInputs) -> tuple[InferenceServiceStatus, ConditionReports]:
    """Describe a service that is valid: its status, and the conditions of it as values."""
    service = inputs.service
    old = service.status or InferenceServiceStatus()
    primary, unread = inputs.primary, inputs.unread
    reports = _report_conditions(inputs)
    ready, split = reports["Ready"], inputs.split
    status = InferenceServiceStatus(
        ready=ready.status == TRUE,
        replicas=old.replicas if unread else primary.desired if primary else 0,
        ready_replicas=old.ready_replicas if unread else primary.ready if primary else 0,
        message=ready.message,
        selector=",".join(
            f"{key}={value}" for key, value in selector(service.name, PRIMARY).items()
        ),
        observed_generation=service.generation or None,
        canary_weight=split.weight if split.mode is not SplitMode.NONE else None,
        split_mode=str(split.mode),
        drift=_drift_count(inputs),
        runtime=(inputs.runtime.differences or None) if inputs.runtime else None,
        hardware=hardware_failures(inputs.pods.problems) or None,
        url=_url(service, inputs.gateway),
        model=_model(inputs),
        plan=_plan(inputs) or None,
        canary=inputs.canary,
        applied=tuple(
            AppliedChild(child=child, digest=digest)
            for child, digest in sorted(inputs.applied.items())
        )
        or None,
        conditions=_date_conditions(reports.values(), service, inputs.now),
    )
    return status, reports


def _plan(inputs: StatusInputs) -> tuple[str, ...]:
    plan = plan_lines(make_dry_run_plan(inputs.children))
    if inputs.policy is OnDrift.DRY_RUN:
        plan += runtime_plan_lines(inputs.served_otherwise)
    return plan


def _model(inputs: StatusInputs) -> ModelStatus:
    """What the model was resolved to: what was known before stays while it is downloaded anew."""
    resolved = resolved_model(inputs.service)
    old = inputs.service.status.model if inputs.service.status else None
    if old is not None and (old.ref, old.revision) != (resolved.ref, resolved.revision):
        old = None
    found = _add_weights(inputs, resolved)
    if inputs.cache is not None:
        kept = old if old is not None and (old.commit or old.digest) else resolved
        found = inputs.cache.model or kept
    head = inputs.head
    if head is None:
        return replace(found, branch=None, head=None, head_digest=None)
    if head.found is None and old is not None and old.branch == head.branch:
        # What the hub told last stays to be read while it tells nothing.
        return replace(found, branch=old.branch, head=old.head, head_digest=old.head_digest)
    commit, digest = (head.found.commit, head.found.digest) if head.found else (None, None)
    branch = head.branch if head.asked else None
    return replace(found, branch=branch, head=commit, head_digest=digest)


def _add_weights(inputs: StatusInputs, resolved: ModelStatus) -> ModelStatus:
    """Add the digest of the weights that pods serve, where their engine is one that tells it."""
    profile = backend_profile(inputs.service.spec.backend or DEFAULT_BACKEND)
    runtime = inputs.runtime
    if not profile.tells_digest or runtime is None:
        return resolved
    digests = [each for each in runtime.weights if each is not None]
    if runtime.not_asked is not None:
        return replace(resolved, unknown=describe_not_asked(runtime.not_asked))
    if len(digests) > 1:
        return replace(resolved, unknown=f"Its pods have different weights: {', '.join(digests)}.")
    if None in runtime.weights or not digests:
        return replace(resolved, unknown="Not every pod that is ready has said it.")
    return replace(resolved, digest=digests[0], unknown=None)


def make_refused_status(
    service: InferenceService, error: InvalidSpec, now: datetime
) -> tuple[InferenceServiceStatus, ConditionReports]:
    """Describe a service that cannot be served as it stands. What runs, goes on running."""
    message = truncate(" ".join(str(problem) for problem in error.problems) or str(error))
    details = (error.happened, *error.problems)
    return _make_unserved_status(service, ConditionReason.INVALID_SPEC, message, now, details)


def _make_unserved_status(
    service: InferenceService,
    reason: ConditionReason,
    message: str,
    now: datetime,
    details: Iterable[object] = (),
) -> tuple[InferenceServiceStatus, ConditionReports]:
    old = service.status or InferenceServiceStatus()
    untouched = "The spec was refused, so nothing was changed."
    unseen = "The spec was refused, so nobody looked."
    reports = _by_type(
        _report("Ready", FALSE, reason, message, details),
        _report("UpToDate", FALSE, reason, untouched),
        _report("DriftDetected", UNKNOWN, reason, unseen),
    )
    kept = tuple(each for each in old.conditions if each.type not in reports)
    status = replace(
        old,
        ready=False,
        message=message,
        drift=None,
        observed_generation=service.generation or None,
        conditions=_date_conditions((*reports.values(), *kept), service, now),
    )
    return status, reports


def make_missing_kind_status(
    service: InferenceService, now: datetime
) -> tuple[InferenceServiceStatus, ConditionReports]:
    """Describe a service of several nodes in a cluster that has no LeaderWorkerSets."""
    message = (
        f"nodes: {service.spec.nodes} needs LeaderWorkerSets (leaderworkerset.x-k8s.io/v1), and "
        "the cluster does not serve them. Nothing was created or changed. Install LeaderWorkerSet "
        "0.9 or later, or leave nodes out."
    )
    return _make_unserved_status(service, ConditionReason.MULTI_NODE_NOT_INSTALLED, message, now)


def _date_conditions(
    made: Iterable[ConditionReport | Condition], service: InferenceService, now: datetime
) -> tuple[Condition, ...]:
    """Date conditions: the time moves only when the status does."""
    old = {each.type: each for each in service.status.conditions} if service.status else {}
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    dated = []
    for each in made:
        before = old.get(each.type)
        kept = before.last_transition_time if before and before.status == each.status else None
        dated.append(
            Condition(
                type=each.type,
                status=each.status,
                reason=each.reason,
                message=each.message,
                observed_generation=service.generation or None,
                last_transition_time=kept or stamp,
            )
        )
    return tuple(dated)


def _report_conditions(inputs: StatusInputs) -> ConditionReports:
    available = _available(inputs)
    up_to_date = _up_to_date(inputs)
    routes = _routes(inputs)
    degraded = _degraded(inputs)
    # Drift that the policy leaves keeps nobody from being served; where it does, it is `fail`.
    needed: tuple[ConditionReport, ...] = (
        (available, routes)
        if up_to_date.reason == ConditionReason.DRIFTED and _leaves_drift(inputs)
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
        made.append(_model_cached(inputs.cache))
    made += _model_moved(inputs)
    made += _rest(inputs)
    made += [
        _drift(inputs),
        degraded,
        *_runtime(inputs),
        *_suspended(inputs),
        *_reconciling(inputs),
    ]
    return _by_type(*made)


def _leaves_drift(inputs: StatusInputs) -> bool:
    """True when drift stays because the policy says so, and everything else is as declared."""
    leaves_served = bool(inputs.served_otherwise) and inputs.policy in (
        OnDrift.WARN,
        OnDrift.DRY_RUN,
    )
    return bool(inputs.left) or leaves_served


def _ready(
    inputs: StatusInputs, needed: Sequence[ConditionReport], degraded: ConditionReport
) -> ConditionReport:
    drifted = [each for each in inputs.children if each.action is DecisionAction.REFUSE]
    if drifted:
        return _report("Ready", FALSE, ConditionReason.DRIFTED, describe_drift(drifted))
    if inputs.served_otherwise and inputs.policy is OnDrift.FAIL:
        return _report("Ready", FALSE, ConditionReason.DRIFTED, _describe_served(inputs))
    # A pod that does not stay ready may be ready now, and then the service is.
    if degraded.status == TRUE and degraded.reason != ConditionReason.PODS_FLAPPING:
        return _report("Ready", FALSE, degraded.reason, degraded.message)
    for status in (FALSE, UNKNOWN):
        for each in needed:
            if each.status != status:
                continue
            if inputs.waking and each.reason in (_NOBODY_READY, ConditionReason.ROLLING_OUT):
                message = f"{_WAKING} {each.message}"
                return _report("Ready", FALSE, ConditionReason.WAKING, truncate(message))
            return _report("Ready", status, each.reason, each.message)
    if inputs.asleep and inputs.idle is not None:
        resting = _scaled_to_zero(inputs, inputs.idle)
        if not inputs.idle.wakeable:
            return _report("Ready", FALSE, "NoDataPlane", resting.message)
        return _report("Ready", TRUE, ConditionReason.SCALED_TO_ZERO, resting.message)
    counted = _describe_rollout(inputs.primary)
    if inputs.primary is not None and not inputs.primary.complete:
        return _report("Ready", FALSE, "ReplicasNotReady", counted)
    word = _drift_count(inputs)
    be = "is" if word == "1 field" else "are"
    left = f" {word} {be} not as declared." if inputs.left or inputs.served_otherwise else ""
    return _report("Ready", TRUE, "Serving", counted + left)


def _available(inputs: StatusInputs) -> ConditionReport:
    if inputs.unread:
        return _report("Available", UNKNOWN, "ApiError", _said(inputs.errors[ChildRole.PRIMARY]))
    canary = rollout_of(inputs.live.get(ChildRole.CANARY)) if inputs.split.weight else None
    if inputs.asleep:
        message = "It has no replicas while nobody asks."
        return _report("Available", FALSE, ConditionReason.SCALED_TO_ZERO, message)
    serving = sum(each.available for each in (inputs.primary, canary) if each is not None)
    if serving:
        return _report("Available", TRUE, "Serving", f"{_pods(serving)} answering.")
    return _report("Available", FALSE, _NOBODY_READY, _with("No replica is ready.", inputs))


_NOBODY_READY = "NoReplicaReady"


def _progressing(inputs: StatusInputs) -> ConditionReport:
    primary = inputs.primary
    if inputs.unread:
        return _report("Progressing", UNKNOWN, "ApiError", "The primary could not be read.")
    if primary is None:
        return _report("Progressing", FALSE, "NotStarted", "There is no primary yet.")
    if primary.stuck:
        return _report("Progressing", FALSE, "Stuck", _clean(primary.stuck))
    if inputs.asleep and primary.total:
        return _report("Progressing", TRUE, "ScalingToZero", "Its replicas are being stopped.")
    if primary.rolling:
        return _report("Progressing", TRUE, "RollingOut", _describe_rollout(primary))
    if not primary.complete:
        return _report("Progressing", TRUE, "Starting", _describe_rollout(primary))
    return _report("Progressing", FALSE, "Done", _describe_rollout(primary))


def _up_to_date(inputs: StatusInputs) -> ConditionReport:
    primary, left, policy = inputs.primary, inputs.left, inputs.policy
    foreign = [each for each in inputs.children if each.reason is Reason.FOREIGN]
    if foreign:
        owners = [(each.ref, controller_of(each.live or {})) for each in foreign]
        message = describe_foreign(foreign)
        return _report("UpToDate", FALSE, ConditionReason.FOREIGN_OBJECT, message, owners)
    refused = [each for each in inputs.children if each.action is DecisionAction.REFUSE]
    if refused:
        return _report("UpToDate", FALSE, ConditionReason.DRIFTED, describe_drift(refused))
    denied = _refused_writes(inputs.children)
    if denied:
        errors = [each.error for each in denied if each.error is not None]
        message = truncate(" ".join(map(_said, errors)))
        said = [(each.code, each.happened) for each in errors]
        return _report("UpToDate", FALSE, ConditionReason.WRITE_REFUSED, message, said)
    if inputs.errors:
        first = next(iter(inputs.errors.values()))
        return _report("UpToDate", UNKNOWN, "ApiError", _said(first))
    if inputs.cache is not None and inputs.waits_for_model:
        return _report("UpToDate", FALSE, inputs.cache.reason, inputs.cache.message)
    altered = [each for each in inputs.children if each.altered]
    if altered:
        return _report("UpToDate", FALSE, ConditionReason.ALTERED, describe_altered(altered))
    fights = [each for each in inputs.children if each.fight_until is not None]
    if fights:
        return _report("UpToDate", FALSE, ConditionReason.FIGHTING, describe_fights(fights))
    if inputs.scaler_problem is not None:
        message = _SCALER_PROBLEMS[inputs.scaler_problem]
        return _report("UpToDate", FALSE, inputs.scaler_problem, message)
    waiting = [each for each in inputs.children if each.action is DecisionAction.WAIT]
    if waiting:
        names = ", ".join(f"{each.ref.kind} {each.ref.name}" for each in waiting)
        return _report("UpToDate", FALSE, "Waiting", f"{names} is being deleted.")
    postponed = [each.ref for each in inputs.children if each.postponed]
    if postponed or inputs.to_remove:
        message = describe_postponed(postponed, inputs.to_remove)
        return _report("UpToDate", FALSE, ConditionReason.SUSPENDED, message)
    if any(each.action is DecisionAction.PLAN and each.pending for each in inputs.children):
        message = "The new declaration waits until the drift is over; status.plan has both."
        return _report("UpToDate", FALSE, "Planned", message)
    if any(each.reason is Reason.HELD for each in left):
        message = f"{describe_drift(left)} {LEFT_SUSPENDED}"
        return _report("UpToDate", FALSE, ConditionReason.DRIFTED, message)
    larger = [each for each in left if each.reason is Reason.UNHEALABLE]
    if larger:
        message = truncate(f"{describe_drift(larger)} {LEFT_LARGER}")
        return _report("UpToDate", FALSE, ConditionReason.DRIFTED, message)
    if left and policy in _LEFT:
        message = f"{describe_drift(left)} {_LEFT[policy][1]}"
        return _report("UpToDate", FALSE, ConditionReason.DRIFTED, message)
    if inputs.served_otherwise and policy is not OnDrift.IGNORE:
        message = truncate(f"{_describe_served(inputs)} {_runtime_follows(inputs)}")
        return _report("UpToDate", FALSE, ConditionReason.DRIFTED, message)
    if inputs.service.unknown:
        unknown = inputs.service.unknown
        message = describe_unknown_fields(inputs.service.unknown)
        return _report("UpToDate", UNKNOWN, ConditionReason.UNKNOWN_FIELDS, message, unknown)
    # At rest it has no pods that could be of an older template: what is declared is written.
    if primary is None or (primary.rolling and not inputs.asleep):
        return _report("UpToDate", FALSE, ConditionReason.ROLLING_OUT, _describe_rollout(primary))
    if left:
        drift = describe_drift(left)
        message = f"Everything declared is in place, but for what onDrift: ignore leaves. {drift}"
        return _report("UpToDate", TRUE, "DriftIgnored", truncate(message))
    if any(each.delegated for each in inputs.children):
        lent = describe_delegated(inputs.children)
        message = f"Everything declared is in place, but for what is left to others. {lent}"
        return _report("UpToDate", TRUE, "Delegated", truncate(message))
    return _report("UpToDate", TRUE, "AsDeclared", "Everything declared is in place.")


def _routes(inputs: StatusInputs) -> ConditionReport:
    if inputs.gateway is None:
        if ChildRole.ENTRY_SERVICE in inputs.live:
            message = "Requests go through the Service; no gateway is set up."
            return _report("RoutesReady", TRUE, "ServiceOnly", message)
        return _report("RoutesReady", FALSE, "NotCreated", "The Service is not there yet.")
    route = inputs.live.get(ChildRole.ROUTE)
    if route is not None and route_accepted(route):
        return _report("RoutesReady", TRUE, "Accepted", "The gateway took over the route.")
    message = "The gateway has not accepted the route as it stands now."
    return _report("RoutesReady", FALSE, "NotAccepted", message)


def _canary(inputs: StatusInputs) -> ConditionReport:
    rollout = rollout_of(inputs.live.get(ChildRole.CANARY))
    weight = inputs.service.spec.canary.weight if inputs.service.spec.canary else 0
    share = f"It gets {inputs.split.weight} % of the requests; {weight} % is declared."
    reason = inputs.canary.reason if inputs.canary else ""
    message = inputs.canary_message or share
    if rollout is None:
        message = inputs.canary_message or "There is no canary now."
        return _report("CanaryReady", FALSE, reason or "NotCreated", message)
    message = f"{_describe_rollout(rollout)} {message}"
    if not rollout.complete:
        return _report("CanaryReady", FALSE, reason or "NotReady", message)
    return _report("CanaryReady", TRUE, reason or "Serving", message)


def _model_cached(cache: CacheProgress) -> ConditionReport:
    status = TRUE if cache.complete else FALSE
    return _report("ModelCached", status, cache.reason, truncate(cache.message))


def _model_moved(inputs: StatusInputs) -> list[ConditionReport]:
    """Say whether the branch of the model went on without it. Nothing is done about that."""
    head, model = inputs.head, _model(inputs)
    if head is None or model is None:
        return []
    if not head.asked:
        old = inputs.service.status.model if inputs.service.status else None
        before = condition_of(inputs.service.status, "ModelMoved")
        same = old is not None and old == model
        # What was said before a restart holds until the hub was asked again.
        kept = before if same else None
        return [_report(kept.type, kept.status, kept.reason, kept.message)] if kept else []
    if head.found is None:
        message = truncate(_clean(f"Whether {head.branch} moved is not known: {head.message}"))
        return [_report("ModelMoved", UNKNOWN, head.reason or "", message)]
    commit, now = model.commit, head.found.commit
    repo = model.ref.partition(":")[0]
    details = (commit, now)
    if commit is None:
        why = f"{model.revision} is no commit, and without a cache each start takes the newest."
        if inputs.service.spec.cache is not None:
            why = "nothing says which commit the cache holds."
        message = f"{head.branch} of {repo} is at {now}, and what is served is not known: {why}"
        return [_report("ModelMoved", UNKNOWN, ConditionReason.NOT_RESOLVED, message, details)]
    if commit == now:
        message = f"{commit} is the head of {head.branch} of {repo}."
        return [_report("ModelMoved", FALSE, ConditionReason.AT_HEAD, message, details)]
    pinned = model.revision == commit
    if pinned and not head.found.has_pin:
        message = (
            f"{head.branch} of {repo} is at {now}, and {commit} is pinned, which is not among the "
            "commits that the hub lists for it: whether one follows from the other is not known."
        )
        return [_report("ModelMoved", UNKNOWN, ConditionReason.NOT_ON_BRANCH, message, details)]
    message = (
        f"{head.branch} of {repo} is at {now} now, and {commit} is "
        f"{'pinned' if pinned else 'downloaded'}. Nothing is restarted or downloaded for that. "
        "To serve it, give that commit as modelRevision."
    )
    return [_report("ModelMoved", TRUE, ConditionReason.HEAD_MOVED, message, details)]


def _autoscaling(inputs: StatusInputs) -> ConditionReport:
    if inputs.other_autoscaler:
        message = (
            f"{inputs.other_autoscaler} scales the primary too, so its number of replicas is left"
            " alone. Delete it, or leave minReplicas and maxReplicas out."
        )
        return _report("AutoscalingReady", FALSE, "AnotherAutoscaler", message)
    if inputs.scaler_problem is not None:
        message = _SCALER_PROBLEMS[inputs.scaler_problem]
        return _report("AutoscalingReady", FALSE, inputs.scaler_problem, message)
    if inputs.asleep:
        message = "The autoscaler rests while there are no replicas."
        return _report("AutoscalingReady", FALSE, ConditionReason.SCALED_TO_ZERO, message)
    live = inputs.live.get(ChildRole.AUTOSCALER)
    if live is None:
        return _report("AutoscalingReady", FALSE, "NotCreated", "There is no autoscaler yet.")
    if live.get("kind") == SCALED_OBJECT[1]:
        return _keda_ready(live)
    for name in ("AbleToScale", "ScalingActive"):
        found = conditions_of(live).get(name)
        if found is None:
            return _report("AutoscalingReady", UNKNOWN, "NotReported", "It has not said so yet.")
        if found.get("status") != TRUE:
            message = _clean(str(found.get("message") or ""))
            return _report("AutoscalingReady", FALSE, str(found.get("reason") or name), message)
    return _report("AutoscalingReady", TRUE, "Scaling", "The autoscaler gets its metrics.")


def _keda_ready(live: Fields) -> ConditionReport:
    found = conditions_of(live)
    if found.get("Paused", {}).get("status") == TRUE:
        message = _clean(str(found["Paused"].get("message") or "KEDA was told to pause."))
        return _report("AutoscalingReady", FALSE, "Paused", message)
    ready = found.get("Ready", {})
    if ready.get("status") == TRUE:
        return _report("AutoscalingReady", TRUE, "Scaling", "KEDA gets its metrics.")
    if ready.get("status") != FALSE:
        return _report("AutoscalingReady", UNKNOWN, "NotReported", "KEDA has not said so yet.")
    message = _clean(str(ready.get("message") or ""))
    return _report("AutoscalingReady", FALSE, str(ready.get("reason") or "NotReady"), message)


_SCALER_PROBLEMS = {
    ConditionReason.KEDA_NOT_INSTALLED: "scaler: keda needs KEDA (keda.sh/v1alpha1), and the "
    "cluster does not serve its ScaledObjects. No autoscaler was made or removed. Install KEDA, or "
    "choose hpa.",
    ConditionReason.NO_PROMETHEUS: "KEDA asks a Prometheus for metrics of pods, and the operator "
    "was told of none. No autoscaler was made or removed. Start the operator with --prometheus, or "
    "choose hpa.",
}
_LEFT = {
    OnDrift.FAIL: (ConditionReason.REFUSED, "Nothing was written to it, as onDrift: fail says."),
    OnDrift.DRY_RUN: (ConditionReason.PLANNED, "status.plan says what would be put back."),
    OnDrift.WARN: (ConditionReason.LEFT, "It was left, as onDrift: warn says."),
}


def _runtime(inputs: StatusInputs) -> list[ConditionReport]:
    """Whether pods serve what is declared, by their engines' own word. Unknown is not in sync."""
    found = inputs.runtime
    if found is None:
        return []
    if found.differences:
        message = truncate(f"{_describe_served(inputs)} {_runtime_follows(inputs)}")
        drift = ConditionReason.RUNTIME
        return [_report("RuntimeVerified", FALSE, drift, message, found.differences)]
    if found.not_asked is not None or found.unknown_fields:
        why = "NotAsked" if found.not_asked is not None else "Unreported"
        return [_report("RuntimeVerified", UNKNOWN, why, describe_unverified(found))]
    fields = dict.fromkeys(each.field for pod in found.pods for each in pod.comparisons)
    served = f"{_pods(len(found.pods))} serving what is declared: {', '.join(fields)}."
    return [_report("RuntimeVerified", TRUE, "AsDeclared", served)]


def _describe_served(inputs: StatusInputs) -> str:
    differences = inputs.runtime.differences if inputs.runtime else ()
    return describe_drifts(runtime_drifts(inputs.service, differences))


def _runtime_follows(inputs: StatusInputs) -> str:
    if inputs.policy is OnDrift.RECONCILE:
        obstacles = inputs.runtime.obstacles if inputs.runtime else ()
        return " ".join(map(describe_obstacle, obstacles)) or "It is being put back."
    if inputs.policy is OnDrift.IGNORE:
        return "It is left, as onDrift: ignore says."
    return _LEFT[inputs.policy][1]


def _drift(inputs: StatusInputs) -> ConditionReport:
    """Drift of the objects first; what pods serve where all objects are as they should be."""
    found = _object_drift(inputs)
    differences = inputs.runtime.differences if inputs.runtime else ()
    if found.status == TRUE or not (differences or inputs.runtime_healed):
        return found
    drifts = runtime_drifts(inputs.service, differences or inputs.runtime_healed)
    if not differences:
        return _report_drift(FALSE, ConditionReason.HEALED, drifts, PUT_BACK)
    if inputs.policy is OnDrift.IGNORE:
        return _report("DriftDetected", FALSE, "Ignored", describe_drifts(drifts))
    report = _report_drift(TRUE, ConditionReason.RUNTIME, drifts, _runtime_follows(inputs))
    return replace(report, message=truncate(report.message))


def _object_drift(inputs: StatusInputs) -> ConditionReport:
    altered = [each for each in inputs.children if each.altered]
    if altered:
        paths = [(each.ref, [field.change.path for field in each.altered]) for each in altered]
        message = describe_altered(altered)
        return _report("DriftDetected", TRUE, ConditionReason.ALTERED, message, paths)
    fights = [each for each in inputs.children if each.fight_until is not None]
    if fights:
        rounds = [
            (each.ref, each.deleted, each.fight_until, change_paths(each.contested))
            for each in fights
        ]
        message = describe_fights(fights)
        return _report("DriftDetected", TRUE, ConditionReason.FIGHTING, message, rounds)
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
        return _report("DriftDetected", FALSE, "Ignored", describe_drift(drifted))
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
        reason, follows = _LEFT[policy]
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
        return _report("DriftDetected", FALSE, ConditionReason.HEALED, before.message)
    if inputs.service.unknown:
        known = "Nothing has drifted of what is known."
        message = truncate(f"{known} {describe_unknown_fields(inputs.service.unknown)}")
        return _report("DriftDetected", UNKNOWN, ConditionReason.UNKNOWN_FIELDS, message)
    if inputs.waits_for_model and inputs.primary is not None:
        message = "What runs is not compared until the model that is declared is downloaded."
        return _report("DriftDetected", UNKNOWN, ConditionReason.DOWNLOADING, message)
    return _report("DriftDetected", FALSE, "None", "Nothing has drifted.")


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


def _degraded(inputs: StatusInputs) -> ConditionReport:
    primary = inputs.primary
    foreign = [each for each in inputs.children if each.reason is Reason.FOREIGN]
    if foreign:
        return _report("Degraded", TRUE, ConditionReason.FOREIGN_OBJECT, describe_foreign(foreign))
    deployments = (inputs.live.get(role) for role in (ChildRole.PRIMARY, ChildRole.CANARY))
    if refusal := pod_security_refusal(map(rollout_of, deployments)):
        return _report("Degraded", TRUE, ConditionReason.PODS_REFUSED, _clean(refusal))
    if primary is not None and primary.stuck:
        return _report("Degraded", TRUE, "RolloutStuck", _with(_clean(primary.stuck), inputs))
    problems = inputs.pods.problems
    hardware = any(each.hardware or each.kind is ProblemKind.HARDWARE for each in problems)
    if inputs.pods.flapping and not hardware:
        return _report("Degraded", TRUE, ConditionReason.PODS_FLAPPING, describe_pods(inputs.pods))
    if problems:
        reason = ConditionReason.PODS_FAILING
        if hardware:
            reason = ConditionReason.HARDWARE_FAILING
        elif all(problem.lasts for problem in problems):
            reason = ConditionReason.PODS_CANNOT_START
        return _report("Degraded", TRUE, reason, describe_pods(inputs.pods))
    if inputs.pods.unread:
        unread = "The pods could not be listed: whether one of them fails is not known."
        return _report("Degraded", UNKNOWN, "PodsUnread", unread)
    if inputs.pods.starting:
        return _report("Degraded", FALSE, "Healthy", "Pods are starting; none is known to fail.")
    return _report("Degraded", FALSE, "Healthy", "No pod is failing.")


def _rest(inputs: StatusInputs) -> list[ConditionReport]:
    """Said only of a service that may have no replicas, or had none until now."""
    if inputs.waking:
        return [_report("ScaledToZero", FALSE, ConditionReason.WAKING, _WAKING)]
    if inputs.idle is not None:
        return [_scaled_to_zero(inputs, inputs.idle)]
    before = condition_of(inputs.service.status, "ScaledToZero")
    if before is None or not inputs.unread:
        return []
    return [_report(before.type, before.status, before.reason, before.message)]


_WAKING = "It is being started after it was scaled to zero."


def _scaled_to_zero(inputs: StatusInputs, idle: IdleDecision) -> ConditionReport:
    if not inputs.asleep:
        return _report("ScaledToZero", FALSE, idle.reason, _AWAKE[idle.reason])
    before = condition_of(inputs.service.status, "ScaledToZero")
    since = inputs.now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if before is not None and before.status == TRUE:
        since = before.last_transition_time or since
    message = f"Scaled to zero since {since}."
    if idle.wakeable:
        wakes = "The next request through a data plane starts it; one to its Service does not."
        return _report("ScaledToZero", TRUE, idle.reason, f"{message} {wakes}")
    nobody = "No data plane is there to start it: run holdfast serve, or raise minReplicas."
    return _report("ScaledToZero", TRUE, IdleReason.NO_DATA_PLANE, f"{message} {nobody}")


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
        return [_report("Suspended", FALSE, reason, message, details)]
    end = f"until {given.until}" if given.until else "until suspend is taken out of the spec"
    message = truncate(_clean(f"Nothing is written to its objects {end}: {given.reason}"))
    return [_report("Suspended", TRUE, ConditionReason.SUSPENDED, message, details)]


def _reconciling(inputs: StatusInputs) -> list[ConditionReport]:
    """Said only when something went wrong: tools that know the name wait while it is True."""
    if not inputs.errors:
        return []
    message = " ".join(f"{role}: {_said(error)}" for role, error in inputs.errors.items())
    reason = ConditionReason.WRITE_REFUSED if _refused_writes(inputs.children) else "ApiError"
    return [_report("Reconciling", FALSE, reason, truncate(message))]


def _refused_writes(children: Sequence[ChildDecision]) -> list[ChildDecision]:
    """The children that the cluster refused to write: by admission, its schema, or our rights."""
    kinds = (ValidationError, PermissionDenied)
    return [each for each in children if each.action.writes and isinstance(each.error, kinds)]


def _has_drift(child: ChildDecision) -> bool:
    """True when something drifted on a child and is seen to, or left on purpose."""
    acts = child.action in (DecisionAction.HEAL, DecisionAction.REFUSE)
    return acts or child.leaves_drift


def _drift_count(inputs: StatusInputs) -> str:
    """How many fields are not as declared, in words."""
    count = sum(len(each.altered) for each in inputs.children) + len(inputs.served_otherwise)
    for each in inputs.children:
        fights = each.action is DecisionAction.LEAVE and each.reason is Reason.FIGHT
        if fights or each.leaves_drift or each.action is DecisionAction.REFUSE:
            count += len(each.drifted) or 1
    return "none" if not count else "1 field" if count == 1 else f"{count} fields"


def _url(service: InferenceService, gateway: Gateway | None) -> str:
    if gateway is None:
        return f"http://{service.name}-svc.{service.namespace}.svc:{POD_PORT}"
    scheme = "https" if "https" in (gateway.section or "") else "http"
    return f"{scheme}://{service.name}.{service.namespace}.{gateway.domain}"


def condition_of(status: InferenceServiceStatus | None, type: str) -> Condition | None:
    """Return the stored condition of a type."""
    stored = status.conditions if status else ()
    return next((each for each in stored if each.type == type), None)


def _describe_rollout(rollout: RolloutStatus | None) -> str:
    if rollout is None:
        return "There are no replicas yet."
    if not rollout.observed:
        return f"A change was just written and is not rolled out yet. {_pods(rollout.ready)} ready."
    if rollout.total > rollout.updated:
        newest = "has" if rollout.updated == 1 else "have"
        return (
            f"A rollout is under way: {rollout.updated} of {rollout.desired} replicas {newest} the"
            f" newest version. {_pods(rollout.ready)} ready."
        )
    if rollout.desired == rollout.ready == 0:
        return "It has no replicas."
    if rollout.ready > rollout.desired:
        return f"{_pods(rollout.ready)} ready, {rollout.desired} wanted."
    if rollout.desired == 1:
        return f"The replica is {'ready' if rollout.ready else 'not ready yet'}."
    return f"{rollout.ready} of {rollout.desired} replicas {_be(rollout.ready)} ready."


def _pods(count: int) -> str:
    return f"{count} replicas are" if count > 1 else f"{count or 'No'} replica is"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _with(message: str, inputs: StatusInputs) -> str:
    return truncate(f"{message} {describe_pods(inputs.pods)}".strip())


def _said(error: HoldfastError) -> str:
    return truncate(_clean(str(error)))


def _clean(text: str) -> str:
    return redact(" ".join(text.split()))


def _by_type(*reports: ConditionReport) -> ConditionReports:
    return {each.type: each for each in reports}


def _report(
    type: str, status: str, reason: str, message: str, details: Iterable[object] = ()
) -> ConditionReport:
    return ConditionReport(
        type=type, status=status, reason=reason, message=message, details=tuple(details)
    )


_DRIFT_FACTS: Mapping[str, type[facts.ConditionChanged]] = {
    ConditionReason.LEFT: facts.DriftLeft,
    ConditionReason.RUNTIME: facts.RuntimeDrifted,
    ConditionReason.ALTERED: facts.ChildAltered,
    ConditionReason.FIGHTING: facts.ChildrenContested,
}
"""What the drift condition says that is told under a name of its own."""
_BLOCKING_FACTS: Mapping[str, type[facts.ConditionChanged]] = {
    ConditionReason.FOREIGN_OBJECT: facts.ForeignObjectFound,
    ConditionReason.WRITE_REFUSED: facts.WriteRefused,
    ConditionReason.UNKNOWN_FIELDS: facts.UnknownFieldsFound,
    ConditionReason.KEDA_NOT_INSTALLED: facts.ScalerBlocked,
    ConditionReason.NO_PROMETHEUS: facts.ScalerBlocked,
}
"""Why something is not as declared that people have to do something about."""


_DOWNLOAD_FACTS: Mapping[str, type[facts.ConditionChanged]] = {
    ConditionReason.MODEL_COMPLETE: facts.ModelDownloaded,
    ConditionReason.DOWNLOAD_FAILED: facts.ModelDownloadFailed,
}


def facts_of_writes(children: Sequence[ChildDecision]) -> Iterator[ServiceFact]:
    """What was written: each write is a fact of its own."""
    for each in children:
        if each.error is not None:
            continue
        match each.action:
            case DecisionAction.CREATE if each.deleted:
                yield facts.DriftHealed(drift=drift_of(each), cost=each.cost)
            case DecisionAction.CREATE:
                yield facts.ChildCreated(ref=each.ref)
            case DecisionAction.UPDATE | DecisionAction.UPDATE_AROUND_DRIFT:
                asked = any(field.cost for field in each.pending)
                yield facts.ChildUpdated(ref=each.ref, cost=each.cost if asked else None)
            case DecisionAction.HEAL if each.healed:
                drift = drift_of(each, healed=True)
                yield facts.DriftHealed(drift=drift, cost=each.cost)
            case _:
                pass


_POD_FAILURES: Mapping[str, type[facts.ConditionChanged]] = {
    ConditionReason.PODS_FAILING: facts.PodsFailed,
    ConditionReason.PODS_CANNOT_START: facts.PodsFailed,
    ConditionReason.PODS_REFUSED: facts.PodsFailed,
    ConditionReason.PODS_FLAPPING: facts.PodsFlapped,
    ConditionReason.HARDWARE_FAILING: facts.HardwareFailed,
}


def _facts_of_readiness(
    old_ready: Condition | None, old_rest: Condition | None, new: ConditionReports
) -> Iterator[ServiceFact]:
    """What is told of a service that may be used, or not any more, and of its rest and waking."""
    ready, rest = new["Ready"], new.get("ScaledToZero")
    was_ready = old_ready is not None and old_ready.status == TRUE
    rested = old_rest is not None and old_rest.status == TRUE
    if rest is not None and rest.status == TRUE and not rested:
        yield facts.ScaledToZero(condition=rest)
        if ready.status == TRUE:
            return  # which says the same
    if rested and rest is not None and rest.status == FALSE:
        starts = rest.reason == ConditionReason.WAKING or new["Available"].status == TRUE
        if starts:  # which one that was asked while it is suspended does not
            yield facts.Woken(condition=ready)
    if ready.status == TRUE and not was_ready:
        yield facts.BecameReady(condition=ready)
    if ready.status == TRUE or not was_ready or ready.reason == ConditionReason.WAKING:
        return
    rolling = ready.reason == ConditionReason.ROLLING_OUT
    yield (facts.RolloutStarted if rolling else facts.BecameUnready)(condition=ready)


def facts_of_transition(
    before: InferenceServiceStatus | None, last: ConditionReports, new: ConditionReports
) -> Iterator[ServiceFact]:
    """What the conditions say that they did not say before.

    `before` is the status until now, and `last` has the conditions as this process found them
    last. After a restart only a condition with another reason counts as new.
    """
    old = {each.type: each for each in before.conditions} if before else {}

    def is_new(report: ConditionReport) -> bool:
        stored = old.get(report.type)
        if stored is None or stored.reason != report.reason:
            return True
        return last.get(report.type, report) != report

    ready, drift, up_to_date = new["Ready"], new["DriftDetected"], new["UpToDate"]
    if ready.reason == ConditionReason.INVALID_SPEC:
        if is_new(ready):
            yield facts.SpecRefused(condition=ready)
    elif ready.reason == ConditionReason.MULTI_NODE_NOT_INSTALLED:
        if is_new(ready):
            yield facts.MultiNodeRefused(condition=ready)
    else:
        yield from _facts_of_readiness(old.get("Ready"), old.get("ScaledToZero"), new)
    cached = new.get("ModelCached")
    if cached is not None and cached.reason in _DOWNLOAD_FACTS and is_new(cached):
        yield _DOWNLOAD_FACTS[cached.reason](condition=cached)
    moved, moved_before = new.get("ModelMoved"), old.get("ModelMoved")
    if moved is not None and moved.status == TRUE and moved.details:
        known = before.model.head if before is not None and before.model is not None else None
        if moved_before is None or moved_before.status != TRUE or known != moved.details[1]:
            yield facts.ModelMoved(condition=moved)
    degraded = new.get("Degraded")
    if degraded is not None and degraded.reason in _POD_FAILURES:
        stored = old.get("Degraded")
        if stored is None or stored.reason != degraded.reason:
            yield _POD_FAILURES[degraded.reason](condition=degraded)
    if drift.status == TRUE and is_new(drift):
        yield _DRIFT_FACTS.get(drift.reason, facts.ChildrenDrifted)(condition=drift)
    suspended, suspended_before = new.get("Suspended"), old.get("Suspended")
    if suspended is not None and suspended.status == TRUE:
        if is_new(suspended):
            yield facts.ServiceSuspended(condition=suspended)
    elif suspended_before is not None and suspended_before.status == TRUE:
        yield facts.ServiceResumed(expired=suspended is not None)
    if up_to_date.reason in _BLOCKING_FACTS and is_new(up_to_date):
        yield _BLOCKING_FACTS[up_to_date.reason](condition=up_to_date)
