"""Keeps a copy of all objects of a kind and tells what changed, whatever the network does.

List, then watch from the list's version; resume at the last version seen, bookmarks included.
When the version is gone, the stream fell silent, or versions ran backwards (a restored cluster),
list again and report the difference: an object that vanished while nobody was looking is reported
as deleted like any other. What could not be listed stays as it was: unknown is not absent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import TypeAlias

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.objects import (
    Key,
    Object,
    key_of,
    uid_of,
    version_of,
    without_managed_fields,
)
from holdfast.adapters.kubernetes.retry import back_off
from holdfast.adapters.kubernetes.watch import SILENCE, Scope, WatchSilent, watch
from holdfast.core.errors import HoldfastError, WaitTimeout
from holdfast.reconcile.kube import EventType, Expired, WatchEvent

HEALTHY = 120.0
"""A stream that lasted this long wipes out the memory of earlier failures."""
SHORTEST, LONGEST = 300.0, 600.0
"""A watch ends by itself after this long, spread so that not all end at once."""

Handler: TypeAlias = Callable[[Object | None, Object | None], None]
"""Gets an object's old and new form: no old one when it is new, no new one when it is gone.
It must return quickly and leave both as they are."""

log = logging.getLogger("holdfast")


class VersionsWentBack(HoldfastError):
    """An event was older than what was seen before; only a list tells what holds."""


class Informer:
    """The objects of one scope. Read it only once it has synced, and never change what it gives."""

    def __init__(
        self,
        api: KubeApi,
        scope: Scope,
        *,
        transform: Callable[[Object], Object] = without_managed_fields,
        silence: float = SILENCE,
    ) -> None:
        self._api = api
        self.scope = scope
        self._transform = transform
        self._silence = silence
        self._clock = api.connection.clock
        self._chance = api.connection.chance
        self._handlers: list[Handler] = []
        self._items: dict[Key, Object] = {}
        self._version = ""
        self._synced = asyncio.Event()
        self.error: HoldfastError | None = None
        """Why the last look failed; None while all is well."""

    @property
    def has_synced(self) -> bool:
        """True once a whole list has been taken in; before that, absence means nothing."""
        return self._synced.is_set()

    async def wait_synced(self, within: float) -> None:
        """Wait for the first whole list. Raises the reason, or WaitTimeout."""
        try:
            async with asyncio.timeout(within):
                await self._synced.wait()
        except TimeoutError:
            raise self.error or WaitTimeout(
                f"{self.scope.resource.plural} were not listed in {within:g} s."
            ) from None

    def add_handler(self, handler: Handler) -> None:
        """Tell a handler of every object known now and of every change from now on."""
        self._handlers.append(handler)
        for item in self._items.values():
            self._call(handler, None, item)

    def get(self, name: str, namespace: str = "") -> Object | None:
        """Return the copy of one object."""
        return self._items.get(Key(namespace=namespace, name=name))

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    async def run(self) -> None:
        """Follow the cluster until cancelled. Failures of the cluster are waited out."""
        failures, relist = 0, True
        while True:
            began = self._clock.monotonic()
            try:
                if relist:
                    await self._list()
                    relist = False
                await self._watch()
                quick = self._clock.monotonic() - began < 1.0
                failures = failures + 1 if quick else 0
            except (Expired, WatchSilent, VersionsWentBack) as error:
                relist = True
                failures = self._failed(error, failures, began)
            except HoldfastError as error:
                failures = self._failed(error, failures, began)
            if failures > 1:  # the first time at once: most gaps are short
                wait = back_off(failures - 2, self._chance(), first=0.8, longest=30.0)
                await self._clock.sleep(wait)

    def _failed(self, error: HoldfastError, failures: int, began: float) -> int:
        self.error = error
        log.warning(
            "watch-interrupted",
            extra={"kind": self.scope.resource.kind, "code": error.code, "why": error.happened},
        )
        return 1 if self._clock.monotonic() - began >= HEALTHY else failures + 1

    async def _list(self) -> None:
        scope = self.scope
        found = await self._api.list(
            scope.resource, namespace=scope.namespace, labels=scope.labels, fields=scope.fields
        )
        # After a restore the same version may stand for other content, so it proves nothing.
        restored = _older(found.version, self._version)
        fresh = {key_of(item): self._transform(item) for item in found.items}
        for key in [key for key in self._items if key not in fresh]:
            self._put(key, None)
        for key, item in fresh.items():
            self._put(key, item, trust_versions=not restored)
        self._version = found.version
        self.error = None
        self._synced.set()

    async def _watch(self) -> None:
        lasting = SHORTEST + (LONGEST - SHORTEST) * self._chance()
        stream = watch(
            self._api, self.scope, version=self._version, lasting=lasting, silence=self._silence
        )
        async with aclosing(stream) as events:
            async for event in events:
                self.error = None
                self._take(event)

    def _take(self, event: WatchEvent) -> None:
        version = version_of(event.item)
        if _older(version, self._version):
            raise VersionsWentBack(
                f"Versions of {self.scope.resource.plural} went from {self._version} to {version}."
            )
        if event.type is not EventType.BOOKMARK:
            gone = event.type is EventType.DELETED
            item = self._transform(event.item)
            self._put(key_of(item), None if gone else item)
        if version:
            self._version = version

    def _put(self, key: Key, item: Object | None, *, trust_versions: bool = True) -> None:
        old = self._items.get(key)
        if item is None:
            if self._items.pop(key, None) is not None:
                self._tell(old, None)
            return
        self._items[key] = item
        if old is None:
            self._tell(None, item)
        elif uid_of(old) != uid_of(item):
            # Same name, another object: its predecessor went while nobody was looking.
            self._tell(old, None)
            self._tell(None, item)
        elif version_of(old) != version_of(item) or not (trust_versions or old == item):
            self._tell(old, item)

    def _tell(self, old: Object | None, new: Object | None) -> None:
        for handler in self._handlers:
            self._call(handler, old, new)

    def _call(self, handler: Handler, old: Object | None, new: Object | None) -> None:
        try:
            handler(old, new)
        except Exception as error:  # one poisonous object must not end the watch of the others
            log.error(
                "handler-failed",
                extra={"kind": self.scope.resource.kind, "error": type(error).__name__},
            )


def _older(version: str, than: str) -> bool:
    """Compare versions where both are numbers; opaque ones are never called older."""
    if not (version.isdecimal() and than.isdecimal()):
        return False
    return int(version) < int(than)
