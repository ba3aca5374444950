"""Shows drifts of the ledger and rows of the history."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.causes import Moved
from holdfast.apps.cli.views.explained import OBJECTS
from holdfast.apps.cli.views.forms import evidence_lines, masked, show_block, show_list, shown
from holdfast.apps.cli.views.text import age, columns, one_line, stamp
from holdfast.core.ink import Ink
from holdfast.core.ledger import DriftEntry, DriftRecord, HistoryEntry
from holdfast.core.redact import names_a_secret, redact_tree
from holdfast.core.show import text_diff
from holdfast.core.tree import Tree, parse_pointer, show_path
from holdfast.wire.ledger_v1 import drift_to_json, history_to_json

_HEADS = ["ID", "WORKLOAD", "KIND", "FIELDS", "BY", "CAUSE", "AGE", "STATE"]
_TOLD = r"(?:^|\. )(\S+(?: \S+)?) changed "
"""Who changed something, in the operator's sentences."""


def show_drifts(
    screen: Screen, drifts: Sequence[DriftRecord], *, now: datetime, certain: bool = True
) -> None:
    """Write a list of drifts as asked. `certain` is False where there may be others."""
    none = "No drift." if certain else "No drift is known."
    match screen.output:
        case "table" | "wide":
            if drifts:
                for line in columns(_HEADS, [_row(each, now) for each in drifts]):
                    screen.line(line)
            still = [each.first_seen for each in drifts if each.resolved_at is None]
            oldest = f" · oldest {age(min(still), now)}" if still else ""
            screen.line(f"{len(still)} open{oldest}" if drifts else none)
        case _:
            show_list(
                screen,
                "DriftList",
                heads=_HEADS,
                rows=(_row(each, now) for each in drifts),
                names=(each.id for each in drifts),
                bodies=(drift_body(each) for each in drifts),
            )


def show_drift(screen: Screen, drift: DriftRecord, *, now: datetime) -> None:
    """Write one drift: what moved, who moved it, and how that is known."""
    if not screen.for_people:
        screen.document("Drift", drift_body(drift))
        return
    kinds = " + ".join(drift.kinds)
    screen.line(f"{drift.id}  {drift.workload}  {kinds} drift, {_state(drift)}")
    ended = f", resolved {stamp(drift.resolved_at)}" if drift.resolved_at else ""
    ago = age(drift.first_seen, now)
    screen.line(f"First seen {stamp(drift.first_seen)} ({ago} ago){ended}")
    screen.line()
    rows = [
        [
            _path(entry),
            _text(entry.live, entry),
            _text(entry.desired, entry),
            entry.kind.value,
            _by(entry),
        ]
        for entry in drift.fields
        if entry.path != OBJECTS
    ]
    if rows:
        head, *lines = columns(["FIELD", "LIVE", "DECLARED", "KIND", "CHANGED BY"], rows)
        screen.line(screen.paint(head, Ink.FAINT))
        for line in lines:
            screen.line(line)
    for entry in drift.fields:
        if entry.path == OBJECTS:  # a report in sentences, too long for a column
            screen.line(f"Objects: {one_line(str(entry.live))}")
        elif not any(names_a_secret(part) for part in entry.path.split("/")):
            lines = text_diff(entry.live, entry.desired, ascii_only=screen.ascii_only)
            show_block(screen, _path(entry), lines)
    evidence = evidence_lines((_path(entry), entry.evidence) for entry in drift.fields)
    if evidence:
        screen.line()
        for line in evidence:
            screen.line(line)


def show_history(screen: Screen, entries: Sequence[HistoryEntry]) -> None:
    """Write audit rows as asked."""
    match screen.output:
        case "table" | "wide":
            wide = screen.output == "wide"
            rows = [
                [
                    str(each.seq),
                    stamp(each.at),
                    str(each.workload).rstrip("/"),
                    each.action,
                    str(each.writer),
                    each.summary,
                    *([json.dumps(redact_tree(each.detail))] if wide else []),
                ]
                for each in entries
            ]
            heads = ["SEQ", "AT", "WORKLOAD", "ACTION", "BY", "SUMMARY", *(["DETAIL"] * wide)]
            for line in columns(heads, rows) if rows else ["No history."]:
                screen.line(line)
        case "jsonl":
            screen.records("HistoryList", [_history_body(each) for each in entries])
        case _:
            screen.document("HistoryList", {"items": [_history_body(each) for each in entries]})


def drift_body(drift: DriftRecord) -> Mapping[str, object]:
    """Write one drift for programs."""
    return masked(drift_to_json(drift))


def moved(drift: DriftRecord) -> Moved:
    """Give what a list by cause needs."""
    writers = sorted({_by(entry) for entry in drift.fields})
    causes = sorted({entry.cause.value for entry in drift.fields})
    return Moved(
        cause=f"{', '.join(writers)} ({', '.join(causes)})", kinds=tuple(drift.kinds),
        first_seen=drift.first_seen, what=str(drift.workload), id=drift.id,
    )  # fmt: skip


def _history_body(entry: HistoryEntry) -> Mapping[str, object]:
    return masked(history_to_json(entry))


def _row(drift: DriftRecord, now: datetime) -> list[str]:
    writers = dict.fromkeys(_by(entry) for entry in drift.fields)
    causes = dict.fromkeys(
        "told by the operator" if entry.path == OBJECTS else entry.cause.value
        for entry in drift.fields
    )
    return [
        drift.id,
        str(drift.workload),
        ",".join(drift.kinds),
        # How many fields of its objects moved, the operator says in sentences only.
        "-" if any(entry.path == OBJECTS for entry in drift.fields) else str(len(drift.fields)),
        ", ".join(writers),
        ",".join(causes),
        age(drift.first_seen, now),
        _state(drift),
    ]


def _by(entry: DriftEntry) -> str:
    if entry.writer is None and entry.path == OBJECTS:
        told = re.findall(_TOLD, one_line(str(entry.live)))
        return ", ".join(dict.fromkeys(told)) or "unknown"
    return str(entry.writer) if entry.writer else "unknown"


def _state(drift: DriftRecord) -> str:
    return drift.resolution or "open"


def _path(entry: DriftEntry) -> str:
    return show_path(parse_pointer(entry.path)) if entry.path.startswith("/") else entry.path


def _text(value: Tree, entry: DriftEntry) -> str:
    return "(not set)" if value is None else shown(value, entry.path)
