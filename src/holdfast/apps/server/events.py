"""Tells open event streams what changed, through bounded queues.

A client that does not read fills its queue and is cut: it comes back and observes anew, which
is always right, while an unbounded queue would hold everyone's memory.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from holdfast.core.names import WorkloadId

QUEUE = 256


class Subscription:
    """One stream's queue. `get` answers None once the stream was cut."""

    __slots__ = ("_cut", "_queue", "project")

    def __init__(self, project: str) -> None:
        self.project = project
        self._queue: asyncio.Queue[WorkloadId] = asyncio.Queue(QUEUE)
        self._cut = False

    def put(self, workload: WorkloadId) -> None:
        """Add a change, or cut the stream when nobody takes them."""
        try:
            self._queue.put_nowait(workload)
        except asyncio.QueueFull:
            self._cut = True

    async def get(self) -> WorkloadId | None:
        """Wait for the next change."""
        return None if self._cut else await self._queue.get()


class Hub:
    """All event streams of a server, by project. Used from the event loop only."""

    def __init__(self) -> None:
        self._streams: defaultdict[str, set[Subscription]] = defaultdict(set)

    def publish(self, changed: Iterable[WorkloadId]) -> None:
        """Tell every stream of the projects concerned."""
        for workload in changed:
            for stream in self._streams.get(workload.project, ()):
                stream.put(workload)

    def subscribe(self, project: str) -> Subscription:
        """Open a queue."""
        stream = Subscription(project)
        self._streams[project].add(stream)
        return stream

    def unsubscribe(self, stream: Subscription) -> None:
        """Close a queue."""
        streams = self._streams[stream.project]
        streams.discard(stream)
        if not streams:
            del self._streams[stream.project]
