"""What the exit code says. Pipelines depend on it, so 2 is never a usage error."""

from __future__ import annotations

import traceback
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from holdfast.core.errors import (
    AuthError,
    Conflict,
    DriftError,
    HoldfastError,
    PermissionDenied,
    RefusedByPolicy,
    ValidationError,
    WaitTimeout,
)

if TYPE_CHECKING:
    from holdfast.apps.cli.session import Session


class Exit(IntEnum):
    """The exit codes, as `holdfast help exit-codes` lists them."""

    OK = 0
    ERROR = 1
    CHANGES = 2
    POLICY = 3
    AUTH = 4
    STALE = 5
    USAGE = 64
    TIMEOUT = 124
    INTERRUPTED = 130


EXIT_MEANINGS = {
    Exit.OK: "All is well, and without --exit-code also: there is drift or there are changes.",
    Exit.ERROR: "An error: invalid input, an unreachable target, a failed check.",
    Exit.CHANGES: "Drift or changes were found. Only with --exit-code.",
    Exit.POLICY: "The policy, a guard or a missing confirmation stopped it: --on-drift fail met "
    "drift, a plan or an application waits for a person, an object is another tool's, or there was "
    "nobody to ask.",
    Exit.AUTH: "The token is missing, not valid, or not allowed to do this.",
    Exit.STALE: "A saved plan is stale, or another writer was first.",
    Exit.USAGE: "The command line could not be understood.",
    Exit.TIMEOUT: "The time given with --timeout ended before what was waited for.",
    Exit.INTERRUPTED: "Interrupted with Ctrl-C.",
}


def exit_code_of(error: HoldfastError) -> Exit:
    """Say with which code an error ends the command."""
    match error:
        case DriftError() | RefusedByPolicy():
            return Exit.POLICY
        case AuthError() | PermissionDenied():
            return Exit.AUTH
        case Conflict():
            return Exit.STALE
        case WaitTimeout():
            return Exit.TIMEOUT
        case _:
            return Exit.ERROR


def show_error(session: Session, error: HoldfastError) -> None:
    """Write an error for people, and as a document when a program asked for one."""
    from holdfast.apps.cli.views.plan import plan_body  # loads the wire forms: only for errors

    screen = session.screen
    changed = error.changed.partition("\n")[0]
    todo = session.caller.as_typed(error.hint)
    problems = error.problems if isinstance(error, ValidationError) else ()
    if screen.output in ("json", "yaml", "jsonl"):
        body: dict[str, object] = {
            "code": error.code,
            "summary": error.summary,
            "happened": error.happened,
            "changed": changed,
            "next": todo,
            "problems": [
                {"where": each.field, "reason": each.reason, "fix": each.fix} for each in problems
            ],
        }
        if isinstance(error, DriftError):
            body["plan"] = plan_body(error.plan)
        if screen.output == "jsonl":
            screen.record({"type": "error", **body})
        else:
            screen.document("Error", body)
    details = [str(problem) for problem in problems]
    if isinstance(error, DriftError):
        from holdfast.core.show import plan_text  # needed here alone, and slow to load

        details += plan_text(error.plan, ascii_only=screen.ascii_only).splitlines()
    details += [line for line in (changed, f"Next: {todo}" if todo else "") if line]
    screen.error(error.code, f"{error.summary}. {error.happened}", details)


def show_usage_error(session: Session, error: click.ClickException) -> None:
    """Write what is wrong with the command line, and where its help is."""
    details = []
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        details = [context.get_usage()]
        details.append(f"Next: {context.command_path} --help")
    session.screen.error("usage", error.format_message(), details)


def show_crash(session: Session, error: Exception) -> None:
    """Write a fault of ours so that it can be reported: where it was, and no values."""
    frames = traceback.extract_tb(error.__traceback__)
    session.screen.error(
        "internal",
        f"Holdfast failed in a way it should not: {type(error).__name__}.",
        [
            *(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames[-8:]),
            "What was changed before that is unknown: look with holdfast status and history.",
            "Next: report this, with the lines above and holdfast version.",
        ],
    )
