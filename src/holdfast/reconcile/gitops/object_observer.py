"""Observes declared and applied objects: reads them, and compares each with what is declared.

What Argo CD and Flux were told to ignore counts for the objects that they apply. It is read only
where such an object was met, and then for all of them at once and rarely.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.core.errors import AuthError, PermissionDenied, TargetUnavailable
from holdfast.core.gitops.application import Application
from holdfast.core.gitops.external_ignore import ExternalIgnoreRules, read_external_rules
from holdfast.core.gitops.health import health_of
from holdfast.core.gitops.ignore import ParsedIgnoreRules, annotated_rules
from holdfast.core.gitops.objects import (
    APPLICATION_LABEL,
    FIELD_MANAGER,
    ForeignOwner,
    ObjectHealth,
    ObservedObject,
    SyncStatus,
    make_declaration,
    with_fingerprints,
)
from holdfast.core.gitops.owners import ForeignSettings, foreign_settings_of, owner_of
from holdfast.core.gitops.pods import (
    WORKLOADS,
    data_history,
    image_baseline,
    image_findings,
    is_rolled_out,
    running_images,
    selector_of,
    stale_readers,
)
from holdfast.core.gitops.records import AppliedObject
from holdfast.core.gitops.secrets import find_secret_edits, fingerprints_to_keep, made_secret
from holdfast.core.gitops.source import DeclaredObject, RenderedSource
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.delegated import NO_CONTEXT, OwnershipContext
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.managed_fields import is_ours, ownership_of
from holdfast.core.ownership.object_diff import ObjectDiff, ObjectState
from holdfast.core.ownership.signals import (
    APPLIED_PATH,
    AppliedRecord,
    Declaration,
    FieldDrift,
    has_readable_values,
)
from holdfast.core.tree import Fields, digest, identical
from holdfast.reconcile.kube import KindNotServed, KubeClient, KubeConflict, Scope
from holdfast.reconcile.objects.cost import CostEstimator
from holdfast.reconcile.objects.resource_manager import ResourceManager
from holdfast.reconcile.ports import Clock

CACHE_SECONDS = 60.0
"""Seconds for which their settings are not read again."""
_RULE_KINDS = (
    ("argoproj.io/v1alpha1", "Application"),
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
    ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
)


class ExternalRulesReader:
    """The ignore rules of other tools in one cluster."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._read_at = float("-inf")
        self._known: dict[str, tuple[ExternalIgnoreRules, ...]] = {}

    async def rules(self, live: Fields, declared: Fields) -> ParsedIgnoreRules:
        """Return the rules for one object that another tool applies, and that is declared here."""
        if self._clock.monotonic() - self._read_at > CACHE_SECONDS:
            await self._read()
        every = [each for known in self._known.values() for each in known if each.concern(live)]
        return ParsedIgnoreRules(
            rules=tuple(rule for each in every for rule in each.rules_for(declared)),
            not_understood=tuple(
                message for each in every for message in each.found.not_understood
            ),
        )

    async def _read(self) -> None:
        self._read_at = self._clock.monotonic()
        for api_version, kind in _RULE_KINDS:
            try:
                items = (await self._client.list(Scope(api_version=api_version, kind=kind))).items
            except (TargetUnavailable, PermissionDenied, AuthError):
                continue  # the tool is not there, or keeps its settings to itself
            observed_object = (read_external_rules(item) for item in items)
            self._known[kind] = tuple(each for each in observed_object if each is not None)


AutoscalersOf = Callable[[ObjectRef], Awaitable[OwnershipContext]]
"""Says what else touches an object: the autoscalers that target it."""
PodsOf = Callable[[ObjectRef, Fields], Awaitable[Sequence[Fields]]]
"""Gives the pods of a workload, or those that may read a Secret."""
_YIELD_EVERY = 50
"""Objects that are judged before others get a turn."""
_OWN_FIELDS = frozenset({APPLIED_PATH, ("metadata", "labels", APPLICATION_LABEL)})
"""What we put on objects beside what is declared: one of another tool is right without."""


