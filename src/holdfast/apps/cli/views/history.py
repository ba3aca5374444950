"""Shows lines of a controller's journal."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.output import masked_json
from holdfast.apps.cli.views.text import format_table, format_time
from holdfast.wire.gitops_http_v1 import JournalEntryForm

_HEADS = ["SEQ", "AT", "APPLICATION", "ABOUT", "ACTION", "BY", "SUMMARY"]


def show_journal(screen: Screen, entries: Sequence[JournalEntryForm]) -> None:
    """Write lines of the journal as asked."""
    match screen.output:
        case "table" | "wide":
            wide = screen.output == "wide"
            rows = [
                [
                    str(each.seq), format_time(each.at), each.application, each.subject, each.action,
                    each.actor, each.summary, *([_detail(each)] if wide else []),
                ]
                for each in entries
            ]  # fmt: skip
            heads = [*_HEADS, *(["DETAIL"] if wide else [])]
            for line in format_table(heads, rows) if rows else ["No history."]:
                screen.line(line)
        case "jsonl":
            screen.records("JournalList", [masked_json(each) for each in entries])
        case _:
            screen.document("JournalList", {"items": [masked_json(each) for each in entries]})


def _detail(entry: JournalEntryForm) -> str:
    return json.dumps(masked_json(entry).get("detail", {}))
