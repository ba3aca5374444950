"""Which route a drift takes, and which routes can never be taken.

The first route whose every condition holds decides; `track` asks for each object that differs.
A route that an earlier one shadows is refused when the application is declared, since the first
would win silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from holdfast.core.drift import OBJECT_DRIFT_KINDS, Cause, DriftKind
from holdfast.core.gitops.application import MatchSpec, PullRequestKind, Remediation, RouteSpec
from holdfast.core.gitops.objects import ObservedObject, SyncStatus
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.ignore import path_matches
from holdfast.core.ownership.signals import FieldDrift


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRoute:
    """What is to be done about some fields of an object, and which rule says so."""

    route: str
    """Empty when no rule matched."""
    remediation: Remediation
    pull: PullRequestKind = PullRequestKind.CODIFY


NO_ROUTE = ChosenRoute(route="", remediation=Remediation.REPORT)


def route_of(finding: FieldDrift, ref: ObjectRef, routes: Sequence[RouteSpec]) -> ChosenRoute:
    """Choose the way of one field that drifted. Reporting is what is left."""
    for route in routes:
        if route.match is None or _matches(route.match, finding, ref):
            return ChosenRoute(
                route=route.name,
                remediation=route.remediation,
                pull=route.pull or PullRequestKind.CODIFY,
            )
    return NO_ROUTE


def split_by_route(
    field_drifts: Iterable[FieldDrift], ref: ObjectRef, routes: Sequence[RouteSpec]
) -> dict[ChosenRoute, tuple[FieldDrift, ...]]:
    """Part the drifted fields of one object by the way they take."""
    parted: dict[ChosenRoute, list[FieldDrift]] = {}
    for finding in field_drifts:
        parted.setdefault(route_of(finding, ref, routes), []).append(finding)
    return {way: tuple(found) for way, found in parted.items()}


def _matches(match: MatchSpec, finding: FieldDrift, ref: ObjectRef) -> bool:
    writer = finding.writer.manager if finding.writer else ""
    path = finding.change.path
    return (
        (not match.drift or finding.kind in match.drift)
        and (not match.causes or finding.cause in match.causes)
        and (not match.cost or (finding.cost is not None and finding.cost.kind in match.cost))
        and _matches_any(match.kinds, ref.kind)
        and _matches_any(match.namespaces, ref.namespace)
        and _matches_any(match.names, ref.name)
        and _matches_any(match.managers, writer)
        and (not match.paths or any(path_matches(glob, path) for glob in match.paths))
    )


def _matches_any(patterns: Sequence[str] | None, value: str) -> bool:
    return not patterns or any(fnmatchcase(value, pattern) for pattern in patterns)


def hide_ignored(observed: ObservedObject, routes: Sequence[RouteSpec]) -> ObservedObject:
    """Hide what a route says to ignore, as an ignore rule would: neither reported nor written."""
    if not any(route.remediation is Remediation.IGNORE for route in routes):
        return observed
    if observed.sync_status is not SyncStatus.DRIFTED or observed.diff is None:
        return observed
    hidden = {
        found: way.route
        for way, found_here in split_by_route(observed.drifted, observed.ref, routes).items()
        if way.remediation is Remediation.IGNORE
        for found in map(id, found_here)
    }
    if not hidden:
        return observed

    def classed(found: FieldDrift) -> FieldDrift:
        route = hidden.get(id(found))
        if route is None:
            return found
        return replace(found, field_class=FieldClass.IGNORED, rule=f"route {route}")

    running = [classed(found) for found in observed.running]
    findings = (
        *map(classed, observed.diff.field_drifts),
        *(found for found in running if found.rule is not None),
    )
    verdict = replace(observed.diff, field_drifts=findings)
    left = tuple(found for found in running if found.rule is None)
    sync_status = SyncStatus.OUT_OF_SYNC if verdict.differing else SyncStatus.IN_SYNC
    if verdict.drifted or left:
        sync_status = SyncStatus.DRIFTED
    return replace(observed, diff=verdict, running=left, sync_status=sync_status)


_EVERYTHING = MatchSpec()


def shadowed_routes(
    routes: Sequence[RouteSpec], *, models: bool = False
) -> tuple[tuple[int, str], ...]:
    """Return the routes that can never be taken, by their place, with the name of what takes all.

    Where only several earlier ones together leave nothing, it is not seen. `models`: there is
    drift of models, too.
    """
    kinds = [each for each in OBJECT_DRIFT_KINDS if models or each is not DriftKind.MODEL]
    found = []
    for place, route in enumerate(routes):
        for earlier in routes[:place]:
            if _covers(earlier.match or _EVERYTHING, route.match or _EVERYTHING, kinds):
                found.append((place, earlier.name))
                break
    return tuple(found)


def _covers(wide: MatchSpec, narrow: MatchSpec, kinds: Iterable[DriftKind]) -> bool:
    """True when whatever the narrow one matches, the wide one matches too."""
    return (
        _has_all(wide.drift, narrow.drift, kinds)
        and _has_all(wide.causes, narrow.causes, Cause)
        # One that names every cost still leaves out what is unknown.
        and (not wide.cost or bool(narrow.cost and set(narrow.cost) <= set(wide.cost)))
        and _matches_all(wide.kinds, narrow.kinds)
        and _matches_all(wide.namespaces, narrow.namespaces)
        and _matches_all(wide.names, narrow.names)
        and _matches_all(wide.managers, narrow.managers)
        and (not wide.paths or bool(narrow.paths and set(narrow.paths) <= set(wide.paths)))
    )


def _has_all(
    wide: Sequence[StrEnum] | None, narrow: Sequence[StrEnum] | None, every: Iterable[StrEnum]
) -> bool:
    return not wide or set(narrow or every) <= set(wide)


def _matches_all(wide: Sequence[str] | None, narrow: Sequence[str] | None) -> bool:
    # A star of the narrow one stands for any text, which a star of the wide one has to stand for
    # as well; as a text of its own it matches nothing else, so one comparison tells both.
    return not wide or all(
        any(fnmatchcase(each, pattern) for pattern in wide) for each in narrow or ("*",)
    )
