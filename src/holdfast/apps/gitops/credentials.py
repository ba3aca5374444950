"""Where the secrets of Applications are: in Secrets of their namespace, or in folders.

Read anew at each use, so that one that was rotated counts from the next fetch on. What they hold
is never logged and never in an error.

A credential goes only to hosts that it is bound to (`holdfast.dev/hosts`): who may write an
Application must not learn what only who may read the Secret should know.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from holdfast.adapters.git.address import PORTS, Scheme, parse_address
from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.address import HOSTS, BoundHost, read_hosts
from holdfast.core.gitops.application import AppId, Application, KeyRef
from holdfast.core.objects import ObjectRef
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import NO_CREDENTIAL, Credential
from holdfast.reconcile.kube import KubeClient

WEBHOOK = "webhook"
LARGEST = 1 << 20
PORTS_OF_HTTP = frozenset({80, 443})
_CREDENTIAL = "Create it with token, or with ssh-privatekey and known_hosts."


BINDS = "hosts"
"""The key that names the hosts of a credential where there are no annotations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCredential:
    """What one named secret holds, and where it may go."""

    values: Mapping[str, str] = field(repr=False)
    hosts: tuple[BoundHost, ...] | None = None
    """None when nobody said."""
    binding: str = ""
    """How to bind it to a host, which is written `{host}`."""


class Vault(Protocol):
    """Gives what one named secret holds."""

    unbound: bool
    """True when whoever made the secrets made the Applications too, so that they need no hosts."""

    async def read(self, application: Application, name: str) -> StoredCredential:
        """Return the values by key. Raises ConfigurationError when there is no such secret, and
        what the place raises when it does not answer."""


