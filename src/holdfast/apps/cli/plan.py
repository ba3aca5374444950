"""`holdfast plan`: what `ensure` would change. Changes nothing in any situation."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from holdfast.apps.cli import options
from holdfast.apps.cli.exits import Exit
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.inputs import load_specs
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.plan import show_plan
from holdfast.apps.cli.views.text import count
from holdfast.core.errors import ConfigurationError
from holdfast.core.plan import Plan
from holdfast.wire.plan_v1 import plan_to_json


@click.command(
    "plan",
    cls=Verb,
    examples=[
        "holdfast plan -f deploy/",
        "holdfast plan -f deploy/ --out plan.json && holdfast ensure --plan plan.json",
        "holdfast plan -f deploy/ --exit-code          # 2 when something differs, for CI",
        "holdfast plan -f deploy/ -o markdown          # for a pull request",
    ],
)
@options.files()
@click.option(
    "--out", type=click.Path(dir_okay=False), help="Save the plan, to be applied as it is."
)
@options.exit_code
@options.connected(*options.LIST_FORMATS)
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    paths: tuple[str, ...],
    recursive: bool,
    out: str | None,
    exit_code: bool,
) -> None:
    """Show what ensure would change.

    Compares what is declared with what is live. Nothing is changed, and a workload that could
    not be read is an error, never a plan to create it.
    """
    screen = session.screen
    declared = load_specs(paths, recursive=recursive)
    with session.client() as client:
        if screen.for_people:
            screen.info(
                f"Comparing {count(len(declared), 'workload')} with {session.connected_to}\n"
            )
        plan = client.plan([each.spec for each in declared])
    if out:
        save_plan(plan, out)
    show_plan(screen, plan)
    given = options.repeat_files(paths, recursive=recursive)
    if out:
        screen.info(f"Saved {plan.id} in {out}.")
        if plan:
            screen.next(f"holdfast ensure --plan {out}")
    elif plan:
        screen.next(f"holdfast ensure {given}")
    else:
        screen.next("holdfast status")
    if plan and exit_code:
        ctx.exit(Exit.CHANGES)


def save_plan(plan: Plan, path: str) -> None:
    """Write a plan for its owner alone: it holds the values that will be written."""
    data = msgspec.json.format(msgspec.json.encode(plan_to_json(plan)), indent=2)
    draft = Path(f"{path}.new")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data + b"\n")
        draft.replace(path)
    except OSError as error:
        raise ConfigurationError(
            f"The plan cannot be saved in {path}: {error.strerror}.",
            hint="Choose a place that you can write to.",
        ) from error
