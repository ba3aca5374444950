"""The ledger as JSON lines: one object a line, its own fields alone, a page at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest
from tests.support.ledgers import NOON, SettableClock, journal_entry, record_put
from tests.support.memory_ledger import MemoryLedgerStore

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import ApplicationId, Remediation
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.ledger import DriftEntry
from holdfast.core.live import Writer
from holdfast.core.object_ref import ObjectRef
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops import ledger_store
from holdfast.reconcile.gitops.ports import LedgerStore
from holdfast.wire import gitops_v1
from holdfast.wire.ledger_jsonl import entry_to_json

DRIFT = ObjectDrift(
    id="drf-1",
    application=ApplicationId(namespace="team", name="chat"),
    project="acme",
    object=ObjectRef(api_version="apps/v1", kind="Deployment", namespace="team", name="chat"),
    entries=(
        DriftEntry(
            path="/spec/replicas",
            desired=2,
            live=3,
            kind=DriftKind.CONFIGURATION,
            cause=Cause.UNKNOWN,
            evidence="kubectl",
            writer=Writer(manager="kubectl", at=NOON),
        ),
    ),
    commit="abc",
    remediation=next(iter(Remediation)),
    first_seen=NOON,
    last_seen=NOON,
)


async def read(lines: AsyncIterator[bytes]) -> list[Fields]:
    found = []
    async for each in lines:
        assert each.endswith(b"\n")
        assert each.count(b"\n") == 1
        found.append(json.loads(each))
    return found


def test_a_line_of_the_journal_has_these_fields_and_no_other() -> None:
    entry = replace(
        journal_entry("two\nlines", subject="drf-1", detail={"big": 2**70, "a": [None]}), seq=7
    )
    assert entry_to_json(entry) == {
        "apiVersion": "holdfast.dev/v1",
        "kind": "JournalEntry",
        "seq": 7,
        "at": "2026-03-01T12:00:00Z",
        "application": "team/chat",
        "subject": "drf-1",
        "action": "detected",
        "actor": "holdfast-gitops",
        "summary": "two\nlines",
        "detail": {"big": 2**70, "a": [None]},
    }


def test_a_drift_is_exported_by_its_own_fields_alone() -> None:
    async def scenario(ledger: LedgerStore) -> None:
        body = gitops_v1.encode_record(gitops_v1.drift_to_json(DRIFT))
        await ledger.write([record_put("drf-1", body={**body, "scratch": "not for export"})], [])
        lines = ledger_store.export_drifts(ledger, application="team/chat", project="acme")
        (exported,) = await read(lines)
        elsewhere = ledger_store.export_drifts(ledger, application="team/chat", project="other")
        assert not await read(elsewhere)
        assert exported == {
            "apiVersion": "holdfast.dev/v1",
            "kind": "Drift",
            "version": 1,
            "changed_at": "2026-03-01T12:00:00Z",
            "drift": body,
        }

    asyncio.run(scenario(MemoryLedgerStore(SettableClock())))


def test_a_long_journal_is_read_a_page_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_store, "EXPORT_PAGE", 10)

    class Watched(MemoryLedgerStore):
        async def entries(self, **conditions):  # type: ignore[no-untyped-def]  # as the port has it
            page = await super().entries(**conditions)
            assert len(page) <= 10
            await self.write([], [journal_entry("meanwhile")])
            return page

    async def scenario(ledger: LedgerStore) -> None:
        ours: Fields = {"project": "p"}
        await ledger.write(
            [], [journal_entry(f"{number}\n\u2028", detail=ours) for number in range(40)]
        )
        lines = partial(ledger_store.export_journal, ledger, application="team/chat")
        exported = await read(lines(project="p"))
        assert [each["summary"] for each in exported] == [
            f"{number}\n\u2028" for number in reversed(range(40))
        ]
        assert await read(lines(project="other")) == []

    asyncio.run(scenario(Watched()))
