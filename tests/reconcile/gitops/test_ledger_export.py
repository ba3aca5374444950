"""An export goes page by page: it begins before the end is read, and holds one page at a time."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx2
import pytest
from tests.support.gitops_server import PROJECT, serve_applications
from tests.support.gitops_world import GitopsWorld
from tests.support.ledgers import record_put
from tests.support.memory_ledger import MemoryLedgerStore

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import ApplicationId, Remediation
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops import ledger_store
from holdfast.reconcile.gitops.ports import LedgerRecord, LedgerWrite, RecordKind
from holdfast.wire import gitops_v1

PAGE = 10


class PagedBook(MemoryLedgerStore):
    """Counts pages, and holds back every page but the first until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = 0
        self.go_on = threading.Event()

    async def records_after(
        self, kind: RecordKind, *, application: str, after: str, limit: int
    ) -> Sequence[LedgerRecord]:
        assert limit == PAGE
        if self.pages:
            await asyncio.to_thread(self.go_on.wait, 60)
        self.pages += 1
        return await super().records_after(kind, application=application, after=after, limit=limit)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_store, "EXPORT_PAGE", PAGE)


def drift(number: int, *, seen: int = 0, note: str = "") -> LedgerWrite:
    from tests.support.ledgers import NOON

    made = ObjectDrift(
        id=f"drf-{number:04}",
        application=ApplicationId(namespace="team", name="shop"),
        project=PROJECT,
        object=ObjectRef(api_version="v1", kind="ConfigMap", namespace="chat", name="a"),
        entries=(
            DriftEntry(
                path="/data/x",
                desired="1",
                live=str(number),
                kind=DriftKind.CONFIGURATION,
                cause=Cause.UNKNOWN,
                evidence="",
            ),
        ),
        commit="abc",
        remediation=Remediation.REPORT,
        first_seen=NOON,
        last_seen=NOON,
        note=note,
    )
    body = gitops_v1.encode_record(gitops_v1.drift_to_json(made))
    return record_put(made.id, seen, application="team/shop", state="closed", body=body)


def ids(lines: Sequence[str | bytes]) -> list[str]:
    return [json.loads(line)["drift"]["id"] for line in lines]


def test_the_first_drift_comes_before_the_second_page_is_read() -> None:
    async def scenario() -> None:
        ledger = PagedBook()
        await ledger.write([drift(number) for number in range(35)], [])
        lines = ledger_store.export_drifts(ledger, application="team/shop", project=PROJECT)
        found = [await anext(lines)]
        assert ledger.pages == 1
        ledger.go_on.set()
        found += [line async for line in lines]
        assert ids(found) == [f"drf-{number:04}" for number in range(35)]
        assert ledger.pages == 4

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [0, 10, 20])
def test_an_export_that_ends_with_a_page_is_whole(number: int) -> None:
    async def scenario() -> None:
        ledger = PagedBook()
        ledger.go_on.set()
        await ledger.write([drift(each) for each in range(number)], [])
        lines = [
            line
            async for line in ledger_store.export_drifts(
                ledger, application="team/shop", project=PROJECT
            )
        ]
        assert len(set(ids(lines))) == len(lines) == number

    asyncio.run(scenario())


def test_drifts_that_move_meanwhile_come_once() -> None:
    """Those that change go to the front of "last changed", where a page has been already."""

    async def scenario() -> None:
        ledger = PagedBook()
        ledger.go_on.set()
        await ledger.write([drift(number) for number in range(35)], [])
        found = []
        async for line in ledger_store.export_drifts(
            ledger, application="team/shop", project=PROJECT
        ):
            found.append(line)
            if len(found) == 12:
                moved = [drift(number, seen=1, note="moved") for number in (3, 30)]
                await ledger.write([*moved, drift(99)], [])
        assert ids(found) == [f"drf-{number:04}" for number in (*range(35), 99)]
        assert [json.loads(found[number])["version"] for number in (3, 30)] == [1, 2]

    asyncio.run(scenario())


def test_the_server_sends_the_first_page_while_the_last_is_not_read(tmp_path: Path) -> None:
    """Also the command's own reader gives lines as they come."""
    from holdfast.adapters.http.gitops import RemoteApplications
    from holdfast.apps.sdk.connect import ClientOptions, make_transport
    from holdfast.apps.sdk.settings import resolve_connection
    from holdfast.core.redact import Secret
    from holdfast.reconcile.sync_bridge import iterate_sync, run_sync

    world = GitopsWorld()
    world.ledger_store = ledger = PagedBook()
    with serve_applications(tmp_path, world) as running:
        running.run(ledger.write([drift(number) for number in range(35)], []))
        token = running.server.token(PROJECT, ["read"])
        place = resolve_connection(running.url, token=token, environ={})
        options = ClientOptions(timeout=30.0, max_retries=0, manager="test", blocking=True)
        api = RemoteApplications(make_transport(place, options, Secret(token)), PROJECT)
        lines = iterate_sync(api.export(what="drifts"))
        found = [next(lines)]
        assert ledger.pages == 1
        ledger.go_on.set()
        found += list(lines)
        run_sync(api.aclose())
        assert ids(found) == [f"drf-{number:04}" for number in range(35)]
        whole = httpx2.get(
            f"{running.url}/api/projects/{PROJECT}/gitops/export",
            headers={"authorization": f"Bearer {token}"},
        )
        assert ids(whole.text.splitlines()) == ids(found)
