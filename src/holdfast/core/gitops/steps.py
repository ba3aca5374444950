"""Makes plans for an application: what a sync would do, and what would heal one drift.

Called anew to carry one out, so that a plan is refused when the world has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict

from holdfast.core.gitops.application import Application
from holdfast.core.gitops.declare import LABEL, MANAGER
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.inventory import Applied
from holdfast.core.gitops.order import for_apply, for_delete
from holdfast.core.gitops.owner import terms_of
from holdfast.core.gitops.plan import ObjectStep, SyncPlan
from holdfast.core.gitops.standing import Seen, Standing
from holdfast.core.gitops.track import entry_of
from holdfast.core.objects import ObjectRef
from holdfast.core.ownership.objects import at
from holdfast.core.ownership.owned import is_ours, read_ownership
from holdfast.core.ownership.signals import APPLIED, Finding
from holdfast.core.plan import Action
from holdfast.core.tree import Path, digest, plain, show_path

Digests = Callable[[ObjectRef], str]
"""Gives the digest of what would be applied for an object."""


def sync_plan(
    application: Application,
    commit: str,
    seen: Iterable[Seen],
    *,
    digests: Digests,
    inventory: Mapping[ObjectRef, Applied],
    prune: bool,
    held: Collection[ObjectRef] = (),
    healing: Collection[ObjectRef] = (),
) -> SyncPlan:
    """Plan what Git asks for anew. Drift beside it stays, unless the object is to be healed too.

    Nothing is planned for what could not be read, is held, or is another tool's.
    """
    writes: list[ObjectStep] = []
    deletes: list[ObjectStep] = []
    for each in seen:
        if each.ref in held or each.owner is not None:
            continue
        match each.standing:
            case Standing.AHEAD | Standing.DRIFTED:
                step = _write(each, digests, heal=each.ref in healing)
                if step is not None:
                    writes.append(step)
            case Standing.LEFT_OVER if prune and _prunable(each, inventory, application):
                told = "it was applied before, and is no longer declared"
                deletes.append(_delete(each, told, claimed_by=_claimed(each, application)))
            case _:
                pass
    steps = (*for_apply(writes, _ref), *for_delete(deletes, _ref))
    return SyncPlan(
        application=application.id, commit=commit, steps=steps, policy=policy_of(application)
    )


def heal_plan(
    application: Application, commit: str, seen: Seen, drift: ObjectDrift, *, digests: Digests
) -> SyncPlan:
    """Plan the end of one drift, leaving every other one of the same object as it is."""
    if seen.standing is Standing.ORPHAN:
        step: ObjectStep | None = _delete(seen, "it was created without Git")
    elif seen.live is None:
        step = _write(seen, digests, heal=True)
    else:
        ours = {entry.path for entry in drift.entries}
        # Git may ask for more of the object by now. That is for a sync, and not in this plan.
        anew = [found for found in seen.verdict.findings if found.pending] if seen.verdict else []
        # What pods run is no field of the object: it shields none from being put back.
        others = frozenset(
            found.change.path
            for found in (*(seen.verdict.drifted if seen.verdict else ()), *anew)
            if show_path(found.change.path) not in ours
        )
        mine = tuple(found for found in seen.drifted if show_path(found.change.path) in ours)
        step = _step(seen, Action.UPDATE, "it drifted", mine, digests, leave=others)
    return SyncPlan(
        application=application.id,
        commit=commit,
        steps=(step,) if step else (),
        policy=policy_of(application),
    )


def policy_of(application: Application) -> str:
    """The digest of everything that the owner decided."""
    return digest(plain(asdict(application.spec)))


def _write(seen: Seen, digests: Digests, *, heal: bool) -> ObjectStep | None:
    if seen.live is None:
        if seen.standing is Standing.DRIFTED and not heal:
            return None
        told = "it was deleted" if seen.applied else "it is declared and not there"
        return _step(seen, Action.CREATE, told, (), digests)
    verdict = seen.verdict
    if verdict is None:
        return None
    pending = tuple(found for found in verdict.differing if found.pending or not seen.applied)
    drifted = verdict.drifted if seen.applied else ()
    if heal:
        told = "it drifted" if drifted else "it was declared anew"
        return _step(seen, Action.UPDATE, told, verdict.differing, digests)
    if seen.standing is Standing.DRIFTED and not pending:
        return None
    told = "it was declared anew" if seen.applied else "it is there already and taken over"
    # Our own mark says what was applied last, whoever wrote another there.
    leave = frozenset(found.change.path for found in drifted) - {APPLIED}
    return _step(seen, Action.UPDATE, told, pending, digests, leave=leave)


def _step(
    seen: Seen,
    action: Action,
    reason: str,
    findings: Iterable[Finding],
    digests: Digests,
    *,
    leave: frozenset[Path] = frozenset(),
) -> ObjectStep:
    return ObjectStep(
        ref=seen.ref,
        action=action,
        reason=reason,
        entries=tuple(entry_of(found) for found in findings if found.change.path != APPLIED),
        uid=_metadata(seen, "uid"),
        version=_metadata(seen, "resourceVersion"),
        state=_state(seen),
        leave=leave,
        declared=seen.declared,
        declaration=digests(seen.ref),
    )


def _delete(seen: Seen, reason: str, *, claimed_by: str = "") -> ObjectStep:
    return ObjectStep(
        claimed_by=claimed_by,
        ref=seen.ref,
        action=Action.DELETE,
        reason=reason,
        uid=_metadata(seen, "uid"),
        version=_metadata(seen, "resourceVersion"),
        state=_state(seen),
    )


def _prunable(seen: Seen, inventory: Mapping[ObjectRef, Applied], application: Application) -> bool:
    """True for the very object that we applied and that nobody asked to keep.

    The record decides; a record that is damaged must not. So the object has to bear a trace of us
    as well: our label, or fields that we applied.
    """
    live, applied = seen.live, inventory.get(seen.ref)
    if live is None or applied is None or applied.uid != at(live, ("metadata", "uid")):
        return False
    labelled = at(live, ("metadata", "labels", LABEL)) == application.id.label
    entries = read_ownership(at(live, ("metadata", "managedFields"))).entries
    if not labelled and not any(is_ours(entry, frozenset({MANAGER})) for entry in entries):
        return False
    return not terms_of(live).keep and at(live, ("metadata", "deletionTimestamp")) is None


def _claimed(seen: Seen, application: Application) -> str:
    """Say who claims an object of ours by a mark on it: another tool, or another application."""
    if seen.claimed_by is not None:
        return str(seen.claimed_by)
    label = at(seen.live, ("metadata", "labels", LABEL)) if seen.live else None
    return "" if label in (None, application.id.label) else f"the application {label}"


def _state(seen: Seen) -> str | None:
    counted = at(seen.live, ("metadata", "generation")) if seen.live else None
    return f"generation {counted}" if counted else _metadata(seen, "resourceVersion")


def _metadata(seen: Seen, name: str) -> str | None:
    return str(at(seen.live, ("metadata", name))) if seen.live else None


def _ref(step: ObjectStep) -> ObjectRef:
    return step.ref
