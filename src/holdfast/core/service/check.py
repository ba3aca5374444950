"""Says everything that is wrong with an InferenceService, each with its reason and its fix.

Called by `validate()`, before the operator asks the cluster anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.core.check import declared_variables, placeholder_problems
from holdfast.core.command import is_script
from holdfast.core.errors import Problem
from holdfast.core.names import is_slug
from holdfast.core.scan import secret_argument, shown_name
from holdfast.core.service.rules import RULES
from holdfast.core.service.spec import MAX_NAME, InferenceServiceSpec
from holdfast.core.shape_check import form_problems, matches, readable, scan_problems, untold

NAME = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
SECRET_KEY = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"


def name_problems(name: str) -> list[Problem]:
    """What is wrong with the object's name."""
    if len(name) > MAX_NAME or not matches(NAME, name):
        return [NAME_PROBLEM]
    return []


NAME_PROBLEM = Problem(
    field="metadata.name",
    reason=f"it is not 1 to {MAX_NAME} lower-case letters, digits and dashes, a letter first.",
    fix="Shorten it: the names of pods are made from it, and those end at 63.",
)


def problems(spec: InferenceServiceSpec) -> list[Problem]:
    """Every problem of a spec: the values one by one, then the rules that join them."""
    wrong = form_problems(InferenceServiceSpec, spec)
    wrong += untold(scan_problems(InferenceServiceSpec, spec), wrong)
    wrong += _variables(spec)
    wrong += _arguments(spec)
    if readable(wrong):
        wrong += [rule.problem for rule in RULES if not rule.holds(spec)]
    return wrong


def _variables(spec: InferenceServiceSpec) -> Iterator[Problem]:
    for group in ("env", "secrets"):
        held = getattr(spec, group)
        for name in held if isinstance(held, Mapping) else ():
            if not isinstance(name, str) or not matches(VARIABLE, name):
                yield Problem(
                    field=f"{group}.{shown_name(name)}",
                    reason="it is not a variable name.",
                    fix="Use letters, digits and underscores, not a digit first.",
                )
    for name, ref in (spec.secrets or {}).items() if isinstance(spec.secrets, Mapping) else ():
        given = getattr(ref, "name", None), getattr(ref, "key", None)
        if not all(isinstance(part, str) for part in given):
            continue
        if not is_slug(str(given[0])) or not matches(SECRET_KEY, str(given[1])):
            yield Problem(
                field=f"secrets.{shown_name(name)}",
                reason="its name or key is not usable.",
                fix="Use a slug as the name, and letters, digits, dot, dash as the key.",
            )


def _arguments(spec: InferenceServiceSpec) -> Iterator[Problem]:
    lines = {"command": spec.command, "args": spec.args}
    if spec.canary is not None and hasattr(spec.canary, "args"):
        lines |= {"canary.command": spec.canary.command, "canary.args": spec.canary.args}
    declared = declared_variables(spec.env, spec.secrets)
    script = is_script(_texts(spec.command))
    for path, line in lines.items():
        words = _texts(line)
        name = secret_argument(words)
        if name is not None:
            yield Problem(
                field=path,
                reason=f"{shown_name(name) or 'it'} has a secret in clear.",
                fix="Declare a variable for it under secrets, and write $(VARIABLE) here.",
            )
        elif not script and spec.image is None:
            yield from placeholder_problems(path, words, declared)


def _texts(line: object) -> list[str]:
    return [str(part) for part in line] if isinstance(line, tuple | list) else []
