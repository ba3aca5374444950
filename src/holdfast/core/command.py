"""Reads a command line as a command line.

Drift in a command restarts GPUs, so `--a=b` and `--a b` are equal and the order of flags
does not matter; the order of positionals does. Values of one repeated flag keep their order.
"""

from __future__ import annotations

import re
import shlex
from functools import lru_cache

from holdfast.core.tree import Fields, Tree

_SWITCHES = frozenset(
    "--trust-remote-code --enforce-eager --metrics --embeddings --embedding --rerank --reranking"
    " --verbose --quiet --debug --help --version --jinja --mlock --cont-batching"
    " --skip-tokenizer-init --async-scheduling".split()
)
_SWITCH_PREFIXES = ("--enable-", "--disable-", "--no-", "--use-", "--is-")
_FLAG = re.compile(r"-{1,2}[A-Za-z]")
_SHELL = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "<<"})


def split_command(text: str) -> list[str]:
    """Split into arguments as a shell would quote them. Raises ValueError when unbalanced.

    A line that ends in a backslash goes on in the next one.
    """
    return list(_split(text))


@lru_cache(maxsize=256)
def _split(text: str) -> tuple[str, ...]:
    """Kept for a while: `shlex` is slow, and one line is split to be checked and compared."""
    return tuple(shlex.split(text.replace("\\\n", "")))


def shell_syntax(arguments: list[str]) -> str | None:
    """Return the first argument that only a shell would understand, or None."""
    return next((part for part in arguments if part in _SHELL or part.startswith("$(")), None)


def canonical_command(text: str) -> Fields:
    """Give equal command lines equal forms: positionals by number, flags by name.

    Which flags take no value cannot be known in general. The common switches are known by
    name; any other flag takes the next argument unless that looks like a flag itself.
    """
    try:
        arguments = split_command(text)
    except ValueError:
        return {"0": text}
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
        name, equals, value = part.partition("=")
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
