"""Keeps the drifts of an application up to date with what was just seen.

Pure: drifts before and objects seen in, drifts after out. A drift keeps its id for as long as
the same route finds something on the same object, or, once a person chose its way, the same
value; what was there when it was taken over, and what somebody fights over, are drifts of their
own beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.core import fight
from holdfast.core.diff import Change
from holdfast.core.drift import DriftKind, cause_of
from holdfast.core.fight import Heal
from holdfast.core.gitops.application import (
    Application,
    DriftSpec,
    OrphanPolicy,
    PullRequestKind,
    Remediation,
)
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution, drift_id, entry_of
from holdfast.core.gitops.guard import is_irreplaceable
from holdfast.core.gitops.model_pins import model_pins
from holdfast.core.gitops.objects import ObservedObject, SyncStatus
from holdfast.core.gitops.pods import declared_images
from holdfast.core.gitops.routes import NO_ROUTE, ChosenRoute, split_by_route
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.managed_fields import ownership_of
from holdfast.core.ownership.signals import FieldDrift, Signal
from holdfast.core.tree import Fields, show_path

FOUND_AT_ADOPTION = (
    "It was there when the object was taken over, so it stays until somebody decides."
)
_DECIDED_STATES = frozenset({DriftState.REJECTED, DriftState.SNOOZED, DriftState.AWAITING})
"""States that were reached for what a reviewer saw, and end when that changes.

An approval without a plan does too; one with a plan is refused as stale where it is applied.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedDrifts:
    """What became of the drifts of the objects that were seen."""

    opened: tuple[ObjectDrift, ...]
    changed: tuple[ObjectDrift, ...]
    """Open before, with other fields or values now."""
    same: tuple[ObjectDrift, ...]
    resolved: tuple[ObjectDrift, ...]

    @property
    def open(self) -> tuple[ObjectDrift, ...]:
        """Every drift that there is now, of the objects that were seen."""
        return (*self.opened, *self.changed, *self.same)


def track(
    application: Application,
    observed: Iterable[ObservedObject],
    before: Mapping[str, ObjectDrift],
    *,
    commit: str,
    now: datetime,
    healed: Mapping[ObjectRef, Sequence[Heal]] | None = None,
) -> TrackedDrifts:
    """Compare what was seen with the drifts that are open.

    Objects that could not be read change nothing: their drifts stay as they are. `healed` has
    the heals of the recent past, so that a fight is recognised although every round of it is a
    drift of its own.
    """
    opened: list[ObjectDrift] = []
    changed: list[ObjectDrift] = []
    same: list[ObjectDrift] = []
    known = {(drift.object, _key_of(drift)): drift for drift in before.values()}
    chosen: dict[ObjectRef, list[ObjectDrift]] = {}
    for drift in before.values():
        if drift.chosen_by:
            chosen.setdefault(drift.object, []).append(drift)
    kept: set[str] = set()
    judged: dict[ObjectRef, ObservedObject] = {}
    for each in observed:
        if each.sync_status is SyncStatus.UNKNOWN:
            continue
        judged[each.ref] = each
        heals = (healed or {}).get(each.ref, ())
        parted = _split_findings(each, application, known, chosen.get(each.ref, ()), heals, now)
        for (way, part), findings in parted.items():
            entries = tuple(map(entry_of, findings))
            cost = each.cost_of(findings)
            open_now = known.get((each.ref, part))
            if open_now is None:
                new = _open_drift(application, each, way, entries, commit, now, part)
                opened.append(replace(new, cost=cost, rounds=fight.rounds_of(entries, heals)))
                continue
            kept.add(open_now.id)
            updated = _update_drift(open_now, each, way, entries, commit, now)
            updated = replace(updated, cost=cost)
            (same if updated.digest == open_now.digest else changed).append(updated)
    resolved = [
        replace(
            drift,
            state=DriftState.RESOLVED,
            resolved_at=now,
            last_seen=now,
            resolution=_resolution(drift, judged[drift.object], commit),
        )
        for drift in before.values()
        if drift.object in judged and drift.id not in kept
    ]
    return TrackedDrifts(
        opened=tuple(opened), changed=tuple(changed), same=tuple(same), resolved=tuple(resolved)
    )


def close_undeclared(
    before: Mapping[str, ObjectDrift], refs: Collection[ObjectRef], now: datetime
) -> tuple[ObjectDrift, ...]:
    """Close the drifts of objects that nobody declares or looks at any more."""
    return tuple(
        replace(drift, state=DriftState.RESOLVED, resolved_at=now, resolution=Resolution.GONE)
        for drift in before.values()
        if drift.object not in refs
    )


