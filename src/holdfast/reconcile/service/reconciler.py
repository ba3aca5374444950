"""One InferenceService, one pass, top to bottom: observe, decide, write, report.

The operator calls it for every key of its queue, and others embed it. All that it
must remember is in the status, so it may be stopped anywhere and started again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, TypeVar

from holdfast.core.errors import HoldfastError, InvalidSpec, NotFound
from holdfast.core.fight import Heal, recent_rounds
from holdfast.core.policy import DecisionAction, Reason
from holdfast.core.service.canary import CanaryDecision
from holdfast.core.service.children import Gateway, manifests
from holdfast.core.service.spec import API_VERSION, KIND, InferenceService, InferenceServiceStatus
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ConflictReason, KubeClient, KubeConflict, ref_of
from holdfast.reconcile.objects.resource_manager import ResourceManager
from holdfast.reconcile.ports import Clock, MetricSource
from holdfast.reconcile.service import traffic
from holdfast.reconcile.service.apply import (
    PassState,
    apply_child,
    decide_child,
    delete_children,
    hold_child,
    replicas_of,
    settle_replicas,
)
from holdfast.reconcile.service.messages import describe_drift
from holdfast.reconcile.service.observe import (
    OPERATOR_MANAGER,
    UNREADY_GRACE,
    ChildRole,
    FindAutoscalers,
    ObservedChildren,
    child_refs,
    is_terminating,
    observe,
    pod_problems,
    uid_of,
    unready_for,
    version_of,
)
from holdfast.reconcile.service.status import (
    Note,
    ServiceResult,
    StatusInputs,
    events_of_transition,
    events_of_writes,
    make_refused_status,
    make_status,
)
from holdfast.wire.inference_service_v1alpha1 import status_to_json

K = TypeVar("K")
V = TypeVar("V")
MakeStatus: TypeAlias = Callable[[], Awaitable[InferenceServiceStatus]]


class StatusWriter(Protocol):
    """Keeps the statuses of services: at once, or when there is time."""

    async def before_healing(
        self, service: InferenceService, message: str, status: MakeStatus
    ) -> InferenceService:
        """Keep who changed what: healing erases every other trace of it.

        `message` describes it; `status` makes the status that says so. Returns the service
        with the status that it has afterwards.
        """

    async def report(self, service: InferenceService, status: InferenceServiceStatus) -> None:
        """Keep the status of a service."""


class DirectStatusWriter:
    """Writes every report into the status of the service itself, where it differs."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def before_healing(
        self, service: InferenceService, message: str, status: MakeStatus
    ) -> InferenceService:
        """Write it down; see the protocol."""
        made = await status()
        await self.report(service, made)
        return replace(service, status=made)

    async def report(self, service: InferenceService, status: InferenceServiceStatus) -> None:
        """Write the status where it differs. A service that is gone has none to write."""
        if not service.uid or status == service.status:
            return
        item: Fields = {**identity_of(service), "status": status_to_json(status)}
        try:
            await self._client.apply(
                item, manager=OPERATOR_MANAGER, force=True, subresource="status"
            )
        except NotFound:
            return
        except KubeConflict as error:
            if error.reason is not ConflictReason.REPLACED:
                raise


def identity_of(service: InferenceService) -> Fields:
    """Give the part of an apply that says which object it is for, and no other."""
    metadata: Fields = {
        "name": service.name,
        "namespace": service.namespace,
        "uid": service.uid,
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}


_MAX_UNREADY_WAIT = 300.0
_REQUEUE_SOON = 1.0
_FOREIGN_WAIT = 60.0
"""Seconds between passes while objects of others are in our way."""
_MAX_PENDING_EVENTS = 20
"""Notes kept of passes that failed, until one does not."""
_MAX_REMEMBERED = 20_000


