"""The pool that both controllers run on: what becomes of a pass, by how it ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.adapters.kubernetes.harness import eventually

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.queue import WorkQueue
from holdfast.apps.runtime.process import ControllerSettings
from holdfast.apps.runtime.workers import PassResult, Workers
from holdfast.core.errors import Conflict, HoldfastError, TargetUnavailable, ValidationError
from holdfast.core.tree import Tree


class Pool:
    """Workers over a queue of names, and what they reported."""

    def __init__(
        self,
        reconcile: Callable[[str], Awaitable[PassResult]],
        *,
        workers: int = 1,
        within: float = 5.0,
        drain: float = 5.0,
        retry: bool = True,
    ) -> None:
        clock = SystemClock()
        self.queue: WorkQueue[str] = WorkQueue(clock=clock, chance=lambda: 0.5, first=0.01)
        self.results: list[PassResult] = []
        self.failures: list[tuple[str, PassResult]] = []
        self.lines: list[tuple[str, int, dict[str, Tree]]] = []
        self.workers = Workers(
            self.queue,
            reconcile,
            settings=ControllerSettings(
                lease_name="unused", workers=workers, reconcile_within=within, drain_within=drain
            ),
            clock=clock,
            metrics=self,
            log=self.log,
            subject=lambda key: {"key": key},
            on_failure=lambda key, result: self.failures.append((key, result)),
            conflict_level=logging.DEBUG,
            retry=retry,
        )

    def count_pass(self, result: PassResult, seconds: float) -> None:
        self.results.append(result)

    def log(
        self, name: str, *, level: int = logging.INFO, exc: bool = False, **fields: Tree
    ) -> None:
        self.lines.append((name, level, fields))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.workers.run())
        try:
            yield
        finally:
            self.workers.stop()
            await task


def once(error: BaseException, done: asyncio.Event) -> Callable[[str], Awaitable[PassResult]]:
    """Fail the first time, and say when it was tried again."""
    errors = [error]

    async def reconcile(key: str) -> PassResult:
        if errors:
            raise errors.pop()
        done.set()
        return PassResult.SUCCESS

    return reconcile


@pytest.mark.parametrize(
    ("error", "result", "level", "code"),
    [
        (Conflict("Another was first."), PassResult.CONFLICT, logging.DEBUG, "conflict"),
        (
            TargetUnavailable("No answer."),
            PassResult.ERROR,
            logging.WARNING,
            "target-unavailable",
        ),
        (ValidationError("It is wrong."), PassResult.ERROR, logging.WARNING, "invalid"),
        (TimeoutError(), PassResult.ERROR, logging.WARNING, "timeout"),
        (ZeroDivisionError(), PassResult.ERROR, logging.WARNING, "bug"),
    ],
)
async def test_a_pass_that_fails_is_tried_again(
    error: BaseException, result: PassResult, level: int, code: str
) -> None:
    done = asyncio.Event()
    pool = Pool(once(error, done))
    async with pool.running(), asyncio.timeout(10):
        pool.queue.add("a")
        await done.wait()
    assert pool.results == [result, PassResult.SUCCESS]
    assert pool.failures == [("a", result)]
    ((_, logged, fields),) = [line for line in pool.lines if line[0] == "not-reconciled"]
    assert (logged, fields["code"], fields["key"]) == (level, code, "a")
    defects = [name for name, _, _ in pool.lines if name == "pass-failed"]
    assert bool(defects) is (code == "bug")


async def test_a_pass_that_takes_too_long_is_ended() -> None:
    ended = asyncio.Event()

    async def reconcile(key: str) -> PassResult:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return PassResult.SUCCESS

    pool = Pool(reconcile, within=0.01)
    async with pool.running(), asyncio.timeout(10):
        pool.queue.add("a")
        await ended.wait()
    assert pool.results[0] is PassResult.ERROR


async def test_a_target_that_names_a_time_is_left_alone_until_then() -> None:
    error = TargetUnavailable("Too many requests.")
    error.retry_after = 3600.0
    pool = Pool(once(error, asyncio.Event()))
    async with pool.running(), asyncio.timeout(10):
        pool.queue.add("a")
        await eventually(lambda: pool.lines, "the failure")
        assert pool.queue.later == 1
    assert pool.lines[0][2]["again_in"] == 3600.0


@pytest.mark.parametrize("error", [Conflict("Another was first."), ValidationError("Wrong.")])
async def test_without_retries_only_a_conflict_comes_back(error: HoldfastError) -> None:
    pool = Pool(once(error, asyncio.Event()), retry=False)
    async with pool.running(), asyncio.timeout(10):
        pool.queue.add("a")
        await eventually(lambda: pool.lines, "the failure")
        again = isinstance(error, Conflict)
        assert (pool.lines[0][2]["again_in"] is not None) is again


async def test_one_key_that_crashes_holds_up_no_other() -> None:
    done = asyncio.Event()

    async def reconcile(key: str) -> PassResult:
        if key == "bad":
            raise RuntimeError("a defect")
        done.set()
        return PassResult.SUCCESS

    pool = Pool(reconcile)
    async with pool.running(), asyncio.timeout(10):
        pool.queue.add("bad")
        pool.queue.add("good")
        await done.wait()


async def test_a_pass_under_way_is_finished_and_what_waits_is_left() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    passes: list[str] = []

    async def reconcile(key: str) -> PassResult:
        began.set()
        await go_on.wait()
        passes.append(key)
        return PassResult.SUCCESS

    pool = Pool(reconcile)
    async with asyncio.timeout(10):
        async with pool.running():
            pool.queue.add("a")
            await began.wait()
            pool.queue.add("b")
            pool.workers.stop()
            go_on.set()
    assert passes == ["a"]


async def test_draining_ends_after_its_time() -> None:
    began = asyncio.Event()

    async def reconcile(key: str) -> PassResult:
        began.set()
        await asyncio.sleep(60)
        return PassResult.SUCCESS

    pool = Pool(reconcile, drain=0.01)
    async with asyncio.timeout(10):
        async with pool.running():
            pool.queue.add("a")
            await began.wait()
    assert "drain-cut-short" in [name for name, _, _ in pool.lines]


async def test_another_worker_stands_in_for_one_that_waits() -> None:
    done = asyncio.Event()

    async def reconcile(key: str) -> PassResult:
        if key == "slow":
            async with pool.workers.stand_in():
                await done.wait()
        else:
            done.set()
        return PassResult.SUCCESS

    pool = Pool(reconcile, workers=1)
    async with pool.running(), asyncio.timeout(10):
        pool.queue.add("slow")
        await asyncio.sleep(0)
        pool.queue.add("quick")
        await done.wait()
        await eventually(lambda: len(pool.results) == 2, "both passes")


async def test_the_pool_ends_with_the_work_beside_it() -> None:
    async def beside() -> None:
        raise RuntimeError("the work beside it")

    async def reconcile(key: str) -> PassResult:
        return PassResult.SUCCESS

    with pytest.raises(RuntimeError, match="beside"):
        await Pool(reconcile).workers.run(beside())
