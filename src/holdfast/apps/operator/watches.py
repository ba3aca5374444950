"""What the operator watches, and which service an event concerns.

The handlers of informers ask for every event, so that part stays cheap and never fails on odd
objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.objects import Object, ObjectKey, Resource, compact_managed_fields
from holdfast.adapters.kubernetes.watch import ResourceScope
from holdfast.apps.operator.settings import OperatorSettings
from holdfast.core.errors import TargetUnavailable
from holdfast.core.service.children import (
    CANARY,
    DEPLOYMENT,
    LEADER_WORKER_SET,
    PRIMARY,
    WORKLOAD_LABEL,
)
from holdfast.core.service.idle import DATA_PLANE_ANNOTATION, LAST_REQUEST_ANNOTATION
from holdfast.core.service.spec import API_VERSION, KIND, InferenceService
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ObjectRef
from holdfast.reconcile.service.observe import FindAutoscalers
from holdfast.reconcile.service.runtime import ListPods

_GROUP, _, _VERSION = API_VERSION.partition("/")


def _resource(group: str, version: str, kind: str, plural: str) -> Resource:
    return Resource(group=group, version=version, kind=kind, plural=plural, namespaced=True)


INFERENCE_SERVICES = _resource(_GROUP, _VERSION, KIND, "inferenceservices")
AUTOSCALERS = _resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
LEADER_WORKER_SETS = _resource(
    "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"
)
SCALED_OBJECTS = _resource("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
ROUTES = _resource("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
CHILD_KINDS = (
    _resource("apps", "v1", "Deployment", "deployments"),
    _resource("", "v1", "Service", "services"),
    _resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    AUTOSCALERS,
    ROUTES,
    LEADER_WORKER_SETS,
    SCALED_OBJECTS,
)
PODS = _resource("", "v1", "Pod", "pods")
OPTIONAL_KINDS = (LEADER_WORKER_SETS, SCALED_OBJECTS)
"""Kinds that most services do without: they may be missing, or not be ours to read."""
BY_TARGET = "target"
BY_SERVICE = "service"
OWN_LABEL_SELECTOR = "app.kubernetes.io/managed-by=holdfast"
_UNUSED_ROUTES_RETRY = 600.0
"""Without a gateway nothing depends on routes, so their kind is looked for rarely."""


_OPTIONAL_RETRY = 60.0


def _target(autoscaler: Object) -> tuple[str, ...]:
    scaled = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    namespace = autoscaler["metadata"].get("namespace", "")
    return (f"{scaled.get('kind')} {namespace}/{scaled.get('name')}",)


def autoscalers_in(informers: Sequence[Informer]) -> FindAutoscalers:
    """Give the autoscalers of an object from informers, without looking through all of them."""

    async def find_autoscalers(target: ObjectRef) -> Sequence[Fields]:
        late = [each for each in informers if not each.has_synced]
        if late:
            raise late[0].error or TargetUnavailable("Autoscalers have not been listed yet.")
        return [item for each in informers for item in each.select(BY_TARGET, str(target))]

    return find_autoscalers


def make_informers(api: KubeApi, settings: OperatorSettings) -> Iterator[Informer]:
    """Make an informer for each kind and namespace; those of services come first."""
    for resource in (INFERENCE_SERVICES, *CHILD_KINDS):
        # All autoscalers, as anybody's may target a Deployment of ours.
        everybody = resource in (INFERENCE_SERVICES, AUTOSCALERS)
        for namespace in settings.namespaces or ("",):
            yield Informer(
                api,
                ResourceScope(
                    resource=resource,
                    namespace=namespace,
                    labels="" if everybody else OWN_LABEL_SELECTOR,
                ),
                transform=compact_managed_fields,
                indexes={BY_TARGET: _target} if resource is AUTOSCALERS else None,
                unserved_retry=_unserved_retry(resource, settings),
            )


def _unserved_retry(resource: Resource, settings: OperatorSettings) -> float:
    if resource is ROUTES and settings.gateway is None:
        return _UNUSED_ROUTES_RETRY
    return _OPTIONAL_RETRY if resource in OPTIONAL_KINDS else 10.0


def make_pod_informers(api: KubeApi, settings: OperatorSettings) -> Iterator[Informer]:
    """Make the informers of pods, which are asked what they serve and belong to no pass."""
    for namespace in settings.namespaces or ("",):
        yield Informer(
            api,
            ResourceScope(resource=PODS, namespace=namespace, labels=OWN_LABEL_SELECTOR),
            transform=_trim_pod,
            indexes={BY_SERVICE: _service_names},
        )


def pods_in(informers: Sequence[Informer]) -> ListPods:
    """Give the pods of a service from informers."""

    async def list_pods(service: InferenceService) -> Sequence[Fields]:
        for each in informers:
            if each.scope.namespace not in ("", service.namespace):
                continue
            if not each.has_synced:
                raise each.error or TargetUnavailable("Pods have not been listed yet.")
            if (outdated := each.outdated) is not None:
                raise outdated
        name = f"{service.namespace}/{service.name}"
        return [item for each in informers for item in each.select(BY_SERVICE, name)]

    return list_pods


def service_of_pod(pod: Object) -> ObjectKey | None:
    """Return the service that a pod is labelled for."""
    name = (pod["metadata"].get("labels") or {}).get(WORKLOAD_LABEL)
    return ObjectKey(namespace=pod["metadata"].get("namespace", ""), name=name) if name else None


def pod_restarted(old: Object | None, new: Object | None) -> bool:
    """True when another container runs in a pod, or it became ready, or went."""
    return _pod_run(old) != _pod_run(new)


def _pod_run(pod: Object | None) -> object:
    if pod is None:
        return None
    status = pod.get("status") or {}
    ready = [each for each in status.get("conditions") or () if each.get("type") == "Ready"]
    return (
        pod["metadata"].get("deletionTimestamp"),
        [each.get("containerID") for each in status.get("containerStatuses") or ()],
        [each.get("status") for each in ready],
    )


def _service_names(pod: Object) -> tuple[str, ...]:
    key = service_of_pod(pod)
    return (f"{key.namespace}/{key.name}",) if key else ()


def _trim_pod(pod: Object) -> Object:
    """Keep of a pod what is needed to ask it."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences")
    return {
        **{name: pod[name] for name in ("apiVersion", "kind") if name in pod},
        "metadata": {
            name: metadata[name] for name in (*kept, "deletionTimestamp") if name in metadata
        },
        "spec": {
            "containers": [
                {name: each[name] for name in ("name", "command", "args") if name in each}
                for each in spec.get("containers") or ()
            ]
        },
        "status": {
            name: status[name]
            for name in ("podIP", "conditions", "containerStatuses")
            if name in status
        },
    }


