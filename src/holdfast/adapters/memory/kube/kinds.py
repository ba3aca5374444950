"""The kinds that the memory cluster serves, and how each divides into fields that can be owned.

A real server reads this from its schemas. Here are the few facts of them that ownership depends
on: which lists have keys, which values are owned as a whole, which writes count as a generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]  # Any: the schemas of the kinds decide what is inside


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipSchema:
    """How values divide, by the names of their fields. A list that is not named is one value."""

    keyed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Lists whose items are distinguished by these fields. A missing `protocol` is TCP."""
    sets: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    """Mappings that are one value; `name[]` for the items of a keyed list."""
    free: frozenset[str] = frozenset()
    """Mappings with keys of the user's own that hold mappings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryKind:
    """One kind, as far as the memory cluster imitates it."""

    api_version: str
    kind: str
    schema: OwnershipSchema
    namespaced: bool = True
    counted: tuple[str, ...] | None = ("spec",)
    """What moves `metadata.generation`: none named is all but metadata and status, None is nothing,
    as these kinds have no generation."""
    status: bool = True
    """Whether the status is written through a subresource of its own."""
    scale: bool = False
    hollow: Mapping[str, Any] = field(default_factory=dict)
    """An object of the kind before anything is written: its structure that is always there."""
    custom: bool = False
    """Defined by a custom resource definition, so that nothing is filled in."""


_METADATA = {"ownerReferences": ("uid",), "conditions": ("type",)}
_WHOLE = frozenset({"ownerReferences[]"})
_SETS = frozenset({"finalizers"})
_POD = OwnershipSchema(
    keyed={
        **_METADATA,
        "containers": ("name",),
        "initContainers": ("name",),
        "ephemeralContainers": ("name",),
        "volumes": ("name",),
        "env": ("name",),
        "ports": ("containerPort", "protocol"),
        "volumeMounts": ("mountPath",),
        "volumeDevices": ("devicePath",),
        "imagePullSecrets": ("name",),
        "hostAliases": ("ip",),
        "resourceClaims": ("name",),
        "claims": ("name",),
        "schedulingGates": ("name",),
        "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    },
    sets=_SETS,
    whole=_WHOLE
    | {
        "selector", "nodeSelector", "requiredDuringSchedulingIgnoredDuringExecution",
        "imagePullSecrets[]", "secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef",
        "secretRef",
    },
)  # fmt: skip
_SERVICE = OwnershipSchema(
    keyed={**_METADATA, "ports": ("port", "protocol")}, sets=_SETS, whole=_WHOLE | {"selector"}
)
_TEMPLATE = {"metadata": {}, "spec": {"containers": None}}
_PLAIN = OwnershipSchema(
    keyed=_METADATA, sets=_SETS, whole=_WHOLE | {"selector", "regarding", "related"}
)
_CUSTOM = OwnershipSchema(
    keyed=_METADATA, sets=_SETS, whole=_WHOLE, free=frozenset({"secrets", "affinity"})
)


def custom_kind(api_version: str, kind: str, *, scale: bool = False) -> MemoryKind:
    """Return a kind as a custom resource definition would: with a status, every list one value."""
    return MemoryKind(
        api_version=api_version, kind=kind, schema=_CUSTOM, counted=(), scale=scale, custom=True
    )


SERVED_KINDS = (
    MemoryKind(api_version="v1", kind="ConfigMap", schema=_PLAIN, counted=None, status=False),
    MemoryKind(api_version="v1", kind="Secret", schema=_PLAIN, counted=None, status=False),
    MemoryKind(
        api_version="v1", kind="Service", schema=_SERVICE, counted=None, hollow={"spec": {}}
    ),
    MemoryKind(api_version="v1", kind="ServiceAccount", schema=_PLAIN, counted=None, status=False),
    MemoryKind(api_version="v1", kind="Pod", schema=_POD, hollow={"spec": {"containers": None}}),
    MemoryKind(api_version="v1", kind="Node", schema=_PLAIN, namespaced=False, counted=None),
    MemoryKind(api_version="v1", kind="Namespace", schema=_PLAIN, namespaced=False, counted=None),
    MemoryKind(
        api_version="apps/v1",
        kind="Deployment",
        schema=_POD,
        counted=("spec", "metadata.annotations"),
        scale=True,
        hollow={"spec": {"selector": None, "strategy": {}, "template": _TEMPLATE}},
    ),
    MemoryKind(
        api_version="apps/v1",
        kind="ReplicaSet",
        schema=_POD,
        scale=True,
        hollow={"spec": {"selector": None}},
    ),
    MemoryKind(
        api_version="autoscaling/v2",
        kind="HorizontalPodAutoscaler",
        schema=_PLAIN,
        counted=None,
        hollow={"spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0}},
    ),
    MemoryKind(
        api_version="policy/v1", kind="PodDisruptionBudget", schema=_PLAIN, hollow={"spec": {}}
    ),
    MemoryKind(
        api_version="coordination.k8s.io/v1",
        kind="Lease",
        schema=_PLAIN,
        counted=None,
        status=False,
    ),
    MemoryKind(
        api_version="discovery.k8s.io/v1",
        kind="EndpointSlice",
        schema=_PLAIN,
        counted=(),
        status=False,
    ),
    MemoryKind(
        api_version="events.k8s.io/v1", kind="Event", schema=_PLAIN, counted=None, status=False
    ),
    custom_kind("gateway.networking.k8s.io/v1", "Gateway"),
    custom_kind("gateway.networking.k8s.io/v1", "HTTPRoute"),
    custom_kind("holdfast.dev/v1alpha1", "InferenceService", scale=True),
    custom_kind("holdfast.dev/v1alpha1", "Application"),
)
"""Served from the start; `MemoryKube.serve` adds others."""
