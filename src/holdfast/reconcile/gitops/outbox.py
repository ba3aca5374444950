"""What is still to be told, as the ledger has it: the durable half of the notifier.

Each notice is one record, open until every channel has it. Several channels may finish with one
record at the same time, so all writing goes through here, one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.core.errors import Conflict, TargetUnavailable
from holdfast.core.gitops.notification import Notice
from holdfast.reconcile.gitops.ports import LedgerRecord, LedgerStore, LedgerWrite, RecordKind
from holdfast.wire.notice_v1 import WAITING, outbox_from_json, outbox_to_json

SENT = "sent"
REFUSED = "refused"
"""The channel said that trying again cannot help."""
FOLDED = "folded"
"""Told as part of a digest, which is a record of its own."""
DROPPED = "dropped"
"""The channel is no more."""


@dataclass(slots=True)
class OutboxNotice:
    """One notice and how it stands with each channel. The channels of one process share it."""

    notice: Notice
    channels: dict[str, str]
    version: int = 0

    @property
    def open(self) -> bool:
        """True while a channel does not have it."""
        return WAITING in self.channels.values()


def outbox_write(kept: OutboxNotice) -> LedgerWrite:
    """Return the write that brings the ledger to how a notice stands."""
    return LedgerWrite(
        kind=RecordKind.NOTICE,
        application=notice_application(kept.notice),
        key=kept.notice.id,
        seen=kept.version,
        state="open" if kept.open else "closed",
        body=outbox_to_json(kept.notice, kept.channels),
    )


def notice_application(notice: Notice) -> str:
    """Return the application that a notice names; empty for a digest of several."""
    name = notice.data.get("application")
    return name if isinstance(name, str) else ""


class Outbox:
    """The open notices of a ledger, and the same in memory."""

    def __init__(self, book: LedgerStore) -> None:
        self._book = book
        self._lock = asyncio.Lock()
        self.kept: dict[str, OutboxNotice] = {}
        self.stale = True
        """True when the ledger may say something else, so that it is read before the next use."""

    async def add(self, kept: OutboxNotice) -> bool:
        """Write a new notice. False when the ledger has it already, told or waiting."""
        async with self._lock:
            try:
                await self._book.write([outbox_write(kept)], [])
            except Conflict:
                return False
            except TargetUnavailable:
                self.stale = True  # it may have been written
                raise
            self.take(kept)
            return True

    def take(self, kept: OutboxNotice) -> None:
        """Know of a notice that was written as new a moment ago."""
        kept.version = 1
        self.kept[kept.notice.id] = kept

    def waits(self, notice: str, channel: str) -> bool:
        """True when a channel does not have a notice, as far as is known here."""
        kept = self.kept.get(notice)
        return kept is not None and kept.channels.get(channel) == WAITING

    async def mark(
        self, channel: str, ids: Sequence[str], word: str, *, new: OutboxNotice | None = None
    ) -> None:
        """Write that a channel is done with some notices, together with a new one.

        In memory nothing changes when it raises: Conflict or TargetUnavailable, after which the
        ledger is read anew.
        """
        async with self._lock:
            done = [
                OutboxNotice(kept.notice, {**kept.channels, channel: word}, kept.version)
                for kept in (self.kept.get(each) for each in ids)
                if kept is not None
            ]
            if new is not None:
                done.append(new)
            if not done:
                return
            try:
                await self._book.write([outbox_write(kept) for kept in done], [])
            except (Conflict, TargetUnavailable):
                self.stale = True
                raise
            for kept in done:
                kept.version += 1
                if kept.open:
                    self.kept[kept.notice.id] = kept
                else:
                    self.kept.pop(kept.notice.id, None)

    async def read(self, gone: Callable[[str], None]) -> list[OutboxNotice]:
        """Bring memory to what the ledger says, and return what memory did not know of.

        `gone` hears of each notice that is no longer open. What was taken in meanwhile stays.
        """
        async with self._lock:
            before = set(self.kept)
            found = await self._book.records(RecordKind.NOTICE, state="open")
            fresh = []
            for kept in filter(None, map(_read_record, reversed(found))):
                if kept.notice.id not in self.kept:
                    fresh.append(kept)
                self.kept[kept.notice.id] = kept
                before.discard(kept.notice.id)
            for each in before:
                self.kept.pop(each, None)
                gone(each)
            self.stale = False
            return fresh

    async def recent(self, limit: int) -> list[Notice]:
        """Return the notices of the last writes, told or not, oldest first."""
        found = await self._book.records(RecordKind.NOTICE, limit=limit)
        return [kept.notice for kept in filter(None, map(_read_record, reversed(found)))]


def _read_record(record: LedgerRecord) -> OutboxNotice | None:
    """Read a record; None for one that a later version wrote, which is left to it."""
    read = outbox_from_json(record.body)
    if read is None or read[0].id != record.key:
        return None
    return OutboxNotice(notice=read[0], channels=read[1], version=record.version)
