"""Reads everything that an InferenceService may ever have had: whose it is, how far it rolled out.

Names are fixed, so a cache that lags behind can never lead to a second copy. Only the cluster's
own word counts as absent: a request without an answer is kept apart. Called at the start of
every pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TypeAlias

from holdfast.core.errors import HoldfastError, PermissionDenied
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.managed_fields import is_ours, ownership_of
from holdfast.core.service.autoscaling import uses_keda
from holdfast.core.service.children import (
    CANARY,
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    LEADER_WORKER_SET,
    PRIMARY,
    SCALED_OBJECT,
    WORKLOAD_LABEL,
    selector,
)
from holdfast.core.service.facts import ConditionReason
from holdfast.core.service.model_cache import claim_name
from holdfast.core.service.pod_health import (
    PodFlaps,
    PodProblem,
    asks_all_nodes,
    explain_flaps,
    find_pod_problems,
    nodes_to_ask,
    nodes_with_events,
    pods_to_ask_about,
)
from holdfast.core.service.spec import InferenceService, ModelStatus
from holdfast.core.tree import Fields, Path
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
    MODEL_CLAIM = "model-claim"
    FORMER_PRIMARY = "former-primary"
    """What ran the primary's pods while a replica had one node instead of several, or several
    instead of one."""
    FORMER_AUTOSCALER = "former-autoscaler"
    """What scaled it before another scaler was chosen."""


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
    keda: bool = True
    """False when KEDA is to scale the service and the cluster does not have it."""

    def relation(self, role: ChildRole) -> ChildOwnership | None:
        """Whose the object is; None when there is none or it was not read."""
        live = self.live.get(role)
        return None if live is None else relation(self.service, live)


def child_refs(service: InferenceService) -> dict[ChildRole, ObjectRef]:
    """Every name that a service may ever have had an object under."""

    def ref(api_version: str, kind: str, name: str) -> ObjectRef:
        return ObjectRef(api_version=api_version, kind=kind, namespace=service.namespace, name=name)

    name = service.name
    claim = ref("v1", "PersistentVolumeClaim", claim_name(service))
    # Read only where there may be one: no informer has them, and most services have none.
    applied = service.status.applied if service.status else None
    had = any(each.child == f"{claim.kind}/{claim.name}" for each in applied or ())
    cached = {ChildRole.MODEL_CLAIM: claim} if service.spec.cache is not None or had else {}
    now, former = DEPLOYMENT, LEADER_WORKER_SET
    if service.spec.multi_node:
        now, former = former, now
    scaler = ref(*HORIZONTAL_POD_AUTOSCALER, f"{name}-hpa")
    former_scaler = ref(*SCALED_OBJECT, f"{name}-scaler")
    if uses_keda(service.spec):
        scaler, former_scaler = former_scaler, scaler
    return {
        **cached,
        ChildRole.PRIMARY: ref(*now, f"{name}-{PRIMARY}"),
        ChildRole.CANARY: ref(*DEPLOYMENT, f"{name}-{CANARY}"),
        ChildRole.PRIMARY_SERVICE: ref("v1", "Service", f"{name}-{PRIMARY}"),
        ChildRole.CANARY_SERVICE: ref("v1", "Service", f"{name}-{CANARY}"),
        ChildRole.ENTRY_SERVICE: ref("v1", "Service", f"{name}-svc"),
        ChildRole.AUTOSCALER: scaler,
        ChildRole.BUDGET: ref("policy/v1", "PodDisruptionBudget", f"{name}-pdb"),
        ChildRole.ROUTE: ref("gateway.networking.k8s.io/v1", "HTTPRoute", name),
        ChildRole.FORMER_PRIMARY: ref(*former, f"{name}-{PRIMARY}"),
        ChildRole.FORMER_AUTOSCALER: former_scaler,
    }


_FORMER_ROLES = frozenset({ChildRole.FORMER_PRIMARY, ChildRole.FORMER_AUTOSCALER})
"""Objects that are only looked for to be removed. Where their kind is not served, or not ours to
read, there is none that we made."""
_OPTIONAL_KINDS = (LEADER_WORKER_SET[1], SCALED_OBJECT[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheProgress:
    """How far the downloads of a service are."""

    reason: ConditionReason
    message: str
    waiting: frozenset[ChildRole] = frozenset()
    """Deployments that must not be written yet."""
    model: ModelStatus | None = None
    poll: float | None = None

    @property
    def complete(self) -> bool:
        return self.reason is ConditionReason.MODEL_COMPLETE


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
    keda = True
    for role, ref in refs.items():
        try:
            found = await client.get(ref)
        except KindNotServed as error:
            if role is ChildRole.ROUTE and not routed:
                continue  # without the Gateway API there can be no route
            if role in _FORMER_ROLES:
                continue
            if ref.kind == SCALED_OBJECT[1]:
                keda = False
                continue
            unread[role] = error
        except PermissionDenied as error:
            if role in _FORMER_ROLES and ref.kind in _OPTIONAL_KINDS:
                continue
            unread[role] = error
        except HoldfastError as error:
            unread[role] = error
        else:
            if found is not None:
                live[role] = found
    other_autoscaler = None
    try:
        other_autoscaler = await _find_other_autoscaler(
            service, refs, live, autoscalers or partial(_list_autoscalers, client)
        )
    except HoldfastError as error:
        # Who sets the number of replicas is unknown, so the primary must be left alone.
        unread.setdefault(ChildRole.PRIMARY, error)
        unread.setdefault(ChildRole.AUTOSCALER, error)
    return ObservedChildren(
        service=service,
        refs=refs,
        live=live,
        unread=unread,
        other_autoscaler=other_autoscaler,
        keda=keda,
    )


async def _find_other_autoscaler(
    service: InferenceService,
    refs: Mapping[ChildRole, ObjectRef],
    live: Mapping[ChildRole, Fields],
    autoscalers: FindAutoscalers,
) -> str | None:
    """Name another autoscaler of the primary. KEDA's too: it works through one of these.

    The one that KEDA makes of our own ScaledObject is ours, by the uid of its controller; what a
    ScaledObject that is to go has left behind is not.
    """
    scaler = refs[ChildRole.AUTOSCALER]
    kind = HORIZONTAL_POD_AUTOSCALER[1]
    scaled = live.get(ChildRole.AUTOSCALER) if scaler.kind == SCALED_OBJECT[1] else None
    for item in await autoscalers(refs[ChildRole.PRIMARY]):
        name = value_at(item, ("metadata", "name"))
        if scaler.kind == kind and name == scaler.name:
            continue
        former = scaler.kind != kind and name == refs[ChildRole.FORMER_AUTOSCALER].name
        if former and relation(service, item) is not ChildOwnership.FOREIGN:
            continue  # it is deleted before the other one is made
        if scaled is not None and uid_of(scaled) in (
            each.get("uid") for each in _controllers(item)
        ):
            continue
        return f"{kind}/{name}"
    return None


async def _list_autoscalers(client: KubeClient, target: ObjectRef) -> Sequence[Fields]:
    version, kind = HORIZONTAL_POD_AUTOSCALER
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
    entries = ownership_of(live).entries
    return value_at(live, ("metadata", "labels", WORKLOAD_LABEL)) == service.name and any(
        is_ours(entry, frozenset({OPERATOR_MANAGER})) for entry in entries
    )


UNREADY_GRACE = 5.0
"""Seconds that pods may take before they are asked what ails them."""
_MAX_NODES = 20
"""Nodes that are read for one service at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStatus:
    """Counts of a Deployment, or of the groups of a LeaderWorkerSet.

    `observed` is False while its controller has not read the last spec.
    """

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
    """Read a Deployment or a LeaderWorkerSet; None when there is none."""
    if live is None:
        return None
    ready = _count(live, ("status", "readyReplicas"))
    groups = live.get("kind") == LEADER_WORKER_SET[1]
    return RolloutStatus(
        desired=_count(live, ("spec", "replicas"), 1),
        total=_count(live, ("status", "replicas")),
        updated=_count(live, ("status", "updatedReplicas")),
        ready=ready,
        # A group is available as soon as it is ready: there is no second count.
        available=ready if groups else _count(live, ("status", "availableReplicas")),
        observed=_count(live, ("status", "observedGeneration"))
        >= _count(live, ("metadata", "generation")),
        stuck=_stuck(live),
    )


