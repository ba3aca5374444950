"""Reads kubeconfig files the way kubectl does: a list of files, merged, and one context of them.

The first file that has a name wins, relative paths count from the file they stand in, data wins
over files. What we cannot honour is refused rather than left out. Messages name the file and the
context and never a value, as nearly every value here may be a secret.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from holdfast.adapters.kubernetes.config import ClusterConfig, Impersonation, in_cluster_config
from holdfast.adapters.kubernetes.credentials import (
    ClientCertificate,
    Credentials,
    FileCredentials,
    FixedCredentials,
    Identity,
    checked_token,
)
from holdfast.adapters.kubernetes.exec_plugin import ExecCredentials
from holdfast.adapters.kubernetes.files import RotatedFile
from holdfast.adapters.kubernetes.kubeconfig_forms import (
    ClusterForm,
    ContextForm,
    FileForm,
    UserForm,
)
from holdfast.core.errors import ConfigurationError
from holdfast.core.redact import Secret
from holdfast.reconcile.ports import Clock

EXTENSION = "client.authentication.k8s.io/exec"


T = TypeVar("T")
Entries = dict[str, tuple[T, Path]]


class Kubeconfig:
    """Some files taken together."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.current = ""
        self._clusters: Entries[ClusterForm] = {}
        self._users: Entries[UserForm] = {}
        self._contexts: Entries[ContextForm] = {}
        for path in paths:
            self._merge(_read(path), path)

    @property
    def contexts(self) -> list[str]:
        """The names that may be chosen."""
        return sorted(self._contexts)

    def choose(
        self, context: str | None = None, *, namespace: str | None = None, clock: Clock
    ) -> ClusterConfig:
        """Return how to reach a context's cluster; the current one unless told."""
        files = ", ".join(str(path) for path in self.paths)
        name = context or self.current
        if not name:
            raise ConfigurationError(
                f"{files} sets no current-context.",
                todo=f"Choose a context: {', '.join(self.contexts) or 'there is none'}.",
            )
        if name not in self._contexts:
            raise ConfigurationError(
                f"{files} has no context {name!r}.",
                todo=f"Choose one of: {', '.join(self.contexts) or 'there is none'}.",
            )
        chosen, path = self._contexts[name]
        source = f"context {name!r} of {path}"
        cluster, cluster_path = _named(self._clusters, chosen.cluster, "cluster", source)
        user, user_path = (
            _named(self._users, chosen.user, "user", source) if chosen.user else (UserForm(), path)
        )
        authority = _authority(cluster, cluster_path, source)
        return ClusterConfig(
            server=_server(cluster, source),
            credentials=_credentials(user, user_path, cluster, authority, source, clock),
            namespace=namespace or chosen.namespace or "default",
            source=source,
            authority=authority,
            insecure=cluster.insecure_skip_tls_verify,
            tls_server_name=cluster.tls_server_name or "",
            proxy_url=_proxy(cluster, source),
            impersonation=_impersonation(user, source),
        )

    def _merge(self, file: FileForm, path: Path) -> None:
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
        looked = ", ".join(str(path) for path in candidates) or "~/.kube/config"
        raise ConfigurationError(
            f"There is no kubeconfig at {looked}.", todo="Check the path, or set KUBECONFIG."
        )
    return in_cluster_config(environ=environ)


def _read(path: Path) -> FileForm:
    loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # Any: either parser
    try:
        value = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506  # a safe loader
        return msgspec.convert({} if value is None else value, FileForm)
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
        f"The kubeconfig {path} cannot be read: {problem}.", todo="Fix or replace the file."
    )


def _named(entries: Entries[T], name: str, what: str, source: str) -> tuple[T, Path]:
    if name not in entries:
        raise ConfigurationError(
            f"The {source} names the {what} {name!r}, which is not defined.",
            todo=f"Define it, or choose another context; there are: {', '.join(sorted(entries))}.",
        )
    return entries[name]


def _server(cluster: ClusterForm, source: str) -> str:
    if not cluster.server.startswith(("https://", "http://")):
        raise ConfigurationError(
            f"The cluster of {source} has no server address that starts with https://.",
            todo="Set its `server`.",
        )
    return cluster.server.rstrip("/")


