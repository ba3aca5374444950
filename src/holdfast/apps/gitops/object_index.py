"""From what happened to an object to the objects that have to be looked at. Pure.

Called for every event, so it stays cheap: a status that only counts or only ticks is no news.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from holdfast.adapters.kubernetes.objects import Object, equal_except_status
from holdfast.apps.gitops.watches import (
    AUTOSCALER_KIND,
    POD_KIND,
    SCALABLE_KINDS,
    WatchedKind,
    scale_targets,
    secrets_of_pod,
    workloads_of_pod,
)
from holdfast.core.gitops.application import ApplicationId, OrphanPolicy
from holdfast.core.gitops.health import health_of
from holdfast.core.gitops.model_pins import model_head
from holdfast.core.gitops.objects import DuplicateDeclaration
from holdfast.core.gitops.owners import ORPHAN_KINDS
from holdfast.core.gitops.pods import WORKLOADS, is_rolled_out
from holdfast.core.gitops.source import RenderedSource
from holdfast.core.object_ref import ObjectRef, ref_of
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_state import ApplicationState

VersionlessRef = tuple[str, str, str, str]
"""Group, kind, namespace and name: its version may change while it stays the same object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedObject:
    """One object to look at."""

    ref: ObjectRef
    soon: bool = False
    """Only its status says something new, which comes in bursts and is no hurry."""
    own: bool = True
    """False for an object that is looked at because of another one."""
    kept: bool = False
    """A controller made it, so that it is nobody's orphan."""


def versionless_ref(ref: ObjectRef) -> VersionlessRef:
    """Name an object whatever the version of its API."""
    return (ref.group, ref.kind, ref.namespace, ref.name)


def affected_objects(old: Object | None, new: Object | None) -> Iterator[AffectedObject]:
    """Say what has to be looked at."""
    item = new if new is not None else old
    if item is None:
        return
    ref = ref_of(item)
    kept = any(each.get("controller") for each in item["metadata"].get("ownerReferences") or ())
    if old is None or new is None or not equal_except_status(old, new):
        yield AffectedObject(ref=ref, kept=kept)
    elif _status_summary(old) != _status_summary(new):
        yield AffectedObject(ref=ref, soon=True, kept=kept)
    if ref.kind == "HorizontalPodAutoscaler" and _scale_targets(old) != _scale_targets(new):
        for target in {*_scale_targets(old), *_scale_targets(new)}:
            yield AffectedObject(ref=target, own=False)
    if ref.kind == "Pod" and not ref.group and _running_images(old) != _running_images(new):
        for each in (*workloads_of_pod(item), *secrets_of_pod(item)):
            yield AffectedObject(ref=each, soon=True, own=False)


def _status_summary(item: Object) -> tuple[object, ...]:
    """What a status tells us: how the object does, whether all its pods are its newest, and
    where the branch of its model is."""
    ready = is_rolled_out(item) if item.get("kind") in WORKLOADS else None
    return (*health_of(item), ready, model_head(item))


def _scale_targets(item: Object | None) -> frozenset[ObjectRef]:
    return frozenset(scale_targets(item)) if item is not None else frozenset()


def _running_images(pod: Object | None) -> object:
    """Which images run in a pod, and since when."""
    statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    return [
        (each.get("name"), each.get("imageID"), (each.get("state") or {}).get("running"))
        for each in statuses
    ]


class ObjectClaims:
    """Who has what. After a start the inventories count until declarations are known."""

    def __init__(self) -> None:
        self._owner: dict[VersionlessRef, ApplicationId] = {}
        self._held: dict[ApplicationId, set[VersionlessRef]] = {}
        self._changes = 0
        self._settled: dict[ApplicationId, tuple[RenderedSource, int, int]] = {}
        """What was claimed last, with the application's inventory and all claims as they were."""

    def stands(self, application: ApplicationId, rendered: RenderedSource, members: int) -> bool:
        """True when nothing moved since an application settled on what it declares."""
        known = self._settled.get(application)
        if known is None or known[0] is not rendered:
            return False
        return known[1:] == (members, self._changes)

    def settle(self, application: ApplicationId, rendered: RenderedSource, members: int) -> None:
        """Remember that an application has all that it declares, with so many changes of what
        it applied."""
        self._settled[application] = (rendered, members, self._changes)

    def seed(self, application: ApplicationId, applied: Iterable[ObjectRef]) -> None:
        """Take up what an application applied before."""
        self._changes += 1
        self._take(application, [versionless_ref(ref) for ref in applied])

    def claim(
        self, application: ApplicationId, declared: Collection[ObjectRef]
    ) -> DuplicateDeclaration | None:
        """Give an application what it declares and nothing else.

        Where another has one of the objects, nothing changes, and that is returned.
        """
        for ref in sorted(declared):
            owner = self._owner.get(versionless_ref(ref), application)
            if owner != application:
                return DuplicateDeclaration(object=ref, owner=owner)
        names = {versionless_ref(ref) for ref in declared}
        if names == self._held.get(application):
            return None
        self._changes += 1
        for name in self._held.get(application, set()) - names:
            self._owner.pop(name, None)
        self._held[application] = set()
        self._take(application, names)
        return None

    def owner(self, ref: ObjectRef) -> ApplicationId | None:
        """Return whose an object is."""
        return self._owner.get(versionless_ref(ref))

    def release(self, application: ApplicationId) -> None:
        """Give everything back that an application had."""
        self._changes += 1
        self._settled.pop(application, None)
        for name in self._held.pop(application, set()):
            self._owner.pop(name, None)

    def _take(self, application: ApplicationId, names: Iterable[VersionlessRef]) -> None:
        held = self._held.setdefault(application, set())
        for name in names:
            if self._owner.setdefault(name, application) == application:
                held.add(name)