@dataclass(frozen=True, slots=True)
class _DriftKey:
    """What of an object is one drift."""

    route: str
    healable: bool = True
    found: bool = False
    fought: bool = False


_KnownDrifts = Mapping[tuple[ObjectRef, _DriftKey], ObjectDrift]


def _key_of(drift: ObjectDrift) -> _DriftKey:
    return _DriftKey(drift.route, drift.healable, drift.found, drift.fought)


def _split_findings(
    observed: ObservedObject,
    application: Application,
    known: _KnownDrifts,
    chosen: Sequence[ObjectDrift],
    heals: Sequence[Heal],
    now: datetime,
) -> dict[tuple[ChosenRoute, _DriftKey], tuple[FieldDrift, ...]]:
    spec = application.spec.drift or DriftSpec()
    routes = spec.routes
    found = observed.drifted if observed.sync_status is SyncStatus.DRIFTED else ()
    if observed.sync_status is SyncStatus.ORPHAN:
        found = (_orphan_finding(observed),)
        if spec.orphans is not OrphanPolicy.REMEDIATE:
            return {(NO_ROUTE, _DriftKey(NO_ROUTE.route)): found}
    parted: dict[tuple[ChosenRoute, _DriftKey], list[FieldDrift]] = {}
    for healable in (True, False):
        some = [each for each in found if (each.signal is not Signal.RUNNING) is healable]
        for way, findings in split_by_route(some, observed.ref, routes or ()).items():
            part = _DriftKey(way.route, healable)
            contested = known.get((observed.ref, replace(part, fought=True)))
            for finding in findings:
                its, its_way = part, way
                if way.remediation is Remediation.SELF_HEAL and healable:
                    entry = entry_of(finding)
                    if observed.sync_status is SyncStatus.ORPHAN and is_irreplaceable(observed.ref):
                        its_way = replace(way, remediation=Remediation.REVIEW)
                    elif is_from_adoption(entry.path, observed.found):
                        its_way = replace(way, remediation=Remediation.REVIEW)
                        its = replace(part, found=True)
                    elif _contains_field(entry, contested) or fight.is_fought(entry, heals, now):
                        its = replace(part, fought=True)
                owner = _chosen_drift(finding, its, known.get((observed.ref, its)), chosen)
                if owner is not None:
                    its, its_way = _key_of(owner), _chosen_route(owner)
                parted.setdefault((its_way, its), []).append(finding)
    return {key: tuple(findings) for key, findings in parted.items()}


def _chosen_drift(
    finding: FieldDrift, part: _DriftKey, known: ObjectDrift | None, chosen: Iterable[ObjectDrift]
) -> ObjectDrift | None:
    """Return the drift with a way of its own that a finding stays with, though routes changed."""
    if known is not None and known.chosen_by:
        return known
    for drift in chosen:
        if drift.route != part.route and drift.healable is part.healable:
            entry = entry_of(finding)
            if any(each.path == entry.path and each.live == entry.live for each in drift.entries):
                return drift
    return None


def _chosen_route(drift: ObjectDrift) -> ChosenRoute:
    return ChosenRoute(route=drift.route, remediation=drift.remediation, pull=drift.pull)


def is_from_adoption(path: str, found: Iterable[str]) -> bool:
    """True for a path that was there when an object was taken over, and for what is inside it."""
    return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in found)


def added_paths(observed: ObservedObject) -> tuple[str, ...]:
    """Paths of what others have on an object beside what is declared."""
    return tuple(
        show_path(each.change.path) for each in observed.drifted if each.signal is Signal.ADDED
    )


def _contains_field(entry: DriftEntry, drift: ObjectDrift | None) -> bool:
    return drift is not None and any(each.path == entry.path for each in drift.entries)


def _orphan_finding(observed: ObservedObject) -> FieldDrift:
    entries = ownership_of(observed.live or {}).entries
    first = min(
        (entry for entry in entries if entry.subresource is None and entry.at is not None),
        key=lambda entry: entry.at.timestamp() if entry.at else 0.0,
        default=None,
    )
    writer = first.writer if first else None
    return FieldDrift(
        change=Change(path=(), desired=None, live=None),
        kind=DriftKind.RESOURCE,
        signal=Signal.ADDED,
        field_class=FieldClass.OWNED,
        evidence="it is in a namespace of this application, and Git does not declare it",
        writer=writer,
        cause=cause_of(writer),
        cost=observed.cost,
    )


