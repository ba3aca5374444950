"""Reads everything that an InferenceService may ever have had: whose it is, how far it rolled out.

Names are fixed, so a cache that lags behind can never lead to a second copy. Only the cluster's
own word counts as absent: a request without an answer is kept apart. Called at the start of
every pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.managed_fields import is_ours, read_ownership
from holdfast.core.redact import redact
from holdfast.core.service.children import CANARY, PRIMARY, WORKLOAD_LABEL, selector
from holdfast.core.service.spec import InferenceService
from holdfast.core.text_style import escape_unprintable
from holdfast.core.tree import Fields, Path, Tree
from holdfast.reconcile.kube import KindNotServed, KubeClient, ObjectRef, Scope

OPERATOR_MANAGER = "holdfast-operator"
"""The field manager of children and of the status."""


class ChildRole(StrEnum):
    """What an object is to its service."""

    PRIMARY = "primary"
    CANARY = "canary"
    PRIMARY_SERVICE = "primary-service"
    CANARY_SERVICE = "canary-service"
    ENTRY_SERVICE = "front"
    AUTOSCALER = "autoscaler"
    BUDGET = "budget"
    ROUTE = "route"


class ChildOwnership(StrEnum):
    """Whose an object is."""

    OURS = "ours"
    ORPHAN = "orphan"
    """We applied it and nobody controls it: it lost its owner reference, and gets it back."""
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedChildren:
    """What was seen of one service's objects."""

    service: InferenceService
    refs: Mapping[ChildRole, ObjectRef]
    live: Mapping[ChildRole, Fields]
    """Without those that the cluster said are not there."""
    unread: Mapping[ChildRole, HoldfastError]
    """The questions that got no answer. Never to be taken as absent."""
    other_autoscaler: str | None = None
    """An autoscaler of the primary that is not ours."""

    def relation(self, role: ChildRole) -> ChildOwnership | None:
        """Whose the object is; None when there is none or it was not read."""
        live = self.live.get(role)
        return None if live is None else relation(self.service, live)


def child_refs(service: InferenceService) -> dict[ChildRole, ObjectRef]:
    """Every name that a service may ever have had an object under."""

    def ref(api_version: str, kind: str, name: str) -> ObjectRef:
        return ObjectRef(api_version=api_version, kind=kind, namespace=service.namespace, name=name)

    name = service.name
    return {
        ChildRole.PRIMARY: ref("apps/v1", "Deployment", f"{name}-{PRIMARY}"),
        ChildRole.CANARY: ref("apps/v1", "Deployment", f"{name}-{CANARY}"),
        ChildRole.PRIMARY_SERVICE: ref("v1", "Service", f"{name}-{PRIMARY}"),
        ChildRole.CANARY_SERVICE: ref("v1", "Service", f"{name}-{CANARY}"),
        ChildRole.ENTRY_SERVICE: ref("v1", "Service", f"{name}-svc"),
        ChildRole.AUTOSCALER: ref("autoscaling/v2", "HorizontalPodAutoscaler", f"{name}-hpa"),
        ChildRole.BUDGET: ref("policy/v1", "PodDisruptionBudget", f"{name}-pdb"),
        ChildRole.ROUTE: ref("gateway.networking.k8s.io/v1", "HTTPRoute", name),
    }


FindAutoscalers: TypeAlias = Callable[[ObjectRef], Awaitable[Sequence[Fields]]]
"""Gives the HorizontalPodAutoscalers that target an object, for who can tell without a list."""


