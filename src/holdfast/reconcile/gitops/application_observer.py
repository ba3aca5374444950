"""Observes an application's objects and orphans under its rules, and records what was learned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from holdfast.core.errors import AuthError, PermissionDenied, TargetUnavailable
from holdfast.core.gitops.application import OrphanPolicy
from holdfast.core.gitops.health import health_of
from holdfast.core.gitops.ignore import ignore_rules_of
from holdfast.core.gitops.model_pins import model_findings
from holdfast.core.gitops.objects import APPLICATION_LABEL, ObjectHealth, ObservedObject, SyncStatus
from holdfast.core.gitops.owners import ORPHAN_KINDS, is_orphan, object_keys
from holdfast.core.gitops.records import AppliedObject
from holdfast.core.gitops.routes import hide_ignored
from holdfast.core.gitops.source import RenderedSource
from holdfast.core.gitops.track import added_paths, is_from_adoption
from holdfast.core.object_cost import delete_cost
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

    async def find(
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
                        health, message = health_of(item)
                        found.append(
                            ObservedObject(
                                ref=ref,
                                sync_status=SyncStatus.ORPHAN,
                                health=health,
                                live=item,
                                message=message,
                                cost=delete_cost(item),
                            )
                        )
        return tuple(found)


def _unreadable_orphans(
    context: ApplicationContext, scope: Scope, known: Collection[ObjectRef], message: str
) -> list[ObservedObject]:
    """Orphans that were found before, and cannot be looked at now."""
    return [
        ObservedObject(
            ref=drift.object,
            sync_status=SyncStatus.UNKNOWN,
            health=ObjectHealth.UNKNOWN,
            message=message,
        )
        for drift in context.state.drifts.values()
        if drift.object not in known
        and (drift.object.kind, drift.object.namespace) == (scope.kind, scope.namespace)
    ]


class ApplicationObserver:
    """Makes looks, for passes and for who is about to write."""

    def __init__(
        self,
        objects: ObjectObserver,
        orphans: OrphanFinder,
        clock: Clock,
        *,
        measure: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`measure` is entered for each observation of everything."""
        self._objects = objects
        self._orphans = orphans
        self._clock = clock
        self._measure = measure

    def declared(self, context: ApplicationContext, rendered: RenderedSource) -> Declarations:
        """Return what a rendering asks for: the same as before where it is the same commit."""
        known = context.desired
        now = (rendered.commit, rendered.digest)
        if known is not None and (known.rendered.commit, known.rendered.digest) == now:
            return known
        return self._objects.declarations(rendered, context.application, known)

    async def observe(
        self, context: ApplicationContext, only: Collection[ObjectRef] | None
    ) -> tuple[ObservedObject, ...]:
        """Look at everything, or `only` at some objects."""
        with nullcontext() if only is not None else self._measure():
            return await self._observe(context, only)

    async def _observe(
        self, context: ApplicationContext, only: Collection[ObjectRef] | None
    ) -> tuple[ObservedObject, ...]:
        desired, state = context.desired, context.state
        assert desired is not None  # noqa: S101  # there is nothing to compare with before
        observations = await self._objects.observe(
            desired,
            state.inventory,
            ignore=self._rules(context),
            label=context.application.id.label,
            only=only,
        )
        for applied in observations.learned:
            state.put_applied(applied)
        drift = context.application.spec.drift
        routes = (drift.routes if drift else None) or ()
        found = observations.observed
        if drift is not None and drift.model_heads:
            found = tuple(map(_with_model_head, found))
        declared_objects = tuple(
            self._with_adoption(context, hide_ignored(each, routes)) for each in found
        )
        observed = (*declared_objects, *await self._orphans.find(context, only))
        if only is None:
            context.object_states.clear()
        else:
            observed = (*observed, *_absent_objects({*only} - {each.ref for each in observed}))
        context.remember(observed)
        if only is None:
            context.compared = desired.rendered
        for each in observed:
            _update_inventory(context, each)
        return observed

    async def observe_one(self, context: ApplicationContext, ref: ObjectRef) -> ObservedObject:
        """Look at one object again."""
        return next(each for each in await self.observe(context, {ref}) if each.ref == ref)

    def _with_adoption(
        self, context: ApplicationContext, observed: ObservedObject
    ) -> ObservedObject:
        """Add what others had on an object when it was taken over, as far as it is still there.

        One that is ours by its marks alone, and in no inventory, is taken over now.
        """
        if observed.live is None or observed.diff is None or not observed.applied:
            return observed
        applied, additions = context.state.inventory.get(observed.ref), added_paths(observed)
        if applied is None:
            return replace(observed, found=additions)
        found = tuple(
            each for each in applied.found if any(is_from_adoption(p, [each]) for p in additions)
        )
        if found != applied.found:
            context.state.put_applied(replace(applied, found=found))
        return replace(observed, found=found)

    def _rules(self, context: ApplicationContext) -> tuple[IgnoreRule, ...]:
        spec = context.application.spec.drift
        now = self._clock.now()
        kept = (
            IgnoreRule(
                name=rule.name,
                owner=rule.owner,
                glob=rule.path,
                manager=rule.manager,
                kind=rule.kind,
                object_name=rule.object_name,
                namespace=rule.namespace,
                expires=rule.expires,
            )
            for rule in context.state.rules.values()
            if rule.expires > now
        )
        return (*ignore_rules_of((spec.ignore if spec else None) or ()), *kept)


def _with_model_head(observed: ObservedObject) -> ObservedObject:
    """Add that the branch of a pinned model moved on, where Git declares the pin that runs."""
    if observed.declared is None or observed.live is None or observed.diff is None:
        return observed
    if observed.sync_status not in (SyncStatus.IN_SYNC, SyncStatus.DRIFTED):
        return observed  # what Git declares now is on its way
    findings = tuple(model_findings(observed.declared.item, observed.live))
    if not findings:
        return observed
    running = (*observed.running, *findings)
    return replace(observed, running=running, sync_status=SyncStatus.DRIFTED)


def _absent_objects(refs: Collection[ObjectRef]) -> Iterator[ObservedObject]:
    """Objects that nobody declares and that are not there: all is well with them."""
    for ref in sorted(refs):
        yield ObservedObject(ref=ref, sync_status=SyncStatus.PRUNABLE, health=ObjectHealth.MISSING)


def _update_inventory(context: ApplicationContext, observed: ObservedObject) -> None:
    """Forget what is known to be gone, and take up again what is ours by its marks."""
    state, live, desired = context.state, observed.live, context.desired
    if observed.sync_status is SyncStatus.PRUNABLE and (
        live is None or _is_replaced(context, observed)
    ):
        state.drop_applied(observed.ref)
        context.object_states.pop(observed.ref, None)
    elif live is not None and observed.applied and observed.ref not in state.inventory and desired:
        state.put_applied(
            AppliedObject(
                ref=observed.ref,
                uid=str(value_at(live, ("metadata", "uid"))),
                commit=desired.rendered.commit,
                declaration=desired.of(observed.ref).digest,
                found=observed.found,
            )
        )


def _is_replaced(context: ApplicationContext, observed: ObservedObject) -> bool:
    """True for what others made anew under a name that was ours, and is not declared any more."""
    applied, live = context.state.inventory.get(observed.ref), observed.live or {}
    replaced = applied is not None and applied.uid != value_at(live, ("metadata", "uid"))
    return (
        replaced
        and value_at(live, ("metadata", "labels", APPLICATION_LABEL))
        != context.application.id.label
    )