class ObjectIndex:
    """What applications declare, applied, and own."""

    def __init__(self) -> None:
        self._by_name: dict[VersionlessRef, dict[ApplicationId, ObjectRef]] = {}
        self._names: dict[ApplicationId, dict[VersionlessRef, ObjectRef]] = {}
        self._owners: dict[str, set[ApplicationId]] = {}
        """Namespaces to the applications whose own they are."""
        self._needed_kinds: dict[ApplicationId, frozenset[WatchedKind]] = {}
        self._indexed: dict[
            ApplicationId, tuple[RenderedSource | None, ApplicationState, int, tuple[str, ...]]
        ] = {}
        """What was taken last: as long as it is the same, there is nothing to do."""

    def update(self, context: ApplicationContext, rendered: RenderedSource | None) -> bool:
        """Bring it to what is known of an application; True when other kinds are needed now."""
        id, state = context.application.id, context.state
        owned = _owned_namespaces(context)
        known = self._indexed.get(id, (None, None))
        same = known[0] is rendered and known[1] is state
        if same and known[2:] == (state.members, owned):
            return False
        declared = rendered.objects if rendered is not None else ()
        refs = {*(each.ref for each in declared), *state.inventory}
        names = {versionless_ref(ref): ref for ref in refs}
        before = self._needed_kinds.get(id)
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
        self._needed_kinds[id] = frozenset(_needed_kinds(refs, owned))
        self._indexed[id] = (rendered, state, state.members, owned)
        return self._needed_kinds[id] != before

    def drop(self, id: ApplicationId) -> None:
        """Forget an application."""
        for name in self._names.pop(id, {}):
            held = self._by_name.get(name, {})
            held.pop(id, None)
            if not held:
                self._by_name.pop(name, None)
        for ids in self._owners.values():
            ids.discard(id)
        self._needed_kinds.pop(id, None)
        self._indexed.pop(id, None)

    def concerned(self, affected: AffectedObject) -> Iterator[tuple[ApplicationId, ObjectRef]]:
        """Name the applications that an object concerns, each with its own name for it."""
        known = self._by_name.get(versionless_ref(affected.ref), {})
        yield from known.items()
        if affected.own and not affected.kept:
            for id in self._owners.get(affected.ref.namespace, ()):
                if id not in known:
                    yield id, affected.ref

    def sharing(self, id: ApplicationId) -> set[ApplicationId]:
        """Name the others that declared or applied an object of an application."""
        names = self._names.get(id, {})
        return {other for name in names for other in self._by_name.get(name, ())} - {id}

    def needing(self, watched: WatchedKind) -> Iterator[ApplicationId]:
        """Name the applications that a kind is followed for."""
        for id, places in self._needed_kinds.items():
            for each in places:
                same = (each.api_version, each.kind) == (watched.api_version, watched.kind)
                if same and watched.namespace in ("", each.namespace):
                    yield id
                    break

    @property
    def needed_kinds(self) -> frozenset[WatchedKind]:
        """Everything that has to be followed."""
        return frozenset().union(*self._needed_kinds.values())


def _owned_namespaces(context: ApplicationContext) -> tuple[str, ...]:
    spec = context.application.spec.drift
    if spec is None or spec.orphans is OrphanPolicy.IGNORE:
        return ()
    return spec.namespaces or ()


def _needed_kinds(refs: set[ObjectRef], owned: tuple[str, ...]) -> Iterator[WatchedKind]:
    kinds = set()
    for ref in refs:
        kinds.add((ref.api_version, ref.kind))
        yield WatchedKind(api_version=ref.api_version, kind=ref.kind, namespace=ref.namespace)
        if ref.kind in SCALABLE_KINDS:
            yield WatchedKind(
                api_version=AUTOSCALER_KIND[0], kind=AUTOSCALER_KIND[1], namespace=ref.namespace
            )
        if ref.kind in WORKLOADS or ref.kind == "Secret":
            yield WatchedKind(api_version=POD_KIND[0], kind=POD_KIND[1], namespace=ref.namespace)
    for namespace in owned:
        for api_version, kind in {*ORPHAN_KINDS, *kinds}:
            yield WatchedKind(api_version=api_version, kind=kind, namespace=namespace)
