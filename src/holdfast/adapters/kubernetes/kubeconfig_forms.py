"""The parts of a kubeconfig file that Holdfast reads. Called by `kubeconfig` alone."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.adapters.kubernetes.exec_plugin import ExecForm


class Form(msgspec.Struct, rename="kebab", kw_only=True):
    """Unknown fields are left alone: other tools keep theirs here."""


class ExtensionForm(Form):
    """Something that a cluster carries for other programs."""

    name: str = ""
    extension: Any = None  # Any: meant for the plugin, and passed on unread


class ClusterForm(Form):
    """Where a cluster is and how it proves who it is."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[ExtensionForm] | None = None


class UserForm(Form):
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
    exec: ExecForm | None = None
    as_: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class ContextForm(Form):
    """A cluster, a user and a namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class NamedClusterForm(Form):
    """An entry of `clusters`."""

    name: str
    cluster: ClusterForm | None = None


class NamedUserForm(Form):
    """An entry of `users`."""

    name: str
    user: UserForm | None = None


class NamedContextForm(Form):
    """An entry of `contexts`."""

    name: str
    context: ContextForm | None = None


class FileForm(Form):
    """A whole file."""

    current_context: str | None = None
    clusters: list[NamedClusterForm] | None = None
    users: list[NamedUserForm] | None = None
    contexts: list[NamedContextForm] | None = None
