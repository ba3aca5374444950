"""What figures need of every drift that the ledger keeps, kept in memory and brought up to date.

Figures are asked for each time an open page hears of something, and a ledger has every drift of
months. So each drift is read once and reduced to what is counted; later only those are read that
were changed since. How many there are, and the last turn, are asked of the ledger each time: where
they do not fit what is kept, records were removed, and all are read anew.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field

from holdfast.core.gitops.statistics import CountedDrift, count_drift
from holdfast.reconcile.gitops.ledger_store import EXPORT_PAGE
from holdfast.reconcile.gitops.ports import LedgerStore, RecordKind
from holdfast.wire.gitops_v1 import ApplicationDriftForm, decode_record, drift_from_json

MAX_FACTS = 100_000
"""Drifts kept for all applications together, a few hundred bytes each."""
MAX_READS = 5
"""How often what was changed while it was read is read once more."""


@dataclass(slots=True)
class _Known:
    turn: int = 0
    drifts: dict[str, CountedDrift] = field(default_factory=dict)


class DriftFacts:
    """The drifts of one ledger, as figures count them. One caller at a time."""

    def __init__(self, ledger_store: LedgerStore, *, limit: int = MAX_FACTS) -> None:
        self.ledger_store = ledger_store
        self._limit = limit
        self._known: OrderedDict[str, _Known] = OrderedDict()
        """By application, the one that was asked for last at the end."""

    async def of(self, application: str) -> Collection[CountedDrift]:
        """Return every drift that the ledger keeps of an application. Not to be changed."""
        known = self._known.pop(application, None) or _Known()
        for _ in range(MAX_READS):
            mark = await self.ledger_store.mark(RecordKind.DRIFT, application=application)
            if mark.turn > known.turn:
                await self._read(application, known)
            elif (mark.turn, mark.count) != (known.turn, len(known.drifts)):
                known = _Known()  # some are kept no longer
                await self._read(application, known)
            else:
                break
        self._keep(application, known)
        return known.drifts.values()

    async def _read(self, application: str, known: _Known) -> None:
        while True:
            page = await self.ledger_store.records_since(
                RecordKind.DRIFT, application=application, turn=known.turn, limit=EXPORT_PAGE
            )
            for turn, record in page:
                form = decode_record(ApplicationDriftForm, record.body)
                known.drifts[record.key] = count_drift(drift_from_json(form))
                known.turn = turn
            if len(page) < EXPORT_PAGE:
                return
            await asyncio.sleep(0)  # others are to be answered too

    def _keep(self, application: str, known: _Known) -> None:
        self._known[application] = known
        while sum(len(each.drifts) for each in self._known.values()) > self._limit:
            self._known.popitem(last=False)
