"""How requests are shared between a primary and its canary, and how live objects show it.

A Service has no weights. Where a gateway is set up, a route carries them; elsewhere the only
honest split is the ratio of pods, so the number of pods follows the weight. Either way a canary
that is not ready gets nothing. Pure arithmetic, called by the renderer and by the operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.tree import Fields, Tree

WEIGHT_TOLERANCE = 10
"""Percentage points that a ratio of pods may be off the declared weight before it is refused."""


class SplitMode(StrEnum):
    """What divides the requests."""

    NONE = "None"
    GATEWAY = "Gateway"
    REPLICA_RATIO = "ReplicaRatio"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSplit:
    """The division as it is to be. A count of None is not ours to write."""

    mode: SplitMode
    primary: int | None
    canary: int | None
    weight: int
    """The percentage that the canary really gets."""


def replicas_for(weight: int, total: int) -> tuple[int, int]:
    """Divide pods so that their ratio comes closest to the weight: (primary, canary).

    A tie goes to the canary. Of two pods or more, both sides keep one unless the weight is 0
    or 100; a single pod cannot be divided, so it stays where most requests are meant to go.
    """
    if weight <= 0 or total <= 0:
        return max(total, 0), 0
    if weight >= 100:
        return 0, total
    canary = (2 * total * weight + 100) // 200  # rounded, half up
    if total >= 2:
        canary = min(max(canary, 1), total - 1)
    return total - canary, canary


def canary_replicas_beside(weight: int, primary: int) -> int:
    """How many canary pods give the weight beside a primary that someone else scales."""
    if weight <= 0:
        return 1
    if weight >= 100:
        return max(primary, 1)
    return max(1, (2 * primary * weight + (100 - weight)) // (2 * (100 - weight)))


def canary_share(primary: int, canary: int) -> int:
    """The percentage of pods that are canaries, rounded."""
    total = primary + canary
    return (200 * canary + total) // (2 * total) if total else 0


def compute_split(
    *,
    weight: int,
    gateway: bool,
    ready: bool,
    declared: int | None,
    observed: int | None,
    canary: int | None = None,
) -> TrafficSplit:
    """Say how many pods each side has and what share the canary gets.

    `declared` is None where the primary's number is not ours; `seen` is what it has now.
    Until the canary is ready the primary keeps all its pods and all its requests.
    """
    base = declared or observed or 1
    if gateway:
        wanted = canary or max(1, -(-base * weight // 100))
        return TrafficSplit(
            mode=SplitMode.GATEWAY,
            primary=declared,
            canary=wanted,
            weight=weight if ready else 0,
        )
    if declared is None:
        wanted = canary or canary_replicas_beside(weight, base)
        primary = base
    else:
        primary, wanted = replicas_for(weight, declared)
        # With one pod in all, or at weight 0, the canary still runs so that it can be judged;
        # at weight 100 a primary still runs, so that there is a way back.
        wanted, primary = canary or max(wanted, 1), max(primary, 1)
    if not ready or weight == 0:
        return TrafficSplit(mode=SplitMode.REPLICA_RATIO, primary=declared, canary=wanted, weight=0)
    return TrafficSplit(
        mode=SplitMode.REPLICA_RATIO,
        primary=primary if declared is not None else None,
        canary=wanted,
        weight=100 if weight >= 100 else canary_share(primary, wanted),
    )


def is_expressible(weight: int, given: int) -> bool:
    """True when the share that pods can give is near enough to the declared weight."""
    return abs(weight - given) <= WEIGHT_TOLERANCE


def route_weight(route: Fields, canary: str) -> int:
    """The percentage that a route sends to the Service of that name; 0 where it is not named."""
    shares = dict(_backends(route))
    total = sum(shares.values())
    return (200 * shares.get(canary, 0) + total) // (2 * total) if total else 0


def route_accepted(route: Fields) -> bool:
    """True when every parent of a route has taken over exactly this generation of it.

    A word about an older generation says nothing about this one, and a parent that has not
    spoken has not agreed.
    """
    metadata, spec, status = (_fields(route.get(key)) for key in ("metadata", "spec", "status"))
    generation = metadata.get("generation")
    said = [_fields(each) for each in _items(status.get("parents"))]
    return all(
        any(
            _same_parent(_fields(parent), _fields(each.get("parentRef")), metadata)
            and _agrees(each, generation)
            for each in said
        )
        for parent in _items(spec.get("parentRefs"))
    )


def selector_weight(service: Fields, role: str, canary: str) -> int:
    """What the selector of a Service lets through: 0 or 100, or 50 for pods of both roles.

    `role` is the label that tells the roles apart, `canary` its value on a canary.
    """
    chosen = _fields(_fields(service.get("spec")).get("selector"))
    if not chosen:
        return 0
    if role not in chosen:
        return 50
    return 100 if chosen[role] == canary else 0


def _backends(route: Fields) -> list[tuple[str, int]]:
    found = []
    for rule in _items(_fields(route.get("spec")).get("rules")):
        for each in map(_fields, _items(_fields(rule).get("backendRefs"))):
            weight = each.get("weight", 1)
            found.append((str(each.get("name")), weight if isinstance(weight, int) else 1))
    return found


def _agrees(said: Fields, generation: Tree) -> bool:
    held = {
        each.get("type")
        for each in map(_fields, _items(said.get("conditions")))
        if each.get("status") == "True" and each.get("observedGeneration") == generation
    }
    return {"Accepted", "ResolvedRefs"} <= held


def _same_parent(wanted: Fields, said: Fields, route: Fields) -> bool:
    """Compare with what the API server and the controllers fill in."""
    usual: Fields = {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "namespace": route.get("namespace"),
    }
    keys = ("group", "kind", "namespace", "name", "sectionName", "port")
    return all((wanted.get(k) or usual.get(k)) == (said.get(k) or usual.get(k)) for k in keys)


def _fields(value: object) -> Fields:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[Tree]:
    return value if isinstance(value, list) else []
