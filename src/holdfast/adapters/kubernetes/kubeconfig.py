"""Reads kubeconfig files the way kubectl does: a list of files, merged, and one context of them.

The first file that has a name wins, relative paths count from the file they stand in, data wins
over files. What we cannot honour is refused rather than left out. Messages name the file and the
context and never a value, as nearly every value here may be a secret.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from holdfast.adapters.kubernetes.credentials import (
    ClientCertificate,
    ExecConfig,
    ExecCredentials,
    FileCredentials,
    FixedCredentials,
    Identity,
    KubeCredentials,
    RotatedFile,
    check_token,
)
from holdfast.core.errors import ConfigurationError
from holdfast.core.redact import Secret
from holdfast.reconcile.ports import Clock

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
    credentials: KubeCredentials
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
            hint="Set KUBECONFIG, or run inside the cluster.",
        )
    source = f"the service account in {folder}"
    token = RotatedFile(folder / "token", what="token", source=source)
    token.read()  # a missing one is reported now, not at the first request
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


class KubeconfigForm(msgspec.Struct, rename="kebab", kw_only=True):
    """Unknown fields are left alone: other tools keep theirs here."""


class ClusterExtensionForm(KubeconfigForm):
    """Something that a cluster carries for other programs."""

    name: str = ""
    extension: Any = None  # Any: meant for the plugin, and passed on unread


class ClusterForm(KubeconfigForm):
    """Where a cluster is and how it proves who it is."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[ClusterExtensionForm] | None = None


class UserForm(KubeconfigForm):
    """One way to be somebody."""

    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    username: str | None = None
    password: str | None = None
    auth_provider: Any = None  # Any: only its presence matters
    exec: ExecConfig | None = None
    as_: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class ContextForm(KubeconfigForm):
    """A cluster, a user and a namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class NamedClusterForm(KubeconfigForm):
    """An entry of `clusters`."""

    name: str
    cluster: ClusterForm | None = None


class NamedUserForm(KubeconfigForm):
    """An entry of `users`."""

    name: str
    user: UserForm | None = None


class NamedContextForm(KubeconfigForm):
    """An entry of `contexts`."""

    name: str
    context: ContextForm | None = None


class KubeconfigFileForm(KubeconfigForm):
    """A whole file."""

    current_context: str | None = None
    clusters: list[NamedClusterForm] | None = None
    users: list[NamedUserForm] | None = None
    contexts: list[NamedContextForm] | None = None


EXEC_EXTENSION = "client.authentication.k8s.io/exec"


T = TypeVar("T")
KubeconfigEntries = dict[str, tuple[T, Path]]


class Kubeconfig:
    """Some files taken together."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.current = ""
        self._clusters: KubeconfigEntries[ClusterForm] = {}
        self._users: KubeconfigEntries[UserForm] = {}
        self._contexts: KubeconfigEntries[ContextForm] = {}
        for path in paths:
            self._merge(_read_kubeconfig(path), path)

    @property
    def contexts(self) -> list[str]:
        """The names that may be chosen."""
        return sorted(self._contexts)

    def choose(
        self, context: str | None = None, *, namespace: str | None = None, clock: Clock
    ) -> ClusterConfig:
        """Return how to reach a context's cluster; the current one by default."""
        files = ", ".join(str(path) for path in self.paths)
        name = context or self.current
        if not name:
            raise ConfigurationError(
                f"{files} sets no current-context.",
                hint=f"Choose a context: {', '.join(self.contexts) or 'there is none'}.",
            )
        if name not in self._contexts:
            raise ConfigurationError(
                f"{files} has no context {name!r}.",
                hint=f"Choose one of: {', '.join(self.contexts) or 'there is none'}.",
            )
        chosen, path = self._contexts[name]
        source = f"context {name!r} of {path}"
        cluster, cluster_path = _find_entry(self._clusters, chosen.cluster, "cluster", source)
        user, user_path = (
            _find_entry(self._users, chosen.user, "user", source)
            if chosen.user
            else (UserForm(), path)
        )
        authority = _authority_of(cluster, cluster_path, source)
        return ClusterConfig(
            server=_server_of(cluster, source),
            credentials=_credentials_of(user, user_path, cluster, authority, source, clock),
            namespace=namespace or chosen.namespace or "default",
            source=source,
            authority=authority,
            insecure=cluster.insecure_skip_tls_verify,
            tls_server_name=cluster.tls_server_name or "",
            proxy_url=_proxy_of(cluster, source),
            impersonation=_impersonation_of(user, source),
        )

    def _merge(self, file: KubeconfigFileForm, path: Path) -> None:
        self.current = self.current or file.current_context or ""
        for cluster in file.clusters or ():
            self._clusters.setdefault(cluster.name, (cluster.cluster or ClusterForm(), path))
        for user in file.users or ():
            self._users.setdefault(user.name, (user.user or UserForm(), path))
        for context in file.contexts or ():
            self._contexts.setdefault(context.name, (context.context or ContextForm(), path))


