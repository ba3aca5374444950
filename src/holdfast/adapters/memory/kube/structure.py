"""Refuses what the schema of our own custom resource does not know, as an apply does.

Only names and types: bounds, patterns and rules across fields are the definition's own, and a
test may want an object that an older definition let through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from holdfast.adapters.memory.kube.kinds import Object
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.service.spec import KIND
from holdfast.reconcile.kube import ref_of
from holdfast.wire.crd import GROUP, crd

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def check_structure(item: Object) -> None:
    """Raise ValidationError for fields of an InferenceService that its schema does not know."""
    if item["kind"] != KIND or item["apiVersion"].partition("/")[0] != GROUP:
        return
    found = [
        problem
        for part in ("spec", "status")
        if part in item
        for problem in _problems(item[part], _schema()[part], f".{part}")
    ]
    if found:
        raise ValidationError(
            f"{ref_of(item)} cannot be applied.",
            problems=found,
            todo="Fix the object and send it again.",
        )


@lru_cache
def _schema() -> Mapping[str, Any]:  # Any, here and below: a schema, and values under it
    definition: Any = crd()
    found: Mapping[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    known: Mapping[str, Any] = found["properties"]
    return known


def _problems(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[Problem]:
    wanted = schema.get("type")
    if value is None or wanted is None:
        return
    if type(value) not in _TYPES[wanted]:
        yield Problem(field=path, reason=f"expected {wanted}", fix="")
    elif wanted == "array":
        for number, item in enumerate(value):
            yield from _problems(item, schema["items"], f"{path}[{number}]")
    elif wanted == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if inner is None:
                yield Problem(field=f"{path}.{name}", reason="not declared in schema", fix="")
            else:
                yield from _problems(item, inner, f"{path}.{name}")
