"""The objects of the memory cluster, and how each kind of write is carried out.

Defaults, generations, guards, finalizers and garbage collection are here; who owns what is in
`ownership`. Called by the cluster alone, which copies what it hands out.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from holdfast.adapters.memory.kube import ownership
from holdfast.adapters.memory.kube.checks import check
from holdfast.adapters.memory.kube.defaults import complete, tidy
from holdfast.adapters.memory.kube.events import Happened, Log
from holdfast.adapters.memory.kube.fieldset import clone
from holdfast.adapters.memory.kube.kinds import Kind, Object
from holdfast.adapters.memory.kube.ownership import APPLY, UPDATE, Entries, Owned, Writer
from holdfast.adapters.memory.kube.structure import check_structure
from holdfast.core.errors import NotFound, ValidationError
from holdfast.reconcile.kube import (
    ConflictReason,
    KindNotServed,
    KubeConflict,
    ObjectRef,
    ref_of,
)
from holdfast.reconcile.ports import Clock

FIRST_VERSION = 1000
_SERVERS = frozenset({
    "uid", "creationTimestamp", "resourceVersion", "generation", "deletionTimestamp",
    "deletionGracePeriodSeconds",
})  # fmt: skip
"""Metadata that only the server writes."""


class Store:
    """All objects at their present version."""

    def __init__(self, *, clock: Clock, kinds: Iterable[Kind], history: int) -> None:
        self._clock = clock
        self.kinds = {(kind.api_version, kind.kind): kind for kind in kinds}
        self.away: set[str] = set()
        """The names of kinds that are not served at the moment."""
        self.items: dict[ObjectRef, Object] = {}
        self.version = FIRST_VERSION
        self.log = Log(first=FIRST_VERSION, kept=history)

    def kind_of(self, api_version: str, kind: str) -> Kind:
        """Return a kind that is served. Raises KindNotServed."""
        found = self.kinds.get((api_version, kind))
        if found is None or kind in self.away:
            raise KindNotServed(f"The cluster serves no kind {kind} in {api_version}.")
        return found

    def there(self, ref: ObjectRef) -> Object:
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
        new = self._completed(kind, clone(item), None)
        writer = Writer(manager=manager, operation=UPDATE, api_version=kind.api_version)
        entries = ownership.create(_unallocated(new), writer, kind, now=self.now())
        return self._stored(kind, ref, new, None, entries)

    def apply(
        self, item: Object, manager: str, subresource: str, *, force: bool, dry_run: bool
    ) -> Object:
        """Apply an object."""
        ref = ref_of(item)
        kind, live = self.kind_of(ref.api_version, ref.kind), self.items.get(ref)
        uid, version = (item["metadata"].get(name) for name in ("uid", "resourceVersion"))
        check_structure(item)
        if live is None and uid:
            raise KubeConflict(f"{ref} with uid {uid} is gone.", reason=ConflictReason.REPLACED)
        if live is None and subresource:
            raise NotFound(f"There is no {ref}.")
        writer = Writer(
            manager=manager,
            operation=APPLY,
            api_version=ref.api_version,
            subresource=subresource,
        )
        try:
            new, entries = ownership.apply(
                _unmanaged(live) if live else {},
                _config(item, kind, subresource),
                ownership.read(live["metadata"].get("managedFields")) if live else {},
                writer,
                kind,
                force=force,
                now=self.now(),
            )
        except Owned as owned:
            raise KubeConflict(
                f"Applying {ref} conflicts with {len(owned.owners)} fields of other managers.",
                reason=ConflictReason.OWNED,
                owners=owned.owners,
            ) from None
        if live is not None and version not in (None, "", "0", live["metadata"]["resourceVersion"]):
            raise KubeConflict(f"{ref} has been modified.", reason=ConflictReason.CHANGED)
        if live is not None and uid and uid != live["metadata"]["uid"]:
            raise KubeConflict(f"{ref} was replaced.", reason=ConflictReason.REPLACED)
        new = self._completed(kind, new, live)
        return self._stored(kind, ref, new, live, entries, subresource, dry_run=dry_run)

    def update(self, ref: ObjectRef, new: Object, manager: str, subresource: str) -> Object:
        """Replace an object for a plain client. Its managedFields count, as on a real server."""
        kind, live = self.kind_of(ref.api_version, ref.kind), self.there(ref)
        before = _unmanaged(live)
        given = new["metadata"].pop("managedFields", None)
        entries = ownership.read(live["metadata"].get("managedFields"))
        if given in ([], [{}]) and not subresource:
            entries = {}
        elif given and not subresource:
            entries = ownership.read(given)
        writer = Writer(
            manager=manager,
            operation=UPDATE,
            api_version=ref.api_version,
            subresource=subresource,
        )
        new = self._completed(kind, _reset(new, before, kind, subresource), live)
        if entries and subresource == "scale":
            if new != before:
                entries = ownership.scale(entries, writer)
        elif entries:  # an object without entries is not tracked until it is applied
            entries = ownership.update(before, new, entries, writer, kind.schema, now=self.now())
        return self._stored(kind, ref, new, live, entries, subresource)

    def delete(self, ref: ObjectRef) -> None:
        """Delete an object, or mark it as going while it has finalizers."""
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

    def _completed(self, kind: Kind, new: Object, live: Object | None) -> Object:
        """Give an object its defaults and the metadata that only the server writes."""
        metadata = new["metadata"]
        for name in _SERVERS:
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
        tidy(new)
        if not kind.custom:
            check(new, live)
            number = self.version + 1
            complete(new, address=f"10.96.{number // 250 % 250}.{number % 250 + 1}")
        return new

    def _stored(
        self,
        kind: Kind,
        ref: ObjectRef,
        new: Object,
        live: Object | None,
        entries: Entries,
        subresource: str = "",
        *,
        dry_run: bool = False,
    ) -> Object:
        """Store an object if anything but a time has changed."""
        managed = ownership.write(entries)
        if live is not None:
            old = live["metadata"].get("managedFields", [])
            if new == _unmanaged(live) and ownership.untimed(managed) == ownership.untimed(old):
                return live
            if kind.counted is not None and subresource != "status":
                moved = _counted(new, kind) != _counted(live, kind)
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
        self.log.record(Happened(version=self.version, old=old, new=clone(new)))
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


def _config(item: Object, kind: Kind, subresource: str) -> Object:
    """Return the part of an applied object that the endpoint takes, without its guards."""
    config: Object = clone(item)
    metadata = config["metadata"]
    if metadata.get("managedFields"):
        raise ValidationError(f"{ref_of(item)} cannot be applied with managedFields.")
    if subresource == "status":
        metadata = {name: metadata[name] for name in ("name", "namespace") if name in metadata}
        identity = {"apiVersion": config["apiVersion"], "kind": config["kind"]}
        return {**identity, "metadata": metadata, "status": config.get("status", {})}
    for name in _SERVERS:
        metadata.pop(name, None)
    if kind.status:
        config.pop("status", None)
    return config


def _reset(new: Object, live: Object, kind: Kind, subresource: str) -> Object:
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


def _counted(item: Object, kind: Kind) -> list[object]:
    if not kind.counted:
        return [value for name, value in sorted(item.items()) if name not in ("metadata", "status")]
    parts: list[object] = []
    for path in kind.counted:
        part = item
        for name in path.split("."):
            part = part.get(name) or {}
        parts.append(part)
    return parts


def _unmanaged(item: Object) -> Object:
    bare: Object = clone(item)
    bare["metadata"].pop("managedFields", None)
    return bare
