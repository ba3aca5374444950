"""Events are told once, never too many, and never before the work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.adapters.kubernetes.harness import HandClock, settle

from holdfast.adapters.kubernetes.events import EventRecorder, EventSubject
from holdfast.core.errors import PermissionDenied
from holdfast.core.object_ref import ObjectRef
from holdfast.core.service.facts import Note

BOT = EventSubject(
    ref=ObjectRef(api_version="v1", kind="Thing", namespace="default", name="bot"), uid="u"
)


class Told:
    def __init__(self, *, refused: bool = False) -> None:
        self.clock = HandClock()
        self.busy = False
        self.events: list[dict[str, Any]] = []
        self.counted: list[str] = []
        self._refused = refused
        self.recorder = EventRecorder(
            self._post,
            clock=self.clock,
            reporter="r",
            instance="i",
            count=self.counted.append,
            busy=lambda: self.busy,
            routine={"Created"},
        )

    async def _post(self, event: dict[str, Any]) -> None:
        if self._refused:
            raise PermissionDenied("no")
        self.events.append(event)

    def say(self, message: str, reason: str = "Ready") -> None:
        self.recorder.record(BOT, Note(warning=False, reason=reason, message=message))


def play(told: Callable[[], Told], story: Callable[[Told], Awaitable[None]]) -> None:
    async def played() -> None:
        held = told()
        task = asyncio.ensure_future(held.recorder.run())
        await story(held)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(played())


def test_the_same_words_are_told_once_for_a_while() -> None:
    async def story(told: Told) -> None:
        for _ in range(3):
            told.say("it serves")
        told.say("it serves no more")
        await settle()
        assert [event["note"] for event in told.events] == ["it serves", "it serves no more"]
        await told.clock.advance(601)
        told.say("it serves")
        await settle()
        assert len(told.events) == 3

    play(Told, story)


def test_one_object_cannot_flood_the_cluster() -> None:
    async def story(told: Told) -> None:
        for number in range(100):
            told.say(f"flap {number}")
        await settle()
        await settle()
        assert len(told.events) == 25

    play(Told, story)


def test_work_goes_first() -> None:
    async def story(told: Told) -> None:
        told.busy = True
        told.say("it serves")
        await settle()
        assert told.events == []
        told.busy = False
        await told.clock.advance(0.1)
        assert len(told.events) == 1

    play(Told, story)


def test_work_without_end_holds_events_up_for_a_second_at_most() -> None:
    async def story(told: Told) -> None:
        told.busy = True
        told.say("it serves")
        for _ in range(12):
            await told.clock.advance(0.1)
        assert len(told.events) == 1

    play(Told, story)


def test_events_that_are_refused_stop_nothing_and_long_ones_are_cut() -> None:
    async def refused(told: Told) -> None:
        told.say("a")
        await settle()
        told.say("b")
        await settle()

    async def long(told: Told) -> None:
        told.say("é" * 3000)
        await settle()
        assert len(told.events[0]["note"].encode()) <= 1024

    play(lambda: Told(refused=True), refused)
    play(Told, long)


def test_a_link_is_never_cut() -> None:
    link = "https://holdfast.example.com/ui/p/shop/workloads/bot"

    async def story(told: Told) -> None:
        for message in ("it serves", "é" * 3000):
            told.recorder.record(
                BOT, Note(warning=False, reason="Ready", message=message), link=link
            )
        await settle()
        short, long = (event["note"] for event in told.events)
        assert short == f"it serves See {link}"
        assert long.endswith(f"… See {link}")
        assert len(long.encode()) <= 1024

    play(Told, story)


def test_what_matters_is_told_when_routine_has_used_its_share() -> None:
    """`history` is made of events: a heal must not be lost to a hundred routes that were made."""

    async def story(told: Told) -> None:
        for number in range(100):
            told.say(f"route {number} was created", reason="Created")
        for number in range(15):
            told.say(f"heal {number}", reason="DriftHealed")
        await settle()
        await settle()
        reasons = [event["reason"] for event in told.events]
        assert reasons.count("DriftHealed") == 15
        assert reasons.index("Created") > reasons.index("DriftHealed"), "the rest comes later"

    play(Told, story)


def test_a_full_line_lets_go_of_what_is_routine_first() -> None:
    async def story(told: Told) -> None:
        told.busy = True
        for number in range(1000):
            about = replace(BOT, uid=f"u{number}")
            told.recorder.record(about, Note(warning=False, reason="Created", message="made"))
        told.recorder.record(BOT, Note(warning=True, reason="DriftHealed", message="put back"))
        assert told.counted == ["dropped"]
        await told.recorder.flush()
        assert told.events[0]["reason"] == "DriftHealed"
        assert len(told.events) == 1000

    play(Told, story)


@pytest.mark.parametrize(
    ("said", "missing"), [(30, "5 earlier events were"), (26, "1 earlier event was")]
)
def test_the_next_event_says_how_many_are_missing(said: int, missing: str) -> None:
    async def story(told: Told) -> None:
        for number in range(said):
            told.say(f"flap {number}")
        await told.clock.advance(31)
        told.say("it serves")
        await settle()
        await settle()
        assert told.events[-1]["note"] == f"it serves ({missing} not written.)"

    play(Told, story)
