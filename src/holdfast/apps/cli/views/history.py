"""Shows who did what: the history of workloads, and the journal of a GitOps controller."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.output import masked_json, show_list
from holdfast.apps.cli.views.text import format_table, format_time
from holdfast.core.ledger import HistoryEntry
from holdfast.core.redact import redact_tree
from holdfast.core.tree import Tree
from holdfast.wire.ledger_v1 import history_to_json

if TYPE_CHECKING:
    from holdfast.wire.gitops_http_v1 import JournalEntryForm

_HEADS = ["SEQ", "AT", "WORKLOAD", "ACTION", "BY", "SUMMARY"]
_JOURNAL_HEADS = ["SEQ", "AT", "APPLICATION", "ABOUT", "ACTION", "BY", "SUMMARY"]


def show_history(screen: Screen, entries: Sequence[HistoryEntry]) -> None:
    """Write the history of workloads as asked."""

    def row(entry: HistoryEntry) -> list[str]:
        workload = str(entry.workload).rstrip("/")
        return [workload, entry.action, str(entry.writer), entry.summary]

    rows = [
        [str(each.seq), format_time(each.at), *row(each), *_detail(screen, each.detail)]
        for each in entries
    ]
    show_list(
        screen,
        "HistoryList",
        entries,
        lines=_table(screen, _HEADS, rows),
        body=lambda each: masked_json(history_to_json(each)),
    )


def show_journal(screen: Screen, entries: Sequence[JournalEntryForm]) -> None:
    """Write lines of the journal as asked."""

    def row(entry: JournalEntryForm) -> list[str]:
        return [entry.application, entry.subject, entry.action, entry.actor, entry.summary]

    rows = [
        [
            str(each.seq),
            format_time(each.at),
            *row(each),
            *_detail(screen, masked_json(each).get("detail", {})),
        ]
        for each in entries
    ]
    show_list(
        screen, "JournalList", entries, lines=_table(screen, _JOURNAL_HEADS, rows), body=masked_json
    )


def _detail(screen: Screen, detail: Tree) -> list[str]:
    return [json.dumps(redact_tree(detail))] if screen.output == "wide" else []


def _table(screen: Screen, heads: list[str], rows: Sequence[Sequence[str]]) -> list[str]:
    wide = ["DETAIL"] if screen.output == "wide" else []
    return format_table([*heads, *wide], rows) if rows else ["No history."]
