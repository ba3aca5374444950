"""The kinds that the memory cluster serves: what counts as a generation, and what is there always.

How each divides into fields that can be owned is in `core/ownership/server_side_apply.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.ownership.server_side_apply import (
    CUSTOM_SCHEMA,
    PLAIN_SCHEMA,
    POD_SCHEMA,
    SERVICE_SCHEMA,
    OwnershipSchema,
)


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


_TEMPLATE = {"metadata": {}, "spec": {"containers": None}}


def custom_kind(api_version: str, kind: str, *, scale: bool = False) -> MemoryKind:
    """Return a kind as a custom resource definition would: with a status, every list one value."""
    return MemoryKind(
        api_version=api_version,
        kind=kind,
        schema=CUSTOM_SCHEMA,
        counted=(),
        scale=scale,
        custom=True,
    )


SERVED_KINDS = (
    MemoryKind(api_version="v1", kind="ConfigMap", schema=PLAIN_SCHEMA, counted=None, status=False),
    MemoryKind(api_version="v1", kind="Secret", schema=PLAIN_SCHEMA, counted=None, status=False),
    MemoryKind(
        api_version="v1", kind="Service", schema=SERVICE_SCHEMA, counted=None, hollow={"spec": {}}
    ),
    MemoryKind(
        api_version="v1", kind="ServiceAccount", schema=PLAIN_SCHEMA, counted=None, status=False
    ),
    MemoryKind(
        api_version="v1", kind="Pod", schema=POD_SCHEMA, hollow={"spec": {"containers": None}}
    ),
    MemoryKind(api_version="v1", kind="Event", schema=PLAIN_SCHEMA, counted=None, status=False),
    MemoryKind(api_version="v1", kind="Node", schema=PLAIN_SCHEMA, namespaced=False, counted=None),
    MemoryKind(
        api_version="v1", kind="Namespace", schema=PLAIN_SCHEMA, namespaced=False, counted=None
    ),
    MemoryKind(
        api_version="v1",
        kind="PersistentVolumeClaim",
        schema=PLAIN_SCHEMA,
        counted=None,
        hollow={"spec": {"resources": {}}},
    ),
    MemoryKind(
        api_version="batch/v1",
        kind="Job",
        schema=POD_SCHEMA,
        hollow={"spec": {"template": _TEMPLATE}},
    ),
    MemoryKind(
        api_version="apps/v1",
        kind="Deployment",
        schema=POD_SCHEMA,
        counted=("spec", "metadata.annotations"),
        scale=True,
        hollow={"spec": {"selector": None, "strategy": {}, "template": _TEMPLATE}},
    ),
    MemoryKind(
        api_version="apps/v1",
        kind="ReplicaSet",
        schema=POD_SCHEMA,
        scale=True,
        hollow={"spec": {"selector": None}},
    ),
    MemoryKind(
        api_version="autoscaling/v2",
        kind="HorizontalPodAutoscaler",
        schema=PLAIN_SCHEMA,
        counted=None,
        hollow={"spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0}},
    ),
    MemoryKind(
        api_version="policy/v1",
        kind="PodDisruptionBudget",
        schema=PLAIN_SCHEMA,
        hollow={"spec": {}},
    ),
    MemoryKind(
        api_version="coordination.k8s.io/v1",
        kind="Lease",
        schema=PLAIN_SCHEMA,
        counted=None,
        status=False,
    ),
    MemoryKind(
        api_version="discovery.k8s.io/v1",
        kind="EndpointSlice",
        schema=PLAIN_SCHEMA,
        counted=(),
        status=False,
    ),
    MemoryKind(api_version="v1", kind="Event", schema=PLAIN_SCHEMA, counted=None, status=False),
    MemoryKind(
        api_version="events.k8s.io/v1",
        kind="Event",
        schema=PLAIN_SCHEMA,
        counted=None,
        status=False,
    ),
    custom_kind("gateway.networking.k8s.io/v1", "Gateway"),
    custom_kind("gateway.networking.k8s.io/v1", "HTTPRoute"),
    custom_kind("holdfast.dev/v1alpha1", "InferenceService", scale=True),
    custom_kind("holdfast.dev/v1alpha1", "Application"),
)
"""Served from the start; `MemoryKube.serve` adds others."""
