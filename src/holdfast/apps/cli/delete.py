"""`holdfast delete`: end workloads. Saying it twice is no error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.inputs import load_specs
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.text import count
from holdfast.core.cost import describe_cost
from holdfast.core.errors import report_changes
from holdfast.core.names import WorkloadId

PRICED = 20
"""Of how many workloads the cost is asked before the question."""


@click.command(
    "delete",
    cls=Verb,
    examples=[
        "holdfast delete support-bot",
        "holdfast delete support-bot reranker --yes",
        "holdfast delete -f deploy/ --yes",
    ],
)
@click.argument("workloads", shell_complete=options.complete_names, nargs=-1)
@options.files(required=False)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.connected("table", "json", "yaml", "jsonl", "name")
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    workloads: tuple[str, ...],
    paths: tuple[str, ...],
    recursive: bool,
    yes: bool,
) -> None:
    """Delete workloads: their processes are stopped, their record goes, their history stays.

    Asks first on a terminal, and says what each costs. Elsewhere it needs --yes, and ends with
    exit code 3 without it.
    """
    if bool(workloads) == bool(paths):
        ctx.fail("Give either the names of workloads or -f.")
    screen = session.screen
    ids = [session.workload(name) for name in workloads] or [
        WorkloadId(project=each.spec.project or session.project, slug=each.spec.slug)
        for each in load_specs(paths, recursive=recursive)
    ]
    names = ", ".join(map(str, ids))
    if not yes and screen.interactive:
        screen.info(f"This stops and deletes {names} in {session.connected_to}.")
        for line in _describe_costs(session, ids):
            screen.info(line)
    if not yes and not session.confirm(
        "Delete?",
        action=f"Deleting {count(len(ids), 'workload')}",
        hint=f"add --yes to delete {names}",
        code="confirmation-needed",
    ):
        return
    items, deleted = [], list[str]()
    with session.client() as client:
        for id in ids:
            with report_changes(f"Deleted before that: {', '.join(deleted)}." if deleted else ""):
                existed = client.delete(id.slug, project=id.project)
            deleted += [str(id)] if existed else []
            outcome = "deleted" if existed else "absent"
            items.append({"project": id.project, "slug": id.slug, "outcome": outcome})
            if screen.output == "table":
                screen.line(f"- {id}  {'deleted' if existed else 'was not there'}")
            elif screen.output == "name":
                screen.line(str(id))
    if screen.output == "jsonl":
        screen.records("DeleteResult", items)
    elif screen.output in ("json", "yaml"):
        screen.document("DeleteResult", {"workloads": items})
    screen.next("holdfast status")


def _describe_costs(session: Session, ids: Sequence[WorkloadId]) -> Iterator[str]:
    """Say of each workload what deleting it costs, as far as the target knows."""
    with session.client() as client:
        for id in ids[:PRICED]:
            plan = client.plan_delete(id.slug, project=id.project)
            cost = describe_cost(plan.steps[0].cost, "replica") if plan else "it is not there"
            yield f"  {id}: {cost}"
    if (left := len(ids) - PRICED) > 0:
        yield f"  What {count(left, 'more workload')} cost was not asked."
