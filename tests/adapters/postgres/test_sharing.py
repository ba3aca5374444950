"""Several controllers on one ledger: who wins, in which order lines stand, who makes the tables."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
from tests.support.ledgers import NOON, PostgresLedger, journal_entry, record_put
from tests.support.postgres import Postgres
from tests.support.processes import ROOT

from holdfast.adapters.postgres import open_ledger_store
from holdfast.adapters.postgres.ledger_store import MIGRATIONS
from holdfast.core.errors import ConfigurationError, Conflict
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import LedgerStore, RecordKind

DRIFT = RecordKind.DRIFT
CONTROLLER = """
import asyncio, sys
from tests.support.ledgers import PostgresLedger, journal_entry, record_put
from holdfast.core.errors import Conflict
from holdfast.reconcile.gitops.ports import RecordKind

async def main(dsn, rounds):
    async with PostgresLedger(dsn).open() as ledger:
        while rounds:
            held = await ledger.records(RecordKind.DRIFT, key="sum")
            seen, count = (held[0].version, held[0].body["n"]) if held else (0, 0)
            try:
                await ledger.write(
                    [record_put("sum", seen, body={"n": count + 1})],
                    [journal_entry(str(count + 1))],
                )
                rounds -= 1
            except Conflict:
                pass

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def open_many(stack: AsyncExitStack, dsn: str, count: int) -> Sequence[LedgerStore]:
    backends = [PostgresLedger(dsn) for _ in range(count)]
    return [await stack.enter_async_context(backend.open()) for backend in backends]


def test_of_two_controllers_who_saw_the_same_one_wins(postgres: str) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            ledgers = await open_many(stack, postgres, 2)
            for seen in range(10):
                answers = await asyncio.gather(
                    *(
                        ledger.write(
                            [record_put("a", seen, body={"by": by})],
                            [journal_entry(f"{seen} {by}")],
                        )
                        for by, ledger in enumerate(ledgers * 4)
                    ),
                    return_exceptions=True,
                )
                assert sum(answer is None for answer in answers) == 1
                assert sum(isinstance(answer, Conflict) for answer in answers) == 7
                (record,) = await ledgers[0].records(DRIFT)
                assert (record.version, record.body) == (seen + 1, {"by": answers.index(None)})
            assert len(await ledgers[1].entries()) == 10

    asyncio.run(scenario())


def test_processes_that_share_a_ledger_lose_no_write_of_each_other(postgres: str) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CONTROLLER, postgres, "12"],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    ended = [(child.communicate(timeout=100)[1], child.returncode) for child in children]
    assert [code for _, code in ended] == [0, 0, 0], ended

    async def scenario() -> None:
        async with PostgresLedger(postgres).open() as ledger:
            (record,) = await ledger.records(DRIFT)
            assert (record.version, record.body) == (36, {"n": 36})
            entries = await ledger.entries()
            assert [entry.summary for entry in entries] == [str(n) for n in range(36, 0, -1)]

    asyncio.run(scenario())


