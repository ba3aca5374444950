"""`holdfast drift`: what the ledger knows about workloads that moved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from holdfast.core.errors import NotFound
from holdfast.core.ledger import DriftRecord
from holdfast.doors.cli import options
from holdfast.doors.cli.exits import Exit
from holdfast.doors.cli.group import Verb, Verbs
from holdfast.doors.cli.session import Session, pass_session
from holdfast.doors.cli.views.drifts import show_drift, show_drifts
from holdfast.doors.cli.views.explained import show_explained


@click.group(
    "drift",
    cls=Verbs,
    examples=[
        "holdfast drift list",
        "holdfast drift explain support-bot",
        "holdfast drift show drift-aac97b798ad9",
        "holdfast drift history support-bot",
    ],
)
def command() -> None:
    """Show drift: what moved, what kind it is, and who moved it."""


@command.command(
    "list", cls=Verb, examples=["holdfast drift list", "holdfast drift list --exit-code"]
)
@click.argument("workload", shell_complete=options.workload_names, required=False)
@options.exit_code
@options.connection
@options.output(*options.LISTS)
@pass_session
@click.pass_context
def list_open(ctx: click.Context, session: Session, workload: str | None, exit_code: bool) -> None:
    """List the drifts that are open, newest first."""
    drifts = _drifts(session, workload)
    show_drifts(session.screen, drifts, now=datetime.now(UTC))
    if drifts:
        session.screen.next(f"holdfast drift show {drifts[0].id}")
    else:
        session.screen.next("holdfast drift history")
    if drifts and exit_code:
        ctx.exit(Exit.CHANGES)


@command.command("show", cls=Verb, examples=["holdfast drift show drift-aac97b798ad9 -o json"])
@click.argument("id")
@options.connection
@options.output("table", "json", "yaml")
@pass_session
def show(session: Session, id: str) -> None:
    """Show one drift: each field, its writer, and the evidence."""
    drift = next((each for each in _drifts(session, None, resolved=True) if each.id == id), None)
    if drift is None:
        raise NotFound(
            f"There is no drift {id[:60]} in project {session.project}.",
            todo="holdfast drift history lists all of them.",
        )
    show_drift(session.screen, drift, now=datetime.now(UTC))
    if drift.resolved_at:
        session.screen.next(f"holdfast history {drift.workload}")
    else:
        session.screen.next("holdfast ensure -f FILE puts the declared values back")


@command.command("explain", cls=Verb, examples=["holdfast drift explain support-bot"])
@click.argument("workload", shell_complete=options.workload_names, required=False)
@options.connection
@options.output("table", "json", "yaml", "jsonl")
@pass_session
def explain(session: Session, workload: str | None) -> None:
    """Explain open drifts in sentences: what moved, who moved it, and what follows.

    When nothing is open, the last drift that ended is explained, if it is remembered.
    """
    every = _drifts(session, workload, resolved=True)
    still = [each for each in every if each.resolved_at is None]
    chosen = still or list(every[:1])
    if not session.screen.for_people:
        show_drifts(session.screen, chosen, now=datetime.now(UTC))
        return
    if not still:
        session.screen.line("No drift is open." + (" The last one:" if chosen else ""))
    for each in chosen:
        show_explained(session.screen, each, now=datetime.now(UTC))
    session.screen.next(f"holdfast history {chosen[0].workload}" if chosen else "holdfast status")


@command.command("history", cls=Verb, examples=["holdfast drift history support-bot -o jsonl"])
@click.argument("workload", shell_complete=options.workload_names, required=False)
@options.connection
@options.output(*options.LISTS)
@pass_session
def history(session: Session, workload: str | None) -> None:
    """List every drift, the resolved ones too, newest first."""
    drifts = _drifts(session, workload, resolved=True)
    show_drifts(session.screen, drifts, now=datetime.now(UTC))
    session.screen.next(f"holdfast drift show {drifts[0].id}" if drifts else "holdfast status")


def _drifts(
    session: Session, workload: str | None, *, resolved: bool = False
) -> Sequence[DriftRecord]:
    with session.client() as client:
        if workload is None:
            return client.drifts(include_resolved=resolved)
        where = session.workload(workload)
        return client.drifts(slug=where.slug, project=where.project, include_resolved=resolved)
