"""Counts what the ledger commits and what channels send, on the way through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from holdfast.apps.gitops.metrics import Metrics
from holdfast.core.errors import HoldfastError, ValidationError
from holdfast.core.gitops.inventory import KeptPull
from holdfast.reconcile.gitops.ports import Book, Channel, Entry, Notice, Put, Record, RecordKind
from holdfast.wire import gitops_v1 as wire

_PULLS = {
    "pull-opened": "opened",
    "pull-merged": "merged",
    "pull-rejected": "rejected",
    "pull-closed": "closed",
    "pull-left-alone": "left-alone",
}
Provider = Callable[[str], str]
"""Names the forge of an application, by its id as the ledger has it."""


class CountingBook:
    """A ledger whose commits are counted."""

    def __init__(self, book: Book, metrics: Metrics, provider: Provider) -> None:
        self._book = book
        self._metrics = metrics
        self._provider = provider

    async def records(
        self,
        kind: RecordKind,
        *,
        application: str = "",
        key: str = "",
        state: str = "",
        limit: int = 0,
    ) -> Sequence[Record]:
        """See the port."""
        return await self._book.records(
            kind, application=application, key=key, state=state, limit=limit
        )

    async def records_after(
        self, kind: RecordKind, *, application: str, after: str, limit: int
    ) -> Sequence[Record]:
        """See the port."""
        return await self._book.records_after(
            kind, application=application, after=after, limit=limit
        )

    async def write(self, puts: Sequence[Put], entries: Sequence[Entry]) -> None:
        """See the port."""
        await self._book.write(puts, entries)
        try:
            self._count(puts, entries)
        except ValidationError:  # what was committed counts, whether it can be counted or not
            return

    async def entries(
        self,
        *,
        application: str = "",
        subject: str = "",
        since: datetime | None = None,
        before: int = 0,
        limit: int = 100,
    ) -> Sequence[Entry]:
        """See the port."""
        return await self._book.entries(
            application=application, subject=subject, since=since, before=before, limit=limit
        )

    async def prune(self, before: datetime) -> int:
        """See the port."""
        return await self._book.prune(before)

    async def aclose(self) -> None:
        """See the port."""
        await self._book.aclose()

    def _count(self, puts: Sequence[Put], entries: Sequence[Entry]) -> None:
        bodies = {(put.kind, put.key): put for put in puts if put.body is not None}
        for entry in entries:
            drift = bodies.get((RecordKind.DRIFT, entry.subject))
            if entry.action in ("detected", "resolved") and drift and drift.body is not None:
                form = wire.read(wire.ApplicationDriftForm, drift.body)
                count = self._metrics.detected
                if entry.action == "resolved":
                    count = self._metrics.resolved
                count(wire.drift_from_json(form))
            elif entry.action == "fight":
                self._metrics.fought(wire.app_id(entry.application))
            elif entry.action in _PULLS:
                result = _PULLS[entry.action]
                provider = self._provider(entry.application)
                self._metrics.pulls.labels(provider, _pull_kind(puts, entry), result).inc()


def _pull_kind(puts: Sequence[Put], entry: Entry) -> str:
    """What a pull request proposed: its branch says so."""
    for put in puts:
        if put.kind is RecordKind.PULL and put.body is not None:
            pull = wire.read(KeptPull, put.body)
            if pull.drift == entry.subject:
                return "revert" if pull.branch.startswith("holdfast/revert/") else "codify"
    return "unknown"


class CountingChannel:
    """A channel whose messages are counted."""

    def __init__(self, channel: Channel, kind: str, metrics: Metrics) -> None:
        self.name = channel.name
        self._channel = channel
        self._kind = kind
        self._metrics = metrics

    async def send(self, notices: Sequence[Notice]) -> None:
        """See the port."""
        try:
            await self._channel.send(notices)
        except HoldfastError as error:
            self._metrics.notified.labels(self._kind, error.code).inc()
            raise
        self._metrics.notified.labels(self._kind, "sent").inc()
