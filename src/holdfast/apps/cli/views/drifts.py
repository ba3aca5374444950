"""Shows drifts of the ledger and rows of the history."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.output import (
    evidence_lines,
    format_value,
    masked_json,
    show_list,
    show_unified_diff,
)
from holdfast.apps.cli.views.text import age, count, format_table, format_time, one_line
from holdfast.core.drift import Cause
from holdfast.core.ledger import DriftEntry, DriftRecord, HistoryEntry
from holdfast.core.redact import names_a_secret, redact_tree
from holdfast.core.show import text_diff
from holdfast.core.text_style import TextStyle
from holdfast.core.tree import Tree, parse_pointer, show_path
from holdfast.wire.ledger_v1 import drift_to_json, history_to_json

_CAUSE_HEADS = ["CAUSE", "DRIFTS", "TYPE", "FIRST SEEN", "EXAMPLE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSummary:
    """As much of a drift as is needed to put it with others."""

    cause: str
    """Who moved it, and what sort of writer that is."""
    kinds: tuple[str, ...]
    first_seen: datetime
    what: str
    id: str


def show_causes(screen: Screen, drifts: Sequence[DriftSummary], *, now: datetime) -> None:
    """Write one row for each cause, the one with the most drifts first."""
    groups: dict[str, list[DriftSummary]] = {}
    for each in drifts:
        groups.setdefault(each.cause, []).append(each)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    rows = [_cause_row(cause, found, now) for cause, found in ordered]
    match screen.output:
        case "table" | "wide":
            for line in format_table(_CAUSE_HEADS, rows) if rows else ():
                screen.line(line)
            told = f"{count(len(drifts), 'drift')} of {count(len(groups), 'cause')}"
            screen.line(told if drifts else "No drift.")
        case _:
            show_list(
                screen,
                "DriftCauseList",
                heads=_CAUSE_HEADS,
                rows=rows,
                names=(cause for cause, _ in ordered),
                bodies=(_cause_body(*group) for group in ordered),
            )


def _cause_row(cause: str, found: Sequence[DriftSummary], now: datetime) -> list[str]:
    first = min(found, key=lambda each: each.first_seen)
    return [
        cause, str(len(found)), ",".join(_distinct_kinds(found)), f"{age(first.first_seen, now)} ago",
        f"{first.what} ({first.id})",
    ]  # fmt: skip


def _cause_body(cause: str, found: Sequence[DriftSummary]) -> Mapping[str, object]:
    return {
        "cause": cause,
        "kinds": _distinct_kinds(found),
        "firstSeen": min(each.first_seen for each in found),
        "drifts": [each.id for each in found],
    }


def _distinct_kinds(found: Sequence[DriftSummary]) -> list[str]:
    return list(dict.fromkeys(kind for each in found for kind in each.kinds))


OBJECTS_PATH = "/objects"
"""The path of an entry that tells of the objects made from a workload."""
CAUSE_TEXTS = {
    Cause.PERSON: "a tool that people use by hand or in scripts",
    Cause.AUTOSCALER: "an autoscaler; declare bounds instead of a number to let it be",
    Cause.CONTROLLER: "a controller, which may write it again; one of the two should stop",
    Cause.ADMISSION: "an admission webhook or the API server, which changes what is written",
    Cause.HARDWARE: "the hardware underneath",
    Cause.GITOPS: "another GitOps tool, which may write it again; let one of the two own it",
    Cause.UNKNOWN: "a tool that Holdfast does not know",
}
_RESOLUTION_TEXTS = {
    "reconciled": "The declared values were put back.",
    "healed": "The operator put it back.",
    "reverted": "Somebody put the declared values back.",
    "declared": "The declaration was changed to what was live.",
    "deleted": "The workload was deleted.",
    "superseded": "The replica was stopped or replaced; what stands in its place is judged anew.",
}
_REPLICAS_PATH = "/replicas/"
"""Where drift of a process lies: what it should do and what became of it, and no field."""


def show_drift_explanation(screen: Screen, drift: DriftRecord, *, now: datetime) -> None:
    """Write one drift as a short text."""
    since = age(drift.first_seen, now)
    state = f"ended: {drift.resolution}" if drift.resolved_at else f"open for {since}"
    screen.line(screen.paint(f"{drift.workload}  {drift.id}  {state}", TextStyle.CHANGE))
    for entry in drift.fields:
        for line in (
            _explain_objects(entry) if entry.path == OBJECTS_PATH else _explain_field(entry, now)
        ):
            screen.line(f"  {line}")
    told = all(entry.path == OBJECTS_PATH for entry in drift.fields)
    replica = all(entry.path.startswith(_REPLICAS_PATH) for entry in drift.fields)
    if replica and drift.resolution in (None, "healed"):
        screen.line(
            "  It serves again."
            if drift.resolved_at
            else "  holdfast logs says more. Mend the cause, or the declaration; holdfast ensure "
            "starts it at once."
        )
    elif drift.resolved_at and not (told and drift.resolution == "healed"):  # it said so itself
        screen.line(
            f"  {_RESOLUTION_TEXTS.get(drift.resolution or '', 'It is as declared again.')}"
        )
    elif not told:
        screen.line("  holdfast ensure -f FILE puts the declared values back; to keep what is")
        screen.line("  live, declare it.")


def _explain_field(entry: DriftEntry, now: datetime) -> Iterator[str]:
    path = show_path(parse_pointer(entry.path)) if entry.path.startswith("/") else entry.path
    live, wanted = (_format_side(side, path) for side in (entry.live, entry.desired))
    said = "the declaration does not set it" if entry.desired is None else f"{wanted} is declared"
    yield f"{one_line(path)} is {live}; {said}."
    if entry.path.startswith(_REPLICAS_PATH):
        yield one_line(entry.evidence)
        return
    if entry.writer is None:
        yield "Who wrote it is not recorded."
        return
    at = entry.writer.at
    when = f" at {format_time(at)} ({age(at, now)} ago)" if at else ""
    by = one_line(str(entry.writer))
    through = f" through {entry.writer.subresource}" if entry.writer.subresource else ""
    yield f"{by} wrote it{through}{when}: {CAUSE_TEXTS[entry.cause]}."


def _explain_objects(entry: DriftEntry) -> Iterator[str]:
    """What the operator said: sentences, each with the writer, the fields and the object."""
    text = one_line(str(entry.live))
    yield "The operator says of the objects that it made:"
    for sentence in text.replace(". ", ".\n").splitlines():
        yield f"  {sentence}"


def _format_side(value: Tree, path: str) -> str:
    return "not set" if value is None else one_line(format_value(value, path))


_HEADS = ["ID", "WORKLOAD", "KIND", "FIELDS", "BY", "CAUSE", "AGE", "STATE"]
_WRITER_IN_REPORT = r"(?:^|\. )(\S+(?: \S+)?) changed "
"""Who changed something, in the operator's sentences."""