def answering_template(item: Fields) -> Fields | None:
    """Return the template of the pods that answer requests: of several nodes, those that lead."""
    groups = item.get("kind") == LEADER_WORKER_SET[1]
    parts = ("leaderWorkerTemplate", "leaderTemplate") if groups else ("template",)
    found = value_at(item, ("spec", *parts))
    return found if isinstance(found, dict) else None


def pod_security_refusal(rollouts: Iterable[RolloutStatus | None]) -> str | None:
    """Say why the namespace takes no pods of a Deployment, and what to set; None when it does."""
    for each in rollouts:
        # The Deployment's reason is FailedCreate, whatever the cause: only the server's words tell.
        if each is None or not each.stuck or "violates PodSecurity" not in each.stuck:
            continue
        hint = "Change what it names in podTemplate, or the label of the namespace."
        if "runAsNonRoot" in each.stuck or "runAsUser" in each.stuck:
            hint = (
                "Set podTemplate.spec.securityContext.runAsNonRoot: true, and runAsUser beside it"
                " where the image does not name a user by number."
            )
        return f"{each.stuck.rstrip('.')}. {hint}"
    return None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReport:
    """What ails the pods of a service, and whether their nodes could be asked about it."""

    problems: tuple[PodProblem, ...] = ()
    flapping: tuple[PodProblem, ...] = ()
    """What is known of pods that do not stay ready; they may be ready now."""
    nodes_unread: bool = False
    """A node might explain it, and could not be read: whether it is hardware is unknown."""
    events_unread: bool = False
    """An Event about a node might explain it, and they could not be read."""
    starting: bool = False
    """Pods are missing for so short a time that they were not asked about."""
    unread: bool = False
    """The pods could not be listed: whether one fails is unknown."""


