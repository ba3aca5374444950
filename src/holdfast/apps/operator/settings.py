"""How the operator runs. The command line fills it in; tests do too."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.adapters.kubernetes.lease import LeaseTiming
from holdfast.core.service.children import Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Everything that may be chosen."""

    context: str | None = None
    """Of the kubeconfig; None means its current one, or the pod's own cluster."""
    namespaces: tuple[str, ...] = ()
    """Where services are looked after; none means everywhere."""
    workers: int = 16
    resync: float = 600.0
    """Seconds in which every service is looked at once, whether anything was heard of it or not."""
    gateway: Gateway | None = None
    prometheus: str | None = None
    metrics_address: str = ":8080"
    """Host and port; empty opens none."""
    elect: bool = True
    """False takes no lease, and still gives way to whoever holds it."""
    lease_name: str = "holdfast-operator"
    lease_namespace: str | None = None
    """None means the pod's namespace, and one fixed place where this is no pod."""
    lease_timing: LeaseTiming = field(default_factory=LeaseTiming)
    once: bool = False
    """Look at everything once, then end."""
    sync_within: float = 120.0
    reconcile_within: float = 60.0
    drain_within: float = 20.0
    log_format: str = "json"
