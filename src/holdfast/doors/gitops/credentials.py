"""Where the secrets of Applications are: in Secrets of their namespace, or in folders.

Read anew at each use, so that one that was rotated counts from the next fetch on. What they hold
is never logged and never in an error.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.application import AppId, Application, KeyRef
from holdfast.core.objects import ObjectRef
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import NO_CREDENTIAL, Credential
from holdfast.reconcile.kube import KubeClient

WEBHOOK = "webhook"
LARGEST = 1 << 20
_CREDENTIAL = "Create it with token, or with ssh-privatekey and known_hosts."


class Vault(Protocol):
    """Gives what one named secret holds."""

    async def read(self, application: Application, name: str) -> Mapping[str, str]:
        """Return the values by key. Raises ConfigurationError when there is no such secret, and
        what the place raises when it does not answer."""


class SecretVault:
    """Secrets of the Application's own namespace."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def read(self, application: Application, name: str) -> Mapping[str, str]:
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
        return values


class FolderVault:
    """A folder for each secret, with a file for each key, as Kubernetes mounts them."""

    def __init__(self, root: Path | None) -> None:
        self._root = root

    async def read(self, application: Application, name: str) -> Mapping[str, str]:
        """See the port."""
        if self._root is None:
            raise ConfigurationError(
                f"{application.id} names the credential {name}, and no folder has any.",
                todo="Give --credentials DIR.",
            )
        folder = self._root / name
        if name.startswith(".") or folder.parent != self._root or not folder.is_dir():
            raise ConfigurationError(
                f"{application.id} names the credential {name}, and {self._root} has no such "
                "folder.",
                todo=_CREDENTIAL,
            )
        return await asyncio.to_thread(_files, folder)


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
                f"The credential {folder.name} cannot be read: {file.name} is no readable text.",
                todo="Check the file and who may read it.",
            ) from None
    return found


class Credentials:
    """The credentials of all Applications, and the webhook secrets that came with them."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._webhooks: dict[AppId, Secret] = {}

    async def of(self, application: Application) -> Credential:
        """Return how to reach the repository of an Application, as it is now."""
        name = application.spec.source.credentials
        if name is None:
            self._webhooks.pop(application.id, None)
            return NO_CREDENTIAL
        values = await self._vault.read(application, name)
        hook = values.get(WEBHOOK, "").strip()
        if hook:
            self._webhooks[application.id] = Secret(hook)
        else:
            self._webhooks.pop(application.id, None)
        token, key = values.get("token", "").strip(), values.get("ssh-privatekey", "")
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
        values = await self._vault.read(application, name)
        lines = [value.strip() for _, value in sorted(values.items()) if value.strip()]
        if not lines:
            raise ConfigurationError(
                f"{application.id} names the decryption key {name}, which holds none.",
                todo="Put age identities into it, under any key.",
            )
        return Secret("\n".join(lines))

    async def value(self, application: Application, ref: KeyRef) -> Secret:
        """Return one value, such as the address of a channel."""
        values = await self._vault.read(application, ref.name)
        found = values.get(ref.key, "").strip()
        if not found:
            raise ConfigurationError(
                f"{application.id} names the key {ref.key} of {ref.name}, which is not there.",
                todo="Add the key, or mend the name.",
            )
        return Secret(found)

    @property
    def webhooks(self) -> Mapping[AppId, Secret]:
        """What signs webhooks, for each Application that was fetched with such a secret."""
        return self._webhooks

    def forget(self, application: AppId) -> None:
        """Drop what is known of an Application that is no more."""
        self._webhooks.pop(application, None)
