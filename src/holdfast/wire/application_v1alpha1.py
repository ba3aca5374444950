"""Applications as JSON and in files, and the values they stand for.

Read by the GitOps controller, from a watch or from files where there is no cluster to keep them.
Unknown fields are refused, not dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.core.errors import InvalidSpec, Problem, ValidationError
from holdfast.core.gitops.application import (
    KIND,
    Application,
    ApplicationId,
    ApplicationSpec,
    ApplicationStatus,
)
from holdfast.core.tree import Fields
from holdfast.wire.resource_json import (
    int_or_zero,
    json_fields,
    metadata_of,
    raise_problems,
    read_envelope,
    read_status,
    read_value,
    string_map,
)
from holdfast.wire.yaml import MAX_BYTES, Document, read_documents


def application_from_json(document: object, *, checked: bool = True) -> Application:
    """Read an object as the API server or a file has it. Raises InvalidSpec with all problems.

    Without `checked`, only what cannot be read at all is a problem: for who validates it later.
    """
    found, problems = read_envelope(document, KIND)
    metadata = metadata_of(found)
    spec = read_value(ApplicationSpec, found.get("spec"), "", problems)
    if spec is None:
        raise InvalidSpec(problems=problems)
    application = Application(
        id=ApplicationId(
            namespace=str(metadata.get("namespace") or ""), name=str(metadata.get("name") or "")
        ),
        uid=str(metadata.get("uid") or ""),
        generation=int_or_zero(metadata.get("generation")),
        annotations=string_map(metadata.get("annotations")),
        deleting=metadata.get("deletionTimestamp") is not None,
        spec=spec,
        status=status_from_json(found.get("status")),
    )
    raise_problems(problems, application.validate if checked else None)
    return application


def status_to_json(status: ApplicationStatus) -> Fields:
    """Write a status, whole: counts are said even when they are nothing."""
    return json_fields(status)


def status_from_json(document: object) -> ApplicationStatus | None:
    """Read what a controller wrote; fields of a later version are passed over."""
    return read_status(ApplicationStatus, document)


SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILES = 1000


def read_applications(paths: Sequence[Path]) -> tuple[Application, ...]:
    """Read every Application of files and folders, in the order of their names.

    Raises ValidationError with file and line of everything that is wrong: a document that is none
    is refused as well, so that a slip of the pen is not an application that nobody follows.
    Hidden files and folders are passed over; no Application at all is an answer.
    """
    found: dict[ApplicationId, tuple[Application, str]] = {}
    problems: list[Problem] = []
    for document in _read_files(paths, problems):
        try:
            application = application_from_json(document.value)
        except ValidationError as error:
            problems += _problems_at_lines(error, document)
            continue
        before = found.setdefault(application.id, (application, document.where()))
        if before[0] is not application:
            problems.append(
                Problem(
                    field=document.where(),
                    reason=f"Application {application.id} is declared in {before[1]} too.",
                    fix="Keep one, or give one another name.",
                )
            )
    if problems:
        raise ValidationError("The Applications cannot be read.", problems=problems)
    return tuple(application for application, _ in found.values())


def _read_files(paths: Sequence[Path], problems: list[Problem]) -> Iterator[Document]:
    for path in paths:
        for file in _files(path, problems):
            try:
                with file.open("rb") as opened:
                    data = opened.read(MAX_BYTES + 1)
                yield from read_documents(data, source=str(file), json=file.suffix == ".json")
            except OSError as error:
                reason = f"it cannot be read ({error.strerror})."
                problems.append(Problem(field=str(file), reason=reason, fix="Check the path."))
            except ValidationError as error:
                problems += error.problems


def _files(path: Path, problems: list[Problem]) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(
        each
        for each in path.rglob("*")
        if each.suffix in SUFFIXES
        and each.is_file()
        and not any(part.startswith(".") for part in each.relative_to(path).parts)
    )
    if len(found) > MAX_FILES:
        reason = f"the folder has over {MAX_FILES} files."
        problems.append(Problem(field=str(path), reason=reason, fix="Name a smaller one."))
        return []
    return found


def _problems_at_lines(error: ValidationError, document: Document) -> Iterator[Problem]:
    if not error.problems:
        yield Problem(field=document.where(), reason=error.happened, fix="Declare an Application.")
    for problem in error.problems:
        pointer = "/" + re.sub(r"[.\[]", "/", problem.field).replace("]", "")
        inside = pointer if pointer in document.lines else f"/spec{pointer}"
        where = f"{document.where(inside)}: {problem.field}"
        yield Problem(field=where, reason=problem.reason, fix=problem.fix)
