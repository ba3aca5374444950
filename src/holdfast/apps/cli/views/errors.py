"""Shows what went wrong: what happened, what was or was not changed, what to do next."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import click

from holdfast.core.errors import DriftError, HoldfastError, ValidationError

if TYPE_CHECKING:
    from holdfast.apps.cli.session import Session


def show_error(session: Session, error: HoldfastError) -> None:
    """Write an error for people, and as a document when a program asked for one."""
    from holdfast.apps.cli.views.plan import plan_body  # loads the wire forms: only for errors

    screen = session.screen
    changed = error.changed.partition("\n")[0]
    todo = session.caller.spoken(error.todo)
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
