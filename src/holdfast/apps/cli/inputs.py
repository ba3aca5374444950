"""Specs from files: YAML, JSON, folders of them, stdin, and Python files that export them.

Every error of every file is gathered, so that one run tells all that is to be mended. A Python
file is run only when it is named; a folder never makes us run code.
"""

from __future__ import annotations

import contextlib
import re
import runpy
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.apps.cli.views.text import count
from holdfast.core.errors import HoldfastError, Problem, ValidationError
from holdfast.core.gitops.application import KIND as APPLICATION
from holdfast.core.gitops.application import Application
from holdfast.core.redact import quote_text
from holdfast.core.service.spec import KIND, InferenceService
from holdfast.core.workload import WorkloadSpec
from holdfast.wire.spec_v1 import KIND as WORKLOAD
from holdfast.wire.spec_v1 import spec_from_document
from holdfast.wire.yaml import MAX_BYTES, Document, read_documents

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredWorkload:
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


def load_specs(
    paths: Sequence[str], *, recursive: bool = False, services: bool = False
) -> list[DeclaredWorkload]:
    """Read every spec, in the order given. Raises ValidationError with all problems at once.

    With `services`, custom resources are read too.
    """
    return _load(paths, recursive=recursive, services=services, applications=None)


def load_specs_and_applications(
    paths: Sequence[str], *, recursive: bool = False
) -> tuple[list[DeclaredWorkload], list[DeclaredApplication]]:
    """Read every spec, and the Applications beside them."""
    applications: list[DeclaredApplication] = []
    found = _load(paths, recursive=recursive, services=False, applications=applications)
    return found, applications


def _load(
    paths: Sequence[str],
    *,
    recursive: bool,
    services: bool,
    applications: list[DeclaredApplication] | None,
) -> list[DeclaredWorkload]:
    found: list[DeclaredWorkload] = []
    problems: list[Problem] = []
    for path in paths:
        for name in _expand(path, recursive, problems):
            try:
                for each in _read_input(name):
                    _collect(each, found, problems, services=services, applications=applications)
            except ValidationError as error:
                problems.extend(error.problems)
    problems.extend(_duplicate_problems(found))
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


def _expand(path: str, recursive: bool, problems: list[Problem]) -> Iterator[str]:
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


def _read_input(name: str) -> Iterator[Document | DeclaredWorkload]:
    if name.endswith(".py"):
        for spec in run_spec_file(name):
            yield DeclaredWorkload(spec=spec, source=name)
        return
    yield from read_file_documents(name, octal=False)


def read_file_documents(name: str, *, octal: bool = True) -> list[Document]:
    """Read the documents of one file, or of stdin, whatever they are."""
    data = _read_bytes(name)
    # JSON on stdin is read as JSON, because YAML does not know all of JSON's escapes.
    is_json = name.endswith(".json") or bool(re.match(rb'\s*\{\s*["}]', data))
    return read_documents(data, source="stdin" if name == "-" else name, json=is_json, octal=octal)


def _read_bytes(name: str) -> bytes:
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


def _collect(
    each: Document | DeclaredWorkload,
    found: list[DeclaredWorkload],
    problems: list[Problem],
    *,
    services: bool,
    applications: list[DeclaredApplication] | None,
) -> None:
    if isinstance(each, DeclaredWorkload):
        found.append(each)
        return
    try:
        if services and isinstance(each.value, dict) and each.value.get("kind") == KIND:
            found.append(_parse_service(each))
        elif applications is not None and _is_application(each):
            applications.append(_parse_application(each))
        elif _is_foreign(each):
            known = [WORKLOAD, *[KIND] * services, *[APPLICATION] * (applications is not None)]
            problems.append(_foreign_problem(each, known))
        else:
            found.append(DeclaredWorkload(spec=spec_from_document(each.value), source=each.where()))
    except ValidationError as error:
        if error.problems:
            problems.extend(_with_position(problem, each) for problem in error.problems)
        else:
            problems.append(Problem(field=each.where(), reason=error.happened, fix=error.hint))


def _is_foreign(document: Document) -> bool:
    """True for another Kubernetes object, of which every field would be a problem of its own."""
    value = document.value
    return isinstance(value, dict) and "metadata" in value and value.get("kind") != WORKLOAD


def _foreign_problem(document: Document, known: list[str]) -> Problem:
    assert isinstance(document.value, dict)  # noqa: S101  # asked before
    kind = quote_text(str(document.value.get("kind", "")), 63)
    problem = Problem(
        field="kind", reason=f"{kind} is not declared here.",
        fix=f"Give documents of {' or '.join(known)}.",
    )  # fmt: skip
    return _with_position(problem, document)