async def observe(
    client: KubeClient,
    service: InferenceService,
    *,
    routed: bool,
    autoscalers: FindAutoscalers | None = None,
) -> ObservedChildren:
    """Read all of them. `routed` says that routes are in use, so their kind must be served."""
    refs = child_refs(service)
    live: dict[ChildRole, Fields] = {}
    unread: dict[ChildRole, HoldfastError] = {}
    for role, ref in refs.items():
        try:
            found = await client.get(ref)
        except KindNotServed as error:
            if role is ChildRole.ROUTE and not routed:
                continue  # without the Gateway API there can be no route
            unread[role] = error
        except HoldfastError as error:
            unread[role] = error
        else:
            if found is not None:
                live[role] = found
    other_autoscaler = None
    try:
        other_autoscaler = await _find_other_autoscaler(
            refs, autoscalers or partial(_list_autoscalers, client)
        )
    except HoldfastError as error:
        # Who sets the number of replicas is unknown, so the primary must be left alone.
        unread.setdefault(ChildRole.PRIMARY, error)
        unread.setdefault(ChildRole.AUTOSCALER, error)
    return ObservedChildren(
        service=service, refs=refs, live=live, unread=unread, other_autoscaler=other_autoscaler
    )


async def _find_other_autoscaler(
    refs: Mapping[ChildRole, ObjectRef], autoscalers: FindAutoscalers
) -> str | None:
    """Name another autoscaler of the primary. KEDA's too: it works through one of these."""
    ours = refs[ChildRole.AUTOSCALER]
    for item in await autoscalers(refs[ChildRole.PRIMARY]):
        name = value_at(item, ("metadata", "name"))
        if name != ours.name:
            return f"{ours.kind}/{name}"
    return None


async def _list_autoscalers(client: KubeClient, target: ObjectRef) -> Sequence[Fields]:
    kind, version = "HorizontalPodAutoscaler", "autoscaling/v2"
    scope = Scope(api_version=version, kind=kind, namespace=target.namespace)
    desired = (target.kind, target.name)
    return [
        item
        for item in (await client.list(scope)).items
        if (
            value_at(item, ("spec", "scaleTargetRef", "kind")),
            value_at(item, ("spec", "scaleTargetRef", "name")),
        )
        == desired
    ]


def relation(service: InferenceService, live: Fields) -> ChildOwnership:
    """Say whose a live object is: by the uid of its controller, never by its name.

    A service that is not stored has no uid to be referred to by. What it applied and nobody
    controls is its own.
    """
    controllers = [each.get("uid") for each in _controllers(live)]
    if service.uid and service.uid in controllers:
        return ChildOwnership.OURS
    if controllers or not _applied_by_us(service, live):
        return ChildOwnership.FOREIGN
    return ChildOwnership.ORPHAN if service.uid else ChildOwnership.OURS


def controller_of(live: Fields) -> str | None:
    """Name the object that controls another one, such as `InferenceService bot`."""
    found = next(iter(_controllers(live)), None)
    return f"{found.get('kind')} {found.get('name')}" if found else None


def _controllers(live: Fields) -> list[Fields]:
    references = value_at(live, ("metadata", "ownerReferences"))
    held = references if isinstance(references, list) else []
    return [each for each in held if isinstance(each, dict) and each.get("controller") is True]


def is_terminating(live: Fields) -> bool:
    """True for an object that is being deleted."""
    return value_at(live, ("metadata", "deletionTimestamp")) is not None


def uid_of(live: Fields) -> str:
    return str(value_at(live, ("metadata", "uid")) or "")


def version_of(live: Fields) -> str:
    return str(value_at(live, ("metadata", "resourceVersion")) or "")


def _applied_by_us(service: InferenceService, live: Fields) -> bool:
    entries = read_ownership(value_at(live, ("metadata", "managedFields"))).entries
    return value_at(live, ("metadata", "labels", WORKLOAD_LABEL)) == service.name and any(
        is_ours(entry, frozenset({OPERATOR_MANAGER})) for entry in entries
    )


