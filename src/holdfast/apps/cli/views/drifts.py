"""Shows drifts of workloads: in a list, one with its fields, in sentences, or by cause.

A cluster's operator reports on the objects that it keeps in its own sentences, in one entry with
the path `OBJECTS_PATH`; they are shown as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.output import (
    evidence_lines,
    format_value,
    masked_json,
    show_list,
    show_unified_diff,
)
from holdfast.apps.cli.views.text import age, count, format_table, format_time, one_line
from holdfast.core.cost import describe_cost
from holdfast.core.drift import Cause
from holdfast.core.ledger import DriftEntry, DriftRecord
from holdfast.core.live import Writer
from holdfast.core.redact import names_a_secret
from holdfast.core.show import text_diff
from holdfast.core.text_style import TextStyle
from holdfast.core.tree import Tree, parse_pointer, show_path
from holdfast.wire.ledger_v1 import DriftEntryForm, drift_to_json

if TYPE_CHECKING:
    from holdfast.wire.gitops_v1 import ApplicationDriftForm

AnyDrift: TypeAlias = "DriftRecord | ApplicationDriftForm"
OBJECTS_PATH = "/objects"
"""The path of an entry that reports on the objects made from a workload."""
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
    "superseded": "The replica was stopped or replaced; its successor is compared anew.",
}
_REPLICAS_PATH = "/replicas/"
"""Where drift of a process lies: what it should do and what became of it, and no field."""
_HEADS = ["ID", "WORKLOAD", "KIND", "FIELDS", "BY", "CAUSE", "AGE", "STATE"]
_WIDE_HEADS = ["COST"]
_CAUSE_HEADS = ["CAUSE", "DRIFTS", "TYPE", "FIRST SEEN", "EXAMPLE"]
_WRITER_IN_REPORT = r"(?:^|\. )(\S+(?: \S+)?) changed "
"""Who changed something, in the operator's sentences."""


def show_drifts(
    screen: Screen, drifts: Sequence[DriftRecord], *, now: datetime, certain: bool = True
) -> None:
    """Write a list of drifts as asked. `certain` is False where there may be others."""
    wide = screen.output == "wide"
    rows = [_row(each, now) + (_wide_cells(each) if wide else []) for each in drifts]
    table = format_table([*_HEADS, *(_WIDE_HEADS if wide else [])], rows)
    none = "No drift." if certain else "No drift is known."
    show_list(
        screen,
        "DriftList",
        drifts,
        lines=[*table, open_drifts(drifts, now)] if drifts else [none],
        heads=_HEADS,
        row=lambda each: _row(each, now),
        name=lambda each: each.id,
        body=drift_body,
    )


def open_drifts(drifts: Sequence[AnyDrift], now: datetime) -> str:
    """Say how many are open, and since when."""
    still_open = [each.first_seen for each in drifts if each.resolved_at is None]
    oldest = f" · oldest {age(min(still_open), now)}" if still_open else ""
    return f"{len(still_open)} open{oldest}"


def describe_period(drift: AnyDrift, now: datetime) -> str:
    """Say when a drift began, and ended."""
    ended = f", resolved {format_time(drift.resolved_at)}" if drift.resolved_at else ""
    ago = age(drift.first_seen, now)
    return f"First seen {format_time(drift.first_seen)} ({ago} ago){ended}"


