"""What is kept of the past: drifts from first seen to resolved, and who did what.

Targets write these, every app shows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.core.cost import Cost
from holdfast.core.drift import Cause, DriftedField, DriftKind
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId
from holdfast.core.redact import MASK, names_a_secret, redact_tree
from holdfast.core.tree import Fields, Path, Tree, json_pointer


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftEntry:
    """One drifted field as the ledger keeps it: already redacted."""

    path: str
    desired: Tree
    live: Tree
    kind: DriftKind
    cause: Cause
    evidence: str
    writer: Writer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRecord:
    """One drift in the ledger, from first seen to resolved."""

    id: str
    workload: WorkloadId
    kinds: tuple[DriftKind, ...]
    fields: tuple[DriftEntry, ...]
    first_seen: datetime
    resolved_at: datetime | None = None
    resolution: str | None = None
    """`reconciled`, `reverted`, `declared`, `healed`, `superseded` or `deleted`; None while
    open. Superseded: the replica was stopped or replaced, or ended with its server."""
    cost: Cost | None = None
    """What putting it back would do to the replicas that answer now, by the word of the target at
    this moment, so it is never stored; None of what ended, and where nobody can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One row of the audit history: who did what to which workload, and when."""

    seq: int
    at: datetime
    workload: WorkloadId
    action: str
    """`created`, `updated`, `deleted`, `drifted`, `resolved`, `started`, `exited`, …"""
    writer: Writer
    generation: int
    summary: str
    detail: Fields


def drift_entry_of(field: DriftedField, evidence: str) -> DriftEntry:
    """Write one drifted field of a workload for the ledger."""
    path = field.change.path
    return DriftEntry(
        path=json_pointer(path),
        desired=redact_at_path(path, field.change.desired),
        live=redact_at_path(path, field.change.live),
        kind=field.kind,
        cause=field.cause,
        evidence=evidence,
        writer=field.writer,
    )


def redact_at_path(path: Path, value: Tree) -> Tree:
    """Mask a value that its path says is secret, and credentials within any other."""
    if value is not None and any(names_a_secret(part) for part in path):
        return MASK
    return redact_tree(value, name=path[-1])
