"""How to reach one cluster, wherever that was written down.

`load_config` looks where kubectl looks: the kubeconfig first, the pod's own service account when
there is none. Called by the apps that connect to a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.adapters.kubernetes.credentials import Credentials, FileCredentials
from holdfast.adapters.kubernetes.files import RotatedFile
from holdfast.core.errors import ConfigurationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """Whom the cluster should take us for; RBAC must permit it."""

    user: str = ""
    uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One cluster, one identity, one default namespace."""

    server: str
    credentials: Credentials
    namespace: str = "default"
    source: str
    """The file and context, for messages."""
    authority: RotatedFile | bytes | None = None
    """PEM; None trusts what the machine trusts."""
    insecure: bool = False
    """True only when the user wrote so: anyone may then answer in the cluster's name."""
    tls_server_name: str = ""
    proxy_url: str = field(default="", repr=False)
    """May hold a password, so it is not shown."""
    impersonation: Impersonation = field(default_factory=Impersonation)
    in_pod: bool = False
    """True for a pod's own service account: the namespace is then where the pod runs."""


def in_cluster_config(
    *, environ: Mapping[str, str] | None = None, folder: Path = SERVICE_ACCOUNT
) -> ClusterConfig:
    """Return how a pod reaches its own cluster. Raises ConfigurationError outside of one."""
    environ = os.environ if environ is None else environ
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigurationError(
            "There is no kubeconfig, and KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are "
            "not set, so this is not a pod either.",
            todo="Set KUBECONFIG, or run inside the cluster.",
        )
    source = f"the service account in {folder}"
    token = RotatedFile(folder / "token", what="token", source=source)
    token.read()  # a missing one is told now, not at the first request
    authority = RotatedFile(folder / "ca.crt", what="certificate authority", source=source)
    namespace = folder / "namespace"
    return ClusterConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        credentials=FileCredentials(token=token),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        source=source,
        authority=authority if authority.path.exists() else None,
        in_pod=True,
    )