def show_drift(screen: Screen, drift: DriftRecord, *, now: datetime) -> None:
    """Write one drift: what moved, who moved it, and how that is known."""
    if not screen.for_people:
        screen.document("Drift", drift_body(drift))
        return
    kinds = " + ".join(drift.kinds)
    screen.line(f"{drift.id}  {drift.workload}  {kinds} drift, {drift.resolution or 'open'}")
    screen.lines([describe_period(drift, now), ""])
    rows = [
        [
            _field_path(entry),
            *(_format_side(side, entry) for side in (entry.live, entry.desired)),
            entry.kind.value,
            _writer_name(entry),
        ]
        for entry in drift.fields
        if entry.path != OBJECTS_PATH
    ]
    if rows:
        head, *lines = format_table(["FIELD", "LIVE", "DECLARED", "KIND", "CHANGED BY"], rows)
        screen.lines([screen.paint(head, TextStyle.FAINT), *lines])
    for entry in drift.fields:
        if entry.path == OBJECTS_PATH:  # a report in sentences, too long for a column
            screen.line(f"Objects: {one_line(str(entry.live))}")
        elif not any(names_a_secret(part) for part in entry.path.split("/")):
            lines = text_diff(entry.live, entry.desired, ascii_only=screen.ascii_only)
            show_unified_diff(screen, _field_path(entry), lines)
    if evidence := evidence_lines((_field_path(entry), entry.evidence) for entry in drift.fields):
        screen.lines(["", *evidence])
    if price := describe_putting_back(drift):
        screen.lines(["", price])


def describe_putting_back(drift: DriftRecord) -> str:
    """Say what putting an open drift back costs, unless the operator's own sentences do."""
    reported = any(entry.path == OBJECTS_PATH for entry in drift.fields)
    if drift.resolved_at is not None or (reported and drift.cost is None):
        return ""
    return f"Putting it back: {describe_cost(drift.cost, 'replica')}."


def show_drift_explanation(screen: Screen, drift: DriftRecord, *, now: datetime) -> None:
    """Write one drift in sentences: what moved, who moved it, what that means, what follows."""
    since = age(drift.first_seen, now)
    state = f"ended: {drift.resolution}" if drift.resolved_at else f"open for {since}"
    screen.line(screen.paint(f"{drift.workload}  {drift.id}  {state}", TextStyle.CHANGE))
    for entry in drift.fields:
        explained = _explain_objects if entry.path == OBJECTS_PATH else _explain_field
        screen.lines(f"  {line}" for line in explained(entry, now))
    if price := describe_putting_back(drift):
        screen.line(f"  {price}")
    reported = all(entry.path == OBJECTS_PATH for entry in drift.fields)
    replica = all(entry.path.startswith(_REPLICAS_PATH) for entry in drift.fields)
    if replica and drift.resolution in (None, "healed"):
        screen.line(
            "  It serves again."
            if drift.resolved_at
            else "  holdfast logs says more. Fix the cause, or the declaration; holdfast ensure "
            "starts it at once."
        )
    elif drift.resolved_at and not (
        reported and drift.resolution == "healed"
    ):  # the report says it
        text = _RESOLUTION_TEXTS.get(drift.resolution or "", "It is as declared again.")
        screen.line(f"  {text}")
    elif not reported:
        screen.line("  holdfast ensure -f FILE puts the declared values back; to keep what is")
        screen.line("  live, declare it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSummary:
    """As much of a drift as a list by cause needs."""

    cause: str
    """Who moved it, and what sort of writer that is."""
    kinds: Sequence[str]
    first_seen: datetime
    what: str
    id: str


def summarize_drift(drift: DriftRecord) -> DriftSummary:
    """Give what a list by cause needs."""
    return DriftSummary(
        cause=cause_of(map(_writer_name, drift.fields), drift.fields),
        kinds=drift.kinds,
        first_seen=drift.first_seen,
        what=str(drift.workload),
        id=drift.id,
    )


def cause_of(writers: Iterable[str], entries: Iterable[DriftEntry | DriftEntryForm]) -> str:
    """Name the writers of a drift, and what sort they are."""
    causes = sorted({entry.cause.value for entry in entries})
    return f"{', '.join(sorted(set(writers)))} ({', '.join(causes)})"


def show_causes(screen: Screen, drifts: Sequence[DriftSummary], *, now: datetime) -> None:
    """Write one row for each cause: forty objects that one upgrade moved are one line."""
    groups: dict[str, list[DriftSummary]] = {}
    for each in drifts:
        groups.setdefault(each.cause, []).append(each)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))

    def kinds(members: list[DriftSummary]) -> list[str]:
        return list(dict.fromkeys(kind for each in members for kind in each.kinds))

    def row(group: tuple[str, list[DriftSummary]]) -> list[str]:
        cause, members = group
        first = min(members, key=lambda each: each.first_seen)
        ago, example = f"{age(first.first_seen, now)} ago", f"{first.what} ({first.id})"
        return [cause, str(len(members)), ",".join(kinds(members)), ago, example]

    total = f"{count(len(drifts), 'drift')} of {count(len(groups), 'cause')}"
    table = [*format_table(_CAUSE_HEADS, [*map(row, ordered)]), total]
    show_list(
        screen,
        "DriftCauseList",
        ordered,
        lines=table if drifts else ["No drift."],
        heads=_CAUSE_HEADS,
        row=row,
        name=lambda group: group[0],
        body=lambda group: {
            "cause": group[0],
            "kinds": kinds(group[1]),
            "firstSeen": min(each.first_seen for each in group[1]),
            "drifts": [each.id for each in group[1]],
        },
    )


