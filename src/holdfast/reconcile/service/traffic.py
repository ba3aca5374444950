"""Decides how requests are shared in this pass: what was seen, put to the canary's state machine.

Called after everything was read and before anything is rendered.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.signals import declare
from holdfast.core.service import analysis
from holdfast.core.service.canary import CanaryDecision, advance, promoted
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
from holdfast.core.service.spec import CanaryObservation, CanaryState, InferenceService
from holdfast.core.service.split import (
    SplitMode,
    TrafficSplit,
    route_accepted,
    route_weight,
    selector_weight,
)
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ref_of
from holdfast.reconcile.objects.resource_manager import ResourceManager
from holdfast.reconcile.ports import MetricSource
from holdfast.reconcile.service.apply import owns_replicas, replicas_of
from holdfast.reconcile.service.decisions import pending_fields
from holdfast.reconcile.service.observe import (
    ChildOwnership,
    ChildRole,
    ObservedChildren,
    is_terminating,
    rollout_of,
)

ROUTING_ROLES = (ChildRole.PRIMARY, ChildRole.CANARY, ChildRole.ENTRY_SERVICE, ChildRole.ROUTE)
"""What has to have been read before requests are shared out anew."""


_WORKLOAD_KINDS = (DEPLOYMENT[1], LEADER_WORKER_SET[1])
_TEMPLATE_PATHS = (("spec", "template"), ("spec", "leaderWorkerTemplate"))


def has_canary(observed: ObservedChildren) -> bool:
    """True when there is, was or is to be a canary."""
    service = observed.service
    remembered = service.status is not None and service.status.canary is not None
    return service.spec.canary is not None or remembered or ChildRole.CANARY in observed.live


def gateway_in_use(observed: ObservedChildren) -> Gateway | None:
    """The gateway that the service's own route is attached to, for who was told of none.

    A flag that was left out takes nothing away: the route is kept as it stands, for whoever sends
    requests by it. Deleting it is the user's to do, and it does not come back then.
    """
    route = observed.live.get(ChildRole.ROUTE)
    if (
        route is None
        or observed.relation(ChildRole.ROUTE) is not ChildOwnership.OURS
        or is_terminating(route)
    ):
        return None
    parents, hosts = value_at(route, ("spec", "parentRefs")), value_at(route, ("spec", "hostnames"))
    parent = parents[0] if isinstance(parents, list) and parents else None
    host = hosts[0] if isinstance(hosts, list) and hosts else None
    prefix = f"{observed.service.name}.{observed.service.namespace}."
    if not isinstance(parent, dict) or not isinstance(host, str) or not host.startswith(prefix):
        return None
    section = parent.get("sectionName")
    return Gateway(
        name=str(parent.get("name") or ""),
        namespace=str(parent.get("namespace") or observed.service.namespace),
        domain=host.removeprefix(prefix),
        section=section if isinstance(section, str) else None,
    )


async def advance_canary(
    observed: ObservedChildren,
    gateway: Gateway | None,
    *,
    resource_manager: ResourceManager,
    metrics: MetricSource | None,
    now: datetime,
) -> CanaryDecision:
    """Look at the canary and its router, ask the metric when it is time, and move on.

    While the service is suspended, the canary stays where it is.
    """
    service = observed.service
    memory = service.status.canary if service.status else None
    observation = await _observe_canary(
        observed, gateway, memory, resource_manager=resource_manager
    )
    if service.spec.suspended(now):
        return advance(service.spec, memory, observation, now, frozen=True)
    if analysis.is_round_due(service.spec, memory, now):
        question = analysis.metric_query(service)
        value = await metrics.query(question) if metrics and question else None
        observation = replace(observation, asked=True, metric=value)
    return advance(service.spec, memory, observation, now)


def render_facts(
    observed: ObservedChildren,
    gateway: Gateway | None,
    move: CanaryDecision | None,
    *,
    prometheus: str | None = None,
) -> Facts:
    """What the rendering depends on. Without a canary there is nothing to decide."""
    observation = replicas_of(_own(observed, ChildRole.PRIMARY))
    free = observed.other_autoscaler is not None
    if move is None:
        spec = observed.service.spec
        declared = None if spec.autoscaled else spec.replicas
        split = TrafficSplit(mode=SplitMode.NONE, primary=declared, canary=None, weight=0)
        return Facts(
            gateway=gateway,
            primary_replicas=observation,
            split=split,
            replicas_free=free,
            keda=observed.keda,
            prometheus=prometheus,
        )
    return Facts(
        gateway=gateway,
        primary_replicas=observation,
        split=move.split,
        canary_applied=move.apply,
        promoted=move.promoted,
        replicas_free=free,
        keda=observed.keda,
        prometheus=prometheus,
    )


def split_to_report(observed: ObservedChildren, move: CanaryDecision | None) -> TrafficSplit:
    """The division to report: the one decided now, or the last one where none could be."""
    old = observed.service.status
    if move is not None:
        return move.split
    if old is None or old.split_mode not in tuple(SplitMode) or not has_canary(observed):
        return TrafficSplit(mode=SplitMode.NONE, primary=None, canary=None, weight=0)
    mode = SplitMode(old.split_mode)
    return TrafficSplit(mode=mode, primary=None, canary=None, weight=old.canary_weight or 0)


async def _observe_canary(
    observed: ObservedChildren,
    gateway: Gateway | None,
    memory: CanaryState | None,
    *,
    resource_manager: ResourceManager,
) -> CanaryObservation:
    service = observed.service
    canary, primary = _own(observed, ChildRole.CANARY), _own(observed, ChildRole.PRIMARY)
    rollout, main = rollout_of(canary), rollout_of(primary)
    route, front = _own(observed, ChildRole.ROUTE), _own(observed, ChildRole.ENTRY_SERVICE)
    if gateway is not None:
        routed = route_weight(route, observed.refs[ChildRole.CANARY].name) if route else 0
        accepted = route is not None and route_accepted(route)
    else:
        routed = selector_weight(front, ROLE_LABEL, CANARY) if front else 0
        accepted = True
    stands_in = promoted(service.spec, memory)
    return CanaryObservation(
        gateway=gateway is not None,
        exists=canary is not None,
        current=rollout is not None
        and not rollout.rolling
        and await _carries(resource_manager, service, CANARY, canary),
        replicas=rollout.desired if rollout else 0,
        ready=rollout.ready if rollout else 0,
        routed=routed,
        accepted=accepted,
        primary_replicas=main.desired if main else None,
        primary_ready=main.ready if main else 0,
        primary_current=main is not None
        and main.complete
        and await _carries(resource_manager, service, PRIMARY, primary, promoted=stands_in),
    )


def _own(observed: ObservedChildren, role: ChildRole) -> Fields | None:
    """An object that is ours; one of another's is none, whatever its name."""
    return None if observed.relation(role) is ChildOwnership.FOREIGN else observed.live.get(role)


async def _carries(
    resource_manager: ResourceManager,
    service: InferenceService,
    role: str,
    live: Fields | None,
    *,
    promoted: bool = False,
) -> bool:
    """True when what is declared for the pods has been written.

    What others changed since is drift, and the policy's business, not this one's.
    """
    if live is None:
        return False
    number = replicas_of(live) if owns_replicas(live) else None
    split = TrafficSplit(mode=SplitMode.NONE, primary=number, canary=number, weight=0)
    facts = Facts(split=split, promoted=promoted)
    desired = f"{service.name}-{role}"
    for item in manifests(service, facts):
        if item["kind"] in _WORKLOAD_KINDS and ref_of(item).name == desired:
            diff = await resource_manager.diff(declare(item, resource_manager.manager), live)
            new = pending_fields(diff)
            return not any(found.change.path[:2] in _TEMPLATE_PATHS for found in new)
    return False
