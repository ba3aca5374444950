"""How the GitOps controller runs. The command line fills it in; tests do too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.adapters.kubernetes.lease import LeaseTiming
from holdfast.core.gitops.application import AnnotationHolds
from holdfast.core.redact import Secret

DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GitopsSettings:
    """Everything that may be chosen."""

    db: Path
    """The store: tokens and projects, and the ledger unless that is elsewhere."""
    host: str = "127.0.0.1"
    port: int = 8400
    ledger: Secret | None = None
    """The address of a PostgreSQL database that keeps the ledger instead."""
    key_file: Path | None = None
    """Holds the key that marks Secrets; None keeps one beside the store."""
    cache: Path | None = None
    """Where copies of repositories are kept; None means beside the store."""
    context: str | None = None
    """Of the kubeconfig; None means its current one, or the pod's own cluster."""
    cluster: str = ""
    """How notices name the cluster."""
    namespaces: tuple[str, ...] = ()
    """Where Applications are looked for; none means everywhere."""
    files: tuple[Path, ...] = ()
    """Files and folders with Applications, in place of those in the cluster."""
    credentials: Path | None = None
    """With Applications from files: a folder for each credential, as a mounted Secret is."""
    kustomize: str | None = None
    """The program that renders Kustomize: kustomize or kubectl."""
    sops: str | None = None
    unconfined: bool = False
    """Lets kustomize and sops run where the network cannot be taken away from them."""
    local: bool = False
    """Lets Applications name repositories on this machine: paths, and its loopback addresses."""
    unbound: bool = False
    """Lets credentials that are bound to no host go to any."""
    private: bool = False
    """Lets notices go to addresses inside the network."""
    annotation_holds: AnnotationHolds = AnnotationHolds.LIMITED
    """Whether annotations on objects may hold them, where an Application does not say."""
    workers: int = 2
    resync: float = 600.0
    """Seconds between two looks at everything of an application, with jitter."""
    keep: float = 90 * DAY
    """Seconds that closed records and journal lines are kept."""
    elect: bool = True
    lease_name: str = "holdfast-gitops"
    lease_namespace: str | None = None
    """None means the pod's namespace, and one fixed place where this is no pod."""
    lease_timing: LeaseTiming = field(default_factory=LeaseTiming)
    accept_rollback: bool = False
    sync_within: float = 120.0
    reconcile_within: float = 600.0
    drain_within: float = 20.0
    log_format: str = "json"
    log_level: str = "info"
    on_ready: Callable[[str], None] | None = None
    """Called once with the URL when it answers."""