def _open_drift(
    application: Application,
    observed: ObservedObject,
    way: ChosenRoute,
    entries: tuple[DriftEntry, ...],
    commit: str,
    now: datetime,
    part: _DriftKey,
) -> ObjectDrift:
    marks = (not part.healable, "running"), (part.found, "found"), (part.fought, "fought")
    mark = "/".join([way.route, *(name for has, name in marks if has)])
    return ObjectDrift(
        id=drift_id(application.id, observed.ref, mark, now),
        application=application.id,
        project=application.spec.project,
        object=observed.ref,
        uid=_uid(observed.live),
        entries=entries,
        where=_where(observed, entries),
        commit=commit,
        remediation=way.remediation,
        pull=way.pull,
        route=way.route,
        healable=part.healable,
        found=part.found,
        fought=part.fought,
        note=FOUND_AT_ADOPTION if part.found else "",
        first_seen=now,
        last_seen=now,
    )


def _update_drift(
    drift: ObjectDrift,
    observed: ObservedObject,
    way: ChosenRoute,
    entries: tuple[DriftEntry, ...],
    commit: str,
    now: datetime,
) -> ObjectDrift:
    chosen = bool(drift.chosen_by)
    updated = replace(
        drift,
        uid=_uid(observed.live),
        entries=entries,
        where=_where(observed, entries),
        commit=commit,
        remediation=drift.remediation if chosen else way.remediation,
        pull=drift.pull if chosen else way.pull,
    )
    if updated.digest == drift.digest:
        return updated
    if drift.state in _DECIDED_STATES or (drift.state is DriftState.APPROVED and not drift.plan):
        updated = replace(updated, state=DriftState.DETECTED, plan="", until=None, decided_by="")
    return replace(updated, last_seen=now)


def _resolution(drift: ObjectDrift, observed: ObservedObject, commit: str) -> Resolution:
    hidden = (
        {show_path(path) for _, path in observed.diff.ignored_paths} if observed.diff else set()
    )
    if any(entry.path in hidden for entry in drift.entries):
        return Resolution.IGNORED
    if DriftKind.MODEL in drift.kinds and _is_codified(drift, observed, commit):
        return Resolution.CODIFIED  # the pin is bumped, whether or not that was synced yet
    if _still_differs(drift, observed):
        return Resolution.SUPERSEDED
    if _was_orphan(drift) and observed.declared is not None:
        return Resolution.CODIFIED
    if not _was_orphan(drift) and observed.declared is None:
        return Resolution.GONE
    if drift.state in (DriftState.HEALING, DriftState.FIGHTING):
        return Resolution.SELF_HEALED
    if drift.state is DriftState.APPROVED:
        return approved_resolution(drift)
    if _is_codified(drift, observed, commit):
        return Resolution.CODIFIED
    return Resolution.EXTERNAL


def _still_differs(drift: ObjectDrift, observed: ObservedObject) -> bool:
    """True when a field of a drift that ended is not as declared all the same."""
    if _was_orphan(drift):
        return observed.sync_status is SyncStatus.OUT_OF_SYNC
    if observed.live is None:
        return observed.declared is not None
    findings = (*(observed.diff.differing if observed.diff else ()), *observed.running)
    paths = {show_path(found.change.path) for found in findings}
    return "" in paths or any(entry.path in paths for entry in drift.entries)


def _was_orphan(drift: ObjectDrift) -> bool:
    return not drift.where and all(entry.path == "" for entry in drift.entries)


def _is_codified(drift: ObjectDrift, observed: ObservedObject, commit: str) -> bool:
    """True when Git came to declare what a pull request about it proposed."""
    proposed = drift.url or drift.state is DriftState.PULL_REQUEST
    if not proposed or drift.pull is not PullRequestKind.CODIFY:
        return False
    if drift.healable:
        return commit != drift.commit
    # What pods run differs until they were replaced, and Git has moved long before that.
    item = observed.declared.item if observed.declared else {}
    values = {
        show_path(path): value for path, value in (declared_images(item) | model_pins(item)).items()
    }
    return all(
        values.get(path) in {entry.live for entry in drift.entries if entry.path == path}
        for path in {entry.path for entry in drift.entries}
    )


def approved_resolution(drift: ObjectDrift) -> Resolution:
    """How a drift ends that somebody agreed to put back."""
    reviewed = drift.remediation is Remediation.REVIEW
    return Resolution.APPROVED if reviewed else Resolution.REVERTED


def _uid(live: Fields | None) -> str:
    return str(value_at(live, ("metadata", "uid")) or "") if live else ""


def _where(observed: ObservedObject, entries: tuple[DriftEntry, ...]) -> str:
    if observed.declared is None:
        return ""
    ours = {entry.path for entry in entries}
    paths = [each.change.path for each in observed.drifted if show_path(each.change.path) in ours]
    return observed.declared.where(paths[0] if paths and entries else ())
