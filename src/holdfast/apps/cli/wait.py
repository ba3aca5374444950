"""`holdfast wait`: block until workloads or applications are ready, or as declared."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import ControllerClient, find_controller
from holdfast.apps.cli.exits import Exit
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.workload_wait import hint_on_interrupt, wait_ready, wait_synced

if TYPE_CHECKING:
    from holdfast.apps.cli.application_wait import GoalState


@click.command(
    "wait",
    cls=Verb,
    examples=[
        "holdfast wait support-bot",
        "holdfast wait --for ready support-bot reranker --timeout 30m",
        "holdfast wait --for synced shop     # an application of a GitOps controller",
    ],
)
@click.argument(
    "names", shell_complete=options.complete_names, nargs=-1, required=True, metavar="NAME..."
)
@click.option(
    "--for",
    "goal",
    type=click.Choice(["ready", "synced", "healthy"]),
    default="ready",
    show_default=True,
    help="ready: it serves; of an application, it is synced and healthy. synced: no drift is "
    "open, and all that Git declares is applied. healthy: for applications, whatever Git says.",
)
@options.timeout("15m")
@options.connection
@options.colour
@pass_session
@click.pass_context
def command(
    ctx: click.Context, session: Session, names: tuple[str, ...], goal: GoalState, timeout: float
) -> None:
    """Wait until workloads or applications are ready, or as declared.

    Ends with exit code 124 when the time is up; at once when a workload cannot serve, or with
    exit code 3 when an application waits for a person. What the controller knows counts: after
    a push, holdfast sync --wait has it ask the repository first.
    """
    end = time.monotonic() + timeout
    with find_controller(session, until=end, timeout=timeout) as controller:
        if controller is not None:
            ctx.exit(_wait_for_applications(session, controller, names, goal, timeout, end))
    if goal == "healthy":
        ctx.fail("--for healthy is about applications; a workload that serves is ready.")
    wait = wait_ready if goal == "ready" else wait_synced
    wait(session, names, timeout=timeout, end=end)
    session.screen.next("holdfast status")


def _wait_for_applications(
    session: Session,
    controller: ControllerClient,
    names: Sequence[str],
    goal: GoalState,
    timeout: float,
    end: float,
) -> Exit:
    from holdfast.apps.cli.application_wait import WaitGoal, show_blocker, wait_for_application

    with hint_on_interrupt(session, goal, names, timeout, going_on="the controller carries on"):
        for name in names:
            found, blocker = wait_for_application(
                session, controller, name, WaitGoal(state=goal), end=end, timeout=timeout
            )
            if blocker is not None:
                show_blocker(session, blocker)
                return blocker.exit
            session.screen.info(f"{found.id} is {found.sync} and {found.health}.")
    session.screen.next(f"holdfast status {names[0]}" if len(names) == 1 else "holdfast status")
    return Exit.OK
