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
from holdfast.core.tree import Fields
from holdfast.wire.shaped_json import (
    metadata_of,
    read_head,
    read_status,
    read_value,
    refuse,
    texts,
    whole,
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
    refuse(problems, application.validate if checked else None)
    return application


def status_to_json(status: ApplicationStatus) -> Fields:
    """Write a status, whole: counts are said even when they are nothing."""
    return written(status)


def status_from_json(document: object) -> ApplicationStatus | None:
    """Read what a controller wrote; fields of a later version are passed over."""
    return read_status(ApplicationStatus, document)
