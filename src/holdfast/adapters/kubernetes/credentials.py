"""Who we are to a cluster: a token, a client certificate, or both.

The connection asks for the identity before each request, so that a rotated token or certificate
is used at once, and says when the cluster did not accept it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.core.errors import ConfigurationError
from holdfast.core.quantity import format_seconds
from holdfast.core.redact import Secret
from holdfast.reconcile.ports import Clock


class RotatedFile:
    """A small file that is read again whenever it has changed.

    While a rotation leaves it unreadable or empty, what was read last still counts.
    """

    def __init__(self, path: Path, *, what: str, source: str) -> None:
        self.path = path
        self._what = what
        self._source = source
        self._stat: tuple[int, int, int] | None = None
        self._content = b""

    def read(self) -> bytes:
        """Return the content. Raises ConfigurationError if it could never be read."""
        try:
            found = self.path.stat()
            stat = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stat != self._stat:
                fresh = self.path.read_bytes()
                if fresh.strip() or not self._content:
                    self._content = fresh
                self._stat = stat
        except OSError as error:
            if not self._content:
                raise ConfigurationError(
                    f"The {self._what} {self.path}, named by {self._source}, cannot be read: "
                    f"{error.strerror}.",
                    hint="Check the path and its permissions.",
                ) from None
        if not self._content.strip():
            raise ConfigurationError(
                f"The {self._what} {self.path}, named by {self._source}, is empty.",
                hint="Wait until it is written, or write it again.",
            )
        return self._content

    def forget(self) -> bool:
        """Read anew next time, also when the file looks the same. True if it has changed."""
        before = self._content
        self._stat = None
        with contextlib.suppress(ConfigurationError):
            self.read()
        return self._content != before


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """A certificate and its key, in PEM."""

    certificate: str
    key: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What one request carries."""

    token: Secret | None = None
    certificate: ClientCertificate | None = None


class KubeCredentials(Protocol):
    """Where identities come from."""

    async def identity(self) -> Identity:
        """Return the identity to use now. Raises ConfigurationError when there is none."""

    def invalidate(self, identity: Identity) -> bool:
        """Drop an identity that the cluster answered with 401. True when trying again may help."""


class FixedCredentials:
    """What a kubeconfig holds in itself; nobody, when it holds nothing."""

    def __init__(self, identity: Identity | None = None) -> None:
        self._identity = identity or Identity()

    async def identity(self) -> Identity:
        """Return the same identity always."""
        return self._identity

    def invalidate(self, identity: Identity) -> bool:
        """Nothing else is known."""
        return False


class FileCredentials:
    """A token, or a certificate and its key, in files that may be replaced at any time."""

    def __init__(
        self,
        *,
        token: RotatedFile | None = None,
        certificate: tuple[RotatedFile, RotatedFile] | None = None,
        fixed: Identity | None = None,
    ) -> None:
        self._token = token
        self._certificate = certificate
        self._fixed = fixed or Identity()

    async def identity(self) -> Identity:
        """Return what the files say now; what they do not give comes from the kubeconfig."""
        token, certificate = self._fixed.token, self._fixed.certificate
        if self._token is not None:
            token = read_token(self._token)
        if self._certificate is not None:
            chain, key = (each.read().decode("utf-8", "replace") for each in self._certificate)
            certificate = ClientCertificate(certificate=chain, key=Secret(key))
        return Identity(token=token, certificate=certificate)

    def invalidate(self, identity: Identity) -> bool:
        """A file that was replaced in the meantime is worth another try."""
        files = [*(self._certificate or ()), *([self._token] if self._token else [])]
        replaced = [each.forget() for each in files]
        return any(replaced)


def read_token(file: RotatedFile) -> Secret:
    """Read a token that can stand in a header. Raises ConfigurationError, without quoting it."""
    return check_token(file.read().decode("utf-8", "replace").strip(), f"The file {file.path}")


