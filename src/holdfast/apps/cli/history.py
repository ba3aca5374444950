"""`holdfast history`: who did what to which workload or application, and when."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import find_controller
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.output import masked_json, show_list
from holdfast.apps.cli.views.text import format_table, format_time
from holdfast.core.ledger import HistoryEntry
from holdfast.core.tree import Fields
from holdfast.wire.ledger_v1 import history_to_json

if TYPE_CHECKING:
    from holdfast.wire.gitops_http_v1 import JournalEntryForm

T = TypeVar("T")
_HEADS = ["SEQ", "AT", "WORKLOAD", "ACTION", "BY", "SUMMARY"]
_JOURNAL_HEADS = ["SEQ", "AT", "APPLICATION", "ABOUT", "ACTION", "BY", "SUMMARY"]


@click.command(
    "history",
    cls=Verb,
    examples=[
        "holdfast history",
        "holdfast history support-bot --limit 20 -o wide",
        "holdfast history --about drf-57557f5b59",
    ],
)
@click.argument("name", shell_complete=options.complete_names, required=False)
@click.option("--about", metavar="ID", help="Only of this drift, plan or hold. For applications.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Rows to show."
)
@options.connected("table", "wide", "json", "yaml", "jsonl")
@click.pass_context
def command(
    ctx: click.Context, session: Session, name: str | None, about: str | None, limit: int
) -> None:
    """Show who did what, newest first.

    BY is the tool and the credential that it used, as they said of themselves.
    """
    with find_controller(session) as controller:
        if controller is not None:
            page = controller.call(
                controller.api.history(application=name or "", subject=about or "", limit=limit)
            )
            _show_journal(session.screen, page.entries)
            more = page.next is not None
            session.screen.next(
                "holdfast drift export --journal gives all of it" if more else "holdfast status"
            )
            return
    if about:
        ctx.fail("--about is for a server that follows applications.")
    with session.client() as client:
        if name:
            where = session.workload(name)
            entries = client.history(slug=where.slug, project=where.project, limit=limit)
            if not entries:
                session.find(client, where)
        else:
            entries = client.history(limit=limit)
    _show_history(session.screen, entries)
    session.screen.next("holdfast drift history")


def _show_history(screen: Screen, entries: Sequence[HistoryEntry]) -> None:
    """Write the history of workloads as asked."""

    def row(entry: HistoryEntry) -> list[str]:
        seq, at, workload = str(entry.seq), format_time(entry.at), str(entry.workload).rstrip("/")
        return [seq, at, workload, entry.action, str(entry.writer), entry.summary]

    _show_rows(
        screen, "HistoryList", _HEADS, entries, row, lambda each: masked_json(history_to_json(each))
    )


def _show_journal(screen: Screen, entries: Sequence[JournalEntryForm]) -> None:
    """Write lines of the journal as asked."""

    def row(entry: JournalEntryForm) -> list[str]:
        seq, at, about = str(entry.seq), format_time(entry.at), entry.subject
        return [seq, at, entry.application, about, entry.action, entry.actor, entry.summary]

    _show_rows(screen, "JournalList", _JOURNAL_HEADS, entries, row, masked_json)


def _show_rows(
    screen: Screen,
    kind: str,
    heads: Sequence[str],
    entries: Sequence[T],
    row: Callable[[T], list[str]],
    body: Callable[[T], Fields],
) -> None:
    rows = [row(each) for each in entries]
    if screen.output == "wide":
        heads = [*heads, "DETAIL"]
        for cells, each in zip(rows, entries, strict=True):
            cells.append(json.dumps(body(each).get("detail", {})))
    lines = format_table(heads, rows) if rows else ["No history."]
    show_list(screen, kind, entries, lines=lines, body=body)
