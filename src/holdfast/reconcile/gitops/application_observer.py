"""Observes an application's objects and orphans under its rules, and records what was learned."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from holdfast.core.errors import AuthError, PermissionDenied, TargetUnavailable
from holdfast.core.gitops.application import OrphanPolicy
from holdfast.core.gitops.health import health_of
from holdfast.core.gitops.ignore import ignore_rules_of
from holdfast.core.gitops.objects import APPLICATION_LABEL, ObjectHealth, ObservedObject, SyncStatus
from holdfast.core.gitops.owners import ORPHAN_KINDS, is_orphan, object_keys
from holdfast.core.gitops.records import AppliedObject
from holdfast.core.gitops.routes import hide_ignored
from holdfast.core.gitops.source import RenderedSource
from holdfast.core.gitops.track import added_paths, is_from_adoption
from holdfast.core.object_ref import ObjectRef, ref_of
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.object_observer import Declarations, ObjectObserver
from holdfast.reconcile.kube import KubeClient, Scope
from holdfast.reconcile.ports import Clock


class OrphanFinder:
    """Looks through namespaces. A list that fails finds nothing, and forgets nothing."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def look(
        self, context: ApplicationContext, only: Collection[ObjectRef] | None
    ) -> tuple[ObservedObject, ...]:
        """Return the orphans of an application, `only` some objects if given."""
        spec = context.application.spec.drift
        if spec is None or not spec.namespaces or spec.orphans is OrphanPolicy.IGNORE:
            return ()
        assert context.desired is not None  # noqa: S101  # it was looked at
        known = {*context.desired.declared, *context.state.inventory}
        names = object_keys(known)
        kinds = {*ORPHAN_KINDS, *((ref.api_version, ref.kind) for ref in known)}
        if only is not None:
            kinds &= {(ref.api_version, ref.kind) for ref in only}
        found: list[ObservedObject] = []
        for api_version, kind in sorted(kinds):
            for namespace in spec.namespaces:
                if only is not None and not any(
                    (ref.kind, ref.namespace) == (kind, namespace) for ref in only
                ):
                    continue
                scope = Scope(api_version=api_version, kind=kind, namespace=namespace)
                try:
                    items = (await self._client.list(scope)).items
                except (TargetUnavailable, PermissionDenied, AuthError) as error:
                    found += _unreadable_orphans(context, scope, known, error.happened)
                    continue
                for item in items:
                    ref = ref_of(item)
                    if only is not None and ref not in only:
                        continue
                    if is_orphan(item, application=context.application.id, known=names):
                        health, told = health_of(item)
                        found.append(
                            ObservedObject(
                                ref=ref, standing=SyncStatus.ORPHAN, health=health, live=item,
                                message=told,
                            )
                        )  # fmt: skip
        return tuple(found)


def _unreadable_orphans(
    context: ApplicationContext, scope: Scope, known: Collection[ObjectRef], told: str
) -> list[ObservedObject]:
    """Orphans that were found before, and cannot be looked at now."""
    return [
        ObservedObject(
            ref=drift.object, standing=SyncStatus.UNKNOWN, health=ObjectHealth.UNKNOWN, message=told
        )
        for drift in context.state.drifts.values()
        if drift.object not in known
        and (drift.object.kind, drift.object.namespace) == (scope.kind, scope.namespace)
    ]  # fmt: skip


