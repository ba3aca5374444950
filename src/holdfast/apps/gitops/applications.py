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
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.informer import Informer, unpack_object
from holdfast.adapters.kubernetes.objects import (
    Object,
    ObjectKey,
    Resource,
    compact_managed_fields,
    object_key,
    uid_of,
)
from holdfast.adapters.kubernetes.watch import ResourceScope
from holdfast.apps.server import logs
from holdfast.core.custom_resource import API_VERSION, GROUP, VERSION, Condition
from holdfast.core.errors import InvalidSpec, TargetUnavailable, ValidationError
from holdfast.core.gitops import wording
from holdfast.core.gitops.application import (
    KIND,
    PLURAL,
    Application,
    ApplicationId,
    ApplicationSpec,
    ApplicationStatus,
)
from holdfast.core.gitops.facts import CONTROLLER
from holdfast.core.quantity import format_seconds
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.reporting import ApplicationEvent
from holdfast.reconcile.kube import KubeClient
from holdfast.reconcile.ports import Clock
from holdfast.wire.application_v1alpha1 import (
    SUFFIXES,
    application_from_json,
    read_applications,
    status_from_json,
    status_to_json,
)

APPLICATION_RESOURCE = Resource(
    group=GROUP, version=VERSION, kind=KIND, plural=PLURAL, namespaced=True
)
FILE_POLL_SECONDS = 2.0
"""Seconds between two looks at files."""
_WATCHED_METADATA = ("generation", "annotations", "deletionTimestamp", "uid")

