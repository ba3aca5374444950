"""`holdfast watch`: workloads, or applications, as they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import find_controller
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.screen import API_VERSION, Screen
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.text import one_line
from holdfast.apps.cli.views.workloads import observed_workloads, workload_body, workload_table
from holdfast.core.ledger import DriftRecord
from holdfast.core.live import Live
from holdfast.core.names import WorkloadId
from holdfast.core.text_style import TextStyle

if TYPE_CHECKING:
    from holdfast.apps.sdk.management import ManagementClient
    from holdfast.apps.sdk.watching import WorkloadChange

RECENT_LINES = 8
"""Changes that are listed under the table."""


@click.command(
    "watch",
    cls=Verb,
    examples=[
        "holdfast watch",
        "holdfast watch support-bot --timeout 10m",
        "holdfast watch shop                # one application of a GitOps controller",
        "holdfast watch -o jsonl | jq -c 'select(.type == \"updated\")'",
    ],
)
@click.argument("name", shell_complete=options.complete_names, required=False)
@click.option("--timeout", type=options.Duration(), help="Stop after this long, such as 10m.")
@options.connected("table", "wide", "jsonl")
def command(session: Session, name: str | None, timeout: float | None) -> None:
    """Follow workloads, or applications, as they change.

    On a terminal the table is redrawn; under applications stand the last lines of the journal.
    Elsewhere, and with -o jsonl, each change is one line of JSON; the first line is
    {"type":"version"}, then each workload or application comes once as "present".
    """
    screen = session.screen
    with find_controller(session) as controller:
        if controller is not None:
            from holdfast.apps.cli.applications import watch_applications

            watch_applications(session, controller, name or "", timeout=timeout)
            return
    where = session.workload(name) if name else None
    slug, project = (where.slug, where.project) if where else (None, None)
    with session.client() as client:
        changes = client.watch(slug=slug, project=project, timeout=timeout)
        if screen.live and screen.output != "jsonl":
            _redraw(session, client, where, changes)
        else:
            _stream(screen, client, changes)


def _stream(screen: Screen, client: ManagementClient, changes: Iterator[WorkloadChange]) -> None:
    screen.record({"type": "version", "apiVersion": API_VERSION, "kind": "Watch"})
    first: Sequence[DriftRecord] | None = None
    for change in changes:
        where = change.live.id
        if change.kind == "present":
            first = client.drifts(project=where.project) if first is None else first
            drifts = first
        else:
            drifts = client.drifts(slug=where.slug, project=where.project)
        workload = observed_workloads([change.live], drifts)[0]
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        screen.record({"type": change.kind.value, "at": at, "workload": workload_body(workload)})


def _redraw(
    session: Session,
    client: ManagementClient,
    where: WorkloadId | None,
    changes: Iterator[WorkloadChange],
) -> None:
    project = where.project if where else session.project
    lives = {
        live.id: live for live in client.list(project=project) if where is None or live.id == where
    }
    recent: list[str] = []
    _draw(session, client, where, lives, recent)
    for change in changes:
        live = change.live
        if change.kind == "present" and lives.get(live.id) == live:
            continue
        if change.kind == "deleted":
            lives.pop(live.id, None)
        else:
            lives[live.id] = live
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        what = f"{live.status.phase}  {one_line(live.status.message)}"
        recent = [*recent, f"{now}  {live.id}  {change.kind}  {what}"][-RECENT_LINES:]
        _draw(session, client, where, lives, recent)
    session.screen.next("holdfast status")


def _draw(
    session: Session,
    client: ManagementClient,
    where: WorkloadId | None,
    lives: dict[WorkloadId, Live],
    recent: list[str],
) -> None:
    screen = session.screen
    project = where.project if where else session.project
    drifts = client.drifts(slug=where.slug if where else None, project=project)
    workloads = observed_workloads([lives[key] for key in sorted(lives)], drifts)
    now = datetime.now(UTC)
    screen.clear()
    title = f"{session.connected_to} · {now.astimezone():%H:%M:%S} · Ctrl-C to leave"
    screen.line(screen.paint(title, TextStyle.FAINT))
    screen.lines(workload_table(screen, workloads, now=now))
    screen.lines(screen.paint(line, TextStyle.FAINT) for line in recent)
