"""Makes the status of a service from what one pass saw and did. Pure.

`Available` says that requests are answered now and stays so during a healthy rollout; `Ready`
says besides that everything is as declared and no pod is failing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from holdfast.core.backends import POD_PORT
from holdfast.core.errors import HoldfastError, InvalidSpec, PermissionDenied, ValidationError
from holdfast.core.policy import DecisionAction, OnDrift, Reason
from holdfast.core.redact import redact
from holdfast.core.service.canary import Note
from holdfast.core.service.children import PRIMARY, Gateway, selector
from holdfast.core.service.spec import (
    AppliedChild,
    CanaryState,
    Condition,
    InferenceService,
    InferenceServiceStatus,
)
from holdfast.core.service.split import SplitMode, TrafficSplit, route_accepted
from holdfast.core.tree import Fields
from holdfast.reconcile.service.decisions import ChildDecision
from holdfast.reconcile.service.messages import (
    describe_altered,
    describe_delegated,
    describe_drift,
    describe_fights,
    plan_lines,
    truncate,
)
from holdfast.reconcile.service.observe import (
    ChildRole,
    RolloutStatus,
    conditions_of,
    controller_of,
    rollout_of,
)

__all__ = ["Note", "ServiceResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """The outcome of a pass."""

    status: InferenceServiceStatus
    requeue_after: float | None = None
    """Seconds until time alone may change something; None when only an event can."""
    notes: tuple[Note, ...] = ()


_MAX_FIELDS = 5
"""Fields named in one sentence."""
TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
FIGHTING = "Fighting"
"""Somebody changes a field each time it is put back."""
REFUSED = "WriteRefused"
"""Why something is not as declared: the cluster refused a write of ours."""
UNKNOWN_FIELDS = "UnknownFields"
"""A later version declared something that this one does not know."""
_DRIFTED = "Drifted"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    pod_problems: str = ""
    canary: CanaryState | None = None
    canary_message: str = ""
    """How it is doing, in the words of the move that was made."""
    applied: Mapping[str, str] = field(default_factory=dict)
    """The digest of what was applied last to each child."""
    healing: bool = False
    """Drift was seen and is about to be put back."""


def make_status(inputs: StatusInputs) -> InferenceServiceStatus:
    """Describe a service that is valid."""
    service = inputs.service
    old = service.status or InferenceServiceStatus()
    primary = rollout_of(inputs.live.get(ChildRole.PRIMARY))
    unread = ChildRole.PRIMARY in inputs.errors and primary is None
    made = _conditions(inputs, primary, unread=unread)
    conditions = date_conditions(made, service, inputs.now)
    ready = next(each for each in conditions if each.type == "Ready")
    split = inputs.split
    return InferenceServiceStatus(
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
        drift=_drift_count(inputs.children),
        url=_url(service, inputs.gateway),
        plan=plan_lines(each for each in inputs.children if each.action is DecisionAction.PLAN)
        or None,
        canary=inputs.canary,
        applied=tuple(
            AppliedChild(child=child, digest=digest)
            for child, digest in sorted(inputs.applied.items())
        )
        or None,
        conditions=conditions,
    )


def make_refused_status(
    service: InferenceService, error: InvalidSpec, now: datetime
) -> InferenceServiceStatus:
    """Describe a service that cannot be served as it stands. What runs, goes on running."""
    old = service.status or InferenceServiceStatus()
    message = truncate(" ".join(str(problem) for problem in error.problems) or str(error))
    anew = ("Ready", "UpToDate", "DriftDetected")
    kept = tuple(each for each in old.conditions if each.type not in anew)
    made = (
        _condition("Ready", FALSE, "InvalidSpec", message),
        _condition(
            "UpToDate", FALSE, "InvalidSpec", "The spec was refused, so nothing was changed."
        ),
        _condition(
            "DriftDetected", UNKNOWN, "InvalidSpec", "The spec was refused, so nobody looked."
        ),
    )
    return replace(
        old,
        ready=False,
        message=message,
        drift=None,
        observed_generation=service.generation or None,
        conditions=date_conditions((*made, *kept), service, now),
    )


def date_conditions(
    made: Sequence[Condition], service: InferenceService, now: datetime
) -> tuple[Condition, ...]:
    """Date conditions: the time moves only when the status does."""
    old = {each.type: each for each in service.status.conditions} if service.status else {}
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    dated = []
    for each in made:
        before = old.get(each.type)
        kept = before.last_transition_time if before and before.status == each.status else None
        dated.append(
            replace(
                each,
                observed_generation=service.generation or None,
                last_transition_time=kept or stamp,
            )
        )
    return tuple(dated)


def _conditions(
    inputs: StatusInputs, primary: RolloutStatus | None, *, unread: bool
) -> tuple[Condition, ...]:
    available = _available(inputs, primary, unread=unread)
    progressing = _progressing(primary, unread=unread)
    up_to_date = _up_to_date(inputs, primary, unread=unread)
    routes = _routes(inputs)
    degraded = _degraded(inputs, primary)
    left = [each for each in inputs.children if each.leaves_drift]
    # Drift that the policy leaves keeps nobody from being served; where it does, it is `fail`.
    needed = (
        (available, routes)
        if left and up_to_date.reason == _DRIFTED
        else (available, up_to_date, routes)
    )
    made = [
        _ready(inputs, primary, needed, degraded),
        available,
        up_to_date,
        progressing,
        routes,
    ]
    if inputs.service.spec.canary is not None:
        made.append(_canary(inputs))
    if inputs.service.spec.autoscaled or inputs.other_autoscaler:
        made.append(_autoscaling(inputs))
    made += [_drift(inputs), degraded, *_reconciling(inputs)]
    return tuple(made)


def _ready(
    inputs: StatusInputs,
    primary: RolloutStatus | None,
    needed: Sequence[Condition],
    degraded: Condition,
) -> Condition:
    drifted = [each for each in inputs.children if each.action is DecisionAction.REFUSE]
    if drifted:
        return _condition("Ready", FALSE, "Drifted", describe_drift(drifted))
    if degraded.status == TRUE:
        return _condition("Ready", FALSE, degraded.reason, degraded.message)
    for status in (FALSE, UNKNOWN):
        for each in needed:
            if each.status == status:
                return _condition("Ready", status, each.reason, each.message)
    counted = _describe_rollout(primary)
    if primary is not None and not primary.complete:
        return _condition("Ready", FALSE, "ReplicasNotReady", counted)
    word = _drift_count(inputs.children)
    be = "is" if word == "1 field" else "are"
    left = (
        f" {word} {be} not as declared."
        if [each for each in inputs.children if each.leaves_drift]
        else ""
    )
    return _condition("Ready", TRUE, "Serving", counted + left)


def _available(inputs: StatusInputs, primary: RolloutStatus | None, *, unread: bool) -> Condition:
    if unread:
        return _condition("Available", UNKNOWN, "ApiError", _said(inputs.errors[ChildRole.PRIMARY]))
    canary = rollout_of(inputs.live.get(ChildRole.CANARY)) if inputs.split.weight else None
    serving = sum(each.available for each in (primary, canary) if each is not None)
    if serving:
        return _condition("Available", TRUE, "Serving", f"{_pods(serving)} answering.")
    return _condition("Available", FALSE, "NoReplicaReady", _with("No replica is ready.", inputs))


def _progressing(primary: RolloutStatus | None, *, unread: bool) -> Condition:
    if unread:
        return _condition("Progressing", UNKNOWN, "ApiError", "The primary could not be read.")
    if primary is None:
        return _condition("Progressing", FALSE, "NotStarted", "There is no primary yet.")
    if primary.stuck:
        return _condition("Progressing", FALSE, "Stuck", _clean(primary.stuck))
    if primary.rolling:
        return _condition("Progressing", TRUE, "RollingOut", _describe_rollout(primary))
    if not primary.complete:
        return _condition("Progressing", TRUE, "Starting", _describe_rollout(primary))
    return _condition("Progressing", FALSE, "Done", _describe_rollout(primary))


def _up_to_date(inputs: StatusInputs, primary: RolloutStatus | None, *, unread: bool) -> Condition:
    foreign = [each for each in inputs.children if each.reason is Reason.FOREIGN]
    if foreign:
        return _condition("UpToDate", FALSE, "ForeignObject", describe_foreign(foreign))
    refused = [each for each in inputs.children if each.action is DecisionAction.REFUSE]
    if refused:
        return _condition("UpToDate", FALSE, "Drifted", describe_drift(refused))
    denied = _refused_writes(inputs.children)
    if denied:
        message = " ".join(_said(each.error) for each in denied if each.error is not None)
        return _condition("UpToDate", FALSE, REFUSED, truncate(message))
    if unread or inputs.errors:
        first = next(iter(inputs.errors.values()))
        return _condition("UpToDate", UNKNOWN, "ApiError", _said(first))
    altered = [each for each in inputs.children if each.altered]
    if altered:
        return _condition("UpToDate", FALSE, "AlteredByAdmission", describe_altered(altered))
    fights = [each for each in inputs.children if each.fight_until is not None]
    if fights:
        return _condition("UpToDate", FALSE, FIGHTING, describe_fights(fights))
    waiting = [each for each in inputs.children if each.action is DecisionAction.WAIT]
    if waiting:
        names = ", ".join(f"{each.ref.kind} {each.ref.name}" for each in waiting)
        return _condition("UpToDate", FALSE, "Waiting", f"{names} is being deleted.")
    if any(each.action is DecisionAction.PLAN and each.pending for each in inputs.children):
        message = "The new declaration waits until the drift is over; status.plan has both."
        return _condition("UpToDate", FALSE, "Planned", message)
    policy = inputs.service.spec.on_drift or OnDrift.RECONCILE
    left = [each for each in inputs.children if each.leaves_drift]
    if left and policy in _LEFT:
        return _condition("UpToDate", FALSE, _DRIFTED, f"{describe_drift(left)} {_LEFT[policy][1]}")
    if inputs.service.unknown:
        return _condition(
            "UpToDate", UNKNOWN, UNKNOWN_FIELDS, _describe_unknown_fields(inputs.service)
        )
    if primary is None or primary.rolling:
        return _condition("UpToDate", FALSE, "RollingOut", _describe_rollout(primary))
    if left:
        drift = describe_drift(left)
        message = f"Everything declared is in place, but for what onDrift: ignore leaves. {drift}"
        return _condition("UpToDate", TRUE, "DriftIgnored", truncate(message))
    lent = describe_delegated(inputs.children)
    if lent:
        message = f"Everything declared is in place, but for what is left to others. {lent}"
        return _condition("UpToDate", TRUE, "Delegated", truncate(message))
    return _condition("UpToDate", TRUE, "AsDeclared", "Everything declared is in place.")


def _describe_unknown_fields(service: InferenceService) -> str:
    names = ", ".join(service.unknown[:_MAX_FIELDS])
    more = (
        f" and {len(service.unknown) - _MAX_FIELDS} more"
        if len(service.unknown) > _MAX_FIELDS
        else ""
    )
    return truncate(
        f"This version of the operator does not know {names}{more}, so nobody looked at what is"
        " declared there. What it knows is kept as it was written, and nothing new is rolled out."
        " Upgrade the operator, or take the fields out."
    )


def _routes(inputs: StatusInputs) -> Condition:
    if inputs.gateway is None:
        if ChildRole.ENTRY_SERVICE in inputs.live:
            message = "Requests go through the Service; no gateway is set up."
            return _condition("RoutesReady", TRUE, "ServiceOnly", message)
        return _condition("RoutesReady", FALSE, "NotCreated", "The Service is not there yet.")
    route = inputs.live.get(ChildRole.ROUTE)
    if route is not None and route_accepted(route):
        return _condition("RoutesReady", TRUE, "Accepted", "The gateway took over the route.")
    message = "The gateway has not accepted the route as it stands now."
    return _condition("RoutesReady", FALSE, "NotAccepted", message)


def _canary(inputs: StatusInputs) -> Condition:
    rollout = rollout_of(inputs.live.get(ChildRole.CANARY))
    weight = inputs.service.spec.canary.weight if inputs.service.spec.canary else 0
    share = f"It gets {inputs.split.weight} % of the requests; {weight} % is declared."
    reason = inputs.canary.reason if inputs.canary else ""
    message = inputs.canary_message or share
    if rollout is None:
        message = inputs.canary_message or "There is no canary now."
        return _condition("CanaryReady", FALSE, reason or "NotCreated", message)
    message = f"{_describe_rollout(rollout)} {message}"
    if not rollout.complete:
        return _condition("CanaryReady", FALSE, reason or "NotReady", message)
    return _condition("CanaryReady", TRUE, reason or "Serving", message)


def _autoscaling(inputs: StatusInputs) -> Condition:
    if inputs.other_autoscaler:
        message = (
            f"{inputs.other_autoscaler} scales the primary too, so its number of replicas is left"
            " alone. Delete it, or leave minReplicas and maxReplicas out."
        )
        return _condition("AutoscalingReady", FALSE, "AnotherAutoscaler", message)
    live = inputs.live.get(ChildRole.AUTOSCALER)
    if live is None:
        return _condition("AutoscalingReady", FALSE, "NotCreated", "There is no autoscaler yet.")
    for name in ("AbleToScale", "ScalingActive"):
        found = conditions_of(live).get(name)
        if found is None:
            return _condition("AutoscalingReady", UNKNOWN, "NotReported", "It has not said so yet.")
        if found.get("status") != TRUE:
            message = _clean(str(found.get("message") or ""))
            return _condition("AutoscalingReady", FALSE, str(found.get("reason") or name), message)
    return _condition("AutoscalingReady", TRUE, "Scaling", "The autoscaler gets its metrics.")


_AGAIN = "It was created again."
_LEFT = {
    OnDrift.FAIL: ("Refused", "Nothing was written to it, as onDrift: fail says."),
    OnDrift.DRY_RUN: ("Planned", "status.plan says what would be put back."),
    OnDrift.WARN: ("Left", "It was left, as onDrift: warn says."),
}


def _drift(inputs: StatusInputs) -> Condition:
    altered = [each for each in inputs.children if each.altered]
    if altered:
        return _condition("DriftDetected", TRUE, "AlteredByAdmission", describe_altered(altered))
    fights = [each for each in inputs.children if each.fight_until is not None]
    if fights:
        return _condition("DriftDetected", TRUE, FIGHTING, describe_fights(fights))
    drifted = [each for each in inputs.children if _has_drift(each)]
    policy = inputs.service.spec.on_drift or OnDrift.RECONCILE
    held = [each for each in drifted if each.reason is Reason.UNKNOWN_FIELDS]
    if held and policy is OnDrift.RECONCILE:
        message = f"{describe_drift(held)} It was left. {_describe_unknown_fields(inputs.service)}"
        return _condition("DriftDetected", TRUE, UNKNOWN_FIELDS, truncate(message))
    if drifted and policy is OnDrift.IGNORE:
        return _condition("DriftDetected", FALSE, "Ignored", describe_drift(drifted))
    if drifted and policy is OnDrift.RECONCILE:
        failed = any(each.error for each in drifted)
        if inputs.healing or failed:
            action = "It could not be put back yet." if failed else "It is being put back."
            return _condition(
                "DriftDetected", TRUE, "Healing", f"{describe_drift(drifted)} {action}"
            )
        return _condition(
            "DriftDetected", FALSE, "Healed", f"{describe_drift(drifted)} It was put back."
        )
    if drifted:
        reason, action = _LEFT[policy]
        return _condition("DriftDetected", TRUE, reason, f"{describe_drift(drifted)} {action}")
    recreated = [each for each in inputs.children if each.deleted]
    if recreated and any(each.error for each in recreated):
        message = f"{describe_drift(recreated)} It could not be created again yet."
        return _condition("DriftDetected", TRUE, "Healing", message)
    if recreated:
        return _condition("DriftDetected", FALSE, "Healed", f"{describe_drift(recreated)} {_AGAIN}")
    before = _before(inputs.service, "DriftDetected")
    if before is not None and before.reason in ("Healed", "Healing"):
        # What was healed last stays to be read: healing erased every other trace of it.
        message = before.message.replace("It is being put back.", "It was put back.")
        return _condition("DriftDetected", FALSE, "Healed", message)
    if inputs.service.unknown:
        message = (
            f"Nothing has drifted of what is known. {_describe_unknown_fields(inputs.service)}"
        )
        return _condition("DriftDetected", UNKNOWN, UNKNOWN_FIELDS, truncate(message))
    return _condition("DriftDetected", FALSE, "None", "Nothing has drifted.")


def _degraded(inputs: StatusInputs, primary: RolloutStatus | None) -> Condition:
    foreign = [each for each in inputs.children if each.reason is Reason.FOREIGN]
    if foreign:
        return _condition("Degraded", TRUE, "ForeignObject", describe_foreign(foreign))
    if primary is not None and primary.stuck:
        return _condition("Degraded", TRUE, "RolloutStuck", _with(_clean(primary.stuck), inputs))
    if inputs.pod_problems:
        return _condition("Degraded", TRUE, "PodsFailing", truncate(inputs.pod_problems))
    return _condition("Degraded", FALSE, "Healthy", "No pod is failing.")


def _reconciling(inputs: StatusInputs) -> list[Condition]:
    """Said only when something went wrong: tools that know the name wait while it is True."""
    if not inputs.errors:
        return []
    message = " ".join(f"{role}: {_said(error)}" for role, error in inputs.errors.items())
    reason = REFUSED if _refused_writes(inputs.children) else "ApiError"
    return [_condition("Reconciling", FALSE, reason, truncate(message))]


def _refused_writes(children: Sequence[ChildDecision]) -> list[ChildDecision]:
    """The children that the cluster refused to write: by admission, its schema, or our rights."""
    kinds = (ValidationError, PermissionDenied)
    return [each for each in children if each.action.writes and isinstance(each.error, kinds)]


def _has_drift(child: ChildDecision) -> bool:
    """True when something drifted on a child and is seen to, or left on purpose."""
    acts = child.action in (DecisionAction.HEAL, DecisionAction.REFUSE)
    return acts or child.leaves_drift


def describe_foreign(foreign: Sequence[ChildDecision]) -> str:
    """Name the objects that have our names and are not ours."""
    named = []
    for each in foreign:
        by = controller_of(each.live) if each.live else None
        whose = f"belongs to {by}" if by else "was not made for this service"
        named.append(f"{each.ref.kind} {each.ref.name} {whose}.")
    return truncate(" ".join(named) + " It was not touched. Delete it, or rename the service.")


def _drift_count(children: Sequence[ChildDecision]) -> str:
    """How many fields are not as declared, in words."""
    count = sum(len(each.altered) for each in children)
    for each in children:
        fights = each.action is DecisionAction.LEAVE and each.reason is Reason.FIGHT
        if fights or each.leaves_drift or each.action is DecisionAction.REFUSE:
            count += len(each.drifted) or 1
    return "none" if not count else "1 field" if count == 1 else f"{count} fields"


def _url(service: InferenceService, gateway: Gateway | None) -> str:
    if gateway is None:
        return f"http://{service.name}-svc.{service.namespace}.svc:{POD_PORT}"
    scheme = "https" if "https" in (gateway.section or "") else "http"
    return f"{scheme}://{service.name}.{service.namespace}.{gateway.domain}"


def _before(service: InferenceService, kind: str) -> Condition | None:
    held = service.status.conditions if service.status else ()
    return next((each for each in held if each.type == kind), None)


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
    return truncate(f"{message} {inputs.pod_problems}".strip())


def _said(error: HoldfastError) -> str:
    return truncate(_clean(str(error)))


def _clean(text: str) -> str:
    return redact(" ".join(text.split()))


def _condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)


ROUTINE_REASONS = frozenset({"Created", "Updated", "Deleted"})
"""What follows from a declaration by itself. When not all can be told, this is left out first:
drift, heals, promotions and failures are what people look for afterwards."""
_BLOCKING_REASONS = ("ForeignObject", REFUSED, UNKNOWN_FIELDS)
"""Why something is not as declared that people have to do something about."""
_DRIFT_EVENTS = {
    "Left": "DriftLeft",
    "AlteredByAdmission": "AlteredByAdmission",
    FIGHTING: FIGHTING,
}
"""Reasons of the condition that are told under a name of their own."""


def events_of_writes(children: Sequence[ChildDecision]) -> Iterator[Note]:
    """What was written: each write is a transition of its own."""
    for each in children:
        if each.error is not None:
            continue
        name = f"{each.ref.kind} {each.ref.name}"
        match each.action:
            case DecisionAction.CREATE if each.deleted:
                message = f"{describe_drift([each])} {_AGAIN}"
                yield Note(warning=True, reason="DriftHealed", message=message)
            case DecisionAction.CREATE:
                yield Note(warning=False, reason="Created", message=f"{name} was created.")
            case DecisionAction.UPDATE | DecisionAction.UPDATE_AROUND_DRIFT:
                message = f"{name} was made as declared."
                yield Note(warning=False, reason="Updated", message=message)
            case DecisionAction.HEAL if each.healed:
                message = truncate(f"{describe_drift([each], healed=True)} It was put back.")
                yield Note(warning=True, reason="DriftHealed", message=message)
            case _:
                pass


def events_of_transition(
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
        reason = _DRIFT_EVENTS.get(drift.reason, "DriftDetected")
        yield Note(warning=True, reason=reason, message=drift.message)
    up_to_date = new.get("UpToDate")
    if up_to_date and up_to_date.reason in _BLOCKING_REASONS and _changed(old, up_to_date):
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
