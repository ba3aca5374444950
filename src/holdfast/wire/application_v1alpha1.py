"""An Application as JSON, and the values it stands for.

Read by the GitOps controller from a watch and from files. Unknown fields are refused, not dropped.
"""

from __future__ import annotations

from holdfast.core.errors import InvalidSpec
from holdfast.core.gitops.application import (
    KIND,
    AppId,
    Application,
    ApplicationSpec,
    ApplicationStatus,
)
from holdfast.core.resource import API_VERSION
from holdfast.core.tree import Fields, plain
from holdfast.wire.shaped_json import (
    metadata_of,
    read_head,
    read_status,
    read_value,
    texts,
    whole,
    with_checks,
    written,
)


def application_from_json(document: object, *, checked: bool = True) -> Application:
    """Read an object as the API server or a file has it. Raises InvalidSpec with all problems.

    Without `checked`, only what cannot be read at all is a problem: for who validates it later.
    """
    found, problems = read_head(document, KIND)
    metadata = metadata_of(found)
    spec = read_value(ApplicationSpec, found.get("spec"), "", problems)
    if spec is None:
        raise InvalidSpec(problems=problems)
    application = Application(
        id=AppId(
            namespace=str(metadata.get("namespace") or ""), name=str(metadata.get("name") or "")
        ),
        uid=str(metadata.get("uid") or ""),
        generation=whole(metadata.get("generation")),
        annotations=texts(metadata.get("annotations")),
        deleting=metadata.get("deletionTimestamp") is not None,
        spec=spec,
        status=status_from_json(found.get("status")),
    )
    try:
        if checked:
            application.validate()
    except InvalidSpec as error:
        problems = with_checks(problems, error.problems)
    if problems:
        raise InvalidSpec(problems=problems)
    return application


def application_to_json(application: Application) -> Fields:
    """Write an object; reading it back gives an equal one, unless it is being deleted."""
    metadata: Fields = {"name": application.id.name}
    if application.id.namespace:
        metadata["namespace"] = application.id.namespace
    if application.uid:
        metadata["uid"] = application.uid
    if application.generation:
        metadata["generation"] = application.generation
    if application.annotations:
        metadata["annotations"] = plain(application.annotations)
    document: Fields = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": spec_to_json(application.spec),
    }
    if application.status is not None:
        document["status"] = status_to_json(application.status)
    return document


def spec_to_json(spec: ApplicationSpec) -> Fields:
    """Write the fields that are set."""
    return written(spec)


def status_to_json(status: ApplicationStatus) -> Fields:
    """Write a status, whole: counts are said even when they are nothing."""
    return written(status)


def status_from_json(document: object) -> ApplicationStatus | None:
    """Read what a controller wrote; fields of a later version are passed over."""
    return read_status(ApplicationStatus, document)
