"""The operator as a library: the custom resource as values, and what keeps it.

    from holdfast.operator import InferenceService, InferenceServiceSpec, MemoryKube, Reconciler

    cluster = MemoryKube()
    service = InferenceService(name="bot", spec=InferenceServiceSpec(model_ref="org/model"))
    result = asyncio.run(Reconciler(cluster).reconcile(service))

Any client that keeps the promises of `KubeClient` will do. A service that is stored in the
cluster, and so has a uid, owns its children and gets its status written; one that is not has
its children all the same, and `delete` removes them.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from holdfast.adapters.clock import SystemClock
from holdfast.core.errors import AlreadyExists, InvalidSpec, NotFound
from holdfast.core.policy import OnDrift
from holdfast.core.service.children import (
    HPA,
    Children,
    Deployment,
    Facts,
    Gateway,
    Route,
    Service,
    WeightedTarget,
    children_of,
    manifests,
)
from holdfast.core.service.spec import (
    AnalysisSpec,
    AutoscalingSpec,
    CanarySpec,
    Condition,
    HealthCheckSpec,
    InferenceService,
    InferenceServiceSpec,
    InferenceServiceStatus,
    ResourceSpec,
    RolloutSpec,
    SchedulingSpec,
)
from holdfast.core.workload import SecretRef
from holdfast.reconcile.kube import KubeClient, KubeConflict, ObjectRef, Scope
from holdfast.reconcile.ports import Clock, MetricSource
from holdfast.reconcile.service.reconciler import ServiceReconciler as _Reconciler
from holdfast.reconcile.service.status import Note, ServiceResult
from holdfast.wire.inference_service_v1alpha1 import service_from_json, service_to_json

if TYPE_CHECKING:
    from holdfast.adapters.kubernetes.api import KubeApi as ClusterClient
    from holdfast.adapters.memory.kube import MemoryKube

__all__ = [
    "HPA",
    "AlreadyExists",
    "AnalysisSpec",
    "AutoscalingSpec",
    "CanarySpec",
    "Children",
    "ClusterClient",
    "Condition",
    "Deployment",
    "Facts",
    "Gateway",
    "HealthCheckSpec",
    "InferenceService",
    "InferenceServiceSpec",
    "InferenceServiceStatus",
    "InvalidSpec",
    "KubeClient",
    "KubeConflict",
    "MemoryKube",
    "MetricSource",
    "NotFound",
    "Note",
    "ObjectRef",
    "OnDrift",
    "Reconciler",
    "ResourceSpec",
    "RolloutSpec",
    "Route",
    "SchedulingSpec",
    "Scope",
    "SecretRef",
    "Service",
    "ServiceResult",
    "WeightedTarget",
    "children_of",
    "manifests",
    "service_from_json",
    "service_to_json",
]


class Reconciler(_Reconciler):
    """Makes and keeps the children of InferenceServices.

    `key` is for fingerprints of Secrets, which can be compared and not read; one that is
    made up here serves for the life of the object.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        clock: Clock | None = None,
        key: bytes | None = None,
        gateway: Gateway | None = None,
        metrics: MetricSource | None = None,
    ) -> None:
        super().__init__(
            client,
            clock=clock or SystemClock(),
            key=key or secrets.token_bytes(32),
            gateway=gateway,
            metrics=metrics,
        )


def __getattr__(name: str) -> object:
    """Load the clients at first use: one needs the extra `kubernetes`, the other only tests do."""
    if name == "ClusterClient":
        from holdfast.adapters.kubernetes.api import KubeApi

        return KubeApi
    if name == "MemoryKube":
        from holdfast.adapters.memory.kube import MemoryKube

        return MemoryKube
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