def _parse_service(document: Document) -> DeclaredWorkload:
    from holdfast.wire.inference_service_v1alpha1 import service_from_json
    from holdfast.wire.service_mapping import spec_of

    service = service_from_json(document.value)
    return DeclaredWorkload(spec=spec_of(service), source=document.where(), service=service)


def _is_application(document: Document) -> bool:
    return isinstance(document.value, dict) and document.value.get("kind") == APPLICATION


def _parse_application(document: Document) -> DeclaredApplication:
    from holdfast.wire.application_v1alpha1 import application_from_json

    application = application_from_json(document.value)
    return DeclaredApplication(application=application, source=document.where())


def _with_position(problem: Problem, document: Document) -> Problem:
    pointer = "/" + re.sub(r"[.\[]", "/", problem.field).replace("]", "")
    value = document.value
    if isinstance(value, dict) and "spec" in value and pointer.split("/")[1] not in value:
        pointer = f"/spec{pointer}"  # the fields of a custom resource go by their names inside it
    where = f"{document.where(pointer)}: {problem.field}"
    return Problem(field=where, reason=problem.reason, fix=problem.fix)


def _duplicate_problems(found: Sequence[DeclaredWorkload]) -> Iterator[Problem]:
    first: dict[tuple[str | None, str], DeclaredWorkload] = {}
    for each in found:
        key = (each.spec.project, each.spec.slug)
        if key in first:
            yield Problem(
                field=each.source,
                reason=f"workload {each.spec.slug} is declared in {first[key].source} too.",
                fix="Keep one, or give one another slug.",
            )
        first.setdefault(key, each)


RUN_NAME = "__holdfast__"
"""Not `__main__`, so that what a file does when it is run as a program is not done here."""


def run_spec_file(name: str) -> list[WorkloadSpec]:
    """Return what `workloads` holds or returns; without it, every spec of the globals.

    A global that is a list, a tuple or a mapping of specs counts as much as a spec itself.

    What the file prints goes to stderr, so that stdout keeps the result alone.
    """
    if not Path(name).is_file():
        problem = Problem(field=name, reason="there is no such file.", fix="Check the path.")
        raise ValidationError(problems=[problem])
    folder = str(Path(name).resolve().parent)
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exported = runpy.run_path(name, run_name=RUN_NAME)
            chosen = exported.get("workloads")
            found = chosen() if callable(chosen) else chosen
            if found is None and chosen is None:
                found = _specs_in_globals(exported)
            return _check_specs(name, found)
    except (Exception, SystemExit) as error:
        raise ValidationError(problems=_problems_of(name, error)) from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _specs_in_globals(exported: Mapping[str, object]) -> list[object]:
    """Every spec among the globals, and everything in a collection with one, once."""
    found: dict[int, object] = {}
    for value in exported.values():
        inside = list(value.values()) if isinstance(value, Mapping) else value
        if not isinstance(inside, list | tuple | set | frozenset):
            inside = [value]
        if any(isinstance(each, WorkloadSpec) for each in inside):
            found |= {id(each): each for each in inside}
    return list(found.values())


def _check_specs(name: str, found: object) -> list[WorkloadSpec]:
    if isinstance(found, WorkloadSpec):
        return [found]
    given = list(found) if isinstance(found, Iterable) else [found]
    specs = [each for each in given if isinstance(each, WorkloadSpec)]
    if not specs or len(specs) < len(given):
        problem = Problem(
            field=name,
            reason="it exports no WorkloadSpec."
            if not given
            else "it exports something beside its specs that is not a WorkloadSpec.",
            fix="Export specs and lists of specs as globals, or a list or function called "
            "workloads.",
        )
        raise ValidationError(problems=[problem])
    return specs


def _problems_of(name: str, error: BaseException) -> list[Problem]:
    where = f"{name}:{_failing_line(name, error)}"
    if isinstance(error, ValidationError) and error.problems:
        if all(problem.field == name for problem in error.problems):
            return list(error.problems)
        return [
            Problem(field=f"{where}: {each.field}", reason=each.reason, fix=each.fix)
            for each in error.problems
        ]
    if isinstance(error, HoldfastError):
        return [Problem(field=where, reason=error.happened, fix=error.hint or "Fix the file.")]
    text = traceback.format_exception_only(error)[-1].strip()
    return [Problem(field=where, reason=f"it failed with {text[:300]}.", fix="Fix the file.")]


def _failing_line(name: str, error: BaseException) -> int:
    """Return the last line of the file itself that the error passed through."""
    if isinstance(error, SyntaxError) and error.filename == name and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 1 for frame in reversed(frames) if frame.filename == name), 1)
