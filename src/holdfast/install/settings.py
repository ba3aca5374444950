"""The choices that an installation leaves open."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.service.children import Gateway
from holdfast.version import __version__

NAME = "holdfast-operator"
NAMESPACE = "holdfast-system"
IMAGE = f"holdfast:{__version__}"
"""What `deploy/Containerfile` is built as. No registry has it: push it where the nodes look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One operator. Without `watched`, it looks after the whole cluster."""

    namespace: str = NAMESPACE
    image: str = IMAGE
    replicas: int = 2
    watched: tuple[str, ...] = ()
    gateway: Gateway | None = None
    prometheus: str | None = None
    """Where a canary's metrics are read."""
    monitoring: bool = False
    """Adds objects of the Prometheus operator, whose definitions the cluster must have."""
