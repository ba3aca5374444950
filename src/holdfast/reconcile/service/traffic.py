"""Decides how requests are shared in this pass: what was seen, put to the canary's state machine.

Called after everything was read and before anything is rendered.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from holdfast.core.ownership.objects import at
from holdfast.core.ownership.signals import declare
from holdfast.core.service import analysis
from holdfast.core.service.canary import CanarySeen, CanaryState, Move, advance
from holdfast.core.service.children import CANARY, PRIMARY, ROLE, Facts, Gateway
from holdfast.core.service.manifests import manifests
from holdfast.core.service.spec import InferenceService
from holdfast.core.service.split import Split, SplitMode, front_weight, route_accepted, route_weight
from holdfast.core.service.variant import promoted
from holdfast.core.tree import Fields
from holdfast.reconcile.keeper import Keeper
from holdfast.reconcile.kube import ref_of
from holdfast.reconcile.ports import MetricSource
from holdfast.reconcile.service.family import Family, Part, Relation, terminating
from holdfast.reconcile.service.intent import landing
from holdfast.reconcile.service.replicas import is_held, number_of
from holdfast.reconcile.service.rollout import rollout_of

DECIDES = (Part.PRIMARY, Part.CANARY, Part.FRONT, Part.ROUTE)
"""What has to have been read before requests are shared out anew."""


def concerned(family: Family) -> bool:
    """True when there is, was or is to be a canary."""
    service = family.service
    remembered = service.status is not None and service.status.canary is not None
    return service.spec.canary is not None or remembered or Part.CANARY in family.live


def gateway_in_use(family: Family) -> Gateway | None:
    """The gateway that the service's own route is attached to, for who was told of none.

    A flag that was left out takes nothing away: the route is kept as it stands, for whoever sends
    requests by it. Deleting it is the user's to do, and it does not come back then.
    """
    route = family.live.get(Part.ROUTE)
    if route is None or family.relation(Part.ROUTE) is not Relation.OURS or terminating(route):
        return None
    parents, hosts = at(route, ("spec", "parentRefs")), at(route, ("spec", "hostnames"))
    parent = parents[0] if isinstance(parents, list) and parents else None
    host = hosts[0] if isinstance(hosts, list) and hosts else None
    prefix = f"{family.service.name}.{family.service.namespace}."
    if not isinstance(parent, dict) or not isinstance(host, str) or not host.startswith(prefix):
        return None
    section = parent.get("sectionName")
    return Gateway(
        name=str(parent.get("name") or ""),
        namespace=str(parent.get("namespace") or family.service.namespace),
        domain=host.removeprefix(prefix),
        section=section if isinstance(section, str) else None,
    )


async def next_move(
    family: Family,
    gateway: Gateway | None,
    *,
    keeper: Keeper,
    metrics: MetricSource | None,
    now: datetime,
) -> Move:
    """Look at the canary and its router, ask the metric when it is time, and move on."""
    service = family.service
    state = service.status.canary if service.status else None
    seen = await _seen(family, gateway, state, keeper=keeper)
    if analysis.due(service.spec, state, now):
        question = analysis.expression(service)
        value = await metrics.query(question) if metrics and question else None
        seen = replace(seen, asked=True, metric=value)
    return advance(service.spec, state, seen, now)


def facts_of(family: Family, gateway: Gateway | None, move: Move | None) -> Facts:
    """What the rendering depends on. Without a canary there is nothing to decide."""
    seen = number_of(_own(family, Part.PRIMARY))
    free = family.rival is not None
    if move is None:
        spec = family.service.spec
        declared = None if spec.autoscaled else spec.replicas
        split = Split(mode=SplitMode.NONE, primary=declared, canary=None, weight=0)
        return Facts(gateway=gateway, primary_replicas=seen, split=split, replicas_free=free)
    return Facts(
        gateway=gateway,
        primary_replicas=seen,
        split=move.split,
        canary_applied=move.apply,
        promoted=move.promoted,
        replicas_free=free,
    )


def split_now(family: Family, move: Move | None) -> Split:
    """The division to report: the one decided now, or the last one where none could be."""
    old = family.service.status
    if move is not None:
        return move.split
    if old is None or old.split_mode not in tuple(SplitMode) or not concerned(family):
        return Split(mode=SplitMode.NONE, primary=None, canary=None, weight=0)
    mode = SplitMode(old.split_mode)
    return Split(mode=mode, primary=None, canary=None, weight=old.canary_weight or 0)


async def _seen(
    family: Family, gateway: Gateway | None, state: CanaryState | None, *, keeper: Keeper
) -> CanarySeen:
    service = family.service
    canary, primary = _own(family, Part.CANARY), _own(family, Part.PRIMARY)
    rollout, main = rollout_of(canary), rollout_of(primary)
    route, front = _own(family, Part.ROUTE), _own(family, Part.FRONT)
    if gateway is not None:
        routed = route_weight(route, family.refs[Part.CANARY].name) if route else 0
        accepted = route is not None and route_accepted(route)
    else:
        routed = front_weight(front, ROLE, CANARY) if front else 0
        accepted = True
    stands_in = promoted(service.spec, state)
    return CanarySeen(
        gateway=gateway is not None,
        exists=canary is not None,
        current=rollout is not None
        and not rollout.rolling
        and await _carries(keeper, service, CANARY, canary),
        replicas=rollout.wanted if rollout else 0,
        ready=rollout.ready if rollout else 0,
        routed=routed,
        accepted=accepted,
        primary_replicas=main.wanted if main else None,
        primary_ready=main.ready if main else 0,
        primary_current=main is not None
        and main.complete
        and await _carries(keeper, service, PRIMARY, primary, promoted=stands_in),
    )


def _own(family: Family, part: Part) -> Fields | None:
    """An object that is ours; one of another's is none, whatever its name."""
    return None if family.relation(part) is Relation.FOREIGN else family.live.get(part)


async def _carries(
    keeper: Keeper,
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
    number = number_of(live) if is_held(live) else None
    split = Split(mode=SplitMode.NONE, primary=number, canary=number, weight=0)
    facts = Facts(split=split, promoted=promoted)
    wanted = f"{service.name}-{role}"
    for item in manifests(service, facts):
        if (item["kind"], ref_of(item).name) == ("Deployment", wanted):
            verdict = await keeper.look(declare(item, keeper.manager), live)
            new = landing(verdict)
            return not any(found.change.path[:2] == ("spec", "template") for found in new)
    return False
