"""Holdfast keeps ML inference workloads where their owners declared them to be.

    from holdfast import ManagementClient, WorkloadSpec, Backend, OnDrift

    mgmt = ManagementClient.from_env(project="acme")
    ref = mgmt.ensure(WorkloadSpec(name="support-bot", model="…", backend=Backend.VLLM))

Names are loaded when they are first used, so importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.adapters.http.results import (
        EmbedResult,
        RerankItem,
        RerankResult,
        TextChunk,
        TextResult,
    )
    from holdfast.apps.sdk.inference import AsyncDataClient, AsyncEndpoint, DataClient, Endpoint
    from holdfast.apps.sdk.management import AsyncManagementClient, ManagementClient
    from holdfast.apps.sdk.watching import ChangeKind, WorkloadChange
    from holdfast.core.backends import Backend
    from holdfast.core.cluster_parts import (
        DeviceClaimSpec,
        PortProtocol,
        Scaler,
        ServicePortSpec,
        ServiceSpec,
        ServiceType,
    )
    from holdfast.core.cost import Cost, CostKind, DeviceNeed
    from holdfast.core.drift import Cause, Drift, DriftedField, DriftKind, Situation
    from holdfast.core.errors import (
        ApiError,
        AuthError,
        BackendError,
        ConfigurationError,
        Conflict,
        DriftError,
        DriftWarning,
        HoldfastError,
        NotFound,
        PermissionDenied,
        Problem,
        Retry,
        StalePlan,
        StoreBusy,
        StoreFull,
        StoreHeld,
        StoreUnavailable,
        TargetUnavailable,
        ValidationError,
        WaitTimeout,
        WorkloadFailed,
    )
    from holdfast.core.ledger import DriftEntry, DriftRecord, HistoryEntry
    from holdfast.core.live import Live, Phase, Progress, Status, Writer
    from holdfast.core.outcome import EndpointRef, Outcome
    from holdfast.core.plan import Action, Disruption, Plan, Step
    from holdfast.core.policy import OnAbsent, OnDrift
    from holdfast.core.workload import (
        Analysis,
        Autoscaling,
        Canary,
        ExecutionPolicy,
        Health,
        Resources,
        Rollout,
        ScalingMetric,
        SecretRef,
        Suspend,
        TaskType,
        WorkloadSpec,
    )

_HOMES = {
    "adapters.http.results": "EmbedResult RerankItem RerankResult TextChunk TextResult",
    "core.drift": "Cause Drift DriftedField DriftKind Situation",
    "core.backends": "Backend",
    "core.cluster_parts": "DeviceClaimSpec PortProtocol Scaler ServicePortSpec ServiceSpec"
    " ServiceType",
    "core.cost": "Cost CostKind DeviceNeed",
    "core.errors": "ApiError AuthError BackendError ConfigurationError Conflict DriftError"
    " DriftWarning HoldfastError NotFound PermissionDenied Problem Retry StalePlan StoreBusy"
    " StoreFull StoreHeld StoreUnavailable TargetUnavailable ValidationError"
    " WaitTimeout WorkloadFailed",
    "core.ledger": "DriftEntry DriftRecord HistoryEntry",
    "core.live": "Live Phase Progress Status Writer",
    "core.outcome": "EndpointRef Outcome",
    "core.plan": "Action Disruption Plan Step",
    "core.policy": "OnAbsent OnDrift",
    "core.workload": "Analysis Autoscaling Canary ExecutionPolicy Health Resources Rollout"
    " ScalingMetric SecretRef Suspend TaskType WorkloadSpec",
    "apps.sdk.inference": "AsyncDataClient AsyncEndpoint DataClient Endpoint",
    "apps.sdk.management": "AsyncManagementClient ManagementClient",
    "apps.sdk.watching": "ChangeKind WorkloadChange",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Action",
    "Analysis",
    "ApiError",
    "AsyncDataClient",
    "AsyncEndpoint",
    "AsyncManagementClient",
    "AuthError",
    "Autoscaling",
    "Backend",
    "BackendError",
    "Canary",
    "Cause",
    "ChangeKind",
    "ConfigurationError",
    "Conflict",
    "Cost",
    "CostKind",
    "DataClient",
    "DeviceClaimSpec",
    "DeviceNeed",
    "Disruption",
    "Drift",
    "DriftEntry",
    "DriftError",
    "DriftKind",
    "DriftRecord",
    "DriftWarning",
    "DriftedField",
    "EmbedResult",
    "Endpoint",
    "EndpointRef",
    "ExecutionPolicy",
    "Health",
    "HistoryEntry",
    "HoldfastError",
    "Live",
    "ManagementClient",
    "NotFound",
    "OnAbsent",
    "OnDrift",
    "Outcome",
    "PermissionDenied",
    "Phase",
    "Plan",
    "PortProtocol",
    "Problem",
    "Progress",
    "RerankItem",
    "RerankResult",
    "Resources",
    "Retry",
    "Rollout",
    "Scaler",
    "ScalingMetric",
    "SecretRef",
    "ServicePortSpec",
    "ServiceSpec",
    "ServiceType",
    "Situation",
    "StalePlan",
    "Status",
    "Step",
    "StoreBusy",
    "StoreFull",
    "StoreHeld",
    "StoreUnavailable",
    "Suspend",
    "TargetUnavailable",
    "TaskType",
    "TextChunk",
    "TextResult",
    "ValidationError",
    "WaitTimeout",
    "WorkloadChange",
    "WorkloadFailed",
    "WorkloadSpec",
    "Writer",
    "__version__",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value: object = getattr(import_module(f"holdfast.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