NO_POD_PROBLEMS = PodReport()


async def read_pod_problems(
    client: KubeClient,
    service: InferenceService,
    flaps: Sequence[PodFlaps] = (),
    *,
    now: datetime,
) -> PodReport:
    """Ask why pods are not ready, or do not stay so.

    Nodes and Events are read only now, when a pod is not ready, and not followed: heartbeats would
    wake the operator all the time.
    """
    labels = ",".join(f"{name}={value}" for name, value in selector(service.name).items())
    scope = Scope(api_version="v1", kind="Pod", namespace=service.namespace, labels=labels)
    try:
        pods = (await client.list(scope)).items
    except HoldfastError:
        return PodReport(unread=True)
    nodes: dict[str, Fields | None] = {}
    unread = False
    try:
        for name in nodes_to_ask(pods)[:_MAX_NODES]:
            nodes[name] = await client.get(
                ObjectRef(api_version="v1", kind="Node", namespace="", name=name)
            )
        if asks_all_nodes(find_pod_problems(pods, nodes, now=now)):
            listed = (await client.list(Scope(api_version="v1", kind="Node"))).items
            nodes |= {str(value_at(node, ("metadata", "name"))): node for node in listed}
    except HoldfastError:
        unread = True
    pod_events = await _read_pod_events(client, service, pods_to_ask_about(pods, flaps))
    problems = tuple(find_pod_problems(pods, nodes, now=now, pod_events=pod_events))
    names = nodes_with_events(pods)[:_MAX_NODES] if problems and not unread else []
    node_events, events_unread = await _read_node_events(client, names)
    if node_events:
        problems = tuple(
            find_pod_problems(pods, nodes, now=now, pod_events=pod_events, node_events=node_events)
        )
    explained = any(each.hardware for each in problems)
    return PodReport(
        problems=problems,
        flapping=tuple(explain_flaps(pods, flaps, pod_events)),
        nodes_unread=unread and bool(problems),
        events_unread=events_unread and not explained,
    )


async def _read_pod_events(
    client: KubeClient, service: InferenceService, uids: Iterable[str]
) -> dict[str, Sequence[Fields]]:
    """Read the Events about some pods. Without them a problem is told by its restarts alone."""
    events: dict[str, Sequence[Fields]] = {}
    try:
        for uid in uids:
            scope = Scope(
                api_version="v1",
                kind="Event",
                namespace=service.namespace,
                fields=f"involvedObject.uid={uid}",
            )
            events[uid] = [
                each
                for each in (await client.list(scope)).items
                # A client of somebody's own may not know the selector.
                if value_at(each, ("involvedObject", "uid")) == uid
            ]
    except HoldfastError:
        pass
    return events


async def _read_node_events(
    client: KubeClient, names: Iterable[str]
) -> tuple[dict[str, Sequence[Fields]], bool]:
    """Read the warnings about some nodes; True beside them where that was not possible.

    What has no namespace has its Events in `default`.
    """
    events: dict[str, Sequence[Fields]] = {}
    for name in names:
        chosen = f"involvedObject.kind=Node,involvedObject.name={name},type=Warning"
        scope = Scope(api_version="v1", kind="Event", namespace="default", fields=chosen)
        try:
            events[name] = (await client.list(scope)).items
        except HoldfastError:
            return events, True
    return events, False


_UNREPORTED = (
    "The LeaderWorkerSet does not say which version of its spec its status is about, so nobody can "
    "tell whether it is rolled out. LeaderWorkerSet 0.9 and later say so: upgrade it."
)


def _stuck(live: Fields) -> str | None:
    found = conditions_of(live)
    if live.get("kind") == LEADER_WORKER_SET[1]:
        reported = value_at(live, ("status", "observedGeneration")) is not None
        return _UNREPORTED if found and not reported else None
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
