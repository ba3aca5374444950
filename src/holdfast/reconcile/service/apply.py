"""Decides about children and writes them: one function for each thing that is done to a cluster.

The pass calls these in its order. Also hands the number of replicas over to an autoscaler and
takes it back, never by way of one replica: a field that its last owner leaves out falls back to
its default, which is a single pod. So a second field manager holds the number before it is left
out of ours (`ResourceManager` sees to that). Held so, it also has an owner, without which the API
server would not say who scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.core.drift import Cause, Situation, cause_of
from holdfast.core.errors import HoldfastError
from holdfast.core.fight import Heal
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.delegated import NO_CONTEXT, REPLICA_SEED_MANAGER, OwnershipContext
from holdfast.core.ownership.managed_fields import is_ours, ownership_of
from holdfast.core.ownership.object_diff import ObjectState
from holdfast.core.ownership.signals import AppliedRecord, declare
from holdfast.core.policy import Circumstances, DecisionAction, OnDrift, Policy, decide
from holdfast.core.service.autoscaling import initial_replicas
from holdfast.core.service.children import Gateway, rolling_limits
from holdfast.core.service.facts import (
    ChildDrift,
    ConditionReports,
    DrainFailed,
    ServiceFact,
)
from holdfast.core.service.idle import IdleDecision
from holdfast.core.service.model_head import ModelHead
from holdfast.core.service.pod_health import PodFlaps
from holdfast.core.service.spec import InferenceService, ResourceSpec
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import KubeClient, ObjectRef, ref_of
from holdfast.reconcile.objects.resource_manager import (
    ResourceManager,
    WriteResult,
    with_version_guard,
)
from holdfast.reconcile.service.decisions import (
    ChildDecision,
    Suspension,
    decide_absent,
    decide_present,
)
from holdfast.reconcile.service.observe import (
    OPERATOR_MANAGER,
    CacheProgress,
    ChildOwnership,
    ChildRole,
    ObservedChildren,
    is_terminating,
    relation,
    rollout_of,
)
from holdfast.reconcile.service.runtime import RuntimeFindings

_REPLICAS_PATH = ("spec", "replicas")


def replicas_of(live: Fields | None) -> int | None:
    """How many replicas there are to be."""
    found = None if live is None else value_at(live, _REPLICAS_PATH)
    return found if isinstance(found, int) else None


def with_replicas(item: Fields, number: int) -> Fields:
    """The manifest with a number to start with."""
    spec = item["spec"]
    assert isinstance(spec, dict)  # noqa: S101  # every Deployment has one
    return {**item, "spec": {"replicas": number, **spec}}


def with_uid(item: Fields, live: Fields) -> Fields:
    """Let a write hold for the object that was seen, whatever its version."""
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    return {**item, "metadata": {**metadata, "uid": value_at(live, ("metadata", "uid"))}}


def owns_replicas(live: Fields) -> bool:
    """True while the number is in our own manifest."""
    return any(
        is_ours(entry, frozenset({OPERATOR_MANAGER})) and entry.owns(_REPLICAS_PATH)
        for entry in ownership_of(live).entries
    )


def has_unowned_replicas(live: Fields) -> bool:
    """True when nobody owns the number, so that a later scaling would leave no trace."""
    return not ownership_of(live).owners(_REPLICAS_PATH, ref_of(live).api_version)


def has_lent_replicas(live: Fields, number: int) -> bool:
    """True when an autoscaler, or its place-holder, still has a number that is ours again."""
    if replicas_of(live) == number:
        return False
    owners = ownership_of(live).owners(_REPLICAS_PATH, ref_of(live).api_version)
    return bool(owners) and all(
        entry.manager == REPLICA_SEED_MANAGER or cause_of(entry.writer) is Cause.AUTOSCALER
        for entry in owners
    )


async def take_replicas(client: KubeClient, live: Fields, number: int) -> Fields:
    """Take the number for the second manager; raises KubeConflict when the object moved since."""
    ref = ref_of(live)
    item: Fields = {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "metadata": {name: value_at(live, ("metadata", name)) for name in ("name", "namespace")},
        "spec": {"replicas": number},
    }
    return await client.apply(
        with_version_guard(item, live), manager=REPLICA_SEED_MANAGER, force=True
    )


@dataclass(slots=True, kw_only=True)
class ServiceMemory:
    """What this process remembers of one service. A restart forgets it; the status has the rest."""

    pending: tuple[ServiceFact, ...] = ()
    """What passes that raised had to say."""
    settled: int | None = None
    """How it was left when it had nothing more to do."""
    valid: int | None = None
    """The generation that is known to be valid."""
    heals: dict[ChildRole, tuple[Heal, ...]] = field(default_factory=dict)
    """What was put back lately."""
    children: frozenset[ChildRole] | None = None
    """What it was seen to have, so that a deletion is known for one."""
    applied: dict[str, str] | None = None
    """What was applied last to its children: the status that has it may not be stored yet, or not
    be read yet."""
    healing: tuple[ChildDrift, ...] = ()
    """What was about to be put back when a pass wrote it down."""
    reports: ConditionReports = field(default_factory=dict)
    """Its conditions as they were found last."""
    runtime_heals: int = 0
    """How often what pods serve was put back, as far as that was told."""


@dataclass(slots=True, kw_only=True)
class PassState:
    """What one pass has seen and done so far. The live side follows the pass's own writes."""

    observed: ObservedChildren
    live: dict[ChildRole, Fields]
    errors: dict[ChildRole, HoldfastError]
    gateway: Gateway | None = None
    """The one that requests of this service come through."""
    memory: ServiceMemory = field(default_factory=ServiceMemory)
    children: list[ChildDecision] = field(default_factory=list)
    removed: list[ObjectRef] = field(default_factory=list)
    cache: CacheProgress | None = None
    """How far the downloads are; None without a cache, or where that is not known."""
    applied: dict[str, str] = field(default_factory=dict)
    """The digest of what was applied last to each child, by kind and name; empty where an older
    version wrote down none."""
    suspension: Suspension | None = None
    """Given while nothing is to be written."""
    idle: IdleDecision | None = None
    """Whether it is to have replicas at all; None where it always has some."""
    flaps: tuple[PodFlaps, ...] = ()
    """Its pods that do not stay ready."""
    drain_failed: DrainFailed | None = None
    """Pods of it that were stopped without waiting, since the last pass."""
    to_remove: tuple[ObjectRef, ...] = ()
    """What is no longer declared, and stays while the service is suspended."""
    runtime: RuntimeFindings | None = None
    """What its pods serve; None where nobody asks."""
    head: ModelHead | None = None
    """What is known of the branch of its model; None where nobody asks."""

    @property
    def service(self) -> InferenceService:
        return self.observed.service

    @property
    def own(self) -> dict[ChildRole, Fields]:
        """What there is of this service: an object of another's under our name is not."""
        return {
            role: live
            for role, live in self.live.items()
            if relation(self.service, live) is not ChildOwnership.FOREIGN
        }

    def note_applied(self) -> None:
        """Put on record what the children carry after the writes of this pass."""
        for each in self.children:
            settled = each.diff is not None and each.diff.state is ObjectState.IN_SYNC
            if each.declared is not None and (each.written is not None or settled):
                self.applied[child_name(each.ref)] = each.declared.digest
        seen = self.live.keys() | self.observed.unread.keys()  # unread is not gone
        there = {child_name(self.observed.refs[role]) for role in seen}
        for name in self.applied.keys() - there:
            del self.applied[name]


