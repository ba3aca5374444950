"""What the API server refuses: objects that are inconsistent, and fields that a schema lacks.

Only the refusals that a change of one field by someone else can cause, since they decide whether a
forced apply can repair it, and names and types in our own custom resource. Other schemas, bounds
and patterns are not checked: a test may want an object that an older definition let through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from holdfast.adapters.memory.kube.kinds import Object
from holdfast.core.custom_resource import GROUP
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.service.spec import KIND
from holdfast.reconcile.kube import ref_of
from holdfast.wire.crd import inference_service_crd

_KINDS_WITH_SPEC = frozenset({"Service", "Pod", "ReplicaSet", "HorizontalPodAutoscaler"})


def check_object(new: Object, live: Object | None) -> None:
    """Raise ValidationError with every problem of an object that is about to be stored."""
    problems = [
        Problem(field=field, reason=reason, fix="")
        for field, reason in (*_kind_problems(new, live), *_metadata_problems(new, live))
    ]
    if problems:
        raise ValidationError(
            f"{ref_of(new)} is invalid.",
            problems=problems,
            hint="Fix the object and send it again.",
        )


def _metadata_problems(new: Object, live: Object | None) -> Iterator[tuple[str, str]]:
    if live is None or "deletionTimestamp" not in live["metadata"]:
        return
    before = set(live["metadata"].get("finalizers", ()))
    if set(new["metadata"].get("finalizers", ())) - before:
        yield "metadata.finalizers", "Forbidden: no new finalizers can be added while it goes"


def _kind_problems(new: Object, live: Object | None) -> Iterator[tuple[str, str]]:
    spec = new.get("spec") or {}
    if not spec and new["kind"] in _KINDS_WITH_SPEC:
        yield "spec", "Required value"
    match new["kind"]:
        case "Deployment":
            yield from _deployment_problems(spec, live)
        case "Service":
            yield from _port_problems(spec.get("ports", ()), "spec.ports", named=True)
        case "ConfigMap" | "Secret" if live is not None and live.get("immutable"):
            for field in ("data", "binaryData", "immutable"):
                if new.get(field) != live.get(field):
                    yield field, "Forbidden: field is immutable when `immutable` is set"


def _deployment_problems(spec: Object, live: Object | None) -> Iterator[tuple[str, str]]:
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    if not spec.get("selector"):
        yield "spec.selector", "Required value"
    elif live is not None and live["spec"]["selector"] != spec["selector"]:
        yield "spec.selector", "Invalid value: field is immutable"
    labels = (template.get("metadata") or {}).get("labels") or {}
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    if any(labels.get(name) != value for name, value in wanted.items()):
        yield "spec.template.metadata.labels", "Invalid value: `selector` does not match"
    if not pod.get("containers"):
        yield "spec.template.spec.containers", "Required value"
    ambiguous = set()
    for number, volume in enumerate(pod.get("volumes") or ()):
        for source in sorted(set(volume) - {"name"})[1:]:  # emptyDir comes first there, as here
            ambiguous.add(volume["name"])
            field = f"spec.template.spec.volumes[{number}].{source}"
            yield field, "Forbidden: may not specify more than 1 volume type"
    for number, container in enumerate(pod.get("containers") or ()):
        field = f"spec.template.spec.containers[{number}]"
        for place, mount in enumerate(container.get("volumeMounts", ())):
            if mount["name"] in ambiguous:
                yield f"{field}.volumeMounts[{place}].name", "Not found"
        if not container.get("image"):
            yield f"{field}.image", "Required value"
        yield from _port_problems(container.get("ports", ()), f"{field}.ports", named=False)


def _port_problems(ports: list[Object], field: str, *, named: bool) -> Iterator[tuple[str, str]]:
    seen = set()
    for number, port in enumerate(ports):
        name = port.get("name")
        if name is not None and name in seen:
            yield f"{field}[{number}].name", f'Duplicate value: "{name}"'
        if name is None and named and len(ports) > 1:
            yield f"{field}[{number}].name", "Required value"
        seen.add(name)


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def check_schema(item: Object) -> None:
    """Raise ValidationError for fields of an InferenceService that its schema does not know."""
    if item["kind"] != KIND or item["apiVersion"].partition("/")[0] != GROUP:
        return
    found = [
        problem
        for part in ("spec", "status")
        if part in item
        for problem in _schema_problems(item[part], _schema()[part], f".{part}")
    ]
    if found:
        raise ValidationError(
            f"{ref_of(item)} cannot be applied.",
            problems=found,
            hint="Fix the object and send it again.",
        )


@lru_cache
def _schema() -> Mapping[str, Any]:  # Any, here and below: a schema, and values under it
    definition: Any = inference_service_crd()
    found: Mapping[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    known: Mapping[str, Any] = found["properties"]
    return known


def _schema_problems(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[Problem]:
    wanted = schema.get("type")
    if value is None or wanted is None:
        return
    if type(value) not in _JSON_TYPES[wanted]:
        yield Problem(field=path, reason=f"expected {wanted}", fix="")
    elif wanted == "array":
        for number, item in enumerate(value):
            yield from _schema_problems(item, schema["items"], f"{path}[{number}]")
    elif wanted == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if inner is None:
                yield Problem(field=f"{path}.{name}", reason="not declared in schema", fix="")
            else:
                yield from _schema_problems(item, inner, f"{path}.{name}")
