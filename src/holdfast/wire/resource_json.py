"""Reads and writes the JSON form of any custom resource of ours, by the shapes of its types.

Unknown fields are refused, not dropped; only what is set is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from holdfast.core.custom_resource import (
    API_VERSION,
    SchemaField,
    ValueType,
    duration_text,
    schema_fields,
)
from holdfast.core.errors import InvalidSpec, Problem
from holdfast.core.rules import shape_problem, unknown_problem
from holdfast.core.tree import Fields, Tree, plain_tree

T = TypeVar("T")


def read_envelope(document: object, kind: str) -> tuple[Mapping[str, object], list[Problem]]:
    """Return a document as a mapping, and what is wrong around its spec. Raises InvalidSpec."""
    if not isinstance(document, Mapping):
        raise InvalidSpec(f"An {kind} is a mapping of fields; this is a {type(document).__name__}.")
    problems = [
        Problem(field=name, reason=f"it is not {wanted}.", fix=f"Write {name}: {wanted}.")
        for name, wanted in (("apiVersion", API_VERSION), ("kind", kind))
        if document.get(name, wanted) != wanted
    ]
    known = ["apiVersion", "kind", "metadata", "spec", "status"]
    problems += [unknown_problem(str(name), known) for name in document if name not in known]
    return document, problems


def read_value(kind: type[T], value: object, path: str, problems: list[Problem]) -> T | None:
    """Build one of our dataclasses from a mapping; None when it cannot be built."""
    if not isinstance(value, Mapping):
        problems.append(shape_problem(path.rstrip(".") or "spec", value))
        return None
    parts = {part.wire: part for part in _schema_fields(kind)}
    problems += [
        unknown_problem(f"{path}{name}", sorted(parts)) for name in value if name not in parts
    ]
    given: dict[str, object] = {}
    missing = False
    for wire, part in parts.items():
        item = value.get(wire)
        if item is not None:
            given[part.name] = _read_part(part.shape, item, f"{path}{wire}", problems)
        elif part.required:
            missing = True
            problems.append(
                Problem(field=f"{path}{wire}", reason="it is missing.", fix=f"Give {path}{wire}.")
            )
    return None if missing else kind(**given)


def without_unknown(kind: type, value: object, path: str = "") -> tuple[object, list[str]]:
    """Leave out the fields of a mapping that one of our dataclasses does not have, and name them.

    For objects that a later version may have written: what is understood of them still counts.
    """
    unknown: list[str] = []
    if not isinstance(value, Mapping):
        return value, unknown
    parts = {part.wire: part.shape for part in _schema_fields(kind)}
    kept: dict[str, object] = {}
    for name, item in value.items():
        if name not in parts:
            unknown.append(f"{path}{name}")
            continue
        kept[name], more = _known_part(parts[name], item, f"{path}{name}")
        unknown += more
    return kept, unknown


def _known_part(shape: ValueType, value: object, path: str) -> tuple[object, list[str]]:
    if shape.is_nested:
        return without_unknown(shape.base, value, f"{path}.")
    if shape.item is None or not isinstance(value, Mapping | list | tuple):
        return value, []
    places = value.items() if isinstance(value, Mapping) else enumerate(value)
    read = [(place, _known_part(shape.item, item, f"{path}[{place}]")) for place, item in places]
    unknown = [name for _, (_, more) in read for name in more]
    if isinstance(value, Mapping):
        return {place: item for place, (item, _) in read}, unknown
    return [item for _, (item, _) in read], unknown


def read_status(kind: type[T], document: object) -> T | None:
    """Read what a controller wrote; fields of a later version are passed over."""
    if not isinstance(document, Mapping):
        return None
    known = {part.wire for part in _schema_fields(kind)}
    ours = {name: value for name, value in document.items() if name in known}
    return read_value(kind, ours, "status.", [])


def raise_problems(problems: list[Problem], validate: Callable[[], None] | None) -> None:
    """Raise InvalidSpec with what reading found and what a check finds, if it is anything.

    A part that could not be built is missing to the check; why it could not is reported already.
    """
    reported = [each.field for each in problems]
    try:
        if validate is not None:
            validate()
    except InvalidSpec as error:
        problems = problems + [
            each
            for each in error.problems
            if not any(field.startswith(f"{each.field}.") for field in reported)
        ]
    if problems:
        raise InvalidSpec(problems=problems)


def json_fields(value: object) -> Fields:
    """The fields of a dataclass that are set, under their wire names."""
    given = ((part.wire, getattr(value, part.name)) for part in _schema_fields(type(value)))
    return {wire: _json_tree(item) for wire, item in given if item is not None}


def int_or_zero(value: object) -> int:
    """A whole number of the metadata; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def string_map(value: object) -> dict[str, str]:
    """Labels or annotations; none for anything else."""
    if not isinstance(value, Mapping):
        return {}
    return {str(name): str(item) for name, item in value.items()}


def metadata_of(document: Mapping[str, object]) -> Mapping[str, object]:
    """The metadata; empty when there are none."""
    found = document.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _schema_fields(kind: type) -> tuple[SchemaField, ...]:
    return schema_fields(kind)


def _read_part(shape: ValueType, value: object, path: str, problems: list[Problem]) -> object:
    """Read what can be read; what has the wrong type is left for the check to name."""
    if shape.is_nested:
        return read_value(shape.base, value, f"{path}.", problems)
    if shape.base is tuple and isinstance(value, list | tuple) and shape.item:
        return _read_items(shape.item, value, path, problems)
    if shape.base is Mapping and isinstance(value, Mapping) and shape.item:
        return {
            str(name): _read_part(shape.item, item, f"{path}.{name}", problems)
            for name, item in value.items()
        }
    if issubclass(shape.base, StrEnum) and value in shape.choices:
        return shape.base(str(value))
    form = shape.form
    if form is None or not form.numeric or isinstance(value, bool):
        return value
    if form.nanoseconds and isinstance(value, int):
        return duration_text(value / 1_000_000_000)
    return str(value) if isinstance(value, int | float) else value


def _read_items(
    shape: ValueType, values: Sequence[object], path: str, problems: list[Problem]
) -> tuple[object, ...]:
    return tuple(
        _read_part(shape, item, f"{path}[{place}]", problems) for place, item in enumerate(values)
    )


def _json_tree(value: object) -> Tree:
    if hasattr(type(value), "__dataclass_fields__"):
        return json_fields(value)
    if isinstance(value, tuple | list):
        return [_json_tree(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _json_tree(item) for name, item in value.items()}
    return plain_tree(value)
