"""Reads a command line as a command line.

Drift in a command restarts GPUs, so `--a=b` and `--a b` are equal and the order of flags
does not matter; the order of positionals does. Values of one repeated flag keep their order.
The spellings that a backend takes for one flag are one flag here too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache

from holdfast.core.backends import BACKENDS, BackendProfile
from holdfast.core.scan import MAX_TEXT
from holdfast.core.tree import Fields, Tree

_SWITCHES = frozenset(
    "--trust-remote-code --enforce-eager --metrics --embeddings --embedding --rerank --reranking"
    " --verbose --quiet --debug --help --version --jinja --mlock --cont-batching"
    " --skip-tokenizer-init --async-scheduling".split()
)
_SWITCH_PREFIXES = ("--enable-", "--disable-", "--no-", "--use-", "--is-")
_FLAG = re.compile(r"-{1,2}[A-Za-z]")
PLACEHOLDERS = ("PORT", "HOST", "MODEL")
"""What is filled in, written `${PORT}`, where a command runs."""
_PLACEHOLDER = re.compile(
    r"(?<!\$)\$(?:\{(?P<ours>[A-Za-z_][A-Za-z0-9_]*)\}|\((?P<kubelet>[A-Za-z_][A-Za-z0-9_]*)\))"
)
"""`${NAME}`, and `$(NAME)` as Kubernetes writes it. `$$(NAME)` is a text."""
_VARIABLE = re.compile(r"(?:-[^=]*=)?\$([A-Za-z_][A-Za-z0-9_]*)")
"""A whole value written as a shell would fill it in."""
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_BY_PROGRAM = {
    program: backend
    for backend in BACKENDS.values()
    if backend.flag_aliases
    for program in backend.programs
}
_BY_MODULE = [(f"{each.python_module}.", each) for each in BACKENDS.values() if each.python_module]
_OTHER = BackendProfile()
_SHELL_OPERATORS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "<<"})


def split_command(text: str) -> list[str]:
    """Split into arguments as a shell would quote them. Raises ValueError when unbalanced or far
    too long.

    A line that ends in a backslash goes on in the next one.
    """
    if len(text) > MAX_TEXT:
        raise ValueError("the command line is too long")  # `shlex` takes quadratic time
    return list(_split(text))


@lru_cache(maxsize=256)
def _split(text: str) -> tuple[str, ...]:
    """Kept for a while: `shlex` is slow, and one line is split to be checked and compared."""
    return tuple(shlex.split(text.replace("\\\n", "")))


def shell_syntax(arguments: list[str]) -> str | None:
    """Return the first argument that only a shell would understand, or None."""
    return next(
        (part for part in arguments if part in _SHELL_OPERATORS or _is_substitution(part)), None
    )


def _is_substitution(part: str) -> bool:
    """True for `$(cat file)`; `$(NAME)` is a variable."""
    return part.startswith("$(") and not _PLACEHOLDER.match(part)


def unknown_placeholder(arguments: Sequence[str], declared: Container[str] = ()) -> str | None:
    """Return the first `${NAME}`, `$(NAME)` or `$NAME` that nothing fills in, or None.

    `declared` has the names of the variables that the environment will have.
    """
    if is_script(arguments):
        return None
    for part in arguments:
        bare = _VARIABLE.fullmatch(part)
        if bare:
            return f"${bare[1]}"
        for found in _PLACEHOLDER.finditer(part):
            name = found["ours"] or found["kubelet"]
            if name not in PLACEHOLDERS and name not in declared:
                return found[0]
    return None


def is_script(arguments: Sequence[str]) -> bool:
    """True for a shell that gets a script by `-c`: what is in it is the shell's to fill in."""
    if not arguments or _program_name(arguments[0]) not in _SHELLS:
        return False
    return any(re.fullmatch(r"-[a-z]*c", part) for part in arguments[1:])


def fill_placeholders(part: str, values: Mapping[str, str]) -> str:
    """Put the values of variables in the place of `${NAME}` and `$(NAME)`; others stay."""

    def value(found: re.Match[str]) -> str:
        return values.get(found["ours"] or found["kubelet"], found[0])

    return _PLACEHOLDER.sub(value, part)


def to_kubelet_syntax(part: str, declared: Container[str]) -> str:
    """Write `${NAME}` of a declared variable as `$(NAME)`, which the kubelet fills in."""

    def reference(found: re.Match[str]) -> str:
        name = found["ours"]
        return f"$({name})" if name and name in declared else found[0]

    return _PLACEHOLDER.sub(reference, part)


def leading_variable(arguments: Sequence[str]) -> str | None:
    """Return the variable of a line like `FOO=1 program`, which only a shell would set."""
    found = _ASSIGNED.match(arguments[0]) if arguments else None
    return found[1] if found else None


def canonical_command(text: str) -> Fields:
    """Give equal command lines equal forms: positionals by number, flags by name.

    Which flags take no value cannot be known in general. The common switches are known by
    name; any other flag takes the next argument unless that looks like a flag itself.
    """
    try:
        arguments = split_command(text)
    except ValueError:
        return {"0": text}
    backend = _backend(arguments)
    flags: dict[str, list[Tree]] = {}
    positionals: list[str] = []
    index = 0
    while index < len(arguments):
        part = arguments[index]
        index += 1
        if part == "--":
            positionals.extend(arguments[index - 1 :])
            break
        if not _FLAG.match(part):
            positionals.append(part)
            continue
        given, equals, value = part.partition("=")
        name = _canonical_flag(given, backend)
        if equals:
            flags.setdefault(name, []).append(value)
        elif index < len(arguments) and _takes_value(name) and not _FLAG.match(arguments[index]):
            flags.setdefault(name, []).append(arguments[index])
            index += 1
        else:
            flags.setdefault(name, []).append(True)
    canonical: Fields = {str(place): part for place, part in enumerate(positionals)}
    for name in sorted(flags):
        values = flags[name]
        canonical[name] = values[0] if len(values) == 1 else values
    return canonical


def _takes_value(name: str) -> bool:
    return name not in _SWITCHES and not name.startswith(_SWITCH_PREFIXES)


def _backend(arguments: Sequence[str]) -> BackendProfile:
    """Say which backend a line starts, as far as its flags are known."""
    for part in arguments[:4]:  # `python3 -m sglang.launch_server`, `env vllm serve`
        if (backend := _BY_PROGRAM.get(_program_name(part))) is not None:
            return backend
        for prefix, backend in _BY_MODULE:
            if part.startswith(prefix):
                return backend
    return _OTHER


def _program_name(part: str) -> str:
    return part.rpartition("/")[2]


def _canonical_flag(flag: str, backend: BackendProfile) -> str:
    if backend.ignores_underscores and flag.startswith("--"):
        flag = flag.replace("_", "-")
    return backend.flag_aliases.get(flag, flag)
