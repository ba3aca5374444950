"""Shows drifts of applications: in a list, by cause, one with its fields, or in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.applications import object_name
from holdfast.apps.cli.views.drifts import (
    DriftSummary,
    cause_of,
    describe_period,
    explain_writer,
    open_drifts,
)
from holdfast.apps.cli.views.output import (
    evidence_lines,
    format_value,
    masked_json,
    show_list,
    show_unified_diff,
)
from holdfast.apps.cli.views.text import age, format_table, one_line, time_left
from holdfast.core.live import Writer
from holdfast.core.ownership.canonical import FINGERPRINT_PREFIX
from holdfast.core.show import text_diff
from holdfast.core.text_style import TextStyle
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_v1 import ApplicationDriftForm
from holdfast.wire.ledger_v1 import DriftEntryForm
from holdfast.wire.plan_v1 import describe_form

WHOLE_OBJECT = "(whole object)"
_HEADS = ["ID", "APPLICATION", "OBJECT", "TYPE", "FIELDS", "BY", "AGE", "POLICY", "STATE"]
_WIDE_HEADS = ["CAUSE", "COST", "DECLARED IN", "DECIDED BY", "NOTE"]
_RESOLUTION_TEXTS = {
    "self_heal": "The controller put the declared values back.",
    "approved": "The declared values were put back after a review.",
    "codified": "Git declares the live values now.",
    "reverted": "The declared values were put back, as somebody asked.",
    "external": "Others put it back, or Git moved to it.",
    "ignored": "A rule hides it.",
    "superseded": "It differs still: as another drift, or by what Git asks for now.",
    "gone": "The application, or the declaration, no longer exists.",
}


def show_application_drifts(
    screen: Screen, drifts: Sequence[ApplicationDriftForm], *, tolerated: int, now: datetime
) -> None:
    """Write a list of drifts as asked."""
    wide = screen.output == "wide"
    hidden = f" · {tolerated} tolerated" if tolerated else ""
    rows = [_row(each, now) + (_wide_cells(each) if wide else []) for each in drifts]
    table = format_table([*_HEADS, *(_WIDE_HEADS if wide else [])], rows)
    none = f"No drift{hidden or '.'}"
    show_list(
        screen,
        "DriftList",
        drifts,
        lines=[*table, f"{open_drifts(drifts, now)}{hidden}"] if drifts else [none],
        heads=_HEADS,
        row=lambda each: _row(each, now),
        name=lambda each: each.id,
        body=masked_json,
    )


def show_application_drift(screen: Screen, drift: ApplicationDriftForm, *, now: datetime) -> None:
    """Write one drift: what moved, who moved it, how that is known, and what is done about it."""
    if not screen.for_people:
        screen.document("Drift", masked_json(drift))
        return
    kinds = " + ".join(drift.kinds)
    subject = f"{drift.id}  {drift.application}  {object_name(drift.object)}"
    head = one_line(f"{subject}  {kinds} drift, {describe_state(drift)}")
    screen.line(screen.paint(head, TextStyle.CHANGE))
    screen.line(describe_period(drift, now))
    if drift.where:
        screen.line(f"Declared in {one_line(drift.where)} at {drift.commit[:7]}")
    screen.line()
    show_drift_fields(screen, drift)
    evidence = ((entry.path or WHOLE_OBJECT, entry.evidence) for entry in drift.entries)
    screen.lines([*evidence_lines(evidence), ""])
    screen.lines(map(one_line, describe_handling(drift, now)))


def show_drift_fields(screen: Screen, drift: ApplicationDriftForm, *, last: str = "GIT") -> None:
    """Write fields with their live and declared values."""
    rows = []
    for entry in drift.entries:
        sides = _whole_object_sides(drift)
        if entry.path:
            live, desired = entry.live, entry.desired
            sides = [format_object_value(side, entry.path) for side in (live, desired)]
        rows.append([entry.path or WHOLE_OBJECT, *sides, entry.kind.value, writer_name(entry)])
    head, *lines = format_table(["FIELD", "LIVE", last, "TYPE", "CHANGED BY"], rows)
    screen.line(screen.paint(head, TextStyle.FAINT))
    for entry, line in zip(drift.entries, lines, strict=True):
        screen.line(screen.paint(line, TextStyle.SECRET) if entry.kind == "secret" else line)
    for entry in drift.entries:
        if entry.kind != "secret":
            lines = diff_value_lines(screen, entry.live, entry.desired)
            show_unified_diff(screen, entry.path, lines)


def diff_value_lines(screen: Screen, live: object, git: object) -> list[str]:
    """Compare two values line by line, where they have several."""
    return text_diff(
        live,  # type: ignore[arg-type]  # decoded from JSON
        git,  # type: ignore[arg-type]  # the same
        wanted="git",
        ascii_only=screen.ascii_only,
    )


def _whole_object_sides(drift: ApplicationDriftForm) -> list[str]:
    """What is shown on either side when an object as a whole drifted."""
    if not drift.uid:
        return ["(not there)", "(declared)"]
    return (
        ["(another of this name)", "(declared)"] if drift.where else ["(there)", "(not declared)"]
    )


def show_application_drift_explanation(
    screen: Screen, drift: ApplicationDriftForm, *, now: datetime
) -> None:
    """Write one drift as a short text."""
    since = age(drift.first_seen, now)
    status = f"ended: {drift.resolution}" if drift.resolved_at else f"open for {since}"
    title = f"{drift.application}  {object_name(drift.object)}  {drift.id}  {status}"
    screen.line(screen.paint(one_line(title), TextStyle.CHANGE))
    for entry in drift.entries:
        screen.lines(f"  {line}" for line in _explain_field(entry, now))
    screen.lines(f"  {one_line(line)}" for line in describe_handling(drift, now))


def describe_handling(drift: ApplicationDriftForm, now: datetime) -> Iterator[str]:
    """Say what is done about a drift, and who decided it."""
    comment = f': "{drift.comment}"' if drift.comment else ""
    decided = f"Decided by {drift.decided_by}{comment}."
    if drift.resolved_at is not None:
        yield _RESOLUTION_TEXTS.get(drift.resolution or "", "It is as declared again.")
        if drift.decided_by:
            yield decided
        return
    route = f"route {drift.route}" if drift.route else "no route matches it"
    chosen = f"chosen by {drift.chosen_by}" if drift.chosen_by else route
    yield f"Policy: {drift.remediation} ({chosen}). State: {describe_state(drift, now)}."
    yield f"Putting it back: {describe_form(drift.cost)}."
    if drift.note:
        yield drift.note
    if drift.decided_by and drift.state != "awaiting-approval":
        yield decided
    if drift.url:
        yield f"Pull request: {drift.url}"
    if drift.plan and drift.state == "awaiting-approval":
        yield f"Plan that waits: {drift.plan}"


def describe_state(drift: ApplicationDriftForm, now: datetime | None = None) -> str:
    """Say how far a drift is, in a word or two."""
    if drift.resolution:
        return drift.resolution.value
    if now and drift.until and drift.state in ("held", "snoozed"):
        return f"{drift.state} ({time_left(drift.until, now)} left)"
    return drift.state


def summarize_application_drift(drift: ApplicationDriftForm) -> DriftSummary:
    """Give what a list by cause needs."""
    return DriftSummary(
        cause=cause_of(map(writer_name, drift.entries), drift.entries),
        kinds=drift.kinds,
        first_seen=drift.first_seen,
        what=object_name(drift.object),
        id=drift.id,
    )


def writer_name(entry: DriftEntryForm) -> str:
    """Name the tool that wrote a field, as far as it is known."""
    return str(reshape(Writer, entry.writer)) if entry.writer else "unknown"


def format_object_value(value: object, path: str = "") -> str:
    """Write a value. What a Secret holds is a fingerprint by the time it comes here."""
    if value is None:
        return "(not set)"
    if isinstance(value, str) and value.startswith(FINGERPRINT_PREFIX):
        return f"hmac {value.removeprefix(FINGERPRINT_PREFIX)[:8]}…"
    return format_value(value, path)  # type: ignore[arg-type]  # decoded from JSON


def _row(drift: ApplicationDriftForm, now: datetime) -> list[str]:
    writers = dict.fromkeys(writer_name(entry) for entry in drift.entries)
    return [
        drift.id,
        drift.application,
        object_name(drift.object),
        ",".join(drift.kinds),
        str(len(drift.entries)),
        ", ".join(writers),
        age(drift.first_seen, now),
        drift.remediation.value,
        describe_state(drift, now),
    ]


def _wide_cells(drift: ApplicationDriftForm) -> list[str]:
    causes = dict.fromkeys(entry.cause.value for entry in drift.entries)
    cost = drift.cost.kind.value if drift.cost else "unknown"
    return [",".join(causes), cost, drift.where, drift.decided_by, drift.note]


def _explain_field(entry: DriftEntryForm, now: datetime) -> Iterator[str]:
    if not entry.path:
        yield f"The object as a whole: {one_line(entry.evidence)}."
        if entry.writer is None:
            return
    else:
        live, git = (
            "not set" if side is None else one_line(format_object_value(side, entry.path))
            for side in (entry.live, entry.desired)
        )
        declared = "and Git does not declare it" if entry.desired is None else f"Git declares {git}"
        yield f"{one_line(entry.path)} is {live}, {declared}."
    if entry.writer is None:
        yield "Who did it is not recorded."
        return
    yield explain_writer(reshape(Writer, entry.writer), entry.cause, now)
