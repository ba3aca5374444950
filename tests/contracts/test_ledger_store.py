"""The contract of `Book`, kept by dictionaries, by SQLite and by PostgreSQL alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from tests.support.ledgers import (
    NOON,
    LedgerBackend,
    MemoryLedger,
    PostgresLedger,
    SqliteLedger,
    journal_entry,
    record_put,
    record_removal,
)

from holdfast.core.errors import Conflict, ValidationError
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import LedgerStore, RecordKind

Scenario = Callable[[LedgerStore], Awaitable[None]]
DRIFT = RecordKind.DRIFT
HOLD = RecordKind.HOLD


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> LedgerBackend:
    if request.param == "memory":
        return MemoryLedger()
    if request.param == "sqlite":
        return SqliteLedger(tmp_path / "holdfast.db")
    return PostgresLedger(request.getfixturevalue("postgres"))


@pytest.fixture
def on_ledger(backend: LedgerBackend) -> Callable[[Scenario], None]:
    """Run a scenario on a ledger of its own."""

    def run(scenario: Scenario) -> None:
        async def played() -> None:
            async with backend.open() as ledger:
                await scenario(ledger)

        asyncio.run(played())

    return run


OnLedger = Callable[[Scenario], None]


async def keys(ledger: LedgerStore, kind: RecordKind = DRIFT, **conditions: object) -> list[str]:
    found = await ledger.records(kind, **conditions)  # type: ignore[arg-type]  # any condition
    return [record.key for record in found]


async def said(ledger: LedgerStore, **conditions: object) -> list[str]:
    found = await ledger.entries(**conditions)  # type: ignore[arg-type]  # any condition
    return [entry.summary for entry in found]


def test_a_new_ledger_is_empty(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        for kind in RecordKind:
            assert await keys(ledger, kind) == []
        assert await said(ledger) == []
        assert await ledger.prune(NOON) == 0

    on_ledger(scenario)


def test_records_are_gone_through_by_key(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        every = [f"drf-{number:02}" for number in range(7)]
        await ledger.write([record_put(key) for key in reversed(every)], [])
        await ledger.write(
            [record_put("drf-03x", application="team/other"), record_put("drf-99", kind=HOLD)], []
        )
        found, after = list[str](), ""
        while True:
            page = await ledger.records_after(DRIFT, application="team/chat", after=after, limit=3)
            found += [record.key for record in page]
            if len(page) < 3:
                break
            after = page[-1].key
            # What changes meanwhile is neither skipped nor told twice.
            await ledger.write(
                [record_put(key, len(found) // 3) for key in ("drf-00", "drf-06")], []
            )
        assert found == every
        (last,) = await ledger.records_after(
            DRIFT, application="team/chat", after="drf-05", limit=9
        )
        assert (last.key, last.version, last.body) == ("drf-06", 3, {"key": "drf-06"})
        assert not await ledger.records_after(DRIFT, application="team", after="", limit=9)

    on_ledger(scenario)


def test_what_was_changed_since_a_turn_is_told_and_the_mark_says_what_is_there(
    on_ledger: OnLedger,
) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        async def since(turn: int, limit: int = 9) -> list[tuple[int, str]]:
            found = await ledger.records_since(
                DRIFT, application="team/chat", turn=turn, limit=limit
            )
            return [(turn, record.key) for turn, record in found]

        empty = await ledger.mark(DRIFT, application="team/chat")
        assert (empty.count, empty.turn) == (0, 0)
        assert await since(0) == []
        await ledger.write([record_put("drf-a"), record_put("drf-b"), record_put("drf-c")], [])
        await ledger.write(
            [record_put("drf-x", application="team/other"), record_put("h", kind=HOLD)], []
        )
        first = await since(0)
        assert [key for _, key in first] == ["drf-a", "drf-b", "drf-c"]
        assert await since(0, limit=2) == first[:2]
        mark = await ledger.mark(DRIFT, application="team/chat")
        assert (mark.count, mark.turn) == (3, first[-1][0])
        assert await since(mark.turn) == []

        await ledger.write([record_put("drf-a", 1)], [])
        ((turn, key),) = await since(mark.turn)
        assert key == "drf-a" and turn > mark.turn
        later = await ledger.mark(DRIFT, application="team/chat")
        assert (later.count, later.turn) == (3, turn)

        await ledger.write([record_removal("drf-b", 1)], [])
        after = await ledger.mark(DRIFT, application="team/chat")
        assert (after.count, after.turn) == (2, turn), "what is gone is missed by the count"
        await ledger.write([record_removal("drf-a", 2)], [])
        last = await ledger.mark(DRIFT, application="team/chat")
        assert last.count == 1 and last.turn < turn
        await ledger.write([record_put("drf-d")], [])
        newest = await ledger.mark(DRIFT, application="team/chat")
        assert newest.turn > turn, "no turn is given twice"

    on_ledger(scenario)


def test_lines_are_chosen_by_what_was_done(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        for action in ("detected", "approved", "healed", "rejected"):
            await ledger.write([], [journal_entry(action, action=action)])
        assert await said(ledger, actions=("approved", "rejected")) == ["rejected", "approved"]
        assert await said(ledger, actions={"healed"}) == ["healed"]
        assert await said(ledger, actions=("approved", "rejected"), limit=1) == ["rejected"]
        assert await said(ledger, actions=("snoozed",)) == []
        assert await said(ledger, actions=("approved",), application="team/nobody") == []
        assert len(await said(ledger)) == 4

    on_ledger(scenario)


def test_what_was_written_is_read_back(on_ledger: OnLedger, backend: LedgerBackend) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        written = record_put("drf-1", state="open", body={"kinds": ["image"], "n": 3})
        note = journal_entry("saw it", subject="drf-1", at=backend.clock.forward(seconds=1.25))
        await ledger.write([written], [note])
        (record,) = await ledger.records(DRIFT)
        assert (record.kind, record.application, record.key) == (DRIFT, "team/chat", "drf-1")
        assert (record.state, record.version) == ("open", 1)
        assert record.body == {"kinds": ["image"], "n": 3}
        assert record.changed_at == backend.clock.time
        (entry,) = await ledger.entries()
        assert entry.seq > 0
        assert (entry.application, entry.subject) == ("team/chat", "drf-1")
        assert (entry.action, entry.actor) == ("detected", "holdfast-gitops")
        assert (entry.summary, entry.detail, entry.at) == ("saw it", {}, backend.clock.time)

    on_ledger(scenario)


VALUES: list[Fields] = [
    {},
    {"text": "čeština, 漢字, \N{PILE OF POO}, \u202e, \x7f, \n\t\r, ' \" \\ %s $1 ?"},
    {"nul": "a\0b", "ünï\0": 1, "": ""},
    {"none": None, "yes": True, "no": False, "zero": 0, "one": 1.0, "tiny": 5e-324},
    {"big": 2**63, "bigger": -(10**40), "exact": 0.1 + 0.2},
    {"deep": [[{"a": [{"b": [[], {}, [None]]}]}]]},
    {"order": {"z": 1, "a": 2, "m": 3}},
    {"wide": "x" * 3_000_000},
    {"many": [{"path": f"/spec/{number}", "live": number} for number in range(5000)]},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: next(iter(value), "empty"))
def test_any_json_survives_the_round_trip(on_ledger: OnLedger, value: Fields) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        await ledger.write([record_put("drf-1", body=value)], [journal_entry("seen", detail=value)])
        (record,), (entry,) = await ledger.records(DRIFT), await ledger.entries()
        for found in (record.body, entry.detail):
            assert found == value
            assert repr(found) == repr(value), "1 is not 1.0 is not True, and order is kept"

    on_ledger(scenario)


def test_names_and_prose_may_be_any_text(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        odd = "team/'; DROP TABLE records; -- 漢字 \u202e"
        await ledger.write(
            [record_put(odd, application=odd, state=odd)],
            [journal_entry("a\0b \ud800 c", subject=odd, application=odd)],
        )
        (record,) = await ledger.records(DRIFT, application=odd, key=odd, state=odd)
        assert (record.application, record.key, record.state) == (odd, odd, odd)
        (entry,) = await ledger.entries(application=odd, subject=odd)
        assert entry.summary == "a\ufffdb ? c", "no line is lost for a character of its summary"

    on_ledger(scenario)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 1025, "漢" * 342])
def test_a_name_that_not_every_ledger_can_keep_is_refused_by_all(
    on_ledger: OnLedger, name: str
) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        for puts, entries in (
            ([record_put(name)], []),
            ([record_put("a", application=name)], []),
            ([record_put("a", state=name)], []),
            ([], [journal_entry("b", subject=name)]),
            ([], [journal_entry("b", application=name)]),
        ):
            with pytest.raises(ValidationError):
                await ledger.write([record_put("first"), *puts], [journal_entry("first"), *entries])
        assert await keys(ledger) == []
        assert await said(ledger) == []

    on_ledger(scenario)


def test_the_longest_names_are_kept(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        first, second = ("".join(chr(33 + i * step % 90) for i in range(1024)) for step in (7, 11))
        await ledger.write(
            [record_put(first, application=second)],
            [journal_entry("a", subject=first, application=second)],
        )
        assert await keys(ledger, application=second) == [first]
        assert await said(ledger, subject=first) == ["a"]

    on_ledger(scenario)


@pytest.mark.parametrize(
    "value",
    [{"a": float("nan")}, {"a": float("inf")}, {"a": "\ud800"}, {"a": {1, 2}}, {"a": b"x"}],
    ids=lambda value: repr(value["a"]),
)
def test_what_is_not_json_is_refused_and_not_quoted(on_ledger: OnLedger, value: Fields) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        for puts, entries in (
            ([record_put("b", body=value)], []),
            ([], [journal_entry("b", detail=value)]),
        ):
            with pytest.raises(ValidationError, match="not JSON") as refused:
                await ledger.write([record_put("a"), *puts], [journal_entry("a"), *entries])
            assert refused.value.__cause__ is None
        assert await keys(ledger) == []
        assert await said(ledger) == []

    on_ledger(scenario)


def test_what_a_caller_does_to_its_own_copy_is_not_kept(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        body: Fields = {"list": [1]}
        await ledger.write([record_put("a", body=body)], [journal_entry("a", detail=body)])
        body["list"] = [2]
        (await ledger.records(DRIFT))[0].body["list"] = [3]
        (await ledger.entries())[0].detail["list"] = [4]
        assert (await ledger.records(DRIFT))[0].body == {"list": [1]}
        assert (await ledger.entries())[0].detail == {"list": [1]}

    on_ledger(scenario)


def test_versions_count_the_writes_of_a_record_and_begin_anew_with_it(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        for seen in range(5):
            await ledger.write([record_put("a", seen)], [])
            assert [record.version for record in await ledger.records(DRIFT)] == [seen + 1]
        await ledger.write([record_removal("a", 5)], [])
        assert await keys(ledger) == []
        await ledger.write([record_put("a")], [])
        assert [record.version for record in await ledger.records(DRIFT)] == [1]

    on_ledger(scenario)


@pytest.mark.parametrize(
    "stale",
    [
        record_put("there"),
        record_put("there", 1),
        record_put("there", 3),
        record_put("absent", 1),
        record_removal("there", 1),
        record_removal("there", 0),
        record_removal("absent", 1),
    ],
    ids=lambda each: f"{each.key}-{each.seen}-{'removal' if each.body is None else 'put'}",
)
def test_a_version_that_moved_is_a_conflict_and_nothing_is_written(
    on_ledger: OnLedger, stale: object
) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        await ledger.write([record_put("there")], [])
        await ledger.write([record_put("there", 1)], [journal_entry("before")])
        before = await ledger.records(DRIFT)
        for puts in ([record_put("new"), stale], [stale, record_put("new")]):
            with pytest.raises(Conflict, match="Nothing was changed"):
                await ledger.write(puts, [journal_entry("after")])  # type: ignore[list-item]
        assert await ledger.records(DRIFT) == before
        assert await said(ledger) == ["before"]

    on_ledger(scenario)


def test_removing_what_is_not_there_is_no_conflict_when_that_was_seen(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        await ledger.write([record_removal("absent", 0)], [journal_entry("nothing to do")])
        assert await keys(ledger) == []
        assert await said(ledger) == ["nothing to do"]

    on_ledger(scenario)


def test_puts_of_one_write_take_effect_one_after_the_other(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        await ledger.write(
            [record_put("a"), record_put("b"), record_put("a", 1, body={"n": 2})], []
        )
        first, second = await ledger.records(DRIFT)
        assert (first.key, first.version, first.body) == ("a", 2, {"n": 2})
        assert (second.key, second.version) == ("b", 1)
        with pytest.raises(Conflict):
            await ledger.write([record_put("c"), record_put("c")], [])
        await ledger.write([record_removal("a", 2), record_put("a"), record_removal("b", 1)], [])
        assert [(record.key, record.version) for record in await ledger.records(DRIFT)] == [
            ("a", 1)
        ]

    on_ledger(scenario)


def test_of_many_writers_who_saw_the_same_exactly_one_wins(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        for seen in range(4):
            answers = await asyncio.gather(
                *(
                    ledger.write(
                        [record_put("a", seen, body={"by": writer})],
                        [journal_entry(f"{seen} {writer}")],
                    )
                    for writer in range(12)
                ),
                return_exceptions=True,
            )
            winners = [writer for writer, answer in enumerate(answers) if answer is None]
            assert len(winners) == 1
            assert sum(isinstance(answer, Conflict) for answer in answers) == 11
            (record,) = await ledger.records(DRIFT)
            assert (record.version, record.body) == (seen + 1, {"by": winners[0]})
            assert (await said(ledger))[0] == f"{seen} {winners[0]}"
        assert len(await said(ledger)) == 4

    on_ledger(scenario)


def test_no_increment_of_many_writers_is_lost(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        async def add() -> None:
            while True:
                held = await ledger.records(DRIFT, key="sum")
                seen, count = (held[0].version, held[0].body["n"]) if held else (0, 0)
                assert isinstance(count, int)
                try:
                    await ledger.write(
                        [record_put("sum", seen, body={"n": count + 1})], [journal_entry("added")]
                    )
                    return
                except Conflict:
                    continue

        await asyncio.gather(*(add() for _ in range(15)))
        assert (await ledger.records(DRIFT))[0].body == {"n": 15}
        assert len(await said(ledger)) == 15

    on_ledger(scenario)


def test_writes_of_different_records_do_not_get_in_each_others_way(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        await asyncio.gather(
            *(
                ledger.write([record_put(f"k{n}")], [journal_entry(f"{n}"), journal_entry(f"{n}")])
                for n in range(30)
            )
        )
        assert sorted(await keys(ledger)) == sorted(f"k{n}" for n in range(30))
        entries = await ledger.entries()
        assert [entry.seq for entry in entries] == sorted(
            {entry.seq for entry in entries}, reverse=True
        )
        pairs = [entry.summary for entry in entries]
        assert pairs[::2] == pairs[1::2], "the lines of one write stand together"

    on_ledger(scenario)


def test_records_come_back_the_last_changed_first_whatever_the_clock_says(
    on_ledger: OnLedger, backend: LedgerBackend
) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        await ledger.write([record_put("a"), record_put("b"), record_put("c")], [])
        assert await keys(ledger) == ["c", "b", "a"]
        backend.clock.forward(hours=-1)
        await ledger.write([record_put("b", 1)], [])
        assert await keys(ledger) == ["b", "c", "a"]
        await ledger.write([record_put("a", 1), record_put("d")], [])
        assert await keys(ledger) == ["d", "a", "b", "c"]
        assert await keys(ledger, limit=2) == ["d", "a"]

    on_ledger(scenario)


def test_records_are_selected_by_every_condition_at_once(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        await ledger.write(
            [
                record_put("a", application="one/x"),
                record_put("b", application="one/x", state="closed"),
                record_put("a", application="two/y"),
                record_put("a", application="one/x", kind=RecordKind.HOLD),
                record_put("c", application="one/x"),
            ],
            [],
        )
        assert await keys(ledger) == ["c", "a", "b", "a"]
        assert await keys(ledger, RecordKind.HOLD) == ["a"]
        assert await keys(ledger, RecordKind.PLAN) == []
        assert await keys(ledger, application="one/x") == ["c", "b", "a"]
        assert await keys(ledger, state="closed") == ["b"]
        assert await keys(ledger, key="a") == ["a", "a"]
        assert await keys(ledger, application="one/x", state="open") == ["c", "a"]
        assert await keys(ledger, application="one/x", key="a", state="open") == ["a"]
        assert await keys(ledger, application="one/x", state="open", limit=1) == ["c"]
        assert await keys(ledger, application="one/%") == []

    on_ledger(scenario)


def test_the_journal_is_read_newest_first_in_the_order_of_commits(
    on_ledger: OnLedger, backend: LedgerBackend
) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        await ledger.write(
            [], [journal_entry("1"), journal_entry("2", at=NOON - timedelta(days=1))]
        )
        await ledger.write([], [journal_entry("3")])
        await ledger.write([], [])
        assert await said(ledger) == ["3", "2", "1"]
        given = [entry.seq for entry in await ledger.entries()]
        assert given == sorted(given, reverse=True)
        await ledger.write([], await ledger.entries(limit=1))
        assert [entry.seq for entry in await ledger.entries()][1:] == given, "seq is the ledger's"

    on_ledger(scenario)


def test_lines_are_selected_by_every_condition_at_once(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        hour = timedelta(hours=1)
        await ledger.write(
            [],
            [
                journal_entry("1", subject="drf-1"),
                journal_entry("2", subject="drf-2", at=NOON + hour),
                journal_entry("3", subject="drf-1", application="two/y", at=NOON + 2 * hour),
                journal_entry("4", at=NOON + 3 * hour),
            ],
        )
        assert await said(ledger, application="team/chat") == ["4", "2", "1"]
        assert await said(ledger, subject="drf-1") == ["3", "1"]
        assert await said(ledger, application="team/chat", subject="drf-1") == ["1"]
        assert await said(ledger, since=NOON + hour) == ["4", "3", "2"]
        elsewhere = (NOON + hour).astimezone(timezone(timedelta(hours=9)))
        assert await said(ledger, since=elsewhere, application="team/chat") == ["4", "2"]
        assert await said(ledger, since=NOON + hour, limit=1) == ["4"]

    on_ledger(scenario)


def test_pages_join_without_a_gap_while_others_write(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        await ledger.write([], [journal_entry(f"{number}") for number in range(250)])
        read: list[str] = []
        before = 0
        while page := await ledger.entries(before=before, limit=40):
            read += [entry.summary for entry in page]
            before = page[-1].seq
            await ledger.write([], [journal_entry("meanwhile")])
        assert read == [f"{number}" for number in reversed(range(250))]
        assert len(await ledger.entries()) == 100
        assert len(await ledger.entries(limit=0)) == 257

    on_ledger(scenario)


def test_pruning_removes_what_is_closed_and_old_and_nothing_else(
    on_ledger: OnLedger, backend: LedgerBackend
) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        clock = backend.clock
        await ledger.write(
            [
                record_put("open"),
                record_put("closed", state="closed"),
                record_put("told", state="told", kind=RecordKind.NOTICE),
                record_put("shared", application="one/x"),
                record_put("shared", application="two/y", state="closed"),
            ],
            [
                journal_entry("about open", subject="open"),
                journal_entry("about closed", subject="closed"),
                journal_entry("about told", subject="told"),
                journal_entry("about shared in one", subject="shared", application="one/x"),
                journal_entry("about shared in two", subject="shared", application="two/y"),
                journal_entry("about nothing", subject="gone"),
                journal_entry("about the application"),
            ],
        )
        cut = clock.forward(days=30)
        await ledger.write(
            [record_put("closed late", state="closed")],
            [
                journal_entry("late", at=cut),
                journal_entry("late about closed", subject="closed", at=cut),
            ],
        )
        assert await ledger.prune(NOON) == 0
        assert await ledger.prune(cut) == 2 + 4
        assert await keys(ledger) == ["closed late", "shared", "open"]
        assert await keys(ledger, RecordKind.NOTICE) == ["told"]
        assert await said(ledger) == [
            "late about closed",
            "late",
            "about shared in one",
            "about told",
            "about open",
        ]
        assert await ledger.prune(cut) == 0

    on_ledger(scenario)


def test_a_record_named_by_nothing_keeps_no_lines_of_its_application(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        await ledger.write(
            [record_put("", kind=RecordKind.REVISION)], [journal_entry("about the application")]
        )
        assert await ledger.prune(NOON + timedelta(days=1)) == 1
        assert await keys(ledger, RecordKind.REVISION) == [""]

    on_ledger(scenario)


def test_pruning_goes_on_past_one_portion(on_ledger: OnLedger) -> None:
    async def scenario(ledger: LedgerStore) -> None:
        await ledger.write(
            [record_put(f"k{number}", state="closed") for number in range(1100)]
            + [record_put("open")],
            [journal_entry("old") for _ in range(2100)] + [journal_entry("kept", subject="open")],
        )
        assert await ledger.prune(NOON + timedelta(days=1)) == 1100 + 2100
        assert await keys(ledger) == ["open"]
        assert await said(ledger) == ["kept"]

    on_ledger(scenario)


def test_no_number_of_a_line_is_given_twice_even_when_all_are_pruned(on_ledger: OnLedger) -> None:
    """Whoever follows the journal by its numbers would miss the second one."""

    async def scenario(ledger: LedgerStore) -> None:
        await ledger.write(
            [record_put("a", state="closed")], [journal_entry("1"), journal_entry("2")]
        )
        last = (await ledger.entries())[0].seq
        await ledger.prune(NOON + timedelta(days=1))
        await ledger.write([record_put("a")], [journal_entry("3")])
        assert [entry.seq > last for entry in await ledger.entries()] == [True]

    on_ledger(scenario)


def test_a_ledger_opened_again_holds_what_it_held(backend: LedgerBackend) -> None:
    async def scenario() -> None:
        async with backend.open() as ledger:
            await ledger.write(
                [record_put("a"), record_put("b", state="closed")],
                [journal_entry("1"), journal_entry("2")],
            )
            await ledger.write([record_put("a", 1, body={"n": 2})], [journal_entry("3")])
            await ledger.prune(NOON)
            records, entries = await ledger.records(DRIFT), await ledger.entries()
        async with backend.open() as ledger:
            assert await ledger.records(DRIFT) == records
            assert await ledger.entries() == entries
            with pytest.raises(Conflict):
                await ledger.write([record_put("a", 1)], [])
            await ledger.write([record_put("c")], [journal_entry("4")])
            assert await keys(ledger) == ["c", "a", "b"]
            assert await said(ledger) == ["4", "3", "2", "1"]

    asyncio.run(scenario())