class ApplicationObserver:
    """Makes looks, for passes and for who is about to write."""

    def __init__(self, surveyor: ObjectObserver, orphans: OrphanFinder, clock: Clock) -> None:
        self._surveyor = surveyor
        self._orphans = orphans
        self._clock = clock

    def declared(self, context: ApplicationContext, rendered: RenderedSource) -> Declarations:
        """Return what a rendering asks for: the same as before where it is the same commit."""
        known = context.desired
        now = (rendered.commit, rendered.digest)
        if known is not None and (known.rendered.commit, known.rendered.digest) == now:
            return known
        return self._surveyor.declarations(rendered, context.application, known)

    async def at(
        self, context: ApplicationContext, only: Collection[ObjectRef] | None
    ) -> tuple[ObservedObject, ...]:
        """Look at everything, or `only` at some objects."""
        desired, state = context.desired, context.state
        assert desired is not None  # noqa: S101  # there is nothing to compare with before
        survey = await self._surveyor.survey(
            desired, state.inventory, ignore=self._rules(context),
            label=context.application.id.label, only=only,
        )  # fmt: skip
        for ref, images in survey.images.items():
            if (applied := state.inventory.get(ref)) is not None:
                state.put_applied(replace(applied, images=images))
        for ref, marks in survey.marks.items():
            if (applied := state.inventory.get(ref)) is not None:
                state.put_applied(replace(applied, marks=marks))
        for ref, data in survey.data.items():
            if (applied := state.inventory.get(ref)) is not None:
                state.put_applied(replace(applied, data=data))
        for ref, record in survey.values.items():
            if (applied := state.inventory.get(ref)) is not None:
                known = replace(applied, declaration=record.digest, values=record.values or "")
                state.put_applied(known)
        drift = context.application.spec.drift
        routes = (drift.routes if drift else None) or ()
        judged = tuple(self._recalled(context, hide_ignored(each, routes)) for each in survey.seen)
        seen = (*judged, *await self._orphans.look(context, only))
        if only is None:
            context.object_states.clear()
        else:
            seen = (*seen, *_absent_objects({*only} - {each.ref for each in seen}))
        context.remember(seen)
        if only is None:
            context.compared = desired.rendered
        for each in seen:
            _update_inventory(context, each)
        return seen

    async def at_one(self, context: ApplicationContext, ref: ObjectRef) -> ObservedObject:
        """Look at one object again."""
        return next(each for each in await self.at(context, {ref}) if each.ref == ref)

    def _recalled(self, context: ApplicationContext, seen: ObservedObject) -> ObservedObject:
        """Add what others had on an object when it was taken over, as far as it is still there.

        One that is ours by its marks alone, and in no inventory, is taken over now.
        """
        if seen.live is None or seen.diff is None or not seen.applied:
            return seen
        applied, there = context.state.inventory.get(seen.ref), added_paths(seen)
        if applied is None:
            return replace(seen, found=there)
        found = tuple(
            each for each in applied.found if any(is_from_adoption(p, [each]) for p in there)
        )
        if found != applied.found:
            context.state.put_applied(replace(applied, found=found))
        return replace(seen, found=found)

    def _rules(self, context: ApplicationContext) -> tuple[IgnoreRule, ...]:
        spec = context.application.spec.drift
        now = self._clock.now()
        kept = (
            IgnoreRule(
                name=rule.name, owner=rule.owner, glob=rule.path, manager=rule.manager,
                kind=rule.kind, object_name=rule.object_name, namespace=rule.namespace,
                expires=rule.expires,
            )
            for rule in context.state.rules.values()
            if rule.expires > now
        )  # fmt: skip
        return (*ignore_rules_of((spec.ignore if spec else None) or ()), *kept)


def _absent_objects(refs: Collection[ObjectRef]) -> Iterator[ObservedObject]:
    """Objects that nobody declares and that are not there: all is well with them."""
    for ref in sorted(refs):
        yield ObservedObject(ref=ref, standing=SyncStatus.PRUNABLE, health=ObjectHealth.MISSING)


def _update_inventory(context: ApplicationContext, seen: ObservedObject) -> None:
    """Forget what is known to be gone, and take up again what is ours by its marks."""
    state, live, desired = context.state, seen.live, context.desired
    if seen.standing is SyncStatus.PRUNABLE and (live is None or _is_replaced(context, seen)):
        state.drop_applied(seen.ref)
        context.object_states.pop(seen.ref, None)
    elif live is not None and seen.applied and seen.ref not in state.inventory and desired:
        state.put_applied(
            AppliedObject(
                ref=seen.ref, uid=str(value_at(live, ("metadata", "uid"))),
                commit=desired.rendered.commit, declaration=desired.of(seen.ref).digest,
                found=seen.found,
            )
        )  # fmt: skip


def _is_replaced(context: ApplicationContext, seen: ObservedObject) -> bool:
    """True for what others made anew under a name that was ours, and is not declared any more."""
    applied, live = context.state.inventory.get(seen.ref), seen.live or {}
    replaced = applied is not None and applied.uid != value_at(live, ("metadata", "uid"))
    return (
        replaced
        and value_at(live, ("metadata", "labels", APPLICATION_LABEL))
        != context.application.id.label
    )
