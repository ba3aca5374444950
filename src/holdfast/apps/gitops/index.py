"""Which applications an object concerns, and which kinds have to be followed for them."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.apps.gitops.mapping import Moved, Name, name_of
from holdfast.apps.gitops.surroundings import AUTOSCALERS, PODS, SCALED
from holdfast.apps.gitops.watching import Place
from holdfast.core.gitops.application import AppId, OrphanPolicy
from holdfast.core.gitops.orphans import KINDS
from holdfast.core.gitops.pods import WORKLOADS
from holdfast.core.gitops.source import Rendered
from holdfast.core.objects import ObjectRef
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.ledger import Shelf


class Index:
    """What applications declare, applied, and own."""

    def __init__(self) -> None:
        self._by_name: dict[Name, dict[AppId, ObjectRef]] = {}
        self._names: dict[AppId, dict[Name, ObjectRef]] = {}
        self._owners: dict[str, set[AppId]] = {}
        """Namespaces to the applications whose own they are."""
        self._places: dict[AppId, frozenset[Place]] = {}
        self._taken: dict[AppId, tuple[Rendered | None, Shelf, int, tuple[str, ...]]] = {}
        """What was taken last: as long as it is the same, there is nothing to do."""

    def take(self, following: Following, rendered: Rendered | None) -> bool:
        """Bring it to what is known of an application; True when other kinds are needed now."""
        id, shelf = following.application.id, following.shelf
        owned = _owned(following)
        known = self._taken.get(id, (None, None))
        same = known[0] is rendered and known[1] is shelf
        if same and known[2:] == (shelf.members, owned):
            return False
        declared = rendered.objects if rendered is not None else ()
        refs = {*(each.ref for each in declared), *shelf.inventory}
        names = {name_of(ref): ref for ref in refs}
        before = self._places.get(id)
        if names != self._names.get(id):
            self.drop(id)
            for name, ref in names.items():
                self._by_name.setdefault(name, {})[id] = ref
            self._names[id] = names
        for namespace, ids in self._owners.items():
            if namespace not in owned:
                ids.discard(id)
        for namespace in owned:
            self._owners.setdefault(namespace, set()).add(id)
        self._places[id] = frozenset(_places(refs, owned))
        self._taken[id] = (rendered, shelf, shelf.members, owned)
        return self._places[id] != before

    def drop(self, id: AppId) -> None:
        """Forget an application."""
        for name in self._names.pop(id, {}):
            held = self._by_name.get(name, {})
            held.pop(id, None)
            if not held:
                self._by_name.pop(name, None)
        for ids in self._owners.values():
            ids.discard(id)
        self._places.pop(id, None)
        self._taken.pop(id, None)

    def concerned(self, moved: Moved) -> Iterator[tuple[AppId, ObjectRef]]:
        """Name the applications that an object concerns, each with its own name for it."""
        known = self._by_name.get(name_of(moved.ref), {})
        yield from known.items()
        if moved.own and not moved.kept:
            for id in self._owners.get(moved.ref.namespace, ()):
                if id not in known:
                    yield id, moved.ref

    def sharing(self, id: AppId) -> set[AppId]:
        """Name the others that declared or applied an object of an application."""
        names = self._names.get(id, {})
        return {other for name in names for other in self._by_name.get(name, ())} - {id}

    def needing(self, place: Place) -> Iterator[AppId]:
        """Name the applications that a kind is followed for."""
        for id, places in self._places.items():
            for each in places:
                same = (each.api_version, each.kind) == (place.api_version, place.kind)
                if same and place.namespace in ("", each.namespace):
                    yield id
                    break

    @property
    def places(self) -> frozenset[Place]:
        """Everything that has to be followed."""
        return frozenset().union(*self._places.values())


def _owned(following: Following) -> tuple[str, ...]:
    spec = following.application.spec.drift
    if spec is None or spec.orphans is OrphanPolicy.IGNORE:
        return ()
    return spec.namespaces or ()


def _places(refs: set[ObjectRef], owned: tuple[str, ...]) -> Iterator[Place]:
    kinds = set()
    for ref in refs:
        kinds.add((ref.api_version, ref.kind))
        yield Place(api_version=ref.api_version, kind=ref.kind, namespace=ref.namespace)
        if ref.kind in SCALED:
            yield Place(api_version=AUTOSCALERS[0], kind=AUTOSCALERS[1], namespace=ref.namespace)
        if ref.kind in WORKLOADS or ref.kind == "Secret":
            yield Place(api_version=PODS[0], kind=PODS[1], namespace=ref.namespace)
    for namespace in owned:
        for api_version, kind in {*KINDS, *kinds}:
            yield Place(api_version=api_version, kind=kind, namespace=namespace)