def load_config(
    context: str | None = None,
    *,
    namespace: str | None = None,
    clock: Clock,
    environ: Mapping[str, str] | None = None,
) -> ClusterConfig:
    """Return how to reach the cluster that the user means.

    KUBECONFIG, else ~/.kube/config, else the pod's service account. A context that was asked for
    by name is never replaced by the service account.
    """
    environ = os.environ if environ is None else environ
    listed = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    home = environ.get("HOME", "")
    candidates = listed or ([Path(home) / ".kube" / "config"] if home else [])
    found = [path for path in candidates if path.exists()]
    if found:
        return Kubeconfig(found).choose(context, namespace=namespace, clock=clock)
    if listed or context:
        searched = ", ".join(str(path) for path in candidates) or "~/.kube/config"
        raise ConfigurationError(
            f"There is no kubeconfig at {searched}.", hint="Check the path, or set KUBECONFIG."
        )
    return in_cluster_config(environ=environ)


def _read_kubeconfig(path: Path) -> KubeconfigFileForm:
    loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # Any: either parser
    try:
        value = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506  # a safe loader
        return msgspec.convert({} if value is None else value, KubeconfigFileForm)
    except OSError as error:
        problem = error.strerror or "it is unreadable"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        problem = f"line {mark.line + 1} is no YAML" if mark else "it is no YAML"
    except (yaml.YAMLError, RecursionError):
        problem = "it is no YAML"
    except msgspec.ValidationError as error:
        problem = str(error)  # names types and paths, never values
    raise ConfigurationError(
        f"The kubeconfig {path} cannot be read: {problem}.", hint="Fix or replace the file."
    )


def _find_entry(entries: KubeconfigEntries[T], name: str, what: str, source: str) -> tuple[T, Path]:
    if name not in entries:
        raise ConfigurationError(
            f"The {source} names the {what} {name!r}, which is not defined.",
            hint=f"Define it, or choose another context; there are: {', '.join(sorted(entries))}.",
        )
    return entries[name]


def _server_of(cluster: ClusterForm, source: str) -> str:
    if not cluster.server.startswith(("https://", "http://")):
        raise ConfigurationError(
            f"The cluster of {source} has no server address that starts with https://.",
            hint="Set its `server`.",
        )
    return cluster.server.rstrip("/")


def _proxy_of(cluster: ClusterForm, source: str) -> str:
    proxy = cluster.proxy_url or ""
    if proxy and not proxy.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"The proxy-url of {source} is of a kind that Holdfast does not speak.",
            hint="Use an http:// or https:// proxy.",
        )
    return proxy


