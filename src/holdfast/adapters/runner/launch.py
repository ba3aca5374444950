"""Makes the command line and the environment of a replica.

The environment is built from nothing: a child gets what a program needs to run, what was
declared and its secrets, and never what the server itself was given.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.adapters.runner.run_spec import DesiredRun, ReplicaGroup
from holdfast.adapters.runner.secrets import SecretFolder, SecretMissing
from holdfast.core.backends import BACKENDS, BackendProfile
from holdfast.core.command import fill_placeholders, is_script, split_command, unknown_placeholder
from holdfast.core.engine_report import DeclaredRuntime, read_declaration
from holdfast.core.lora import LoraAdapter, adapter_flags
from holdfast.core.normalize import normalize_workload
from holdfast.core.redact import Secret, names_a_secret
from holdfast.core.tree import Fields, Tree, digest

LOOPBACK = "127.0.0.1"
MARKER = "HOLDFAST_REPLICA"
"""Set in every child and inherited by its children, so that none can be lost sight of."""

_PASSED_VARIABLES = frozenset(
    "PATH HOME LANG LANGUAGE TMPDIR TZ USER LOGNAME SHELL LD_LIBRARY_PATH XDG_CACHE_HOME"
    " SSL_CERT_FILE SSL_CERT_DIR OMP_NUM_THREADS".split()
)
_PASSED_PREFIXES = (
    "LC_", "CUDA_", "NVIDIA_", "HF_", "HUGGINGFACE_", "HIP_", "ROCR_", "ROCM_",
    *(each.inherited_prefix for each in BACKENDS.values() if each.inherited_prefix),
)  # fmt: skip


class LaunchRefused(Exception):
    """A replica cannot be started as declared. The text is for people and holds no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What is needed to start one replica, once it has a port."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    secrets: Mapping[str, Secret]
    backend: BackendProfile
    model: str
    revision: str
    generation: int = 0
    fields: Fields = field(default_factory=dict)
    """What the group's replicas are started from."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Of the secrets, by name."""
    refused: str | None = None
    """Why it cannot be started at all."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the environment, what the workload itself declares."""
    adapters: tuple[LoraAdapter, ...] | None = None

    @property
    def takes_port(self) -> bool:
        """True when the program gets its port in a way that it is known to read."""
        given = (*self.command, *self.env.values())
        return self.backend.address_flags or any("${PORT}" in text for text in given)

    def argv(self, port: int) -> list[str]:
        """Return the arguments, with the program's full path first."""
        if self.refused:
            raise LaunchRefused(self.refused)
        unknown = unknown_placeholder(self.command, self.variables)
        if unknown:
            raise LaunchRefused(
                f"{unknown} in the command is not filled in: only PORT, HOST, MODEL and variables "
                "of env are, since everybody on this machine can read a command line. A backend "
                "reads its secrets from its environment."
            )
        argv = [self._filled(part, port) for part in self.command]
        if not is_script(self.command):
            argv = [fill_placeholders(part, self.variables) for part in argv]
        if self.backend.address_flags:
            argv += [] if _has_flag(argv, "--host") else ["--host", LOOPBACK]
            argv += [] if _has_flag(argv, "--port") else ["--port", str(port)]
        program = shutil.which(argv[0], path=self.env.get("PATH", os.defpath))
        if program is None:
            raise LaunchRefused(f"Program {argv[0]!r} was not found on this machine.")
        return [os.path.abspath(program), *argv[1:]]

    def declared_runtime(self, port: int) -> DeclaredRuntime:
        """What the process is to serve, as its own command line says it."""
        return read_declaration(
            self.argv(port), self.backend, model=self.model, adapters=self.adapters
        )

    def environment(self, port: int, marker: str) -> dict[str, str]:
        """Return the whole environment of the child. Holds secrets: pass it on, keep no copy."""
        env = {name: self._filled(value, port) for name, value in self.env.items()}
        env |= {name: secret.reveal() for name, secret in self.secrets.items()}
        return env | {"HOST": LOOPBACK, "PORT": str(port), MARKER: marker}

    def _filled(self, text: str, port: int) -> str:
        return fill_placeholders(text, {"PORT": str(port), "HOST": LOOPBACK, "MODEL": self.model})


