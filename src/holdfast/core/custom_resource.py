"""What our custom resources have in common: their group, and how values are described and checked.

The fields of a dataclass are read off its types (`schema_fields`), a format says what one value
looks like, a rule what must hold between values. The checks, the JSON form and the schema that the
API server enforces all use the same description, so a field that is added to a type is in all
three.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from holdfast.core.errors import InvalidSpec, Problem
from holdfast.core.quantity import MOMENT_PATTERN, parse_duration
from holdfast.core.rules import shape_problem
from holdfast.core.scan import safe_name, scan_values

GROUP = "holdfast.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One aspect of how an object is doing. `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    """What a text, a number or a list has to look like, in the words of a schema.

    `numeric` texts may also be written as numbers: quantities, and durations.
    `says` ends the sentence "it is not …".
    """

    description: str
    pattern: str | None = None
    numeric: bool = False
    nanoseconds: bool = False
    """A whole number on the wire is one of nanoseconds."""
    minimum: int | None = None
    """For a list, how many items it has at the least."""
    maximum: int | None = None
    max_length: int = 253


Text = Annotated[
    str, ValueFormat(description="a text of 1 to 1000 characters", pattern=r"\S", max_length=1000)
]
Slug = Annotated[
    str,
    ValueFormat(description="a slug", pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63),
]
Argument = Annotated[
    str, ValueFormat(description="a text of at most 8192 characters", max_length=8192)
]
Quantity = Annotated[
    str,
    ValueFormat(
        description="a quantity such as 4, 500m or 16Gi",
        pattern=r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$",
        numeric=True,
        minimum=1,
        max_length=40,
    ),
]
Duration = Annotated[
    str,
    ValueFormat(
        description="a duration such as 30s, 1m30s or 500ms",
        pattern=r"^([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}(\.[0-9]{1,9})?s)?([0-9]{1,9}ms)?$",
        max_length=40,
    ),
]
Count = Annotated[
    int, ValueFormat(description="a whole number from 1 to 1000", minimum=1, maximum=1000)
]
CountOrNone = Annotated[
    int, ValueFormat(description="a whole number from 0 to 1000", minimum=0, maximum=1000)
]
Percent = Annotated[
    int, ValueFormat(description="a percentage from 0 to 100", minimum=0, maximum=100)
]
Moment = Annotated[
    str,
    ValueFormat(
        description="a time such as 2026-11-20T18:00:00Z",
        pattern=MOMENT_PATTERN,
        max_length=40,
    ),
]
ObjectName = Annotated[
    str,
    ValueFormat(
        description="the name of a Kubernetes object",
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
    ),
]


def duration_text(seconds: float) -> str:
    """Write seconds as a duration: 10.0 is `10s`."""
    return f"{Decimal(str(seconds)).normalize():f}s"


MAX_ITEMS = 128
"""In one list: the API server wants a bound to tell what a rule costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    """One kind of value. `item` is what a list or a mapping holds."""

    base: type
    """str, int, float, bool, tuple, Mapping, object for anything, an enum or a dataclass."""
    form: ValueFormat | None = None
    item: ValueType | None = None

    @property
    def is_nested(self) -> bool:
        return is_dataclass(self.base)

    @property
    def is_enum(self) -> bool:
        return issubclass(self.base, StrEnum)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of an enum."""
        return tuple(str(each) for each in self.base) if issubclass(self.base, StrEnum) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """One field: its name in Python, its name on the wire, and its shape."""

    name: str
    wire: str
    shape: ValueType
    required: bool


@lru_cache(maxsize=64)
def schema_fields(kind: type) -> tuple[SchemaField, ...]:
    """Describe the fields of a dataclass, in the order of their declaration."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        SchemaField(
            name=part.name,
            wire=camel_case(part.name),
            shape=_value_type(hints[part.name]),
            required=part.default is MISSING and part.default_factory is MISSING,
        )
        for part in fields(kind)
    )


