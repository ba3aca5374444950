"""Looks at every value of a declaration, at any depth, for what must not be in it.

Credentials, control characters, numbers that do not fit, values of strange types, and trees
too deep or too large to be meant. Called by `check`, before anything else walks the values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType

from holdfast.core.errors import Problem
from holdfast.core.redact import credential_in, is_reference, names_a_secret, redact

MAX_TEXT = 65_536
MAX_DEPTH = 32
MAX_VALUES = 10_000
"""In one declaration: a few lines of YAML with aliases can stand for billions."""
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def scan(named: Iterable[tuple[str, object]]) -> Iterator[Problem]:
    """Yield the problems of all values, given with the names of their fields."""
    values = (each for name, value in named for each in _walk(name, value, 0))
    for count, (path, value, depth) in enumerate(values):
        if count >= MAX_VALUES:
            yield Problem(
                field=path, reason=f"there are over {MAX_VALUES} values.", fix="Declare fewer."
            )
            return
        yield from _problems(path, value, depth)


def shown_name(name: object) -> str:
    """Write someone's own field name into a problem: no credential, ASCII alone, not too long."""
    text = redact(str(name)) if isinstance(name, str | bool | int | float) else "?"
    return ascii(text[:120])[1:-1]


def looks_secret(name: str, value: str) -> bool:
    """True for a value that is long enough, under a name that usually holds a credential."""
    return len(value) >= 8 and names_a_secret(name) and not is_reference(value)


def _walk(path: str, value: object, depth: int) -> Iterator[tuple[str, object, int]]:
    """Yield every value and every key, down to the first level that is too deep."""
    yield path, value, depth
    if depth > MAX_DEPTH:
        return
    inner: Iterable[tuple[str, object]] = ()
    if isinstance(value, Mapping):
        inner = ((f"{path}.{shown_name(key)}", item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        inner = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    elif is_dataclass(value):
        inner = ((f"{path}.{part.name}", getattr(value, part.name)) for part in fields(value))
    for name, item in inner:
        yield from _walk(name, item, depth + 1)


def _problems(path: str, value: object, depth: int) -> Iterator[Problem]:
    if depth > MAX_DEPTH:
        yield Problem(
            field=path[:120], reason=f"it is nested over {MAX_DEPTH} deep.", fix="Flatten it."
        )
    elif isinstance(value, str):
        yield from _text(path, value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                yield Problem(field=path, reason="a key is not text.", fix="Quote the key.")
                continue
            yield from _text(f"{path}.{shown_name(key)}", key)
            if isinstance(item, str) and looks_secret(key, item):
                yield Problem(
                    field=f"{path}.{shown_name(key)}",
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


def _text(path: str, value: str) -> Iterator[Problem]:
    if len(value) > MAX_TEXT:
        yield Problem(field=path, reason=f"it is over {MAX_TEXT} characters.", fix="Shorten it.")
        return
    kind = credential_in(value)
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
