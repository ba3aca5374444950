"""Parts of a declaration that mean something in a cluster alone, and the rules that they keep.

The same in a workload and in an InferenceService: a Service's ports, claims of devices, and who
scales.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from holdfast.core.backends import POD_PORT
from holdfast.core.custom_resource import ObjectName, Slug, ValueFormat
from holdfast.core.errors import Problem
from holdfast.core.rules import SharedRule
from holdfast.core.scan import safe_name

PortNumber = Annotated[
    int, ValueFormat(description="a port from 1 to 65535", minimum=1, maximum=65_535)
]
PortName = Annotated[
    str,
    ValueFormat(
        description="a name of up to 15 letters, digits and dashes",
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        max_length=15,
    ),
]
TargetPort = Annotated[
    str,
    ValueFormat(
        description="a port, or the name of one of a container",
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        numeric=True,
        minimum=1,
        maximum=65_535,
        max_length=15,
    ),
]


class Scaler(StrEnum):
    """Who scales."""

    HPA = "hpa"
    KEDA = "keda"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaimSpec:
    """A claim of dynamic resource allocation: one that exists, or a template for each pod."""

    name: Slug
    resource_claim_name: ObjectName | None = None
    resource_claim_template_name: ObjectName | None = None
    request: Slug | None = None
    """One request of the claim; left unset, all of them."""


class ServiceType(StrEnum):
    """How callers outside the cluster reach a Service."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class PortProtocol(StrEnum):
    """What a port speaks."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePortSpec:
    """A port beside the one that is served. A number as target is a port of the server too."""

    name: PortName
    port: PortNumber
    target_port: TargetPort | None = None
    """Left unset, it is `port`."""
    protocol: PortProtocol | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """The Service that callers use. Its ports are those of the variants' Services too."""

    type: ServiceType | None = None
    annotations: Mapping[str, str] | None = None
    ports: tuple[ServicePortSpec, ...] | None = None


DEVICE_CLAIM: SharedRule[DeviceClaimSpec] = SharedRule(
    reason="one names no claim, or both a claim and a template.",
    fix="Give resourceClaimName or resourceClaimTemplateName.",
    holds=lambda claim: (
        (claim.resource_claim_name is None) != (claim.resource_claim_template_name is None)
    ),
)
FREE_PORT: SharedRule[ServicePortSpec] = SharedRule(
    reason=f"one has the name http or the port {POD_PORT}, which is served already.",
    fix="Choose another, or leave it out.",
    holds=lambda port: port.name != "http" and port.port != POD_PORT,
)


def service_problems(service: ServiceSpec) -> Iterator[Problem]:
    """Say what the API server is not asked: comparing all ports with each other costs it much."""
    ports = service.ports or ()
    names = {each.name for each in ports}
    numbers = {(each.port, each.protocol or PortProtocol.TCP) for each in ports}
    if not len(names) == len(numbers) == len(ports):
        yield Problem(
            field="service.ports",
            reason="two have the same name, or the same port and protocol.",
            fix="Keep one of them.",
        )
    for name in service.annotations or {}:
        if name.startswith("holdfast.dev/"):
            yield Problem(
                field=f"service.annotations.{safe_name(name)}",
                reason="it is one that Holdfast sets itself.",
                fix="Leave it out.",
            )
