"""What a rule of the custom resource is, and the kinds of rule that several fields share.

The rules themselves stand in `rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.errors import Problem
from holdfast.core.quantity import parse_duration, parse_quantity
from holdfast.core.service.spec import InferenceServiceSpec as Spec

DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What must hold between fields: `holds` in Python, `cel` for the API server."""

    field: str
    reason: str
    fix: str
    cel: str
    holds: Callable[[Spec], bool]

    @property
    def problem(self) -> Problem:
        return Problem(field=self.field, reason=self.reason, fix=self.fix)


def seconds_of(value: object) -> float | None:
    """Seconds of a duration; None for what is unset or none."""
    return parse_duration(value) if isinstance(value, str | int | float) else None


def lasts(path: str, *, least: float) -> Rule:
    """A duration that is given lies between its least useful value and a day."""
    # Only those of the health check may be numbers; to ask the others would cost too much.
    value = cel_duration(path) if path.startswith("healthCheck") else f"duration(self.{path})"
    shown = f"{least:g}s" if least >= 1 else f"{least * 1000:g}ms"

    def holds(spec: Spec) -> bool:
        seconds = seconds_of(_at(spec, path))
        return seconds is None or least <= seconds <= DAY

    return Rule(
        field=path,
        reason=f"it is not from {shown} to 24h.",
        fix="Write it like 10s or 1m30s.",
        cel=f"!({given(path)}) || ({value} >= duration('{shown}') && {value} <= duration('24h'))",
        holds=holds,
    )


def positive(name: str) -> Rule:
    """A quantity that is given is above zero."""
    path = f"resources.{name}"

    def holds(spec: Spec) -> bool:
        value = _at(spec, path)
        amount = parse_quantity(value) if isinstance(value, str | int | float) else None
        return amount is None or amount > 0

    return Rule(
        field=path,
        reason="it is not above 0.",
        fix="Write it like 4, 500m or 16Gi, or leave it out.",
        cel=f"!({given(path)}) || quantity(string(self.{path})).isGreaterThan(quantity('0'))",
        holds=holds,
    )


def _at(spec: Spec, path: str) -> object:
    value: object = spec
    for part in path.split("."):
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in part)
        value = None if value is None else getattr(value, snake, None)
    return value


def given(path: str) -> str:
    parts = path.split(".")
    return " && ".join(f"has(self.{'.'.join(parts[: n + 1])})" for n in range(len(parts)))


def cel_duration(path: str) -> str:
    value = f"self.{path}"
    return f"(type({value}) == int ? duration(string({value}) + 'ns') : duration({value}))"
