"""The operator as a library: the custom resource as values, and what keeps it.

    from holdfast.operator import InferenceService, InferenceServiceSpec, MemoryKube, Reconciler

    cluster = MemoryKube()
    service = InferenceService(name="bot", spec=InferenceServiceSpec(model_ref="org/model"))
    result = asyncio.run(Reconciler(cluster).reconcile(service))

Any client that keeps the promises of `KubeClient` will do. One that can only get, list, create,
update and delete does so inside `ApplyOverUpdate`. A service that is stored in the
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
    ScaledObject,
    Service,
    WeightedTarget,
    children_of,
    manifests,
)
from holdfast.core.service.facts import Note
from holdfast.core.service.spec import (
    AnalysisSpec,
    AutoscalingSpec,
    BehaviorSpec,
    CanarySpec,
    Condition,
    DeviceClaimSpec,
    HealthCheckSpec,
    InferenceService,
    InferenceServiceSpec,
    InferenceServiceStatus,
    PodMetadataSpec,
    PodTemplateSpec,
    ResourceSpec,
    RolloutSpec,
    Scaler,
    ScalingMetricSpec,
    ScalingPolicySpec,
    ScalingPolicyType,
    ScalingPreset,
    ScalingRulesSpec,
    SchedulingSpec,
    SelectPolicy,
    ServicePortSpec,
    ServiceSpec,
    ServiceType,
    SuspendSpec,
)
from holdfast.core.workload import SecretRef
from holdfast.reconcile.kube import (
    ConflictReason,
    KubeClient,
    KubeConflict,
    ObjectList,
    ObjectRef,
    Scope,
    error_for_response,
    ref_of,
)
from holdfast.reconcile.objects.apply_over_update import ApplyOverUpdate, PlainKubeClient
from holdfast.reconcile.ports import Clock, MetricSource
from holdfast.reconcile.service.reconciler import ServiceReconciler as _Reconciler
from holdfast.reconcile.service.status import ServiceResult
from holdfast.wire.inference_service_v1alpha1 import service_from_json, service_to_json

if TYPE_CHECKING:
    from holdfast.adapters.kubernetes.api import KubeApi as ClusterClient
    from holdfast.adapters.memory.kube import MemoryKube

__all__ = [
    "HPA",
    "AlreadyExists",
    "AnalysisSpec",
    "ApplyOverUpdate",
    "AutoscalingSpec",
    "BehaviorSpec",
    "CanarySpec",
    "Children",
    "ClusterClient",
    "Condition",
    "ConflictReason",
    "Deployment",
    "DeviceClaimSpec",
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
    "ObjectList",
    "ObjectRef",
    "OnDrift",
    "PlainKubeClient",
    "PodMetadataSpec",
    "PodTemplateSpec",
    "Reconciler",
    "ResourceSpec",
    "RolloutSpec",
    "Route",
    "ScaledObject",
    "Scaler",
    "ScalingMetricSpec",
    "ScalingPolicySpec",
    "ScalingPolicyType",
    "ScalingPreset",
    "ScalingRulesSpec",
    "SchedulingSpec",
    "Scope",
    "SecretRef",
    "SelectPolicy",
    "Service",
    "ServicePortSpec",
    "ServiceResult",
    "ServiceSpec",
    "ServiceType",
    "SuspendSpec",
    "WeightedTarget",
    "children_of",
    "error_for_response",
    "manifests",
    "ref_of",
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
