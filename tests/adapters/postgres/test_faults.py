"""A ledger whose server hangs, restarts, refuses or is cut off, and what the caller is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.ledgers import NOON, PostgresLedger, journal_entry, record_put
from tests.support.postgres import Postgres
from tests.support.processes import free_port

from holdfast.adapters.postgres import open_ledger_store
from holdfast.adapters.postgres.sessions import PostgresSessions
from holdfast.core.errors import (
    AuthError,
    ConfigurationError,
    Conflict,
    HoldfastError,
    TargetUnavailable,
)
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import LedgerStore, RecordKind

DRIFT = RecordKind.DRIFT


async def keys(ledger: LedgerStore) -> list[str]:
    return [record.key for record in await ledger.records(DRIFT)]


class Cutter:
    """Stands before the server and cuts the connection at a statement, before it or behind it."""

    def __init__(self, port: int, statement: bytes, *, deliver: bool) -> None:
        self._port = port
        self._statement = statement
        self._deliver = deliver
        self.armed = False

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await server.wait_closed()

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        answers, forth = await asyncio.open_connection("127.0.0.1", self._port)
        cutting, answered = False, asyncio.Event()

        async def return_answers() -> None:
            while data := await answers.read(65536):
                if cutting:
                    answered.set()
                else:
                    back.write(data)
            back.close()

        returning = asyncio.create_task(return_answers())
        with contextlib.suppress(ConnectionError):
            while data := await client.read(65536):
                if self.armed and self._statement in data:
                    self.armed, cutting = False, True
                    if self._deliver:
                        forth.write(data)
                        await answered.wait()
                    break
                forth.write(data)
        returning.cancel()
        await asyncio.wait([returning])
        for writer in (forth, back):
            writer.transport.abort()


@asynccontextmanager
async def cut_book(
    dsn: str, port: int, statement: bytes, *, deliver: bool = False
) -> AsyncIterator[tuple[LedgerStore, Cutter]]:
    cutter = Cutter(port, statement, deliver=deliver)
    async with cutter.listen() as own:
        through = dsn.replace(f":{port}/", f":{own}/")
        async with PostgresLedger(f"{through}?sslmode=disable").open() as ledger:
            yield ledger, cutter


@pytest.mark.parametrize("deliver", [False, True])
def test_a_connection_lost_at_the_commit_leaves_the_outcome_unknown(
    postgres: str, postgres_server: Postgres, deliver: bool
) -> None:
    async def scenario() -> None:
        async with cut_book(postgres, postgres_server.port, b"COMMIT;", deliver=deliver) as (
            ledger,
            cutter,
        ):
            await ledger.write([record_put("a")], [])
            cutter.armed = True
            with pytest.raises(TargetUnavailable, match="unknown"):
                await ledger.write([record_put("b")], [journal_entry("b")])
            assert await keys(ledger) == (["b", "a"] if deliver else ["a"])
            assert len(await ledger.entries()) == deliver
            # Reading anew is all that it takes to go on.
            await ledger.write([record_put("b", int(deliver))], [])

    asyncio.run(scenario())


@pytest.mark.parametrize("statement", [b"BEGIN", b"set_config", b"INSERT INTO holdfast_records"])
@pytest.mark.parametrize("deliver", [False, True])
def test_a_connection_lost_before_the_commit_is_replaced_and_nobody_notices(
    postgres: str, postgres_server: Postgres, statement: bytes, deliver: bool
) -> None:
    async def scenario() -> None:
        async with cut_book(postgres, postgres_server.port, statement, deliver=deliver) as (
            ledger,
            cutter,
        ):
            cutter.armed = True
            await ledger.write([record_put("a")], [journal_entry("a")])
            assert not cutter.armed, "the connection was cut"
            assert await keys(ledger) == ["a"]
            assert [entry.seq for entry in await ledger.entries()] == [1]

    asyncio.run(scenario())


def test_a_server_that_was_restarted_is_met_again_without_a_word(
    postgres: str, postgres_server: Postgres
) -> None:
    async def scenario() -> None:
        async with PostgresLedger(postgres).open() as ledger:
            await asyncio.gather(
                *(ledger.write([record_put(f"k{n}")], [journal_entry("x")]) for n in range(8))
            )
            postgres_server.restart()  # in this thread, which it lives and dies with
            await ledger.write([record_put("after")], [journal_entry("x")])
            assert len(await keys(ledger)) == 9
            postgres_server.restart()  # in this thread, which it lives and dies with
            assert len(await ledger.entries()) == 9

    asyncio.run(scenario())


def test_a_server_that_hangs_is_given_up_and_met_again(
    postgres: str, postgres_server: Postgres
) -> None:
    async def scenario() -> None:
        ledger = await open_ledger_store(Secret(postgres), transaction_timeout=1.0)
        await ledger.write([record_put("a")], [])
        postgres_server.pause()
        try:
            for call in (
                ledger.write([record_put("b")], [journal_entry("b")]),
                ledger.records(DRIFT),
                ledger.entries(),
                ledger.prune(NOON),
            ):
                with pytest.raises(TargetUnavailable, match="no answer in 1 s"):
                    await call
            with pytest.raises(TargetUnavailable, match="no answer in 1 s"):
                await open_ledger_store(Secret(postgres), transaction_timeout=1.0)
        finally:
            postgres_server.resume()
        await ledger.write([record_put("c")], [])
        assert await keys(ledger) == ["c", "a"]
        await ledger.aclose()

    asyncio.run(scenario())


def test_a_hanging_server_does_not_hold_up_the_end(
    postgres: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.adapters.postgres.sessions.CLOSE_TIMEOUT", 0.2)

    async def scenario() -> None:
        ledger = await open_ledger_store(Secret(postgres))
        await ledger.write([record_put("a")], [])
        postgres_server.pause()
        try:
            await ledger.aclose()
        finally:
            postgres_server.resume()

    asyncio.run(scenario())


def test_a_closed_ledger_says_so_in_our_words(postgres: str) -> None:
    async def scenario() -> None:
        ledger = await open_ledger_store(Secret(postgres))
        await ledger.aclose()
        await ledger.aclose()
        with pytest.raises(TargetUnavailable, match="Nothing was changed"):
            await ledger.write([record_put("a")], [])

    asyncio.run(scenario())


@asynccontextmanager
async def held_row(dsn: str) -> AsyncIterator[None]:
    """Another controller that stopped in the middle of a write."""
    sessions, held, freed = (
        PostgresSessions(Secret(dsn), transaction_timeout=60),
        asyncio.Event(),
        asyncio.Event(),
    )

    async def hold(connection: object) -> None:
        await connection.execute("UPDATE holdfast_book SET turns = turns")  # type: ignore[attr-defined]
        held.set()
        await freed.wait()

    holding = asyncio.create_task(sessions.open(hold))
    await held.wait()
    try:
        yield
    finally:
        freed.set()
        await holding
        await sessions.aclose()


def test_a_writer_that_waits_too_long_for_its_turn_changes_nothing(postgres: str) -> None:
    async def scenario() -> None:
        ledger = await open_ledger_store(Secret(postgres), transaction_timeout=1.0)
        async with held_row(postgres):
            with pytest.raises(TargetUnavailable, match="Nothing was changed"):
                await ledger.write([record_put("a")], [journal_entry("a")])
            assert await keys(ledger) == [], "readers do not wait for writers"
        await ledger.write([record_put("b")], [])
        assert await keys(ledger) == ["b"]
        await ledger.aclose()

    asyncio.run(scenario())


def test_a_write_that_was_cancelled_while_it_waited_leaves_nothing_behind(postgres: str) -> None:
    async def scenario() -> None:
        ledger = await open_ledger_store(Secret(postgres))
        async with held_row(postgres):
            writing = [
                asyncio.create_task(ledger.write([record_put(f"k{n}")], [journal_entry("x")]))
                for n in range(8)
            ]
            await asyncio.wait(writing, timeout=0.2)
            for each in writing:
                each.cancel()
            answers = await asyncio.gather(*writing, return_exceptions=True)
            assert {type(answer) for answer in answers} == {asyncio.CancelledError}
        await ledger.write([record_put("after")], [])
        assert await keys(ledger) == ["after"]
        assert await ledger.entries() == []
        await ledger.aclose()

    asyncio.run(scenario())


def test_a_commit_is_on_disk_and_a_frozen_writer_is_ended_whatever_the_server_is_set_to(
    postgres: str, postgres_server: Postgres
) -> None:
    database = postgres.rpartition("/")[2]
    postgres_server.run(f"ALTER DATABASE {database} SET synchronous_commit = off")
    postgres_server.run(
        f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'"
    )
    shown = {
        "synchronous_commit": "on",
        "transaction_isolation": "read committed",
        "lock_timeout": "7s",
        "statement_timeout": "7s",
        "idle_in_transaction_session_timeout": "7s",
    }

    async def scenario() -> None:
        sessions = PostgresSessions(Secret(postgres), transaction_timeout=7)

        async def look(connection: object) -> None:
            for name, value in shown.items():
                assert await connection.fetchval(f"SHOW {name}") == value  # type: ignore[attr-defined]

        await sessions.open(look)
        await sessions.aclose()

    asyncio.run(scenario())


def test_a_writer_frozen_in_its_transaction_is_ended_by_the_server(postgres: str) -> None:
    """Its row is free again though its process still holds the connection."""

    async def scenario() -> None:
        ledger = await open_ledger_store(Secret(postgres), transaction_timeout=20)
        frozen = PostgresSessions(Secret(postgres), transaction_timeout=1)
        held = asyncio.Event()

        async def freeze(connection: object) -> None:
            await connection.execute("UPDATE holdfast_book SET turns = turns")  # type: ignore[attr-defined]
            held.set()
            await asyncio.Event().wait()

        frozen._transaction_timeout = 60  # as if its own clock stood still
        freezing = asyncio.create_task(frozen.open(freeze))
        await held.wait()
        await ledger.write([record_put("a")], [])
        freezing.cancel()
        await asyncio.wait([freezing])
        frozen.terminate()
        await ledger.aclose()

    asyncio.run(scenario())


CANARY = "s3cr3tCanary"
BAD_ADDRESSES = [
    f"postgresql://holdfast:{CANARY}@127.0.0.1:{{free}}/db",
    f"postgresql://holdfast:{CANARY}@127.0.0.1:{{port}}/no_such_database",
    f"postgresql://nobody_here:{CANARY}@127.0.0.1:{{port}}/postgres",
    f"postgresql://holdfast:{CANARY}@127.0.0.1:{{port}}/postgres?sslmode=require",
    f"postgresql://holdfast:{CANARY}@127.0.0.1:{{port}}/postgres?sslmode={CANARY}",
    f"postgresql://holdfast@127.0.0.1:{{port}}/postgres?sslmode=verify-full&sslrootcert={CANARY}",
    f"postgresql://holdfast:{CANARY}@no-such-host.invalid/db",
    f"postgresql://holdfast:a@{CANARY}@127.0.0.1:{{port}}/db",
    f"postgresql://holdfast:a/{CANARY}@127.0.0.1:{{port}}/db",
    f"postgresql://holdfast:12/{CANARY}@127.0.0.1:{{port}}/db",
    f"postgresql://holdfast:a#{CANARY}@127.0.0.1:{{port}}/db",
    f"postgresql://holdfast:a?{CANARY}@127.0.0.1:{{port}}/db",
    f"postgresql://holdfast:[{CANARY}@127.0.0.1:{{port}}/db",
    f"postgresql://127.0.0.1:{CANARY}/db",
    f"postgresql://127.0.0.1:{{port}}/db?port={CANARY}",
    f"postgresql://127.0.0.1:{{port}}/db?password={CANARY}&user=nobody_here",
    f"postgresql://127.0.0.1:{{port}}/db?{CANARY}",
    f"mysql://holdfast:{CANARY}@127.0.0.1/db",
    CANARY,
    "",
]


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_no_address_that_fails_is_ever_shown(
    address: str, postgres_server: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    dsn = address.format(port=postgres_server.port, free=free_port())
    with pytest.raises(HoldfastError) as failed:
        asyncio.run(open_ledger_store(Secret(dsn), transaction_timeout=5))
    error = failed.value
    assert isinstance(error, TargetUnavailable | ConfigurationError | AuthError)
    assert error.hint
    for text in (
        str(error),
        repr(error),
        "".join(traceback.format_exception(error)),
        caplog.text,
    ):
        assert CANARY not in text


def test_failures_to_open_are_told_apart_by_who_can_mend_them(postgres_server: Postgres) -> None:
    port = postgres_server.port
    for address, kind in {
        f"postgresql://nobody_here@127.0.0.1:{port}/postgres": AuthError,
        f"postgresql://holdfast@127.0.0.1:{port}/no_such_database": ConfigurationError,
        f"postgresql://holdfast@127.0.0.1:{free_port()}/postgres": TargetUnavailable,
        f"postgresql://holdfast@127.0.0.1:{port}/postgres?sslmode=require": TargetUnavailable,
        f"postgresql://127.0.0.1:{port}/postgres?sslmode=maybe": ConfigurationError,
    }.items():
        with pytest.raises(kind):
            asyncio.run(open_ledger_store(Secret(address), transaction_timeout=5))


def test_a_password_that_works_is_in_no_error_of_a_later_failure(
    postgres: str, postgres_server: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    dsn = postgres.replace("//holdfast@", f"//holdfast:{CANARY}@")

    async def scenario() -> None:
        ledger = await open_ledger_store(Secret(dsn), transaction_timeout=1)
        assert CANARY not in repr(vars(ledger))
        await ledger.write([record_put("a")], [])
        with pytest.raises(Conflict):
            await ledger.write([record_put("a")], [])
        postgres_server.pause()
        try:
            with pytest.raises(TargetUnavailable) as failed:
                await ledger.write([record_put("b")], [])
        finally:
            postgres_server.resume()
        assert CANARY not in "".join(traceback.format_exception(failed.value))
        await ledger.aclose()

    asyncio.run(scenario())
    assert CANARY not in caplog.text