def make_launch(
    desired: DesiredRun,
    group: ReplicaGroup,
    *,
    secrets: SecretFolder,
    key: bytes,
    inherited: Mapping[str, str],
) -> Launch:
    """Say how the replicas of a group start, and give that a revision.

    The revision covers the secrets by their fingerprints, so that a rotated one is a change like
    any other. Fields are compared in canonical form: an order of flags restarts nothing.
    """
    fields, backend = group.fields, desired.backend
    refused, values = None, dict[str, Secret]()
    refs = fields.get("secrets")
    try:
        values = secrets.read(desired.spec.id.project, refs if isinstance(refs, dict) else {})
    except SecretMissing as missing:
        refused = f"{missing} The replica was not started; put the secret in place."
    fingerprints = {name: secret.fingerprint(key) for name, secret in values.items()}
    command, problem = _command_of(fields.get("command"), fields, backend)
    given = fields.get("env")
    declared = {k: str(v) for k, v in given.items()} if isinstance(given, dict) else {}
    revision = digest([normalize_workload(fields), {**fingerprints}, refused])
    return Launch(
        command=tuple(command),
        env=base_environment(inherited) | declared | dict(backend.env),
        variables=declared,
        secrets=values,
        backend=backend,
        model=str(fields.get("model", "")),
        revision=revision.removeprefix("sha256:")[:16],
        generation=desired.spec.generation,
        fields=fields,
        fingerprints=fingerprints,
        refused=problem or refused,
        adapters=None if fields.get("adapters") is None else tuple(_adapters_of(fields)),
    )


def base_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Keep what any program needs; leave behind what may be the server's own secret."""
    return {
        name: value
        for name, value in inherited.items()
        if (name in _PASSED_VARIABLES or name.startswith(_PASSED_PREFIXES))
        and not names_a_secret(name)
    }


def _command_of(
    text: Tree, fields: Mapping[str, Tree], backend: BackendProfile
) -> tuple[list[str], str | None]:
    adapters = adapter_flags(_adapters_of(fields), backend)
    if isinstance(text, str):
        try:
            return [*_replace_address(split_command(text), backend), *adapters], None
        except ValueError:
            return [], "The command has a quote that is not closed."
    if fields.get("image"):
        return [], "An image needs a container engine, and this machine runs commands only."
    command = backend.process_command or backend.command
    if not command:
        return [], "The workload has no command, and its backend has no usual one."
    extra = fields.get("args")
    more = [str(part) for part in extra] if isinstance(extra, list) else []
    revision = fields.get("model_revision")
    if isinstance(revision, str) and backend.revision_flag:
        more = [backend.revision_flag, revision, *more]
    return _replace_address([*command, *adapters, *more], backend), None


def _adapters_of(fields: Mapping[str, Tree]) -> list[LoraAdapter]:
    held = fields.get("adapters")
    return [
        LoraAdapter(
            name=str(each.get("name")),
            source=str(each.get("source")),
            scale=scale if isinstance(scale := each.get("scale"), int | float) else None,
        )
        for each in (held if isinstance(held, list) else [])
        if isinstance(each, dict)
    ]


def _replace_address(argv: list[str], backend: BackendProfile) -> list[str]:
    """Put our address where the command names one of its own.

    Two revisions run side by side during a change, so a fixed port cannot be kept; and a
    backend is reached through the proxy alone, so it listens on loopback.
    """
    argv = list(argv)
    names = {"--port": "${PORT}"} | ({"--host": "${HOST}"} if backend.address_flags else {})
    for index, part in enumerate(argv):
        name, equals, _ = part.partition("=")
        if name not in names:
            continue
        if equals:
            argv[index] = f"{name}={names[name]}"
        elif index + 1 < len(argv):
            argv[index + 1] = names[name]
    return argv


def _has_flag(argv: list[str], flag: str) -> bool:
    return any(part == flag or part.startswith(f"{flag}=") for part in argv)