def child_name(ref: ObjectRef) -> str:
    """Name a child as the record does."""
    return f"{ref.kind}/{ref.name}"


async def settle_replicas(client: KubeClient, state: PassState, number: int | None) -> None:
    """Take the primary's number from an autoscaler that is gone, or give it an owner.

    Also puts a service to rest that nobody asks, and wakes it: as the second manager too, so that
    no number is declared, and none is drift. One at rest that may not rest any more is woken for
    good, as an autoscaler does nothing about no replicas.

    `number` is the one to be written with the manifest; None when others choose it. Done before
    anything is compared: what an autoscaler left behind is no drift.
    """
    live = state.live.get(ChildRole.PRIMARY)
    if (
        live is None
        or is_terminating(live)
        or relation(state.service, live) is not ChildOwnership.OURS
    ):
        return
    lent = number is not None and has_lent_replicas(live, number)
    loose = state.service.spec.autoscaled and has_unowned_replicas(live)
    number_to_take = number if lent else replicas_of(live) if loose else None
    asleep = state.idle.asleep if state.idle is not None else _rests_on(state)
    if asleep is not None and asleep != (replicas_of(live) == 0):
        number_to_take = 0 if asleep else initial_replicas(state.service)
    if number_to_take is None:
        return
    try:
        state.live[ChildRole.PRIMARY] = await take_replicas(client, live, number_to_take)
    except HoldfastError as error:
        state.errors[ChildRole.PRIMARY] = error


