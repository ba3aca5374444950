"""What comes next for a canary: from what is declared, remembered and seen, to what is rendered.

A state machine without I/O. The operator calls `advance` in every pass, renders what the move
says and writes the state into the status; whatever happens in between, the same call with the
same arguments gives the same move, so a restart at any point goes on where it was.
The order is what it is about: a share is written only once the canary can answer, and pods go
only after their share has gone and whoever routes has said so.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.core.service import analysis
from holdfast.core.service.canary_state import (
    CanaryEnding,
    CanaryPhase,
    CanarySeen,
    CanaryState,
    seconds_since,
)
from holdfast.core.service.canary_steps import DECLARED, ENDED, PATIENCE, Walk
from holdfast.core.service.canary_text import message
from holdfast.core.service.spec import InferenceServiceSpec
from holdfast.core.service.split import Split, SplitMode
from holdfast.core.service.variant import promoted

__all__ = [
    "CanaryEnding",
    "CanaryPhase",
    "CanarySeen",
    "CanaryState",
    "Move",
    "Note",
    "advance",
]

SOON = 1.0
_GONE = (CanaryPhase.REMOVING, *ENDED)
_WRITTEN = (CanaryPhase.SHIFTING, CanaryPhase.DETACHING, CanaryPhase.REMOVING)
_WARNINGS = frozenset(
    {"CanaryNotReady", "WeightNotPossible", "AnalysisFailed", "AnalysisInconclusive"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that has just happened, worth an event."""

    warning: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What to render now, and what to remember."""

    state: CanaryState | None
    """None without a canary."""
    split: Split
    """How many pods each side has, and the canary's share. A count of None is not written."""
    apply: bool
    """The canary Deployment is to be as declared: create it, or change it."""
    keep: bool
    """A canary Deployment that there is must stay. With `apply` False it is left as it is."""
    promoted: bool
    """The primary is to run the canary's variant (`variant.primary_spec`)."""
    requeue_after: float | None
    notes: tuple[Note, ...]
    message: str
    """How the canary is doing, in a sentence or two; empty without one."""

    @property
    def weight(self) -> int:
        """The share to render now."""
        return self.split.weight


def advance(
    spec: InferenceServiceSpec, state: CanaryState | None, seen: CanarySeen, now: datetime
) -> Move:
    """Say what a canary's next move is. Total: every state can meet every world."""
    walk = Walk(spec=spec, seen=seen, now=now, before=state)
    after = walk.to_rest()
    return Move(
        state=after,
        split=_split(walk, after),
        apply=after is not None and after.phase in DECLARED,
        keep=after is not None and after.phase not in _GONE,
        promoted=promoted(spec, after),
        requeue_after=_requeue_after(walk, after),
        notes=_notes(walk, after),
        message=message(spec, after, walk.target()) if after else "",
    )


def _split(walk: Walk, state: CanaryState | None) -> Split:
    """The division to render now, on the way to the target."""
    target = walk.target()
    if state is None or state.phase in ENDED:
        return Split(mode=SplitMode.NONE, primary=walk.declared_replicas(), canary=None, weight=0)
    if state.phase not in DECLARED:
        mode = SplitMode.GATEWAY if walk.seen.gateway else SplitMode.REPLICA_RATIO
        return Split(mode=mode, primary=walk.declared_replicas(), canary=None, weight=state.weight)
    declared, seen = walk.declared_replicas(), walk.seen
    primary, canary = target.primary, target.canary
    if target.mode is SplitMode.REPLICA_RATIO and declared is not None:
        # Pods of one side go only as those of the other are ready: the sum never dips.
        primary = declared
        if state.weight:
            primary = max(target.primary or 1, declared - seen.ready)
            if seen.primary_ready < (target.primary or 1):
                canary = max(canary or 1, min(seen.replicas, declared))
    return Split(mode=target.mode, primary=primary, canary=canary, weight=state.weight)


def _requeue_after(walk: Walk, state: CanaryState | None) -> float | None:
    if state is None:
        return None
    if state.phase is CanaryPhase.DRAINING:
        return max(walk.drained_in(state), SOON)
    if state.phase is CanaryPhase.HANDING_OVER:
        left = PATIENCE - seconds_since(state.since, walk.now)
        return max(left, SOON) if left > 0 else None
    moved = walk.before is None or walk.before.phase is not state.phase
    if moved and state.phase in _WRITTEN:
        return SOON  # it was only just written: look whether it arrived
    left_to_round = analysis.remaining(walk.spec, state, walk.now)
    return None if left_to_round is None else max(left_to_round, SOON)


def _notes(walk: Walk, after: CanaryState | None) -> tuple[Note, ...]:
    before = walk.before
    old = (before.phase, before.reason) if before else None
    new = (after.phase, after.reason) if after else None
    if old == new:
        return ()
    if after is None:
        ended = before.ending if before else None
        text = f"The canary is gone: {_why(ended)}."
        return (Note(warning=False, reason="CanaryEnded", message=text),)
    text = message(walk.spec, after, walk.target())
    return (Note(warning=after.reason in _WARNINGS, reason=after.reason, message=text),)


def _why(ending: CanaryEnding | None) -> str:
    if ending is CanaryEnding.ADOPTED:
        return "its variant is the primary's now"
    return "it is no longer declared"
