"""What a step costs: which pods it restarts, what it needs beside them, how long a start took.

Every step of every plan carries one, and so does every drift; `None` in its place is a cost that
nobody can tell. The numbers of the moment (devices free, the last cold start) are no part of a
plan's digest: a plan is not stale because a GPU was taken elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from holdfast.core.quantity import format_seconds


class CostKind(StrEnum):
    """What becomes of the pods that answer now. From least to worst."""

    NONE = "none"
    """They go on."""
    ROLLING = "rolling"
    """They are replaced few by few; some answer all the time."""
    GAP = "gap"
    """For a while, or for good, none answers."""
    RECREATE = "recreate"
    """All end before the first new one is started."""


_ORDER = tuple(CostKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNeed:
    """What a step needs of one extended resource, such as `nvidia.com/gpu`."""

    resource: str
    needed: int
    """Beside what the workload holds already."""
    free: int | None = None
    """On nodes that would take such a pod; None where that could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one step costs."""

    kind: CostKind
    pods: int = 0
    """How many running pods are replaced."""
    added: int = 0
    """How many pods there are more afterwards; below zero, fewer."""
    devices: tuple[DeviceNeed, ...] = ()
    blocked: bool = False
    """As things stand it will not finish: what it needs is not free."""
    cold_start: float | None = None
    """Seconds that the newest pod that is ready took from its creation; None where unknown."""

    @property
    def basis(self) -> list[str | int]:
        """What a plan's digest covers of it: what follows from the declaration alone."""
        needs = (f"{each.resource}={each.needed}" for each in self.devices)
        return [self.kind.value, self.pods, self.added, *needs]

    def __str__(self) -> str:
        return "; ".join(_sentences(self, "pod"))


NO_COST = Cost(kind=CostKind.NONE)
UNKNOWN_COST = "cost unknown"


def describe_cost(cost: Cost | None, unit: str = "pod") -> str:
    """Say a cost, also one that nobody knows; `unit` is what a workload runs as there."""
    return UNKNOWN_COST if cost is None else "; ".join(_sentences(cost, unit))


def worst_kind(kinds: Iterable[CostKind]) -> CostKind:
    """The worst of some kinds; none of nothing."""
    return max(kinds, key=_ORDER.index, default=CostKind.NONE)


def join_costs(costs: Iterable[Cost | None]) -> Cost | None:
    """The cost of a step that does several things to one workload at once.

    A part that is unknown makes the whole unknown, and nothing at all costs nothing.
    """
    known = _all_known(costs)
    if known is None:
        return None
    needs: dict[str, DeviceNeed] = {}
    for need in (need for cost in known for need in cost.devices):
        held = needs.get(need.resource)
        if held is None or need.needed > held.needed:
            needs[need.resource] = need
    return Cost(
        kind=worst_kind(cost.kind for cost in known),
        pods=max((cost.pods for cost in known), default=0),
        added=sum(cost.added for cost in known),
        devices=tuple(needs[name] for name in sorted(needs)),
        blocked=any(cost.blocked for cost in known),
        cold_start=next((cost.cold_start for cost in known if cost.cold_start is not None), None),
    )


def total_cost(costs: Iterable[Cost | None]) -> Cost | None:
    """The cost of a plan: of steps that each concern a workload of their own.

    A step whose cost is unknown makes the whole unknown, and nothing at all costs nothing.
    """
    known = _all_known(costs)
    if known is None:
        return None
    needs: dict[str, DeviceNeed] = {}
    for need in (need for cost in known for need in cost.devices):
        held = needs.get(need.resource)
        before = held.needed if held else 0
        needs[need.resource] = replace(need, needed=before + need.needed)
    return Cost(
        kind=worst_kind(cost.kind for cost in known),
        pods=sum(cost.pods for cost in known),
        added=sum(cost.added for cost in known),
        devices=tuple(needs[name] for name in sorted(needs)),
        blocked=any(cost.blocked for cost in known),
        cold_start=max(
            (cost.cold_start for cost in known if cost.cold_start is not None), default=None
        ),
    )


def _all_known(costs: Iterable[Cost | None]) -> list[Cost] | None:
    """Give the costs, or None where one of them is unknown."""
    known: list[Cost] = []
    for each in costs:
        if each is None:
            return None
        known.append(each)
    return known


def _sentences(cost: Cost, unit: str) -> Iterable[str]:
    if cost.blocked:
        yield f"will not finish on the nodes there are: {_needs(cost)}"
    yield _restart_sentence(cost, unit)
    if cost.devices and not cost.blocked:
        yield _needs(cost)
    if cost.pods or cost.added > 0:
        known = cost.cold_start is not None
        start = format_seconds(cost.cold_start) if cost.cold_start is not None else "unknown"
        yield f"last cold start {start}" if known else "cold start unknown"


def _restart_sentence(cost: Cost, unit: str) -> str:
    parts = []
    restarted, moved = _counted(cost.pods, unit), _counted(abs(cost.added), unit)
    match cost.kind:
        case CostKind.ROLLING:
            parts.append(f"rolling restart of {restarted}")
        case CostKind.GAP if cost.pods:
            parts.append(f"restarts {restarted}, and none answers meanwhile")
        case CostKind.RECREATE:
            parts.append(f"ends {restarted} before the first new one starts")
        case _:
            pass
    if cost.added > 0:
        parts.append(f"starts {moved}" + (" more" if cost.pods else ""))
    elif cost.added < 0:
        none_left = cost.kind is CostKind.GAP and not cost.pods
        parts.append(f"ends {moved}" + (", and none is left" if none_left else ""))
    return ", ".join(parts) or "restarts nothing"


def _needs(cost: Cost) -> str:
    held = "beside the running ones" if cost.pods else "in all"
    return ", ".join(
        f"needs {each.needed} {each.resource} {held}, "
        + ("free unknown" if each.free is None else f"{each.free} free")
        for each in cost.devices
    )


def _counted(count: int, unit: str) -> str:
    return f"1 {unit}" if count == 1 else f"{count} {unit}s"
