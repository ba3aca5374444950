"""What figures keep of the ledger's drifts: the same as reading all of them, and read once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.support.ledgers import NOON
from tests.support.memory_ledger import MemoryLedgerStore

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import ApplicationId, Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.statistics import CountedDrift, count_drift
from holdfast.core.ledger import DriftEntry
from holdfast.core.live import Writer
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops import drift_facts
from holdfast.reconcile.gitops.drift_facts import DriftFacts
from holdfast.reconcile.gitops.ports import LedgerRecord, LedgerWrite, RecordKind
from holdfast.wire.gitops_v1 import (
    ApplicationDriftForm,
    decode_record,
    drift_from_json,
    drift_to_json,
    encode_record,
)

APPLICATION = "team/shop"


def drift(id: str, *, minutes: int = 0, ended: bool = False) -> ObjectDrift:
    entry = DriftEntry(
        path="data.x",
        desired="1",
        live="2",
        kind=DriftKind.CONFIGURATION,
        cause=Cause.PERSON,
        evidence="",
        writer=Writer(manager="kubectl-edit"),
    )
    seen = NOON + timedelta(minutes=minutes)
    return ObjectDrift(
        id=id,
        application=ApplicationId(namespace="team", name="shop"),
        project="p",
        object=ObjectRef(api_version="v1", kind="ConfigMap", namespace="chat", name="a"),
        entries=(entry,),
        commit="c",
        remediation=Remediation.REVIEW,
        first_seen=seen,
        last_seen=seen,
        state=DriftState.RESOLVED if ended else DriftState.DETECTED,
        resolved_at=seen + timedelta(hours=1) if ended else None,
        resolution=Resolution.APPROVED if ended else None,
    )


class CountingLedger(MemoryLedgerStore):
    """Counts the records that were read."""

    read = 0

    async def records_since(
        self, kind: RecordKind, *, application: str, turn: int, limit: int
    ) -> Sequence[tuple[int, LedgerRecord]]:
        found = await super().records_since(kind, application=application, turn=turn, limit=limit)
        self.read += len(found)
        return found


async def put(ledger: MemoryLedgerStore, *drifts: ObjectDrift) -> None:
    for each in drifts:
        (known, *_) = [*await ledger.records(RecordKind.DRIFT, key=each.id), None]
        await ledger.write(
            [
                LedgerWrite(
                    kind=RecordKind.DRIFT,
                    application=APPLICATION,
                    key=each.id,
                    seen=known.version if known else 0,
                    state="closed" if each.resolved_at else "open",
                    body=encode_record(drift_to_json(each)),
                )
            ],
            [],
        )


async def remove(ledger: MemoryLedgerStore, id: str) -> None:
    (known,) = await ledger.records(RecordKind.DRIFT, key=id)
    await ledger.write(
        [LedgerWrite(kind=RecordKind.DRIFT, application=APPLICATION, key=id, seen=known.version)],
        [],
    )


async def everything(ledger: MemoryLedgerStore) -> list[CountedDrift]:
    records = await ledger.records(RecordKind.DRIFT, application=APPLICATION)
    return [
        count_drift(drift_from_json(decode_record(ApplicationDriftForm, each.body)))
        for each in records
    ]


def ordered(drifts: object) -> list[str]:
    return sorted(map(repr, drifts))  # type: ignore[call-overload]  # any of them


def test_what_did_not_change_is_read_once() -> None:
    async def scenario() -> None:
        ledger = CountingLedger()
        await put(ledger, *(drift(f"drf-{number}") for number in range(20)))
        facts = DriftFacts(ledger)
        assert len(await facts.of(APPLICATION)) == 20
        assert ledger.read == 20
        await facts.of(APPLICATION)
        assert ledger.read == 20
        await put(ledger, drift("drf-3", ended=True), drift("drf-new"))
        found = await facts.of(APPLICATION)
        assert ledger.read == 22
        assert ordered(found) == ordered(await everything(ledger))
        assert not await facts.of("team/other")

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_to_the_ledger_nothing_is_missed_or_kept(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removals too, which leave no trace: of the oldest, the newest, and beside additions."""
    monkeypatch.setattr(drift_facts, "EXPORT_PAGE", 3)

    async def scenario() -> None:
        chance, ledger = random.Random(seed), MemoryLedgerStore()  # no secret
        facts, ids = DriftFacts(ledger), [f"drf-{number}" for number in range(12)]
        for _ in range(40):
            for _ in range(chance.randrange(4)):
                id = chance.choice(ids)
                if chance.random() < 0.4 and await ledger.records(RecordKind.DRIFT, key=id):
                    await remove(ledger, id)
                else:
                    made = drift(id, minutes=chance.randrange(9), ended=chance.random() < 0.5)
                    await put(ledger, made)
            assert ordered(await facts.of(APPLICATION)) == ordered(await everything(ledger))

    asyncio.run(scenario())


def test_an_application_of_too_many_drifts_is_read_each_time() -> None:
    async def scenario() -> None:
        ledger = CountingLedger()
        await put(ledger, *(drift(f"drf-{number}") for number in range(5)))
        facts = DriftFacts(ledger, limit=4)
        for times in (1, 2):
            assert len(await facts.of(APPLICATION)) == 5
            assert ledger.read == 5 * times

    asyncio.run(scenario())
