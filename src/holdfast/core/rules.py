"""Rules that a workload and an InferenceService are held to alike, each said once.

A rule says why a value is refused and what to do; where the value stands is the caller's to say.
Those of a workload alone are in `check.py`, and those of the custom resource in
`service/validation.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Generic, Protocol, TypeVar

from holdfast.core.command import PLACEHOLDERS, unknown_placeholder
from holdfast.core.errors import Problem
from holdfast.core.names import is_slug
from holdfast.core.redact import quote_text
from holdfast.core.scan import safe_name, secret_argument

VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
DEVICE_PATTERN = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
SECRET_KEY_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRule(Generic[T]):
    """What must hold for one value, whatever field it is in."""

    reason: str
    fix: str
    holds: Callable[[T], bool]

    def problems(self, field: str, value: T) -> Iterator[Problem]:
        """Say what is wrong with the value of a field."""
        if not self.holds(value):
            yield Problem(field=field, reason=self.reason, fix=self.fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRule(SharedRule[object]):
    """A rule for the keys of a mapping."""

    def key_problems(self, field: str, held: object) -> Iterator[Problem]:
        """Say which keys are wrong; what is no mapping has none."""
        for name in held if isinstance(held, Mapping) else ():
            yield from self.problems(f"{field}.{safe_name(name)}", name)


class _SecretPlace(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...


class _Bounds(Protocol):
    @property
    def max(self) -> float | None: ...
    @property
    def min(self) -> float | None: ...


class _Scaling(Protocol):
    @property
    def metric(self) -> str | None: ...
    @property
    def target(self) -> float | None: ...
    @property
    def metrics(self) -> object: ...
    @property
    def preset(self) -> str | None: ...


def _has_pattern(pattern: str) -> Callable[[object], bool]:
    compiled = re.compile(pattern[1:-1])
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def scales_once(*, metric: object, target: object, metrics: object, preset: object) -> bool:
    """True where what to scale by is said in one way alone."""
    if metric is not None and (metrics is not None or preset is not None):
        return False
    return target is None or metrics is None or preset is not None


VARIABLE_NAME = KeyRule(
    reason="it is not a variable name.",
    fix="Use letters, digits and underscores, not a digit first.",
    holds=_has_pattern(VARIABLE_PATTERN),
)
DEVICE_NAME = KeyRule(
    reason="it is not the name of an extended resource.",
    fix="Write it with its domain, like amd.com/gpu.",
    holds=_has_pattern(DEVICE_PATTERN),
)
_is_secret_key = _has_pattern(SECRET_KEY_PATTERN)
SECRET_PLACE: SharedRule[_SecretPlace] = SharedRule(
    reason="its name or key is not usable.",
    fix="Use a slug as the name, and letters, digits, dot, dash as the key.",
    holds=lambda ref: (
        isinstance(ref.name, str)
        and is_slug(ref.name)
        and _is_secret_key(ref.key)
        and len(ref.key) <= 253
    ),
)
ANALYSIS_BOUND: SharedRule[_Bounds] = SharedRule(
    reason="it has no bound.",
    fix="Give max, min or both.",
    holds=lambda analysis: analysis.max is not None or analysis.min is not None,
)
SCALED_ONCE: SharedRule[_Scaling] = SharedRule(
    reason="what to scale by is said twice.",
    fix="Give metric and target alone, or list all under metrics; a preset takes metrics beside "
    "it, and target for its own.",
    holds=lambda scale: scales_once(
        metric=scale.metric, target=scale.target, metrics=scale.metrics, preset=scale.preset
    ),
)


# Command lines.


def declared_variables(*groups: object) -> frozenset[str]:
    """The names of what an environment will have, from `env` and `secrets` of any shape."""
    return frozenset(str(name) for held in groups if isinstance(held, Mapping) for name in held)


def placeholder_problems(
    path: str, arguments: Sequence[str], declared: frozenset[str]
) -> Iterator[Problem]:
    """Say that a variable in a line would stay as it is written."""
    unknown = unknown_placeholder(arguments, declared)
    if unknown:
        name = unknown.strip("${}()")
        like = nearest_name(name, (*PLACEHOLDERS, *declared))
        written = f"Write ${{{name}}}." if name in declared else ""
        yield Problem(
            field=path,
            reason=f"nothing fills in {quote_text(unknown)}.",
            fix=written
            or (f"Did you mean ${{{like}}}?" if like else "")
            or "Declare it under env or secrets; of others only ${PORT}, ${HOST} and ${MODEL} are "
            "filled in.",
        )


def clear_secret_problems(path: str, arguments: Sequence[str]) -> Iterator[Problem]:
    """Say that a line has a credential in it."""
    name = secret_argument(arguments)
    if name is not None:
        yield Problem(
            field=path,
            reason=f"{safe_name(name) or 'it'} has a secret in clear.",
            fix="Name a variable for it under secrets. Most backends read one; where a flag is "
            "needed, write $(VARIABLE) here.",
        )


# Shapes.


def shape_problem(field: str, value: object) -> Problem:
    """A nested field got something that is neither its type nor a mapping."""
    return Problem(
        field=field,
        reason=f"a {type(value).__name__} was given.",
        fix="Give a mapping of its fields.",
    )


def unknown_problem(field: str, known: list[str]) -> Problem:
    """A mapping has a key that means nothing."""
    like = nearest_name(field.rpartition(".")[2], known)
    return Problem(
        field=safe_name(field),
        reason="there is no such field.",
        fix=f"Did you mean {like}?" if like else f"Known fields: {', '.join(known)}.",
    )


def nearest_name(text: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that a misspelt text most likely stands for."""
    from difflib import get_close_matches  # only a mistake needs it

    spelt = {name.lower().replace("-", "_"): name for name in known}
    found = get_close_matches(text[:100].lower().replace("-", "_"), spelt, n=1, cutoff=0.7)
    return spelt[found[0]] if found else None


def missing_problem(field: str, kind: type, given: set[str]) -> Problem:
    """A mapping lacks a key that it cannot do without."""
    needed = [
        part.name
        for part in fields(kind)
        if part.default is MISSING and part.default_factory is MISSING and part.name not in given
    ]
    return Problem(
        field=field,
        reason=f"{' and '.join(needed)} must be given.",
        fix=f"Add {', '.join(f'{field}.{name}' for name in needed)}.",
    )
