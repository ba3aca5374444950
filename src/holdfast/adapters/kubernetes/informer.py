"""Keeps a copy of all objects of a kind and reports what changed, whatever the network does.

List, then watch from the list's version; resume at the last version received, bookmarks included.
When the version is gone, the stream fell silent, or versions ran backwards (a restored cluster),
list again and report the difference: an object that vanished while nobody was looking is reported
as deleted like any other. What could not be listed stays as it was: unknown is not absent. How old
the copy is can be asked for, and after two minutes it is `outdated`: reading it then raises.
"""

from __future__ import annotations

import asyncio
import logging
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from datetime import UTC, timedelta
from typing import TypeAlias

import msgspec

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.objects import (
    Object,
    ObjectKey,
    matches_selector,
    object_key,
    uid_of,
    version_of,
    without_managed_fields,
)
from holdfast.adapters.kubernetes.responses import back_off
from holdfast.adapters.kubernetes.watch import (
    SILENCE_TIMEOUT,
    ResourceScope,
    WatchSilent,
    watch_resource,
)
from holdfast.core.errors import HoldfastError, TargetUnavailable, WaitTimeout
from holdfast.core.quantity import format_seconds
from holdfast.reconcile.kube import KindNotServed, VersionExpired, WatchEvent, WatchEventType

_DEFLATE_WINDOW = 32_000
"""How far back deflate can see, so that more samples would not help."""
_SAMPLE_COUNT = 8
_LEARN_AT = (1, 8, 64, 512)
"""After so many objects the samples are chosen anew; few at first, as the first are often bare."""
_COMPRESSION_LEVEL = 3
"""Measured: a Deployment of 7 kB in 243 bytes and 0.11 ms; level 6 gives 210 in 0.16 ms."""
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Object)


class PackedObject(msgspec.Struct, frozen=True, gc=False):
    """One object, compressed; what is read most often is kept beside it."""

    uid: str
    version: str
    body: bytes
    samples: bytes
    """What it was compressed against, shared by many."""


class ObjectPacker:
    """Packs the objects of one kind, and learns from them how."""

    def __init__(self) -> None:
        self._samples = b""
        self._recent: list[bytes] = []
        self._count = 0

    def pack(self, item: Object) -> PackedObject:
        """Make an object small."""
        text = _encoder.encode(item)
        if self._count <= _LEARN_AT[-1]:
            self._learn(text)
        compressor = zlib.compressobj(
            _COMPRESSION_LEVEL, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, self._samples
        )
        body = compressor.compress(text) + compressor.flush()
        return PackedObject(
            uid=uid_of(item), version=version_of(item), body=body, samples=self._samples
        )

    def _learn(self, text: bytes) -> None:
        self._count += 1
        self._recent = [*self._recent[1 - _SAMPLE_COUNT :], text]
        if self._count in _LEARN_AT:
            self._samples = b"".join(self._recent)[-_DEFLATE_WINDOW:]
        if self._count == _LEARN_AT[-1]:
            self._recent.clear()


def unpack_object(packed: PackedObject) -> Object:
    """Return a fresh copy of the object."""
    stretch = zlib.decompressobj(-15, packed.samples)
    return _decoder.decode(stretch.decompress(packed.body) + stretch.flush())


_PAGE_SIZE = 100
"""Objects that stand unpacked in memory at once while a list comes in."""
HEALTHY_AFTER = 120.0
"""A stream that lasted this long wipes out the memory of earlier failures."""
MAX_AGE = 120.0
"""Seconds for which a copy is believed whose watch failed or fell silent. Longer than a watch may
be silent, so that one that is only cut and resumed is never in doubt."""
_YIELD_EVERY = 50
"""So many objects are taken in before others get a turn: about 10 ms."""

Handler: TypeAlias = Callable[[Object | None, Object | None], None]
"""Gets an object's old and new form: no old one when it is new, no new one when it is gone.
It must return quickly and leave both as they are."""
IndexFunction: TypeAlias = Callable[[Object], Iterable[str]]
"""The values under which an object is found."""

log = logging.getLogger("holdfast")


class VersionsWentBack(HoldfastError):
    """An event was older than an earlier one; only a list says what holds."""