class SecretVault:
    """Secrets of the Application's own namespace."""

    def __init__(self, client: KubeClient, *, unbound: bool = False) -> None:
        """`unbound` is the operator's word that secrets without hosts may go anywhere."""
        self._client = client
        self.unbound = unbound

    async def read(self, application: Application, name: str) -> StoredCredential:
        """See the port."""
        namespace = application.id.namespace
        ref = ObjectRef(api_version="v1", kind="Secret", namespace=namespace, name=name)
        found = await self._client.get(ref)
        if found is None:
            raise ConfigurationError(
                f"{application.id} names the Secret {name}, which is not in {namespace}.",
                todo=_CREDENTIAL,
            )
        data = found.get("data")
        values: dict[str, str] = {}
        for key, value in data.items() if isinstance(data, dict) else ():
            try:
                values[key] = base64.b64decode(str(value), validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                continue  # nothing that we read is binary
        metadata = found.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        said = annotations.get(HOSTS) if isinstance(annotations, dict) else None
        known = f"{said}," if isinstance(said, str) and said.strip() else ""
        return StoredCredential(
            values=values,
            hosts=None if said is None else read_hosts(str(said)),
            binding=f"kubectl -n {namespace} annotate secret {name} --overwrite "
            f"{HOSTS}='{known}{{host}}'",
        )


class FolderVault:
    """A folder for each secret, with a file for each key, as Kubernetes mounts them."""

    unbound = True

    def __init__(self, root: Path | None) -> None:
        self._root = root

    async def read(self, application: Application, name: str) -> StoredCredential:
        """See the port."""
        if self._root is None:
            raise ConfigurationError(
                f"{application.id} names the credential {name}, and no folder has any.",
                todo="Name the folder that has it with --credentials.",
            )
        folder = self._root / name
        if name.startswith(".") or folder.parent != self._root or not folder.is_dir():
            raise ConfigurationError(
                f"{application.id} names the credential {name}, and {self._root} has no such "
                "folder.",
                todo=_CREDENTIAL,
            )
        values = dict(await asyncio.to_thread(_files, folder))
        said = values.pop(BINDS, None)
        return StoredCredential(
            values=values,
            hosts=None if said is None else read_hosts(said),
            binding=f"Write {{host}} into the file {folder / BINDS}.",
        )


def _files(folder: Path) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") or not file.is_file():
            continue
        try:
            with file.open("rb") as opened:
                found[file.name] = opened.read(LARGEST).decode()
        except (OSError, UnicodeDecodeError):
            raise ConfigurationError(
                f"The credential {folder.name} cannot be read: {file.name} is not readable text.",
                todo="Check the file and who may read it.",
            ) from None
    return found


class Credentials:
    """The credentials of all Applications, and the webhook secrets that came with them."""

    def __init__(self, vault: Vault, *, local: bool = False) -> None:
        """`local` lets Applications name repositories on this machine."""
        self._vault = vault
        self._local = local
        self._webhooks: dict[AppId, Secret] = {}

    async def of(self, application: Application) -> Credential:
        """Return how to reach the repository of an Application, as it is now."""
        name = application.spec.source.credentials
        if name is None:
            self._webhooks.pop(application.id, None)
            return NO_CREDENTIAL
        stored = await self._vault.read(application, name)
        values = stored.values
        hook = values.get(WEBHOOK, "").strip()
        if hook:
            self._webhooks[application.id] = Secret(hook)
        else:
            self._webhooks.pop(application.id, None)
        token, key = values.get("token", "").strip(), values.get("ssh-privatekey", "")
        if token or key.strip():
            self._check(application, name, stored, "sent there")
        return Credential(
            token=Secret(token) if token else None,
            user=values.get("username", "").strip(),
            ssh_key=Secret(key) if key.strip() else None,
            known_hosts=values.get("known_hosts", ""),
            authority=values.get("ca.crt", ""),
        )

    async def identities(self, application: Application) -> Secret | None:
        """Return the age identities that open an Application's encrypted documents."""
        name = application.spec.source.decryption
        if name is None:
            return None
        stored = await self._vault.read(application, name)
        values = stored.values
        lines = [value.strip() for _, value in sorted(values.items()) if value.strip()]
        if not lines:
            raise ConfigurationError(
                f"{application.id} names the decryption key {name}, which holds none.",
                todo="Put age identities into it, under any key.",
            )
        self._check(application, name, stored, "used for what is there")
        return Secret("\n".join(lines))

    async def value(self, application: Application, ref: KeyRef) -> Secret:
        """Return one value, such as the address of a channel."""
        values = (await self._vault.read(application, ref.name)).values
        found = values.get(ref.key, "").strip()
        if not found:
            raise ConfigurationError(
                f"{application.id} names the key {ref.key} of {ref.name}, which is not there.",
                todo="Add the key, or correct the name.",
            )
        return Secret(found)

    async def check_forge(self, application: Application, api: str) -> None:
        """Raise ConfigurationError unless the credential may go to a forge's own address."""
        name = application.spec.source.credentials
        if name is None:
            return
        parts = urlsplit(api)
        port = parts.port or (80 if parts.scheme == "http" else 443)
        stored = await self._vault.read(application, name)
        self._refuse_unbound(
            name, stored, parts.hostname or "", port, None, "sent there", PORTS_OF_HTTP
        )

    def _check(
        self, application: Application, name: str, stored: StoredCredential, use: str
    ) -> None:
        """Raise ConfigurationError unless a credential is for the repository of an Application."""
        address = parse_address(application.spec.source.url, local=self._local)
        if address.scheme is not Scheme.FILE:  # the machine that the controller runs on
            self._refuse_unbound(
                name, stored, address.host, address.port, address.path, use,
                frozenset({PORTS[address.scheme]}),
            )  # fmt: skip

    def _refuse_unbound(
        self,
        name: str,
        stored: StoredCredential,
        host: str,
        port: int,
        path: str | None,
        use: str,
        usual: Collection[int],
    ) -> None:
        if stored.hosts is None and self._vault.unbound:
            return
        if any(each.fits(host, port, path) for each in stored.hosts or ()):
            return
        shown = f"[{host}]" if ":" in host else host
        at = shown if port in usual else f"{shown}:{port}"
        where = "no host" if not stored.hosts else "other hosts"
        raise ConfigurationError(
            f"The credential {name} is bound to {where}, so it was not {use}: {at}.",
            todo=stored.binding.format(host=at),
        )

    @property
    def webhooks(self) -> Mapping[AppId, Secret]:
        """What signs webhooks, for each Application that was fetched with such a secret."""
        return self._webhooks

    def forget(self, application: AppId) -> None:
        """Drop what is known of an Application that is no more."""
        self._webhooks.pop(application, None)
