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
from holdfast.core.ownership.managed_fields import read_ownership
from holdfast.core.ownership.object_diff import ObjectState
from holdfast.core.ownership.signals import AppliedRecord, declare
from holdfast.core.policy import Circumstances, DecisionAction, OnDrift, Policy, decide
from holdfast.core.service.children import Gateway
from holdfast.core.service.spec import InferenceService
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ConflictReason, KubeClient, KubeConflict, ObjectRef
from holdfast.reconcile.objects.resource_manager import (
    ResourceManager,
    WriteResult,
    with_version_guard,
)
from holdfast.reconcile.service.decisions import ChildDecision, decide_absent, decide_present
from holdfast.reconcile.service.observe import (
    OPERATOR_MANAGER,
    ChildOwnership,
    ChildRole,
    ObservedChildren,
    is_terminating,
    relation,
    uid_of,
    version_of,
)

_REPLICAS_PATH = ("spec", "replicas")


def replicas_of(live: Fields | None) -> int | None:
    """How many replicas a Deployment is to have."""
    found = None if live is None else value_at(live, _REPLICAS_PATH)
    return found if isinstance(found, int) else None


def initial_replicas(service: InferenceService) -> int:
    """With how many a Deployment starts whose number others choose.

    One that was deleted comes back as it was seen last, not as a single pod.
    """
    spec = service.spec
    seen = service.status.replicas if service.status else 0
    start = seen or spec.replicas or spec.min_replicas or 1
    if spec.autoscaled:
        start = min(max(start, spec.min_replicas or 1), spec.max_replicas or start)
    return start


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


def leaves_replicas_open(item: Fields) -> bool:
    """True for a manifest that leaves the number to others."""
    return replicas_of(item) is None


def owns_replicas(live: Fields) -> bool:
    """True while the number is in our own manifest."""
    return _owned_by(live, OPERATOR_MANAGER)


def has_unowned_replicas(live: Fields) -> bool:
    """True when nobody owns the number, so that a later scaling would leave no trace."""
    return not read_ownership(value_at(live, ("metadata", "managedFields"))).owners(
        _REPLICAS_PATH, "apps/v1"
    )


def has_lent_replicas(live: Fields, number: int) -> bool:
    """True when an autoscaler, or its place-holder, still has a number that is ours again."""
    if replicas_of(live) == number:
        return False
    owners = read_ownership(value_at(live, ("metadata", "managedFields"))).owners(
        _REPLICAS_PATH, "apps/v1"
    )
    return bool(owners) and all(
        entry.manager == REPLICA_SEED_MANAGER or cause_of(entry.writer) is Cause.AUTOSCALER
        for entry in owners
    )


async def take_replicas(client: KubeClient, live: Fields, number: int) -> Fields:
    """Take the number for the second manager; raises KubeConflict when the object moved since."""
    item: Fields = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {name: value_at(live, ("metadata", name)) for name in ("name", "namespace")},
        "spec": {"replicas": number},
    }
    return await client.apply(
        with_version_guard(item, live), manager=REPLICA_SEED_MANAGER, force=True
    )


def _owned_by(live: Fields, manager: str) -> bool:
    entries = read_ownership(value_at(live, ("metadata", "managedFields"))).entries
    return any(
        entry.manager == manager and entry.operation == "Apply" and entry.owns(_REPLICAS_PATH)
        for entry in entries
    )


_DELETE_ATTEMPTS = 5
"""How often a deletion is tried of an object whose status keeps moving."""


@dataclass(slots=True, kw_only=True)
class PassState:
    """What one pass has seen and done so far. The live side follows the pass's own writes."""

    observed: ObservedChildren
    live: dict[ChildRole, Fields]
    errors: dict[ChildRole, HoldfastError]
    gateway: Gateway | None = None
    """The one that requests of this service come through."""
    children: list[ChildDecision] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    applied: dict[str, str] = field(default_factory=dict)
    """The digest of what was applied last to each child, by kind and name; empty where an older
    version wrote down none."""

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
        there = {child_name(self.observed.refs[role]) for role in self.live}
        for name in self.applied.keys() - there:
            del self.applied[name]


