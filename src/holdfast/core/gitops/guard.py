"""What is too much, or too strange, to be done without asking a person.

An error that looks like an empty or shrunken repository is the worst accident that a tool of
this kind can have, so these are separate questions with separate answers. What is weighed is the
damage: deletions and updates of a whole day, and some that no number makes small.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.core.gitops.application import GuardSpec
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.records import ApprovalReason
from holdfast.core.gitops.source import Ancestry, DeclaredObject
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import value_at
from holdfast.core.plan import Action
from holdfast.core.tree import digest, show_path

_EMPTY_MESSAGE = (
    "The repository declares nothing any more. Nothing is deleted unless sync.allowEmpty says that "
    "this may be meant, and somebody agrees."
)
_HASHED_NAME = re.compile(r"(.+)-[bcdfghkmt2456789]{10}")
"""A name that Kustomize made of a stem and the hash of the content."""
DEFAULT_OBJECTS = 5
DEFAULT_PERCENT = 20
MIN_UPDATES = 20
"""So many objects may be updated within a day, however small the application."""
UPDATE_WEIGHT = 0.25
"""What an update counts, where a deletion counts 1."""
GUARD_PERIOD = timedelta(hours=24)
"""How long what was done without asking counts: a series of commits is one change."""
IRREPLACEABLE = frozenset({
    ("", "Namespace"), ("", "PersistentVolume"), ("", "PersistentVolumeClaim"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
})  # fmt: skip
"""Kinds that take along what is in them, which no apply brings back."""
REPLICAS = ("spec", "replicas")
HEAL_BURST = timedelta(minutes=1)
"""Heals that lie closer than this count as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequirement:
    """One reason, in a sentence for whoever is asked."""

    why: ApprovalReason
    message: str

    @property
    def whole(self) -> bool:
        """True when it keeps back all of a plan, and not only its deletions."""
        return self.why in WHOLE_PLAN_REASONS


WHOLE_PLAN_REASONS = frozenset({ApprovalReason.MASS_CHANGE, ApprovalReason.TO_ZERO})


@dataclass(frozen=True, slots=True, kw_only=True)
class UnapprovedChanges:
    """What one sync did without anybody having agreed to it. Objects are named by `short`."""

    at: datetime
    deleted: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncExtent:
    """What an application has, for the guards."""

    inventory: int
    """Objects that were applied."""
    declared: Sequence[DeclaredObject]
    lately: Sequence[UnapprovedChanges] = ()
    by_itself: bool = False
    """True when the plan would be carried out without anybody asking for it."""
    acting: bool = True
    """True when the plan would be carried out at all, now or in the next window."""


def short_name(ref: ObjectRef) -> str:
    """Name an object where thousands are kept."""
    return digest([ref.group, ref.kind, ref.namespace, ref.name]).removeprefix("sha256:")[:12]


def is_irreplaceable(ref: ObjectRef) -> bool:
    """True for an object whose deletion always asks, however few they are."""
    return (ref.group, ref.kind) in IRREPLACEABLE


