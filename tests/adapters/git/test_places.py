"""How many processes talk to one host at a time, and who waits for whom."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.adapters.git.command import (
    MAX_LOCAL_PROCESSES,
    MAX_PROCESSES_PER_HOST,
    GitError,
    GitErrorKind,
    GitProgram,
)
from holdfast.adapters.git.environment import GitEnvironment


class StuckGit(GitProgram):
    """Counts its processes, which end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[str] = []
        self.over = asyncio.Event()

    async def _run_process(
        self, arguments: object, environment: GitEnvironment, *more: object, **_: object
    ) -> int:  # type: ignore[override]
        self.running.append(environment.host)
        await self.over.wait()
        return 0

    def start(self, host: str, deadline: float = 60.0) -> asyncio.Future[object]:
        environment = GitEnvironment({}, host=host)
        return asyncio.ensure_future(
            self.run("ls-remote", environment=environment, deadline=deadline)
        )


def test_a_host_that_hangs_takes_its_own_places_alone() -> None:
    asyncio.run(_many_at_one_host())


async def _many_at_one_host() -> None:
    git = StuckGit()
    runs = [git.start("hangs.example.com") for _ in range(MAX_PROCESSES_PER_HOST + 8)]
    runs.append(git.start("fine.example.com"))
    runs += [git.start("") for _ in range(MAX_LOCAL_PROCESSES + 1)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert git.running.count("hangs.example.com") == MAX_PROCESSES_PER_HOST
    assert git.running.count("fine.example.com") == 1
    assert git.running.count("") == MAX_LOCAL_PROCESSES
    git.over.set()
    await asyncio.gather(*runs)
    assert git.running.count("hangs.example.com") == MAX_PROCESSES_PER_HOST + 8


def test_nobody_waits_for_a_place_longer_than_for_an_answer() -> None:
    asyncio.run(_one_too_many())


async def _one_too_many() -> None:
    git = StuckGit()
    runs = [git.start("hangs.example.com") for _ in range(MAX_PROCESSES_PER_HOST)]
    with pytest.raises(GitError) as caught:
        await git.start("hangs.example.com", deadline=0.01)
    assert caught.value.kind is GitErrorKind.TIMEOUT
    git.over.set()
    await asyncio.gather(*runs)
