"""Waits until a workload serves, and follows the workloads of a project as they change.

A watch is level-triggered: an event only says that it is time to list; what changed is found by
comparing, so a lost or doubled event changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, cast

from holdfast.core.errors import TargetUnavailable, WaitTimeout, WorkloadFailed
from holdfast.core.live import Live, Phase, Progress
from holdfast.core.names import WorkloadId
from holdfast.core.quantity import format_seconds

if TYPE_CHECKING:
    from holdfast.apps.sdk.api import TargetCalls

# ruff: noqa: ASYNC109  # the transport keeps the total deadline, for sync and async alike

POLL_SECONDS = 1.0
"""Between two lists of a target that cannot wake us."""
RECONNECT_DELAYS = (1.0, 2.0, 4.0, 5.0)
"""Seconds before each new try after a lost connection; the last goes on for ever."""


async def wait_until_ready(
    calls: TargetCalls,
    workload: WorkloadId,
    *,
    timeout: float,
    show: Callable[[Progress], None],
) -> Progress:
    """Return the progress that said `ready`.

    Raises WorkloadFailed on `error` and WaitTimeout when the time is up. A server that does not
    answer yet is waited for, and a connection that is lost is taken up again; other errors, a
    revoked token for one, end the wait at once.
    """
    end = calls.clock.monotonic() + timeout
    last = Progress(phase=Phase.SCHEDULING, message="not heard of yet")
    lost, silence = 0, ""
    while calls.clock.monotonic() < end:
        target = calls.within(end - calls.clock.monotonic())
        try:
            # The port promises an iterator; every adapter gives a generator, to be closed.
            stream = cast("AsyncGenerator[Progress]", target.progress(workload))
            async with aclosing(stream) as updates:
                async for progress in updates:
                    last, lost, silence = progress, 0, ""
                    show(progress)
                    if progress.phase is Phase.READY:
                        return progress
                    if progress.phase is Phase.ERROR:
                        raise WorkloadFailed(
                            f"Workload {workload} cannot serve: {progress.message}",
                            changed="",
                            hint="Read its log (holdfast logs), fix the declaration and ensure "
                            "it again.",
                        )
                    if calls.clock.monotonic() >= end:
                        break
        except TargetUnavailable as error:
            if error.retry == "never":
                raise
            silence = f" At last: {error.happened}"
        pause = RECONNECT_DELAYS[min(lost, len(RECONNECT_DELAYS) - 1)]
        lost += 1
        await calls.clock.sleep(max(0.0, min(pause, end - calls.clock.monotonic())))
    raise WaitTimeout(
        f"Workload {workload} was not ready after {format_seconds(timeout)}; "
        f"it was {last.phase}: {last.message}.{silence}",
        changed="",
        hint="It is still starting: wait again, or read its log (holdfast logs).",
    )


class ChangeKind(StrEnum):
    """What happened to a workload that is watched."""

    PRESENT = "present"
    """It was there when the watch began."""
    CREATED = "created"
    UPDATED = "updated"
    """Its fields or its status changed."""
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadChange:
    """One thing that happened. `live` is the last that was seen of a deleted workload."""

    kind: ChangeKind
    live: Live


async def watch_workloads(
    calls: TargetCalls, *, project: str | None, slug: str | None, timeout: float | None
) -> AsyncGenerator[WorkloadChange]:
    """Yield changes until the time is up, or for ever."""
    project = calls.project_of(project)
    end = None if timeout is None else calls.clock.monotonic() + timeout
    seen: dict[WorkloadId, Live] | None = None
    async with aclosing(_wake_ups(calls, project, end)) as wake_ups:
        async for _ in wake_ups:
            found = await _list_until_available(calls, project, end)
            if found is None:
                return
            now = {live.id: live for live in found if slug in (None, live.id.slug)}
            for change in workload_changes(seen, now):
                yield change
            seen = now


async def _list_until_available(
    calls: TargetCalls, project: str, end: float | None
) -> Sequence[Live] | None:
    """List the project, trying until it answers; None when the time is up."""
    while True:
        left = None if end is None else end - calls.clock.monotonic()
        if left is not None and left <= 0:
            return None
        try:
            return await calls.for_call(left).list(project)
        except TargetUnavailable:
            await calls.clock.sleep(POLL_SECONDS if left is None else min(POLL_SECONDS, left))


def workload_changes(
    before: Mapping[WorkloadId, Live] | None, after: Mapping[WorkloadId, Live]
) -> Sequence[WorkloadChange]:
    """Compare two lists; `before` is None at first."""
    if before is None:
        return [WorkloadChange(kind=ChangeKind.PRESENT, live=live) for live in after.values()]
    found: list[WorkloadChange] = []
    for where, live in after.items():
        old = before.get(where)
        if old is None or old.uid != live.uid:
            if old is not None:
                found.append(WorkloadChange(kind=ChangeKind.DELETED, live=old))
            found.append(WorkloadChange(kind=ChangeKind.CREATED, live=live))
        elif (old.version, old.status) != (live.version, live.status):
            found.append(WorkloadChange(kind=ChangeKind.UPDATED, live=live))
    found += [
        WorkloadChange(kind=ChangeKind.DELETED, live=old)
        for where, old in before.items()
        if where not in after
    ]
    return found


async def _wake_ups(calls: TargetCalls, project: str, end: float | None) -> AsyncGenerator[None]:
    """Yield when it is time to list, at once to begin with."""
    lost = 0
    while end is None or calls.clock.monotonic() < end:
        target = calls.within(None if end is None else end - calls.clock.monotonic())
        stream = getattr(target, "changes", None)
        if stream is None:
            yield None
            pause = POLL_SECONDS
        else:
            try:
                async with aclosing(stream(project)) as events:
                    async for _ in events:
                        lost = 0
                        yield None
            except TargetUnavailable:
                pass
            pause = RECONNECT_DELAYS[min(lost, len(RECONNECT_DELAYS) - 1)]
            lost += 1
        if end is not None:
            pause = max(0.0, min(pause, end - calls.clock.monotonic()))
        await calls.clock.sleep(pause)
