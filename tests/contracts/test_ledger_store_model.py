"""The lasting ledgers against the one in dictionaries, over any sequence of operations."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from tests.support.ledgers import NOON, LedgerBackend, PostgresLedger, SqliteLedger
from tests.support.memory_ledger import MemoryLedgerStore
from tests.support.postgres import Postgres

from holdfast.core.errors import HoldfastError
from holdfast.reconcile.gitops.ports import JournalEntry, LedgerStore, LedgerWrite, RecordKind

LONG = os.environ.get("HOLDFAST_LONG") == "1"
KINDS = st.sampled_from([RecordKind.DRIFT, RecordKind.HOLD])
APPLICATIONS = st.sampled_from(["a/x", "a/y"])
KEYS = st.sampled_from(["k1", "k2", "k3", ""])
STATES = st.sampled_from(["open", "closed", "told"])
TIMES = st.integers(0, 6).map(lambda hours: NOON + timedelta(hours=hours))
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)  # fmt: skip
BODIES = st.dictionaries(st.text(max_size=4), TREES, max_size=3)
NEVER_THERE = 99


@st.composite
def puts(draw: st.DrawFn) -> tuple[LedgerWrite, bool]:
    """A put, and whether it is to name the version that is there at its turn."""
    made = LedgerWrite(
        kind=draw(KINDS),
        application=draw(APPLICATIONS),
        key=draw(KEYS),
        seen=draw(st.sampled_from([0, 1, 2, NEVER_THERE])),
        state=draw(STATES),
        body=draw(st.none() | BODIES | BODIES),
    )
    return made, draw(st.integers(0, 9)) > 0


@st.composite
def lines(draw: st.DrawFn) -> JournalEntry:
    return JournalEntry(
        application=draw(APPLICATIONS),
        subject=draw(KEYS),
        action=draw(st.sampled_from(["detected", "applied"])),
        actor="controller",
        summary=draw(st.text(max_size=8)),
        detail=draw(BODIES),
        at=draw(TIMES),
    )


class BookMachine(RuleBasedStateMachine):
    """Does everything to two ledgers and expects the same answers."""

    def __init__(self, make: Callable[[], LedgerBackend]) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.backend = make()
        self.clock = self.backend.clock
        self.model: LedgerStore = MemoryLedgerStore(self.clock)
        self.opened = AsyncExitStack()
        self.ledger: LedgerStore = self.run(self.opened.enter_async_context(self.backend.open()))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.opened.aclose())
        self.runner.close()

    def same(self, ask: Callable[[LedgerStore], Coroutine[Any, Any, Any]]) -> None:
        answers = []
        for ledger in (self.model, self.ledger):
            try:
                answers.append(self.run(ask(ledger)))
            except HoldfastError as error:
                answers.append((type(error), str(error)))
        assert answers[0] == answers[1]
        assert repr(answers[0]) == repr(answers[1]), "1 is not 1.0 is not True"

    @rule(chosen=st.lists(puts(), max_size=4), noted=st.lists(lines(), max_size=3))
    def write(self, chosen: list[tuple[LedgerWrite, bool]], noted: list[JournalEntry]) -> None:
        present = {
            (record.kind, record.application, record.key): record.version
            for kind in RecordKind
            for record in self.run(self.model.records(kind))
        }
        wanted = []
        for made, fits in chosen:
            name = (made.kind, made.application, made.key)
            seen = present.get(name, 0) if fits else made.seen
            wanted.append(
                LedgerWrite(
                    kind=made.kind,
                    application=made.application,
                    key=made.key,
                    seen=seen,
                    state=made.state,
                    body=made.body,
                )
            )
            present[name] = 0 if made.body is None else present.get(name, 0) + 1
        self.same(lambda ledger: ledger.write(wanted, noted))
        self.same(lambda ledger: ledger.records(RecordKind.DRIFT))
        self.same(lambda ledger: ledger.entries(limit=0))

    @rule(
        kind=KINDS,
        application=st.just("") | APPLICATIONS,
        key=KEYS,
        state=st.just("") | STATES,
        limit=st.integers(0, 3),
    )
    def records(self, kind: RecordKind, application: str, key: str, state: str, limit: int) -> None:
        self.same(
            lambda ledger: ledger.records(
                kind, application=application, key=key, state=state, limit=limit
            )
        )

    @rule(
        application=st.just("") | APPLICATIONS,
        subject=KEYS,
        since=st.none() | TIMES,
        before=st.integers(0, 12),
        limit=st.integers(0, 5),
    )
    def entries(
        self, application: str, subject: str, since: datetime | None, before: int, limit: int
    ) -> None:
        self.same(
            lambda ledger: ledger.entries(
                application=application, subject=subject, since=since, before=before, limit=limit
            )
        )

    @rule(before=TIMES)
    def prune(self, before: datetime) -> None:
        self.same(lambda ledger: ledger.prune(before))

    @rule(hours=st.sampled_from([-1, 1, 1, 2]))
    def time_passes(self, hours: int) -> None:
        self.clock.forward(hours=hours)

    @rule()
    def reopen(self) -> None:
        self.run(self.opened.aclose())
        self.opened = AsyncExitStack()
        self.ledger = self.run(self.opened.enter_async_context(self.backend.open()))


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_a_durable_ledger_answers_as_the_dictionaries_do(
    name: str, request: pytest.FixtureRequest
) -> None:
    made: list[str] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as home:

        def on_sqlite() -> LedgerBackend:
            made.append(f"{len(made)}.db")
            return SqliteLedger(Path(home) / made[-1])

        def on_postgres() -> LedgerBackend:
            made.append(server.create())
            return PostgresLedger(server.dsn(made[-1]))

        if name == "postgres":
            server: Postgres = request.getfixturevalue("postgres_server")
        run_state_machine_as_test(
            lambda: BookMachine(on_postgres if name == "postgres" else on_sqlite),
            settings=settings(
                max_examples=200 if LONG else 8 if name == "postgres" else 20,
                stateful_step_count=50 if LONG else 20,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
        for database in made if name == "postgres" else ():
            server.drop(database)