OnApplication = Callable[[ApplicationId], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedApplication:
    """One Application as it stands now."""

    id: ApplicationId
    uid: str = ""
    version: str = ""
    generation: int = 0
    application: Application | None
    """None when it cannot be read or its spec is wrong."""
    error: InvalidSpec | None = None
    status: Fields | None = None
    """As it is stored; None where nothing stores it."""


def effective_spec(found: ObservedApplication | None) -> ApplicationSpec | None:
    """Return the spec that counts; None for an Application that is gone or wrong."""
    return found.application.spec if found and found.application else None


class ApplicationCatalog(Protocol):
    """The Applications that there are."""

    stored: bool
    """True where a status can be written."""

    def get(self, id: ApplicationId) -> ObservedApplication | None:
        """Return one; None when there is none, which is certain once `ready`."""

    def ids(self) -> Sequence[ApplicationId]:
        """Name all of them."""

    def listen(self, heard: OnApplication) -> None:
        """Tell of every Application that is new, changed or gone; not of a mere status."""

    async def ready(self, within: float) -> None:
        """Wait until all of them are known. Raises why they are not."""

    async def run(self) -> None:
        """Keep up to date, until cancelled."""


class ClusterApplications:
    """The custom resources of a cluster, in some namespaces or in all."""

    stored = True

    def __init__(self, api: KubeApi, namespaces: Sequence[str]) -> None:
        self.informers = tuple(
            # Who wrote what counts too: an Application may be declared by another.
            Informer(
                api,
                ResourceScope(resource=APPLICATION_RESOURCE, namespace=namespace),
                transform=compact_managed_fields,
            )
            for namespace in namespaces or ("",)
        )
        self._read: dict[ApplicationId, ObservedApplication] = {}

    def get(self, id: ApplicationId) -> ObservedApplication | None:
        """See the port."""
        for informer in self.informers:
            held = informer.packed(id.name, id.namespace)
            if held is None:
                continue
            read = self._read.get(id)
            if read is None or (read.uid, read.version) != (held.uid, held.version):
                read = self._read[id] = _read_application(id, unpack_object(held))
            return read
        self._read.pop(id, None)
        return None

    def ids(self) -> Sequence[ApplicationId]:
        """See the port."""
        return [_app_id(key) for informer in self.informers for key in informer.names()]

    def listen(self, heard: OnApplication) -> None:
        """See the port."""

        def on(old: Object | None, new: Object | None) -> None:
            if old is None or new is None or _has_changed(old, new):
                heard(_app_id(object_key(new or old or {})))

        for informer in self.informers:
            informer.add_handler(on)

    async def ready(self, within: float) -> None:
        """See the port."""
        try:
            for informer in self.informers:
                await informer.wait_synced(within)
        except TargetUnavailable as error:
            raise TargetUnavailable(
                f"Applications could not be listed in {format_seconds(within)}. {error.happened}",
                hint="Check that the CRDs are installed (holdfast install) and what the "
                "controller may read.",
            ) from error

    async def run(self) -> None:
        """See the port."""
        await asyncio.gather(*(informer.run() for informer in self.informers))


class FileApplications:
    """Applications from files and folders, which are looked at every few seconds."""

    stored = False

    def __init__(self, paths: Sequence[Path], clock: Clock) -> None:
        self._paths = paths
        self._clock = clock
        self._held: dict[ApplicationId, Application] = {}
        self._seen: tuple[object, ...] = ()
        self._heard: list[OnApplication] = []

    def get(self, id: ApplicationId) -> ObservedApplication | None:
        """See the port."""
        held = self._held.get(id)
        return None if held is None else ObservedApplication(id=id, application=held)

    def ids(self) -> Sequence[ApplicationId]:
        """See the port."""
        return list(self._held)

    def listen(self, heard: OnApplication) -> None:
        """See the port."""
        self._heard.append(heard)
        for id in self._held:
            heard(id)

    async def ready(self, within: float) -> None:
        """See the port. Raises ValidationError for files that cannot be read."""
        self._seen = await asyncio.to_thread(lambda: tuple(_file_stamps(self._paths)))
        self._take(await asyncio.to_thread(read_applications, self._paths))

    async def run(self) -> None:
        """See the port. Files that cannot be read leave everything as it was."""
        while True:
            await self._clock.sleep(FILE_POLL_SECONDS)
            seen = await asyncio.to_thread(lambda: tuple(_file_stamps(self._paths)))
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


def _file_stamps(paths: Sequence[Path]) -> Iterator[object]:
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


def _read_application(id: ApplicationId, item: Object) -> ObservedApplication:
    metadata = item["metadata"]
    status = item.get("status")
    known = ObservedApplication(
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


def _has_changed(old: Object, new: Object) -> bool:
    before, after = old["metadata"], new["metadata"]
    return any(before.get(name) != after.get(name) for name in _WATCHED_METADATA)


def _app_id(key: ObjectKey) -> ApplicationId:
    return ApplicationId(namespace=key.namespace, name=key.name)


_VOLATILE_FIELD = "fetchedAt"
INVALID_SPEC = "InvalidSpec"


class ApplicationStatusWriter:
    """The statuses of all Applications of a cluster."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def report(self, found: ObservedApplication, status: ApplicationStatus) -> bool:
        """Write a status unless it stands there already; True when it was written.

        Where nothing stores an Application, its status is only shown.
        """
        if found.status is None:
            return False
        said = status_to_json(status)
        if _without_volatile(said) == _without_volatile(found.status):
            return False
        document: Fields = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": found.id.name, "namespace": found.id.namespace, "uid": found.uid},
            "status": said,
        }
        await self._client.apply(document, manager=CONTROLLER, force=True, subresource="status")
        return True

    async def refuse(
        self, found: ObservedApplication, now: datetime
    ) -> tuple[ApplicationEvent, ...]:
        """Say of an Application whose spec is wrong what is wrong with it; what runs, runs on."""
        known = status_from_json(found.status) or ApplicationStatus()
        message = wording.shorten(str(found.error))
        ready = next((each for each in known.conditions if each.type == "Ready"), None)
        since = ready.last_transition_time if ready and ready.status == "False" else None
        condition = Condition(
            type="Ready",
            status="False",
            reason=INVALID_SPEC,
            message=message,
            observed_generation=found.generation or None,
            last_transition_time=since or now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        status = replace(
            known,
            sync="unknown",
            message=message,
            observed_generation=found.generation or None,
            conditions=(condition,),
        )
        if not await self.report(found, status):
            return ()
        return (ApplicationEvent(warning=True, reason=INVALID_SPEC, message=message),)


def _without_volatile(status: Fields) -> Fields:
    return {name: value for name, value in status.items() if name != _VOLATILE_FIELD}
