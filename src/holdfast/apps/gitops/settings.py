"""How the GitOps controller runs. The command line fills it in; tests do too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.apps.runtime.process import ControllerSettings
from holdfast.core.gitops.application import AnnotationHolds
from holdfast.core.redact import Secret

DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GitopsSettings(ControllerSettings):
    """Everything that may be chosen."""

    db: Path
    """The store: tokens and projects, and the ledger unless that is elsewhere."""
    host: str = "127.0.0.1"
    port: int = 8400
    people: Path | None = None
    """The people file: who may sign in by OpenID Connect, and what they may do."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    base_url: str = ""
    """Where browsers reach the controller; links in notices begin so."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose scripts may read what the API answers."""
    ledger: Secret | None = None
    """The address of a PostgreSQL database that keeps the ledger instead."""
    key_file: Path | None = None
    """Holds the key that marks Secrets; None keeps one beside the store."""
    cache: Path | None = None
    """Where copies of repositories are kept; None means beside the store."""
    cluster: str = ""
    """How notices name the cluster."""
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
    keep: float = 90 * DAY
    """Seconds that closed records and journal lines are kept."""
    lease_name: str = "holdfast-gitops"
    accept_rollback: bool = False
    reconcile_within: float = 600.0
    on_ready: Callable[[str], None] | None = None
    """Called once with the URL when it answers."""
