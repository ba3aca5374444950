"""One InferenceService, one pass, top to bottom: observe, decide, write, report.

The operator calls it for every key of its queue, and others embed it. All that it
must remember is in the status, so it may be stopped anywhere and started again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from holdfast.core.drift import Situation
from holdfast.core.engine_report import RuntimeDifference
from holdfast.core.errors import HoldfastError, InvalidSpec, NotFound
from holdfast.core.fight import Heal, recent_rounds
from holdfast.core.node_health import requested_devices
from holdfast.core.object_cost import pod_spec_of
from holdfast.core.policy import Circumstances, DecisionAction, OnDrift, Reason, decide
from holdfast.core.service.autoscaling import needs_prometheus, uses_keda
from holdfast.core.service.canary import CanaryDecision
from holdfast.core.service.children import Gateway, carried_annotations, carried_labels, manifests
from holdfast.core.service.facts import (
    ChildDeleted,
    ConditionReason,
    ConditionReports,
    DriftHealed,
    Note,
    ServiceFact,
)
from holdfast.core.service.idle import IdleDecision, decide_idle
from holdfast.core.service.model_head import ModelHead
from holdfast.core.service.pod_health import PodFlaps
from holdfast.core.service.spec import API_VERSION, KIND, InferenceService, InferenceServiceStatus
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ConflictReason, KindNotServed, KubeClient, KubeConflict, ref_of
from holdfast.reconcile.objects.cost import CostEstimator
from holdfast.reconcile.objects.resource_manager import ResourceManager
from holdfast.reconcile.ports import Clock, MetricSource
from holdfast.reconcile.service import traffic
from holdfast.reconcile.service.apply import (
    PassState,
    ServiceMemory,
    apply_child,
    decide_child,
    delete_children,
    hold_child,
    keeps_former_primary,
    removable_children,
    replicas_of,
    settle_replicas,
)
from holdfast.reconcile.service.decisions import ChildDecision, Suspension
from holdfast.reconcile.service.drains import find_failed_drains
from holdfast.reconcile.service.messages import describe_drift, note_of, runtime_drifts
from holdfast.reconcile.service.model_cache import advance_cache, delete_downloads
from holdfast.reconcile.service.monitors import NO_MONITORS, ServiceMonitors
from holdfast.reconcile.service.observe import (
    NO_POD_PROBLEMS,
    OPERATOR_MANAGER,
    UNREADY_GRACE,
    ChildRole,
    FindAutoscalers,
    ObservedChildren,
    PodReport,
    answering_template,
    child_refs,
    is_terminating,
    observe,
    read_pod_problems,
    rollout_of,
    uid_of,
    unready_for,
    version_of,
)
from holdfast.reconcile.service.runtime import NOT_ASKED, ObstacleKind, RuntimeFindings
from holdfast.reconcile.service.status import (
    ServiceResult,
    make_missing_kind_status,
    make_refused_status,
    make_status,
)
from holdfast.reconcile.service.status_inputs import StatusInputs, condition_of
from holdfast.reconcile.service.transitions import facts_of_transition, facts_of_writes
from holdfast.wire.inference_service_v1alpha1 import status_to_json

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


_DEPLOYMENTS = (ChildRole.PRIMARY, ChildRole.CANARY)
_MAX_UNREADY_WAIT = 300.0
_REQUEUE_SOON = 1.0
_FOREIGN_WAIT = 60.0
"""Seconds between passes while objects of others are in our way."""
_MAX_PENDING_FACTS = 20
"""Facts kept of passes that failed, until one does not."""
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
        monitors: ServiceMonitors = NO_MONITORS,
        downloader: str | None = None,
        prometheus: str | None = None,
    ) -> None:
        """Of what no monitor looks at, the status does not speak: what pods serve, the branches
        that models are from, pods that do not stay ready, and those stopped without waiting.

        `downloader` is the image that has `holdfast models`, for services with a cache.
        """
        self._downloader = downloader
        self._client = client
        self._clock = clock
        self._gateway = gateway
        self._metrics = metrics
        self._status_writer = status_writer or DirectStatusWriter(client)
        self._autoscalers = autoscalers
        self._monitors = monitors
        self._prometheus = prometheus
        """The address that KEDA is given to ask for metrics of pods."""
        self._resource_manager = ResourceManager(
            client, manager=OPERATOR_MANAGER, key=key, clock=clock
        )
        self._costs = CostEstimator(client, clock)
        self._memories: dict[str, ServiceMemory] = {}

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
            self._memories.pop(_key(service), None)
            self._monitors.forget(service.namespace, service.name)
            return ServiceResult(status=service.status or InferenceServiceStatus())
        memory = self._recall(service)
        try:
            if not service.uid or memory.valid != service.generation:
                service.validate()
                memory.valid = service.generation or None
        except InvalidSpec as error:
            if not service.uid:
                raise
            return await self.refuse(service, error)
        observed = await observe(
            self._client,
            service,
            routed=self._gateway is not None,
            autoscalers=self._autoscalers,
        )
        missing = observed.unread.get(ChildRole.PRIMARY)
        if service.uid and isinstance(missing, KindNotServed):
            return await self._refuse_multi_node(service)
        monitors, key = self._monitors, (service.namespace, service.name)
        runtime = monitors.runtime.findings(service) if monitors.runtime else None
        flaps = monitors.flaps.find(*key) if monitors.flaps else ()
        head = monitors.model_heads.follow(service) if monitors.model_heads else None
        ended = monitors.ended_pods.take(*key) if monitors.ended_pods else ()
        state_hash = _state_hash(observed, runtime, flaps, head)
        if state_hash is not None and memory.settled == state_hash and not ended:
            return ServiceResult(status=service.status or InferenceServiceStatus())
        gateway = self._gateway or traffic.gateway_in_use(observed)
        state = PassState(
            observed=observed,
            live=dict(observed.live),
            errors=dict(observed.unread),
            gateway=gateway,
            applied=_last_applied(service, memory),
            memory=memory,
            suspension=self._suspension(service),
            runtime=runtime,
            flaps=flaps,
            drain_failed=await find_failed_drains(self._client, service.namespace, ended),
            head=head,
        )
        state.idle = self._decide_idle(state)
        canary = await self._advance_canary(state)
        held = self._held_roles(state)
        desired = self._render(state, canary)
        self._expect_runtime(state, desired)
        await self._settle_replicas(state, desired, held)
        await self._advance_cache(state, desired)
        await self._decide(state, desired, held)
        create = DecisionAction.CREATE
        recreates = any(each.deleted and each.action is create for each in state.children)
        if recreates and not await self._exists(service):
            # The children went with it. What we know of services may be older than that.
            self._memories.pop(_key(service), None)
            return ServiceResult(status=service.status or InferenceServiceStatus())
        service = await self._record_drift(state, canary)
        for place, child in enumerate(state.children):
            state.children[place] = await apply_child(
                self._client, self._resource_manager, state, child
            )
        state.children[:] = [await self._with_healing_cost(each) for each in state.children]
        if not held and not state.service.unknown:
            kept = {*desired, *_kept_roles(canary)}
            if self._gateway is None:
                kept.add(ChildRole.ROUTE)  # no gateway is configured, which is no wish to delete it
            rollouts = (rollout_of(state.live.get(role)) for role in _DEPLOYMENTS)
            if any(each is not None and each.rolling for each in rollouts):
                kept.add(ChildRole.MODEL_CLAIM)  # pods that still run may mount it
            if keeps_former_primary(state):
                kept.add(ChildRole.FORMER_PRIMARY)
            if self._scaler_problem(state) is not None:
                kept |= {ChildRole.AUTOSCALER, ChildRole.FORMER_AUTOSCALER}
            kept |= state.errors.keys()  # with the claim would go what tells of its downloads
            gone = [role for role in observed.live if role not in kept]
            if state.suspension is None:
                await delete_children(self._resource_manager, state, gone)
            else:
                state.to_remove = removable_children(state, gone)
        self._remember_children(state)
        state.note_applied()
        if service.uid:
            memory.applied = dict(state.applied)
        status, reports = await self._make_status(state, canary)
        result = await self._finish(service, status, reports, state, canary)
        self._remember_settled(state, result)
        return result

    async def _advance_cache(self, state: PassState, desired: dict[ChildRole, Fields]) -> None:
        """Have models downloaded; a Deployment whose model is not there yet is left alone."""
        if state.service.unknown:
            return
        try:
            state.cache = await advance_cache(self._client, state, desired, self._downloader)
        except HoldfastError as error:
            for role in (ChildRole.PRIMARY, ChildRole.CANARY, ChildRole.MODEL_CLAIM):
                if role in desired or role is ChildRole.MODEL_CLAIM:
                    state.errors.setdefault(role, error)

    def _suspension(self, service: InferenceService) -> Suspension | None:
        """Say until when nothing is to be written; None when it may be."""
        given = service.spec.suspend
        if given is None or not service.spec.suspended(self._clock.now()):
            return None
        return Suspension(until=given.ends)

    def _decide_idle(self, state: PassState) -> IdleDecision | None:
        """Say whether a service is to have replicas; None where that is not ours to choose."""
        primary = state.own.get(ChildRole.PRIMARY)
        if primary is None or state.observed.other_autoscaler is not None:
            return None
        now = self._clock.now()
        return decide_idle(state.service, asleep=replicas_of(primary) == 0, now=now)

    async def refuse(self, service: InferenceService, error: InvalidSpec) -> ServiceResult:
        """Say in its status that a service cannot be served. What runs, goes on running."""
        return await self._finish(service, *make_refused_status(service, error, self._clock.now()))

    async def _refuse_multi_node(self, service: InferenceService) -> ServiceResult:
        """Say that the cluster has no LeaderWorkerSets. Nothing is made in their place."""
        made = make_missing_kind_status(service, self._clock.now())
        result = await self._finish(service, *made)
        return replace(result, requeue_after=_FOREIGN_WAIT)

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

    def _remember_settled(self, state: PassState, result: ServiceResult) -> None:
        """Remember how a service was left, if only a change can give it something to do."""
        left = replace(state.service, status=result.status)
        after = replace(state.observed, service=left, live=state.live)
        settled = result.requeue_after is None
        state_hash = _state_hash(after, state.runtime, state.flaps, state.head) if settled else None
        state.memory.settled = state_hash if state.service.uid else None

    def take_facts(self, service: InferenceService) -> tuple[ServiceFact, ...]:
        """Give what passes that raised had to say, once. The next pass says it otherwise."""
        memory = self._recall(service)
        pending, memory.pending = memory.pending, ()
        return pending

    def take_notes(self, service: InferenceService) -> tuple[Note, ...]:
        """Give the same in words."""
        return tuple(map(note_of, self.take_facts(service)))

    def _recall(self, service: InferenceService) -> ServiceMemory:
        """Return what is remembered of a service; the oldest is forgotten beyond a limit."""
        key = _key(service)
        memory = self._memories.pop(key, None) or ServiceMemory()
        self._memories[key] = memory
        if len(self._memories) > _MAX_REMEMBERED:
            del self._memories[next(iter(self._memories))]
        return memory

    async def delete(self, service: InferenceService) -> bool:
        """Delete the children of a service: for owners whose garbage nobody collects.

        Only what this service controls. Safe to repeat; what is gone already is no error. True
        when anything was deleted.
        """
        observed = await observe(self._client, service, routed=False)
        state = PassState(observed=observed, live=dict(observed.live), errors=dict(observed.unread))
        if service.spec.cache is not None:
            await delete_downloads(self._client, service)
        await delete_children(self._resource_manager, state, list(reversed(child_refs(service))))
        _raise_first(state.errors.values())
        return bool(state.removed)

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
        if state.service.unknown or state.suspension is not None:
            return
        for role in self._scalers_to_remove(state, desired):
            await delete_children(self._resource_manager, state, [role])
            if role in state.errors:
                state.errors.setdefault(ChildRole.PRIMARY, state.errors[role])
        if ChildRole.PRIMARY not in held and ChildRole.PRIMARY not in state.errors:
            await settle_replicas(self._client, state, replicas_of(desired[ChildRole.PRIMARY]))

    def _scalers_to_remove(
        self, state: PassState, desired: dict[ChildRole, Fields]
    ) -> Sequence[ChildRole]:
        """Name the autoscalers that have to go first.

        One whose successor cannot be made yet scales on: the choice is not carried out by half.
        """
        if ChildRole.AUTOSCALER in desired:
            return (ChildRole.FORMER_AUTOSCALER,)
        if self._scaler_problem(state) is not None:
            return ()
        return (ChildRole.AUTOSCALER, ChildRole.FORMER_AUTOSCALER)

    def _scaler_problem(self, state: PassState) -> ConditionReason | None:
        """Say why KEDA cannot scale a service that asks for it."""
        if not uses_keda(state.service.spec):
            return None
        if not state.observed.keda:
            return ConditionReason.KEDA_NOT_INSTALLED
        if needs_prometheus(state.service.spec) and not self._prometheus:
            return ConditionReason.NO_PROMETHEUS
        return None

    def _render(self, state: PassState, canary: CanaryDecision | None) -> dict[ChildRole, Fields]:
        """Render the children, in the order in which they are written."""
        facts = traffic.render_facts(
            state.observed, state.gateway, canary, prometheus=self._prometheus
        )
        roles = {ref: role for role, ref in state.observed.refs.items()}
        return {roles[ref_of(item)]: item for item in manifests(state.service, facts)}

    def _expect_runtime(self, state: PassState, desired: dict[ChildRole, Fields]) -> None:
        """Hand over what the pods of each variant are told to serve."""
        monitor = self._monitors.runtime
        if monitor is None:
            return
        service = state.service
        unknown = bool(service.unknown)
        policy = (service.spec.on_drift or OnDrift.RECONCILE).policy
        circumstances = Circumstances(unknown_fields=unknown, pending=unknown)
        action = decide(Situation.DRIFTED, policy, circumstances).action
        templates = {
            role.value: template
            for role in _DEPLOYMENTS
            if (template := answering_template(desired.get(role, {}))) is not None
        }
        held = None
        if action is not DecisionAction.HEAL:
            held = ObstacleKind.UNKNOWN_FIELDS if unknown else ObstacleKind.POLICY
        elif state.suspension is not None:
            held = ObstacleKind.SUSPENDED
        monitor.expect(service, templates, held=held)
        if state.runtime is NOT_ASKED:
            state.runtime = monitor.findings(service)

    async def _decide(
        self, state: PassState, desired: dict[ChildRole, Fields], held: frozenset[ChildRole]
    ) -> None:
        """Decide about every child, before anything is written."""
        now, known = self._clock.now(), state.memory.children
        if known is None:
            known = _known_roles(state.service)
        waiting = state.cache.waiting if state.cache is not None else frozenset()
        for role, item in desired.items():
            if role in held or role in waiting:
                state.children.append(hold_child(state, role))
                continue
            child = await decide_child(
                self._resource_manager,
                state,
                role,
                item,
                existed=role in known,
                heals=state.memory.heals.get(role, ()),
                now=now,
            )
            state.children.append(await self._with_cost(child))

    async def _with_cost(self, child: ChildDecision) -> ChildDecision:
        """Find out what it costs to make a child as declared: where somebody has to decide about
        its drift, and where pods are rolled out that need devices."""
        if child.diff is None or child.live is None or child.declared is None:
            return child
        rolls_out = child.action is DecisionAction.UPDATE and bool(
            requested_devices(pod_spec_of(child.live))
        )
        if not (child.leaves_drift or child.action is DecisionAction.REFUSE or rolls_out):
            return child
        diff = await self._costs.add_costs(child.diff, child.live, child.declared.item)
        return replace(child, diff=diff)

    async def _with_healing_cost(self, child: ChildDecision) -> ChildDecision:
        """Find out what it cost to put a child back: after that, so that no heal waits for it."""
        if child.declared is None or child.written is None:
            return child
        item = child.declared.item
        if child.healed and child.diff is not None and child.live is not None:
            diff = await self._costs.add_costs(child.diff, child.live, item, count_free=False)
            return replace(child, diff=diff)
        if child.deleted and child.action is DecisionAction.CREATE:
            cost = await self._costs.cost_of_object(None, item, count_free=False)
            return replace(child, creation_cost=cost)
        return child

    def _remember_children(self, state: PassState) -> None:
        """Remember what there is, and what was put back: it may be changed, or deleted, again."""
        memory, now = state.memory, self._clock.now()
        for each in state.children:
            created = each.action is DecisionAction.CREATE and each.deleted and bool(each.written)
            if not each.healed and not created:
                continue
            heals = (*memory.heals.get(each.role, ()), Heal(at=now, fields=each.healed_changes))
            memory.heals[each.role] = tuple(heal for heal in heals if recent_rounds([heal.at], now))
        there = set(state.own)
        # What was deleted and is left out for a while is still missed.
        there |= {each.role for each in state.children if each.deleted}
        memory.children = frozenset(there)

    async def _record_drift(
        self, state: PassState, canary: CanaryDecision | None
    ) -> InferenceService:
        """Write down who changed what before it is put back: healing erases every trace."""
        service = state.service
        healed = [each for each in state.children if each.action is DecisionAction.HEAL]
        if not healed:
            return service

        async def status() -> InferenceServiceStatus:
            made, reports = await self._make_status(state, canary, healing=True)
            state.memory.healing = reports["DriftDetected"].drifts
            return replace(made, canary=service.status.canary if service.status else None)

        return await self._status_writer.before_healing(service, describe_drift(healed), status)

    async def _make_status(
        self, state: PassState, canary: CanaryDecision | None, *, healing: bool = False
    ) -> tuple[InferenceServiceStatus, ConditionReports]:
        service, old = state.service, state.service.status
        since = unready_for(service, state.own, self._clock.now())
        wrote = any(each.action.writes for each in state.children)
        if since is None and not state.flaps:
            pods = NO_POD_PROBLEMS
        elif since is not None and (since < UNREADY_GRACE or wrote) and not state.flaps:
            pods = PodReport(starting=True)
        else:
            pods = await read_pod_problems(
                self._client, service, state.flaps, now=self._clock.now()
            )
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
                pods=pods,
                canary=canary.state if canary else old.canary if old else None,
                canary_message=canary.message if canary else "",
                healing=healing,
                suspended=state.suspension is not None,
                idle=state.idle,
                to_remove=state.to_remove,
                scaler_problem=self._scaler_problem(state),
                applied=state.applied,
                unfinished=state.memory.healing,
                runtime=state.runtime,
                runtime_healed=_fresh_heals(state),
                cache=state.cache,
                head=state.head,
            )
        )

    async def _finish(
        self,
        service: InferenceService,
        status: InferenceServiceStatus,
        reports: ConditionReports,
        state: PassState | None = None,
        canary: CanaryDecision | None = None,
    ) -> ServiceResult:
        """Write the status, gather the facts, and raise what went wrong."""
        before = state.service.status if state else service.status
        memory = self._recall(service)
        facts, memory.pending = [*memory.pending], ()
        if state is not None:
            facts += facts_of_writes(state.children)
            facts += (ChildDeleted(ref=ref) for ref in state.removed)
            healed = runtime_drifts(service, _fresh_heals(state))
            facts += (DriftHealed(drift=each) for each in healed)
            facts += [state.drain_failed] if state.drain_failed is not None else []
        errors = list(state.errors.values()) if state else []
        try:
            if errors and all(isinstance(each, KubeConflict) for each in errors):
                # Another writer was first, so this pass is void; the next one is moments away.
                raise errors[0]
            facts += canary.facts if canary else ()
            facts += facts_of_transition(before, memory.reports, reports)
            memory.reports, memory.healing = {**memory.reports, **reports}, ()
            if state is not None and state.runtime is not None:
                memory.runtime_heals = state.runtime.heals
            await self._status_writer.report(service, status)
            _raise_first(errors)
        except HoldfastError:
            if service.uid:
                once = [each for at, each in enumerate(facts) if each not in facts[:at]]
                memory.pending = tuple(once[-_MAX_PENDING_FACTS:])
            raise
        requeue_after = self._requeue_after(state, canary, status)
        return ServiceResult(status=status, requeue_after=requeue_after, facts=tuple(facts))

    def _requeue_after(
        self,
        state: PassState | None,
        canary: CanaryDecision | None,
        status: InferenceServiceStatus,
    ) -> float | None:
        """When to reconcile again although no event may come.

        Others' objects send none, nor do pods that fail: those are asked less and less often.
        """
        if state is None:
            return None
        times = [canary.requeue_after] if canary and canary.requeue_after is not None else []
        foreign = any(each.reason is Reason.FOREIGN for each in state.children)
        blocked = self._scaler_problem(state) is not None
        if state.observed.other_autoscaler or foreign or blocked:
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
        if state.suspension is not None and state.suspension.until is not None:
            times.append(max(0.0, (state.suspension.until - now).total_seconds()))
        if state.cache is not None and state.cache.poll is not None:
            times.append(state.cache.poll)
        if state.idle is not None:
            # It was decided by the readiness that was reported before this pass.
            before = condition_of(state.service.status, "Ready")
            after = condition_of(status, "Ready")
            moved = (before and before.status) != (after and after.status)
            wait = 0.0 if moved else (state.idle.recheck_at - now).total_seconds()
            times.append(max(_REQUEUE_SOON, wait))
        if state.flaps and self._monitors.flaps is not None:
            quiet = self._monitors.flaps.next_end(state.service.namespace, state.service.name)
            times.append(_REQUEUE_SOON + (quiet or 0.0))
        unready = unready_for(state.service, state.own, now)
        if unready is not None:
            times.append(min(max(unready, UNREADY_GRACE), _MAX_UNREADY_WAIT))
        return min(times, default=None)


def _fresh_heals(state: PassState) -> tuple[RuntimeDifference, ...]:
    """What pods serve as declared again, unless that was told already."""
    found = state.runtime
    return found.healed if found and found.heals > state.memory.runtime_heals else ()


def _state_hash(
    observed: ObservedChildren,
    runtime: RuntimeFindings | None,
    flaps: tuple[PodFlaps, ...],
    head: ModelHead | None,
) -> int | None:
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
        (
            service.generation,
            service.unknown,
            service.status,
            tuple(sorted(carried_labels(service).items())),
            tuple(sorted(carried_annotations(service).items())),
            observed.other_autoscaler,
            state_hash,
            runtime,
            flaps,
            head,
        )
    )


def _key(service: InferenceService) -> str:
    return service.uid or f"{service.namespace}/{service.name}"


def _last_applied(service: InferenceService, memory: ServiceMemory) -> dict[str, str]:
    """What was applied last to the children: by this process, or by the status."""
    if memory.applied is not None:
        return dict(memory.applied)
    stored = service.status.applied if service.status else None
    return {each.child: each.digest for each in stored or ()}


def _known_roles(service: InferenceService) -> frozenset[ChildRole]:
    """What a service had by its own status, for who has just begun to look at it."""
    status = service.status
    if status is None:
        return frozenset()
    if any(each.reason == ConditionReason.FOREIGN_OBJECT for each in status.conditions):
        return frozenset()
    routes = condition_of(status, "RoutesReady")
    known = {ChildRole.PRIMARY} if status.replicas else set()
    if routes is not None and routes.status == "True":
        known.add(ChildRole.ENTRY_SERVICE)
    return frozenset(known)


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
