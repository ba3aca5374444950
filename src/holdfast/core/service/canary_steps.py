"""The steps of a canary, each from one state to the next or to the same. Called by `canary`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.core.quantity import parse_duration
from holdfast.core.service import analysis
from holdfast.core.service.canary_state import (
    CanaryEnding,
    CanaryPhase,
    CanarySeen,
    CanaryState,
    seconds_since,
    stamp,
)
from holdfast.core.service.pod import DRAIN, LEAVE
from holdfast.core.service.spec import InferenceServiceSpec
from holdfast.core.service.split import Split, SplitMode, divide, expressible
from holdfast.core.service.variant import canary_digest, primary_digest

PATIENCE = 300.0
"""Seconds that a leaving canary waits for all pods of a primary; then one ready pod must do."""
DECLARED = (CanaryPhase.STARTING, CanaryPhase.SHIFTING, CanaryPhase.RUNNING)
"""The canary is there because it is declared."""
WITH_SHARE = (CanaryPhase.SHIFTING, CanaryPhase.RUNNING, CanaryPhase.HANDING_OVER)
ENDED = (CanaryPhase.PROMOTED, CanaryPhase.ROLLED_BACK)
"""It is gone, although it is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """One pass. Every method is a function of these four; a step gives the next state."""

    spec: InferenceServiceSpec
    seen: CanarySeen
    now: datetime
    before: CanaryState | None

    def to_rest(self) -> CanaryState | None:
        state = self.before
        for _ in range(len(CanaryPhase) * 2):  # no path is longer; a cycle would be a bug
            after = self.step(state)
            if after == state:
                break
            state = after
        return state

    def step(self, state: CanaryState | None) -> CanaryState | None:
        """Take one step, or none."""
        if state is None:
            return self.begin()
        if state.weight and state.phase not in WITH_SHARE:
            return replace(state, weight=0)  # somebody edited the status
        turned = self.turn(state)
        if turned != state:
            return turned
        match state.phase:
            case CanaryPhase.STARTING:
                return self.start(state)
            case CanaryPhase.SHIFTING | CanaryPhase.RUNNING:
                return self.serve(state)
            case CanaryPhase.HANDING_OVER:
                return self.hand_over(state)
            case CanaryPhase.DETACHING:
                return self.detach(state)
            case CanaryPhase.DRAINING:
                return self.drain(state)
            case CanaryPhase.REMOVING:
                return state if self.seen.exists else self.end(state)
            case _:
                return state

    # Steps

    def begin(self) -> CanaryState | None:
        """Without a memory, go by what is there: a canary that serves goes on serving."""
        seen, wanted = self.seen, canary_digest(self.spec)
        if wanted is None and not seen.exists:
            return None
        phase = CanaryPhase.STARTING if wanted else CanaryPhase.HANDING_OVER
        state = CanaryState(
            phase=phase,
            digest=wanted or "",
            base=primary_digest(self.spec),
            since=stamp(self.now),
            declared=self.spec.canary.weight if self.spec.canary else 0,
            ending=None if wanted else CanaryEnding.REMOVED,
            reason="CanaryStarting" if wanted else "CanaryRemoved",
        )
        if not (seen.exists and seen.ready and seen.routed):
            return state
        serving = replace(state, served=True, weight=seen.routed)
        if wanted is None:
            return serving
        if seen.current or not seen.primary_ready:
            return replace(serving, phase=CanaryPhase.SHIFTING)
        return replace(state, served=True)

    def turn(self, state: CanaryState) -> CanaryState | None:
        """Follow the user: a canary withdrawn, exchanged, made the primary, or brought back."""
        wanted, primary = canary_digest(self.spec), primary_digest(self.spec)
        if wanted != state.digest:
            if state.phase in ENDED:
                return self.end(replace(state, ending=CanaryEnding.REMOVED))
            adopted = state.digest == primary
            ending = CanaryEnding.ADOPTED if adopted else CanaryEnding.REMOVED
            if state.phase in DECLARED:
                return self.to(state, CanaryPhase.HANDING_OVER, f"Canary{ending}", ending=ending)
            return replace(state, ending=ending)
        if state.ending is CanaryEnding.PROMOTED:
            resumed = primary != state.base
        else:
            resumed = state.ending in (CanaryEnding.REMOVED, CanaryEnding.ADOPTED)
        if not resumed:
            return state
        match state.phase:
            case CanaryPhase.HANDING_OVER if state.weight:
                return self.again(state, CanaryPhase.SHIFTING)
            case CanaryPhase.REMOVING:
                return state  # it may be half gone: begin again once it is
            case CanaryPhase.PROMOTED:
                return None
            case _:
                return self.again(state, CanaryPhase.STARTING)

    def start(self, state: CanaryState) -> CanaryState:
        """Wait until all pods are ready, then give the share."""
        seen, target = self.seen, self.target()
        canary = self.spec.canary
        whole = seen.exists and seen.current and seen.ready >= max(1, target.canary or 1)
        if not whole:
            reason = "CanaryNotReady" if state.served else "CanaryStarting"
        elif canary is None or canary.weight == 0:
            reason = "CanaryWithoutShare"
        elif not self.possible(target):
            reason = "WeightNotPossible"
        else:
            return self.to(
                state,
                CanaryPhase.SHIFTING,
                "CanaryAttached",
                weight=target.weight,
                declared=canary.weight,
                served=True,
                passed=0,
                failed=0,
                inconclusive=0,
                checked=None,
            )
        return replace(state, weight=0, reason=reason)

    def serve(self, state: CanaryState) -> CanaryState:
        """Keep the share at what is declared, as long as there is someone to answer."""
        seen, target = self.seen, self.target()
        if not seen.exists or seen.ready == 0:
            return self.to(state, CanaryPhase.STARTING, "CanaryNotReady", weight=0)
        declared = self.spec.canary.weight if self.spec.canary else 0
        if declared == 0 or not self.possible(target):
            if not seen.primary_ready:
                return state  # nobody else could answer
            reason = "WeightNotPossible" if declared else "CanaryWithoutShare"
            return self.to(state, CanaryPhase.STARTING, reason, weight=0)
        if declared != state.declared:
            return self.to(
                state,
                CanaryPhase.SHIFTING,
                "WeightChanged",
                declared=declared,
                passed=0,
                failed=0,
                inconclusive=0,
                checked=None,
            )
        if target.weight != state.weight and self.may_shift(state, target):
            state = replace(state, weight=target.weight)
        arrived = state.weight == target.weight or state.phase is CanaryPhase.RUNNING
        if not (arrived and self.routed(state.weight) and seen.accepted):
            if state.phase is CanaryPhase.RUNNING:
                return self.to(state, CanaryPhase.SHIFTING, "RouteNotAccepted")
            return state
        if state.phase is CanaryPhase.SHIFTING:
            return self.to(state, CanaryPhase.RUNNING, "CanaryRunning")
        return self.judge(state)

    def judge(self, state: CanaryState) -> CanaryState:
        """Count a round if one was asked, and draw the conclusion."""
        given = self.spec.canary.analysis if self.spec.canary else None
        if given is None or not self.seen.asked:
            return state
        if not analysis.due(self.spec, state, self.now):
            return state
        after = analysis.judge(given, state, self.seen.metric, self.now)
        if after.passed >= analysis.rounds(given):
            ending, reason = CanaryEnding.PROMOTED, "AnalysisPassed"
        elif after.failed >= analysis.FAILURES:
            ending, reason = CanaryEnding.ROLLED_BACK, "AnalysisFailed"
        elif after.inconclusive >= analysis.INCONCLUSIVE:
            return replace(after, reason="AnalysisInconclusive")
        else:
            return replace(after, reason="CanaryRunning")
        # What it was compared with may have been changed since it began.
        return self.to(
            after,
            CanaryPhase.HANDING_OVER,
            reason,
            ending=ending,
            base=primary_digest(self.spec),
        )

    def hand_over(self, state: CanaryState) -> CanaryState:
        """Keep the share until the primary can take it."""
        seen = self.seen
        if state.weight == 0 or seen.ready == 0 or not seen.exists or self.primary_can(state):
            return self.to(state, CanaryPhase.DETACHING, state.reason, weight=0)
        return state

    def primary_can(self, state: CanaryState) -> bool:
        seen, declared = self.seen, self.declared_replicas()
        if state.ending is CanaryEnding.PROMOTED:
            # The move that decides this is the first to render the primary anew.
            entered = self.before is None or self.before.phase is not CanaryPhase.HANDING_OVER
            if entered:
                return False
        if state.ending in (CanaryEnding.PROMOTED, CanaryEnding.ADOPTED):
            return seen.primary_current and seen.primary_ready >= max(1, declared or 0)
        if seen.gateway or declared is None:
            return seen.primary_ready > 0
        patient = seconds_since(state.since, self.now) < PATIENCE
        return seen.primary_ready >= (declared if patient else 1)

    def detach(self, state: CanaryState) -> CanaryState:
        """Wait until nothing is sent to it any more."""
        seen = self.seen
        if not seen.exists:
            return self.to(state, CanaryPhase.REMOVING, state.reason)
        # The share that is seen was read before this pass wrote another.
        if self.before is not None and self.before.weight:
            return state
        if seen.routed or not seen.accepted:
            return state
        if state.served and seen.ready:
            return self.to(state, CanaryPhase.DRAINING, state.reason)
        return self.to(state, CanaryPhase.REMOVING, state.reason)

    def drain(self, state: CanaryState) -> CanaryState:
        """Let requests end."""
        if not self.seen.exists:
            return self.to(state, CanaryPhase.REMOVING, state.reason)
        if self.seen.routed:
            return self.to(state, CanaryPhase.DETACHING, state.reason)
        if self.seen.accepted and self.drained_in(state) == 0:
            return self.to(state, CanaryPhase.REMOVING, state.reason)
        return state

    def end(self, state: CanaryState) -> CanaryState | None:
        match state.ending:
            case CanaryEnding.PROMOTED:
                return self.to(state, CanaryPhase.PROMOTED, "CanaryPromoted")
            case CanaryEnding.ROLLED_BACK:
                return self.to(state, CanaryPhase.ROLLED_BACK, "CanaryRolledBack")
            case _:
                return None

    # What they share

    def to(
        self, state: CanaryState, phase: CanaryPhase, reason: str, **more: object
    ) -> CanaryState:
        changed = {"phase": phase, "reason": reason, "since": stamp(self.now), **more}
        return replace(state, **changed)  # type: ignore[arg-type]  # names and values of its fields

    def again(self, state: CanaryState, phase: CanaryPhase) -> CanaryState:
        return self.to(state, phase, "CanaryResumed", ending=None, base=primary_digest(self.spec))

    def declared_replicas(self) -> int | None:
        return None if self.spec.autoscaled else self.spec.replicas

    def target(self) -> Split:
        """The division once everything is in place."""
        declared, canary = self.declared_replicas(), self.spec.canary
        if canary is None:
            return Split(mode=SplitMode.NONE, primary=declared, canary=None, weight=0)
        return divide(
            weight=canary.weight,
            gateway=self.seen.gateway,
            ready=True,
            declared=declared,
            seen=self.seen.primary_replicas or self.spec.min_replicas,
            canary=canary.replicas,
        )

    def possible(self, target: Split) -> bool:
        canary = self.spec.canary
        return canary is not None and expressible(canary.weight, target.weight)

    def may_shift(self, state: CanaryState, target: Split) -> bool:
        """More only for as many pods as it takes; less only while a primary can answer."""
        if target.weight > state.weight:
            return self.seen.ready >= (target.canary or 1)
        return self.seen.primary_ready > 0

    def routed(self, weight: int) -> bool:
        """True when the live route, or the selector, is what this share asks for."""
        if self.seen.gateway:
            return self.seen.routed == weight
        return _side(self.seen.routed) == _side(weight)

    def drained_in(self, state: CanaryState) -> float:
        rollout = self.spec.rollout
        given = parse_duration(rollout.drain_timeout) if rollout and rollout.drain_timeout else None
        grace = LEAVE + (given or DRAIN)
        return max(0.0, grace - seconds_since(state.since, self.now))


def _side(weight: int) -> int:
    """Who is behind a selector: the primary's pods, the canary's, or both."""
    return 0 if weight == 0 else 2 if weight >= 100 else 1
