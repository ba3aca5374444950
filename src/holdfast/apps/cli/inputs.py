"""Specs from files: YAML, JSON, folders of them, stdin, and Python files that export them.

Every error of every file is gathered, so that one run tells all that is to be mended. A Python
file is run only when it is named; a folder never makes us run code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.apps.cli.views.text import count
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.gitops.application import KIND as APPLICATION
from holdfast.core.gitops.application import Application
from holdfast.core.redact import quoted
from holdfast.core.service.spec import KIND, InferenceService
from holdfast.core.workload import WorkloadSpec
from holdfast.wire.spec_v1 import KIND as WORKLOAD
from holdfast.wire.spec_v1 import spec_from_document
from holdfast.wire.yaml import MAX_BYTES, Document, read_documents

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A spec and where it was declared."""

    spec: WorkloadSpec
    source: str
    """File and line, for people."""
    service: InferenceService | None = None
    """The custom resource that it was declared as, where those were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredApplication:
    """An Application of a GitOps controller and where it was declared."""

    application: Application
    source: str


def load(
    paths: Sequence[str], *, recursive: bool = False, services: bool = False
) -> list[Declared]:
    """Read every spec, in the order given. Raises ValidationError with all problems at once.

    With `services`, custom resources are read too.
    """
    return _loaded(paths, recursive=recursive, services=services, applications=None)


def load_all(
    paths: Sequence[str], *, recursive: bool = False
) -> tuple[list[Declared], list[DeclaredApplication]]:
    """Read every spec, and the Applications that stand beside them."""
    applications: list[DeclaredApplication] = []
    found = _loaded(paths, recursive=recursive, services=False, applications=applications)
    return found, applications


def _loaded(
    paths: Sequence[str],
    *,
    recursive: bool,
    services: bool,
    applications: list[DeclaredApplication] | None,
) -> list[Declared]:
    found: list[Declared] = []
    problems: list[Problem] = []
    for path in paths:
        for name in _expanded(path, recursive, problems):
            try:
                for each in _read(name):
                    _take(each, found, problems, services=services, applications=applications)
            except ValidationError as error:
                problems.extend(error.problems)
    problems.extend(_duplicates(found))
    if not problems and not found and not applications:
        problems.append(
            Problem(
                field=", ".join(paths), reason="there is no workload in it.", fix="Declare one."
            )
        )
    if problems:
        raise ValidationError(
            f"{count(len(problems), 'problem')} in what was declared.", problems=problems
        )
    return found


def _expanded(path: str, recursive: bool, problems: list[Problem]) -> Iterator[str]:
    folder = Path(path)
    if path == "-" or not folder.is_dir():
        yield path
        return
    found = sorted(folder.rglob("*") if recursive else folder.iterdir())
    names = [
        str(each)
        for each in found
        if each.suffix in SUFFIXES
        and each.is_file()
        and not any(part.startswith(".") for part in each.relative_to(folder).parts)
    ]
    if not names:
        hint = "" if recursive else " Add -R to look into subfolders."
        reason = f"the folder has no {', '.join(SUFFIXES)} file."
        problems.append(Problem(field=path, reason=reason, fix=f"Name a file.{hint}"))
    elif len(names) > MAX_FILES:
        reason = f"the folder has over {MAX_FILES} files."
        problems.append(Problem(field=path, reason=reason, fix="Name a smaller one."))
    else:
        yield from names


def _read(name: str) -> Iterator[Document | Declared]:
    if name.endswith(".py"):
        from holdfast.apps.cli.python_specs import run_spec_file

        for spec in run_spec_file(name):
            yield Declared(spec=spec, source=name)
        return
    yield from documents_of(name, octal=False)


def documents_of(name: str, *, octal: bool = True) -> list[Document]:
    """Read the documents of one file, or of stdin, whatever they are."""
    data = _bytes(name)
    # JSON on stdin is read as JSON, because YAML does not know all of JSON's escapes.
    is_json = name.endswith(".json") or bool(re.match(rb'\s*\{\s*["}]', data))
    return read_documents(data, source="stdin" if name == "-" else name, json=is_json, octal=octal)


def _bytes(name: str) -> bytes:
    try:
        if name == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(name).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        problem = Problem(field=name, reason="there is no such file.", fix="Check the path.")
    except OSError as error:
        problem = Problem(
            field=name, reason=f"it cannot be read ({error.strerror}).", fix="Check the path."
        )
    raise ValidationError(problems=[problem])


def _take(
    each: Document | Declared,
    found: list[Declared],
    problems: list[Problem],
    *,
    services: bool,
    applications: list[DeclaredApplication] | None,
) -> None:
    if isinstance(each, Declared):
        found.append(each)
        return
    try:
        if services and isinstance(each.value, dict) and each.value.get("kind") == KIND:
            found.append(_service(each))
        elif applications is not None and _is_application(each):
            applications.append(_application(each))
        elif _is_foreign(each):
            known = [WORKLOAD, *[KIND] * services, *[APPLICATION] * (applications is not None)]
            problems.append(_foreign(each, known))
        else:
            found.append(Declared(spec=spec_from_document(each.value), source=each.where()))
    except ValidationError as error:
        if error.problems:
            problems.extend(_placed(problem, each) for problem in error.problems)
        else:
            problems.append(Problem(field=each.where(), reason=error.happened, fix=error.todo))


def _is_foreign(document: Document) -> bool:
    """True for another Kubernetes object, of which every field would be a problem of its own."""
    value = document.value
    return isinstance(value, dict) and "metadata" in value and value.get("kind") != WORKLOAD


def _foreign(document: Document, known: list[str]) -> Problem:
    assert isinstance(document.value, dict)  # noqa: S101  # asked before
    kind = quoted(str(document.value.get("kind", "")), 63)
    problem = Problem(
        field="kind", reason=f"{kind} is not declared here.",
        fix=f"Give documents of {' or '.join(known)}.",
    )  # fmt: skip
    return _placed(problem, document)


def _service(document: Document) -> Declared:
    from holdfast.wire.inference_service_v1alpha1 import service_from_json
    from holdfast.wire.service_mapping import spec_of

    service = service_from_json(document.value)
    return Declared(spec=spec_of(service), source=document.where(), service=service)


def _is_application(document: Document) -> bool:
    return isinstance(document.value, dict) and document.value.get("kind") == APPLICATION


def _application(document: Document) -> DeclaredApplication:
    from holdfast.wire.application_v1alpha1 import application_from_json

    application = application_from_json(document.value)
    return DeclaredApplication(application=application, source=document.where())


def _placed(problem: Problem, document: Document) -> Problem:
    pointer = "/" + re.sub(r"[.\[]", "/", problem.field).replace("]", "")
    value = document.value
    if isinstance(value, dict) and "spec" in value and pointer.split("/")[1] not in value:
        pointer = f"/spec{pointer}"  # the fields of a custom resource go by their names inside it
    where = f"{document.where(pointer)}: {problem.field}"
    return Problem(field=where, reason=problem.reason, fix=problem.fix)


def _duplicates(found: Sequence[Declared]) -> Iterator[Problem]:
    first: dict[tuple[str | None, str], Declared] = {}
    for each in found:
        key = (each.spec.project, each.spec.slug)
        if key in first:
            yield Problem(
                field=each.source,
                reason=f"workload {each.spec.slug} is declared in {first[key].source} too.",
                fix="Keep one, or give one another slug.",
            )
        first.setdefault(key, each)
