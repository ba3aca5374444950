"""A life of a store, the same in every run, so that any two runs can be compared.

Ids and times come from counters. Each operation is one commit. The crash driver kills it in
the middle; the state that is found afterwards must be one that the whole run went through.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
from tests.support.ledgers import journal_entry, record_put

from holdfast.adapters.store import Store, StoreTarget, TokenKind, TokenScope
from holdfast.adapters.store.schema import MIGRATIONS
from holdfast.core.drift import Cause, DriftKind, find_drift
from holdfast.core.ledger import DriftEntry
from holdfast.core.live import Absent, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.plan import delete_plan, make_plan
from holdfast.core.workload import WorkloadSpec, desired_of
from holdfast.reconcile.gitops.ports import LedgerStore, RecordKind
from holdfast.reconcile.sync_bridge import run_sync

SDK = Writer(manager="holdfast-sdk", actor="ci")
CURL = Writer(manager="curl", actor="ops", operation="PATCH")
TABLES = {
    "meta": "SELECT serial, epoch FROM meta",  # the lineage is random
    "projects": "SELECT * FROM projects",
    "workloads": "SELECT * FROM workloads",
    "tokens": "SELECT * FROM tokens",
    "history": "SELECT * FROM history",
    "drifts": "SELECT * FROM drifts",
    "answers": "SELECT * FROM answers",
}


def make_first_version(path: Path) -> None:
    """Make a store as the first version of the tables has it, after all operations."""
    with open_store(path) as store:
        for _ in operations(store):
            pass
    connection = apsw.Connection(str(path))
    later = [each for statements in MIGRATIONS[1:] for each in statements]
    for name in re.findall(r"CREATE TABLE (\w+)", " ".join(later)):
        connection.execute(f"DROP TABLE {name}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()


class CountingClock:
    """One second for each look."""

    def __init__(self) -> None:
        self._looks = 0

    def now(self) -> datetime:
        self._looks += 1
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._looks)

    def monotonic(self) -> float:
        return float(self._looks)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the store does not wait")


def counting_ids() -> Callable[[], str]:
    made = 0

    def new_id() -> str:
        nonlocal made
        made += 1
        return f"{made:08x}-0000-4000-8000-{made:012x}"

    return new_id


def spec(slug: str, **fields: object) -> WorkloadSpec:
    given: dict[str, object] = {
        "name": slug,
        "model": "meta/llama",
        "backend": "vllm",
        "command": f"vllm serve meta/llama --served-model-name {slug}",
        "env": {"A": "1"},
        "replicas": 1,
    }
    return WorkloadSpec(**{**given, **fields})  # type: ignore[arg-type]  # checked when built


def open_store(
    path: Path, vfs: str | None = None, migrations: Sequence[Sequence[str]] = MIGRATIONS
) -> Store:
    return Store.open(
        path, clock=CountingClock(), new_id=counting_ids(), vfs=vfs, migrations=migrations
    )


def operations(store: Store) -> Iterator[None]:
    """Do one operation after another, yielding when each is committed."""
    target = StoreTarget(store, writer=SDK)

    def ensure(slug: str, key: str, **fields: object) -> None:
        desired = desired_of(spec(slug, **fields), project="acme")
        drift = find_drift(desired=desired, live=run_sync(target.observe(desired.id)))
        run_sync(target.perform(make_plan([drift]).steps[0], key=key))

    def patch(slug: str, **fields: int) -> None:
        record = store.record(WorkloadId(project="acme", slug=slug))
        assert record is not None
        store.write(
            lambda tx: tx.update_workload(
                record.uid, fields, version=record.version, writer=CURL, declare=False
            )
        )

    def delete(slug: str, key: str) -> None:
        live = run_sync(target.observe(WorkloadId(project="acme", slug=slug)))
        assert not isinstance(live, Absent)
        run_sync(target.perform(delete_plan(live).steps[0], key=key))

    def token(id: str, kind: TokenKind, slug: str | None) -> None:
        record = store.record(WorkloadId(project="acme", slug=slug)) if slug else None
        store.write(
            lambda tx: tx.create_token(
                id=id,
                kind=kind,
                project="acme",
                name=f"token {id}",
                scopes=[TokenScope.READ],
                secret_hash=b"\1" * 32,
                workload_uid=record.uid if record else None,
            )
        )

    def fall(slug: str) -> None:
        entry = DriftEntry(
            path="/processes/0",
            desired="running",
            live="exited",
            kind=DriftKind.RESOURCE,
            cause=Cause.UNKNOWN,
            evidence="signal 9",
        )
        store.write(lambda tx: tx.open_drift(WorkloadId(project="acme", slug=slug), [entry]))

    def heal(slug: str) -> None:
        open_now = store.drifts("acme", slug=slug)
        store.write(lambda tx: tx.resolve_drift(open_now[0].id, "healed"))

    steps: list[Callable[[], object]] = [
        lambda: store.write(lambda tx: tx.create_project("acme")),
        lambda: ensure("a", "k1"),
        lambda: ensure("b", "k2", env={"BIG": "x" * 9000}),
        lambda: ensure("a", "k3", replicas=2),
        lambda: token("00000001", TokenKind.LIVE, "a"),
        lambda: patch("a", replicas=7),
        lambda: ensure("a", "k4", replicas=2),
        lambda: token("00000002", TokenKind.SDK, None),
        lambda: store.write(lambda tx: tx.revoke_token("00000002")),
        lambda: patch("b", replicas=3),
        lambda: patch("b", replicas=1),
        lambda: fall("a"),
        lambda: heal("a"),
        lambda: patch("a", replicas=9),
        lambda: delete("a", "k5"),
        lambda: ensure("a", "k6", env={"BIG": "y" * 20000}),
        lambda: ensure("b", "k7", env={"SMALL": "1"}),
        lambda: delete("b", "k8"),
    ]
    for step in steps:
        step()
        yield


def dump(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Read everything that is kept, past the store's own code."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return {
            table: sorted(connection.execute(sql).fetchall(), key=repr)
            for table, sql in TABLES.items()
        }
    finally:
        connection.close()


def broken_invariants(path: Path) -> list[str]:
    """Check what must hold in every state: pages, seals, and audit rows against effects."""
    with Store.open(path) as store:
        found = store.check()
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        for uid, generation, written in connection.execute(
            "SELECT uid, generation, (SELECT count(*) FROM history"
            " WHERE history.uid = workloads.uid AND action IN ('created', 'updated'))"
            " FROM workloads"
        ):
            if generation != written:
                found.append(f"{uid} is at generation {generation} with {written} audit rows")
        for what, sql in {
            "a workload without a creation": "SELECT uid FROM workloads WHERE uid NOT IN"
            " (SELECT uid FROM history WHERE action = 'created')",
            "a deleted workload that is there": "SELECT uid FROM workloads WHERE uid IN"
            " (SELECT uid FROM history WHERE action = 'deleted')",
            "a vanished workload without a deletion": "SELECT uid FROM history WHERE action ="
            " 'created' AND uid NOT IN (SELECT uid FROM workloads) AND uid NOT IN"
            " (SELECT uid FROM history WHERE action = 'deleted')",
            "a data key of a workload that is gone": "SELECT id FROM tokens WHERE workload_uid"
            " NOT NULL AND revoked_at IS NULL AND workload_uid NOT IN"
            " (SELECT uid FROM workloads)",
            "an open drift of a workload that is gone": "SELECT id FROM drifts WHERE resolved_at"
            " IS NULL AND uid NOT IN (SELECT uid FROM workloads)",
            "a drift without its audit row": "SELECT id FROM drifts WHERE id NOT IN"
            " (SELECT json_extract(detail, '$.drift') FROM history WHERE action = 'drifted')",
        }.items():
            found += [f"{what}: {row[0]}" for row in connection.execute(sql)]
    finally:
        connection.close()
    return found


async def write_concurrently(
    store: Store, clients: int, acknowledge: Callable[[int], None]
) -> None:
    """Several clients at once, each writing a workload of its own through the group writer."""
    await store.submit(lambda tx: tx.ensure_project("acme"))

    async def client(number: int) -> None:
        desired = desired_of(spec(f"w{number}"), project="acme")
        record = await store.submit(lambda tx: tx.create_workload(desired, writer=SDK))
        acknowledge(number)
        for replicas in range(2, 12):
            write = {"replicas": replicas}

            def work(tx, write=write):  # type: ignore[no-untyped-def]  # bound per turn
                return tx.update_workload(record.uid, write, version=None, writer=SDK)

            await store.submit(work)
            acknowledge(number)

    await asyncio.gather(*(client(number) for number in range(clients)))


async def write_ledger(
    ledger: LedgerStore, writes: int, acknowledge: Callable[[int], None]
) -> None:
    """Write one record again and again, with two lines of the journal each time."""
    for seen in range(writes):
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seen)
        record = record_put("drf-1", seen, body={"text": "x" * 700 * seen})
        await ledger.write([record], [journal_entry(f"{seen} {part}", at=at) for part in "ab"])
        acknowledge(0)


async def count_in_ledger(ledger: LedgerStore) -> tuple[int, int]:
    """How often the record was written, and how many lines there are."""
    records = await ledger.records(RecordKind.DRIFT)
    return sum(record.version for record in records), len(await ledger.entries(limit=0))