def child_name(ref: ObjectRef) -> str:
    """Name a child as the record does."""
    return f"{ref.kind}/{ref.name}"


async def settle_replicas(client: KubeClient, state: PassState, number: int | None) -> None:
    """Take the primary's number from an autoscaler that is gone, or give it an owner.

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
    if number_to_take is None:
        return
    try:
        state.live[ChildRole.PRIMARY] = await take_replicas(client, live, number_to_take)
    except HoldfastError as error:
        state.errors[ChildRole.PRIMARY] = error


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
    if live is None:
        return decide_absent(replace(child, deleted=existed), heals, now)
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
    return decide_present(child, diff, policy, heals, now, unknown_fields=unknown)


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
    """An autoscaler starts once the number is not held by us any more, and beside no other."""
    live = state.live.get(ChildRole.PRIMARY)
    ready = live is not None and ChildRole.PRIMARY not in state.errors and not owns_replicas(live)
    return ready and state.observed.other_autoscaler is None


async def _create(
    client: KubeClient, resource_manager: ResourceManager, state: PassState, child: ChildDecision
) -> WriteResult:
    """Create a child; a Deployment whose number others choose starts with one all the same."""
    assert child.declared is not None  # noqa: S101  # asked by the caller
    item = child.declared.item
    start = initial_replicas(state.service)
    if child.role is not ChildRole.PRIMARY or not leaves_replicas_open(item) or start == 1:
        return await resource_manager.create(child.declared)
    written = await resource_manager.create(
        declare(with_replicas(item, start), resource_manager.manager)
    )
    live = await resource_manager.seed_replicas(written.live)
    # Guarded by the uid alone: its controller writes the status of a new Deployment at once, and
    # whatever else was changed since would be refused, for nothing is forced.
    live = await client.apply(with_uid(item, live), manager=resource_manager.manager)
    return replace(written, live=live)


async def delete_children(client: KubeClient, state: PassState, roles: Sequence[ChildRole]) -> None:
    """Delete children that are no longer wanted: only ours, and only those that were seen."""
    for role in roles:
        live = state.live.get(role)
        if live is None or relation(state.service, live) is not ChildOwnership.OURS:
            continue
        if is_terminating(live):
            continue
        ref = state.observed.refs[role]
        try:
            await _delete(client, ref, live)
        except HoldfastError as error:
            state.errors[role] = error
        else:
            state.live.pop(role)
            state.removed.append(f"{ref.kind} {ref.name}")


async def _delete(client: KubeClient, ref: ObjectRef, live: Fields) -> None:
    """Delete an object as it was seen. Only its status may have moved since, which it always does.

    Raises KubeConflict when anything else has: somebody else has plans with it, so look again.
    """
    for _ in range(_DELETE_ATTEMPTS):
        try:
            await client.delete(ref, uid=uid_of(live), version=version_of(live))
        except KubeConflict as conflict:
            if conflict.reason is not ConflictReason.CHANGED:
                raise
            now = await client.get(ref)
            if now is None:
                return
            if uid_of(now) != uid_of(live) or _without_status(now) != _without_status(live):
                raise
            live = now
        else:
            return
    raise KubeConflict(f"{ref} keeps changing.", reason=ConflictReason.CHANGED)


def _without_status(live: Fields) -> Fields:
    """All of an object but its status and the clockwork of the server."""
    metadata = live["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    clockwork = ("resourceVersion", "managedFields", "generation")
    kept = {name: value for name, value in metadata.items() if name not in clockwork}
    return {**live, "metadata": kept, "status": None}


def _ownership_context(state: PassState, role: ChildRole) -> OwnershipContext:
    if role is not ChildRole.PRIMARY:
        return NO_CONTEXT
    ours = state.observed.refs[ChildRole.AUTOSCALER]
    own = f"{ours.kind}/{ours.name}" if state.service.spec.autoscaled else ""
    return OwnershipContext(autoscaler=state.observed.other_autoscaler or own)
