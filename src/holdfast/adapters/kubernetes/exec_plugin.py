"""Credentials from a program that the kubeconfig names (client.authentication.k8s.io).

Cloud providers hand out their tokens this way. The program runs when an identity is first needed,
when the one it gave has expired, and when the cluster did not accept it; never twice at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from holdfast.adapters.kubernetes.credentials import ClientCertificate, Identity, checked_token
from holdfast.core.errors import ConfigurationError
from holdfast.core.quantity import shown_seconds
from holdfast.core.redact import Secret
from holdfast.reconcile.ports import Clock

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
TIMEOUT = 60.0
"""A program that asks nobody anything has no reason to take longer."""
_LOOK = 0.02
"""Seconds between two looks at a program that was killed."""
_EARLY = timedelta(seconds=5)
"""Refreshed this long before expiry, so that a request under way stays valid."""


class ExecVariable(msgspec.Struct):
    """One variable that the program gets besides ours."""

    name: str
    value: str = ""


class ExecForm(msgspec.Struct, rename="camel", kw_only=True):
    """The `exec` part of a kubeconfig's user."""

    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[ExecVariable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _Credential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecCredentials:
    """Runs the program and keeps what it gave until that expires."""

    def __init__(
        self,
        form: ExecForm,
        *,
        cluster: Mapping[str, Any],  # Any: passed on to the program as JSON
        folder: Path,
        source: str,
        clock: Clock,
        timeout: float = TIMEOUT,
    ) -> None:
        if form.api_version not in VERSIONS:
            raise ConfigurationError(
                f"The exec plugin of {source} speaks {form.api_version or 'no version'}.",
                todo=f"Update the plugin and its kubeconfig to {VERSIONS[0]}.",
            )
        mode = form.interactive_mode or "IfAvailable"
        terminal = sys.stdin is not None and sys.stdin.isatty()
        if mode not in ("Never", "IfAvailable", "Always") or (mode == "Always" and not terminal):
            raise ConfigurationError(
                f"The exec plugin of {source} wants interactiveMode {mode}, and there is no "
                "terminal.",
                todo="Log in on a terminal, or use another credential here.",
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

    def rejected(self, identity: Identity) -> bool:
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
            raise self._failed(f"gave no answer in {shown_seconds(self._timeout)}") from None
        finally:
            if process.returncode is None:
                process.kill()
                # Not `wait`, which also waits for the pipe, and what it started may hold that.
                while process.returncode is None:  # noqa: ASYNC110  # nothing else tells
                    await asyncio.sleep(_LOOK)
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
        told = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        return {**os.environ, **more, **told}

    def _identity_in(self, output: bytes) -> Identity:
        try:
            found = msgspec.json.decode(output, type=_Credential)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._failed("printed something that is no ExecCredential") from None
        if found.kind != "ExecCredential" or found.api_version != self._form.api_version:
            raise self._failed(f"did not answer in {self._form.api_version}")
        status = found.status or _Status()
        chain, key = status.client_certificate_data, status.client_key_data
        if bool(chain) != bool(key) or not (status.token or chain):
            raise self._failed("gave neither a token nor a certificate with its key")
        expires = status.expiration_timestamp
        if expires is not None and expires.tzinfo is None:
            raise self._failed("gave an expiry without a time zone")
        self._expires = None if expires is None else expires - _EARLY
        token = None
        if status.token:
            token = checked_token(status.token, f"The exec plugin of {self._source}")
        certificate = None
        if chain and key:
            certificate = ClientCertificate(certificate=chain, key=Secret(key))
        return Identity(token=token, certificate=certificate)

    def _failed(self, how: str) -> ConfigurationError:
        todo = f"Run {self._form.command} by hand to see what it says."
        hint = " ".join((self._form.install_hint or "").split())[:300]
        return ConfigurationError(
            f"The exec plugin {self._form.command} of {self._source} {how}.",
            todo=f"{todo} {hint}".strip(),
        )
