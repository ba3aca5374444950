"""Explains a drift in sentences: what moved, who moved it and when, what that means, what follows.

A cluster's operator reports on the objects that it keeps in its own words; they are shown as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.forms import shown
from holdfast.apps.cli.views.text import age, one_line, stamp
from holdfast.core.drift import Cause
from holdfast.core.ink import Ink
from holdfast.core.ledger import DriftEntry, DriftRecord
from holdfast.core.tree import Tree, parse_pointer, show_path

OBJECTS = "/objects"
"""The path of an entry that tells of the objects made from a workload."""
CAUSES = {
    Cause.PERSON: "a tool that people use by hand or in scripts",
    Cause.AUTOSCALER: "an autoscaler; declare bounds instead of a number to let it be",
    Cause.CONTROLLER: "a controller, which may write it again; one of the two should stop",
    Cause.ADMISSION: "an admission webhook or the API server, which changes what is written",
    Cause.HARDWARE: "the hardware underneath",
    Cause.GITOPS: "another GitOps tool, which may write it again; let one of the two own it",
    Cause.UNKNOWN: "a tool that Holdfast does not know",
}
_ENDS = {
    "reconciled": "The declared values were put back.",
    "healed": "The operator put it back.",
    "reverted": "Somebody put the declared values back.",
    "declared": "The declaration was changed to what was live.",
    "deleted": "The workload was deleted.",
    "superseded": "The replica was stopped or replaced; what stands in its place is judged anew.",
}
_REPLICAS = "/replicas/"
"""Where drift of a process lies: what it should do and what became of it, and no field."""


def show_explained(screen: Screen, drift: DriftRecord, *, now: datetime) -> None:
    """Write one drift as a short text."""
    since = age(drift.first_seen, now)
    state = f"ended: {drift.resolution}" if drift.resolved_at else f"open for {since}"
    screen.line(screen.paint(f"{drift.workload}  {drift.id}  {state}", Ink.CHANGE))
    for entry in drift.fields:
        for line in _of_objects(entry) if entry.path == OBJECTS else _of_field(entry, now):
            screen.line(f"  {line}")
    told = all(entry.path == OBJECTS for entry in drift.fields)
    replica = all(entry.path.startswith(_REPLICAS) for entry in drift.fields)
    if replica and drift.resolution in (None, "healed"):
        screen.line(
            "  It serves again."
            if drift.resolved_at
            else "  holdfast logs says more. Mend the cause, or the declaration; holdfast ensure "
            "starts it at once."
        )
    elif drift.resolved_at and not (told and drift.resolution == "healed"):  # it said so itself
        screen.line(f"  {_ENDS.get(drift.resolution or '', 'It is as declared again.')}")
    elif not told:
        screen.line("  holdfast ensure -f FILE puts the declared values back; to keep what is")
        screen.line("  live, declare it.")


def _of_field(entry: DriftEntry, now: datetime) -> Iterator[str]:
    path = show_path(parse_pointer(entry.path)) if entry.path.startswith("/") else entry.path
    live, wanted = (_value(side, path) for side in (entry.live, entry.desired))
    said = "the declaration does not set it" if entry.desired is None else f"{wanted} is declared"
    yield f"{one_line(path)} is {live}; {said}."
    if entry.path.startswith(_REPLICAS):
        yield one_line(entry.evidence)
        return
    if entry.writer is None:
        yield "Who wrote it is not recorded."
        return
    at = entry.writer.at
    when = f" at {stamp(at)} ({age(at, now)} ago)" if at else ""
    by = one_line(str(entry.writer))
    through = f" through {entry.writer.subresource}" if entry.writer.subresource else ""
    yield f"{by} wrote it{through}{when}: {CAUSES[entry.cause]}."


def _of_objects(entry: DriftEntry) -> Iterator[str]:
    """What the operator said: sentences, each with the writer, the fields and the object."""
    text = one_line(str(entry.live))
    yield "The operator says of the objects that it made:"
    for sentence in text.replace(". ", ".\n").splitlines():
        yield f"  {sentence}"


def _value(value: Tree, path: str) -> str:
    return "not set" if value is None else one_line(shown(value, path))