def _authority_of(cluster: ClusterForm, path: Path, source: str) -> RotatedFile | bytes | None:
    if cluster.insecure_skip_tls_verify and (
        cluster.certificate_authority or cluster.certificate_authority_data
    ):
        raise ConfigurationError(
            f"The cluster of {source} has a certificate authority and insecure-skip-tls-verify.",
            hint="Remove one of them; without insecure-skip-tls-verify the connection is safe.",
        )
    if cluster.certificate_authority_data:
        return _decode_pem(
            cluster.certificate_authority_data, "certificate-authority-data", source
        ).encode()
    if cluster.certificate_authority:
        file = _relative_to(path, cluster.certificate_authority)
        return RotatedFile(file, what="certificate authority", source=source)
    return None


def _credentials_of(
    user: UserForm,
    path: Path,
    cluster: ClusterForm,
    authority: RotatedFile | bytes | None,
    source: str,
    clock: Clock,
) -> KubeCredentials:
    if user.username or user.password or user.auth_provider:
        what = "an auth-provider" if user.auth_provider else "a user name and password"
        raise ConfigurationError(
            f"The user of {source} has {what}, which no Kubernetes in use accepts.",
            hint="Use a token, a client certificate or an exec plugin.",
        )
    if user.exec is not None:
        extensions = {each.name: each.extension for each in cluster.extensions or ()}
        pem = authority.read() if isinstance(authority, RotatedFile) else authority
        about = {
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify or None,
            "certificate-authority-data": base64.b64encode(pem).decode() if pem else None,
            "proxy-url": cluster.proxy_url,
            "config": extensions.get(EXEC_EXTENSION),
        }
        return ExecCredentials(
            user.exec,
            cluster={name: value for name, value in about.items() if value},
            folder=path.parent,
            source=source,
            clock=clock,
        )
    token = check_token(user.token, f"The user of {source}") if user.token else None
    file = None
    if user.token_file:
        file = RotatedFile(_relative_to(path, user.token_file), what="token", source=source)
    certificate, files = _certificate_of(user, path, source)
    fixed = Identity(token=token, certificate=certificate)
    if file is None and files is None:
        return FixedCredentials(fixed)
    return FileCredentials(token=file, certificate=files, fixed=fixed)


def _certificate_of(
    user: UserForm, path: Path, source: str
) -> tuple[ClientCertificate | None, tuple[RotatedFile, RotatedFile] | None]:
    chain = user.client_certificate_data or user.client_certificate
    key = user.client_key_data or user.client_key
    if not chain and not key:
        return None, None
    if not chain or not key:
        raise ConfigurationError(
            f"The user of {source} has a client certificate without its key, or the reverse.",
            hint="Set both.",
        )
    if user.client_certificate_data and user.client_key_data:
        return ClientCertificate(
            certificate=_decode_pem(
                user.client_certificate_data, "client-certificate-data", source
            ),
            key=Secret(_decode_pem(user.client_key_data, "client-key-data", source)),
        ), None
    if user.client_certificate_data or user.client_key_data:
        raise ConfigurationError(
            f"The user of {source} has one of client certificate and key as data and the other "
            "as a file.",
            hint="Use data for both, or files for both.",
        )
    return None, (
        RotatedFile(_relative_to(path, chain), what="client certificate", source=source),
        RotatedFile(_relative_to(path, key), what="client key", source=source),
    )


def _impersonation_of(user: UserForm, source: str) -> Impersonation:
    if (user.as_groups or user.as_uid or user.as_user_extra) and not user.as_:
        raise ConfigurationError(
            f"The user of {source} impersonates groups without a user.", hint="Set `as` too."
        )
    return Impersonation(
        user=user.as_ or "",
        uid=user.as_uid or "",
        groups=tuple(user.as_groups or ()),
        extra=user.as_user_extra or {},
    )


def _relative_to(path: Path, name: str) -> Path:
    return path.parent.absolute() / name


def _decode_pem(text: str, field: str, source: str) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        raise ConfigurationError(
            f"The {field} of {source} is not PEM in base64.", hint="Fetch the kubeconfig again."
        ) from None
