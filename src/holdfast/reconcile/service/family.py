"""Reads everything that an InferenceService may ever have had, and tells whose each object is.

Names are fixed, so a cache that lags behind can never lead to a second copy. Only the cluster's
own word counts as absent: a question without an answer is kept apart. Called at the start of
every pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.core.ownership.objects import at
from holdfast.core.ownership.owned import is_ours, read_ownership
from holdfast.core.service.children import CANARY, PRIMARY, WORKLOAD
from holdfast.core.service.spec import InferenceService
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import KindNotServed, KubeClient, ObjectRef, Scope

OPERATOR = "holdfast-operator"
"""The field manager of children and of the status."""


class Part(StrEnum):
    """What an object is to its service."""

    PRIMARY = "primary"
    CANARY = "canary"
    PRIMARY_SERVICE = "primary-service"
    CANARY_SERVICE = "canary-service"
    FRONT = "front"
    AUTOSCALER = "autoscaler"
    BUDGET = "budget"
    ROUTE = "route"


class Relation(StrEnum):
    """Whose an object is."""

    OURS = "ours"
    ORPHAN = "orphan"
    """We applied it and nobody controls it: it lost its owner reference, and gets it back."""
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What was seen of one service's objects."""

    service: InferenceService
    refs: Mapping[Part, ObjectRef]
    live: Mapping[Part, Fields]
    """Without those that the cluster said are not there."""
    unread: Mapping[Part, HoldfastError]
    """The questions that got no answer. Never to be taken as absent."""
    rival: str | None = None
    """An autoscaler of the primary that is not ours."""

    def relation(self, part: Part) -> Relation | None:
        """Whose the object is; None when there is none or it was not read."""
        live = self.live.get(part)
        return None if live is None else relation(self.service, live)


def refs_of(service: InferenceService) -> dict[Part, ObjectRef]:
    """Every name that a service may ever have had an object under."""

    def ref(api_version: str, kind: str, name: str) -> ObjectRef:
        return ObjectRef(api_version=api_version, kind=kind, namespace=service.namespace, name=name)

    name = service.name
    return {
        Part.PRIMARY: ref("apps/v1", "Deployment", f"{name}-{PRIMARY}"),
        Part.CANARY: ref("apps/v1", "Deployment", f"{name}-{CANARY}"),
        Part.PRIMARY_SERVICE: ref("v1", "Service", f"{name}-{PRIMARY}"),
        Part.CANARY_SERVICE: ref("v1", "Service", f"{name}-{CANARY}"),
        Part.FRONT: ref("v1", "Service", f"{name}-svc"),
        Part.AUTOSCALER: ref("autoscaling/v2", "HorizontalPodAutoscaler", f"{name}-hpa"),
        Part.BUDGET: ref("policy/v1", "PodDisruptionBudget", f"{name}-pdb"),
        Part.ROUTE: ref("gateway.networking.k8s.io/v1", "HTTPRoute", name),
    }


Autoscalers: TypeAlias = Callable[[ObjectRef], Awaitable[Sequence[Fields]]]
"""Gives the HorizontalPodAutoscalers that target an object, for who can tell without a list."""


async def observe(
    client: KubeClient,
    service: InferenceService,
    *,
    routed: bool,
    autoscalers: Autoscalers | None = None,
) -> Family:
    """Read all of them. `routed` says that routes are in use, so their kind must be served."""
    refs = refs_of(service)
    live: dict[Part, Fields] = {}
    unread: dict[Part, HoldfastError] = {}
    for part, ref in refs.items():
        try:
            found = await client.get(ref)
        except KindNotServed as error:
            if part is Part.ROUTE and not routed:
                continue  # without the Gateway API there can be no route
            unread[part] = error
        except HoldfastError as error:
            unread[part] = error
        else:
            if found is not None:
                live[part] = found
    rival = None
    try:
        rival = await _rival(refs, autoscalers or partial(_listed, client))
    except HoldfastError as error:
        # Who sets the number of replicas is unknown, so the primary must be left alone.
        unread.setdefault(Part.PRIMARY, error)
        unread.setdefault(Part.AUTOSCALER, error)
    return Family(service=service, refs=refs, live=live, unread=unread, rival=rival)


async def _rival(refs: Mapping[Part, ObjectRef], autoscalers: Autoscalers) -> str | None:
    """Name another autoscaler of the primary. KEDA's too: it works through one of these."""
    ours = refs[Part.AUTOSCALER]
    for item in await autoscalers(refs[Part.PRIMARY]):
        name = at(item, ("metadata", "name"))
        if name != ours.name:
            return f"{ours.kind}/{name}"
    return None


async def _listed(client: KubeClient, target: ObjectRef) -> Sequence[Fields]:
    kind, version = "HorizontalPodAutoscaler", "autoscaling/v2"
    scope = Scope(api_version=version, kind=kind, namespace=target.namespace)
    wanted = (target.kind, target.name)
    return [
        item
        for item in (await client.list(scope)).items
        if (
            at(item, ("spec", "scaleTargetRef", "kind")),
            at(item, ("spec", "scaleTargetRef", "name")),
        )
        == wanted
    ]


def relation(service: InferenceService, live: Fields) -> Relation:
    """Say whose a live object is: by the uid of its controller, never by its name.

    A service that is not stored has no uid to be referred to by. What it applied and nobody
    controls is its own.
    """
    controllers = [each.get("uid") for each in _controllers(live)]
    if service.uid and service.uid in controllers:
        return Relation.OURS
    if controllers or not _applied_by_us(service, live):
        return Relation.FOREIGN
    return Relation.ORPHAN if service.uid else Relation.OURS


def controller_of(live: Fields) -> str | None:
    """Name the object that controls another one, such as `InferenceService bot`."""
    found = next(iter(_controllers(live)), None)
    return f"{found.get('kind')} {found.get('name')}" if found else None


def _controllers(live: Fields) -> list[Fields]:
    references = at(live, ("metadata", "ownerReferences"))
    held = references if isinstance(references, list) else []
    return [each for each in held if isinstance(each, dict) and each.get("controller") is True]


def terminating(live: Fields) -> bool:
    """True for an object that is being deleted."""
    return at(live, ("metadata", "deletionTimestamp")) is not None


def uid_of(live: Fields) -> str:
    return str(at(live, ("metadata", "uid")) or "")


def version_of(live: Fields) -> str:
    return str(at(live, ("metadata", "resourceVersion")) or "")


def _applied_by_us(service: InferenceService, live: Fields) -> bool:
    entries = read_ownership(at(live, ("metadata", "managedFields"))).entries
    return at(live, ("metadata", "labels", WORKLOAD)) == service.name and any(
        is_ours(entry, frozenset({OPERATOR})) for entry in entries
    )