def change_limit(inventory: int, guard: GuardSpec | None, *, least: int = DEFAULT_OBJECTS) -> int:
    """How many objects may go: the larger of a number and a share."""
    guard = guard or GuardSpec()
    objects = least if guard.objects is None else guard.objects
    percent = DEFAULT_PERCENT if guard.percent is None else guard.percent
    return max(objects, inventory * percent // 100)


def approval_for_commit(ancestry: Ancestry, commit: str) -> ApprovalRequirement | None:
    """Say why a commit as a whole is not followed before somebody agrees."""
    shown = commit[:7]
    match ancestry:
        case Ancestry.UNRELATED:
            message = f"Commit {shown} has no history in common with what was applied."
            return ApprovalRequirement(why=ApprovalReason.UNRELATED, message=message)
        case Ancestry.REWOUND:
            message = f"The branch was set back to {shown}, which is older than what was applied."
            return ApprovalRequirement(why=ApprovalReason.REWOUND, message=message)
        case _:
            return None


def approvals_for_sync(
    plan: SyncPlan,
    extent: SyncExtent,
    *,
    guard: GuardSpec | None,
    ancestry: Ancestry,
    now: datetime,
) -> tuple[ApprovalRequirement, ...]:
    """Say why a plan must not be carried out by itself."""
    deletes = [step for step in plan.steps if step.action is Action.DELETE]
    found: list[ApprovalRequirement] = []
    if extent.inventory and not extent.declared:
        found.append(ApprovalRequirement(why=ApprovalReason.EMPTY, message=_EMPTY_MESSAGE))
    found += _mass_change_approvals(plan, extent, guard, now)
    if deletes and ancestry is Ancestry.DIVERGED:
        message = f"The branch was rewritten, and {len(deletes)} objects would be deleted."
        found.append(ApprovalRequirement(why=ApprovalReason.DIVERGED, message=message))
    if kept := [str(step.ref) for step in deletes if is_irreplaceable(step.ref)]:
        message = (
            f"{_some_names(kept)} would be deleted, with all that is in there: somebody has to "
            "agree."
        )
        found.append(ApprovalRequirement(why=ApprovalReason.DATA_LOSS, message=message))
    if claimed := [f"{step.ref} ({step.claimed_by})" for step in deletes if step.claimed_by]:
        message = (
            f"{_some_names(claimed)} would be deleted, and others have put their mark on it since"
            " it was applied: somebody has to agree."
        )
        found.append(ApprovalRequirement(why=ApprovalReason.CLAIMED, message=message))
    if extent.acting and (zero := _scaled_to_zero(plan, extent.declared)):
        message = f"{_some_names(zero)} would be scaled to zero, and then nothing runs any more."
        found.append(ApprovalRequirement(why=ApprovalReason.TO_ZERO, message=message))
    return tuple(found)


def unapproved_changes_of(
    plan: SyncPlan, declared: Sequence[DeclaredObject], now: datetime
) -> UnapprovedChanges:
    """Note what a plan is about to do by itself."""
    return UnapprovedChanges(
        at=now,
        deleted=tuple(short_name(ref) for ref in _deleted_refs(plan, declared)),
        updated=tuple(short_name(step.ref) for step in plan.steps if step.action is Action.UPDATE),
    )


def recent_changes(
    batches: Iterable[UnapprovedChanges], now: datetime
) -> tuple[UnapprovedChanges, ...]:
    """What still counts. A clock that was set back makes none of it count for ever."""
    return tuple(each for each in batches if abs(now - each.at) < GUARD_PERIOD)


def _mass_change_approvals(
    plan: SyncPlan, extent: SyncExtent, guard: GuardSpec | None, now: datetime
) -> Iterator[ApprovalRequirement]:
    """Weigh a plan together with what was done in the last day without asking."""
    batches = recent_changes(extent.lately, now)
    gone = {name for each in batches for name in each.deleted}
    deletes = {short_name(ref) for ref in _deleted_refs(plan, extent.declared)}
    updates = {short_name(step.ref) for step in plan.steps if step.action is Action.UPDATE}
    before = len(gone - deletes)
    after = f", after {before} within a day" if before else ""
    deleted = gone | deletes
    applied = extent.inventory + before
    most = change_limit(applied, guard, least=min(DEFAULT_OBJECTS, max(1, applied // 2)))
    if deletes and len(deleted) > most:
        message = (
            f"{len(deletes)} of {extent.inventory} objects would be deleted{after}; {most} may be "
            "without asking."
        )
        yield ApprovalRequirement(why=ApprovalReason.MASS_DELETE, message=message)
    if not updates or not extent.by_itself:
        return
    updated = {name for each in batches for name in each.updated} | updates
    every = max(applied, len(extent.declared))
    most = change_limit(every, guard)
    weight = len(deleted) + UPDATE_WEIGHT * len(updated - deleted)
    if len(updated) > MIN_UPDATES and weight > most:
        earlier = len(updated - updates)
        after = f", after {earlier} within a day" if earlier else ""
        message = (
            f"{len(updates)} of {every} objects would be updated{after}; an update counts a "
            f"quarter of a deletion, and {most} deletions may be without asking."
        )
        yield ApprovalRequirement(why=ApprovalReason.MASS_CHANGE, message=message)


def _deleted_refs(plan: SyncPlan, declared: Sequence[DeclaredObject]) -> Iterator[ObjectRef]:
    """What a plan deletes, but for those that have another name for other content by now."""
    stems = {stem for each in declared if (stem := _stem(each.ref))}
    for step in plan.steps:
        if step.action is Action.DELETE and _stem(step.ref) not in stems:
            yield step.ref


def _stem(ref: ObjectRef) -> tuple[str, ...] | None:
    """Name an object without the hash that Kustomize gave it; None for one that has none."""
    found = _HASHED_NAME.fullmatch(ref.name) if ref.kind in ("ConfigMap", "Secret") else None
    return (ref.kind, ref.namespace, found[1]) if found else None


def _scaled_to_zero(plan: SyncPlan, declared: Sequence[DeclaredObject]) -> list[str]:
    """Name what a plan scales to zero, where nothing else of the application would run."""
    counts = [value_at(each.item, REPLICAS) for each in declared]
    if any(count != 0 for count in counts if count is not None):
        return []
    path = show_path(REPLICAS)
    return [
        str(step.ref)
        for step in plan.steps
        if step.action is Action.UPDATE
        and any(each.path == path and each.desired == 0 and each.live != 0 for each in step.entries)
    ]


def _some_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def approval_for_heals(
    now: datetime,
    *,
    healing: int,
    rounds: Sequence[datetime],
    inventory: int,
    guard: GuardSpec | None,
) -> ApprovalRequirement | None:
    """Say why so much drift at once is not healed by itself.

    `rounds` are heals of the recent past: drift comes in as it is noticed, not all in one pass.
    """
    together = healing + sum(now - at < HEAL_BURST for at in rounds)
    most = change_limit(inventory, guard)
    if together <= most:
        return None
    message = f"{together} of {inventory} objects drifted at once; {most} are healed by themselves."
    return ApprovalRequirement(why=ApprovalReason.MASS_HEAL, message=message)
