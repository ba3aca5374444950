"""`holdfast validate`: check specs and Applications without asking anyone."""

from __future__ import annotations

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.inputs import DeclaredApplication, load_specs_and_applications
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.text import count


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
    """Check specs and Applications, offline.

    Every problem of every file is shown at once, with its line, its reason and its fix.
    """
    screen = session.screen
    declared, applications = load_specs_and_applications(paths, recursive=recursive)
    workloads = [{"slug": each.spec.slug, "source": each.source} for each in declared]
    found = [{"id": _name(each), "source": each.source} for each in applications]
    match screen.output:
        case "name":
            screen.lines([*(each.spec.slug for each in declared), *map(_name, applications)])
        case "jsonl":
            screen.records("Validation", [*workloads, *found])
        case "table":
            if declared:
                rows = [[each.spec.slug, str(each.spec.backend), each.source] for each in declared]
                screen.table(["WORKLOAD", "BACKEND", "DECLARED IN"], rows)
                screen.line(f"{count(len(declared), 'workload')}, no problem.")
            if applications:
                rows = [_row(each) for each in applications]
                screen.table(["APPLICATION", "PROJECT", "SOURCE", "DECLARED IN"], rows)
                screen.line(f"{count(len(applications), 'application')}, no problem.")
            given = options.repeat_files(paths, recursive=recursive)
            screen.next(
                f"holdfast plan {given}"
                if declared
                else f"kubectl apply --server-side {given}, or from files: holdfast gitops {given}"
            )
        case _:
            body = {"valid": True, "workloads": workloads, "applications": found}
            screen.document("Validation", body)


def _name(each: DeclaredApplication) -> str:
    return str(each.application.id).removeprefix("/")


def _row(each: DeclaredApplication) -> list[str]:
    spec = each.application.spec
    source = f"{spec.source.url} {spec.source.revision or 'main'} {spec.source.path or ''}"
    return [_name(each), spec.project, source.rstrip(), each.source]
