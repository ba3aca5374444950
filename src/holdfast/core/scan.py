"""Looks at every value of a declaration, at any depth, for what must not be in it.

Credentials, control characters, numbers that do not fit, values of strange types, and trees
too deep or too large to be meant. Called by `check`, before anything else walks the values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from types import NoneType

from holdfast.core.errors import Problem
from holdfast.core.redact import (
    assigned_secret_in,
    credential_in,
    is_reference,
    names_a_password,
    names_a_secret,
    redact,
)

MAX_TEXT = 65_536
MAX_DEPTH = 32
MAX_VALUES = 10_000
"""In one declaration: a few lines of YAML with aliases can stand for billions."""
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)

_PLAIN = re.compile(r"(?i)[0-9]{1,7}|true|false|yes|no|on|off|none|null|auto")
"""What no credential is."""


def scan_values(named: Iterable[tuple[str, object]]) -> Iterator[Problem]:
    """Yield the problems of all values, given with the names of their fields."""
    values = (each for name, value in named for each in _walk_values(name, value, 0))
    for count, (path, value, depth) in enumerate(values):
        if count >= MAX_VALUES:
            yield Problem(
                field=path, reason=f"there are over {MAX_VALUES} values.", fix="Declare fewer."
            )
            return
        yield from _value_problems(path, value, depth)


def oversize_problem(named: Iterable[tuple[str, object]]) -> Problem | None:
    """Say that a declaration is too large to be looked at any further; None when it is not.

    Costs a bounded amount of work, whatever is given. Everything else that walks a declaration
    relies on it.
    """
    count = 0
    waiting: list[tuple[object, int]] = []
    for name, value in named:
        count += 1
        waiting.append((value, 0))
        while waiting and count <= MAX_VALUES:
            item, depth = waiting.pop()
            inner: Iterable[object] = ()
            if isinstance(item, Mapping):
                inner = item.values()
            elif isinstance(item, list | tuple):
                inner = item
            elif is_dataclass(item):
                inner = [getattr(item, part.name) for part in fields(item)]
            if depth > MAX_DEPTH:
                return Problem(
                    field=safe_name(name),
                    reason=f"it is nested over {MAX_DEPTH} deep.",
                    fix="Flatten it.",
                )
            if inner:
                count += len(item) if isinstance(item, Mapping | list | tuple) else 0
                if count <= MAX_VALUES:
                    waiting.extend((each, depth + 1) for each in inner)
        if count > MAX_VALUES:
            return Problem(
                field=safe_name(name),
                reason=f"there are over {MAX_VALUES} values.",
                fix="Declare fewer.",
            )
    return None


def safe_name(name: object) -> str:
    """Write someone's own field name into a problem: no credential, ASCII alone, not too long."""
    text = redact(str(name)) if isinstance(name, str | bool | int | float) else "?"
    return ascii(text[:120])[1:-1]


def looks_secret(name: str, value: str) -> bool:
    """True for a value under a name that usually holds a credential, however short it is.

    A switch or a number is none, except as a password: `USE_AUTH_TOKEN: "1"` tells nothing.
    """
    if not value or not names_a_secret(name) or is_reference(value):
        return False
    return names_a_password(name) or not _PLAIN.fullmatch(value)


def secret_argument(arguments: Sequence[str]) -> str | None:
    """Return the flag or variable of a command line that has a secret in clear, or None.

    Empty for one that stands in the middle of an argument: a header, or a script.
    """
    for part, after in pairwise([*arguments, ""]):
        name, equals, inline = part.partition("=")
        value = inline if equals else "" if after.startswith("-") else after
        flag = name.startswith("-") or bool(equals)  # `env NAME=value program` is one too
        if flag and names_a_secret(name) and value and not is_reference(value):
            return name
        if assigned_secret_in(part):
            return ""
    return None


def _walk_values(path: str, value: object, depth: int) -> Iterator[tuple[str, object, int]]:
    """Yield every value and every key, down to the first level that is too deep."""
    yield path, value, depth
    if depth > MAX_DEPTH:
        return
    inner: Iterable[tuple[str, object]] = ()
    if isinstance(value, Mapping):
        inner = ((f"{path}.{safe_name(key)}", item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        inner = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    elif is_dataclass(value):
        inner = ((f"{path}.{part.name}", getattr(value, part.name)) for part in fields(value))
    for name, item in inner:
        yield from _walk_values(name, item, depth + 1)


def _value_problems(path: str, value: object, depth: int) -> Iterator[Problem]:
    if depth > MAX_DEPTH:
        yield Problem(
            field=path[:120], reason=f"it is nested over {MAX_DEPTH} deep.", fix="Flatten it."
        )
    elif isinstance(value, str):
        yield from _text_problems(path, value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                yield Problem(field=path, reason="a key is not text.", fix="Quote the key.")
                continue
            yield from _text_problems(f"{path}.{safe_name(key)}", key)
            if isinstance(item, str) and looks_secret(key, item):
                yield Problem(
                    field=f"{path}.{safe_name(key)}",
                    reason="it looks like a secret in clear.",
                    fix="Put it under secrets, as VARIABLE: {name: …, key: …}.",
                )
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(field=path, reason="it is not a finite number.", fix="Give a number.")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield Problem(field=path, reason="the number is too large.", fix="Stay within 64 bits.")
    elif not (isinstance(value, int | float | list | tuple | NoneType) or is_dataclass(value)):
        yield Problem(
            field=path,
            reason=f"a {type(value).__name__} cannot be declared.",
            fix="Use text, numbers, lists and mappings.",
        )


def _text_problems(path: str, value: str) -> Iterator[Problem]:
    if len(value) > MAX_TEXT:
        yield Problem(field=path, reason=f"it is over {MAX_TEXT} characters.", fix="Shorten it.")
        return
    kind = credential_in(value) or ("a credential" if assigned_secret_in(value) else None)
    if kind:
        yield Problem(
            field=path,
            reason=f"it looks like {kind}.",
            fix="Keep it out of the spec: refer to it under secrets.",
        )
    if _UNPRINTABLE.search(value):
        yield Problem(
            field=path,
            reason="it has control or direction-changing characters.",
            fix="Remove them; only tab and new line are allowed.",
        )
