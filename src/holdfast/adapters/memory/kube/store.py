"""The objects of the memory cluster, and how each kind of write is carried out.

Defaults, generations, guards, finalizers and garbage collection are here; who owns what is in
`core/ownership`. Called by the cluster alone, which copies what it hands out.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

from holdfast.adapters.memory.kube.admission import (
    check_object,
    check_schema,
    drop_empty_fields,
    fill_defaults,
)
from holdfast.adapters.memory.kube.kinds import MemoryKind
from holdfast.core.errors import HoldfastError, NotFound, ValidationError
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.server_side_apply import (
    APPLY,
    UPDATE,
    FieldManager,
    FieldsOwned,
    ManagedFields,
    Object,
    clone,
    ownership_after_create,
    ownership_after_scale,
    ownership_after_update,
    read_managed_fields,
    server_side_apply,
    without_times,
    write_managed_fields,
)
from holdfast.reconcile.kube import (
    ConflictReason,
    KindNotServed,
    KubeConflict,
    ObjectRef,
    Scope,
    VersionExpired,
    WatchEvent,
    WatchEventType,
    matches_selector,
    ref_of,
)
from holdfast.reconcile.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """One write: the object before and after it."""

    version: int
    old: Object | None
    new: Object | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _WatchEnd:
    error: HoldfastError | None = None


class ChangeLog:
    """The last events, as many as are kept."""

    def __init__(self, *, first: int, kept: int) -> None:
        self._kept = kept
        self._events: deque[ObjectChange] = deque()
        self._forgotten = first
        """Events up to this version are no longer kept."""
        self._followers: dict[asyncio.Queue[ObjectChange | WatchEvent | _WatchEnd], Scope] = {}

    def record(self, happened: ObjectChange) -> None:
        """Keep an event and pass it to the watches."""
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
            queue.put_nowait(WatchEvent(type=WatchEventType.BOOKMARK, item=item))

    def end(self, error: HoldfastError | None, kind: str = "") -> None:
        """End the watches, or those of one kind: cleanly, or with an error."""
        for queue, scope in self._followers.items():
            if kind in ("", scope.kind):
                queue.put_nowait(_WatchEnd(error=error))

    async def follow(self, scope: Scope, version: str) -> AsyncGenerator[WatchEvent, None]:
        """Yield what happens to a scope after a version, until the watch is ended."""
        after = int(version or 0)
        if after < self._forgotten:
            raise VersionExpired(
                f"Version {version} is too old: events are kept from {self._forgotten} on.",
                hint="List again.",
            )
        queue: asyncio.Queue[ObjectChange | WatchEvent | _WatchEnd] = asyncio.Queue()
        for happened in self._events:
            queue.put_nowait(happened)
        self._followers[queue] = scope
        try:
            while True:
                found = await queue.get()
                if isinstance(found, _WatchEnd):
                    if found.error is not None:
                        raise found.error
                    return
                if isinstance(found, WatchEvent):
                    yield found
                elif found.version > after:
                    event = _event_for(found, scope)
                    if event is not None:
                        yield event
        finally:
            del self._followers[queue]


def is_in_scope(item: Object | None, scope: Scope) -> bool:
    """Say whether an object is in a scope."""
    if item is None or (item["apiVersion"], item["kind"]) != (scope.api_version, scope.kind):
        return False
    metadata = item["metadata"]
    if scope.namespace and metadata.get("namespace") != scope.namespace:
        return False
    if set("() ") & set(scope.labels):
        raise ValidationError(
            f"The memory cluster does not know the selector {scope.labels!r}.",
            hint="Use equality: a=b, a!=b, a, !a.",
        )
    wanted = (term.partition("=") for term in filter(None, scope.fields.split(",")))
    if any(str(value_at(item, tuple(path.split(".")))) != value for path, _, value in wanted):
        return False
    return matches_selector(scope.labels, metadata.get("labels") or {})


def _event_for(happened: ObjectChange, scope: Scope) -> WatchEvent | None:
    """Say what a watch sees of an event: an object that leaves its scope is deleted there."""
    was, now = is_in_scope(happened.old, scope), is_in_scope(happened.new, scope)
    if not was and not now:
        return None
    kind = (
        WatchEventType.MODIFIED
        if was and now
        else WatchEventType.ADDED
        if now
        else WatchEventType.DELETED
    )
    item = clone(happened.new if now else happened.old)
    item["metadata"]["resourceVersion"] = str(happened.version)
    return WatchEvent(type=kind, item=item)


FIRST_VERSION = 1000
_SERVER_FIELDS = frozenset({
    "uid", "creationTimestamp", "resourceVersion", "generation", "deletionTimestamp",
    "deletionGracePeriodSeconds",
})  # fmt: skip
"""Metadata that only the server writes."""


class ObjectStore:
    """All objects at their present version."""

    def __init__(self, *, clock: Clock, kinds: Iterable[MemoryKind], history: int) -> None:
        self._clock = clock
        self.kinds = {(kind.api_version, kind.kind): kind for kind in kinds}
        self.unserved: set[str] = set()
        """The names of kinds that are not served at the moment."""
        self.items: dict[ObjectRef, Object] = {}
        self.version = FIRST_VERSION
        self.log = ChangeLog(first=FIRST_VERSION, kept=history)

    def kind_of(self, api_version: str, kind: str) -> MemoryKind:
        """Return a kind that is served. Raises KindNotServed."""
        found = self.kinds.get((api_version, kind))
        if found is None or kind in self.unserved:
            raise KindNotServed(f"The cluster serves no kind {kind} in {api_version}.")
        return found

    def existing(self, ref: ObjectRef) -> Object:
        """Return an object. Raises NotFound."""
        self.kind_of(ref.api_version, ref.kind)
        if ref not in self.items:
            raise NotFound(f"There is no {ref}.")
        return self.items[ref]

    def now(self) -> str:
        """Return the time as objects have it."""
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def create(self, item: Object, manager: str) -> Object:
        """Create an object for a plain client."""
        ref = ref_of(item)
        kind = self.kind_of(ref.api_version, ref.kind)
        if ref in self.items:
            raise KubeConflict(f"{ref} already exists.", reason=ConflictReason.EXISTS)
        new = self._complete(kind, clone(item), None)
        writer = FieldManager(manager=manager, operation=UPDATE, api_version=kind.api_version)
        entries = ownership_after_create(
            _unallocated(new), writer, kind.schema, now=self.now(), hollow=kind.hollow
        )
        return self._save(kind, ref, new, None, entries)

    def apply(
        self, item: Object, manager: str, subresource: str, *, force: bool, dry_run: bool
    ) -> Object:
        """Apply an object."""
        ref = ref_of(item)
        kind, live = self.kind_of(ref.api_version, ref.kind), self.items.get(ref)
        uid, version = (item["metadata"].get(name) for name in ("uid", "resourceVersion"))
        check_schema(item)
        if live is None and uid:
            raise KubeConflict(f"{ref} with uid {uid} is gone.", reason=ConflictReason.REPLACED)
        if live is None and subresource:
            raise NotFound(f"There is no {ref}.")
        writer = FieldManager(
            manager=manager, operation=APPLY, api_version=ref.api_version, subresource=subresource
        )
        try:
            new, entries = server_side_apply(
                _without_managed_fields(live) if live else {},
                _applied_part(item, kind, subresource),
                read_managed_fields(live["metadata"].get("managedFields")) if live else {},
                writer,
                kind.schema,
                force=force,
                now=self.now(),
                hollow=kind.hollow,
            )
        except FieldsOwned as owned:
            raise KubeConflict(
                f"Applying {ref} conflicts with {len(owned.owners)} fields of other managers.",
                reason=ConflictReason.OWNED,
                owners=owned.owners,
            ) from None
        if live is not None and version not in (None, "", "0", live["metadata"]["resourceVersion"]):
            raise KubeConflict(f"{ref} has been modified.", reason=ConflictReason.CHANGED)
        if live is not None and uid and uid != live["metadata"]["uid"]:
            raise KubeConflict(f"{ref} was replaced.", reason=ConflictReason.REPLACED)
        new = self._complete(kind, new, live)
        return self._save(kind, ref, new, live, entries, subresource, dry_run=dry_run)

    def update(self, ref: ObjectRef, new: Object, manager: str, subresource: str) -> Object:
        """Replace an object for a plain client. Its managedFields count, as on a real server."""
        kind, live = self.kind_of(ref.api_version, ref.kind), self.existing(ref)
        before = _without_managed_fields(live)
        given = new["metadata"].pop("managedFields", None)
        entries = read_managed_fields(live["metadata"].get("managedFields"))
        if given in ([], [{}]) and not subresource:
            entries = {}
        elif given and not subresource:
            entries = read_managed_fields(given)
        writer = FieldManager(
            manager=manager, operation=UPDATE, api_version=ref.api_version, subresource=subresource
        )
        new = self._complete(kind, _undo_forbidden(new, before, kind, subresource), live)
        if entries and subresource == "scale":
            if new != before:
                entries = ownership_after_scale(entries, writer)
        elif entries:  # an object without entries is not tracked until it is applied
            entries = ownership_after_update(
                before, new, entries, writer, kind.schema, now=self.now()
            )
        return self._save(kind, ref, new, live, entries, subresource)

    def delete(self, ref: ObjectRef) -> None:
        """Delete an object, or mark it as terminating while it has finalizers."""
        live = self.items[ref]
        if not live["metadata"].get("finalizers"):
            self._commit(ref, None)
        elif "deletionTimestamp" not in live["metadata"]:
            going = clone(live)
            metadata = going["metadata"]
            metadata["deletionTimestamp"] = self.now()
            metadata["deletionGracePeriodSeconds"] = 0
            if "generation" in metadata:
                metadata["generation"] += 1
            self._commit(ref, going)

    def _complete(self, kind: MemoryKind, new: Object, live: Object | None) -> Object:
        """Give an object its defaults and the metadata that only the server writes."""
        metadata = new["metadata"]
        for name in _SERVER_FIELDS:
            metadata.pop(name, None)
            if live is not None and name in live["metadata"]:
                metadata[name] = live["metadata"][name]
        if live is None:
            metadata["uid"] = str(uuid.uuid4())
            metadata["creationTimestamp"] = self.now()
            if kind.counted is not None:
                metadata["generation"] = 1
            if kind.status:
                new.pop("status", None)
        drop_empty_fields(new)
        if not kind.custom:
            check_object(new, live)
            number = self.version + 1
            fill_defaults(new, address=f"10.96.{number // 250 % 250}.{number % 250 + 1}")
        return new

    def _save(
        self,
        kind: MemoryKind,
        ref: ObjectRef,
        new: Object,
        live: Object | None,
        entries: ManagedFields,
        subresource: str = "",
        *,
        dry_run: bool = False,
    ) -> Object:
        """Store an object if anything but a time has changed."""
        managed = write_managed_fields(entries)
        if live is not None:
            old = live["metadata"].get("managedFields", [])
            if new == _without_managed_fields(live) and without_times(managed) == without_times(
                old
            ):
                return live
            if kind.counted is not None and subresource != "status":
                moved = _generation_basis(new, kind) != _generation_basis(live, kind)
                new["metadata"]["generation"] = live["metadata"]["generation"] + moved
        if managed:
            new["metadata"]["managedFields"] = managed
        if not dry_run:
            self._commit(ref, new)
        return new

    def _commit(self, ref: ObjectRef, new: Object | None) -> None:
        self.version += 1
        old = self.items.pop(ref, None)
        if new is not None:
            metadata = new["metadata"]
            metadata["resourceVersion"] = str(self.version)
            if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
                new = None
        if new is not None:
            self.items[ref] = new
        self.log.record(ObjectChange(version=self.version, old=old, new=clone(new)))
        if new is None and old is not None:
            self._collect(old["metadata"]["uid"])

    def _collect(self, uid: str) -> None:
        """Delete what the object with this uid owned; what others own too only lets go of it."""
        there = {item["metadata"]["uid"] for item in self.items.values()}
        for ref, item in sorted(self.items.items()):
            owners = item["metadata"].get("ownerReferences", ())
            if ref not in self.items or not any(owner["uid"] == uid for owner in owners):
                continue
            left = [owner for owner in owners if owner["uid"] in there]
            if left:
                new = clone(item)
                new["metadata"]["ownerReferences"] = clone(left)
                self.update(ref, new, "kube-controller-manager", "")
            else:
                self.delete(ref)


def _applied_part(item: Object, kind: MemoryKind, subresource: str) -> Object:
    """Return the part of an applied object that the endpoint takes, without its guards."""
    config: Object = clone(item)
    metadata = config["metadata"]
    if metadata.get("managedFields"):
        raise ValidationError(f"{ref_of(item)} cannot be applied with managedFields.")
    if subresource == "status":
        metadata = {name: metadata[name] for name in ("name", "namespace") if name in metadata}
        identity = {"apiVersion": config["apiVersion"], "kind": config["kind"]}
        return {**identity, "metadata": metadata, "status": config.get("status", {})}
    for name in _SERVER_FIELDS:
        metadata.pop(name, None)
    if kind.status:
        config.pop("status", None)
    return config


def _undo_forbidden(new: Object, live: Object, kind: MemoryKind, subresource: str) -> Object:
    """Undo what an update may not change through its endpoint."""
    if subresource == "scale":
        spec = {**live["spec"], "replicas": new["spec"]["replicas"]}
        return {**clone(live), "spec": clone(spec)}
    if subresource == "status":
        if kind.custom:
            return {**clone(live), "status": new.get("status")}
        metadata = {**new["metadata"], "labels": clone(live["metadata"].get("labels"))}
        return {**new, "metadata": metadata, "spec": clone(live.get("spec"))}
    return {**new, "status": clone(live.get("status"))} if kind.status else new


def _unallocated(item: Object) -> Object:
    """Leave out what the server itself chose for a Service: that has no owner."""
    if item["kind"] != "Service":
        return item
    chosen = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
    spec = {name: value for name, value in item["spec"].items() if name not in chosen}
    return {**item, "spec": spec}


def _generation_basis(item: Object, kind: MemoryKind) -> list[object]:
    if not kind.counted:
        return [value for name, value in sorted(item.items()) if name not in ("metadata", "status")]
    parts: list[object] = []
    for path in kind.counted:
        part = item
        for name in path.split("."):
            part = part.get(name) or {}
        parts.append(part)
    return parts


def _without_managed_fields(item: Object) -> Object:
    bare: Object = clone(item)
    bare["metadata"].pop("managedFields", None)
    return bare
