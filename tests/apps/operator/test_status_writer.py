"""Statuses are written when there is time, the last one only, and a canary's at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tests.adapters.kubernetes.harness import HandClock, settle

from holdfast.adapters.kubernetes.objects import ObjectKey
from holdfast.apps.operator.status_writer import DEBOUNCE, MAX_DELAY, DeferredStatusWriter
from holdfast.core.errors import TargetUnavailable
from holdfast.core.service.spec import (
    CanaryPhase,
    CanaryState,
    InferenceService,
    InferenceServiceSpec,
    InferenceServiceStatus,
)
from holdfast.reconcile.service.reconciler import MakeStatus

BOT = InferenceService(
    name="bot", namespace="shop", uid="u1", spec=InferenceServiceSpec(model_ref="org/model")
)


def said(message: str) -> InferenceServiceStatus:
    return InferenceServiceStatus(message=message)


class Paper:
    """A journal that is only read by the test."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.refuses = False

    async def before_healing(
        self, service: InferenceService, said: str, status: MakeStatus
    ) -> InferenceService:
        raise AssertionError("the log is the place for it")

    async def report(self, service: InferenceService, status: InferenceServiceStatus) -> None:
        if self.refuses:
            raise TargetUnavailable("It did not answer.")
        if status != service.status:
            self.written.append(status.message)


class Office:
    """Statuses with everything around them in the test's hand."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.paper = Paper()
        self.busy = False
        self.again: list[ObjectKey] = []
        self.statuses = DeferredStatusWriter(
            self.paper,
            clock=self.clock,
            busy=lambda: self.busy,
            again=lambda key, seconds: self.again.append(key),
        )


def story(told: Callable[[Office], Awaitable[None]]) -> None:
    async def run() -> None:
        office = Office()
        writing = asyncio.create_task(office.statuses.run())
        await settle()
        await told(office)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

    asyncio.run(run())


def test_of_states_that_follow_each_other_only_the_last_is_written() -> None:
    async def told(office: Office) -> None:
        for message in ("rolling out", "starting", "ready"):
            await office.statuses.report(office.statuses.latest(BOT), said(message))
            await settle()
        assert office.statuses.latest(BOT).status == said("ready"), "the next pass starts from it"
        assert office.paper.written == []
        await office.clock.advance(DEBOUNCE)
        assert office.paper.written == ["ready"]
        assert office.statuses.latest(BOT).status is None, "the cluster has it now"

    story(told)


def test_a_state_that_went_and_came_back_is_not_written() -> None:
    async def told(office: Office) -> None:
        stored = replace(BOT, status=said("ready"))
        await office.statuses.report(stored, said("rolling out"))
        await office.statuses.report(office.statuses.latest(stored), said("ready"))
        await office.clock.advance(DEBOUNCE)
        assert office.paper.written == []

    story(told)


def test_it_waits_while_there_is_drift_to_heal_but_not_for_ever() -> None:
    async def told(office: Office) -> None:
        office.busy = True
        await office.statuses.report(BOT, said("ready"))
        await settle()
        await office.clock.advance(DEBOUNCE)
        await office.clock.advance(DEBOUNCE)
        assert office.paper.written == []
        for _ in range(int(MAX_DELAY / DEBOUNCE) + 1):
            await office.clock.advance(DEBOUNCE)
        assert office.paper.written == ["ready"]

    story(told)


def test_what_a_canary_goes_on_from_is_written_before_anything_else_happens() -> None:
    async def told(office: Office) -> None:
        await office.statuses.report(BOT, said("ready"))
        step = replace(
            said("canary"), canary=CanaryState(phase=next(iter(CanaryPhase)), digest="d")
        )
        await office.statuses.report(office.statuses.latest(BOT), step)
        assert office.paper.written == ["canary"]
        await office.clock.advance(DEBOUNCE)
        assert office.paper.written == ["canary"]

    story(told)


def test_a_status_that_was_refused_calls_for_another_look() -> None:
    async def told(office: Office) -> None:
        office.paper.refuses = True
        await office.statuses.report(BOT, said("ready"))
        await settle()
        await office.clock.advance(DEBOUNCE)
        assert office.again == [ObjectKey(namespace="shop", name="bot")]
        assert office.statuses.latest(BOT).status is None

    story(told)
