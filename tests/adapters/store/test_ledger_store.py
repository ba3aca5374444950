"""The GitOps controller's ledger in the store's file: older files, crashes, damage, neighbours.

What it does as a ledger is in the contract suite.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import apsw
import pytest
from tests.adapters.store.store_script import dump, make_first_version
from tests.adapters.store.test_crash import kill_at
from tests.support.ledgers import NOON, SqliteLedger, journal_entry, record_put

from holdfast.adapters.store import OpenMode, Store
from holdfast.adapters.store.ledger_store import SqliteLedgerStore
from holdfast.adapters.store.schema import MIGRATIONS, schema_version
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.reconcile.gitops.ports import RecordKind


def test_a_file_from_before_the_ledger_gets_one_and_keeps_all_it_had(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    make_first_version(path)
    before = dump(path)

    async def write() -> None:
        async with SqliteLedger(path).open() as ledger:
            assert await ledger.records(RecordKind.DRIFT) == []
            await ledger.write([record_put("a")], [journal_entry("1")])

    Store.open(path, mode=OpenMode.SERVER).close()
    assert dump(path) == before
    asyncio.run(write())
    connection = apsw.Connection(str(path))
    assert schema_version(connection) == len(MIGRATIONS)
    connection.close()


def test_a_program_from_before_the_ledger_refuses_the_file(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    Store.open(path).close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="newer Holdfast"):
        Store.open(path, migrations=MIGRATIONS[:1])
    assert path.read_bytes() == before


def test_a_killed_ledger_keeps_what_it_acknowledged_and_tears_no_write() -> None:
    found = kill_at("book", stride=7)
    assert found["problems"] == []
    assert found["ended"]
    assert int(str(found["points"])) >= 20


def test_a_flipped_bit_in_the_ledger_is_noticed_or_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    backend = SqliteLedger(path)

    async def fill() -> None:
        async with backend.open() as ledger:
            for number in range(200):
                record = record_put(f"drf-{number}", body={"live": f"{number:400}"})
                await ledger.write(
                    [record], [journal_entry(f"saw {number}", subject=f"drf-{number}")]
                )

    async def read() -> object:
        async with backend.open() as ledger:
            return await ledger.records(RecordKind.DRIFT), await ledger.entries(limit=0)

    asyncio.run(fill())
    truth = asyncio.run(read())
    whole = path.read_bytes()
    dice = random.Random(11)
    noticed = 0
    for _ in range(150):
        content = bytearray(whole)
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(content)
        for side in ("-wal", "-shm"):
            Path(f"{path}{side}").unlink(missing_ok=True)
        try:
            assert asyncio.run(read()) == truth
        except HoldfastError:
            noticed += 1
    assert noticed > 15


def test_the_check_of_a_file_reads_the_seals_of_its_book(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"

    async def fill() -> None:
        async with SqliteLedger(path).open() as ledger:
            await ledger.write([record_put("a")], [journal_entry("1")])

    asyncio.run(fill())
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE records SET state = 'closed'")
    connection.execute("UPDATE journal SET actor = 'someone else'")
    connection.close()
    with Store.open(path) as store:
        assert store.check() == [
            "1 rows of records do not match their checksum",
            "1 rows of journal do not match their checksum",
        ]


def test_a_ledger_shares_commits_with_the_stores_other_writers(tmp_path: Path) -> None:
    """One transaction may hold the writes of both; a conflict undoes the ledger's alone."""

    async def scenario(store: Store) -> None:
        ledger = SqliteLedgerStore(store)
        answers = await asyncio.gather(
            ledger.write([record_put("a")], [journal_entry("kept")]),
            store.submit(lambda tx: tx.create_project("acme")),
            ledger.write([record_put("b"), record_put("a", 7)], [journal_entry("undone")]),
            return_exceptions=True,
        )
        assert [isinstance(answer, HoldfastError) for answer in answers] == [False, False, True]
        assert store.project("acme") is not None
        assert [record.key for record in await ledger.records(RecordKind.DRIFT)] == ["a"]
        assert [entry.summary for entry in await ledger.entries()] == ["kept"]

    with Store.open(tmp_path / "holdfast.db") as store:
        asyncio.run(scenario(store))


def test_a_closed_store_is_said_to_be_closed(tmp_path: Path) -> None:
    async def scenario(ledger: SqliteLedgerStore) -> None:
        for call in (
            ledger.records(RecordKind.DRIFT),
            ledger.entries(),
            ledger.write([record_put("a")], []),
            ledger.prune(NOON),
        ):
            with pytest.raises(StoreUnavailable, match="closed"):
                await call

    store = Store.open(tmp_path / "holdfast.db")
    ledger = SqliteLedgerStore(store)
    store.close()
    asyncio.run(scenario(ledger))
