"""What a change of an InferenceService costs: it is rendered before and after, and compared.

So the answer is that of the operator itself, whatever field was changed. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.cost import NO_COST, Cost, CostKind, sum_costs
from holdfast.core.errors import InvalidSpec
from holdfast.core.object_cost import CostBasis, change_cost, replica_count
from holdfast.core.ownership.canonical import value_at
from holdfast.core.service.autoscaling import initial_replicas
from holdfast.core.service.canary import ENDED_PHASES, canary_digest, primary_digest, promoted
from holdfast.core.service.children import (
    CANARY,
    DEPLOYMENT,
    LEADER_WORKER_SET,
    PRIMARY,
    ROLE_LABEL,
    Facts,
    Gateway,
    manifests,
)
from holdfast.core.service.spec import (
    CanaryEnding,
    CanaryState,
    InferenceService,
    InferenceServiceSpec,
    InferenceServiceStatus,
)
from holdfast.core.service.split import SplitMode
from holdfast.core.tree import Fields, identical

_WORKLOAD_KINDS = (DEPLOYMENT[1], LEADER_WORKER_SET[1])
_TEMPLATES = (("spec", "template"), ("spec", "leaderWorkerTemplate"))
_GROUP_LIMITS = ("spec", "rolloutStrategy", "rollingUpdateConfiguration")
_SOME_GATEWAY = Gateway(name="", namespace="", domain="")
"""Which one it is makes no difference to pods."""


def service_cost(
    before: InferenceService | None, after: InferenceService | None, basis: CostBasis
) -> Cost | None:
    """What it costs to have `after` in place of `before`; None is no service at all.

    How many replicas there are now, and how far a canary is, is what the status of `before` says.
    None in answer is a cost that nobody can tell: of a spec that cannot be served.
    """
    status = before.status if before else None
    count = _running(before) if before else None
    try:
        old = _workloads(before, status, count)
        new = _workloads(after, status, count if after is None else _wanted(after, count))
    except InvalidSpec:
        return None
    costs = {
        role: _workload_cost(old.get(role), new.get(role), basis) for role in sorted({*old, *new})
    }
    # At weight 100 all requests go to the canary; where it ends, to the primary again.
    whole = status is not None and status.canary_weight == 100
    front, other = (CANARY, PRIMARY) if whole and CANARY in new else (PRIMARY, CANARY)
    if other in costs and _has_pods(old.get(front)) and _has_pods(new.get(front)):
        costs[other] = _beside_others(costs[other])
    return sum_costs(list(costs.values())) if costs else NO_COST


def _workload_cost(was: Fields | None, will: Fields | None, basis: CostBasis) -> Cost:
    if was is not None and will is not None and was["kind"] != will["kind"]:
        return _replacement_cost(was, will, basis)
    rolls = any(not identical(value_at(was, path), value_at(will, path)) for path in _TEMPLATES)
    return change_cost(was, will, basis, rolls=rolls)


def _replacement_cost(was: Fields, will: Fields, basis: CostBasis) -> Cost:
    """The cost of pods that another kind of object is to run from now on.

    Where extra pods may be started the old ones go when all new ones are there, else at once.
    """
    limits = ("spec", "strategy", "rollingUpdate"), _GROUP_LIMITS
    surges = any(value_at(will, (*path, "maxSurge")) for path in limits)
    if not surges:
        return change_cost(was, will, basis, rolls=True, recreates=True)
    start, end = change_cost(None, will, basis), change_cost(was, None, basis)
    given_back = {each.resource: each.added for each in end.devices}
    devices = tuple(
        replace(each, added=each.added + given_back.get(each.resource, 0)) for each in start.devices
    )
    return replace(
        start,
        kind=CostKind.ROLLING if end.added else CostKind.NONE,
        pods=-end.added,
        added=start.added + end.added,
        devices=devices,
    )


def _beside_others(cost: Cost) -> Cost:
    """The cost of pods beside which others answer."""
    if cost.kind not in (CostKind.GAP, CostKind.RECREATE):
        return cost
    return replace(cost, kind=CostKind.ROLLING if cost.pods else CostKind.NONE)


def _has_pods(item: Fields | None) -> bool:
    return item is not None and replica_count(item) > 0


def _running(service: InferenceService) -> int:
    """How many replicas the primary has whose number others choose."""
    seen = service.status.replicas if service.status else None
    if seen == 0 and service.spec.scales_to_zero:
        return 0
    return initial_replicas(service)


def _wanted(service: InferenceService, running: int | None) -> int:
    """How many it has afterwards: what runs, within the bounds that are declared then.

    One that rests goes on resting; else an autoscaler starts what is missing up to the least.
    """
    spec = service.spec
    if running is None:
        return initial_replicas(service)
    if not spec.autoscaled:
        return running
    awake = running > 0 or spec.canary is not None  # both variants run until it is decided
    least = max(spec.min_replicas or 0, int(awake))
    return min(max(running, least), spec.max_replicas or running)


def _workloads(
    service: InferenceService | None, status: InferenceServiceStatus | None, count: int | None
) -> dict[str, Fields]:
    """The children that run pods, by role; one that others scale has `count` replicas."""
    if service is None:
        return {}
    service.validate()
    found: dict[str, Fields] = {}
    for item in manifests(service, _facts(service.spec, status, count)):
        spec = item["spec"]
        if item["kind"] in _WORKLOAD_KINDS and isinstance(spec, dict):
            role = str(value_at(item, ("metadata", "labels", ROLE_LABEL)))
            found[role] = {**item, "spec": {"replicas": count, **spec}}
    return found


def _facts(
    spec: InferenceServiceSpec, status: InferenceServiceStatus | None, count: int | None
) -> Facts:
    state = status.canary if status else None
    divided = status is not None and status.split_mode == SplitMode.GATEWAY
    return Facts(
        gateway=_SOME_GATEWAY if divided else None,
        primary_replicas=count,
        canary_ready=status is not None and bool(status.canary_weight),
        canary_applied=not (state and _is_over(spec, state)),
        promoted=promoted(spec, state),
    )


def _is_over(spec: InferenceServiceSpec, state: CanaryState) -> bool:
    """Whether the declared canary is one that has had its turn, and runs no more."""
    again = state.ending is CanaryEnding.PROMOTED and primary_digest(spec) != state.base
    return state.phase in ENDED_PHASES and canary_digest(spec) == state.digest and not again
