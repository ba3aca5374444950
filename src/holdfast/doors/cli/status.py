"""`holdfast status`: how workloads do, and whether they are as declared."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.doors.cli import options
from holdfast.doors.cli.exits import Exit
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.session import Session, pass_session
from holdfast.doors.cli.views.workloads import Seen, seen_of, show_workloads


@click.command(
    "status",
    cls=Verb,
    examples=[
        "holdfast status",
        "holdfast status support-bot -o wide",
        "holdfast status -o json | jq '.items[] | select(.sync == \"drifted\") | .slug'",
    ],
)
@click.argument("workloads", shell_complete=options.workload_names, nargs=-1)
@options.exit_code
@options.connection
@options.output(*options.LISTS)
@pass_session
@click.pass_context
def command(
    ctx: click.Context, session: Session, workloads: tuple[str, ...], exit_code: bool
) -> None:
    """Show how workloads do.

    SYNC is what the ledger knows: drifted while a drift is open. READY counts the replicas
    that serve.
    """
    seen = observe(session, workloads)
    show_workloads(session.screen, seen, now=datetime.now(UTC))
    drifted = [each for each in seen if each.drifts]
    failed = [each for each in seen if each.live.status.phase == "error"]
    if not seen:
        session.screen.next("holdfast ensure -f FILE")
    elif drifted:
        session.screen.next(f"holdfast drift show {drifted[0].drifts[0].id}")
    elif failed:
        session.screen.next(f"holdfast logs {failed[0].live.id}")
    else:
        session.screen.next("holdfast watch")
    if drifted and exit_code:
        ctx.exit(Exit.CHANGES)


def observe(session: Session, names: tuple[str, ...]) -> list[Seen]:
    """Read the named workloads, or all of the project."""
    with session.client() as client:
        if not names:
            return seen_of(client.list(), client.drifts())
        found: list[Seen] = []
        for where in map(session.workload, names):
            live = session.find(client, where)
            drifts = client.drifts(slug=where.slug, project=where.project)
            found += seen_of([live], drifts)
        return found
