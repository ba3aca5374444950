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
from holdfast.core.service.children import CANARY, PRIMARY, WORKLOAD_LABEL
from holdfast.core.service.spec import API_VERSION, KIND
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ObjectRef
from holdfast.reconcile.service.observe import FindAutoscalers

_GROUP, _, _VERSION = API_VERSION.partition("/")


def _resource(group: str, version: str, kind: str, plural: str) -> Resource:
    return Resource(group=group, version=version, kind=kind, plural=plural, namespaced=True)


INFERENCE_SERVICES = _resource(_GROUP, _VERSION, KIND, "inferenceservices")
AUTOSCALERS = _resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
ROUTES = _resource("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
CHILD_KINDS = (
    _resource("apps", "v1", "Deployment", "deployments"),
    _resource("", "v1", "Service", "services"),
    _resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    AUTOSCALERS,
    ROUTES,
)
BY_TARGET = "target"
OWN_LABEL_SELECTOR = "app.kubernetes.io/managed-by=holdfast"
_UNUSED_ROUTES_RETRY = 600.0
"""Without a gateway nothing depends on routes, so their kind is looked for rarely."""


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
                unserved_retry=_UNUSED_ROUTES_RETRY
                if resource is ROUTES and settings.gateway is None
                else 10.0,
            )


_API_GROUP = API_VERSION.partition("/")[0]
_NOISE = frozenset({"currentMetrics", "lastScaleTime", "collisionCount", "conditions"})
_SERVER_METADATA = frozenset({"resourceVersion", "managedFields", "generation"})
_SUFFIXES = tuple(f"-{role}" for role in (PRIMARY, CANARY))


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
        if target.get("kind") == "Deployment" and name.endswith(suffix):
            namespace = autoscaler["metadata"].get("namespace", "")
            return ObjectKey(namespace=namespace, name=name.removesuffix(suffix))
    return None


def service_changed(old: Object, new: Object) -> bool:
    """True unless only the status of a service changed, which is our own doing."""
    watched = ("generation", "labels", "annotations", "deletionTimestamp", "uid")
    before, after = old["metadata"], new["metadata"]
    return any(before.get(name) != after.get(name) for name in watched)


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