def test_whoever_follows_the_journal_by_its_numbers_misses_no_line(postgres: str) -> None:
    """A number below the highest one seen must never turn up later."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            *writers, reader = await open_many(stack, postgres, 4)
            missed: list[int] = []
            known: set[int] = set()
            ended = asyncio.Event()

            async def follow() -> None:
                while not ended.is_set():
                    found = {entry.seq for entry in await reader.entries(limit=0)}
                    missed.extend(seq for seq in found - known if seq < max(known, default=0))
                    known.update(found)

            async def write(number: int, ledger: LedgerStore) -> None:
                for turn in range(25):
                    # Some transactions are long and some are short, so that they overtake.
                    many = [
                        record_put(f"{number}-{turn}-{n}") for n in range(60 if number == 0 else 1)
                    ]
                    await ledger.write(many, [journal_entry("a"), journal_entry("b")])

            following = asyncio.create_task(follow())
            await asyncio.gather(*(write(number, ledger) for number, ledger in enumerate(writers)))
            ended.set()
            await following
            assert missed == []
            seqs = [entry.seq for entry in await reader.entries(limit=0)]
            assert seqs == list(range(150, 0, -1)), "none is left out while all commit"

    asyncio.run(scenario())


def test_controllers_that_start_at_once_make_the_tables_once(postgres: str) -> None:
    async def scenario() -> None:
        ledgers = await asyncio.gather(*(open_ledger_store(Secret(postgres)) for _ in range(6)))
        await asyncio.gather(
            *(
                ledger.write([record_put(f"k{n}")], [journal_entry("a")])
                for n, ledger in enumerate(ledgers)
            )
        )
        assert len(await ledgers[0].records(DRIFT)) == 6
        for ledger in ledgers:
            await ledger.aclose()

    asyncio.run(scenario())


def test_pruning_leaves_what_another_controller_opens_meanwhile(postgres: str) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            first, second = await open_many(stack, postgres, 2)
            names = [f"k{number}" for number in range(60)]
            await first.write([record_put(name, state="closed") for name in names], [])

            async def reopen(name: str) -> bool:
                try:
                    await second.write([record_put(name, 1, state="open")], [])
                except Conflict:
                    return False
                return True

            removed, *reopened = await asyncio.gather(
                first.prune(NOON.replace(year=2030)), *map(reopen, names)
            )
            kept = {record.key for record in await first.records(DRIFT)}
            assert kept == {name for name, done in zip(names, reopened, strict=True) if done}
            assert removed == len(names) - len(kept)

    asyncio.run(scenario())


def test_a_database_that_a_newer_holdfast_changed_is_refused(
    postgres: str, postgres_server: Postgres
) -> None:
    newer = len(MIGRATIONS) + 1
    change = "UPDATE holdfast_book SET schema = schema + 1"

    async def scenario() -> None:
        async with PostgresLedger(postgres).open() as running:
            await running.write([record_put("a")], [journal_entry("before")])
            postgres_server.run(change, postgres.rpartition("/")[2])
            for attempt in (
                open_ledger_store(Secret(postgres)),
                running.write([record_put("b")], [journal_entry("after")]),
                running.prune(NOON.replace(year=2030)),
            ):
                with pytest.raises(ConfigurationError, match=f"its schema is {newer}"):
                    await attempt
            assert [record.key for record in await running.records(DRIFT)] == ["a"]
            assert [entry.summary for entry in await running.entries()] == ["before"]

    asyncio.run(scenario())


def test_a_user_who_may_not_create_tables_uses_those_that_are_there(
    postgres: str, postgres_server: Postgres
) -> None:
    database = postgres.rpartition("/")[2]
    role = f"writer_of_{database}"
    limited = postgres.replace("//holdfast@", f"//{role}@")
    postgres_server.run(f"CREATE ROLE {role} LOGIN")

    async def scenario() -> None:
        with pytest.raises(ConfigurationError, match="permission denied"):
            await open_ledger_store(Secret(limited))
        await (await open_ledger_store(Secret(postgres))).aclose()
        postgres_server.run(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
            database,
        )
        async with PostgresLedger(limited).open() as ledger:
            await ledger.write([record_put("a")], [journal_entry("a")])
            await ledger.prune(NOON)

    try:
        asyncio.run(scenario())
    finally:
        postgres_server.run(f"DROP OWNED BY {role}", database)
        postgres_server.run(f"DROP ROLE {role}")


def test_a_database_that_has_not_every_character_is_refused(postgres_server: Postgres) -> None:
    postgres_server.run("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1'")
    try:
        with pytest.raises(ConfigurationError, match="LATIN1"):
            asyncio.run(open_ledger_store(Secret(postgres_server.dsn("latin"))))
    finally:
        postgres_server.drop("latin")
