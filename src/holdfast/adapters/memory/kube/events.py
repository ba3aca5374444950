"""What happened in the memory cluster, kept for a while, and the watches that follow it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from holdfast.adapters.memory.kube.fieldset import clone
from holdfast.adapters.memory.kube.kinds import Object
from holdfast.core.errors import HoldfastError, ValidationError
from holdfast.reconcile.kube import EventType, Expired, Scope, WatchEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One write: the object before and after it."""

    version: int
    old: Object | None
    new: Object | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    error: HoldfastError | None = None


class Log:
    """The last events, as many as are kept."""

    def __init__(self, *, first: int, kept: int) -> None:
        self._kept = kept
        self._events: deque[Happened] = deque()
        self._forgotten = first
        """Events up to this version are no longer kept."""
        self._followers: dict[asyncio.Queue[Happened | WatchEvent | _End], Scope] = {}

    def record(self, happened: Happened) -> None:
        """Keep an event and tell those who follow."""
        self._events.append(happened)
        while len(self._events) > self._kept:
            self._forgotten = self._events.popleft().version
        for queue in self._followers:
            queue.put_nowait(happened)

    def forget(self, version: int) -> None:
        """Keep nothing up to a version."""
        self._events.clear()
        self._forgotten = version

    def bookmark(self, version: int) -> None:
        """Tell those who follow which version they have seen everything of."""
        for queue, scope in self._followers.items():
            item: Object = {
                "apiVersion": scope.api_version,
                "kind": scope.kind,
                "metadata": {"resourceVersion": str(version)},
            }
            queue.put_nowait(WatchEvent(type=EventType.BOOKMARK, item=item))

    def end(self, error: HoldfastError | None, kind: str = "") -> None:
        """End the watches, or those of one kind: cleanly, or with an error."""
        for queue, scope in self._followers.items():
            if kind in ("", scope.kind):
                queue.put_nowait(_End(error=error))

    async def follow(self, scope: Scope, version: str) -> AsyncGenerator[WatchEvent, None]:
        """Yield what happens to a scope after a version, until the watch is ended."""
        after = int(version or 0)
        if after < self._forgotten:
            raise Expired(
                f"Version {version} is too old: events are kept from {self._forgotten} on.",
                todo="List again.",
            )
        queue: asyncio.Queue[Happened | WatchEvent | _End] = asyncio.Queue()
        for happened in self._events:
            queue.put_nowait(happened)
        self._followers[queue] = scope
        try:
            while True:
                found = await queue.get()
                if isinstance(found, _End):
                    if found.error is not None:
                        raise found.error
                    return
                if isinstance(found, WatchEvent):
                    yield found
                elif found.version > after:
                    event = _seen(found, scope)
                    if event is not None:
                        yield event
        finally:
            del self._followers[queue]


def matches(item: Object | None, scope: Scope) -> bool:
    """Say whether an object is in a scope."""
    if item is None or (item["apiVersion"], item["kind"]) != (scope.api_version, scope.kind):
        return False
    metadata = item["metadata"]
    if scope.namespace and metadata.get("namespace") != scope.namespace:
        return False
    labels = metadata.get("labels") or {}
    return all(_satisfied(labels, each.strip()) for each in scope.labels.split(",") if each)


def _satisfied(labels: Object, requirement: str) -> bool:
    if "(" in requirement or ")" in requirement or " " in requirement:
        raise ValidationError(
            f"The memory cluster does not know the selector {requirement!r}.",
            todo="Use equality: a=b, a!=b, a, !a.",
        )
    if "=" not in requirement:
        return (requirement.lstrip("!") in labels) is not requirement.startswith("!")
    name, _, value = requirement.partition("=")
    if name.endswith("!"):
        return bool(labels.get(name[:-1]) != value)
    return bool(labels.get(name) == value.removeprefix("="))


def _seen(happened: Happened, scope: Scope) -> WatchEvent | None:
    """Say what a watch sees of an event: an object that leaves its scope is deleted there."""
    was, now = matches(happened.old, scope), matches(happened.new, scope)
    if not was and not now:
        return None
    kind = EventType.MODIFIED if was and now else EventType.ADDED if now else EventType.DELETED
    item = clone(happened.new if now else happened.old)
    item["metadata"]["resourceVersion"] = str(happened.version)
    return WatchEvent(type=kind, item=item)
