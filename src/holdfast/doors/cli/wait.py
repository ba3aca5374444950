"""`holdfast wait`: block until workloads are ready, or as declared."""

from __future__ import annotations

import click

from holdfast.doors.cli import options
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.session import Session, pass_session
from holdfast.doors.cli.waiting import wait_ready, wait_synced


@click.command(
    "wait",
    cls=Verb,
    examples=[
        "holdfast wait support-bot",
        "holdfast wait --for ready support-bot reranker --timeout 30m",
        "holdfast wait --for synced support-bot",
    ],
)
@click.argument("workloads", shell_complete=options.workload_names, nargs=-1, required=True)
@click.option(
    "--for",
    "goal",
    type=click.Choice(["ready", "synced"]),
    default="ready",
    show_default=True,
    help="ready: it serves. synced: the ledger has no open drift of it.",
)
@options.timeout("15m")
@options.connection
@options.colour
@pass_session
def command(session: Session, workloads: tuple[str, ...], goal: str, timeout: float) -> None:
    """Wait until workloads are ready, or as declared.

    Ends with exit code 124 when the time is up, and at once when a workload cannot serve.
    """
    wait = wait_ready if goal == "ready" else wait_synced
    wait(session, workloads, timeout=timeout)
    session.screen.next("holdfast status")
