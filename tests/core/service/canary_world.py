"""A cluster in a few numbers, in which a canary can be watched from pass to pass.

Only what the moves depend on: pods come and become ready when told to, a gateway takes a route
over when told to, and every state goes through its JSON form, as it does in a real status.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from holdfast.core.service import analysis
from holdfast.core.service.canary import (
    CanaryDecision,
    advance,
    canary_digest,
    primary_digest,
    primary_spec,
)
from holdfast.core.service.spec import (
    CanaryObservation,
    CanaryState,
    InferenceServiceSpec,
    InferenceServiceStatus,
)
from holdfast.wire.inference_service_v1alpha1 import status_from_json, status_to_json


@dataclass
class Group:
    """The pods of one variant; `ready` of them answer."""

    variant: str
    wanted: int
    ready: int = 0
    updated: int = 0

    def settle(self) -> None:
        self.ready = self.updated = self.wanted


@dataclass
class CanaryWorld:
    """What there is. `routed` is on the live route, `taken` is what the gateway goes by."""

    spec: InferenceServiceSpec
    gateway: bool = True
    now: datetime = datetime(2026, 11, 1, tzinfo=UTC)
    primary: Group = field(default_factory=lambda: Group(variant="", wanted=0))
    canary: Group | None = None
    routed: int = 0
    taken: int = 0
    generation: int = 1
    accepted: int = 1
    metric: float | None = None
    state: CanaryState | None = None
    moves: list[CanaryDecision] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = self.spec.replicas or 4
        self.primary = Group(
            variant=primary_digest(self.spec), wanted=count, ready=count, updated=count
        )

    def observed(self) -> CanaryObservation:
        canary, primary = self.canary, self.primary
        declared = primary_digest(primary_spec(self.spec, self.state))
        asked = analysis.is_round_due(self.spec, self.state, self.now)
        return CanaryObservation(
            gateway=self.gateway,
            exists=canary is not None,
            current=canary is not None
            and canary.variant == canary_digest(self.spec)
            and canary.updated == canary.wanted,
            replicas=canary.wanted if canary else 0,
            ready=canary.ready if canary else 0,
            routed=self.routed,
            accepted=not self.gateway or self.accepted == self.generation,
            primary_replicas=primary.wanted,
            primary_ready=primary.ready,
            primary_current=primary.variant == declared
            and primary.updated == primary.wanted == primary.ready,
            asked=asked,
            metric=self.metric if asked else None,
        )

    def go(self) -> CanaryDecision:
        """One pass: decide, remember, and write what was decided."""
        move = advance(self.spec, self.state, self.observed(), self.now)
        self.state = through_json(move.state)
        self._write(move)
        self.moves.append(move)
        return move

    def _write(self, move: CanaryDecision) -> None:
        variant = primary_digest(primary_spec(self.spec, move.state))
        self.primary = _applied(self.primary, variant, move.split.primary)
        if move.apply:
            digest = canary_digest(self.spec)
            assert digest is not None
            count = move.split.canary or 1
            if self.canary is None:
                self.canary = Group(variant=digest, wanted=count)
            self.canary = _applied(self.canary, digest, count)
        elif not move.keep:
            self.canary = None
        weight = move.weight
        if not self.gateway:
            weight = 0 if weight == 0 else 100 if weight == 100 else 50
        if weight != self.routed:
            self.routed = weight
            self.generation += 1
        if not self.gateway:
            self.taken = self.routed

    def accept(self) -> None:
        """The gateway takes the route over."""
        self.accepted, self.taken = self.generation, self.routed

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def settle(self, passes: int = 40) -> None:
        """Let everything become ready and accepted until nothing moves any more."""
        for _ in range(passes):
            self.primary.settle()
            if self.canary:
                self.canary.settle()
            self.accept()
            before = (self.state, self.routed, self.primary, self.canary)
            move = self.go()
            unmoved = before == (self.state, self.routed, self.primary, self.canary)
            if unmoved and move.requeue_after is None:
                return
            self.wait(move.requeue_after or 1)

    def change(self, **fields: object) -> None:
        self.spec = replace(self.spec, **fields)  # type: ignore[arg-type]


def _applied(group: Group, variant: str, count: int | None) -> Group:
    """Carry an apply out: pods of another variant are replaced, one at a time as they say."""
    wanted = group.wanted if count is None else count
    if variant != group.variant:
        return Group(variant=variant, wanted=wanted, ready=min(group.ready, wanted), updated=0)
    return replace(
        group,
        wanted=wanted,
        ready=min(group.ready, wanted),
        updated=min(group.updated, wanted) if wanted <= group.wanted else group.updated,
    )


def through_json(state: CanaryState | None) -> CanaryState | None:
    """A state as it comes back from the status of the object."""
    status = status_from_json(status_to_json(InferenceServiceStatus(canary=state)))
    assert status is not None
    assert status.canary == state
    return status.canary
