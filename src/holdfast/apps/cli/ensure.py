"""`holdfast ensure`: make live match what is declared, as far as the policy allows."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.inputs import load_specs
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.plan import (
    WorkloadOutcome,
    describe_changes,
    outcome_of_ref,
    outcomes_of_plan,
    show_outcomes,
)
from holdfast.apps.cli.workload_wait import wait_ready
from holdfast.core.errors import ConfigurationError, DriftError, NotFound, report_changes
from holdfast.core.policy import OnDrift
from holdfast.wire.plan_v1 import plan_from_json

MAX_PLAN_BYTES = 64 * 2**20


@click.command(
    "ensure",
    cls=Verb,
    examples=[
        "holdfast ensure -f deploy/",
        "holdfast ensure -f chat.yaml --wait --timeout 15m",
        "holdfast ensure -f chat.yaml --on-drift fail      # exit 3 when it has drifted",
        "holdfast ensure --plan plan.json                  # exactly what was reviewed",
    ],
)
@options.files(required=False)
@click.option(
    "--plan", "plan_file", type=click.Path(dir_okay=False), help="Apply a plan saved by plan --out."
)
@click.option(
    "--on-drift",
    type=options.PolicyChoice(["reconcile", "fail", "dry-run", "warn", "ignore"]),
    default="reconcile",
    show_default=True,
    help="What to do about a workload that has drifted.",
)
@click.option(
    "--on-absent",
    type=options.PolicyChoice(["create", "plan", "fail"]),
    default="create",
    show_default=True,
    help="What to do about a workload that is not there.",
)
@click.option("--wait", is_flag=True, help="Wait until every workload is ready.")
@options.timeout("15m")
@options.connected("table", "json", "yaml", "jsonl", "name")
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    paths: tuple[str, ...],
    recursive: bool,
    plan_file: str | None,
    on_drift: str,
    on_absent: str,
    wait: bool,
    timeout: float,
) -> None:
    """Make live match what is declared.

    Safe to repeat: a workload that is as declared is left alone. With --on-drift fail nothing
    at all is written when any of them has drifted. Ctrl-C while waiting stops the waiting, not
    the workloads.
    """
    if bool(paths) == bool(plan_file):
        ctx.fail("Give either -f or --plan.")
    done = (
        _apply_saved_plan(session, plan_file)
        if plan_file
        else _ensure_specs(session, paths, recursive, on_drift, on_absent)
    )
    show_outcomes(session.screen, done)
    alive = [str(each.step.id) for each in done if each.live]
    if wait:
        with report_changes(describe_changes(done)):
            wait_ready(session, alive, timeout=timeout)
    if any(each.outcome == "planned" for each in done):
        given = options.repeat_files(paths, recursive=recursive)
        session.screen.next(f"holdfast ensure {given}, to make these changes")
    elif alive and session.embedded:
        session.screen.next("holdfast serve, which runs them, unless it runs already")
    elif alive and not wait:
        session.screen.next(f"holdfast wait --for ready {' '.join(alive[:3])}")
    else:
        session.screen.next("holdfast status")


def _ensure_specs(
    session: Session, paths: tuple[str, ...], recursive: bool, on_drift: str, on_absent: str
) -> list[WorkloadOutcome]:
    specs = [each.spec for each in load_specs(paths, recursive=recursive)]
    with session.client() as client:
        try:
            refs = client.ensure_all(specs, on_drift=on_drift, on_absent=on_absent)
        except DriftError as error:
            error.hint = "Leave --on-drift fail out to apply this plan, or change the declaration."
            raise
        except NotFound as error:
            error.hint = "Leave --on-absent fail out to create it, or check slug and project."
            raise
    done = [outcome_of_ref(ref) for ref in refs]
    for each in done:
        if each.outcome == "left" and on_drift == OnDrift.WARN:
            session.screen.warn(f"Workload {each.step.id} has drifted. Nothing was changed.")
    return done


def _apply_saved_plan(session: Session, name: str) -> list[WorkloadOutcome]:
    try:
        with Path(name).open("rb") as file:
            plan = plan_from_json(file.read(MAX_PLAN_BYTES))
    except OSError as error:
        raise ConfigurationError(
            f"The plan {name} cannot be read: {error.strerror}.",
            hint="Make one with holdfast plan --out FILE.",
        ) from error
    with session.client() as client:
        lives = client.apply(plan)
    session.screen.info(f"{plan.id} still matched what is live, and was applied.")
    return outcomes_of_plan(plan, lives)
