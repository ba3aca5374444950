"""How far a canary has come, and what is seen of it.

The state is what has to survive a restart of the operator: it is kept in the status of the
InferenceService and nowhere else. Moved on by `canary`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum


class CanaryPhase(StrEnum):
    """Where a canary is on its way. Every move between two phases is safe to repeat."""

    STARTING = "Starting"
    """It has no share: not ready yet, not ready any more, or given none."""
    SHIFTING = "Shifting"
    """Its share was written; whoever routes has not taken it over yet."""
    RUNNING = "Running"
    """It gets its share, and is judged where a metric was given."""
    HANDING_OVER = "HandingOver"
    """It keeps its share until the primary can take all requests."""
    DETACHING = "Detaching"
    """Its share was taken away; whoever routes has not taken that over yet."""
    DRAINING = "Draining"
    """Nothing new comes in; running requests may end."""
    REMOVING = "Removing"
    PROMOTED = "Promoted"
    """It passed: the primary runs its variant, though another one is declared."""
    ROLLED_BACK = "RolledBack"
    """It failed, and stays away until its variant changes."""


class CanaryEnding(StrEnum):
    """Why a canary is on its way out."""

    REMOVED = "Removed"
    """It is no longer declared, or another one is."""
    ADOPTED = "Adopted"
    """Its variant was declared as the primary's."""
    PROMOTED = "Promoted"
    """Its metric stayed within bounds."""
    ROLLED_BACK = "RolledBack"
    """Its metric did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryState:
    """One canary, remembered. Times are RFC 3339; an unreadable one counts as just now."""

    phase: CanaryPhase
    digest: str = ""
    """Of the variant that this is about."""
    base: str = ""
    """Of the primary's declared variant when this began; a promotion holds as long as it does."""
    since: str = ""
    """When the phase began."""
    weight: int = 0
    """The share that is written now, in percent."""
    declared: int = 0
    """The declared weight that the rounds below are about."""
    served: bool = False
    """It has had a share, so there may be requests to wait for."""
    ending: CanaryEnding | None = None
    passed: int = 0
    failed: int = 0
    inconclusive: int = 0
    """Rounds in a row: within bounds, out of them, without a value."""
    checked: str | None = None
    """When the last round was."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySeen:
    """What was observed, before anything of this pass was written."""

    gateway: bool
    """A route divides the requests; else the ratio of pods does."""
    exists: bool = False
    """There is a canary Deployment."""
    current: bool = False
    """It carries what is declared, and all its pods run that."""
    replicas: int = 0
    ready: int = 0
    routed: int = 0
    """The canary's share on the live route (`route_weight`), or what the selector of the front
    Service lets through (`front_weight`)."""
    accepted: bool = True
    """Every parent took over the live route (`route_accepted`). Always so without a gateway."""
    primary_replicas: int | None = None
    primary_ready: int = 0
    primary_current: bool = False
    """The primary carries what `variant.primary_spec(spec, state)` declares, its rollout is
    complete and all its pods are ready. `state` is the one that goes into `advance`."""
    asked: bool = False
    """The metric was asked, because `analysis.due` said so."""
    metric: float | None = None


def stamp(now: datetime) -> str:
    """Write a time as the state keeps it."""
    return now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_since(text: str | None, now: datetime) -> float:
    """How long ago that was. A time that lies ahead, after the clock was set, is just now."""
    try:
        then = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    if then.tzinfo is None:
        return 0.0
    return max(0.0, (now - then).total_seconds())
