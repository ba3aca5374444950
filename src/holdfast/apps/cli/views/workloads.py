"""Shows workloads: one row each, with how they do and whether they are as declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.output import show_list
from holdfast.apps.cli.views.text import age, count, format_table, one_line
from holdfast.core.ledger import DriftRecord
from holdfast.core.live import Live
from holdfast.core.redact import redact_tree
from holdfast.core.text_style import TextStyle

_HEADS = ["WORKLOAD", "BACKEND", "MODEL", "READY", "SYNC", "PHASE", "AGE"]
_WIDE_HEADS = ["GENERATION", "CANARY", "LAST WRITER", "ENDPOINT", "MESSAGE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedWorkload:
    """A live workload and its open drift."""

    live: Live
    drifts: tuple[DriftRecord, ...] = ()

    @property
    def sync(self) -> str:
        """Whether the ledger has open drift of it, or its replicas do not run what is written."""
        return (
            "drifted"
            if self.drifts or self.live.status.failed or self.live.status.runtime
            else "synced"
        )


def observed_workloads(
    lives: Sequence[Live], drifts: Sequence[DriftRecord]
) -> list[ObservedWorkload]:
    """Put each open drift beside its workload."""
    return [
        ObservedWorkload(
            live=live, drifts=tuple(each for each in drifts if each.workload == live.id)
        )
        for live in lives
    ]


def show_workloads(screen: Screen, workloads: Sequence[ObservedWorkload], *, now: datetime) -> None:
    """Write the workloads as asked."""
    show_list(
        screen,
        "WorkloadList",
        workloads,
        lines=workload_table(screen, workloads, now=now),
        heads=_HEADS,
        row=lambda each: _row(each, now),
        name=lambda each: str(each.live.id),
        body=workload_body,
    )


def workload_table(
    screen: Screen, workloads: Sequence[ObservedWorkload], *, now: datetime
) -> Iterator[str]:
    """Yield the lines of the table and the summary below it."""
    if not workloads:
        yield "No workloads."
        return
    wide = screen.output == "wide"
    rows = [_row(each, now) + (_wide_cells(each) if wide else []) for each in workloads]
    head, *lines = format_table([*_HEADS, *(_WIDE_HEADS if wide else [])], rows)
    yield head
    for each, line in zip(workloads, lines, strict=True):
        drifted = TextStyle.CHANGE if each.sync == "drifted" else TextStyle.PLAIN
        failed = each.live.status.phase == "error"
        yield screen.paint(line, TextStyle.REMOVE if failed else drifted)
    for each in workloads:
        if each.live.status.suspended:
            why = one_line(each.live.status.suspended)
            yield screen.paint(f"{each.live.id} is suspended. {why}", TextStyle.CHANGE)
        if each.live.status.scaled_to_zero:
            yield f"{each.live.id}: {one_line(each.live.status.scaled_to_zero)}"
    ready = sum(each.live.status.phase == "ready" for each in workloads)
    out_of_sync = sum(each.sync == "drifted" for each in workloads)
    yield f"{count(len(workloads), 'workload')} · {ready} ready · {out_of_sync} drifted"


def workload_body(workload: ObservedWorkload) -> Mapping[str, object]:
    """Write one workload for programs, with credentials masked."""
    live, status = workload.live, workload.live.status
    return {
        "project": live.id.project,
        "slug": live.id.slug,
        "uid": live.uid,
        "version": live.version,
        "generation": live.generation,
        "sync": workload.sync,
        "drifts": [each.id for each in workload.drifts],
        "status": {
            "phase": status.phase,
            "message": status.message,
            "ready": status.ready,
            "wanted": status.wanted,
            "canaryWeight": status.canary_weight,
            "endpoint": status.endpoint,
            "failed": [asdict(each) for each in status.failed],
            "suspended": status.suspended,
            "scaledToZero": status.scaled_to_zero,
            "runtime": [asdict(each) for each in status.runtime],
            "runtimeUnknown": status.runtime_unknown,
            "outdated": [{"name": e.name, "generation": e.generation} for e in status.outdated],
        },
        "spec": redact_tree(live.fields),
        "createdAt": live.created_at,
        "updatedAt": live.updated_at,
    }


def _row(workload: ObservedWorkload, now: datetime) -> list[str]:
    live, status = workload.live, workload.live.status
    return [
        str(live.id),
        str(live.fields.get("backend", "")),
        str(live.fields.get("model", "")),
        f"{status.ready}/{status.wanted}",
        workload.sync,
        f"{status.phase}, suspended" if status.suspended else status.phase.value,
        age(live.created_at, now),
    ]


def _wide_cells(workload: ObservedWorkload) -> list[str]:
    live, status = workload.live, workload.live.status
    dated = [writer for writer in live.writers.values() if writer.at]
    last = max(dated, key=lambda writer: str(writer.at), default=None)
    return [
        str(live.generation),
        _describe_canary(live),
        str(last or ""),
        status.endpoint or "",
        status.message,
    ]


def _describe_canary(live: Live) -> str:
    """The share in force, and the declared one where it differs."""
    canary = live.fields.get("canary")
    if not isinstance(canary, dict) or len(canary) < 2:
        return ""
    now, declared = live.status.canary_weight, canary.get("weight")
    return f"{now}%" if now == declared else f"{now}% of {declared}%"
