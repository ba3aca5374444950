"""Shows drifts of applications: in a list, by cause, one with its fields, or in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.applications import object_name
from holdfast.apps.cli.views.drifts import CAUSE_TEXTS, DriftSummary
from holdfast.apps.cli.views.output import (
    evidence_lines,
    format_value,
    masked_json,
    show_list,
    show_unified_diff,
)
from holdfast.apps.cli.views.text import age, format_table, format_time, one_line, time_left
from holdfast.core.drift import Cause
from holdfast.core.live import Writer
from holdfast.core.ownership.canonical import FINGERPRINT_PREFIX
from holdfast.core.show import text_diff
from holdfast.core.text_style import TextStyle
from holdfast.core.tree import Tree
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_v1 import ApplicationDriftForm
from holdfast.wire.ledger_v1 import DriftEntryForm

WHOLE_OBJECT = "(whole object)"
_HEADS = ["ID", "APPLICATION", "OBJECT", "TYPE", "FIELDS", "BY", "AGE", "POLICY", "STATE"]
_WIDE_HEADS = ["CAUSE", "DECLARED IN", "DECIDED BY", "NOTE"]
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
    match screen.output:
        case "table" | "wide":
            wide = screen.output == "wide"
            rows = [_row(each, now) + (_wide_cells(each) if wide else []) for each in drifts]
            if rows:
                for line in format_table([*_HEADS, *(_WIDE_HEADS if wide else [])], rows):
                    screen.line(line)
            open_now = [each.first_seen for each in drifts if each.resolved_at is None]
            oldest = f" · oldest {age(min(open_now), now)}" if open_now else ""
            hidden = f" · {tolerated} tolerated" if tolerated else ""
            none = "No drift." if not hidden else f"No drift{hidden}"
            screen.line(f"{len(open_now)} open{oldest}{hidden}" if drifts else none)
        case _:
            show_list(
                screen,
                "DriftList",
                heads=_HEADS,
                rows=(_row(each, now) for each in drifts),
                names=(each.id for each in drifts),
                bodies=(masked_json(each) for each in drifts),
            )


def show_application_drift(screen: Screen, drift: ApplicationDriftForm, *, now: datetime) -> None:
    """Write one drift: what moved, who moved it, how that is known, and what is done about it."""
    if not screen.for_people:
        screen.document("Drift", masked_json(drift))
        return
    kinds = " + ".join(drift.kinds)
    head = f"{drift.id}  {drift.application}  {object_name(drift.object)}  {kinds} drift, {describe_state(drift)}"
    screen.line(screen.paint(one_line(head), TextStyle.CHANGE))
    ended = f", resolved {format_time(drift.resolved_at)}" if drift.resolved_at else ""
    ago = age(drift.first_seen, now)
    screen.line(f"First seen {format_time(drift.first_seen)} ({ago} ago){ended}")
    if drift.where:
        screen.line(f"Declared in {one_line(drift.where)} at {drift.commit[:7]}")
    screen.line()
    show_drift_fields(screen, drift)
    for line in evidence_lines(
        (entry.path or WHOLE_OBJECT, entry.evidence) for entry in drift.entries
    ):
        screen.line(line)
    screen.line()
    for line in describe_handling(drift, now):
        screen.line(one_line(line))


def show_drift_fields(screen: Screen, drift: ApplicationDriftForm, *, last: str = "GIT") -> None:
    """Write fields with their live and declared values."""
    entries, whole = drift.entries, _whole_object_sides(drift)
    rows = []
    for entry in entries:
        live, git = (
            format_object_value(entry.live, entry.path),
            format_object_value(entry.desired, entry.path),
        )
        live, git = (live, git) if entry.path else whole
        rows.append([entry.path or WHOLE_OBJECT, live, git, entry.kind.value, writer_name(entry)])
    head, *lines = format_table(["FIELD", "LIVE", last, "TYPE", "CHANGED BY"], rows)
    screen.line(screen.paint(head, TextStyle.FAINT))
    for entry, line in zip(entries, lines, strict=True):
        screen.line(screen.paint(line, TextStyle.SECRET) if entry.kind == "secret" else line)
    for entry in entries:
        if entry.kind != "secret":
            show_unified_diff(
                screen, entry.path, diff_value_lines(screen, entry.live, entry.desired)
            )


def diff_value_lines(screen: Screen, live: object, git: object) -> list[str]:
    """Compare two values line by line, where they have several."""
    return text_diff(
        live,  # type: ignore[arg-type]  # decoded from JSON
        git,  # type: ignore[arg-type]  # the same
        wanted="git",
        ascii_only=screen.ascii_only,
    )


def _whole_object_sides(drift: ApplicationDriftForm) -> tuple[str, str]:
    """What stands on either side when an object as a whole drifted."""
    if not drift.uid:
        return "(not there)", "(declared)"
    return (
        ("(another of this name)", "(declared)") if drift.where else ("(there)", "(not declared)")
    )


def show_application_drift_explanation(
    screen: Screen, drift: ApplicationDriftForm, *, now: datetime
) -> None:
    """Write one drift as a short text."""
    since = age(drift.first_seen, now)
    stands = f"ended: {drift.resolution}" if drift.resolved_at else f"open for {since}"
    title = f"{drift.application}  {object_name(drift.object)}  {drift.id}  {stands}"
    screen.line(screen.paint(one_line(title), TextStyle.CHANGE))
    for entry in drift.entries:
        for line in _explain_field(entry, now):
            screen.line(f"  {line}")
    for line in describe_handling(drift, now):
        screen.line(f"  {one_line(line)}")


def describe_handling(drift: ApplicationDriftForm, now: datetime) -> Iterator[str]:
    """Say what is done about a drift, and who decided it."""
    if drift.resolved_at is not None:
        yield _RESOLUTION_TEXTS.get(drift.resolution or "", "It is as declared again.")
        if drift.decided_by:
            yield f"Decided by {drift.decided_by}{_comment_suffix(drift)}."
        return
    route = f"route {drift.route}" if drift.route else "no route matches it"
    chosen = f"chosen by {drift.chosen_by}" if drift.chosen_by else route
    yield f"Policy: {drift.remediation} ({chosen}). State: {describe_state(drift, now)}."
    if drift.note:
        yield drift.note
    if drift.decided_by and drift.state != "awaiting-approval":
        yield f"Decided by {drift.decided_by}{_comment_suffix(drift)}."
    if drift.url:
        yield f"Pull request: {drift.url}"
    if drift.plan and drift.state == "awaiting-approval":
        yield f"Plan that waits: {drift.plan}"


def describe_state(drift: ApplicationDriftForm, now: datetime | None = None) -> str:
    """Say how far a drift is, in a word or two."""
    if drift.resolution:
        return drift.resolution.value
    lasting = drift.state in ("held", "snoozed") and now is not None and drift.until is not None
    return f"{drift.state} ({time_left(drift.until, now)} left)" if lasting and now else drift.state


def summarize_application_drift(drift: ApplicationDriftForm) -> DriftSummary:
    """Give what a list by cause needs."""
    writers = sorted({writer_name(entry) for entry in drift.entries})
    causes = sorted({entry.cause.value for entry in drift.entries})
    return DriftSummary(
        cause=f"{', '.join(writers)} ({', '.join(causes)})", kinds=tuple(drift.kinds),
        first_seen=drift.first_seen, what=object_name(drift.object), id=drift.id,
    )  # fmt: skip


def writer_name(entry: DriftEntryForm) -> str:
    """Name the tool that wrote a field, as far as it is known."""
    return str(reshape(Writer, entry.writer)) if entry.writer else "unknown"


def format_object_value(found: object, path: str = "") -> str:
    """Write a value. What a Secret holds is a mark by the time it comes here."""
    if found is None:
        return "(not set)"
    if isinstance(found, str) and found.startswith(FINGERPRINT_PREFIX):
        return f"hmac {found.removeprefix(FINGERPRINT_PREFIX)[:8]}…"
    return format_value(found, path)  # type: ignore[arg-type]  # decoded from JSON


def _row(drift: ApplicationDriftForm, now: datetime) -> list[str]:
    writers = dict.fromkeys(writer_name(entry) for entry in drift.entries)
    return [
        drift.id, drift.application, object_name(drift.object), ",".join(drift.kinds),
        str(len(drift.entries)), ", ".join(writers), age(drift.first_seen, now),
        drift.remediation.value, describe_state(drift, now),
    ]  # fmt: skip


def _wide_cells(drift: ApplicationDriftForm) -> list[str]:
    causes = dict.fromkeys(entry.cause.value for entry in drift.entries)
    return [",".join(causes), drift.where, drift.decided_by, drift.note]


def _comment_suffix(drift: ApplicationDriftForm) -> str:
    return f': "{drift.comment}"' if drift.comment else ""


def _explain_field(entry: DriftEntryForm, now: datetime) -> Iterator[str]:
    if not entry.path:
        yield f"The object as a whole: {one_line(entry.evidence)}."
        if entry.writer is None:
            return
    else:
        live, git = _format_side(entry.live, entry.path), _format_side(entry.desired, entry.path)
        declared = "and Git does not declare it" if entry.desired is None else f"Git declares {git}"
        yield f"{one_line(entry.path)} is {live}, {declared}."
    if entry.writer is None:
        yield "Who did it is not recorded."
        return
    writer = reshape(Writer, entry.writer)
    when = f" at {format_time(writer.at)} ({age(writer.at, now)} ago)" if writer.at else ""
    through = f" through {writer.subresource}" if writer.subresource else ""
    told = CAUSE_TEXTS[Cause(entry.cause)]
    yield f"{one_line(str(writer))} wrote it{one_line(through)}{when}: {told}."


def _format_side(found: Tree | object, path: str) -> str:
    return "not set" if found is None else one_line(format_object_value(found, path))
