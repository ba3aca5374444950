"""Looks at children and writes them: one function for each thing that is done to a cluster.

The pass calls these in its order and decides nothing here but what one object needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from holdfast.core.errors import HoldfastError
from holdfast.core.ownership.delegated import ALONE, Surroundings
from holdfast.core.ownership.signals import AppliedRecord, declare
from holdfast.core.ownership.verdict import State
from holdfast.core.policy import OnDrift
from holdfast.core.service.children import Gateway
from holdfast.core.service.spec import InferenceService
from holdfast.core.tree import Fields
from holdfast.reconcile.keeper import Keeper, Written
from holdfast.reconcile.kube import ConflictReason, KubeClient, KubeConflict, ObjectRef
from holdfast.reconcile.service import replicas
from holdfast.reconcile.service.family import (
    Family,
    Part,
    Relation,
    relation,
    terminating,
    uid_of,
    version_of,
)
from holdfast.reconcile.service.intent import WRITES, Intent, Move, decide

_TRIES = 5
"""How often a deletion is tried of an object whose status keeps moving."""


@dataclass(slots=True, kw_only=True)
class Course:
    """What one pass has seen and done so far. The live side follows the pass's own writes."""

    family: Family
    live: dict[Part, Fields]
    errors: dict[Part, HoldfastError]
    gateway: Gateway | None = None
    """The one that requests of this service come through."""
    intents: list[Intent] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    applied: dict[str, str] = field(default_factory=dict)
    """The digest of what was applied last to each child, by kind and name; empty where an older
    version wrote down none."""

    @property
    def service(self) -> InferenceService:
        return self.family.service

    @property
    def own(self) -> dict[Part, Fields]:
        """What there is of this service: an object of another's under our name is not."""
        return {
            part: live
            for part, live in self.live.items()
            if relation(self.service, live) is not Relation.FOREIGN
        }

    def note_applied(self) -> None:
        """Put on record what the children carry after the writes of this pass."""
        for each in self.intents:
            settled = each.verdict is not None and each.verdict.state is State.IN_SYNC
            if each.declared is not None and (each.written is not None or settled):
                self.applied[child_name(each.ref)] = each.declared.digest
        there = {child_name(self.family.refs[part]) for part in self.live}
        for name in self.applied.keys() - there:
            del self.applied[name]


def child_name(ref: ObjectRef) -> str:
    """Name a child as the record does."""
    return f"{ref.kind}/{ref.name}"


async def settle_replicas(client: KubeClient, course: Course, number: int | None) -> None:
    """Take the primary's number from an autoscaler that is gone, or give it an owner.

    `number` is the one to be written with the manifest; None when others choose it. Done before
    anything is compared: what an autoscaler left behind is no drift.
    """
    live = course.live.get(Part.PRIMARY)
    if live is None or terminating(live) or relation(course.service, live) is not Relation.OURS:
        return
    lent = number is not None and replicas.is_lent(live, number)
    loose = course.service.spec.autoscaled and replicas.is_loose(live)
    wanted = number if lent else replicas.number_of(live) if loose else None
    if wanted is None:
        return
    try:
        course.live[Part.PRIMARY] = await replicas.take(client, live, wanted)
    except HoldfastError as error:
        course.errors[Part.PRIMARY] = error


async def look(
    keeper: Keeper, course: Course, part: Part, item: Fields, *, policy: OnDrift
) -> Intent:
    """See how one child stands, and decide what to do about it."""
    declared = declare(item, keeper.manager)
    known = course.applied.get(child_name(course.family.refs[part]))
    if known is not None:
        declared = replace(declared, record=AppliedRecord(digest=known))
    live = course.live.get(part)
    intent = Intent(
        part=part, ref=course.family.refs[part], move=Move.HOLD, declared=declared, live=live
    )
    if part in course.errors:
        return replace(intent, error=course.errors[part])
    if live is None:
        return replace(intent, move=Move.CREATE)
    if terminating(live):
        return replace(intent, move=Move.AWAIT)
    if relation(course.service, live) is Relation.FOREIGN:
        return replace(intent, move=Move.AVOID)
    try:
        verdict = await keeper.look(declared, live, around=_around(course, part))
    except HoldfastError as error:
        course.errors[part] = error
        return replace(intent, error=error)
    return replace(intent, move=decide(verdict, policy), verdict=verdict)


