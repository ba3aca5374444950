"""Decides whether a service that may have no replicas has them now.

The data plane says on the service when it was asked last, and that it is there to wake it; the
operator decides by that alone, so either may be restarted, and there may be several of both. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.core.quantity import parse_duration, parse_moment
from holdfast.core.service.pod import startup_seconds
from holdfast.core.service.spec import Condition, InferenceService

LAST_REQUEST_ANNOTATION = "holdfast.dev/last-request"
"""When a data plane last had a request for the service."""
DATA_PLANE_ANNOTATION = "holdfast.dev/data-plane"
"""When a data plane that would wake the service was last there."""
DATA_PLANE_BEAT = 15.0
"""Seconds between two of its signs of life, at the most."""
DATA_PLANE_TIMEOUT = 60.0
"""Seconds after which a data plane that gave none is taken to be gone."""
DEFAULT_IDLE_AFTER = 600.0
MIN_IDLE_AFTER = 5.0
"""A shorter `idleAfter` counts as this: requests are told of in whole seconds, and by signs."""


class IdleReason(StrEnum):
    """Why a service has replicas, or has none."""

    REQUESTED = "Requested"
    """It was asked less than `idleAfter` ago, or has not been ready for as long."""
    IDLE = "Idle"
    NO_DATA_PLANE = "NoDataPlane"
    """Nothing would wake it, so it is not put to rest."""
    CANARY = "Canary"
    """A canary is on its way, and both variants run until it is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleDecision:
    """What is to be, and when time alone may change it."""

    asleep: bool
    """It is to have no replicas."""
    reason: IdleReason
    wakeable: bool
    """A data plane is there that would wake it."""
    recheck_at: datetime


def idle_after(service: InferenceService) -> float:
    """Seconds without a request after which a service has no replicas any more."""
    scaling = service.spec.autoscaling
    return idle_seconds(scaling.idle_after if scaling else None)


def idle_seconds(given: str | int | float | None) -> float:
    """The same by the field alone."""
    if given is None:
        return DEFAULT_IDLE_AFTER
    return max(parse_duration(given) or 0.0, MIN_IDLE_AFTER)


def sign_interval(idle: float) -> float:
    """Seconds between two signs of a data plane for a service that rests after `idle` seconds.

    Requests are told with these signs: rarer ones would let a service rest that is answering.
    """
    return min(idle / 3, DATA_PLANE_BEAT)


def decide_idle(service: InferenceService, *, asleep: bool, now: datetime) -> IdleDecision | None:
    """Say whether a service is to have replicas; None where it always has some.

    `asleep` says that it has none now. Asleep, it is woken by a request that is not older than
    `idleAfter`. Awake, it is put to rest when it was neither asked nor newly ready for that long,
    and for its start-up budget while it is not ready, and only when a data plane has given a sign
    after that time: until then a request may be known to it alone.
    """
    if not service.spec.scales_to_zero:
        return None
    asked = parse_moment(service.annotations.get(LAST_REQUEST_ANNOTATION))
    seen = parse_moment(service.annotations.get(DATA_PLANE_ANNOTATION))
    gone_at = seen + timedelta(seconds=DATA_PLANE_TIMEOUT) if seen else now
    wakeable = gone_at > now
    often = now + timedelta(seconds=DATA_PLANE_TIMEOUT)
    limit = timedelta(seconds=idle_after(service))

    def decision(asleep: bool, reason: IdleReason, recheck_at: datetime) -> IdleDecision:
        return IdleDecision(asleep=asleep, reason=reason, wakeable=wakeable, recheck_at=recheck_at)

    remembered = service.status is not None and service.status.canary is not None
    if service.spec.canary is not None or remembered:
        return decision(False, IdleReason.CANARY, often)
    if asleep:
        if asked is not None and asked + limit > now:
            return decision(False, IdleReason.REQUESTED, asked + limit)
        return decision(True, IdleReason.IDLE, gone_at if wakeable else often)
    if not wakeable:
        return decision(False, IdleReason.NO_DATA_PLANE, often)
    ready = next((e for e in _conditions(service) if e.type == "Ready"), None)
    changed = parse_moment(ready.last_transition_time) if ready else None
    if ready is None or changed is None:
        return decision(False, IdleReason.REQUESTED, often)
    if ready.status != "True":
        limit = max(limit, timedelta(seconds=startup_seconds(service)))
    idle_at = max(changed, asked or changed) + limit
    if idle_at > now:
        return decision(False, IdleReason.REQUESTED, idle_at)
    if seen is None or seen < idle_at:
        soon = now + timedelta(seconds=sign_interval(idle_after(service)))
        return decision(False, IdleReason.REQUESTED, soon)
    return decision(True, IdleReason.IDLE, gone_at)


def _conditions(service: InferenceService) -> tuple[Condition, ...]:
    return service.status.conditions if service.status else ()
