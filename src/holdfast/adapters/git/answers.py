"""What a remote said lately about its refs.

A hundred applications of one repository that are hinted at a commit need one answer, not a
hundred: hosts count questions. An answer is only ever shared with the same credential.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.reconcile.gitops.ports import Credential

_KEPT = 64

Refs = Mapping[str, str]


@dataclass(slots=True, eq=False)
class _Answer:
    credential: Credential
    names: tuple[str, ...]
    asked: float
    refs: asyncio.Task[Refs]
    waiting: int = 0


class Answers:
    """The answers of one remote, those under way included."""

    def __init__(self) -> None:
        self._kept: list[_Answer] = []

    async def get(
        self,
        credential: Credential,
        names: tuple[str, ...],
        # Any, as asyncio's own tasks have it.
        ask: Callable[[], Coroutine[Any, Any, Refs]],
        *,
        age: float,
    ) -> Refs:
        """Return an answer to a question of the last `age` seconds, or ask now.

        A failure is an answer too.
        """
        now = time.monotonic()
        for kept in self._kept:
            if kept.names == names and kept.credential == credential:
                if now - kept.asked < age:
                    return await self._wait(kept)
                self._kept.remove(kept)
                break
        refs = asyncio.create_task(ask())
        # Whoever waits is told of a failure; that nobody does any more is no news.
        refs.add_done_callback(lambda done: done.cancelled() or done.exception())
        answer = _Answer(credential, names, now, refs)
        self._kept = [*self._kept[1 - _KEPT :], answer]
        return await self._wait(answer)

    async def _wait(self, answer: _Answer) -> Refs:
        answer.waiting += 1
        try:
            return await asyncio.shield(answer.refs)
        except asyncio.CancelledError:
            if answer.waiting == 1 and answer in self._kept:  # nobody else wants to know
                self._kept.remove(answer)
                answer.refs.cancel()
                await asyncio.wait([answer.refs])
            raise
        finally:
            answer.waiting -= 1

    async def aclose(self) -> None:
        """End what is under way."""
        tasks = [kept.refs for kept in self._kept if not kept.refs.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
