"""The custom resource as JSON, and the values it stands for.

Names are those of the reference (`modelRef`, `minReplicas`); durations are written `10s`, and
whole numbers are read as the nanoseconds that the reference's own JSON has. Unknown fields are
refused, or kept apart for who asks for that. Read by the operator from a watch, and by whoever
holds a manifest.
"""

from __future__ import annotations

from holdfast.core.errors import InvalidSpec
from holdfast.core.scan import safe_name
from holdfast.core.service.spec import (
    API_VERSION,
    KIND,
    InferenceService,
    InferenceServiceSpec,
    InferenceServiceStatus,
)
from holdfast.core.tree import Fields, plain_tree
from holdfast.wire.resource_json import (
    int_or_zero,
    json_fields,
    metadata_of,
    raise_problems,
    read_envelope,
    read_status,
    read_value,
    string_map,
    without_unknown,
)


def service_from_json(
    document: object, *, checked: bool = True, lenient: bool = False
) -> InferenceService:
    """Read an object as the API server or a file has it. Raises InvalidSpec with all problems.

    Without `checked`, only what cannot be read at all is a problem: for who validates it later.
    `lenient` keeps the fields of a later version apart, in `unknown`, and reads the rest.
    """
    found, problems = read_envelope(document, KIND)
    metadata = metadata_of(found)
    given, unknown = found.get("spec"), list[str]()
    if lenient:
        given, unknown = without_unknown(InferenceServiceSpec, given, "spec.")
    spec = read_value(InferenceServiceSpec, given, "", problems)
    if spec is None:
        raise InvalidSpec(problems=problems)
    service = InferenceService(
        name=str(metadata.get("name") or ""),
        namespace=str(metadata.get("namespace") or "default"),
        uid=str(metadata.get("uid") or ""),
        resource_version=str(metadata.get("resourceVersion") or ""),
        generation=int_or_zero(metadata.get("generation")),
        labels=string_map(metadata.get("labels")),
        annotations=string_map(metadata.get("annotations")),
        deleting=metadata.get("deletionTimestamp") is not None,
        spec=spec,
        status=status_from_json(found.get("status")),
        unknown=tuple(map(safe_name, unknown)),
    )
    raise_problems(problems, service.validate if checked else None)
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
        metadata["labels"] = plain_tree(service.labels)
    if service.annotations:
        metadata["annotations"] = plain_tree(service.annotations)
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
    return json_fields(spec)


def status_to_json(status: InferenceServiceStatus) -> Fields:
    """Write a status, whole: `ready` and `replicas` are said even when they are nothing."""
    return json_fields(status)


def status_from_json(document: object) -> InferenceServiceStatus | None:
    """Read what an operator wrote; fields of a later version are passed over."""
    return read_status(InferenceServiceStatus, document)
