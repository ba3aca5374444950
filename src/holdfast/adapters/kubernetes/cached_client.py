"""A cluster whose reads come from informers, so that observing without drift costs no request.

Writes go through, and their results are taken into the informers at once: the writer reads them
back before the watch reports them. Kinds without an informer are read from the API, or followed
from then on where the owner of the client provides for that. Used by both controllers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

from holdfast.adapters.kubernetes.informer import Informer, PackedObject, unpack_object
from holdfast.adapters.kubernetes.objects import Object, equal_except_status, matches_selector
from holdfast.core.errors import AuthError, PermissionDenied, ValidationError
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import (
    ConflictReason,
    KindNotServed,
    KubeClient,
    KubeConflict,
    ObjectList,
    ObjectRef,
    Scope,
    WatchEvent,
    ref_of,
)

_REMEMBERED_LIMIT = 5_000
_REFUSALS = (PermissionDenied, AuthError)

StartInformer = Callable[[str, str, str], Awaitable[None]]
"""Begins to follow an API version and kind in a namespace, and waits for its first list for a
while. Raises the reason when what there is of the kind is unknown."""


class CachedKubeClient:
    """Implements the port over another client and the informers of some kinds."""

    def __init__(
        self,
        client: KubeClient,
        informers: Iterable[Informer] = (),
        *,
        follow: StartInformer | None = None,
    ) -> None:
        """`follow` is called for what no informer has; it may `add` one."""
        self._client = client
        self._follow = follow
        self._informers: dict[tuple[str, str], list[Informer]] = {}
        self._doubtful: dict[ObjectRef, None] = {}
        """No longer selected: deleted, or only without the label. Read from the API."""
        self._given: dict[ObjectRef, PackedObject] = {}
        """What was read last, for a write that is guarded by it."""
        for informer in informers:
            self.add(informer)

    def add(self, informer: Informer) -> None:
        """Read from one more informer, once it has its first list."""
        resource = informer.scope.resource
        self._informers.setdefault((resource.api_version, resource.kind), []).append(informer)
        if informer.scope.labels:
            informer.add_handler(self._on_change)

    def remove(self, informer: Informer) -> None:
        """Read no longer from an informer."""
        resource = informer.scope.resource
        held = self._informers.get((resource.api_version, resource.kind), [])
        if informer in held:
            held.remove(informer)
        if not held:
            self._informers.pop((resource.api_version, resource.kind), None)

    async def get(self, ref: ObjectRef) -> Fields | None:
        """Return a copy of what the informer has; see the port."""
        informer = await self._require_informer(ref.api_version, ref.kind, ref.namespace)
        if informer is None:
            return await self._client.get(ref)
        held = informer.packed(ref.name, ref.namespace)
        if held is not None:
            self._remember(ref, held)
            return unpack_object(held)
        if ref not in self._doubtful:
            return None
        live = await self._client.get(ref)
        if live is None:
            self._doubtful.pop(ref, None)
        return live

    async def list(self, scope: Scope) -> ObjectList:
        """Return copies of what the informer has; see the port."""
        informer = await self._require_informer(scope.api_version, scope.kind, scope.namespace)
        if informer is None or scope.fields or not _covers(scope, informer):
            return await self._client.list(scope)
        named = (key for key in informer.names() if scope.namespace in ("", key.namespace))
        found = (informer.get(key.name, key.namespace) for key in named)
        items = [
            item
            for item in found
            if item is not None
            and matches_selector(scope.labels, item["metadata"].get("labels") or {})
        ]
        return ObjectList(items=items, version=informer.version)

    def watch(self, scope: Scope, *, version: str) -> AsyncIterator[WatchEvent]:
        """Follow the API itself; see the port."""
        return self._client.watch(scope, version=version)

    async def apply(
        self,
        item: Object,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
        absent: bool = False,
        subresource: str = "",
    ) -> Fields:
        """Apply through the API and take in the result; see the port.

        A guard by version holds for what the caller read and compared. A status that moved on
        meanwhile does not count: during a rollout it moves faster than anyone can write.
        """
        ref = ref_of(item)
        observed = None if subresource else self._observed_by_caller(ref, item)
        item = self._with_current_version(ref, item, observed)
        for last in (False, False, False, True):
            try:
                result = await self._client.apply(
                    item,
                    manager=manager,
                    force=force,
                    dry_run=dry_run,
                    absent=absent,
                    subresource=subresource,
                )
                break
            except KubeConflict as conflict:
                if conflict.reason is ConflictReason.EXISTS:
                    self._doubt(ref)
                if conflict.reason is not ConflictReason.CHANGED or observed is None or last:
                    raise
                await self._read_again(ref)
                renewed = self._with_current_version(ref, item, observed)
                if renewed is item:
                    raise
                item = renewed
        if not dry_run:
            self._accept(result)
        return result

    def _observed_by_caller(self, ref: ObjectRef, item: Object) -> PackedObject | None:
        """Return what the caller compared: the version that guards the write."""
        given = self._given.get(ref)
        guard = item["metadata"].get("resourceVersion")
        return given if given is not None and given.version == guard else None

    def _with_current_version(
        self, ref: ObjectRef, item: Object, observed: PackedObject | None
    ) -> Object:
        """Move the guard on to the version known now, if only the status has changed since."""
        if observed is None:
            return item
        metadata = item["metadata"]
        informer = self._informer(ref.api_version, ref.kind, ref.namespace)
        now = informer.packed(ref.name, ref.namespace) if informer else None
        if now is None or now.version == metadata["resourceVersion"] or now.uid != observed.uid:
            return item
        if not equal_except_status(unpack_object(observed), unpack_object(now)):
            return item
        return {**item, "metadata": {**metadata, "resourceVersion": now.version}}

    async def patch(
        self, ref: ObjectRef, operations: Sequence[Fields], *, manager: str, subresource: str = ""
    ) -> Fields:
        """Patch through the API and take in the result; see the port."""
        try:
            result = await self._client.patch(
                ref, operations, manager=manager, subresource=subresource
            )
        except ValidationError:
            await self._read_again(ref)
            raise
        if subresource != "scale":  # its result is an object of another kind
            self._accept(result)
        return result

    async def delete(self, ref: ObjectRef, *, uid: str = "", version: str = "") -> bool:
        """Delete through the API; see the port. The watch reports when it is gone."""
        try:
            return await self._client.delete(ref, uid=uid, version=version)
        except KubeConflict:
            await self._read_again(ref)
            raise

    async def _read_again(self, ref: ObjectRef) -> None:
        """Take in the live object: a refusal may be about a version the watch has not reported."""
        live = await self._client.get(ref)
        if live is not None:
            self._accept(live)

    async def _require_informer(
        self, api_version: str, kind: str, namespace: str
    ) -> Informer | None:
        found = self._informer(api_version, kind, namespace)
        if found is None and self._follow is not None:
            await self._follow(api_version, kind, namespace)
            found = self._informer(api_version, kind, namespace)
        # A right that was taken away leaves a copy behind that nobody keeps up to date.
        if found is not None and self._follow and isinstance(found.error, _REFUSALS):
            raise found.error
        if found is not None and (outdated := found.outdated) is not None:
            raise outdated
        return found

    def _informer(self, api_version: str, kind: str, namespace: str) -> Informer | None:
        for informer in self._informers.get((api_version, kind), ()):
            if informer.scope.namespace in ("", namespace):
                if not informer.served:
                    raise KindNotServed(f"The cluster serves no kind {kind} in {api_version}.")
                if informer.has_synced:
                    return informer
        return None

    def _accept(self, item: Object) -> None:
        ref = ref_of(item)
        for informer in self._informers.get((ref.api_version, ref.kind), ()):
            informer.accept(item)
            held = informer.packed(ref.name, ref.namespace)
            if held is not None:
                self._remember(ref, held)

    def _remember(self, ref: ObjectRef, held: PackedObject) -> None:
        self._given.pop(ref, None)
        self._given[ref] = held
        if len(self._given) > _REMEMBERED_LIMIT:
            del self._given[next(iter(self._given))]

    def _on_change(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self._doubtful.pop(ref_of(new), None)
        elif old is not None:
            self._doubt(ref_of(old))

    def _doubt(self, ref: ObjectRef) -> None:
        self._doubtful[ref] = None
        # Most are really gone, and nobody reads them again.
        if len(self._doubtful) > _REMEMBERED_LIMIT:
            del self._doubtful[next(iter(self._doubtful))]


def _covers(scope: Scope, informer: Informer) -> bool:
    """True when the informer has everything that a list selects."""
    selected = set(filter(None, scope.labels.split(",")))
    return not scope.fields and selected >= set(filter(None, informer.scope.labels.split(",")))
