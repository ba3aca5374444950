"""What a rule of a custom resource is, and the kinds of rule that several fields share.

The rules themselves stand beside each resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Generic, TypeVar

from holdfast.core.errors import Problem
from holdfast.core.quantity import parse_duration
from holdfast.core.shapes import members

Spec = TypeVar("Spec")
DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[Spec]):
    """What must hold between fields: `holds` in Python, `cel` for the API server.

    One with an empty `cel` is more than the API server can ask.
    """

    field: str
    reason: str
    fix: str
    cel: str
    holds: Callable[[Spec], bool]

    @property
    def problem(self) -> Problem:
        return Problem(field=self.field, reason=self.reason, fix=self.fix)


Rules = Mapping[type, Sequence[Rule[Any]]]  # Any: each type has rules of its own
"""The rules of each type that a resource is made of; `self` and `field` are relative to it."""


def broken(value: object, rules: Rules, path: str = "") -> Iterator[Problem]:
    """Yield a problem for each rule that does not hold, anywhere inside a value."""
    for rule in rules.get(type(value), ()):
        if not rule.holds(value):
            field = f"{path}.{rule.field}".strip(".")
            yield Problem(field=field, reason=rule.reason, fix=rule.fix)
    if isinstance(value, tuple | list):
        for place, item in enumerate(value):
            yield from broken(item, rules, f"{path}[{place}]")
    elif is_dataclass(value):
        kind: type = type(value)
        for part in members(kind):
            yield from broken(getattr(value, part.name), rules, f"{path}.{part.wire}".strip("."))


def seconds_of(value: object) -> float | None:
    """Seconds of a duration; None for what is unset or none."""
    return parse_duration(value) if isinstance(value, str | int | float) else None


def lasts(path: str, *, least: float, most: float = DAY, numeric: bool = False) -> Rule[Spec]:
    """A duration that is given lies between two that are useful."""
    # Only some may be numbers; to ask for it everywhere would cost too much.
    value = cel_duration(path) if numeric else f"duration(self.{path})"
    low, high = shown_duration(least), shown_duration(most)

    def holds(spec: Spec) -> bool:
        seconds = seconds_of(value_at(spec, path))
        return seconds is None or least <= seconds <= most

    return Rule(
        field=path,
        reason=f"it is not from {low} to {high}.",
        fix="Write it like 10s or 1m30s.",
        cel=f"!({given(path)}) || ({value} >= duration('{low}') && {value} <= duration('{high}'))",
        holds=holds,
    )


def shown_duration(seconds: float) -> str:
    """Write a limit in the largest unit that it has a whole number of."""
    for unit, length in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds * 1000:g}ms"


def value_at(spec: object, path: str) -> object:
    """Return what stands at a path of wire names; None where something on the way is unset."""
    value: object = spec
    for part in path.split("."):
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in part)
        value = None if value is None else getattr(value, snake, None)
    return value


def given(path: str) -> str:
    """CEL for "this field and all around it are set"."""
    parts = path.split(".")
    return " && ".join(f"has(self.{'.'.join(parts[: n + 1])})" for n in range(len(parts)))


def cel_duration(path: str) -> str:
    """CEL for the duration at a path that may be a number of nanoseconds."""
    value = f"self.{path}"
    return f"(type({value}) == int ? duration(string({value}) + 'ns') : duration({value}))"
