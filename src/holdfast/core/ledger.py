"""What is kept of the past: drifts from first seen to resolved, and who did what.

The store writes these, every door shows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId
from holdfast.core.tree import Fields, Tree


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
    """`reconciled`, `reverted`, `declared`, `healed` or `deleted`; None while open."""


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
