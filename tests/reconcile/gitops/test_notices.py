"""The outbox tells once, in groups and within the rate, whatever channels, ledger and restarts do.

Time is the tests' own, so a window of a minute takes none.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.memory_ledger import MemoryLedgerStore
from tests.support.planted_secrets import Surfaces, planted_secret

from holdfast.core.errors import ConfigurationError, TargetUnavailable
from holdfast.core.gitops.notification import DIGEST_TYPE, ChannelLimits, Notice, Severity
from holdfast.reconcile.gitops.notifier import Notifier
from holdfast.reconcile.gitops.ports import (
    LedgerRecord,
    LedgerWrite,
    NotificationChannel,
    RecordKind,
)

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TURNS = 60
"""Rounds of the loop after which everything that can happen without time has happened."""


class ManualClock:
    """Time that a test moves on; sleepers wake in their order."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return 1000.0 + self.seconds

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.seconds + seconds, next(self._numbers), future))
        await future

    async def advance(self, seconds: float) -> None:
        end = self.seconds + seconds
        await settle()
        while True:
            self._sleepers = [each for each in self._sleepers if not each[2].done()]
            due = sorted(each for each in self._sleepers if each[0] <= end)
            if not due:
                break
            self.seconds = max(self.seconds, due[0][0])
            due[0][2].set_result(None)
            await settle()
        self.seconds = end
        await settle()


async def settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Receiver:
    """A channel that keeps its messages, and does as it is told."""

    def __init__(self, name: str = "slack") -> None:
        self.name = name
        self.messages: list[list[Notice]] = []
        self.attempts = 0
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def send(self, notices: Sequence[Notice]) -> None:
        self.attempts += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.messages.append(list(notices))

    @property
    def told(self) -> list[str]:
        return [notice.id for message in self.messages for notice in message]


def make(
    number: int = 0,
    *,
    severity: Severity = Severity.WARNING,
    cause: str = "kubectl",
    subject: str = "",
    type_: str = "dev.holdfast.drift.detected.v1",
    at: datetime = START,
) -> Notice:
    return Notice(
        id=f"n-{number}",
        type=type_,
        source="/clusters/local",
        subject=subject or f"Deployment/prod/d{number}",
        at=at,
        severity=severity,
        title=f"Title {number}",
        text="Text.",
        data={"cause": cause, "application": "prod/chat"},
    )


