"""What the API server refuses although every field is well formed, as far as it matters here.

These are the refusals that a change of one field by someone else can cause, and that decide
whether a forced apply can mend it. Schemas are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.adapters.memory.kube.kinds import Object
from holdfast.core.errors import Problem, ValidationError
from holdfast.reconcile.kube import ref_of

_SPECIFIED = frozenset({"Service", "Pod", "ReplicaSet", "HorizontalPodAutoscaler"})


def check(new: Object, live: Object | None) -> None:
    """Raise ValidationError with every problem of an object that is about to be stored."""
    problems = [
        Problem(field=field, reason=reason, fix="")
        for field, reason in (*_of_kind(new, live), *_of_metadata(new, live))
    ]
    if problems:
        raise ValidationError(
            f"{ref_of(new)} is invalid.",
            problems=problems,
            todo="Fix the object and send it again.",
        )


def _of_metadata(new: Object, live: Object | None) -> Iterator[tuple[str, str]]:
    if live is None or "deletionTimestamp" not in live["metadata"]:
        return
    before = set(live["metadata"].get("finalizers", ()))
    if set(new["metadata"].get("finalizers", ())) - before:
        yield "metadata.finalizers", "Forbidden: no new finalizers can be added while it goes"


def _of_kind(new: Object, live: Object | None) -> Iterator[tuple[str, str]]:
    spec = new.get("spec") or {}
    if not spec and new["kind"] in _SPECIFIED:
        yield "spec", "Required value"
    match new["kind"]:
        case "Deployment":
            yield from _deployment(spec, live)
        case "Service":
            yield from _ports(spec.get("ports", ()), "spec.ports", named=True)
        case "ConfigMap" | "Secret" if live is not None and live.get("immutable"):
            for field in ("data", "binaryData", "immutable"):
                if new.get(field) != live.get(field):
                    yield field, "Forbidden: field is immutable when `immutable` is set"


def _deployment(spec: Object, live: Object | None) -> Iterator[tuple[str, str]]:
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
        yield from _ports(container.get("ports", ()), f"{field}.ports", named=False)


def _ports(ports: list[Object], field: str, *, named: bool) -> Iterator[tuple[str, str]]:
    seen = set()
    for number, port in enumerate(ports):
        name = port.get("name")
        if name is not None and name in seen:
            yield f"{field}[{number}].name", f'Duplicate value: "{name}"'
        if name is None and named and len(ports) > 1:
            yield f"{field}[{number}].name", "Required value"
        seen.add(name)