def drift_body(drift: DriftRecord) -> Mapping[str, object]:
    """Write one drift for programs."""
    return masked_json(drift_to_json(drift))


def _explain_field(entry: DriftEntry, now: datetime) -> Iterator[str]:
    path = _field_path(entry)
    live, desired = (
        "not set" if side is None else one_line(format_value(side, path))
        for side in (entry.live, entry.desired)
    )
    declared = (
        "the declaration does not set it" if entry.desired is None else f"{desired} is declared"
    )
    yield f"{one_line(path)} is {live}; {declared}."
    if entry.path.startswith(_REPLICAS_PATH):
        yield one_line(entry.evidence)
        return
    if entry.writer is None:
        yield "Who wrote it is not recorded."
        return
    yield explain_writer(entry.writer, entry.cause, now)


def explain_writer(writer: Writer, cause: Cause, now: datetime) -> str:
    """Say who wrote a field, when, and what sort of writer that is."""
    when = f" at {format_time(writer.at)} ({age(writer.at, now)} ago)" if writer.at else ""
    through = f" through {one_line(writer.subresource)}" if writer.subresource else ""
    return f"{one_line(str(writer))} wrote it{through}{when}: {CAUSE_TEXTS[cause]}."


def _explain_objects(entry: DriftEntry, now: datetime) -> Iterator[str]:
    yield "The operator says of the objects that it made:"
    for sentence in one_line(str(entry.live)).replace(". ", ".\n").splitlines():
        yield f"  {sentence}"


def _row(drift: DriftRecord, now: datetime) -> list[str]:
    by_operator = any(entry.path == OBJECTS_PATH for entry in drift.fields)
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
        "-" if by_operator else str(len(drift.fields)),
        ", ".join(writers),
        ",".join(causes),
        age(drift.first_seen, now),
        drift.resolution or "open",
    ]


def _wide_cells(drift: DriftRecord) -> list[str]:
    if drift.resolved_at is not None:
        return ["-"]
    return [drift.cost.kind.value if drift.cost else "unknown"]


def _writer_name(entry: DriftEntry) -> str:
    if entry.writer is None and entry.path == OBJECTS_PATH:
        writers = re.findall(_WRITER_IN_REPORT, one_line(str(entry.live)))
        return ", ".join(dict.fromkeys(writers)) or "unknown"
    return str(entry.writer) if entry.writer else "unknown"


def _field_path(entry: DriftEntry) -> str:
    return show_path(parse_pointer(entry.path)) if entry.path.startswith("/") else entry.path


def _format_side(value: Tree, entry: DriftEntry) -> str:
    return "(not set)" if value is None else format_value(value, entry.path)