def check_token(text: str, where: str) -> Secret:
    """Refuse what would break the header it is sent in."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigurationError(
            f"{where} holds a token with characters that no token has.",
            hint="Get a fresh token; it is one line without spaces.",
        )
    return Secret(text)


EXEC_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EXEC_TIMEOUT = 60.0
"""A program that asks nobody anything has no reason to take longer."""
_KILL_POLL_SECONDS = 0.02
"""Seconds between two checks of a program that was killed."""
_REFRESH_BEFORE = timedelta(seconds=5)
"""Refreshed this long before expiry, so that a request under way stays valid."""


class ExecVariable(msgspec.Struct):
    """One variable that the program gets besides ours."""

    name: str
    value: str = ""


class ExecConfig(msgspec.Struct, rename="camel", kw_only=True):
    """The `exec` part of a kubeconfig's user."""

    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[ExecVariable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: str | None = None


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _ExecStatus | None = None


class ExecCredentials:
    """Runs the program and keeps what it gave until that expires."""

    def __init__(
        self,
        form: ExecConfig,
        *,
        cluster: Mapping[str, Any],  # Any: passed on to the program as JSON
        folder: Path,
        source: str,
        clock: Clock,
        timeout: float = EXEC_TIMEOUT,
    ) -> None:
        if form.api_version not in EXEC_API_VERSIONS:
            raise ConfigurationError(
                f"The exec plugin of {source} speaks {form.api_version or 'no version'}.",
                hint=f"Update the plugin and its kubeconfig to {EXEC_API_VERSIONS[0]}.",
            )
        mode = form.interactive_mode or "IfAvailable"
        terminal = sys.stdin is not None and sys.stdin.isatty()
        if mode not in ("Never", "IfAvailable", "Always") or (mode == "Always" and not terminal):
            raise ConfigurationError(
                f"The exec plugin of {source} wants interactiveMode {mode}, and there is no "
                "terminal.",
                hint="Log in on a terminal, or use another credential here.",
            )
        self._form = form
        self._cluster = dict(cluster)
        self._folder = folder
        self._source = source
        self._clock = clock
        self._timeout = timeout
        self._interactive = terminal and mode != "Never"
        self._lock = asyncio.Lock()
        self._held: Identity | None = None
        self._expires: datetime | None = None

    async def identity(self) -> Identity:
        """Return what the program gave, running it when that is needed."""
        async with self._lock:
            expired = self._expires is not None and self._clock.now() >= self._expires
            if self._held is None or expired:
                self._held = self._identity_in(await self._run())
            return self._held

    def invalidate(self, identity: Identity) -> bool:
        """Run the program anew next time, unless that has already been done."""
        if self._held is identity:
            self._held = None
        return True

    async def _run(self) -> bytes:
        command = self._form.command
        if os.sep in command:
            command = str(self._folder.absolute() / command)
        try:
            process = await asyncio.create_subprocess_exec(
                command,
                *(self._form.args or ()),
                env=self._environment(),
                stdin=None if self._interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # It may say anything, a token too, so it never goes into our logs.
                stderr=None if self._interactive else asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise self._failed(f"cannot be started: {error.strerror}") from None
        try:
            async with asyncio.timeout(self._timeout):
                output, _ = await process.communicate()
        except TimeoutError:
            raise self._failed(f"gave no answer in {format_seconds(self._timeout)}") from None
        finally:
            if process.returncode is None:
                process.kill()
                # Not `wait`, which also waits for the pipe, and what it started may hold that.
                while process.returncode is None:  # noqa: ASYNC110  # there is no event to wait for
                    await asyncio.sleep(_KILL_POLL_SECONDS)
            # The public class has no way to close a pipe that somebody else holds.
            process._transport.close()  # type: ignore[attr-defined]
        if process.returncode:
            raise self._failed(f"ended with status {process.returncode}")
        return output

    def _environment(self) -> dict[str, str]:
        spec: dict[str, object] = {"interactive": self._interactive}
        if self._form.provide_cluster_info:
            spec["cluster"] = self._cluster
        info = {"apiVersion": self._form.api_version, "kind": "ExecCredential", "spec": spec}
        more = {each.name: each.value for each in self._form.env or ()}
        given = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        return {**os.environ, **more, **given}

    def _identity_in(self, output: bytes) -> Identity:
        try:
            found = msgspec.json.decode(output, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._failed("printed something that is no ExecCredential") from None
        if found.kind != "ExecCredential" or found.api_version != self._form.api_version:
            raise self._failed(f"did not answer in {self._form.api_version}")
        status = found.status or _ExecStatus()
        chain, key = status.client_certificate_data, status.client_key_data
        if bool(chain) != bool(key) or not (status.token or chain):
            raise self._failed("gave neither a token nor a certificate with its key")
        expires = status.expiration_timestamp
        if expires is not None and expires.tzinfo is None:
            raise self._failed("gave an expiry without a time zone")
        self._expires = None if expires is None else expires - _REFRESH_BEFORE
        token = None
        if status.token:
            token = check_token(status.token, f"The exec plugin of {self._source}")
        certificate = None
        if chain and key:
            certificate = ClientCertificate(certificate=chain, key=Secret(key))
        return Identity(token=token, certificate=certificate)

    def _failed(self, how: str) -> ConfigurationError:
        advice = f"Run {self._form.command} by hand to see what it says."
        hint = " ".join((self._form.install_hint or "").split())[:300]
        return ConfigurationError(
            f"The exec plugin {self._form.command} of {self._source} {how}.",
            hint=f"{advice} {hint}".strip(),
        )
