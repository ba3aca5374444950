"""Runs a Python file that a user named, and takes the specs it exports."""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.core.errors import HoldfastError, Problem, ValidationError
from holdfast.core.workload import WorkloadSpec

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
                found = _globals(exported)
            return _checked(name, found)
    except (Exception, SystemExit) as error:
        raise ValidationError(problems=_problems(name, error)) from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _globals(exported: Mapping[str, object]) -> list[object]:
    """Every spec among the globals, and all that stands in a collection beside one, once."""
    found: dict[int, object] = {}
    for value in exported.values():
        inside = list(value.values()) if isinstance(value, Mapping) else value
        if not isinstance(inside, list | tuple | set | frozenset):
            inside = [value]
        if any(isinstance(each, WorkloadSpec) for each in inside):
            found |= {id(each): each for each in inside}
    return list(found.values())


def _checked(name: str, found: object) -> list[WorkloadSpec]:
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


def _problems(name: str, error: BaseException) -> list[Problem]:
    where = f"{name}:{_line(name, error)}"
    if isinstance(error, ValidationError) and error.problems:
        if all(problem.field == name for problem in error.problems):
            return list(error.problems)
        return [
            Problem(field=f"{where}: {each.field}", reason=each.reason, fix=each.fix)
            for each in error.problems
        ]
    if isinstance(error, HoldfastError):
        return [Problem(field=where, reason=error.happened, fix=error.todo or "Fix the file.")]
    text = traceback.format_exception_only(error)[-1].strip()
    return [Problem(field=where, reason=f"it failed with {text[:300]}.", fix="Fix the file.")]


def _line(name: str, error: BaseException) -> int:
    """Return the last line of the file itself that the error passed through."""
    if isinstance(error, SyntaxError) and error.filename == name and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 1 for frame in reversed(frames) if frame.filename == name), 1)
