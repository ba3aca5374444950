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
from dataclasses import dataclass, field
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
    kinds = {WORKLOAD, KIND} if services else {WORKLOAD}
    return _Loader(kinds).load(paths, recursive).workloads


def load_specs_and_applications(
    paths: Sequence[str], *, recursive: bool = False
) -> tuple[list[DeclaredWorkload], list[DeclaredApplication]]:
    """Read every spec, custom resources too, and the Applications beside them."""
    loader = _Loader({WORKLOAD, KIND, APPLICATION}).load(paths, recursive)
    return loader.workloads, loader.applications


@dataclass
class _Loader:
    """Gathers what files declare, and every problem on the way."""

    kinds: set[str]
    """The kinds of documents that are taken; a spec need not name its own."""
    workloads: list[DeclaredWorkload] = field(default_factory=list)
    applications: list[DeclaredApplication] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def load(self, paths: Sequence[str], recursive: bool) -> _Loader:
        for path in paths:
            for name in _expand(path, recursive, self.problems):
                try:
                    self._read(name)
                except ValidationError as error:
                    self.problems.extend(error.problems)
        self._find_duplicates()
        if not (self.problems or self.workloads or self.applications):
            reason = "there is no workload in it."
            self.problems.append(Problem(field=", ".join(paths), reason=reason, fix="Declare one."))
        if self.problems:
            text = f"{count(len(self.problems), 'problem')} in what was declared."
            raise ValidationError(text, problems=self.problems)
        return self

    def _read(self, name: str) -> None:
        if name.endswith(".py"):
            specs = run_spec_file(name)
            self.workloads += [DeclaredWorkload(spec=spec, source=name) for spec in specs]
            return
        for document in read_file_documents(name, octal=False):
            try:
                self._take(document)
            except ValidationError as error:
                happened = Problem(field="", reason=error.happened, fix=error.hint)
                self.problems += [
                    _with_position(problem, document) for problem in error.problems or [happened]
                ]

    def _take(self, document: Document) -> None:
        value, source = document.value, document.where()
        fields = value if isinstance(value, dict) else {}
        kind = fields.get("kind")
        if kind == KIND and KIND in self.kinds:
            from holdfast.wire.inference_service_v1alpha1 import service_from_json
            from holdfast.wire.service_mapping import spec_of

            service = service_from_json(value)
            spec = spec_of(service)
            self.workloads.append(DeclaredWorkload(spec=spec, source=source, service=service))
        elif kind == APPLICATION and APPLICATION in self.kinds:
            from holdfast.wire.application_v1alpha1 import application_from_json

            application = application_from_json(value)
            self.applications.append(DeclaredApplication(application=application, source=source))
        elif "metadata" in fields and kind != WORKLOAD:
            # Another Kubernetes object, of which every field would be a problem of its own.
            reason = f"{quote_text(str(kind or ''), 63)} is not declared here."
            known = [each for each in (WORKLOAD, KIND, APPLICATION) if each in self.kinds]
            fix = f"Give documents of {' or '.join(known)}."
            raise ValidationError(problems=[Problem(field="kind", reason=reason, fix=fix)])
        else:
            spec = spec_from_document(value)
            self.workloads.append(DeclaredWorkload(spec=spec, source=source))

    def _find_duplicates(self) -> None:
        first: dict[tuple[str | None, str], DeclaredWorkload] = {}
        for each in self.workloads:
            other = first.setdefault((each.spec.project, each.spec.slug), each)
            if other is not each:
                reason = f"workload {each.spec.slug} is declared in {other.source} too."
                fix = "Keep one, or give one another slug."
                self.problems.append(Problem(field=each.source, reason=reason, fix=fix))


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


def _with_position(problem: Problem, document: Document) -> Problem:
    if not problem.field:
        return Problem(field=document.where(), reason=problem.reason, fix=problem.fix)
    pointer = "/" + re.sub(r"[.\[]", "/", problem.field).replace("]", "")
    value = document.value
    if isinstance(value, dict) and "spec" in value and pointer.split("/")[1] not in value:
        pointer = f"/spec{pointer}"  # the fields of a custom resource go by their names inside it
    where = f"{document.where(pointer)}: {problem.field}"
    return Problem(field=where, reason=problem.reason, fix=problem.fix)


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
