"""What a step costs: which pods it restarts, what it needs beside them, how long a start took.

Every step of every plan carries one, and so does every drift; `None` in its place is a cost that
nobody can tell. The numbers of the moment (devices free, the last cold start) are no part of a
plan's digest: a plan is not stale because a GPU was taken elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    """What a step needs of one extended resource, such as `nvidia.com/gpu`, or gives back of it."""

    resource: str
    needed: int
    """Beside what the workload holds already, when it needs most."""
    free: int | None = None
    """On nodes that would take such a pod; None where that could not be read."""
    added: int = 0
    """How many more the workload holds afterwards; below zero, fewer."""
    pool: str = field(default="", compare=False)
    """Names the nodes that were counted: needs of one pool share what is free. Empty where none
    were."""


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
    several: bool = False
    """Of several steps that each concern another workload: `kind` is that of the worst."""
    partial: bool = False
    """Of several steps, some of which have an unknown cost: that comes on top."""

    @property
    def basis(self) -> list[str | int]:
        """What a plan's digest covers of it: what follows from the declaration alone."""
        needs = (f"{each.resource}={each.needed}" for each in self.devices if each.needed)
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


def total_cost(costs: Iterable[Cost | None]) -> Cost | None:
    """The cost of a plan: of steps that each concern a workload of their own.

    Where some are unknown the rest is told, and that it is not all; None where the rest is
    nothing. Steps that fit one by one are blocked where what they hold in the end does not.
    """
    given = tuple(costs)
    known = [cost for cost in given if cost is not None]
    moving = sum(bool(cost.pods or cost.added) for cost in known)
    partial = len(known) < len(given) or any(cost.partial for cost in known)
    if partial and not moving:
        return None
    return replace(sum_costs(known), several=moving > 1, partial=partial)


def sum_costs(costs: Sequence[Cost]) -> Cost:
    """The cost of what happens to several groups of pods at once."""
    needs, returned = _shared_needs(costs), _returned(n for cost in costs for n in cost.devices)
    return Cost(
        kind=worst_kind(cost.kind for cost in costs),
        pods=sum(cost.pods for cost in costs),
        added=sum(cost.added for cost in costs),
        devices=needs,
        blocked=_is_short(needs) or any(_stays_blocked(cost, returned) for cost in costs),
        cold_start=max(
            (cost.cold_start for cost in costs if cost.cold_start is not None), default=None
        ),
    )


def _shared_needs(costs: Iterable[Cost]) -> tuple[DeviceNeed, ...]:
    """Add up the needs of each pool."""
    pools: dict[tuple[str, str], list[DeviceNeed]] = {}
    for need in (need for cost in costs for need in cost.devices):
        pools.setdefault((need.resource, need.pool), []).append(need)
    return tuple(
        DeviceNeed(
            resource=resource,
            needed=sum(need.needed for need in shared),
            free=max((need.free for need in shared if need.free is not None), default=None),
            added=sum(need.added for need in shared),
            pool=pool,
        )
        for (resource, pool), shared in sorted(pools.items())
    )


def _returned(needs: Iterable[DeviceNeed]) -> Counter[str]:
    """How many devices are given back, by resource: on which nodes is not known."""
    found: Counter[str] = Counter()
    for need in needs:
        found[need.resource] += max(-need.added, 0)
    return found


def _is_short(needs: Sequence[DeviceNeed]) -> bool:
    """Whether steps hold more in the end than there is."""
    returned = _returned(needs)
    return any(
        need.free is not None and need.added > need.free + returned[need.resource] for need in needs
    )


def _stays_blocked(cost: Cost, returned: Mapping[str, int]) -> bool:
    """Whether a step does not finish either with what other steps give back."""
    own = _returned(cost.devices)
    others = {need.resource: returned[need.resource] - own[need.resource] for need in cost.devices}
    if not cost.blocked or not any(others.values()):
        return cost.blocked
    return any(
        need.free is not None and need.needed > need.free + others[need.resource]
        for need in cost.devices
    )


def _sentences(cost: Cost, unit: str) -> Iterable[str]:
    needs = _needs(cost)
    if cost.blocked:
        yield f"will not finish on the nodes there are: {needs}"
    yield _restart_sentence(cost, unit)
    if needs and not cost.blocked:
        yield needs
    if cost.pods or cost.added > 0:
        known = cost.cold_start is not None
        start = format_seconds(cost.cold_start) if cost.cold_start is not None else "unknown"
        yield f"last cold start {start}" if known else "cold start unknown"
    if cost.partial:
        yield "the rest unknown"


def _restart_sentence(cost: Cost, unit: str) -> str:
    parts = []
    restarted, moved = _counted(cost.pods, unit), _counted(abs(cost.added), unit)
    of_one = "of one workload " if cost.several else ""
    match cost.kind:
        case CostKind.ROLLING:
            parts.append(f"rolling restart of {restarted}")
        case CostKind.GAP if cost.pods:
            parts.append(f"restarts {restarted}, and {of_one}none answers meanwhile")
        case CostKind.RECREATE if cost.several:
            parts.append(f"restarts {restarted}, of one workload all before the first new one")
        case CostKind.RECREATE:
            parts.append(f"ends {restarted} before the first new one starts")
        case _:
            pass
    left = f", and {of_one}none is left" if cost.kind is CostKind.GAP and not cost.pods else ""
    if cost.added > 0:
        parts.append(f"starts {moved}{' more' if cost.pods else ''}{left}")
    elif cost.added < 0:
        parts.append(f"ends {moved}{left}")
    elif left:
        parts.append(f"starts as many {unit}s as it ends{left}")
    return ", ".join(parts) or "restarts nothing"


def _needs(cost: Cost) -> str:
    held = "beside the running ones" if cost.pods else "in all"
    return ", ".join(
        f"needs {each.needed} {each.resource} {held}, "
        + ("free unknown" if each.free is None else f"{each.free} free")
        for each in cost.devices
        if each.needed
    )


def _counted(count: int, unit: str) -> str:
    return f"1 {unit}" if count == 1 else f"{count} {unit}s"