class Declarations:
    """What one rendering asks for, in the form in which it is compared and applied."""

    def __init__(
        self,
        rendered: RenderedSource,
        application: Application,
        key: bytes,
        before: Declarations | None = None,
    ) -> None:
        """`before` are those of an earlier rendering for the same application."""
        self.rendered = rendered
        self.declared: Mapping[ObjectRef, DeclaredObject] = {
            each.ref: each for each in rendered.objects
        }
        self._application = application.id
        self._key = key
        self._made = dict(self._kept(before)) if before else {}

    def of(self, ref: ObjectRef) -> Declaration:
        """Return the declaration of an object; made once."""
        made = self._made.get(ref)
        if made is None:
            made = make_declaration(self.declared[ref], self._application, self._key)
            self._made[ref] = made
        return made

    def _kept(self, before: Declarations) -> Iterator[tuple[ObjectRef, Declaration]]:
        """What was made of objects that are declared as they were."""
        for ref, made in before._made.items():
            now = self.declared.get(ref)
            if now is not None and identical(now.item, before.declared[ref].item):
                yield ref, made

    def defines(self, ref: ObjectRef) -> bool:
        """True when the kind of an object is defined by what is declared here."""
        return any(
            each.kind == "CustomResourceDefinition"
            and value_at(item.item, ("spec", "group")) == ref.group
            and value_at(item.item, ("spec", "names", "kind")) == ref.kind
            for each, item in self.declared.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What was observed at once."""

    observed: tuple[ObservedObject, ...]
    learned: tuple[AppliedObject, ...]
    """Objects of the inventory of which more is known now: what their images stand for, the
    fingerprints of Secrets, or the values that they have."""


class ObjectObserver:
    """Looks at objects through a client whose reads are cheap."""

    def __init__(
        self,
        client: KubeClient,
        resource_manager: ResourceManager,
        *,
        autoscalers: AutoscalersOf,
        pods: PodsOf,
        external_rules: ExternalRulesReader,
        costs: CostEstimator,
        key: bytes,
    ) -> None:
        self._client = client
        self._resource_manager = resource_manager
        self._autoscalers = autoscalers
        self._pods = pods
        self._external_rules = external_rules
        self._costs = costs
        self._key = key

    def declarations(
        self, rendered: RenderedSource, application: Application, before: Declarations | None
    ) -> Declarations:
        """Make what a rendering asks for comparable; `before` is what an earlier one asked for."""
        return Declarations(rendered, application, self._key, before=before)

    async def observe(
        self,
        desired: Declarations,
        inventory: Mapping[ObjectRef, AppliedObject],
        *,
        ignore: Sequence[IgnoreRule],
        label: str,
        only: Collection[ObjectRef] | None = None,
    ) -> Observations:
        """Look at what is declared and at what was applied; `only` some of it if given."""
        refs = {*desired.declared, *inventory} if only is None else set(only)
        observed: list[ObservedObject] = []
        learned: list[AppliedObject] = []
        for count, ref in enumerate(sorted(refs)):
            if count % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
            if ref in desired.declared:
                applied = inventory.get(ref)
                each = await self._observe_declared(desired, ref, applied, ignore, label)
                if applied is not None:
                    each, now = await self._add_images(each, applied)
                    each, now = await self._add_stale_readers(each, now)
                    each, now = await self._add_secret_edits(each, now)
                    now = self._with_values(each, desired.of, now)
                    if now != applied:
                        learned.append(now)
                observed.append(each)
            elif ref in inventory:
                observed.append(await self._observe_prunable(ref, inventory[ref]))
        return Observations(observed=tuple(observed), learned=tuple(learned))

    def _with_values(
        self,
        observed: ObservedObject,
        of: Callable[[ObjectRef], Declaration],
        applied: AppliedObject,
    ) -> AppliedObject:
        """Add the values of an object that is as declared, where the inventory has others: an
        older version wrote none, or a write was not put on record before a crash."""
        live, diff = observed.live, observed.diff
        if live is None or diff is None or observed.owner is not None:
            return applied
        if (
            diff.state is not ObjectState.IN_SYNC
            or value_at(live, ("metadata", "uid")) != applied.uid
        ):
            return applied
        declared = of(observed.ref)
        if applied.declaration == declared.digest and has_readable_values(applied.values):
            return applied
        values = self._resource_manager.values(declared, live)
        return replace(applied, declaration=declared.digest, values=values or "")

    async def _observe_declared(
        self,
        desired: Declarations,
        ref: ObjectRef,
        applied: AppliedObject | None,
        ignore: Sequence[IgnoreRule],
        label: str,
    ) -> ObservedObject:
        declared = desired.declared[ref]
        blank = ObservedObject(
            ref=ref,
            sync_status=SyncStatus.UNKNOWN,
            health=ObjectHealth.UNKNOWN,
            declared=declared,
            applied=applied is not None,
        )
        terms = foreign_settings_of(declared.item)
        if terms.unmanaged:
            return _left_alone(blank, terms)
        try:
            live = await self._client.get(ref)
        except KindNotServed:
            if desired.defines(ref):
                return replace(
                    blank, sync_status=SyncStatus.OUT_OF_SYNC, health=ObjectHealth.MISSING
                )
            message = (
                f"The cluster serves no {ref.kind} of {ref.api_version}: is its CRD installed?"
            )
            return replace(blank, message=message)
        except (TargetUnavailable, PermissionDenied, AuthError) as error:
            return replace(blank, message=error.happened)
        if live is None:
            self._forget(applied)
            sync_status = SyncStatus.DRIFTED if applied else SyncStatus.OUT_OF_SYNC
            diff = await self._resource_manager.diff(desired.of(ref), None)
            cost = await self._costs.cost_of_object(None, declared.item)
            findings = tuple(replace(found, cost=cost) for found in diff.field_drifts)
            return replace(
                blank,
                sync_status=sync_status,
                health=ObjectHealth.MISSING,
                diff=replace(diff, field_drifts=findings),
                cost=cost,
            )
        if terms.create_only:
            return replace(_left_alone(blank, terms), live=live, health=health_of(live)[0])
        ours = applied is not None or _is_adopted(live, label)
        # What our inventory holds by its uid is ours; a mark counts where Git itself declares it.
        held = applied is not None and applied.uid == value_at(live, ("metadata", "uid"))
        owner, claimed = owner_of(declared.item if held else live), owner_of(live)
        claimed_by = claimed if owner is None else None
        external_rules = (
            await self._external_rules.rules(live, declared.item) if owner else ParsedIgnoreRules()
        )
        rules = (*ignore, *annotated_rules(declared.item).rules, *external_rules.rules)
        declaring = desired.of(ref)
        if not ours:
            declaring = replace(declaring, applied=False)
        elif applied is None:
            # Ours by its marks alone: what it had when we applied it last is not on record.
            declaring = replace(declaring, record=AppliedRecord(digest="", values=""))
        elif applied.uid != str(value_at(live, ("metadata", "uid"))):
            declaring = replace(declaring, uid=applied.uid)
        else:
            record = AppliedRecord(digest=applied.declaration, values=applied.values)
            declaring = replace(declaring, record=record)
        try:
            autoscalers = await self._autoscalers(ref)
            diff = await self._resource_manager.diff(
                declaring, live, context=autoscalers, ignore=rules
            )
        except (TargetUnavailable, AuthError, KubeConflict) as error:
            # One that changes while it is looked at is looked at again.
            return replace(blank, live=live, owner=owner, message=error.happened)
        if owner is not None:
            diff = diff.observing_only(_OWN_FIELDS)
        elif any(each.change.path != APPLIED_PATH for each in diff.drifted):
            # Our mark tells what was applied to people alone, and is written again by whatever
            # puts back the rest. By itself, it moved only because somebody meant it to.
            diff = diff.observing_only(frozenset({APPLIED_PATH}))
        diff = await self._costs.add_costs(diff, live, declared.item)
        health, message = health_of(live)
        return replace(
            blank,
            live=live,
            diff=diff,
            owner=owner,
            applied=ours,
            health=health,
            claimed_by=claimed_by,
            message=message
            or "; ".join(external_rules.not_understood)
            or _claim_message(claimed_by),
            sync_status=_sync_status(diff, ours=ours, observed=owner is not None),
        )

    async def _observe_prunable(self, ref: ObjectRef, applied: AppliedObject) -> ObservedObject:
        blank = ObservedObject(
            ref=ref, sync_status=SyncStatus.UNKNOWN, health=ObjectHealth.UNKNOWN, applied=True
        )
        try:
            live = await self._client.get(ref)
        except (TargetUnavailable, PermissionDenied, AuthError) as error:
            return replace(blank, message=error.happened)
        if live is None:
            return replace(blank, sync_status=SyncStatus.PRUNABLE, health=ObjectHealth.MISSING)
        health, message = health_of(live)
        held, marked = applied.uid == value_at(live, ("metadata", "uid")), owner_of(live)
        return replace(
            blank,
            sync_status=SyncStatus.PRUNABLE,
            live=live,
            owner=None if held else marked,
            cost=await self._costs.cost_of_object(live, None),
            claimed_by=marked if held else None,
            health=health,
            message=message or _claim_message(marked if held else None),
        )

    async def _add_images(
        self, observed: ObservedObject, applied: AppliedObject
    ) -> tuple[ObservedObject, AppliedObject]:
        """Add what the pods of an object run, where it has pods and they could be read."""
        live = observed.live
        if live is None or observed.diff is None or observed.ref.kind not in WORKLOADS:
            return observed, applied
        if not is_rolled_out(live):
            return observed, applied
        try:
            running = running_images(await self._pods(observed.ref, live))
        except (TargetUnavailable, PermissionDenied, AuthError):
            return observed, applied  # what pods run is unknown, and unknown is no drift
        images = image_baseline(live, running, applied.images)
        findings = image_findings(live, running, images)
        return _with_running(observed, findings), replace(applied, images=images)

    async def _add_stale_readers(
        self, observed: ObservedObject, applied: AppliedObject
    ) -> tuple[ObservedObject, AppliedObject]:
        """Add which pods have another value of a Secret in their environment than it has now."""
        live = observed.live
        if observed.ref.kind != "Secret" or live is None or observed.diff is None:
            return observed, applied
        since = _data_changed_at(live)
        if since is None and not applied.data:
            created = value_at(live, ("metadata", "creationTimestamp"))
            since = datetime.fromisoformat(str(created)) if created else None
        mark = digest(with_fingerprints({**live, "kind": "Secret"}, self._key).get("data"))
        history = data_history(applied.data, mark, since) if since else applied.data
        try:
            if len(history) > 1 or _data_changed_at(live) is not None:
                pods = await self._pods(observed.ref, live)
                observed = _with_running(observed, stale_readers(observed.ref.name, history, pods))
        except (TargetUnavailable, PermissionDenied, AuthError):
            pass  # what pods have is then unknown, and unknown is no drift
        return observed, replace(applied, data=history)

    async def _add_secret_edits(
        self, observed: ObservedObject, applied: AppliedObject
    ) -> tuple[ObservedObject, AppliedObject]:
        """Add what was edited of the Secret that a controller made of an object."""
        ref = made_secret(observed.live, observed.ref) if observed.live else None
        if ref is None or observed.live is None:
            return observed, applied
        try:
            secret = await self._client.get(ref)
        except (TargetUnavailable, PermissionDenied, AuthError):
            return observed, applied
        if secret is None:
            return observed, applied
        marks = fingerprints_to_keep(observed.live, secret, applied.marks, self._key)
        findings = find_secret_edits(secret, marks, self._key)
        return _with_running(observed, findings), replace(applied, marks=marks)

    def _forget(self, applied: AppliedObject | None) -> None:
        if applied is not None:
            self._resource_manager.forget(applied.uid)


async def no_autoscalers(ref: ObjectRef) -> OwnershipContext:
    """For who knows of no autoscalers: the last writer of a number then tells."""
    return NO_CONTEXT


def list_pods_with(client: KubeClient) -> PodsOf:
    """Ask the cluster for pods each time, for who follows none."""

    async def pods(ref: ObjectRef, live: Fields) -> Sequence[Fields]:
        selector = "" if ref.kind == "Secret" else selector_of(live)
        if ref.kind != "Secret" and not selector:
            return ()
        scope = Scope(api_version="v1", kind="Pod", namespace=ref.namespace, labels=selector)
        return (await client.list(scope)).items

    return pods


def _claim_message(by: ForeignOwner | None) -> str:
    if by is None:
        return ""
    return f"It carries a mark of {by}. It was applied from here, so it is kept all the same."


def _left_alone(blank: ObservedObject, terms: ForeignSettings) -> ObservedObject:
    """An object that its own settings take out of the comparison."""
    return replace(blank, sync_status=SyncStatus.IN_SYNC, message="; ".join(terms.because))


def _with_running(observed: ObservedObject, field_drifts: Iterator[FieldDrift]) -> ObservedObject:
    running = tuple(field_drifts)
    if not running:
        return observed
    return replace(observed, running=running, sync_status=SyncStatus.DRIFTED)


def _sync_status(diff: ObjectDiff, *, ours: bool, observed: bool) -> SyncStatus:
    if diff.state is ObjectState.WIPED:
        return SyncStatus.DRIFTED
    if not diff.differing:
        return SyncStatus.IN_SYNC if ours or observed else SyncStatus.OUT_OF_SYNC
    if diff.drifted and (ours or observed):
        return SyncStatus.DRIFTED
    return SyncStatus.OUT_OF_SYNC


def _is_adopted(live: Fields, label: str) -> bool:
    """True for an object that we applied for this application, whatever the inventory says."""
    if value_at(live, ("metadata", "labels", APPLICATION_LABEL)) != label:
        return False
    entries = ownership_of(live).entries
    return any(is_ours(entry, frozenset({FIELD_MANAGER})) for entry in entries)


def _data_changed_at(secret: Fields) -> datetime | None:
    """When the data of a Secret was last written, after it was created."""
    entries = ownership_of(secret).entries
    times = [
        entry.at for entry in entries if entry.at and any(path[0] == "data" for path in entry.paths)
    ]
    created = value_at(secret, ("metadata", "creationTimestamp"))
    last = max(times, default=None)
    if last is None or created is None or last <= datetime.fromisoformat(str(created)):
        return None
    return last