def show_drifts(
    screen: Screen, drifts: Sequence[DriftRecord], *, now: datetime, certain: bool = True
) -> None:
    """Write a list of drifts as asked. `certain` is False where there may be others."""
    none = "No drift." if certain else "No drift is known."
    match screen.output:
        case "table" | "wide":
            if drifts:
                for line in format_table(_HEADS, [_row(each, now) for each in drifts]):
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
    ended = f", resolved {format_time(drift.resolved_at)}" if drift.resolved_at else ""
    ago = age(drift.first_seen, now)
    screen.line(f"First seen {format_time(drift.first_seen)} ({ago} ago){ended}")
    screen.line()
    rows = [
        [
            _field_path(entry),
            _format_value(entry.live, entry),
            _format_value(entry.desired, entry),
            entry.kind.value,
            _writer_name(entry),
        ]
        for entry in drift.fields
        if entry.path != OBJECTS_PATH
    ]
    if rows:
        head, *lines = format_table(["FIELD", "LIVE", "DECLARED", "KIND", "CHANGED BY"], rows)
        screen.line(screen.paint(head, TextStyle.FAINT))
        for line in lines:
            screen.line(line)
    for entry in drift.fields:
        if entry.path == OBJECTS_PATH:  # a report in sentences, too long for a column
            screen.line(f"Objects: {one_line(str(entry.live))}")
        elif not any(names_a_secret(part) for part in entry.path.split("/")):
            lines = text_diff(entry.live, entry.desired, ascii_only=screen.ascii_only)
            show_unified_diff(screen, _field_path(entry), lines)
    evidence = evidence_lines((_field_path(entry), entry.evidence) for entry in drift.fields)
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
                    format_time(each.at),
                    str(each.workload).rstrip("/"),
                    each.action,
                    str(each.writer),
                    each.summary,
                    *([json.dumps(redact_tree(each.detail))] if wide else []),
                ]
                for each in entries
            ]
            heads = ["SEQ", "AT", "WORKLOAD", "ACTION", "BY", "SUMMARY", *(["DETAIL"] * wide)]
            for line in format_table(heads, rows) if rows else ["No history."]:
                screen.line(line)
        case "jsonl":
            screen.records("HistoryList", [_history_body(each) for each in entries])
        case _:
            screen.document("HistoryList", {"items": [_history_body(each) for each in entries]})


def drift_body(drift: DriftRecord) -> Mapping[str, object]:
    """Write one drift for programs."""
    return masked_json(drift_to_json(drift))


def summarize_drift(drift: DriftRecord) -> DriftSummary:
    """Give what a list by cause needs."""
    writers = sorted({_writer_name(entry) for entry in drift.fields})
    causes = sorted({entry.cause.value for entry in drift.fields})
    return DriftSummary(
        cause=f"{', '.join(writers)} ({', '.join(causes)})", kinds=tuple(drift.kinds),
        first_seen=drift.first_seen, what=str(drift.workload), id=drift.id,
    )  # fmt: skip


def _history_body(entry: HistoryEntry) -> Mapping[str, object]:
    return masked_json(history_to_json(entry))


def _row(drift: DriftRecord, now: datetime) -> list[str]:
    writers = dict.fromkeys(_writer_name(entry) for entry in drift.fields)
    causes = dict.fromkeys(
        "told by the operator" if entry.path == OBJECTS_PATH else entry.cause.value
        for entry in drift.fields
    )
    return [
        drift.id,
        str(drift.workload),
        ",".join(drift.kinds),
        # How many fields of its objects moved, the operator says in sentences only.
        "-"
        if any(entry.path == OBJECTS_PATH for entry in drift.fields)
        else str(len(drift.fields)),
        ", ".join(writers),
        ",".join(causes),
        age(drift.first_seen, now),
        _state(drift),
    ]


def _writer_name(entry: DriftEntry) -> str:
    if entry.writer is None and entry.path == OBJECTS_PATH:
        told = re.findall(_WRITER_IN_REPORT, one_line(str(entry.live)))
        return ", ".join(dict.fromkeys(told)) or "unknown"
    return str(entry.writer) if entry.writer else "unknown"


def _state(drift: DriftRecord) -> str:
    return drift.resolution or "open"


def _field_path(entry: DriftEntry) -> str:
    return show_path(parse_pointer(entry.path)) if entry.path.startswith("/") else entry.path


def _format_value(value: Tree, entry: DriftEntry) -> str:
    return "(not set)" if value is None else format_value(value, entry.path)
