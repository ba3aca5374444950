"""Says what is wrong with the values of a custom resource, one by one, by their shapes.

Each resource's own check calls this first; the rules that join several values are its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from holdfast.core.check import shape_problem
from holdfast.core.errors import InvalidSpec, Problem
from holdfast.core.scan import scan, shown_name
from holdfast.core.shapes import MOST_ITEMS, Shape, members


def refuse(kind: str, found: list[Problem]) -> None:
    """Raise InvalidSpec with everything that is wrong, unless nothing is."""
    if found:
        count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
        raise InvalidSpec(f"The {kind} has {count}.", problems=found)


def form_problems(kind: type, spec: object) -> list[Problem]:
    """Every value that is not of its type, or does not look as it should."""
    return list(_members(kind, spec, ""))


def scan_problems(kind: type, spec: object) -> Iterator[Problem]:
    """What must not be in any value: credentials, strange characters, too much of anything."""
    return scan((part.wire, getattr(spec, part.name)) for part in members(kind))


def untold(found: Iterable[Problem], told: Sequence[Problem]) -> list[Problem]:
    """Leave out problems of fields that have one already."""
    seen = {each.field for each in told}
    return [each for each in found if each.field not in seen]


def readable(problems: list[Problem]) -> bool:
    """True when all parts are of the types that they should be, so that rules can be asked."""
    return not any("was given" in each.reason for each in problems)


def typed(kind: type, spec: object) -> bool:
    """True when every single value is of its type, whatever it looks like."""
    return not any(_members(kind, spec, "", forms=False))


def matches(pattern: str, text: str) -> bool:
    """True when a text has a pattern, as the API server sees it: `$` is the very end."""
    return _compiled(pattern).search(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\$$", r"\\Z", pattern))


def _members(kind: type, value: object, path: str, *, forms: bool = True) -> Iterator[Problem]:
    for part in members(kind):
        given = getattr(value, part.name)
        field = f"{path}{part.wire}"
        if given is not None:
            yield from _value(part.shape, given, field, forms=forms)
        elif part.required:
            yield Problem(field=field, reason="it is missing.", fix=f"Give {field}.")


def _value(shape: Shape, value: object, path: str, *, forms: bool) -> Iterator[Problem]:
    if shape.is_nested:
        if isinstance(value, shape.base):
            yield from _members(shape.base, value, f"{path}.", forms=forms)
        else:
            yield shape_problem(path, value)
    elif shape.base is tuple:
        if not isinstance(value, tuple | list):
            yield Problem(
                field=path, reason=f"a {type(value).__name__} was given.", fix="Give a list."
            )
        elif not value and shape.form is not None:
            yield Problem(field=path, reason="it is empty.", fix="Leave it out instead.")
        elif len(value) > MOST_ITEMS:
            yield Problem(field=path, reason=f"it has over {MOST_ITEMS} items.", fix="Give fewer.")
        elif shape.item:
            for place, item in enumerate(value):
                yield from _value(shape.item, item, f"{path}[{place}]", forms=forms)
    elif shape.base is Mapping:
        if not isinstance(value, Mapping):
            yield shape_problem(path, value)
        elif shape.item:
            for name, item in value.items():
                yield from _value(shape.item, item, f"{path}.{shown_name(name)}", forms=forms)
    else:
        yield from _leaf(shape if forms else replace(shape, form=None), value, path)


def _leaf(shape: Shape, value: object, path: str) -> Iterator[Problem]:
    says = shape.form.says if shape.form else _says(shape)
    if not _fits(shape, value):
        yield Problem(field=path, reason=f"it is not {says}.", fix="Correct the value.")


def _says(shape: Shape) -> str:
    if shape.is_enum:
        return "one of " + ", ".join(shape.choices)
    return {str: "a text", float: "a number", int: "a whole number", bool: "true or false"}.get(
        shape.base, "a plain value"
    )


def _fits(shape: Shape, value: object) -> bool:
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
        form.pattern is None or (value != "" and matches(form.pattern, value))
    )
