"""What stands around an object: autoscalers that target it, pods that run it or read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.adapters.kubernetes.informer import Index
from holdfast.adapters.kubernetes.objects import Object, matches
from holdfast.apps.gitops.watching import Watching
from holdfast.core.errors import AuthError, PermissionDenied
from holdfast.core.gitops.pods import WORKLOADS, selector_of
from holdfast.core.objects import ObjectRef
from holdfast.core.ownership.delegated import ALONE, Surroundings
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.survey import Around, PodsOf
from holdfast.reconcile.kube import KindNotServed

AUTOSCALERS = ("autoscaling/v2", "HorizontalPodAutoscaler")
PODS = ("v1", "Pod")
SCALED = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})
_TARGET, _WORKLOAD, _SECRET = "target", "workload", "secret"
_HASH = "pod-template-hash"
_DIRECT = frozenset({"StatefulSet", "DaemonSet"})


def around(watching: Watching) -> Around:
    """Say which autoscaler sets an object's replicas, from the copy of them all."""

    async def found(ref: ObjectRef) -> Surroundings:
        if ref.kind not in SCALED:
            return ALONE
        try:
            scalers = await watching.select(*AUTOSCALERS, ref.namespace, _TARGET, str(ref))
        except (PermissionDenied, AuthError, KindNotServed):
            return ALONE  # nobody looked: the last writer tells
        names = [f"HorizontalPodAutoscaler/{each['metadata']['name']}" for each in scalers]
        return Surroundings(autoscaler=next(iter(names), ""))

    return found


def pods_of(watching: Watching) -> PodsOf:
    """Give the pods of a workload, or those that read a Secret, from the copy of them all."""

    async def found(ref: ObjectRef, live: Fields) -> Sequence[Fields]:
        if ref.kind == "Secret":
            place = f"{ref.namespace}/{ref.name}"
            return await watching.select(*PODS, ref.namespace, _SECRET, place)
        if ref.kind not in WORKLOADS or not (selector := selector_of(live)):
            return ()
        pods = await watching.select(*PODS, ref.namespace, _WORKLOAD, str(ref))
        return [pod for pod in pods if matches(selector, pod["metadata"].get("labels") or {})]

    return found


def targets(autoscaler: Object) -> Iterator[ObjectRef]:
    """Name what an autoscaler scales."""
    scaled = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    yield ObjectRef(
        api_version=str(scaled.get("apiVersion") or "apps/v1"),
        kind=str(scaled.get("kind")),
        namespace=autoscaler["metadata"].get("namespace", ""),
        name=str(scaled.get("name")),
    )


def workloads(pod: Object) -> Iterator[ObjectRef]:
    """Name the workload that a pod belongs to; a Deployment's is known by the names it gives."""
    metadata = pod["metadata"]
    namespace = metadata.get("namespace", "")
    for owner in metadata.get("ownerReferences") or ():
        kind, name = str(owner.get("kind")), str(owner.get("name"))
        suffix = "-" + str((metadata.get("labels") or {}).get(_HASH, ""))
        if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
            kind, name = "Deployment", name.removesuffix(suffix)
        elif kind not in _DIRECT:
            continue
        yield ObjectRef(api_version="apps/v1", kind=kind, namespace=namespace, name=name)


def secrets_read(pod: Object) -> Iterator[ObjectRef]:
    """Name the Secrets that a pod has in its environment."""
    namespace = pod["metadata"].get("namespace", "")
    spec = pod.get("spec") or {}
    names: set[str] = set()
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or ():
            for source in container.get("envFrom") or ():
                names.add(str((source.get("secretRef") or {}).get("name") or ""))
            for variable in container.get("env") or ():
                key = (variable.get("valueFrom") or {}).get("secretKeyRef") or {}
                names.add(str(key.get("name") or ""))
    for name in sorted(names - {""}):
        yield ObjectRef(api_version="v1", kind="Secret", namespace=namespace, name=name)


INDEXES: Mapping[tuple[str, str], Mapping[str, Index]] = {
    AUTOSCALERS: {_TARGET: lambda item: map(str, targets(item))},
    PODS: {
        _WORKLOAD: lambda item: map(str, workloads(item)),
        _SECRET: lambda item: (f"{ref.namespace}/{ref.name}" for ref in secrets_read(item)),
    },
}
"""What informers of these kinds are asked by."""