UNREADY_GRACE = 5.0
"""Seconds that pods may take before they are asked what ails them."""
_HARMLESS_REASONS = ("", "ContainerCreating", "PodInitializing", "Completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStatus:
    """Counts of one Deployment. `seen` is False while its controller has not read the last spec."""

    desired: int
    total: int
    updated: int
    ready: int
    available: int
    observed: bool
    stuck: str | None
    """Why the Deployment's own controller gave up, in its words."""

    @property
    def rolling(self) -> bool:
        """Pods of an older template are still there, or the newest are not all there yet."""
        return not self.observed or self.updated < self.desired or self.total > self.updated

    @property
    def complete(self) -> bool:
        """Every pod is of the newest template, and ready."""
        return not self.rolling and self.ready >= self.desired and self.available >= self.desired


def rollout_of(live: Fields | None) -> RolloutStatus | None:
    """Read a Deployment; None when there is none."""
    if live is None:
        return None
    return RolloutStatus(
        desired=_count(live, ("spec", "replicas"), 1),
        total=_count(live, ("status", "replicas")),
        updated=_count(live, ("status", "updatedReplicas")),
        ready=_count(live, ("status", "readyReplicas")),
        available=_count(live, ("status", "availableReplicas")),
        observed=_count(live, ("status", "observedGeneration"))
        >= _count(live, ("metadata", "generation")),
        stuck=_stuck(live),
    )


def conditions_of(live: Fields, path: Path = ("status", "conditions")) -> dict[str, Fields]:
    """The conditions of any object, by type."""
    found = value_at(live, path)
    held = found if isinstance(found, list) else []
    return {str(each.get("type")): each for each in held if isinstance(each, dict)}


def unready_for(
    service: InferenceService, live: Mapping[ChildRole, Fields], now: datetime
) -> float | None:
    """For how many seconds replicas have been missing, by the status; None when none is."""
    rollouts = (rollout_of(live.get(role)) for role in (ChildRole.PRIMARY, ChildRole.CANARY))
    if not any(each is not None and each.ready < each.desired for each in rollouts):
        return None
    held = service.status.conditions if service.status else ()
    ready = next((each for each in held if each.type == "Ready"), None)
    if ready is None or ready.status == "True" or ready.last_transition_time is None:
        return 0.0
    since = datetime.fromisoformat(ready.last_transition_time.replace("Z", "+00:00"))
    return max((now - since).total_seconds(), 0.0)


async def pod_problems(client: KubeClient, service: InferenceService) -> str:
    """Say why pods are not ready: what their containers or the scheduler report.

    Only words for a person, so a list that fails costs them and nothing else.
    """
    labels = ",".join(f"{name}={value}" for name, value in selector(service.name).items())
    scope = Scope(api_version="v1", kind="Pod", namespace=service.namespace, labels=labels)
    try:
        pods = (await client.list(scope)).items
    except HoldfastError:
        return ""
    found = dict.fromkeys(text for pod in pods if (text := _ailment(pod)))
    shown = list(found)[:3]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return escape_unprintable(redact("; ".join(shown)), ascii_only=False) + more


def _ailment(pod: Fields) -> str:
    for group in ("initContainerStatuses", "containerStatuses"):
        states = value_at(pod, ("status", group))
        for each in states if isinstance(states, list) else ():
            if not isinstance(each, dict):
                continue
            waiting = str(value_at(each, ("state", "waiting", "reason")) or "")
            if waiting in _HARMLESS_REASONS:
                waiting = str(value_at(each, ("state", "terminated", "reason")) or "")
            if waiting not in _HARMLESS_REASONS:
                why = _ended(value_at(each, ("lastState", "terminated")))
                return f"{_name(pod)}: {waiting}{why}"
    scheduled = conditions_of(pod).get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{_name(pod)}: {scheduled.get('reason')}: {scheduled.get('message') or ''}"[:300]
    return ""


def _ended(last: Tree) -> str:
    if not isinstance(last, dict):
        return ""
    return f" (ended with {last.get('reason')}, exit code {last.get('exitCode')})"


def _name(pod: Fields) -> str:
    return str(value_at(pod, ("metadata", "name")))


def _stuck(live: Fields) -> str | None:
    found = conditions_of(live)
    failing = found.get("ReplicaFailure", {})
    if failing.get("status") == "True":
        return str(failing.get("message") or failing.get("reason"))
    progress = found.get("Progressing", {})
    if progress.get("status") == "False":
        return str(progress.get("message") or progress.get("reason"))
    return None


def _count(live: Fields, path: Path, default: int = 0) -> int:
    found = value_at(live, path)
    return found if isinstance(found, int) and not isinstance(found, bool) else default