def _rests_on(state: PassState) -> bool | None:
    """False for a service that was put to rest and may not have no replicas any more.

    An autoscaler never starts what has none.
    """
    status = state.service.status
    rested = any(
        each.type == "ScaledToZero" and each.status == "True"
        for each in (status.conditions if status else ())
    )
    return False if rested and state.observed.other_autoscaler is None else None


async def decide_child(
    resource_manager: ResourceManager,
    state: PassState,
    role: ChildRole,
    item: Fields,
    *,
    existed: bool,
    heals: Sequence[Heal],
    now: datetime,
) -> ChildDecision:
    """Compare one child, and decide what to do about it.

    `existed` says that it was there before, and `heals` what of it was put back lately.
    """
    declared = declare(item, resource_manager.manager)
    known = state.applied.get(child_name(state.observed.refs[role]))
    if known is not None:
        declared = replace(declared, record=AppliedRecord(digest=known))
    live = state.live.get(role)
    child = replace(hold_child(state, role), declared=declared, live=live)
    if child.error is not None:
        return child
    suspension = state.suspension
    if live is None:
        deleted = replace(child, deleted=existed)
        return decide_absent(deleted, heals, now, suspension=suspension)
    terminating = is_terminating(live)
    if terminating or relation(state.service, live) is ChildOwnership.FOREIGN:
        circumstances = Circumstances(terminating=terminating, foreign=not terminating)
        decision = decide(Situation.PENDING, Policy.HEAL, circumstances)
        return replace(child, decision=decision)
    try:
        diff = await resource_manager.diff(declared, live, context=_ownership_context(state, role))
    except HoldfastError as error:
        state.errors[role] = error
        return replace(child, error=error)
    spec = state.service.spec
    policy = (spec.on_drift or OnDrift.RECONCILE).policy
    unknown = bool(state.service.unknown)
    return decide_present(
        child, diff, policy, heals, now, unknown_fields=unknown, suspension=suspension
    )


def hold_child(state: PassState, role: ChildRole) -> ChildDecision:
    """Leave a child alone that was not read, or that depends on something that was not."""
    return ChildDecision(
        role=role,
        ref=state.observed.refs[role],
        decision=decide(Situation.UNKNOWN, Policy.HEAL),
        error=state.errors.get(role),
    )


async def apply_child(
    client: KubeClient, resource_manager: ResourceManager, state: PassState, child: ChildDecision
) -> ChildDecision:
    """Do what was decided. A refusal is kept with the child, and stops nothing else."""
    if not child.action.writes or child.declared is None:
        return child
    creates = child.action is DecisionAction.CREATE
    if child.role is ChildRole.AUTOSCALER and creates and not _may_scale(state):
        waits = decide(Situation.ABSENT, Policy.HEAL, Circumstances(incomplete=True))
        return replace(child, decision=waits)
    try:
        written = await _write(client, resource_manager, state, child)
    except HoldfastError as error:
        state.errors[child.role] = error
        return replace(child, error=error)
    if written is None:
        return child
    state.live[child.role] = written.live
    return replace(child, written=written)


