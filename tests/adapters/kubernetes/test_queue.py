"""The work queue: no key twice at once, none lost, failures further and further apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.adapters.kubernetes.harness import HandClock, settle

from holdfast.adapters.kubernetes.queue import QueueShutDown, WorkQueue

Play = Callable[[WorkQueue[str], HandClock], Awaitable[None]]


def play(story: Play, *, chance: float = 1.0, longest: float = 1000.0) -> None:
    async def played() -> None:
        clock = HandClock()
        await story(WorkQueue(clock=clock, chance=lambda: chance, longest=longest), clock)

    asyncio.run(played())


def test_a_key_added_many_times_is_one_piece_of_work() -> None:
    async def story(queue: WorkQueue[str], clock: HandClock) -> None:
        for key in ("a", "b", "a", "a"):
            queue.add(key)
        assert [await queue.get(), await queue.get()] == ["a", "b"]
        assert len(queue) == 0

    play(story)


def test_a_key_added_while_it_is_worked_on_comes_once_more_and_not_at_once() -> None:
    async def story(queue: WorkQueue[str], clock: HandClock) -> None:
        queue.add("a")
        await queue.get()
        queue.add("a")
        queue.add("a")
        second = asyncio.ensure_future(queue.get())
        await settle()
        assert not second.done()
        queue.done("a")
        assert await second == "a"
        queue.done("a")
        assert len(queue) == 0

    play(story)


def test_a_later_look_comes_at_its_time_and_the_earliest_counts() -> None:
    async def story(queue: WorkQueue[str], clock: HandClock) -> None:
        queue.add_after("a", 60)
        got = asyncio.ensure_future(queue.get())
        await settle()
        queue.add_after("a", 10)
        queue.add_after("a", 30)
        await clock.advance(9)
        assert not got.done()
        await clock.advance(1)
        assert got.done() and got.result() == "a"
        queue.done("a")
        again = asyncio.ensure_future(queue.get())
        await clock.advance(100)
        assert not again.done()
        again.cancel()

    play(story)


def test_failures_wait_twice_as_long_each_time_until_forgotten() -> None:
    async def story(queue: WorkQueue[str], clock: HandClock) -> None:
        waits = [queue.add_rate_limited("a") for _ in range(4)]
        assert waits == pytest.approx([0.005, 0.01, 0.02, 0.04])
        assert queue.add_rate_limited("b") == pytest.approx(0.005)
        assert [queue.add_rate_limited("a") for _ in range(30)][-1] == 2.0
        queue.forget("a")
        assert queue.add_rate_limited("a") == pytest.approx(0.005)
        assert queue.failures("a") == 1

    play(story, longest=2.0)


def test_waits_are_spread_by_chance() -> None:
    async def story(queue: WorkQueue[str], clock: HandClock) -> None:
        assert queue.add_rate_limited("a") == pytest.approx(0.0025)

    play(story, chance=0.0)


def test_a_shut_queue_gives_out_what_stands_in_line_and_then_ends_its_workers() -> None:
    async def story(queue: WorkQueue[str], clock: HandClock) -> None:
        queue.add("a")
        queue.add_after("later", 5)
        waiting = [asyncio.ensure_future(queue.get()) for _ in range(2)]
        await settle()
        queue.shutdown()
        queue.add("b")
        ended = asyncio.ensure_future(queue.wait_drained())
        await settle()
        assert not ended.done()
        queue.done("a")
        got = await asyncio.gather(*waiting, return_exceptions=True)
        assert got[0] == "a" and isinstance(got[1], QueueShutDown)
        await ended

    play(story)


def test_what_just_changed_passes_a_look_at_everything_but_never_stops_it() -> None:
    async def story(queue: WorkQueue[str], clock: HandClock) -> None:
        for number in range(10):
            queue.add(f"all-{number}", urgent=False)
        for number in range(6):
            queue.add(f"now-{number}")
        got = [await queue.get() for _ in range(8)]
        assert got[:3] == ["now-0", "now-1", "now-2"]
        assert [key for key in got if key.startswith("now")] == [f"now-{n}" for n in range(6)]
        assert got[3] == "all-0"

    play(story)


def test_a_key_that_becomes_urgent_while_it_waits_is_still_one_piece_of_work() -> None:
    async def story(queue: WorkQueue[str], clock: HandClock) -> None:
        for key in ("a", "b", "c"):
            queue.add(key, urgent=False)
        queue.add("c")
        assert len(queue) == 3
        got = [await queue.get() for _ in range(3)]
        assert sorted(got) == ["a", "b", "c"] and got[0] == "c"
        for key in got:
            queue.done(key)
        assert queue.idle

    play(story)


def test_very_many_failures_at_once_wait_for_their_turn_together() -> None:
    async def story(queue: WorkQueue[str], clock: HandClock) -> None:
        waits = [queue.add_rate_limited(str(number)) for number in range(121)]
        assert waits[99] == pytest.approx(0.005)
        assert waits[120] == pytest.approx(2.1)

    play(story)


def test_a_meter_sees_what_comes_and_how_long_it_waits() -> None:
    class Counted:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def added(self) -> None:
            self.seen.append("added")

        def taken(self, waited: float) -> None:
            self.seen.append(f"taken after {waited:g}")

        def retried(self) -> None:
            self.seen.append("retried")

    async def played() -> None:
        clock, meter = HandClock(), Counted()
        queue: WorkQueue[str] = WorkQueue(clock=clock, chance=lambda: 1.0, meter=meter)
        queue.add("a")
        queue.add("a")
        await clock.advance(3)
        await queue.get()
        queue.add_rate_limited("a")
        assert meter.seen == ["added", "taken after 3", "retried"]

    asyncio.run(played())


def test_a_worker_that_is_cancelled_in_its_turn_passes_it_on() -> None:
    async def story(queue: WorkQueue[str], clock: HandClock) -> None:
        first, second = (asyncio.ensure_future(queue.get()) for _ in range(2))
        await settle()
        queue.add("a")
        first.cancel()
        assert await second == "a"

    play(story)