def camel_case(name: str) -> str:
    """`min_replicas` is `minReplicas` on the wire."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _value_type(hint: Any) -> ValueType:  # Any: a type expression has no type of its own
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _value_type(next(part for part in parts if part is not type(None)))
    if origin is Annotated:
        return replace(_value_type(parts[0]), form=parts[1])
    if origin is tuple:
        return ValueType(base=tuple, item=_value_type(parts[0]))
    if origin is Mapping:
        return ValueType(base=Mapping, item=_value_type(parts[1]))
    return ValueType(base=hint)


Spec = TypeVar("Spec")
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRule(Generic[Spec]):
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


ValidationRules = Mapping[
    type, Sequence[ValidationRule[Any]]
]  # Any: each type has rules of its own
"""The rules of each type that a resource is made of; `self` and `field` are relative to it."""


def broken_rules(value: object, rules: ValidationRules, path: str = "") -> Iterator[Problem]:
    """Yield a problem for each rule that does not hold, anywhere inside a value."""
    for rule in rules.get(type(value), ()):
        if not rule.holds(value):
            field = f"{path}.{rule.field}".strip(".")
            yield Problem(field=field, reason=rule.reason, fix=rule.fix)
    if isinstance(value, tuple | list):
        for place, item in enumerate(value):
            yield from broken_rules(item, rules, f"{path}[{place}]")
    elif is_dataclass(value):
        kind: type = type(value)
        for part in schema_fields(kind):
            yield from broken_rules(
                getattr(value, part.name), rules, f"{path}.{part.wire}".strip(".")
            )


def seconds_of(value: object) -> float | None:
    """Seconds of a duration; None for what is unset or none."""
    return parse_duration(value) if isinstance(value, str | int | float) else None


def duration_rule(
    path: str, *, least: float, most: float = DAY_SECONDS, numeric: bool = False
) -> ValidationRule[Spec]:
    """A duration that is given lies between two that are useful."""
    # Only some may be numbers; to ask for it everywhere would cost too much.
    value = cel_duration(path) if numeric else f"duration(self.{path})"
    low, high = format_duration(least), format_duration(most)

    def holds(spec: Spec) -> bool:
        seconds = seconds_of(field_value(spec, path))
        return seconds is None or least <= seconds <= most

    return ValidationRule(
        field=path,
        reason=f"it is not from {low} to {high}.",
        fix="Write it like 10s or 1m30s.",
        cel=f"!({cel_is_set(path)}) || "
        f"({value} >= duration('{low}') && {value} <= duration('{high}'))",
        holds=holds,
    )


def format_duration(seconds: float) -> str:
    """Write a limit in the largest unit that it has a whole number of."""
    for unit, length in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds * 1000:g}ms"


def field_value(spec: object, path: str) -> object:
    """Return what stands at a path of wire names; None where something on the way is unset."""
    value: object = spec
    for part in path.split("."):
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in part)
        value = None if value is None else getattr(value, snake, None)
    return value


def cel_is_set(path: str) -> str:
    """CEL for "this field and all around it are set"."""
    parts = path.split(".")
    return " && ".join(f"has(self.{'.'.join(parts[: n + 1])})" for n in range(len(parts)))


def cel_duration(path: str) -> str:
    """CEL for the duration at a path that may be a number of nanoseconds."""
    value = f"self.{path}"
    return f"(type({value}) == int ? duration(string({value}) + 'ns') : duration({value}))"


def raise_problems(kind: str, found: list[Problem]) -> None:
    """Raise InvalidSpec with everything that is wrong, unless nothing is."""
    if found:
        count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
        raise InvalidSpec(f"The {kind} has {count}.", problems=found)


def format_problems(kind: type, spec: object, *, wire: bool = True) -> list[Problem]:
    """Every value that is not of its type, or does not look as it should.

    Its fields are named as on the wire, or as in Python.
    """
    return list(_field_problems(kind, spec, "", wire=wire))


def content_problems(kind: type, spec: object) -> Iterator[Problem]:
    """What must not be in any value: credentials, strange characters, too much of anything."""
    return scan_values((part.wire, getattr(spec, part.name)) for part in schema_fields(kind))


def without_reported(found: Iterable[Problem], reported: Sequence[Problem]) -> list[Problem]:
    """Leave out problems of fields that have one already."""
    seen = {each.field for each in reported}
    return [each for each in found if each.field not in seen]


def has_right_types(problems: list[Problem]) -> bool:
    """True when all parts are of the types that they should be, so that rules can be asked."""
    return not any("was given" in each.reason for each in problems)


def is_well_typed(kind: type, spec: object) -> bool:
    """True when every single value is of its type, whatever it looks like."""
    return not any(_field_problems(kind, spec, "", forms=False))


def matches_pattern(pattern: str, text: str) -> bool:
    """True when a text has a pattern, as the API server sees it: `$` is the very end."""
    return _compile_pattern(pattern).search(text) is not None


@lru_cache(maxsize=256)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\$$", r"\\Z", pattern))


def _field_problems(
    kind: type, value: object, path: str, *, forms: bool = True, wire: bool = True
) -> Iterator[Problem]:
    for part in schema_fields(kind):
        given = getattr(value, part.name)
        field = f"{path}{part.wire if wire else part.name}"
        if given is not None:
            yield from _value_problems(part.shape, given, field, forms=forms, wire=wire)
        elif part.required:
            yield Problem(field=field, reason="it is missing.", fix=f"Give {field}.")


def _value_problems(
    shape: ValueType, value: object, path: str, *, forms: bool, wire: bool
) -> Iterator[Problem]:
    if shape.is_nested:
        if isinstance(value, shape.base):
            yield from _field_problems(shape.base, value, f"{path}.", forms=forms, wire=wire)
        else:
            yield shape_problem(path, value)
    elif shape.base is tuple:
        if not isinstance(value, tuple | list):
            yield Problem(
                field=path, reason=f"a {type(value).__name__} was given.", fix="Give a list."
            )
        elif not value and shape.form is not None:
            yield Problem(field=path, reason="it is empty.", fix="Leave it out instead.")
        elif len(value) > MAX_ITEMS:
            yield Problem(field=path, reason=f"it has over {MAX_ITEMS} items.", fix="Give fewer.")
        elif shape.item:
            for place, item in enumerate(value):
                where = f"{path}[{place}]"
                yield from _value_problems(shape.item, item, where, forms=forms, wire=wire)
    elif shape.base is Mapping:
        if not isinstance(value, Mapping):
            yield shape_problem(path, value)
        elif shape.item:
            for name, item in value.items():
                where = f"{path}.{safe_name(name)}"
                yield from _value_problems(shape.item, item, where, forms=forms, wire=wire)
    else:
        yield from _leaf_problems(shape if forms else replace(shape, form=None), value, path)


def _leaf_problems(shape: ValueType, value: object, path: str) -> Iterator[Problem]:
    says = shape.form.description if shape.form else _type_description(shape)
    if not _has_format(shape, value):
        yield Problem(field=path, reason=f"it is not {says}.", fix="Correct the value.")


def _type_description(shape: ValueType) -> str:
    if shape.is_enum:
        return "one of " + ", ".join(shape.choices)
    return {str: "a text", float: "a number", int: "a whole number", bool: "true or false"}.get(
        shape.base, "a plain value"
    )


def _has_format(shape: ValueType, value: object) -> bool:
    if shape.is_enum:
        return isinstance(value, str) and str(value) in shape.choices
    if shape.base is object:
        return True
    if shape.base in (int, float):
        accepted = int if shape.base is int else int | float
        if not isinstance(value, accepted) or isinstance(value, bool):
            return False
        low = shape.form.minimum if shape.form else None
        high = shape.form.maximum if shape.form else None
        number = float(value)
        return (low is None or number >= low) and (high is None or number <= high)
    if not isinstance(value, shape.base):
        return False
    form = shape.form
    if form is None or not isinstance(value, str):
        return True
    # A pattern that may match nothing at all is one whose parts are each optional.
    return len(value) <= form.max_length and (
        form.pattern is None or (value != "" and matches_pattern(form.pattern, value))
    )
