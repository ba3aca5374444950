"""What the operator follows: its services, and the kinds of their children."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.objects import Object, Resource, compact_managed_fields
from holdfast.adapters.kubernetes.watch import Scope
from holdfast.apps.operator.settings import Settings
from holdfast.core.errors import TargetUnavailable
from holdfast.core.service.spec import API_VERSION, KIND
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ObjectRef
from holdfast.reconcile.service.family import Autoscalers

_GROUP, _, _VERSION = API_VERSION.partition("/")


def _resource(group: str, version: str, kind: str, plural: str) -> Resource:
    return Resource(group=group, version=version, kind=kind, plural=plural, namespaced=True)


INFERENCE_SERVICES = _resource(_GROUP, _VERSION, KIND, "inferenceservices")
AUTOSCALERS = _resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
ROUTES = _resource("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
CHILDREN = (
    _resource("apps", "v1", "Deployment", "deployments"),
    _resource("", "v1", "Service", "services"),
    _resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    AUTOSCALERS,
    ROUTES,
)
BY_TARGET = "target"
OURS = "app.kubernetes.io/managed-by=holdfast"
_RARELY = 600.0
"""Without a gateway nothing depends on routes, so their kind is looked for rarely."""


def _target(autoscaler: Object) -> tuple[str, ...]:
    scaled = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    namespace = autoscaler["metadata"].get("namespace", "")
    return (f"{scaled.get('kind')} {namespace}/{scaled.get('name')}",)


def targeting(informers: Sequence[Informer]) -> Autoscalers:
    """Give the autoscalers of an object from informers, without looking through all of them."""

    async def found(target: ObjectRef) -> Sequence[Fields]:
        late = [each for each in informers if not each.has_synced]
        if late:
            raise late[0].error or TargetUnavailable("Autoscalers have not been listed yet.")
        return [item for each in informers for item in each.select(BY_TARGET, str(target))]

    return found


def informers(api: KubeApi, settings: Settings) -> Iterator[Informer]:
    """Make an informer for each kind and namespace; those of services come first."""
    for resource in (INFERENCE_SERVICES, *CHILDREN):
        # All autoscalers, as anybody's may target a Deployment of ours.
        everybody = resource in (INFERENCE_SERVICES, AUTOSCALERS)
        for namespace in settings.namespaces or ("",):
            yield Informer(
                api,
                Scope(resource=resource, namespace=namespace, labels="" if everybody else OURS),
                transform=compact_managed_fields,
                indexes={BY_TARGET: _target} if resource is AUTOSCALERS else None,
                patience=_RARELY if resource is ROUTES and settings.gateway is None else 10.0,
            )
