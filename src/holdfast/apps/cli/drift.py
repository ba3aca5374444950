"""`holdfast drift`: what the ledger knows about workloads and objects that moved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import find_controller
from holdfast.apps.cli.exits import Exit
from holdfast.apps.cli.group import Verb, VerbGroup
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.drifts import (
    drift_body,
    show_causes,
    show_drift,
    show_drift_explanation,
    show_drifts,
    summarize_drift,
)
from holdfast.apps.cli.views.text import one_line
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.drift_list import DriftFilter, ListedWorkloadDrift, parse_words
from holdfast.core.errors import NotFound
from holdfast.core.gitops.drift import DriftState
from holdfast.core.ledger import DriftRecord
from holdfast.core.live import Live

_NAME = click.argument("name", shell_complete=options.complete_names, required=False)
_GROUP_BY = click.option(
    "--group-by", type=click.Choice(["cause"]), help="One row for each cause instead."
)


@click.group(
    "drift",
    cls=VerbGroup,
    examples=[
        "holdfast drift list",
        "holdfast drift list --group-by cause",
        "holdfast drift explain support-bot",
        "holdfast drift show drift-aac97b798ad9",
        "holdfast drift history support-bot",
    ],
)
def command() -> None:
    """Show drift: what moved, what kind it is, and who moved it.

    Works on workloads, and on the applications that a GitOps controller follows.
    """


@command.command(
    "list",
    cls=Verb,
    examples=[
        "holdfast drift list",
        "holdfast drift list shop --exit-code",
        "holdfast drift list --cause person --search chat",
        "holdfast drift list --state awaiting-approval",
    ],
)
@_NAME
@click.option(
    "--type",
    "kind",
    type=click.Choice([each.value for each in DriftKind]),
    help="Only this kind of drift. runtime is for workloads alone.",
)
@click.option(
    "--cause",
    type=click.Choice([each.value for each in Cause]),
    metavar="CAUSE",
    help="Only this cause, such as person.",
)
@click.option("--writer", metavar="NAME", help="Only what this tool wrote, named whole.")
@click.option(
    "--search",
    "words",
    metavar="WORDS",
    help="Words in the name, path, writer or id; all must match. No value is searched.",
)
@click.option(
    "--state",
    type=click.Choice(["open", "all", *(each.value for each in DriftState)]),
    metavar="STATE",
    help="Only this state, such as awaiting-approval, or all. For applications.",
)
@click.option(
    "--object-namespace", metavar="NAME", help="Only objects of this namespace. For applications."
)
@_GROUP_BY
@options.exit_code
@options.connected(*options.LIST_FORMATS)
@click.pass_context
def list_open(
    ctx: click.Context,
    session: Session,
    name: str | None,
    kind: str | None,
    cause: str | None,
    writer: str | None,
    words: str | None,
    state: str | None,
    object_namespace: str | None,
    group_by: str | None,
    exit_code: bool,
) -> None:
    """List the drifts that are open, newest first.

    A workload of which nobody can say whether it drifted is named in a warning, and with
    --exit-code the command ends with 1 then, unless drift was found elsewhere.
    """
    wanted = DriftFilter(
        kind=kind or "",
        cause=Cause(cause) if cause else None,
        writer=writer or "",
        words=parse_words(words or ""),
    )
    with find_controller(session) as controller:
        if controller is not None:
            from holdfast.apps.cli.applications import list_application_drifts

            found = list_application_drifts(
                session,
                controller,
                name or "",
                state=state or "open",
                wanted=wanted,
                namespace=object_namespace or "",
                grouped=group_by is not None,
            )
            if found and exit_code:
                ctx.exit(Exit.CHANGES)
            return
    if state or object_namespace:
        ctx.fail("--state and --object-namespace are for a server that follows applications.")
    drifts = [
        each for each in _read_drifts(session, name) if wanted.matches(ListedWorkloadDrift(each))
    ]
    unknown = _workloads_with_unknown_drift(session, name)
    now = datetime.now(UTC)
    if group_by:
        show_causes(session.screen, [summarize_drift(each) for each in drifts], now=now)
    else:
        show_drifts(session.screen, drifts, now=now, certain=not unknown)
    _warn_unknown_drift(session, unknown)
    following = f"show {drifts[0].id}" if drifts else "history"
    session.screen.next(f"holdfast drift {following}")
    if exit_code and (drifts or unknown):
        ctx.exit(Exit.CHANGES if drifts else Exit.ERROR)


@command.command("show", cls=Verb, examples=["holdfast drift show drift-aac97b798ad9 -o json"])
@click.argument("id")
@options.connected("table", "json", "yaml")
def show(session: Session, id: str) -> None:
    """Show one drift: each field, its writer, and the evidence."""
    with find_controller(session) as controller:
        if controller is not None:
            from holdfast.apps.cli.applications import describe_application_drift

            describe_application_drift(session, controller, id)
            return
    drift = next(
        (each for each in _read_drifts(session, None, resolved=True) if each.id == id), None
    )
    if drift is None:
        raise NotFound(
            f"There is no drift {id[:60]} in project {session.project}.",
            hint="holdfast drift history lists all of them.",
        )
    show_drift(session.screen, drift, now=datetime.now(UTC))
    if drift.resolved_at:
        session.screen.next(f"holdfast history {drift.workload}")
    else:
        session.screen.next("holdfast ensure -f FILE puts the declared values back")


@command.command(
    "explain",
    cls=Verb,
    examples=["holdfast drift explain support-bot", "holdfast drift explain drf-57557f5b59"],
)
@click.argument("name", shell_complete=options.complete_names, required=False, metavar="[NAME|ID]")
@options.connected("table", "json", "yaml", "jsonl")
def explain(session: Session, name: str | None) -> None:
    """Explain open drifts in sentences: what moved, who moved it, and what follows.

    When nothing is open, the last drift that ended is explained, if it is on record.
    """
    with find_controller(session) as controller:
        if controller is not None:
            from holdfast.apps.cli.applications import explain_application_drifts

            explain_application_drifts(session, controller, name or "")
            return
    every = _read_drifts(session, name, resolved=True, ids=True)
    still_open = [each for each in every if each.resolved_at is None]
    chosen = still_open or list(every[:1])
    if not session.screen.for_people:
        show_drifts(session.screen, chosen, now=datetime.now(UTC))
        return
    if not still_open:
        _warn_unknown_drift(session, _workloads_with_unknown_drift(session, name))
        session.screen.line("No drift is open." + (" The last one:" if chosen else ""))
    for each in chosen:
        show_drift_explanation(session.screen, each, now=datetime.now(UTC))
    session.screen.next(f"holdfast history {chosen[0].workload}" if chosen else "holdfast status")


@command.command("history", cls=Verb, examples=["holdfast drift history support-bot -o jsonl"])
@_NAME
@options.connected(*options.LIST_FORMATS)
def history(session: Session, name: str | None) -> None:
    """List every drift, the resolved ones too, newest first."""
    with find_controller(session) as controller:
        if controller is not None:
            from holdfast.apps.cli.applications import list_application_drifts

            list_application_drifts(session, controller, name or "", state="all")
            return
    drifts = _read_drifts(session, name, resolved=True)
    show_drifts(session.screen, drifts, now=datetime.now(UTC))
    session.screen.next(f"holdfast drift show {drifts[0].id}" if drifts else "holdfast status")


@command.command(
    "export",
    cls=Verb,
    examples=["holdfast drift export > drifts.jsonl", "holdfast drift export shop --journal"],
)
@_NAME
@click.option("--journal", is_flag=True, help="The lines of the journal instead. For applications.")
@options.connection
@options.colour
@pass_session
@click.pass_context
def export(ctx: click.Context, session: Session, name: str | None, journal: bool) -> None:
    """Write every drift, open or ended, as lines of JSON."""
    with find_controller(session) as controller:
        if controller is not None:
            what = "journal" if journal else "drifts"
            lines = controller.api.export(what=what, application=name or "")
            for line in controller.iterate(lines):
                click.echo(line)
            return
    if journal:
        ctx.fail("--journal is for a server that follows applications; see holdfast history.")
    for each in _read_drifts(session, name, resolved=True):
        session.screen.record(drift_body(each))


def _workloads_with_unknown_drift(session: Session, workload: str | None) -> list[Live]:
    """Return the workloads of which nobody can say whether their objects have drifted."""
    where = session.workload(workload) if workload else None
    with session.client() as client:
        every = client.list(project=where.project if where else None)
    chosen = [live for live in every if where is None or live.id == where]
    return [live for live in chosen if live.status.drift_unknown]


def _warn_unknown_drift(session: Session, unknown: Sequence[Live]) -> None:
    for live in unknown:
        why = one_line(live.status.drift_unknown)
        session.screen.warn(f"Whether {live.id} has drifted is unknown: {why}")


def _read_drifts(
    session: Session, workload: str | None, *, resolved: bool = False, ids: bool = False
) -> Sequence[DriftRecord]:
    """Return the drifts of a workload, or of all; with `ids`, a drift may be named instead.

    Raises NotFound for a workload that is not there and has no drift on record either.
    """
    with session.client() as client:
        if workload is None:
            return client.drifts(include_resolved=resolved)
        if ids and workload.startswith("drift-"):
            every = client.drifts(include_resolved=True)
            named = [each for each in every if each.id == workload]
            if named:
                return named
        where = session.workload(workload)
        found = client.drifts(slug=where.slug, project=where.project, include_resolved=resolved)
        if not found:
            session.find(client, where)
        return found