class World:
    """One ledger that lasts, and one notifier at a time."""

    def __init__(self, *channels: NotificationChannel, limits: ChannelLimits | None = None) -> None:
        self.clock = ManualClock()
        self.ledger = MemoryLedgerStore(self.clock)
        self.channels = {each.name: each for each in channels}
        self.limits = limits
        self.names = list(self.channels)
        self.task: asyncio.Task[None] | None = None
        self.notifier = self._new()

    def _new(self) -> Notifier:
        return Notifier(
            self.ledger, self.channels, self.clock, limits=self.limits, chance=lambda: 1.0
        )

    def start(self) -> None:
        self.task = asyncio.create_task(self.notifier.run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def restart(self) -> None:
        """As after a crash: memory is gone, the ledger stays."""
        await self.stop()
        self.notifier = self._new()
        self.start()

    async def tell(self, *notices: Notice) -> list[bool]:
        return [await self.notifier.tell(each, self.names) for each in notices]

    async def records(self, state: str = "") -> Sequence[LedgerRecord]:
        return await self.ledger.records(RecordKind.NOTICE, state=state)


def story(world: Callable[[], World], tale: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        made = world()
        made.start()
        try:
            await tale(made)
            await made.clock.advance(0)
        finally:
            await made.stop()

    asyncio.run(main())


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def test_notices_of_one_cause_within_the_window_are_one_message() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        await world.tell(make(1))
        await world.clock.advance(30)
        await world.tell(make(2), make(3, cause="keda"))
        await world.clock.advance(29)
        assert slack.messages == []
        await world.clock.advance(1)
        assert [[each.id for each in message] for message in slack.messages] == [["n-1", "n-2"]]
        await world.clock.advance(30)
        assert slack.told == ["n-1", "n-2", "n-3"]
        assert {record.state for record in await world.records()} == {"closed"}

    story(lambda: World(slack), tale)


def test_something_critical_is_told_at_once() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        await world.tell(make(1, severity=Severity.CRITICAL))
        await world.clock.advance(0)
        assert slack.told == ["n-1"]

    story(lambda: World(slack), tale)


def test_the_same_fact_is_told_once_waiting_or_told_also_after_a_restart() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        assert await world.tell(make(1), make(1)) == [True, False]
        await world.restart()
        assert await world.tell(make(1)) == [False]
        await world.clock.advance(60)
        assert slack.told == ["n-1"]
        assert await world.tell(make(1)) == [False]
        await world.restart()
        await world.clock.advance(600)
        assert await world.tell(make(1)) == [False]
        assert slack.told == ["n-1"]

    story(lambda: World(slack), tale)


def test_a_restart_loses_nothing_that_was_told_before() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        await world.tell(make(1), make(2))
        await world.clock.advance(40)
        await world.restart()
        await world.clock.advance(20)
        assert slack.told == ["n-1", "n-2"]

    story(lambda: World(slack), tale)


def test_a_thousand_notices_at_once_are_one_digest() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        await world.tell(*(make(number, cause=f"c{number % 100}") for number in range(1000)))
        await world.clock.advance(60)
        assert [message[0].type for message in slack.messages] == [DIGEST_TYPE]
        assert slack.messages[0][0].data["count"] == 1000
        assert {record.state for record in await world.records()} == {"closed"}
        await world.clock.advance(3600)
        assert len(slack.messages) == 1

    story(lambda: World(slack), tale)


def test_a_channel_that_is_down_delays_nobody_and_gets_everything_later() -> None:
    down, up = Receiver("down"), Receiver("up")

    async def tale(world: World) -> None:
        down.failure = TargetUnavailable("It did not answer.")
        await world.tell(make(1))
        await world.clock.advance(60)
        assert up.told == ["n-1"]
        assert down.told == []
        state = {each.name: each for each in world.notifier.states()}
        assert (state["down"].waiting, state["down"].failures) == (1, 1)
        assert state["down"].error
        assert state["up"].error == ""
        await world.clock.advance(300)
        assert up.attempts == 1
        assert 3 <= down.attempts <= 8
        down.failure = None
        await world.clock.advance(600)
        assert down.told == ["n-1"]
        assert up.told == ["n-1"]
        assert {record.state for record in await world.records()} == {"closed"}

    story(lambda: World(down, up), tale)


def test_a_channel_that_never_answers_delays_neither_the_caller_nor_the_others() -> None:
    stuck, up = Receiver("stuck"), Receiver("up")

    async def tale(world: World) -> None:
        stuck.gate = asyncio.Event()
        await world.tell(make(1, severity=Severity.CRITICAL))
        await world.clock.advance(0)
        await world.tell(make(2, severity=Severity.CRITICAL))
        await world.clock.advance(0)
        assert up.told == ["n-1", "n-2"]
        assert stuck.attempts == 1
        stuck.gate.set()
        await world.clock.advance(10)
        assert stuck.told == ["n-1", "n-2"]

    story(lambda: World(stuck, up), tale)


def test_a_channel_that_takes_too_long_is_given_up_and_tried_again() -> None:
    slack = Receiver()

    async def main() -> None:
        clock = ManualClock()
        slack.gate = asyncio.Event()
        notifier = Notifier(MemoryLedgerStore(clock), {"slack": slack}, clock, patience=0.01)
        task = asyncio.create_task(notifier.run())
        await notifier.tell(make(1, severity=Severity.CRITICAL), ["slack"])
        async with asyncio.timeout(30):
            while not notifier.states()[0].failures:  # noqa: ASYNC110  # the deadline is real time
                await asyncio.sleep(0.005)
        slack.gate.set()
        await clock.advance(10)
        assert slack.told == ["n-1"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main)


def test_a_channel_is_left_alone_as_long_as_it_asks() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        failure = TargetUnavailable("Too many.")
        failure.retry_after = 120.0
        slack.failure = failure
        await world.tell(make(1, severity=Severity.CRITICAL))
        await world.clock.advance(119)
        assert slack.attempts == 1
        slack.failure = None
        await world.clock.advance(1)
        assert slack.told == ["n-1"]

    story(lambda: World(slack), tale)


def test_what_a_channel_refuses_for_good_is_not_tried_again() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        slack.failure = ConfigurationError("It refused.")
        await world.tell(make(1))
        await world.clock.advance(3600)
        assert slack.attempts == 1
        (state,) = world.notifier.states()
        assert (state.undelivered, state.waiting) == (1, 0)
        slack.failure = None
        await world.tell(make(2))
        await world.clock.advance(60)
        assert slack.told == ["n-2"]

    story(lambda: World(slack), tale)


def test_a_fault_in_a_channel_stops_neither_it_nor_the_others() -> None:
    bad, up = Receiver("bad"), Receiver("up")

    async def tale(world: World) -> None:
        bad.failure = ZeroDivisionError("a secret")
        await world.tell(make(1))
        await world.clock.advance(60)
        assert up.told == ["n-1"]
        state = {each.name: each for each in world.notifier.states()}
        assert "a secret" not in state["bad"].error
        bad.failure = None
        await world.clock.advance(600)
        assert bad.told == ["n-1"]

    story(lambda: World(bad, up), tale)


def test_the_rate_of_a_channel_is_never_exceeded_and_the_rest_is_a_digest() -> None:
    slack = Receiver()
    limits = ChannelLimits(burst=3, every=100.0)

    async def tale(world: World) -> None:
        await world.tell(*(make(number, cause=f"c{number}") for number in range(10)))
        await world.clock.advance(60)
        assert [len(message) for message in slack.messages] == [1, 1, 1]
        assert slack.messages[-1][0].data["count"] == 8
        await world.tell(*(make(number, cause=f"c{number}") for number in range(20, 25)))
        await world.clock.advance(99)
        assert len(slack.messages) == 3
        await world.clock.advance(1)
        assert len(slack.messages) == 4
        assert slack.messages[-1][0].data["count"] == 5
        await world.clock.advance(1000)
        assert len(slack.messages) == 4

    story(lambda: World(slack, limits=limits), tale)


def test_a_queue_is_bounded_and_what_is_over_becomes_a_digest() -> None:
    slack = Receiver()
    limits = ChannelLimits(waiting=50)

    async def tale(world: World) -> None:
        failure = TargetUnavailable("It did not answer.")
        failure.retry_after = 3600.0
        slack.failure = failure
        await world.tell(make(0, severity=Severity.CRITICAL))
        await world.clock.advance(0)
        for number in range(1, 500):
            await world.tell(make(number))
            await settle()
            (state,) = world.notifier.states()
            assert state.waiting <= limits.waiting + 1
        assert slack.attempts == 1  # folding is no reason to try a channel that is down
        assert len(await world.records("open")) <= limits.waiting + 1
        slack.failure = None
        await world.clock.advance(7200)
        counted = sum(
            int(str(each.data["count"])) if each.type == DIGEST_TYPE else 1
            for message in slack.messages
            for each in message
        )
        assert counted == 500
        assert len(slack.messages) <= 3
        assert {record.state for record in await world.records()} == {"closed"}

    story(lambda: World(slack, limits=limits), tale)


def test_a_digest_that_was_not_delivered_survives_a_restart() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        slack.failure = TargetUnavailable("It did not answer.")
        await world.tell(*(make(number) for number in range(100)))
        await world.clock.advance(60)
        assert slack.attempts == 1
        assert len(await world.records("open")) == 1
        slack.failure = None
        await world.restart()
        await world.clock.advance(60)
        assert [message[0].data["count"] for message in slack.messages] == [100]

    story(lambda: World(slack), tale)


def test_a_subject_that_flaps_does_not_flood() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        for number in range(100):
            word = ("detected", "healed")[number % 2]
            at = world.clock.now()
            flap = make(
                number,
                subject="Deployment/prod/chat",
                cause=f"c{number}",
                type_=f"dev.holdfast.drift.{word}.v1",
                at=at,
            )
            await world.tell(flap)
            await world.clock.advance(90)
            if number == 50:
                await world.restart()
        before_quiet = len(slack.messages)
        assert before_quiet <= 4 + 4  # twice of each kind, and once an hour after that
        await world.clock.advance(3600)
        counted = sum(
            int(str(each.data["count"])) if each.type == DIGEST_TYPE else 1
            for message in slack.messages
            for each in message
        )
        assert counted == 100
        assert len(slack.messages) <= before_quiet + 2

    story(lambda: World(slack), tale)


def test_an_alarm_about_a_subject_that_flaps_comes_through() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        for number in range(5):
            await world.tell(make(number, subject="Deployment/prod/chat"))
        fight = make(
            9,
            subject="Deployment/prod/chat",
            severity=Severity.CRITICAL,
            cause="fight",
            type_="dev.holdfast.drift.fight.v1",
        )
        await world.tell(fight)
        await world.clock.advance(0)
        assert slack.told == ["n-9"]

    story(lambda: World(slack), tale)


def test_drift_that_is_handled_quickly_does_not_count_as_flapping() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        for number, word in enumerate(("detected", "approved", "healed")):
            await world.tell(
                make(number, subject="Deployment/prod/chat", type_=f"dev.holdfast.drift.{word}.v1")
            )
        await world.clock.advance(60)
        assert slack.told == ["n-0", "n-1", "n-2"]

    story(lambda: World(slack), tale)


def test_a_ledger_that_fails_after_sending_makes_nothing_sent_twice() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        slack.gate = asyncio.Event()
        await world.tell(make(1, severity=Severity.CRITICAL))
        await world.clock.advance(0)
        world.ledger.failure = TargetUnavailable("The ledger did not answer.")
        slack.gate.set()
        await world.clock.advance(300)
        assert slack.told == ["n-1"]
        world.ledger.failure = None
        await world.clock.advance(1200)
        assert slack.told == ["n-1"]
        assert [record.state for record in await world.records()] == ["closed"]

    story(lambda: World(slack), tale)


def test_a_write_whose_outcome_is_unknown_is_told_once_if_it_took_effect() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        write = world.ledger.write

        async def writes_and_fails(puts: Sequence[LedgerWrite], entries: Any) -> None:
            await write(puts, entries)
            raise TargetUnavailable("No answer.")

        world.ledger.write = writes_and_fails  # type: ignore[method-assign]
        with pytest.raises(TargetUnavailable):
            await world.tell(make(1))
        world.ledger.write = write  # type: ignore[method-assign]
        assert await world.tell(make(1)) == [False]
        await world.tell(make(2))
        await world.clock.advance(120)
        assert sorted(slack.told) == ["n-1", "n-2"]

    story(lambda: World(slack), tale)


def test_a_digest_whose_commit_is_unknown_is_told_once_and_counts_everything() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        write = world.ledger.write
        await world.tell(*(make(number) for number in range(100)))

        async def writes_and_fails(puts: Sequence[LedgerWrite], entries: Any) -> None:
            await write(puts, entries)
            world.ledger.write = write  # type: ignore[method-assign]
            raise TargetUnavailable("No answer.")

        world.ledger.write = writes_and_fails  # type: ignore[method-assign]
        await world.clock.advance(60)
        assert slack.messages == []
        await world.clock.advance(60)
        assert [message[0].data["count"] for message in slack.messages] == [100]
        assert {record.state for record in await world.records()} == {"closed"}

    story(lambda: World(slack), tale)


def test_a_ledger_that_is_down_at_the_start_is_read_when_it_is_back() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        await world.tell(make(1))
        await world.stop()
        world.ledger.failure = TargetUnavailable("The ledger did not answer.")
        await world.restart()
        await world.clock.advance(300)
        assert slack.told == []
        world.ledger.failure = None
        await world.clock.advance(60)
        assert slack.told == ["n-1"]

    story(lambda: World(slack), tale)


def test_what_another_controller_has_told_is_not_told_again() -> None:
    slack = Receiver()

    async def tale(world: World) -> None:
        await world.tell(make(1), make(2))
        (first,) = await world.ledger.records(RecordKind.NOTICE, key="n-1")
        body = json.loads(json.dumps(first.body).replace('"waiting"', '"sent"'))
        closed = LedgerWrite(
            kind=RecordKind.NOTICE,
            application="prod/chat",
            key="n-1",
            seen=first.version,
            state="closed",
            body=body,
        )
        await world.ledger.write([closed], [])
        await world.restart()
        await world.clock.advance(600)
        assert slack.told == ["n-2"]

    story(lambda: World(slack), tale)


def test_two_channels_that_finish_together_both_leave_their_mark() -> None:
    channels = [Receiver(f"c{number}") for number in range(8)]

    async def tale(world: World) -> None:
        await world.tell(make(1), make(2))
        await world.clock.advance(60)
        assert all(each.told == ["n-1", "n-2"] for each in channels)
        for record in await world.records():
            assert record.state == "closed"
            assert record.body["channels"] == {each.name: "sent" for each in channels}
        await world.restart()
        await world.clock.advance(600)
        assert all(each.attempts == 1 for each in channels)

    story(lambda: World(*channels), tale)


def test_notices_wait_for_a_channel_that_comes_later_but_not_for_ever() -> None:
    """After a start the ledger is read before the applications that name the channels."""
    slack = Receiver()

    async def tale(world: World) -> None:
        await world.notifier.tell(make(1), ["slack", "gone"])
        await world.clock.advance(600)
        world.notifier.use({"slack": slack})
        await world.clock.advance(60)
        assert slack.told == ["n-1"]
        assert len(await world.records("open")) == 1
        await world.clock.advance(3600)
        (record,) = await world.records()
        assert record.state == "closed"
        assert record.body["channels"] == {"slack": "sent", "gone": "dropped"}
        assert [each.name for each in world.notifier.states()] == ["slack"]

    story(World, tale)


def test_a_channel_with_a_new_address_is_tried_without_waiting() -> None:
    old, new = Receiver(), Receiver()

    async def tale(world: World) -> None:
        old.failure = TargetUnavailable("It did not answer.")
        old.failure.retry_after = 3600.0
        await world.tell(make(1))
        await world.clock.advance(60)
        assert old.attempts == 1
        world.notifier.use({"slack": new})
        await world.clock.advance(1)
        assert new.told == ["n-1"]

    story(lambda: World(old), tale)


def test_nobody_to_tell_is_nothing_to_keep() -> None:
    async def tale(world: World) -> None:
        assert await world.notifier.tell(make(1), []) is False
        assert await world.records() == []

    story(World, tale)


def test_flush_sends_at_once_what_can_be_sent_and_leaves_the_rest_in_the_ledger() -> None:
    up, down = Receiver("up"), Receiver("down")

    async def main() -> None:
        world = World(up, down)
        world.start()
        down.failure = TargetUnavailable("It did not answer.")
        await world.tell(make(1, severity=Severity.CRITICAL), make(2, cause="other"))
        await world.clock.advance(0)
        await world.stop()
        attempts = down.attempts
        await world.notifier.flush()
        assert up.told == ["n-1", "n-2"]
        assert down.attempts == attempts
        down.failure = None
        await world.restart()
        await world.clock.advance(120)
        assert sorted(down.told) == ["n-1", "n-2"]
        assert up.told == ["n-1", "n-2"]
        await world.stop()

    run(main)


def test_flush_ends_in_time_when_a_channel_hangs() -> None:
    stuck = Receiver()

    async def main() -> None:
        world = World(stuck)
        stuck.gate = asyncio.Event()
        await world.tell(make(1))
        await world.notifier.flush(0.01)
        assert stuck.told == []
        assert len(await world.records("open")) == 1

    run(main)


def test_no_secret_gets_into_the_log_or_the_states(caplog: pytest.LogCaptureFixture) -> None:
    canary = planted_secret("address of a channel", "https://hooks.example/services/{}")
    slack = Receiver()
    surfaces = Surfaces()

    async def tale(world: World) -> None:
        slack.failure = OSError(canary.value)
        await world.tell(make(1))
        await world.clock.advance(60)
        surfaces.add("states", world.notifier.states())
        surfaces.add("ledger", await world.records())

    with caplog.at_level(logging.DEBUG):
        story(lambda: World(slack), tale)
    surfaces.add("log", *(vars(record) for record in caplog.records))
    assert caplog.records
    assert surfaces.leaks([canary]) == []
