"""Where Applications come from: the cluster's custom resources, or files.

One that cannot be read is found as such, with its reasons, and keeps nobody else from being
followed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.objects import (
    Key,
    Object,
    Resource,
    compact_managed_fields,
    key_of,
    uid_of,
)
from holdfast.adapters.kubernetes.packed import unpack
from holdfast.adapters.kubernetes.watch import Scope
from holdfast.apps.server import logs
from holdfast.core.errors import InvalidSpec, TargetUnavailable, ValidationError
from holdfast.core.gitops.application import (
    KIND,
    PLURAL,
    AppId,
    Application,
    ApplicationSpec,
)
from holdfast.core.quantity import shown_seconds
from holdfast.core.resource import GROUP, VERSION
from holdfast.core.tree import Fields
from holdfast.reconcile.ports import Clock
from holdfast.wire.application_files import SUFFIXES, read_applications
from holdfast.wire.application_v1alpha1 import application_from_json

RESOURCE = Resource(group=GROUP, version=VERSION, kind=KIND, plural=PLURAL, namespaced=True)
POLL = 2.0
"""Seconds between two looks at files."""
_WATCHED = ("generation", "annotations", "deletionTimestamp", "uid")

Heard = Callable[[AppId], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One Application as it stands now."""

    id: AppId
    uid: str = ""
    version: str = ""
    generation: int = 0
    application: Application | None
    """None when it cannot be read or its spec is wrong."""
    error: InvalidSpec | None = None
    status: Fields | None = None
    """As it is stored; None where nothing stores it."""


def spec_of(found: Found | None) -> ApplicationSpec | None:
    """Return the spec that counts; None for an Application that is gone or wrong."""
    return found.application.spec if found and found.application else None


class Applications(Protocol):
    """The Applications that there are."""

    stored: bool
    """True where a status can be written."""

    def get(self, id: AppId) -> Found | None:
        """Return one; None when there is none, which is certain once `ready`."""

    def ids(self) -> Sequence[AppId]:
        """Name all of them."""

    def listen(self, heard: Heard) -> None:
        """Tell of every Application that is new, changed or gone; not of a mere status."""

    async def ready(self, within: float) -> None:
        """Wait until all of them are known. Raises why they are not."""

    async def run(self) -> None:
        """Keep up to date, until cancelled."""


class StoredApplications:
    """The custom resources of a cluster, in some namespaces or in all."""

    stored = True

    def __init__(self, api: KubeApi, namespaces: Sequence[str]) -> None:
        self.informers = tuple(
            # Who wrote what counts too: an Application may be declared by another.
            Informer(
                api,
                Scope(resource=RESOURCE, namespace=namespace),
                transform=compact_managed_fields,
            )
            for namespace in namespaces or ("",)
        )
        self._read: dict[AppId, Found] = {}

    def get(self, id: AppId) -> Found | None:
        """See the port."""
        for informer in self.informers:
            held = informer.packed(id.name, id.namespace)
            if held is None:
                continue
            read = self._read.get(id)
            if read is None or (read.uid, read.version) != (held.uid, held.version):
                read = self._read[id] = _found(id, unpack(held))
            return read
        self._read.pop(id, None)
        return None

    def ids(self) -> Sequence[AppId]:
        """See the port."""
        return [_id(key) for informer in self.informers for key in informer.names()]

    def listen(self, heard: Heard) -> None:
        """See the port."""

        def on(old: Object | None, new: Object | None) -> None:
            if old is None or new is None or _moved(old, new):
                heard(_id(key_of(new or old or {})))

        for informer in self.informers:
            informer.add_handler(on)

    async def ready(self, within: float) -> None:
        """See the port."""
        try:
            for informer in self.informers:
                await informer.wait_synced(within)
        except TargetUnavailable as error:
            raise TargetUnavailable(
                f"Applications could not be listed in {shown_seconds(within)}. {error.happened}",
                todo="Check that the CRDs are installed (holdfast install) and what the "
                "controller may read.",
            ) from error

    async def run(self) -> None:
        """See the port."""
        await asyncio.gather(*(informer.run() for informer in self.informers))


class FiledApplications:
    """Applications from files and folders, which are looked at every few seconds."""

    stored = False

    def __init__(self, paths: Sequence[Path], clock: Clock) -> None:
        self._paths = paths
        self._clock = clock
        self._held: dict[AppId, Application] = {}
        self._seen: tuple[object, ...] = ()
        self._heard: list[Heard] = []

    def get(self, id: AppId) -> Found | None:
        """See the port."""
        held = self._held.get(id)
        return None if held is None else Found(id=id, application=held)

    def ids(self) -> Sequence[AppId]:
        """See the port."""
        return list(self._held)

    def listen(self, heard: Heard) -> None:
        """See the port."""
        self._heard.append(heard)
        for id in self._held:
            heard(id)

    async def ready(self, within: float) -> None:
        """See the port. Raises ValidationError for files that cannot be read."""
        self._seen = await asyncio.to_thread(lambda: tuple(_stamps(self._paths)))
        self._take(await asyncio.to_thread(read_applications, self._paths))

    async def run(self) -> None:
        """See the port. Files that cannot be read leave everything as it was."""
        while True:
            await self._clock.sleep(POLL)
            seen = await asyncio.to_thread(lambda: tuple(_stamps(self._paths)))
            if seen == self._seen:
                continue
            self._seen = seen
            try:
                read = await asyncio.to_thread(read_applications, self._paths)
            except ValidationError as error:
                logs.event("applications-not-read", level=logging.WARNING, why=str(error))
                continue
            self._take(read)

    def _take(self, read: Sequence[Application]) -> None:
        before, self._held = self._held, {each.id: each for each in read}
        for id in sorted({*before, *self._held}):
            if before.get(id) != self._held.get(id):
                for heard in self._heard:
                    heard(id)


def _stamps(paths: Sequence[Path]) -> Iterator[object]:
    """What differs when a file was changed, added or taken away."""
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.suffix in SUFFIXES or file == path:
                try:
                    seen = os.stat(file)
                except OSError:
                    continue
                yield str(file), seen.st_mtime_ns, seen.st_size, seen.st_ino


def _found(id: AppId, item: Object) -> Found:
    metadata = item["metadata"]
    status = item.get("status")
    known = Found(
        id=id,
        uid=uid_of(item),
        version=str(metadata.get("resourceVersion", "")),
        generation=int(metadata.get("generation", 0)),
        application=None,
        status=status if isinstance(status, dict) else {},
    )
    try:
        return replace(known, application=application_from_json(item))
    except InvalidSpec as error:
        return replace(known, error=error)


def _moved(old: Object, new: Object) -> bool:
    before, after = old["metadata"], new["metadata"]
    return any(before.get(name) != after.get(name) for name in _WATCHED)


def _id(key: Key) -> AppId:
    return AppId(namespace=key.namespace, name=key.name)