async def _write(
    client: KubeClient, resource_manager: ResourceManager, state: PassState, child: ChildDecision
) -> WriteResult | None:
    """Create or heal one child; None when there is nothing to be written to."""
    if child.action is DecisionAction.CREATE:
        return await _create(client, resource_manager, state, child)
    if child.declared is None or child.live is None or child.diff is None:
        return None
    around = child.action is DecisionAction.UPDATE_AROUND_DRIFT
    left = child.diff.drifted if around else child.contested
    return await resource_manager.heal(
        child.declared,
        child.live,
        child.diff,
        leave=frozenset(field.change.path for field in left),
    )


def _may_scale(state: PassState) -> bool:
    """An autoscaler starts once the number is not held by us any more, and beside no other.

    Nor before the one that it takes the place of is gone, not only told to go.
    """
    live = state.live.get(ChildRole.PRIMARY)
    ready = live is not None and ChildRole.PRIMARY not in state.errors and not owns_replicas(live)
    if ChildRole.FORMER_AUTOSCALER in state.live:
        return False
    return ready and state.observed.other_autoscaler is None


async def _create(
    client: KubeClient, resource_manager: ResourceManager, state: PassState, child: ChildDecision
) -> WriteResult:
    """Create a child; a Deployment whose number others choose starts with one all the same."""
    assert child.declared is not None  # noqa: S101  # asked by the caller
    item = child.declared.item
    start = initial_replicas(state.service)
    if child.role is not ChildRole.PRIMARY or replicas_of(item) is not None or start == 1:
        return await resource_manager.create(child.declared)
    written = await resource_manager.create(
        declare(with_replicas(item, start), resource_manager.manager)
    )
    live = await resource_manager.seed_replicas(written.live)
    # Guarded by the uid alone: its controller writes the status of a new Deployment at once, and
    # whatever else was changed since would be refused, for nothing is forced.
    live = await client.apply(with_uid(item, live), manager=resource_manager.manager)
    return replace(written, live=live)


async def delete_children(
    resource_manager: ResourceManager, state: PassState, roles: Sequence[ChildRole]
) -> None:
    """Delete children that are no longer desired: only ours, and only those that were read."""
    for role in roles:
        if not _is_removable(state, role):
            continue
        ref = state.observed.refs[role]
        try:
            await resource_manager.delete(ref, state.live[role])
        except HoldfastError as error:
            state.errors[role] = error
        else:
            state.live.pop(role)
            state.removed.append(ref)


def keeps_former_primary(state: PassState) -> bool:
    """True while what ran the primary before has to serve on.

    Where extra pods may be started it goes once the new one is there in full; with GPUs and no
    word about that, as soon as the new one exists, which may be waiting for them.
    """
    live = state.live.get(ChildRole.PRIMARY)
    if live is None or ChildRole.PRIMARY in state.errors:
        return True
    rollout = rollout_of(live)
    complete = rollout is not None and rollout.complete
    resources = state.service.spec.resources or ResourceSpec()
    return not complete and bool(rolling_limits(state.service, resources)["maxSurge"])


def removable_children(state: PassState, roles: Sequence[ChildRole]) -> tuple[ObjectRef, ...]:
    """Name the children that are no longer desired and that would be deleted."""
    return tuple(state.observed.refs[role] for role in roles if _is_removable(state, role))


def _is_removable(state: PassState, role: ChildRole) -> bool:
    live = state.live.get(role)
    if live is None or is_terminating(live):
        return False
    return relation(state.service, live) is ChildOwnership.OURS


def _ownership_context(state: PassState, role: ChildRole) -> OwnershipContext:
    if role is not ChildRole.PRIMARY:
        return NO_CONTEXT
    ours = state.observed.refs[ChildRole.AUTOSCALER]
    own = f"{ours.kind}/{ours.name}" if state.service.spec.autoscaled else ""
    return OwnershipContext(autoscaler=state.observed.other_autoscaler or own)