class ServiceReconciler:
    """Makes and keeps the children of InferenceServices."""

    def __init__(
        self,
        client: KubeClient,
        *,
        clock: Clock,
        key: bytes,
        gateway: Gateway | None = None,
        metrics: MetricSource | None = None,
        status_writer: StatusWriter | None = None,
        autoscalers: FindAutoscalers | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._gateway = gateway
        self._metrics = metrics
        self._status_writer = status_writer or DirectStatusWriter(client)
        self._autoscalers = autoscalers
        self._resource_manager = ResourceManager(
            client, manager=OPERATOR_MANAGER, key=key, clock=clock
        )
        self._pending_notes: dict[str, tuple[Note, ...]] = {}
        self._settled: dict[str, int] = {}
        """How services were left that had nothing more to do, by uid."""
        self._valid: dict[str, int] = {}
        """Generations that were found to be valid, by uid: a stored spec has no other mark."""
        self._heals: dict[tuple[str, ChildRole], tuple[Heal, ...]] = {}
        """What was put back lately. A restart forgets it, and begins to count anew."""
        self._children: dict[str, frozenset[ChildRole]] = {}
        """What services were seen to have, so that a deletion is known for one."""
        self._applied: dict[str, dict[str, str]] = {}
        """What was applied last to the children of services, by uid: the status that has it may
        not be stored yet, or not be seen yet."""

    async def reconcile(self, service: InferenceService) -> ServiceResult:
        """Make the cluster as declared, and say how it stands.

        The status is written on every way out, and only when it changed. What the cluster did
        not answer or refused is raised after that, so that the caller backs off. A spec that is
        wrong is a condition and no error, since trying again cannot help; only a service that
        is not stored, and so has no status to say it in, raises InvalidSpec.
        """
        if service.deleting:
            # Children go by their owner references, and nothing is kept outside the cluster, so
            # there is nothing that a finalizer could have to wait for.
            self._forget(service.uid)
            return ServiceResult(status=service.status or InferenceServiceStatus())
        try:
            self._validate(service)
        except InvalidSpec as error:
            if not service.uid:
                raise
            return await self._finish(
                service, make_refused_status(service, error, self._clock.now())
            )
        observed = await observe(
            self._client,
            service,
            routed=self._gateway is not None,
            autoscalers=self._autoscalers,
        )
        state_hash = _state_hash(observed)
        if state_hash is not None and self._settled.get(service.uid) == state_hash:
            return ServiceResult(status=service.status or InferenceServiceStatus())
        gateway = self._gateway or traffic.gateway_in_use(observed)
        state = PassState(
            observed=observed,
            live=dict(observed.live),
            errors=dict(observed.unread),
            gateway=gateway,
            applied=self._last_applied(service),
        )
        canary = await self._advance_canary(state)
        held = self._held_roles(state)
        desired = self._render(state, canary)
        await self._settle_replicas(state, desired, held)
        await self._decide(state, desired, held)
        create = DecisionAction.CREATE
        recreates = any(each.deleted and each.action is create for each in state.children)
        if recreates and not await self._exists(service):
            # The children went with it. What we know of services may be older than that.
            self._forget(service.uid)
            return ServiceResult(status=service.status or InferenceServiceStatus())
        service = await self._record_drift(state, canary)
        for place, child in enumerate(state.children):
            state.children[place] = await apply_child(
                self._client, self._resource_manager, state, child
            )
        if not held and not state.service.unknown:
            kept = {*desired, *_kept_roles(canary)}
            if self._gateway is None:
                kept.add(ChildRole.ROUTE)  # no gateway is configured, which is no wish to delete it
            gone = [role for role in observed.live if role not in kept]
            await delete_children(self._client, state, gone)
        self._remember_children(state)
        state.note_applied()
        self._remember_applied(service, state.applied)
        result = await self._finish(service, await self._status(state, canary), state, canary)
        self._remember_settled(state, result)
        return result

    async def _exists(self, service: InferenceService) -> bool:
        """Ask the cluster whether a service is still there: by a dry run, which no cache answers.

        A service that is not stored is there for as long as its owner says so.
        """
        if not service.uid:
            return True
        try:
            live = await self._client.apply(
                identity_of(service),
                manager=OPERATOR_MANAGER,
                force=True,
                dry_run=True,
                subresource="status",
            )
        except NotFound:
            return False
        except KubeConflict as conflict:
            if conflict.reason is not ConflictReason.REPLACED:
                raise
            return False
        return not is_terminating(live)

    def _last_applied(self, service: InferenceService) -> dict[str, str]:
        """What was applied last to the children: by this process, or by the status."""
        known = self._applied.get(service.uid) if service.uid else None
        if known is not None:
            return dict(known)
        kept = service.status.applied if service.status else None
        return {each.child: each.digest for each in kept or ()}

    def _remember_applied(self, service: InferenceService, applied: dict[str, str]) -> None:
        if service.uid:
            _remember(self._applied, service.uid, dict(applied))

    def _remember_settled(self, state: PassState, result: ServiceResult) -> None:
        """Remember how a service was left, if only a change can give it something to do."""
        uid = state.service.uid
        left = replace(state.service, status=result.status)
        after = replace(state.observed, service=left, live=state.live)
        state_hash = _state_hash(after) if result.requeue_after is None else None
        self._settled.pop(uid, None)
        if uid and state_hash is not None:
            _remember(self._settled, uid, state_hash)

    def take_notes(self, service: InferenceService) -> tuple[Note, ...]:
        """Give what passes that raised had to say, once. The next pass says it otherwise."""
        return self._pending_notes.pop(service.uid, ())

    async def delete(self, service: InferenceService) -> bool:
        """Delete the children of a service: for owners whose garbage nobody collects.

        Only what this service controls. Safe to repeat; what is gone already is no error. True
        when anything was deleted.
        """
        observed = await observe(self._client, service, routed=False)
        state = PassState(observed=observed, live=dict(observed.live), errors=dict(observed.unread))
        await delete_children(self._client, state, list(reversed(child_refs(service))))
        _raise_first(state.errors.values())
        return bool(state.removed)

    def _validate(self, service: InferenceService) -> None:
        if (
            service.uid
            and service.generation
            and self._valid.get(service.uid) == service.generation
        ):
            return
        service.validate()
        if len(self._valid) > _MAX_REMEMBERED:
            self._valid.clear()
        self._valid[service.uid] = service.generation

    def _forget(self, uid: str) -> None:
        self._pending_notes.pop(uid, None)
        self._valid.pop(uid, None)
        self._settled.pop(uid, None)
        self._children.pop(uid, None)
        for role in ChildRole:
            self._heals.pop((uid, role), None)
        self._applied.pop(uid, None)

    def _held_roles(self, state: PassState) -> frozenset[ChildRole]:
        """Children not to be touched: requests cannot be shared out while some were not read."""
        unread = any(role in state.errors for role in traffic.ROUTING_ROLES)
        if (unread or state.service.unknown) and traffic.has_canary(state.observed):
            return frozenset(
                {*traffic.ROUTING_ROLES, ChildRole.CANARY_SERVICE, ChildRole.AUTOSCALER}
            )
        return frozenset()

    async def _advance_canary(self, state: PassState) -> CanaryDecision | None:
        """What the canary does next; None without one, or while too little was seen."""
        if not traffic.has_canary(state.observed) or self._held_roles(state):
            return None
        try:
            return await traffic.advance_canary(
                state.observed,
                state.gateway,
                resource_manager=self._resource_manager,
                metrics=self._metrics,
                now=self._clock.now(),
            )
        except HoldfastError as error:
            state.errors[ChildRole.CANARY] = error
            return None

    async def _settle_replicas(
        self, state: PassState, desired: dict[ChildRole, Fields], held: frozenset[ChildRole]
    ) -> None:
        """Delete an autoscaler that is not declared, and only then set the number it had."""
        if state.service.unknown:
            return
        if ChildRole.AUTOSCALER not in desired:
            await delete_children(self._client, state, [ChildRole.AUTOSCALER])
            if ChildRole.AUTOSCALER in state.errors:
                state.errors.setdefault(ChildRole.PRIMARY, state.errors[ChildRole.AUTOSCALER])
        if ChildRole.PRIMARY not in held and ChildRole.PRIMARY not in state.errors:
            await settle_replicas(self._client, state, replicas_of(desired[ChildRole.PRIMARY]))

    def _render(self, state: PassState, canary: CanaryDecision | None) -> dict[ChildRole, Fields]:
        """Render the children, in the order in which they are written."""
        facts = traffic.render_facts(state.observed, state.gateway, canary)
        roles = {ref: role for role, ref in state.observed.refs.items()}
        return {roles[ref_of(item)]: item for item in manifests(state.service, facts)}

    async def _decide(
        self, state: PassState, desired: dict[ChildRole, Fields], held: frozenset[ChildRole]
    ) -> None:
        """Decide about every child, before anything is written."""
        key, now = _key(state.service), self._clock.now()
        known = self._children.get(key, _known_roles(state.service))
        for role, item in desired.items():
            if role in held:
                state.children.append(hold_child(state, role))
                continue
            child = await decide_child(
                self._resource_manager,
                state,
                role,
                item,
                existed=role in known,
                heals=self._heals.get((key, role), ()),
                now=now,
            )
            state.children.append(child)

    def _remember_children(self, state: PassState) -> None:
        """Remember what there is, and what was put back: it may be changed, or deleted, again."""
        key, now = _key(state.service), self._clock.now()
        for each in state.children:
            created = each.action is DecisionAction.CREATE and each.deleted and bool(each.written)
            if not each.healed and not created:
                continue
            place = (key, each.role)
            held = (*self._heals.pop(place, ()), Heal(at=now, fields=each.healed_changes))
            recent = tuple(heal for heal in held if recent_rounds([heal.at], now))
            _remember(self._heals, place, recent)
        there = set(state.own)
        # What was deleted and is left out for a while is still missed.
        there |= {each.role for each in state.children if each.deleted}
        _remember(self._children, key, frozenset(there))

    async def _record_drift(
        self, state: PassState, canary: CanaryDecision | None
    ) -> InferenceService:
        """Write down who changed what before it is put back: healing erases every trace."""
        service = state.service
        healed = [each for each in state.children if each.action is DecisionAction.HEAL]
        if not healed:
            return service

        async def status() -> InferenceServiceStatus:
            kept = service.status.canary if service.status else None
            return replace(await self._status(state, canary, healing=True), canary=kept)

        return await self._status_writer.before_healing(service, describe_drift(healed), status)

    async def _status(
        self, state: PassState, canary: CanaryDecision | None, *, healing: bool = False
    ) -> InferenceServiceStatus:
        service, old = state.service, state.service.status
        since = unready_for(service, state.own, self._clock.now())
        wrote = any(each.action.writes for each in state.children)
        asked = since is not None and since >= UNREADY_GRACE and not wrote
        return make_status(
            StatusInputs(
                service=service,
                now=self._clock.now(),
                live=state.own,
                children=state.children,
                errors=state.errors,
                split=traffic.split_to_report(state.observed, canary),
                gateway=state.gateway,
                other_autoscaler=state.observed.other_autoscaler,
                pod_problems=await pod_problems(self._client, service) if asked else "",
                canary=canary.state if canary else old.canary if old else None,
                canary_message=canary.message if canary else "",
                healing=healing,
                applied=state.applied,
            )
        )

    async def _finish(
        self,
        service: InferenceService,
        status: InferenceServiceStatus,
        state: PassState | None = None,
        canary: CanaryDecision | None = None,
    ) -> ServiceResult:
        """Write the status, gather what is worth an event, and raise what went wrong."""
        before = state.service.status if state else service.status
        notes = [*self._pending_notes.pop(service.uid, ())]
        if state is not None:
            notes += events_of_writes(state.children)
            notes += (
                Note(warning=False, reason="Deleted", message=f"{name} was deleted.")
                for name in state.removed
            )
        errors = list(state.errors.values()) if state else []
        try:
            if errors and all(isinstance(each, KubeConflict) for each in errors):
                # Another writer was first, so this pass is void; the next one is moments away.
                raise errors[0]
            notes += canary.notes if canary else ()
            notes += events_of_transition(before, status)
            await self._status_writer.report(service, status)
            _raise_first(errors)
        except HoldfastError:
            if service.uid:
                self._pending_notes[service.uid] = tuple(dict.fromkeys(notes))[
                    -_MAX_PENDING_EVENTS:
                ]
            raise
        requeue_after = self._requeue_after(state, canary)
        return ServiceResult(status=status, requeue_after=requeue_after, notes=tuple(notes))

    def _requeue_after(
        self, state: PassState | None, canary: CanaryDecision | None
    ) -> float | None:
        """When to reconcile again although no event may come.

        Others' objects send none, nor do pods that fail: those are asked less and less often.
        """
        if state is None:
            return None
        times = [canary.requeue_after] if canary and canary.requeue_after is not None else []
        foreign = any(each.reason is Reason.FOREIGN for each in state.children)
        if state.observed.other_autoscaler or foreign:
            times.append(_FOREIGN_WAIT)
        now = self._clock.now()
        for each in state.children:
            if each.written is not None and each.altered:
                # The next pass finds out how long it is to be left alone.
                times.append(_REQUEUE_SOON)
            elif each.diff is not None and each.diff.recheck_at is not None:
                times.append(max(0.0, (each.diff.recheck_at - now).total_seconds()))
            if each.fight_until is not None:
                times.append(max(0.0, (each.fight_until - now).total_seconds()))
        unready = unready_for(state.service, state.own, now)
        if unready is not None:
            times.append(min(max(unready, UNREADY_GRACE), _MAX_UNREADY_WAIT))
        return min(times, default=None)


def _state_hash(observed: ObservedChildren) -> int | None:
    """What tells one state of a service's world from another; None where time matters too.

    The same world gives the same pass, so there is nothing to be gained from a second one.
    """
    service = observed.service
    if observed.unread or traffic.has_canary(observed):
        return None
    state_hash = tuple(
        (role, uid_of(live), version_of(live)) for role, live in observed.live.items()
    )
    return hash(
        (service.generation, service.unknown, service.status, observed.other_autoscaler, state_hash)
    )


def _remember(memory: dict[K, V], key: K, value: V) -> None:
    """Keep a value, and let go of the oldest when there are very many."""
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > _MAX_REMEMBERED:
        del memory[next(iter(memory))]


def _key(service: InferenceService) -> str:
    return service.uid or f"{service.namespace}/{service.name}"


def _known_roles(service: InferenceService) -> frozenset[ChildRole]:
    """What a service had by its own status, for who has just begun to look at it."""
    status = service.status
    if status is None or any(each.reason == "ForeignObject" for each in status.conditions):
        return frozenset()
    message = {each.type: each.status for each in status.conditions}
    known = {ChildRole.PRIMARY} if status.replicas else set()
    return frozenset(
        known | ({ChildRole.ENTRY_SERVICE} if message.get("RoutesReady") == "True" else set())
    )


def _kept_roles(canary: CanaryDecision | None) -> Sequence[ChildRole]:
    """A canary that is on its way out stays until it has drained."""
    return (
        (ChildRole.CANARY, ChildRole.CANARY_SERVICE) if canary is not None and canary.keep else ()
    )


def _raise_first(errors: Iterable[HoldfastError]) -> None:
    """Raise what says most: another writer who was first is the least of it."""
    held = sorted(errors, key=lambda error: isinstance(error, KubeConflict))
    if held:
        raise held[0]