def _proxy(cluster: ClusterForm, source: str) -> str:
    proxy = cluster.proxy_url or ""
    if proxy and not proxy.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"The proxy-url of {source} is of a kind that Holdfast does not speak.",
            todo="Use an http:// or https:// proxy.",
        )
    return proxy


def _authority(cluster: ClusterForm, path: Path, source: str) -> RotatedFile | bytes | None:
    if cluster.insecure_skip_tls_verify and (
        cluster.certificate_authority or cluster.certificate_authority_data
    ):
        raise ConfigurationError(
            f"The cluster of {source} has a certificate authority and insecure-skip-tls-verify.",
            todo="Remove one of them; without insecure-skip-tls-verify the connection is safe.",
        )
    if cluster.certificate_authority_data:
        return _decoded(
            cluster.certificate_authority_data, "certificate-authority-data", source
        ).encode()
    if cluster.certificate_authority:
        place = _beside(path, cluster.certificate_authority)
        return RotatedFile(place, what="certificate authority", source=source)
    return None


def _credentials(
    user: UserForm,
    path: Path,
    cluster: ClusterForm,
    authority: RotatedFile | bytes | None,
    source: str,
    clock: Clock,
) -> Credentials:
    if user.username or user.password or user.auth_provider:
        what = "an auth-provider" if user.auth_provider else "a user name and password"
        raise ConfigurationError(
            f"The user of {source} has {what}, which no Kubernetes in use accepts.",
            todo="Use a token, a client certificate or an exec plugin.",
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
            "config": extensions.get(EXTENSION),
        }
        return ExecCredentials(
            user.exec,
            cluster={name: value for name, value in about.items() if value},
            folder=path.parent,
            source=source,
            clock=clock,
        )
    token = checked_token(user.token, f"The user of {source}") if user.token else None
    file = None
    if user.token_file:
        file = RotatedFile(_beside(path, user.token_file), what="token", source=source)
    certificate, files = _certificate(user, path, source)
    fixed = Identity(token=token, certificate=certificate)
    if file is None and files is None:
        return FixedCredentials(fixed)
    return FileCredentials(token=file, certificate=files, fixed=fixed)


def _certificate(
    user: UserForm, path: Path, source: str
) -> tuple[ClientCertificate | None, tuple[RotatedFile, RotatedFile] | None]:
    chain = user.client_certificate_data or user.client_certificate
    key = user.client_key_data or user.client_key
    if not chain and not key:
        return None, None
    if not chain or not key:
        raise ConfigurationError(
            f"The user of {source} has a client certificate without its key, or the reverse.",
            todo="Set both.",
        )
    if user.client_certificate_data and user.client_key_data:
        return ClientCertificate(
            certificate=_decoded(user.client_certificate_data, "client-certificate-data", source),
            key=Secret(_decoded(user.client_key_data, "client-key-data", source)),
        ), None
    if user.client_certificate_data or user.client_key_data:
        raise ConfigurationError(
            f"The user of {source} has one of client certificate and key as data and the other "
            "as a file.",
            todo="Use data for both, or files for both.",
        )
    return None, (
        RotatedFile(_beside(path, chain), what="client certificate", source=source),
        RotatedFile(_beside(path, key), what="client key", source=source),
    )


def _impersonation(user: UserForm, source: str) -> Impersonation:
    if (user.as_groups or user.as_uid or user.as_user_extra) and not user.as_:
        raise ConfigurationError(
            f"The user of {source} impersonates groups without a user.", todo="Set `as` too."
        )
    return Impersonation(
        user=user.as_ or "",
        uid=user.as_uid or "",
        groups=tuple(user.as_groups or ()),
        extra=user.as_user_extra or {},
    )


def _beside(path: Path, name: str) -> Path:
    return path.parent.absolute() / name


def _decoded(text: str, field: str, source: str) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        raise ConfigurationError(
            f"The {field} of {source} is not PEM in base64.", todo="Fetch the kubeconfig again."
        ) from None
