"""`holdfast status`: how workloads or applications are, and whether they are as declared."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import ControllerClient, find_controller
from holdfast.apps.cli.exits import Exit
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.workloads import ObservedWorkload, observed_workloads, show_workloads


@click.command(
    "status",
    cls=Verb,
    examples=[
        "holdfast status",
        "holdfast status support-bot -o wide",
        "holdfast status shop               # one application of a GitOps controller",
        "holdfast status -o json | jq '.items[] | select(.sync == \"drifted\") | .slug'",
    ],
)
@click.argument("names", shell_complete=options.complete_names, nargs=-1, metavar="[NAME]...")
@options.exit_code
@options.connected(*options.LIST_FORMATS)
@click.pass_context
def command(ctx: click.Context, session: Session, names: tuple[str, ...], exit_code: bool) -> None:
    """Show how workloads are doing, or the applications that a GitOps controller follows.

    SYNC is what the ledger knows: drifted while a drift is open. READY counts the replicas
    that serve. Of one application, the objects that are not as declared are shown, its holds and
    the plans that wait; with -o wide every object.
    """
    with find_controller(session) as controller:
        if controller is not None:
            if _show_applications(session, controller, names) and exit_code:
                ctx.exit(Exit.CHANGES)
            return
    workloads = _read_workloads(session, names)
    show_workloads(session.screen, workloads, now=datetime.now(UTC))
    drifted = [each for each in workloads if each.sync == "drifted"]
    failed = [each for each in workloads if each.live.status.phase == "error"]
    if not workloads:
        session.screen.next("holdfast ensure -f FILE")
    elif drifted and drifted[0].drifts:
        session.screen.next(f"holdfast drift show {drifted[0].drifts[0].id}")
    elif drifted or failed:
        session.screen.next(f"holdfast logs {(drifted or failed)[0].live.id}")
    else:
        session.screen.next("holdfast watch")
    if drifted and exit_code:
        ctx.exit(Exit.CHANGES)


def _show_applications(
    session: Session, controller: ControllerClient, names: tuple[str, ...]
) -> bool:
    """Show applications; True when one of them has drifted or is behind Git."""
    from holdfast.apps.cli.views.applications import show_application, show_applications

    now, api = datetime.now(UTC), controller.api
    found = [controller.call(api.application(name)) for name in names] or controller.applications
    if len(names) == 1:
        objects = controller.call(api.objects(names[0]))
        show_application(session.screen, found[0], objects, now=now)
        drift = next((each.drift for each in objects if each.drift), "")
        plan = next((each.id for each in found[0].plans if not each.decided), "")
        if plan:
            session.screen.next(f"holdfast approve {plan}")
        elif drift:
            session.screen.next(f"holdfast drift show {drift}")
        elif found[0].sync == "ahead":
            session.screen.next(f"holdfast sync {found[0].id} --dry-run")
        else:
            session.screen.next(f"holdfast history {found[0].id}")
    else:
        show_applications(session.screen, found, now=now)
        first = next((each.id for each in found if each.sync != "synced" or each.awaiting), "")
        session.screen.next(f"holdfast status {first}" if first else "holdfast history")
    return any(each.sync in ("drifted", "ahead") for each in found)


def _read_workloads(session: Session, names: tuple[str, ...]) -> list[ObservedWorkload]:
    """Read the named workloads, or all of the project."""
    with session.client() as client:
        if not names:
            return observed_workloads(client.list(), client.drifts())
        found: list[ObservedWorkload] = []
        for where in map(session.workload, names):
            live = session.find(client, where)
            drifts = client.drifts(slug=where.slug, project=where.project)
            found += observed_workloads([live], drifts)
        return found