class Informer:
    """The objects of one scope, packed. What it gives out is a fresh copy each time."""

    def __init__(
        self,
        api: KubeApi,
        scope: ResourceScope,
        *,
        transform: Callable[[Object], Object] = without_managed_fields,
        silence: float = SILENCE_TIMEOUT,
        unserved_retry: float = 10.0,
        indexes: Mapping[str, IndexFunction] | None = None,
    ) -> None:
        self._api = api
        self.scope = scope
        self._transform = transform
        self._silence = silence
        self._unserved_retry = unserved_retry
        """Seconds between two attempts to list a kind that is not served."""
        self._clock = api.connection.clock
        self._chance = api.connection.chance
        self._handlers: list[Handler] = []
        self._packer = ObjectPacker()
        self._items: dict[ObjectKey, PackedObject] = {}
        self._indexes = dict(indexes or {})
        self._keys_by_value: dict[tuple[str, str], set[ObjectKey]] = {}
        """The keys under each index and value."""
        self._version = ""
        self._synced = asyncio.Event()
        self._current_at = -math.inf
        """When the cluster last said something that makes the copy its present state."""
        self._opened_at = -math.inf
        """When the stream that is open now was opened; -inf while there is none."""
        self.error: HoldfastError | None = None
        """Why the last list or watch failed; None while all is well."""

    @property
    def has_synced(self) -> bool:
        """True once a whole list has been taken in; before that, absence means nothing."""
        return self._synced.is_set()

    @property
    def served(self) -> bool:
        """False while the cluster does not serve the kind: what exists of it is unknown then."""
        return not isinstance(self.error, KindNotServed)

    @property
    def age(self) -> float:
        """Seconds since the copy was surely what the cluster has; 0 or so while all is well.

        A stream that is open counts from when it was opened, and one that was cut counts nothing
        unless it brought something.
        """
        return self._clock.monotonic() - max(self._current_at, self._opened_at)

    @property
    def outdated(self) -> TargetUnavailable | None:
        """Why the copy may not be used any more; None while it may."""
        age = self.age
        if not self.has_synced or age <= MAX_AGE:
            return None
        since = (self._clock.now() - timedelta(seconds=age)).astimezone(UTC)
        why = f" {self.error.happened}" if self.error else ""
        return TargetUnavailable(
            f"What is known of {self.scope.resource.plural} is from {since:%Y-%m-%dT%H:%M:%SZ}, "
            f"{age:.0f} s ago, and cannot be renewed.{why}"
        )

    @property
    def version(self) -> str:
        """How far the copy has come."""
        return self._version

    async def wait_synced(self, within: float) -> None:
        """Wait for the first whole list. Raises the reason, or WaitTimeout."""
        try:
            async with asyncio.timeout(within):
                await self._synced.wait()
        except TimeoutError:
            raise self.error or WaitTimeout(
                f"{self.scope.resource.plural} were not listed in {format_seconds(within)}."
            ) from None

    def add_handler(self, handler: Handler) -> None:
        """Call a handler with every object known now and of every change from now on."""
        self._handlers.append(handler)
        for item in self:
            self._call(handler, None, item)

    def get(self, name: str, namespace: str = "") -> Object | None:
        """Return a copy of one object."""
        packed = self.packed(name, namespace)
        return None if packed is None else unpack_object(packed)

    def packed(self, name: str, namespace: str = "") -> PackedObject | None:
        """Return one object as it is kept; it never changes, so it may be remembered."""
        return self._items.get(ObjectKey(namespace=namespace, name=name))

    def uid(self, key: ObjectKey) -> str | None:
        """Return the uid of one object, or None when there is none."""
        packed = self._items.get(key)
        return None if packed is None else packed.uid

    def names(self) -> list[ObjectKey]:
        """Return what there is, by name alone."""
        return list(self._items)

    def select(self, index: str, value: str) -> list[Object]:
        """Return copies of the objects that an index has under a value, ordered by name."""
        keys = sorted(self._keys_by_value.get((index, value), ()), key=str)
        return [unpack_object(self._items[key]) for key in keys]

    def __iter__(self) -> Iterator[Object]:
        return (unpack_object(packed) for packed in list(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def accept(self, item: Object) -> None:
        """Take in the result of a write, so that its writer reads it before the watch reports it.

        Nothing happens when the watch has come as far already, or when it is not in scope.
        """
        metadata = item["metadata"]
        known = not _older(self._version, version_of(item))
        inside = self.scope.namespace in ("", metadata.get("namespace", ""))
        if known or not inside or self.scope.fields:
            return
        if matches_selector(self.scope.labels, metadata.get("labels") or {}):
            copy = msgspec.json.decode(msgspec.json.encode(item), type=Object)
            self._put(self._transform(copy))

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
                self._current_at = self._clock.monotonic()
                quick = self._clock.monotonic() - began < 1.0
                failures = failures + 1 if quick else 0
            except (VersionExpired, WatchSilent, VersionsWentBack, KindNotServed) as error:
                relist = True
                failures = self._failed(error, failures, began)
            except HoldfastError as error:
                failures = self._failed(error, failures, began)
            if not self.served:
                await self._clock.sleep(
                    back_off(0, self._chance(), first=self._unserved_retry, longest=600)
                )
            elif failures > 1:  # the first time at once: most gaps are short
                wait = back_off(failures - 2, self._chance(), first=0.8, longest=30.0)
                await self._clock.sleep(wait)

    def _failed(self, error: HoldfastError, failures: int, began: float) -> int:
        if not (isinstance(error, KindNotServed) and not self.served):  # said once is enough
            log.warning(
                "watch-interrupted",
                extra={"kind": self.scope.resource.kind, "code": error.code, "why": error.happened},
            )
        self.error = error
        return 1 if self._clock.monotonic() - began >= HEALTHY_AFTER else failures + 1

    async def _list(self) -> None:
        for size in (_PAGE_SIZE, _PAGE_SIZE, 0):  # the last time in one piece
            try:
                await self._list_in_pages(size)
                return
            except VersionExpired:
                if not size:
                    raise

    async def _list_in_pages(self, size: int) -> None:
        """Take a whole list in page by page, so that it never stands in memory at once."""
        listed: set[ObjectKey] = set()
        token, restored = "", False
        while True:
            page = await self._api.list_page(self.scope, size=size, token=token)
            if not token:
                # After a restore the same version may stand for other content: it proves nothing.
                restored = _older(page.version, self._version)
            for number, item in enumerate(page.items):
                self._put(self._transform(item), at=page.version, trust_versions=not restored)
                listed.add(object_key(item))
                if number % _YIELD_EVERY == _YIELD_EVERY - 1:
                    await asyncio.sleep(0)
            token = page.token
            if not token:
                break
        for key in [key for key in self._items if key not in listed]:
            # What we wrote after the list was taken is not in it.
            if restored or not _older(page.version, self._items[key].version):
                self._drop(key)
        self._version = page.version
        self._current_at = self._clock.monotonic()
        self.error = None
        self._synced.set()

    async def _watch(self) -> None:
        stream = watch_resource(
            self._api.connection,
            self.scope,
            version=self._version,
            silence=self._silence,
            opened=self._open,
        )
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    self.error = None
                    self._handle(event)
                    self._current_at = self._clock.monotonic()
        finally:
            self._opened_at = -math.inf

    def _open(self) -> None:
        self._opened_at = self._clock.monotonic()

    def _handle(self, event: WatchEvent) -> None:
        version = version_of(event.item)
        if _older(version, self._version):
            raise VersionsWentBack(
                f"Versions of {self.scope.resource.plural} went from {self._version} to {version}."
            )
        if event.type is WatchEventType.DELETED:
            old = self._items.get(object_key(event.item))
            # The predecessor of one that we created ourselves meanwhile is no news.
            if old and (old.uid == uid_of(event.item) or not _older(version, old.version)):
                self._drop(object_key(event.item))
        elif event.type is not WatchEventType.BOOKMARK:
            self._put(self._transform(event.item))
        if version:
            self._version = version

    def _put(self, item: Object, *, at: str = "", trust_versions: bool = True) -> None:
        """Take an object in. `at` is the version of the list that it is from: what a list says
        holds against all that is not newer than the list, also after a restore.
        """
        key, version = object_key(item), version_of(item)
        old = self._items.get(key)
        if old is None:
            self._store(key, item)
            self._notify(None, item)
            return
        if trust_versions and (version == old.version or _older(at or version, old.version)):
            return
        before = unpack_object(old)
        if before == item:
            return
        self._index(key, before, away=True)
        self._store(key, item)
        if old.uid != uid_of(item):
            # Same name, another object: its predecessor went while nobody was looking.
            self._notify(before, None)
            self._notify(None, item)
        else:
            self._notify(before, item)

    def _drop(self, key: ObjectKey) -> None:
        before = unpack_object(self._items.pop(key))
        self._index(key, before, away=True)
        self._notify(before, None)

    def _store(self, key: ObjectKey, item: Object) -> None:
        self._items[key] = self._packer.pack(item)
        self._index(key, item)

    def _index(self, key: ObjectKey, item: Object, *, away: bool = False) -> None:
        for name, index in self._indexes.items():
            for value in index(item):
                keys = self._keys_by_value.setdefault((name, value), set())
                if not away:
                    keys.add(key)
                    continue
                keys.discard(key)
                if not keys:
                    del self._keys_by_value[name, value]

    def _notify(self, old: Object | None, new: Object | None) -> None:
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
