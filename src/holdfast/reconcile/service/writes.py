"""Looks at children and writes them: one function for each thing that is done to a cluster.

The pass calls these in its order and decides nothing here but what one object needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from holdfast.core.errors import HoldfastError
from holdfast.core.ownership.delegated import ALONE, Surroundings
from holdfast.core.ownership.signals import declare
from holdfast.core.policy import OnDrift
from holdfast.core.service.spec import InferenceService
from holdfast.core.tree import Fields
from holdfast.reconcile.keeper import Keeper
from holdfast.reconcile.kube import KubeClient
from holdfast.reconcile.service import replicas
from holdfast.reconcile.service.family import (
    Family,
    Part,
    Relation,
    relation,
    terminating,
    uid_of,
)
from holdfast.reconcile.service.intent import WRITES, Intent, Move, decide


@dataclass(slots=True, kw_only=True)
class Course:
    """What one pass has seen and done so far. The live side follows the pass's own writes."""

    family: Family
    live: dict[Part, Fields]
    errors: dict[Part, HoldfastError]
    intents: list[Intent] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    @property
    def service(self) -> InferenceService:
        return self.family.service


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
        if intent.move is Move.CREATE:
            course.live[intent.part] = await _create(client, keeper, course, intent)
        elif intent.live is not None and intent.verdict is not None:
            left = intent.verdict.drifted if intent.move is Move.BESIDE else ()
            course.live[intent.part] = await keeper.heal(
                intent.declared,
                intent.live,
                intent.verdict,
                leave=frozenset(found.change.path for found in left),
            )
    except HoldfastError as error:
        course.errors[intent.part] = error
        return replace(intent, error=error)
    return intent


def _may_scale(course: Course) -> bool:
    """An autoscaler starts once the number is not held by us any more, and beside no other."""
    live = course.live.get(Part.PRIMARY)
    ready = live is not None and Part.PRIMARY not in course.errors and not replicas.is_held(live)
    return ready and course.family.rival is None


async def _create(client: KubeClient, keeper: Keeper, course: Course, intent: Intent) -> Fields:
    """Create a child; a Deployment whose number others choose starts with one all the same."""
    assert intent.declared is not None  # noqa: S101  # asked by the caller
    item = intent.declared.item
    start = replicas.start_of(course.service)
    if intent.part is not Part.PRIMARY or not replicas.is_free(item) or start == 1:
        return await keeper.create(intent.declared)
    live = await keeper.create(declare(replicas.started(item, start), keeper.manager))
    live = await keeper.park(live)
    # Guarded by the uid alone: its controller writes the status of a new Deployment at once, and
    # whatever else was changed since would be refused, for nothing is forced.
    return await client.apply(replicas.of_uid(item, live), manager=keeper.manager)


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
            await client.delete(ref, uid=uid_of(live))
        except HoldfastError as error:
            course.errors[part] = error
        else:
            course.live.pop(part)
            course.removed.append(f"{ref.kind} {ref.name}")


def _around(course: Course, part: Part) -> Surroundings:
    if part is not Part.PRIMARY:
        return ALONE
    ours = course.family.refs[Part.AUTOSCALER]
    own = f"{ours.kind}/{ours.name}" if course.service.spec.autoscaled else ""
    return Surroundings(autoscaler=course.family.rival or own)