_REQUESTED = LAST_REQUEST_ANNOTATION
_DATA_PLANE = frozenset({LAST_REQUEST_ANNOTATION, DATA_PLANE_ANNOTATION})
_API_GROUP = API_VERSION.partition("/")[0]
_NOISE = frozenset({"currentMetrics", "lastScaleTime", "collisionCount", "conditions"})
_SERVER_METADATA = frozenset({"resourceVersion", "managedFields", "generation"})
_SUFFIXES = tuple(f"-{role}" for role in (PRIMARY, CANARY))


_SCALED_KINDS = (DEPLOYMENT[1], LEADER_WORKER_SET[1])


def service_of_child(item: Object) -> tuple[ObjectKey, str] | None:
    """Return the service that a child belongs to, and its uid as the child has it.

    The uid is empty for a child that lost its owner reference and is known by its label alone.
    """
    metadata = item["metadata"]
    namespace = metadata.get("namespace", "")
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            group = str(reference.get("apiVersion", "")).partition("/")[0]
            if reference.get("kind") != KIND or group != _API_GROUP:
                return None
            return ObjectKey(namespace=namespace, name=reference["name"]), str(
                reference.get("uid", "")
            )
    name = (metadata.get("labels") or {}).get(WORKLOAD_LABEL)
    return (ObjectKey(namespace=namespace, name=name), "") if name else None


def service_scaled_by(autoscaler: Object) -> ObjectKey | None:
    """Return the service whose Deployment an autoscaler targets, if its name says so."""
    target = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    name = str(target.get("name", ""))
    for suffix in _SUFFIXES:
        if target.get("kind") in _SCALED_KINDS and name.endswith(suffix):
            namespace = autoscaler["metadata"].get("namespace", "")
            return ObjectKey(namespace=namespace, name=name.removesuffix(suffix))
    return None


def service_changed(old: Object, new: Object) -> bool:
    """True unless only the status of a service changed, which is our own doing."""
    watched = ("generation", "labels", "deletionTimestamp", "uid")
    before, after = old["metadata"], new["metadata"]
    if any(before.get(name) != after.get(name) for name in watched):
        return True
    return _own_annotations(before) != _own_annotations(after) or _is_woken(old, new)


def _own_annotations(metadata: Object) -> dict[str, str]:
    """Leave out the signs of life of data planes: those are read when it is time to decide."""
    annotations = metadata.get("annotations") or {}
    return {name: value for name, value in annotations.items() if name not in _DATA_PLANE}


def _is_woken(old: Object, new: Object) -> bool:
    """True when a service without replicas was asked."""
    asked = [(each["metadata"].get("annotations") or {}).get(_REQUESTED) for each in (old, new)]
    if asked[0] == asked[1]:
        return False
    conditions = (new.get("status") or {}).get("conditions") or ()
    return any(
        each.get("type") == "ScaledToZero" and each.get("status") == "True" for each in conditions
    )


def child_changed(old: Object, new: Object) -> bool:
    """True when anything of a child changed but its status and the clockwork of the server."""
    for name in (old.keys() | new.keys()) - {"metadata", "status"}:
        if old.get(name) != new.get(name):
            return True
    before, after = old["metadata"], new["metadata"]
    for name in (before.keys() | after.keys()) - _SERVER_METADATA:
        if before.get(name) != after.get(name):
            return True
    return list(_field_owners(before)) != list(_field_owners(after))


def status_changed(old: Object, new: Object) -> bool:
    """True when a status says something new; times and raw measurements do not count."""
    return _status_content(old) != _status_content(new)


def _field_owners(metadata: Object) -> Iterator[tuple[object, ...]]:
    """Who owns what, without those who only report a status."""
    for entry in metadata.get("managedFields") or ():
        if entry.get("subresource") != "status":
            yield entry.get("manager"), entry.get("operation"), entry.get("fieldsV1")


def _status_content(item: Object) -> Object:
    status = item.get("status") or {}
    said: Object = {name: value for name, value in status.items() if name not in _NOISE}
    said["conditions"] = _conditions(status)
    said["parents"] = [
        (parent.get("parentRef"), _conditions(parent)) for parent in status.get("parents") or ()
    ]
    return said


def _conditions(holder: Object) -> list[tuple[object, ...]]:
    names = ("type", "status", "reason", "observedGeneration")
    return [
        tuple(condition.get(name) for name in names) for condition in holder.get("conditions") or ()
    ]
