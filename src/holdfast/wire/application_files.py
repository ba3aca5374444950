"""Applications from files, for where there is no cluster to keep them.

The same documents that a cluster would take: one or many to a file, in YAML or JSON, in folders
to any depth. Everything wrong in any file is told at once. Read by the GitOps controller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.core.errors import Problem, ValidationError
from holdfast.core.gitops.application import AppId, Application
from holdfast.wire.application_v1alpha1 import application_from_json
from holdfast.wire.yaml import MAX_BYTES, Document, read_documents

SUFFIXES = (".yaml", ".yml", ".json")
MOST_FILES = 1000


def read_applications(paths: Sequence[Path]) -> tuple[Application, ...]:
    """Read every Application of files and folders, in the order of their names.

    Raises ValidationError with file and line of everything that is wrong: a document that is none
    is refused as well, so that a slip of the pen is not an application that nobody follows.
    Hidden files and folders are passed over; no Application at all is an answer.
    """
    found: dict[AppId, tuple[Application, str]] = {}
    problems: list[Problem] = []
    for document in _documents(paths, problems):
        try:
            application = application_from_json(document.value)
        except ValidationError as error:
            problems += _placed(error, document)
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


def _documents(paths: Sequence[Path], problems: list[Problem]) -> Iterator[Document]:
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
    if len(found) > MOST_FILES:
        reason = f"the folder has over {MOST_FILES} files."
        problems.append(Problem(field=str(path), reason=reason, fix="Name a smaller one."))
        return []
    return found


def _placed(error: ValidationError, document: Document) -> Iterator[Problem]:
    if not error.problems:
        yield Problem(field=document.where(), reason=error.happened, fix="Declare an Application.")
    for problem in error.problems:
        pointer = "/" + re.sub(r"[.\[]", "/", problem.field).replace("]", "")
        inside = pointer if pointer in document.lines else f"/spec{pointer}"
        where = f"{document.where(inside)}: {problem.field}"
        yield Problem(field=where, reason=problem.reason, fix=problem.fix)
