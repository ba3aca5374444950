"""Says everything that is wrong with an InferenceService, each with its reason and its fix.

Called by `validate()`, before the operator asks the cluster anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from holdfast.core.check import shape_problem
from holdfast.core.errors import Problem
from holdfast.core.names import is_slug
from holdfast.core.redact import is_reference, names_a_secret
from holdfast.core.scan import scan, shown_name
from holdfast.core.service.rules import RULES
from holdfast.core.service.shapes import Member, Shape, members
from holdfast.core.service.spec import MAX_NAME, InferenceServiceSpec

NAME = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
SECRET_KEY = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"


def name_problems(name: str) -> list[Problem]:
    """What is wrong with the object's name."""
    if len(name) > MAX_NAME or not re.search(NAME, name):
        return [NAME_PROBLEM]
    return []


NAME_PROBLEM = Problem(
    field="metadata.name",
    reason=f"it is not 1 to {MAX_NAME} lower-case letters, digits and dashes, a letter first.",
    fix="Shorten it: the names of pods are made from it, and those end at 63.",
)


def problems(spec: InferenceServiceSpec) -> list[Problem]:
    """Every problem of a spec: the values one by one, then the rules that join them."""
    wrong = list(_members(InferenceServiceSpec, spec, ""))
    named = ((part.wire, getattr(spec, part.name)) for part in members(InferenceServiceSpec))
    wrong += [found for found in scan(named) if found.field not in {each.field for each in wrong}]
    wrong += _variables(spec)
    wrong += _arguments(spec)
    if not any("was given" in each.reason for each in wrong):  # all parts are what they should be
        wrong += [rule.problem for rule in RULES if not rule.holds(spec)]
    return wrong


def _members(kind: type, value: object, path: str) -> Iterator[Problem]:
    for part in members(kind):
        given = getattr(value, part.name)
        if given is not None:
            yield from _value(part.shape, given, f"{path}{part.wire}")
        elif part.required:
            yield _missing(path, part)


def _missing(path: str, part: Member) -> Problem:
    return Problem(
        field=f"{path}{part.wire}", reason="it is missing.", fix=f"Give {path}{part.wire}."
    )


def _value(shape: Shape, value: object, path: str) -> Iterator[Problem]:
    if shape.is_nested:
        if isinstance(value, shape.base):
            yield from _members(shape.base, value, f"{path}.")
        else:
            yield shape_problem(path, value)
    elif shape.base is tuple:
        if not isinstance(value, tuple | list):
            yield Problem(
                field=path, reason=f"a {type(value).__name__} was given.", fix="Give a list."
            )
        elif not value and path.endswith("command"):
            yield Problem(field=path, reason="it is empty.", fix="Leave it out instead.")
        elif shape.item:
            for place, item in enumerate(value):
                yield from _value(shape.item, item, f"{path}[{place}]")
    elif shape.base is Mapping:
        if not isinstance(value, Mapping):
            yield shape_problem(path, value)
        elif shape.item:
            for name, item in value.items():
                yield from _value(shape.item, item, f"{path}.{shown_name(name)}")
    else:
        yield from _leaf(shape, value, path)


def _leaf(shape: Shape, value: object, path: str) -> Iterator[Problem]:
    says = shape.form.says if shape.form else _says(shape)
    if not _fits(shape, value):
        yield Problem(field=path, reason=f"it is not {says}.", fix="Give such a value.")


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
        form.pattern is None or (value != "" and re.search(form.pattern, value) is not None)
    )


def _variables(spec: InferenceServiceSpec) -> Iterator[Problem]:
    for group in ("env", "secrets"):
        held = getattr(spec, group)
        for name in held if isinstance(held, Mapping) else ():
            if not isinstance(name, str) or not re.search(VARIABLE, name):
                yield Problem(
                    field=f"{group}.{shown_name(name)}",
                    reason="it is no variable name.",
                    fix="Use letters, digits and underscores, not a digit first.",
                )
    for name, ref in (spec.secrets or {}).items() if isinstance(spec.secrets, Mapping) else ():
        given = getattr(ref, "name", None), getattr(ref, "key", None)
        if not all(isinstance(part, str) for part in given):
            continue
        if not is_slug(str(given[0])) or not re.search(SECRET_KEY, str(given[1])):
            yield Problem(
                field=f"secrets.{shown_name(name)}",
                reason="its name or key is not usable.",
                fix="Use a slug as the name, and letters, digits, dot, dash as the key.",
            )


def _arguments(spec: InferenceServiceSpec) -> Iterator[Problem]:
    lines = {"command": spec.command, "args": spec.args}
    if spec.canary is not None and hasattr(spec.canary, "args"):
        lines |= {"canary.command": spec.canary.command, "canary.args": spec.canary.args}
    for path, line in lines.items():
        if not isinstance(line, tuple | list):
            continue
        for part, after in pairwise([*map(str, line), ""]):
            name, equals, inline = part.partition("=")
            value = inline if equals else "" if after.startswith("-") else after
            flag = name.startswith("-") or bool(equals)
            if flag and names_a_secret(name) and value and not is_reference(value):
                yield Problem(
                    field=path,
                    reason=f"{shown_name(name)} has a secret in clear.",
                    fix="Name an environment variable for it under secrets.",
                )
