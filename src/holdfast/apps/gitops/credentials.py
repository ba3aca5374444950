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
import os
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from holdfast.adapters.git.address import DEFAULT_PORTS, GitScheme, parse_address
from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.address import HOSTS, BoundHost, read_hosts
from holdfast.core.gitops.application import Application, ApplicationId, SecretKeyRef
from holdfast.core.object_ref import ObjectRef
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import NO_GIT_CREDENTIAL, GitCredential
from holdfast.reconcile.kube import KubeClient

MIN_KEY_BYTES = 32
MAX_KEY_BYTES = 4096


def read_key_file(path: Path) -> bytes:
    """Read the key that somebody else keeps, such as a mounted Secret."""
    found = _read_key(path)
    if found is None:
        raise ConfigurationError(
            f"There is no key file {path}.", hint="Write at least 32 random bytes to it."
        )
    return _check_key(found, path)


def load_or_create_key(path: Path) -> bytes:
    """Read our own key, making it the first time."""
    found = _read_key(path)
    if found is None:
        found = _create_key(path)
    return _check_key(found, path)


def _check_key(key: bytes, path: Path) -> bytes:
    if len(key) < MIN_KEY_BYTES:
        raise ConfigurationError(
            f"The key file {path} has {len(key)} bytes, and a key needs {MIN_KEY_BYTES}.",
            hint="Restore it; with a new key every Secret is looked at as if it had changed.",
        )
    return key


def _read_key(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(MAX_KEY_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"The key file {path} cannot be read: {error.strerror}.") from None


def _create_key(path: Path) -> bytes:
    """Write a whole key or none: it is linked into place, so that only the first one counts."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, secrets.token_bytes(MIN_KEY_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # another process was first, and its key counts
        finally:
            draft.unlink()
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigurationError(
            f"The key file {path} cannot be written: {error.strerror}.",
            hint="Choose a store in a directory that this user may write, or give --key-file.",
        ) from None
    return _read_key(path) or b""


WEBHOOK_KEY = "webhook"
MAX_FILE_BYTES = 1 << 20
HTTP_PORTS = frozenset({80, 443})
_CREDENTIAL_HINT = "Create it with token, or with ssh-privatekey and known_hosts."


HOSTS_KEY = "hosts"
"""The key that names the hosts of a credential where there are no annotations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCredential:
    """What one named secret holds, and where it may go."""

    values: Mapping[str, str] = field(repr=False)
    hosts: tuple[BoundHost, ...] | None = None
    """None when nobody said."""
    binding: str = ""
    """How to bind it to a host, which is written `{host}`."""


class CredentialStore(Protocol):
    """Gives what one named secret holds."""

    unbound: bool
    """True when whoever made the secrets made the Applications too, so that they need no hosts."""

    async def read(self, application: Application, name: str) -> StoredCredential:
        """Return the values by key. Raises ConfigurationError when there is no such secret, and
        what the place raises when it does not answer."""


class SecretCredentialStore:
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
                hint=_CREDENTIAL_HINT,
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


class FolderCredentialStore:
    """A folder for each secret, with a file for each key, as Kubernetes mounts them."""

    unbound = True

    def __init__(self, root: Path | None) -> None:
        self._root = root

    async def read(self, application: Application, name: str) -> StoredCredential:
        """See the port."""
        if self._root is None:
            raise ConfigurationError(
                f"{application.id} names the credential {name}, and no folder has any.",
                hint="Name the folder that has it with --credentials.",
            )
        folder = self._root / name
        if name.startswith(".") or folder.parent != self._root or not folder.is_dir():
            raise ConfigurationError(
                f"{application.id} names the credential {name}, and {self._root} has no such "
                "folder.",
                hint=_CREDENTIAL_HINT,
            )
        values = dict(await asyncio.to_thread(_read_files, folder))
        said = values.pop(HOSTS_KEY, None)
        return StoredCredential(
            values=values,
            hosts=None if said is None else read_hosts(said),
            binding=f"Write {{host}} into the file {folder / HOSTS_KEY}.",
        )


def _read_files(folder: Path) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") or not file.is_file():
            continue
        try:
            with file.open("rb") as opened:
                found[file.name] = opened.read(MAX_FILE_BYTES).decode()
        except (OSError, UnicodeDecodeError):
            raise ConfigurationError(
                f"The credential {folder.name} cannot be read: {file.name} is not readable text.",
                hint="Check the file and who may read it.",
            ) from None
    return found


class ApplicationCredentials:
    """The credentials of all Applications, and the webhook secrets that came with them."""

    def __init__(self, vault: CredentialStore, *, local: bool = False) -> None:
        """`local` lets Applications name repositories on this machine."""
        self._vault = vault
        self._local = local
        self._webhooks: dict[ApplicationId, Secret] = {}

    async def credential_of(self, application: Application) -> GitCredential:
        """Return how to reach the repository of an Application, as it is now."""
        name = application.spec.source.credentials
        if name is None:
            self._webhooks.pop(application.id, None)
            return NO_GIT_CREDENTIAL
        stored = await self._vault.read(application, name)
        values = stored.values
        hook = values.get(WEBHOOK_KEY, "").strip()
        if hook:
            self._webhooks[application.id] = Secret(hook)
        else:
            self._webhooks.pop(application.id, None)
        token, key = values.get("token", "").strip(), values.get("ssh-privatekey", "")
        if token or key.strip():
            self._check(application, name, stored, "sent there")
        return GitCredential(
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
                hint="Put age identities into it, under any key.",
            )
        self._check(application, name, stored, "used for what is there")
        return Secret("\n".join(lines))

    async def value(self, application: Application, ref: SecretKeyRef) -> Secret:
        """Return one value, such as the address of a channel."""
        values = (await self._vault.read(application, ref.name)).values
        found = values.get(ref.key, "").strip()
        if not found:
            raise ConfigurationError(
                f"{application.id} names the key {ref.key} of {ref.name}, which is not there.",
                hint="Add the key, or correct the name.",
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
            name, stored, parts.hostname or "", port, None, "sent there", HTTP_PORTS
        )

    def _check(
        self, application: Application, name: str, stored: StoredCredential, use: str
    ) -> None:
        """Raise ConfigurationError unless a credential is for the repository of an Application."""
        address = parse_address(application.spec.source.url, local=self._local)
        if address.scheme is not GitScheme.FILE:  # the machine that the controller runs on
            self._refuse_unbound(
                name,
                stored,
                address.host,
                address.port,
                address.path,
                use,
                frozenset({DEFAULT_PORTS[address.scheme]}),
            )

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
            hint=stored.binding.format(host=at),
        )

    @property
    def webhooks(self) -> Mapping[ApplicationId, Secret]:
        """What signs webhooks, for each Application that was fetched with such a secret."""
        return self._webhooks

    def forget(self, application: ApplicationId) -> None:
        """Drop what is known of an Application that is no more."""
        self._webhooks.pop(application, None)
