"""Which route a drift takes: the first whose every condition holds.

Asked by `track` for each object that differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from holdfast.core.gitops.application import MatchSpec, PullKind, Remediation, RouteSpec
from holdfast.core.gitops.standing import Seen, Standing
from holdfast.core.objects import ObjectRef
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.ignore import path_matches
from holdfast.core.ownership.signals import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What is to be done about some fields of an object, and which rule says so."""

    route: str
    """Empty when no rule matched."""
    remediation: Remediation
    pull: PullKind = PullKind.CODIFY


REPORTED = Way(route="", remediation=Remediation.REPORT)


def way_of(finding: Finding, ref: ObjectRef, routes: Sequence[RouteSpec]) -> Way:
    """Choose the way of one field that drifted. Reporting is what is left."""
    for route in routes:
        if route.match is None or _matches(route.match, finding, ref):
            return Way(
                route=route.name,
                remediation=route.remediation,
                pull=route.pull or PullKind.CODIFY,
            )
    return REPORTED


def ways(
    findings: Iterable[Finding], ref: ObjectRef, routes: Sequence[RouteSpec]
) -> dict[Way, tuple[Finding, ...]]:
    """Part the drifted fields of one object by the way they take."""
    parted: dict[Way, list[Finding]] = {}
    for finding in findings:
        parted.setdefault(way_of(finding, ref, routes), []).append(finding)
    return {way: tuple(found) for way, found in parted.items()}


def _matches(match: MatchSpec, finding: Finding, ref: ObjectRef) -> bool:
    writer = finding.writer.manager if finding.writer else ""
    path = finding.change.path
    return (
        (not match.drift or finding.kind in match.drift)
        and (not match.causes or finding.cause in match.causes)
        and _any(match.kinds, ref.kind)
        and _any(match.namespaces, ref.namespace)
        and _any(match.names, ref.name)
        and _any(match.managers, writer)
        and (not match.paths or any(path_matches(glob, path) for glob in match.paths))
    )


def _any(patterns: Sequence[str] | None, value: str) -> bool:
    return not patterns or any(fnmatchcase(value, pattern) for pattern in patterns)


def let_be(seen: Seen, routes: Sequence[RouteSpec]) -> Seen:
    """Hide what a route says to ignore, as an ignore rule would: neither reported nor written."""
    if not any(route.remediation is Remediation.IGNORE for route in routes):
        return seen
    if seen.standing is not Standing.DRIFTED or seen.verdict is None:
        return seen
    hidden = {
        found: way.route
        for way, found_here in ways(seen.drifted, seen.ref, routes).items()
        if way.remediation is Remediation.IGNORE
        for found in map(id, found_here)
    }
    if not hidden:
        return seen

    def classed(found: Finding) -> Finding:
        route = hidden.get(id(found))
        if route is None:
            return found
        return replace(found, field_class=FieldClass.IGNORED, rule=f"route {route}")

    running = [classed(found) for found in seen.running]
    findings = (
        *map(classed, seen.verdict.findings),
        *(found for found in running if found.rule is not None),
    )
    verdict = replace(seen.verdict, findings=findings)
    left = tuple(found for found in running if found.rule is None)
    standing = Standing.AHEAD if verdict.differing else Standing.IN_SYNC
    if verdict.drifted or left:
        standing = Standing.DRIFTED
    return replace(seen, verdict=verdict, running=left, standing=standing)
