"""How requests are shared between a primary and its canary, and in which order that may change.

A Service has no weights. Where a gateway is set up, a route carries them; elsewhere the only
honest split is the ratio of pods, so the number of pods follows the weight. Either way a canary
that is not ready gets nothing. Pure arithmetic, called by the renderer and by the operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SplitMode(StrEnum):
    """What divides the requests."""

    NONE = "None"
    GATEWAY = "Gateway"
    REPLICA_RATIO = "ReplicaRatio"


class CanaryStep(StrEnum):
    """The next thing to do about a canary. Each is done, and seen to be done, before the next."""

    NOTHING = "nothing"
    CREATE = "create"
    WAIT_UNTIL_READY = "wait-until-ready"
    ATTACH = "attach"
    DETACH = "detach"
    WAIT_UNTIL_DETACHED = "wait-until-detached"
    DRAIN = "drain"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
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


def canary_beside(weight: int, primary: int) -> int:
    """How many canary pods give the weight beside a primary that someone else scales."""
    if weight <= 0:
        return 1
    if weight >= 100:
        return max(primary, 1)
    return max(1, (2 * primary * weight + (100 - weight)) // (2 * (100 - weight)))


def share(primary: int, canary: int) -> int:
    """The percentage of pods that are canaries, rounded."""
    total = primary + canary
    return (200 * canary + total) // (2 * total) if total else 0


def divide(
    *,
    weight: int,
    gateway: bool,
    ready: bool,
    declared: int | None,
    seen: int | None,
    canary: int | None = None,
) -> Split:
    """Say how many pods each side has and what share the canary gets.

    `declared` is None where the primary's number is not ours; `seen` is what it has now.
    Until the canary is ready the primary keeps all its pods and all its requests.
    """
    base = declared or seen or 1
    if gateway:
        wanted = canary or max(1, -(-base * weight // 100))
        return Split(
            mode=SplitMode.GATEWAY,
            primary=declared,
            canary=wanted,
            weight=weight if ready else 0,
        )
    if declared is None:
        wanted = canary or canary_beside(weight, base)
        primary = base
    else:
        primary, wanted = replicas_for(weight, declared)
        # With one pod in all, or at weight 0, the canary still runs so that it can be judged.
        wanted = canary or max(wanted, 1)
        if primary == 0 and weight < 100:
            primary = 1
    if not ready or weight == 0:
        return Split(mode=SplitMode.REPLICA_RATIO, primary=declared, canary=wanted, weight=0)
    return Split(
        mode=SplitMode.REPLICA_RATIO,
        primary=primary if declared is not None else None,
        canary=wanted,
        weight=100 if weight >= 100 else share(primary, wanted),
    )


def next_step(
    *,
    wanted: bool,
    weight: int,
    exists: bool,
    ready: bool,
    routed: bool,
    accepted: bool,
    drained: bool,
) -> CanaryStep:
    """Give the one step that may follow from what is seen.

    `routed` says that requests are being sent to the canary, `accepted` that whoever routes has
    taken over the last change, `drained` that the grace period since then is over.
    """
    if wanted:
        if not exists:
            return CanaryStep.CREATE
        if weight == 0 or not ready:
            if routed:
                return CanaryStep.DETACH
            return CanaryStep.NOTHING if ready else CanaryStep.WAIT_UNTIL_READY
        return CanaryStep.NOTHING if routed else CanaryStep.ATTACH
    if not exists:
        return CanaryStep.NOTHING
    if routed:
        return CanaryStep.DETACH
    if not accepted:
        return CanaryStep.WAIT_UNTIL_DETACHED
    return CanaryStep.DELETE if drained else CanaryStep.DRAIN