async def carry_out(client: KubeClient, keeper: Keeper, course: Course, intent: Intent) -> Intent:
    """Do what was decided. A refusal is kept with the intent, and stops nothing else."""
    if intent.move not in WRITES or intent.declared is None:
        return intent
    if intent.part is Part.AUTOSCALER and intent.move is Move.CREATE and not _may_scale(course):
        return replace(intent, move=Move.HOLD)
    try:
        written = await _write(client, keeper, course, intent)
    except HoldfastError as error:
        course.errors[intent.part] = error
        return replace(intent, error=error)
    if written is None:
        return intent
    course.live[intent.part] = written.live
    return replace(intent, written=written)


async def _write(
    client: KubeClient, keeper: Keeper, course: Course, intent: Intent
) -> Written | None:
    """Create or heal one child; None when there is nothing to be written to."""
    if intent.move is Move.CREATE:
        return await _create(client, keeper, course, intent)
    if intent.declared is None or intent.live is None or intent.verdict is None:
        return None
    left = intent.verdict.drifted if intent.move is Move.BESIDE else intent.contested
    return await keeper.heal(
        intent.declared,
        intent.live,
        intent.verdict,
        leave=frozenset(found.change.path for found in left),
    )


def _may_scale(course: Course) -> bool:
    """An autoscaler starts once the number is not held by us any more, and beside no other."""
    live = course.live.get(Part.PRIMARY)
    ready = live is not None and Part.PRIMARY not in course.errors and not replicas.is_held(live)
    return ready and course.family.rival is None


async def _create(client: KubeClient, keeper: Keeper, course: Course, intent: Intent) -> Written:
    """Create a child; a Deployment whose number others choose starts with one all the same."""
    assert intent.declared is not None  # noqa: S101  # asked by the caller
    item = intent.declared.item
    start = replicas.start_of(course.service)
    if intent.part is not Part.PRIMARY or not replicas.is_free(item) or start == 1:
        return await keeper.create(intent.declared)
    written = await keeper.create(declare(replicas.started(item, start), keeper.manager))
    live = await keeper.park(written.live)
    # Guarded by the uid alone: its controller writes the status of a new Deployment at once, and
    # whatever else was changed since would be refused, for nothing is forced.
    live = await client.apply(replicas.of_uid(item, live), manager=keeper.manager)
    return replace(written, live=live)


async def remove(client: KubeClient, course: Course, parts: Sequence[Part]) -> None:
    """Delete children that are no longer wanted: only ours, and only those that were seen."""
    for part in parts:
        live = course.live.get(part)
        if live is None or relation(course.service, live) is not Relation.OURS:
            continue
        if terminating(live):
            continue
        ref = course.family.refs[part]
        try:
            await _delete(client, ref, live)
        except HoldfastError as error:
            course.errors[part] = error
        else:
            course.live.pop(part)
            course.removed.append(f"{ref.kind} {ref.name}")


async def _delete(client: KubeClient, ref: ObjectRef, live: Fields) -> None:
    """Delete an object as it was seen. Only its status may have moved since, which it always does.

    Raises KubeConflict when anything else has: somebody else has plans with it, so look again.
    """
    for _ in range(_TRIES):
        try:
            await client.delete(ref, uid=uid_of(live), version=version_of(live))
        except KubeConflict as conflict:
            if conflict.reason is not ConflictReason.CHANGED:
                raise
            now = await client.get(ref)
            if now is None:
                return
            if uid_of(now) != uid_of(live) or _declared(now) != _declared(live):
                raise
            live = now
        else:
            return
    raise KubeConflict(f"{ref} keeps changing.", reason=ConflictReason.CHANGED)


def _declared(live: Fields) -> Fields:
    """All of an object but its status and the clockwork of the server."""
    metadata = live["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    clockwork = ("resourceVersion", "managedFields", "generation")
    kept = {name: value for name, value in metadata.items() if name not in clockwork}
    return {**live, "metadata": kept, "status": None}


def _around(course: Course, part: Part) -> Surroundings:
    if part is not Part.PRIMARY:
        return ALONE
    ours = course.family.refs[Part.AUTOSCALER]
    own = f"{ours.kind}/{ours.name}" if course.service.spec.autoscaled else ""
    return Surroundings(autoscaler=course.family.rival or own)
