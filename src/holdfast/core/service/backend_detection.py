"""Tells from a container which inference server it runs, which model, and with which arguments.

The inverse of what `pod` writes, and more tolerant: people start the same servers in many ways.
A command line that says no more than the backend's own is given up for its arguments; any other is
kept as it stands. Called by `importer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.core.backends import BACKENDS, POD_PORT, BackendProfile, backend_profile
from holdfast.core.command import shell_syntax, split_command
from holdfast.core.names import canonical_slug

_SHELLS = ("sh", "bash", "dash", "ash")
_ANY_FLAGS = ("--model", "--model-path", "--model-id", "--hf-repo", "-hf", "-m")
_LOCAL_FLAGS = ("--model", "-m")
_MODEL_VARIABLES = (
    *(name for each in BACKENDS.values() for name in each.model_variables),
    "MODEL_ID",
    "MODEL",
)
_VARIANTS = {each.variant: backend for backend, each in BACKENDS.items() if each.variant}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """What a container is started with, as far as it was understood."""

    backend: str
    model: str | None
    command: tuple[str, ...] | None = None
    """None when the backend's own command does the same."""
    args: tuple[str, ...] = ()
    own: bool = False
    """True when the rest of the line stands after the backend's own command."""
    implied: bool = False
    """True when an entry point that only the image knows gives way to the backend's command."""


def detect_backend(
    command: Sequence[str],
    args: Sequence[str],
    *,
    image: str,
    env: Mapping[str, str],
    backend: str | None = None,
    model: str | None = None,
    ours: bool = False,
) -> ServerCommand:
    """Read one container. `backend` and `model` are what the user or a label said.

    In a rendering of ours, a command that is not the backend's own was declared.
    """
    words = _without_shell([*command, *args])
    kind = backend or _backend(words or [*command, *args], image)
    profile = backend_profile(kind)
    found = model or _model(kind, words or [*command, *args], env)
    implied = not command and bool(profile.command) and _has_entry_point(image, profile)
    declared = ours and len(command) != len(profile.command)
    if words is not None and found is not None and profile.command and not declared:
        rest = _after_own_command(profile, words, found, entered=not command)
        if rest is not None:
            return ServerCommand(
                backend=kind, model=found, args=tuple(rest), own=True, implied=bool(implied)
            )
    return ServerCommand(
        backend=kind,
        model=found,
        command=tuple(_with_model(command, found)) or None,
        args=tuple(_with_model(args, found)),
    )


def flag_values(line: Sequence[str], flag: str) -> list[str] | None:
    """The values that follow a flag, up to the next one; None when it is not there."""
    for place, part in enumerate(line):
        if part.startswith(f"{flag}="):
            return [part.partition("=")[2]]
        if part == flag:
            rest = list(line[place + 1 :])
            end = next((at for at, word in enumerate(rest) if word.startswith("-")), len(rest))
            return rest[:end]
    return None


def without_flag(line: Sequence[str], flag: str, *, values: int) -> list[str]:
    """The line without a flag and so many of its values."""
    kept: list[str] = []
    skip = 0
    for part in line:
        if skip:
            skip -= 1
        elif part == flag:
            skip = values
        elif not part.startswith(f"{flag}="):
            kept.append(part)
    return kept


def _without_shell(words: list[str]) -> list[str] | None:
    """Take `sh -c 'exec program …'` apart, unless it needs the shell. None when it does."""
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return words
    if len(words) != 3 or words[1] not in ("-c", "-ec", "-lc"):
        return None
    try:
        inner = split_command(words[2].strip())
    except ValueError:
        return None
    inner = inner[1:] if inner[:1] == ["exec"] else inner
    # `$(NAME)` is Kubernetes' own; everything else with a dollar is the shell's.
    needs = any("$" in part.replace("$(", "") or ";" in part for part in inner)
    return None if not inner or needs or shell_syntax(inner) else inner


def _backend(words: Sequence[str], image: str) -> str:
    names = [part.rpartition("/")[2] for word in words for part in word.split()]
    for backend, profile in BACKENDS.items():
        if any(name in profile.programs for name in names):
            given = ((backend, name) for name in names)
            return next((_VARIANTS[each] for each in given if each in _VARIANTS), backend)
    path = image.partition("@")[0]
    for backend, profile in BACKENDS.items():
        if any(part in path for part in profile.images):
            return backend
    return canonical_slug(path.rpartition("/")[2].partition(":")[0]) or "custom"


def _model(kind: str, words: Sequence[str], env: Mapping[str, str]) -> str | None:
    parts = [part for word in words for part in word.split()] if len(words) == 3 else list(words)
    for flag in backend_profile(kind).model_flags or _ANY_FLAGS:
        given = flag_values(parts, flag)
        if given:
            return given[0]
    # A slug of one's own that begins with an engine's is taken for a build of it.
    profile = BACKENDS.get(kind) or backend_profile(kind.partition("-")[0])
    for part, following in pairwise(parts):
        if part in profile.model_words and not following.startswith("-"):
            return following.strip("\"'")
    first = parts[0] if parts and profile.model_first else ""
    if "/" in first and not first.startswith("-"):
        program = first.rpartition("/")[2]
        return None if any(name in program for name in profile.programs) else first
    return next((env[name] for name in _MODEL_VARIABLES if env.get(name)), None)


def _has_entry_point(image: str, profile: BackendProfile) -> bool:
    """True unless the image is the very one that the backend's command was written for."""
    return image.partition("@")[0].rpartition(":")[0] != (profile.image or "").rpartition(":")[0]


def _after_own_command(
    profile: BackendProfile, words: list[str], model: str, *, entered: bool
) -> list[str] | None:
    """What follows the backend's own command, or None when the line says something else."""
    program = profile.command[: _program_length(profile)]
    rest = list(words)
    if tuple(rest[: len(program)]) == program:
        rest = rest[len(program) :]
    elif entered:  # the image starts the program
        own = len(profile.entry_words)
        rest = rest[own:] if tuple(rest[:own]) == profile.entry_words else rest
    else:
        return None
    if rest and rest[0] == model:
        rest = rest[1:]
    for flag in profile.model_flags:
        given = flag_values(rest, flag)
        if given and given[0] == model:
            local = profile.local_model_flag is not None and flag in _LOCAL_FLAGS
            if profile.local_model_flag is not None and local != model.startswith("/"):
                return None  # our own command would name the model by the other flag
            rest = without_flag(rest, flag, values=1)
    for fixed in profile.command[len(program) :]:
        if fixed.startswith("--") and fixed not in profile.model_flags:
            rest = without_flag(rest, fixed, values=0)
    return rest


def _program_length(profile: BackendProfile) -> int:
    for place, part in enumerate(profile.command):
        if (part.startswith("-") and part != "-m") or "${MODEL}" in part:
            return place
    return len(profile.command)


def _with_model(line: Sequence[str], model: str | None) -> list[str]:
    """Write the model as `${MODEL}`, so that declaring another one has an effect."""
    return ["${MODEL}" if part == model else part for part in line]


def custom_port(line: Sequence[str]) -> str | None:
    """The port that a line chooses, unless it is the one that pods are asked on."""
    given = flag_values(line, "--port")
    port = given[0] if given else None
    return None if port in (None, str(POD_PORT), "${PORT}") else port
