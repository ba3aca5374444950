"""Waits for a workload to serve, without ever overrunning its time-out."""

# ruff: noqa: ASYNC109  # the transport keeps the total deadline, the same in both colours

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from holdfast.core.errors import TargetUnavailable, WaitTimeout, WorkloadFailed
from holdfast.core.live import Phase, Progress
from holdfast.core.quantity import shown_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from holdfast.apps.sdk.engine import Engine

RECONNECT = (1.0, 2.0, 4.0, 5.0)
"""Seconds before each new try after a lost connection; the last goes on for ever."""


async def wait_until_ready(
    engine: Engine,
    slug: str,
    *,
    project: str | None,
    timeout: float,
    show: Callable[[Progress], None],
) -> Progress:
    """Return the progress that said `ready`.

    Raises WorkloadFailed on `error` and WaitTimeout when the time is up. A server that does not
    answer yet is waited for, and a connection that is lost is taken up again; other errors, a
    revoked token for one, end the wait at once.
    """
    where = engine.id_of(slug, project)
    began = engine.clock.monotonic()
    end = began + timeout
    last = Progress(phase=Phase.SCHEDULING, message="not heard of yet")
    lost, silence = 0, ""
    while engine.clock.monotonic() < end:
        target = engine.within(end - engine.clock.monotonic())
        try:
            # The port promises an iterator; every adapter gives a generator, to be closed.
            stream = cast("AsyncGenerator[Progress]", target.progress(where))
            async with aclosing(stream) as updates:
                async for progress in updates:
                    last, lost, silence = progress, 0, ""
                    show(progress)
                    if progress.phase is Phase.READY:
                        return progress
                    if progress.phase is Phase.ERROR:
                        raise WorkloadFailed(
                            f"Workload {where} cannot serve: {progress.message}",
                            changed="",
                            todo="Read its log (holdfast logs), fix the declaration and ensure "
                            "it again.",
                        )
                    if engine.clock.monotonic() >= end:
                        break
        except TargetUnavailable as error:
            if error.retry == "never":
                raise
            silence = f" At last: {error.happened}"
        pause = RECONNECT[min(lost, len(RECONNECT) - 1)]
        lost += 1
        await engine.clock.sleep(max(0.0, min(pause, end - engine.clock.monotonic())))
    raise WaitTimeout(
        f"Workload {where} was not ready after {shown_seconds(timeout)}; "
        f"it was {last.phase}: {last.message}.{silence}",
        changed="",
        todo="It is still starting: wait again, or read its log (holdfast logs).",
    )
