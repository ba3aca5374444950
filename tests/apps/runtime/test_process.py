"""The life of a controller's process: its background tasks and its orderly end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast.apps.runtime.process import BackgroundTasks, process_identity, wait_unless_stopped
from holdfast.core.errors import TargetUnavailable
from holdfast.core.tree import Tree


class Log:
    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(
        self, name: str, *, level: int = logging.INFO, exc: bool = False, **fields: Tree
    ) -> None:
        self.names.append(name)


async def forever() -> None:
    await asyncio.sleep(3600)


async def at_once() -> None:
    pass


async def failing(error: Exception) -> None:
    raise error


def never() -> bool:
    raise AssertionError("nobody told it to stop")


def test_no_two_processes_have_one_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "holdfast-0")
    one, other = process_identity(), process_identity()
    assert one.startswith("holdfast-0_")
    assert one != other


async def test_work_is_waited_for_unless_the_process_is_stopped() -> None:
    stop = asyncio.Event()
    assert await wait_unless_stopped(at_once(), stop)
    with pytest.raises(TargetUnavailable):
        await wait_unless_stopped(failing(TargetUnavailable("No answer.")), stop)
    stop.set()
    assert not await wait_unless_stopped(forever(), stop)


async def test_a_process_ends_with_its_work() -> None:
    tasks = BackgroundTasks(Log())
    tasks.start(forever())
    await tasks.run(at_once(), stop=asyncio.Event(), end=never)
    assert tasks.alive
    await tasks.cancel()


async def test_a_background_task_that_fails_ends_the_process() -> None:
    tasks = BackgroundTasks(Log())
    tasks.start(failing(TargetUnavailable("No answer.")))
    with pytest.raises(TargetUnavailable):
        await tasks.run(forever(), stop=asyncio.Event(), end=never)
    assert not tasks.alive


async def test_a_background_task_that_ends_ends_the_process() -> None:
    tasks = BackgroundTasks(Log())
    tasks.start(at_once())
    with pytest.raises(RuntimeError, match="ended"):
        await tasks.run(forever(), stop=asyncio.Event(), end=never)


async def test_work_is_asked_to_end_in_order() -> None:
    stop, told, order = asyncio.Event(), asyncio.Event(), list[str]()

    async def work() -> None:
        await told.wait()
        order.append("the end of the work")

    def end() -> bool:
        order.append("told")
        told.set()
        return True

    stop.set()
    await BackgroundTasks(Log()).run(work(), stop=stop, end=end)
    assert order == ["told", "the end of the work"]


async def test_work_that_has_not_begun_is_cancelled() -> None:
    stop = asyncio.Event()
    stop.set()
    async with asyncio.timeout(10):
        await BackgroundTasks(Log()).run(forever(), stop=stop, end=lambda: False)


async def test_only_a_defect_of_a_background_task_is_logged_at_the_end() -> None:
    log = Log()
    tasks = BackgroundTasks(log)
    for each in (forever(), failing(TargetUnavailable("No answer.")), failing(ValueError())):
        tasks.start(each)
    await asyncio.sleep(0)
    await tasks.cancel()
    assert log.names == ["part-failed"]
