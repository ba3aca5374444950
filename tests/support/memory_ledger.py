"""The GitOps controller's ledger in plain dictionaries, for tests.

Held to the same contract suite as the durable ones. Forgets everything with its process.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.adapters.clock import SystemClock
from holdfast.core.errors import HoldfastError
from holdfast.reconcile.gitops.ledger_store import (
    CLOSED,
    RecordName,
    check_names,
    record_from_json,
    record_to_json,
    settle_writes,
    stored_entry,
)
from holdfast.reconcile.gitops.ports import (
    JournalEntry,
    LedgerMark,
    LedgerRecord,
    LedgerWrite,
    RecordKind,
)
from holdfast.reconcile.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredRecord:
    """A record with its body as text, so that no caller holds the store's own copy."""

    state: str
    text: str
    version: int
    changed_at: datetime
    turn: int


class MemoryLedgerStore:
    """The `LedgerStore` port over dictionaries. For one event loop."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._records: dict[RecordName, _StoredRecord] = {}
        """The last changed last."""
        self._entries: list[tuple[JournalEntry, str]] = []
        """Oldest first, each with its detail as text."""
        self._seq = self._turn = 0
        self.failure: HoldfastError | None = None
        """While set, every call raises it and changes nothing."""

    async def records(
        self,
        kind: RecordKind,
        *,
        application: str = "",
        key: str = "",
        state: str = "",
        limit: int = 0,
    ) -> Sequence[LedgerRecord]:
        """Return records, the last changed first."""
        self._fail()
        found = [
            _record_of(name, kept)
            for name, kept in reversed(self._records.items())
            if name[0] is kind
            and application in ("", name[1])
            and key in ("", name[2])
            and state in ("", kept.state)
        ]
        return found[: limit or None]

    async def records_after(
        self, kind: RecordKind, *, application: str, after: str, limit: int
    ) -> Sequence[LedgerRecord]:
        """Return the next records of an application by key."""
        self._fail()
        names = sorted(
            name for name in self._records if name[:2] == (kind, application) and name[2] > after
        )
        return [_record_of(name, self._records[name]) for name in names[:limit]]

    async def mark(self, kind: RecordKind, *, application: str) -> LedgerMark:
        """Say how many records of a kind an application has, and which was changed last."""
        self._fail()
        turns = [
            kept.turn for name, kept in self._records.items() if name[:2] == (kind, application)
        ]
        return LedgerMark(count=len(turns), turn=max(turns, default=0))

    async def records_since(
        self, kind: RecordKind, *, application: str, turn: int, limit: int
    ) -> Sequence[tuple[int, LedgerRecord]]:
        """Return the records that were changed after a turn."""
        self._fail()
        found = [
            (kept.turn, _record_of(name, kept))
            for name, kept in self._records.items()
            if name[:2] == (kind, application) and kept.turn > turn
        ]
        return sorted(found, key=lambda each: each[0])[:limit]

    async def write(self, puts: Sequence[LedgerWrite], entries: Sequence[JournalEntry]) -> None:
        """Commit everything or nothing."""
        self._fail()
        check_names(puts, entries)
        settled = settle_writes(puts, {name: kept.version for name, kept in self._records.items()})
        written = [
            (stored_entry(entry, self._seq + number), record_to_json(entry.detail))
            for number, entry in enumerate(entries, start=1)
        ]
        now = self._clock.now()
        for name, after in settled.items():
            self._records.pop(name, None)
            if after.text is not None:
                self._turn += 1
                self._records[name] = _StoredRecord(
                    state=after.state,
                    text=after.text,
                    version=after.version,
                    changed_at=now,
                    turn=self._turn,
                )
        self._entries += written
        self._seq += len(written)

    async def entries(
        self,
        *,
        application: str = "",
        subject: str = "",
        actions: Collection[str] = (),
        since: datetime | None = None,
        before: int = 0,
        limit: int = 100,
    ) -> Sequence[JournalEntry]:
        """Return entries of the journal, newest first."""
        self._fail()
        found = [
            replace(entry, detail=record_from_json(detail))
            for entry, detail in reversed(self._entries)
            if application in ("", entry.application)
            and subject in ("", entry.subject)
            and (not actions or entry.action in actions)
            and (since is None or entry.at >= since)
            and (not before or entry.seq < before)
        ]
        return found[: limit or None]

    async def prune(self, before: datetime) -> int:
        """Remove closed records and journal entries from before a time; says how many."""
        self._fail()
        records = {
            name: kept
            for name, kept in self._records.items()
            if kept.state != CLOSED or kept.changed_at >= before
        }
        about = {(name[1], name[2]) for name, kept in records.items() if kept.state != CLOSED}
        written = [
            (entry, detail)
            for entry, detail in self._entries
            if entry.at >= before or (entry.subject and (entry.application, entry.subject) in about)
        ]
        removed = len(self._records) - len(records) + len(self._entries) - len(written)
        self._records, self._entries = records, written
        return removed

    async def aclose(self) -> None:
        """Keep everything: a test may look at it afterwards."""

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


def _record_of(name: RecordName, kept: _StoredRecord) -> LedgerRecord:
    kind, application, key = name
    return LedgerRecord(
        kind=kind,
        application=application,
        key=key,
        state=kept.state,
        body=record_from_json(kept.text),
        version=kept.version,
        changed_at=kept.changed_at,
    )
