"""The custom resource as JSON, and the values it stands for.

Names are those of the reference (`modelRef`, `minReplicas`); durations are written `10s`, and
whole numbers are read as the nanoseconds that the reference's own JSON has. Unknown fields are
refused, not dropped. Read by the operator from a watch, and by whoever holds a manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from holdfast.core.check import shape_problem, unknown_problem
from holdfast.core.errors import InvalidSpec, Problem
from holdfast.core.service.shapes import Member, Shape, members
from holdfast.core.service.spec import (
    API_VERSION,
    KIND,
    HealthCheckSpec,
    InferenceService,
    InferenceServiceSpec,
    InferenceServiceStatus,
    duration_text,
)
from holdfast.core.tree import Fields, Tree, plain


def service_from_json(document: object, *, checked: bool = True) -> InferenceService:
    """Read an object as the API server or a file has it. Raises InvalidSpec with all problems.

    Without `checked`, only what cannot be read at all is a problem: for who validates it later.
    """
    if not isinstance(document, Mapping):
        raise InvalidSpec(
            f"An InferenceService is a mapping of fields; this is a {type(document).__name__}."
        )
    problems = [
        Problem(field=name, reason=f"it is not {wanted}.", fix=f"Write {name}: {wanted}.")
        for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND))
        if document.get(name, wanted) != wanted
    ]
    known = ["apiVersion", "kind", "metadata", "spec", "status"]
    problems += [unknown_problem(str(name), known) for name in document if name not in known]
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping):
        metadata = {}
    spec = _read_nested(InferenceServiceSpec, document.get("spec"), "", problems)
    if not isinstance(spec, InferenceServiceSpec):
        raise InvalidSpec(problems=problems)
    service = InferenceService(
        name=str(metadata.get("name") or ""),
        namespace=str(metadata.get("namespace") or "default"),
        uid=str(metadata.get("uid") or ""),
        resource_version=str(metadata.get("resourceVersion") or ""),
        generation=_whole(metadata.get("generation")),
        labels=_texts(metadata.get("labels")),
        annotations=_texts(metadata.get("annotations")),
        deleting=metadata.get("deletionTimestamp") is not None,
        spec=spec,
        status=status_from_json(document.get("status")),
    )
    try:
        if checked:
            service.validate()
    except InvalidSpec as error:
        problems += error.problems
    if problems:
        raise InvalidSpec(problems=problems)
    return service


def service_to_json(service: InferenceService) -> Fields:
    """Write an object; reading it back gives an equal one."""
    metadata: Fields = {"name": service.name, "namespace": service.namespace}
    if service.uid:
        metadata["uid"] = service.uid
    if service.resource_version:
        metadata["resourceVersion"] = service.resource_version
    if service.generation:
        metadata["generation"] = service.generation
    if service.labels:
        metadata["labels"] = plain(service.labels)
    if service.annotations:
        metadata["annotations"] = plain(service.annotations)
    document: Fields = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": spec_to_json(service.spec),
    }
    if service.status is not None:
        document["status"] = status_to_json(service.status)
    return document


def spec_to_json(spec: InferenceServiceSpec) -> Fields:
    """Write the fields that are set."""
    return _written(spec)


def status_to_json(status: InferenceServiceStatus) -> Fields:
    """Write a status, whole: `ready` and `replicas` are said even when they are nothing."""
    return _written(status)


def status_from_json(document: object) -> InferenceServiceStatus | None:
    """Read what an operator wrote; fields of a later version are passed over."""
    if not isinstance(document, Mapping):
        return None
    known = {part.wire for part in members(InferenceServiceStatus)}
    ours = {name: value for name, value in document.items() if name in known}
    status = _read_nested(InferenceServiceStatus, ours, "status.", [])
    return status if isinstance(status, InferenceServiceStatus) else None


def _read_nested(kind: type, value: object, path: str, problems: list[Problem]) -> object:
    """Build one of our dataclasses from a mapping; None when it cannot be built."""
    if not isinstance(value, Mapping):
        problems.append(shape_problem(path.rstrip(".") or "spec", value))
        return None
    parts = {part.wire: part for part in members(kind)}
    problems += [
        unknown_problem(f"{path}{name}", sorted(parts)) for name in value if name not in parts
    ]
    given: dict[str, object] = {}
    missing = False
    for wire, part in parts.items():
        item = value.get(wire)
        if item is not None:
            given[part.name] = _read(part, kind, item, f"{path}{wire}", problems)
        elif part.required:
            missing = True
            problems.append(
                Problem(field=f"{path}{wire}", reason="it is missing.", fix=f"Give {path}{wire}.")
            )
    return None if missing else kind(**given)


def _read(part: Member, kind: type, value: object, path: str, problems: list[Problem]) -> object:
    if kind is HealthCheckSpec and isinstance(value, int) and not isinstance(value, bool):
        return duration_text(value / 1_000_000_000)
    return _read_shape(part.shape, value, path, problems)


def _read_shape(shape: Shape, value: object, path: str, problems: list[Problem]) -> object:
    """Read what can be read; what has the wrong type is left for the check to name."""
    if shape.is_nested:
        return _read_nested(shape.base, value, f"{path}.", problems)
    if shape.base is tuple and isinstance(value, list | tuple) and shape.item:
        return tuple(
            _read_shape(shape.item, item, f"{path}[{place}]", problems)
            for place, item in enumerate(value)
        )
    if shape.base is Mapping and isinstance(value, Mapping) and shape.item:
        return {
            str(name): _read_shape(shape.item, item, f"{path}.{name}", problems)
            for name, item in value.items()
        }
    if issubclass(shape.base, StrEnum) and value in shape.choices:
        return shape.base(str(value))
    numeric = shape.form is not None and shape.form.numeric
    if numeric and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


def _written(value: object) -> Fields:
    """The fields of a dataclass that are set, under their wire names."""
    kind: type = type(value)
    given = ((part.wire, getattr(value, part.name)) for part in members(kind))
    return {wire: _tree(item) for wire, item in given if item is not None}


def _tree(value: object) -> Tree:
    if hasattr(type(value), "__dataclass_fields__"):
        return _written(value)
    if isinstance(value, tuple | list):
        return [_tree(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _tree(item) for name, item in value.items()}
    return plain(value)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {str(name): str(item) for name, item in value.items()}
