"""`holdfast validate`: check specs without asking anyone."""

from __future__ import annotations

import click

from holdfast.doors.cli import options
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.inputs import load
from holdfast.doors.cli.session import Session, pass_session
from holdfast.doors.cli.views.text import columns, count


@click.command(
    "validate",
    cls=Verb,
    examples=[
        "holdfast validate -f deploy/",
        "holdfast validate -f chat.yaml -f rerank.py",
        "cat chat.yaml | holdfast validate -f -",
    ],
)
@options.files()
@options.output("table", "json", "yaml", "jsonl", "name")
@pass_session
def command(session: Session, paths: tuple[str, ...], recursive: bool) -> None:
    """Check specs, offline.

    Every problem of every file is shown at once, with its line, its reason and its fix.
    """
    screen = session.screen
    declared = load(paths, recursive=recursive)
    items = [{"slug": each.spec.slug, "source": each.source} for each in declared]
    match screen.output:
        case "name":
            for each in declared:
                screen.line(each.spec.slug)
        case "jsonl":
            screen.records("Validation", items)
        case "table":
            rows = [[each.spec.slug, str(each.spec.backend), each.source] for each in declared]
            for line in columns(["WORKLOAD", "BACKEND", "DECLARED IN"], rows):
                screen.line(line)
            screen.line(f"{count(len(declared), 'workload')}, no problem.")
            screen.next(f"holdfast plan {options.given_files(paths, recursive=recursive)}")
        case _:
            screen.document("Validation", {"valid": True, "workloads": items})
