"""What comes next for a canary: from what is declared, remembered and observed, to a decision.

A state machine without I/O. The operator calls `advance` in every pass, renders what the decision
says and writes the state into the status; whatever happens in between, the same call with the
same arguments gives the same decision, so a restart at any point goes on where it was.
The order is what it is about: a share is written only once the canary can answer, and pods go
only after their share has gone and whoever routes has said so.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime

from holdfast.core.quantity import parse_duration
from holdfast.core.service import analysis
from holdfast.core.service.facts import CanaryEnded, CanaryMoved, ServiceFact
from holdfast.core.service.pod import DEFAULT_DRAIN_SECONDS, PRE_STOP_SECONDS
from holdfast.core.service.spec import (
    CanaryEnding,
    CanaryObservation,
    CanaryPhase,
    CanaryState,
    InferenceServiceSpec,
    ResourceSpec,
    format_time,
    seconds_since,
)
from holdfast.core.service.split import SplitMode, TrafficSplit, compute_split, is_expressible
from holdfast.core.tree import Fields, Tree, digest, plain_tree


def primary_digest(spec: InferenceServiceSpec) -> str:
    """Name the variant that is declared for the primary."""
    return digest(_variant(spec))


def canary_digest(spec: InferenceServiceSpec) -> str | None:
    """Name the variant that is declared for the canary; None without a canary.

    Variables and resources are a part of it where the canary has its own: a canary of before
    those could be given keeps its name.
    """
    own = spec.canary
    if own is None:
        return None
    if own.env is None and own.resources is None:
        return primary_digest(canary_as_primary(spec))
    return _whole_digest(canary_as_primary(spec))


def _whole_digest(spec: InferenceServiceSpec) -> str:
    return digest([*_variant(spec), dict(spec.env or {}), _plain_part(spec.resources)])


def _variant(spec: InferenceServiceSpec) -> list[Tree]:
    parts: list[Tree] = [
        spec.model_ref,
        spec.image,
        list[Tree](spec.command or ()),
        list[Tree](spec.args or ()),
    ]
    pins = {"modelRevision": spec.model_revision, "modelDigest": spec.model_digest}
    given: Fields = {name: value for name, value in pins.items() if value is not None}
    if given:  # only then, so that what was remembered before still holds
        parts.append(given)
    return parts


def _plain_part(value: object) -> Tree:
    if is_dataclass(value):
        return {part.name: _plain_part(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, tuple):
        return [_plain_part(item) for item in value]
    return plain_tree(value)


def is_adopted(spec: InferenceServiceSpec, name: str) -> bool:
    """True when the variant of that name is what is declared for the primary now."""
    return name in (primary_digest(spec), _whole_digest(spec))


def canary_as_primary(spec: InferenceServiceSpec) -> InferenceServiceSpec:
    """Write the canary's variant into the primary's place, as a user would to keep it."""
    own = spec.canary
    if own is None:
        return spec
    return replace(
        spec,
        model_ref=own.model_ref or spec.model_ref,
        model_revision=spec.canary_revision,
        model_digest=spec.canary_model_digest,
        image=own.image or spec.image,
        command=own.command or spec.command,
        args=spec.args if own.args is None else own.args,
        env=spec.env if own.env is None else {**(spec.env or {}), **own.env},
        resources=canary_resources(spec),
    )


def canary_resources(spec: InferenceServiceSpec) -> ResourceSpec | None:
    """What a replica of the canary needs: its own fields over the primary's."""
    own = spec.canary.resources if spec.canary else None
    if own is None:
        return spec.resources
    given = {part.name: getattr(own, part.name) for part in fields(own)}
    return replace(
        spec.resources or ResourceSpec(),
        **{name: value for name, value in given.items() if value is not None},
    )


def primary_spec(spec: InferenceServiceSpec, state: CanaryState | None) -> InferenceServiceSpec:
    """Give the spec to render the primary from: the declared one, unless its canary passed."""
    return canary_as_primary(spec) if promoted(spec, state) else spec


def promoted(spec: InferenceServiceSpec, state: CanaryState | None) -> bool:
    """True while a canary that passed stands in for what is declared."""
    return (
        state is not None
        and state.ending is CanaryEnding.PROMOTED
        and canary_digest(spec) == state.digest
        and primary_digest(spec) == state.base
    )


HANDOVER_TIMEOUT = 300.0
"""Seconds that a leaving canary waits for all pods of a primary; then one ready pod must do."""
DECLARED_PHASES = (CanaryPhase.STARTING, CanaryPhase.SHIFTING, CanaryPhase.RUNNING)
"""The canary is there because it is declared."""
SERVING_PHASES = (CanaryPhase.SHIFTING, CanaryPhase.RUNNING, CanaryPhase.HANDING_OVER)
ENDED_PHASES = (CanaryPhase.PROMOTED, CanaryPhase.ROLLED_BACK)
"""It is gone, although it is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryTransitions:
    """One pass. Every method is a function of these four; a step gives the next state."""

    spec: InferenceServiceSpec
    observed: CanaryObservation
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
        if state.weight and state.phase not in SERVING_PHASES:
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
                return state if self.observed.exists else self.end(state)
            case _:
                return state

    # Steps

    def begin(self) -> CanaryState | None:
        """Without a memory, go by what is there: a canary that serves goes on serving."""
        observed, wanted = self.observed, canary_digest(self.spec)
        if wanted is None and not observed.exists:
            return None
        phase = CanaryPhase.STARTING if wanted else CanaryPhase.HANDING_OVER
        state = CanaryState(
            phase=phase,
            digest=wanted or "",
            base=primary_digest(self.spec),
            since=format_time(self.now),
            declared=self.spec.canary.weight if self.spec.canary else 0,
            ending=None if wanted else CanaryEnding.REMOVED,
            reason="CanaryStarting" if wanted else "CanaryRemoved",
        )
        if not (observed.exists and observed.ready and observed.routed):
            return state
        serving = replace(state, served=True, weight=observed.routed)
        if wanted is None:
            return serving
        if observed.current or not observed.primary_ready:
            return replace(serving, phase=CanaryPhase.SHIFTING)
        return replace(state, served=True)

    def turn(self, state: CanaryState) -> CanaryState | None:
        """Follow the user: a canary withdrawn, exchanged, made the primary, or brought back."""
        wanted, primary = canary_digest(self.spec), primary_digest(self.spec)
        if wanted != state.digest:
            if state.phase in ENDED_PHASES:
                return self.end(replace(state, ending=CanaryEnding.REMOVED))
            adopted = is_adopted(self.spec, state.digest)
            ending = CanaryEnding.ADOPTED if adopted else CanaryEnding.REMOVED
            if state.phase in DECLARED_PHASES:
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
        observed, target = self.observed, self.target()
        canary = self.spec.canary
        whole = (
            observed.exists and observed.current and observed.ready >= max(1, target.canary or 1)
        )
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
        observed, target = self.observed, self.target()
        if not observed.exists or observed.ready == 0:
            return self.to(state, CanaryPhase.STARTING, "CanaryNotReady", weight=0)
        declared = self.spec.canary.weight if self.spec.canary else 0
        if declared == 0 or not self.possible(target):
            if not observed.primary_ready:
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
        if not (arrived and self.routed(state.weight) and observed.accepted):
            if state.phase is CanaryPhase.RUNNING:
                return self.to(state, CanaryPhase.SHIFTING, "RouteNotAccepted")
            return state
        if state.phase is CanaryPhase.SHIFTING:
            return self.to(state, CanaryPhase.RUNNING, "CanaryRunning")
        return self.judge(state)

    def judge(self, state: CanaryState) -> CanaryState:
        """Count a round if one was asked, and draw the conclusion."""
        given = self.spec.canary.analysis if self.spec.canary else None
        if given is None or not self.observed.asked:
            return state
        if not analysis.is_round_due(self.spec, state, self.now):
            return state
        after = analysis.count_round(given, state, self.observed.metric, self.now)
        if after.passed >= analysis.required_rounds(given):
            ending, reason = CanaryEnding.PROMOTED, "AnalysisPassed"
        elif after.failed >= analysis.MAX_FAILED_ROUNDS:
            ending, reason = CanaryEnding.ROLLED_BACK, "AnalysisFailed"
        elif after.inconclusive >= analysis.MAX_INCONCLUSIVE_ROUNDS:
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
        observed = self.observed
        if (
            state.weight == 0
            or observed.ready == 0
            or not observed.exists
            or self.primary_can(state)
        ):
            return self.to(state, CanaryPhase.DETACHING, state.reason, weight=0)
        return state

    def primary_can(self, state: CanaryState) -> bool:
        observed, declared = self.observed, self.declared_replicas()
        if state.ending is CanaryEnding.PROMOTED:
            # The move that decides this is the first to render the primary anew.
            entered = self.before is None or self.before.phase is not CanaryPhase.HANDING_OVER
            if entered:
                return False
        if state.ending in (CanaryEnding.PROMOTED, CanaryEnding.ADOPTED):
            return observed.primary_current and observed.primary_ready >= max(1, declared or 0)
        if observed.gateway or declared is None:
            return observed.primary_ready > 0
        patient = seconds_since(state.since, self.now) < HANDOVER_TIMEOUT
        return observed.primary_ready >= (declared if patient else 1)

    def detach(self, state: CanaryState) -> CanaryState:
        """Wait until nothing is sent to it any more."""
        observed = self.observed
        if not observed.exists:
            return self.to(state, CanaryPhase.REMOVING, state.reason)
        # The share that is seen was read before this pass wrote another.
        if self.before is not None and self.before.weight:
            return state
        if observed.routed or not observed.accepted:
            return state
        if state.served and observed.ready:
            return self.to(state, CanaryPhase.DRAINING, state.reason)
        return self.to(state, CanaryPhase.REMOVING, state.reason)

    def drain(self, state: CanaryState) -> CanaryState:
        """Let requests end."""
        if not self.observed.exists:
            return self.to(state, CanaryPhase.REMOVING, state.reason)
        if self.observed.routed:
            return self.to(state, CanaryPhase.DETACHING, state.reason)
        if self.observed.accepted and self.drained_in(state) == 0:
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
        changed = {"phase": phase, "reason": reason, "since": format_time(self.now), **more}
        return replace(state, **changed)  # type: ignore[arg-type]  # names and values of its fields

    def again(self, state: CanaryState, phase: CanaryPhase) -> CanaryState:
        return self.to(state, phase, "CanaryResumed", ending=None, base=primary_digest(self.spec))

    def declared_replicas(self) -> int | None:
        return None if self.spec.autoscaled else self.spec.replicas

    def target(self) -> TrafficSplit:
        """The division once everything is in place."""
        declared, canary = self.declared_replicas(), self.spec.canary
        if canary is None:
            return TrafficSplit(mode=SplitMode.NONE, primary=declared, canary=None, weight=0)
        return compute_split(
            weight=canary.weight,
            gateway=self.observed.gateway,
            ready=True,
            declared=declared,
            observed=self.observed.primary_replicas or self.spec.min_replicas,
            canary=canary.replicas,
        )

    def possible(self, target: TrafficSplit) -> bool:
        canary = self.spec.canary
        return canary is not None and is_expressible(canary.weight, target.weight)

    def may_shift(self, state: CanaryState, target: TrafficSplit) -> bool:
        """More only for as many pods as it takes; less only while a primary can answer."""
        if target.weight > state.weight:
            return self.observed.ready >= (target.canary or 1)
        return self.observed.primary_ready > 0

    def routed(self, weight: int) -> bool:
        """True when the live route, or the selector, is what this share asks for."""
        if self.observed.gateway:
            return self.observed.routed == weight
        return _side(self.observed.routed) == _side(weight)

    def drained_in(self, state: CanaryState) -> float:
        rollout = self.spec.rollout
        given = parse_duration(rollout.drain_timeout) if rollout and rollout.drain_timeout else None
        grace = PRE_STOP_SECONDS + (given or DEFAULT_DRAIN_SECONDS)
        return max(0.0, grace - seconds_since(state.since, self.now))


def _side(weight: int) -> int:
    """Who is behind a selector: the primary's pods, the canary's, or both."""
    return 0 if weight == 0 else 2 if weight >= 100 else 1


def message(spec: InferenceServiceSpec, state: CanaryState, target: TrafficSplit) -> str:
    """Describe a state: what is, and what it waits for. `target` is the division to come."""
    match state.phase:
        case CanaryPhase.STARTING:
            return _starting(spec, state, target)
        case CanaryPhase.SHIFTING:
            if state.weight != target.weight:
                return (
                    f"The canary gets {state.weight} % and is to get {target.weight} %, "
                    "once the pods for that are ready."
                )
            return f"{state.weight} % are given to the canary; not all routes have taken it over."
        case CanaryPhase.RUNNING:
            return f"The canary gets {state.weight} %." + _rounds(spec, state)
        case CanaryPhase.HANDING_OVER:
            return f"{_ending(state)} It keeps {state.weight} % until the primary can take all."
        case CanaryPhase.DETACHING:
            return f"{_ending(state)} Its share is taken away; not all routes have taken it over."
        case CanaryPhase.DRAINING:
            return f"{_ending(state)} Running requests may end before its pods go."
        case CanaryPhase.REMOVING:
            return f"{_ending(state)} Its pods are being removed."
        case CanaryPhase.PROMOTED:
            return (
                f"{_ending(state)} The primary runs its variant. "
                f"To keep it, declare {_declare(spec)}."
            )
        case CanaryPhase.ROLLED_BACK:
            return (
                f"{_ending(state)} It gets no requests until its model, revision, image, command "
                "or arguments change, or it is taken out and declared again."
            )


def _starting(spec: InferenceServiceSpec, state: CanaryState, target: TrafficSplit) -> str:
    declared = spec.canary.weight if spec.canary else 0
    match state.reason:
        case "WeightNotPossible":
            return (
                f"{declared} % cannot be given by a ratio of pods: the nearest is "
                f"{target.weight} %. The canary gets nothing. Declare a weight near that, more "
                "replicas, or set up a gateway."
            )
        case "CanaryWithoutShare":
            return "The canary is ready. Its declared weight is 0, so it gets no requests."
        case "CanaryNotReady":
            return f"The canary is not ready, so it gets nothing of its {declared} %."
        case _:
            return f"The canary gets its {declared} % once all its pods are ready."


def _rounds(spec: InferenceServiceSpec, state: CanaryState) -> str:
    given = spec.canary.analysis if spec.canary else None
    if given is None:
        return ""
    if state.inconclusive >= analysis.MAX_INCONCLUSIVE_ROUNDS:
        return (
            f" Its metric had no value {state.inconclusive} times in a row, so nothing is decided. "
            "Check canary.analysis.metric and that Prometheus is reachable."
        )
    text = f" {state.passed} of {analysis.required_rounds(given)} rounds passed"
    return text + (f", the last {state.failed} did not." if state.failed else ".")


def _ending(state: CanaryState) -> str:
    match state.ending:
        case CanaryEnding.PROMOTED:
            return "The canary passed its analysis."
        case CanaryEnding.ROLLED_BACK:
            return "The canary's metric was out of bounds, so it is rolled back."
        case CanaryEnding.ADOPTED:
            return "The canary's variant is the primary's now."
        case _:
            return "The canary is no longer declared."


def _declare(spec: InferenceServiceSpec) -> str:
    """What a user has to write, without values: a command line may hold what is not for all."""
    own = spec.canary
    if own is None:
        return "its variant"
    parts = [f"modelRef: {own.model_ref}"] if own.model_ref is not None else []
    if own.model_revision is not None:
        parts.append(f"modelRevision: {own.model_revision}")
    if own.model_digest is not None:
        parts.append(f"modelDigest: {own.model_digest}")
    for name, value in (("image", own.image), ("command", own.command), ("args", own.args)):
        if value is not None:
            parts.append(f"the canary's {name}")
    return ", ".join(parts) + " for the service and leave canary out"


REQUEUE_SOON = 1.0
_ABSENT_PHASES = (CanaryPhase.REMOVING, *ENDED_PHASES)
_PHASES_TO_CONFIRM = (CanaryPhase.SHIFTING, CanaryPhase.DETACHING, CanaryPhase.REMOVING)
_WARNINGS = frozenset(
    {"CanaryNotReady", "WeightNotPossible", "AnalysisFailed", "AnalysisInconclusive"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryDecision:
    """What to render now, and what to remember."""

    state: CanaryState | None
    """None without a canary."""
    split: TrafficSplit
    """How many pods each side has, and the canary's share. A count of None is not written."""
    apply: bool
    """The canary Deployment is to be as declared: create it, or change it."""
    keep: bool
    """A canary Deployment that there is must stay. With `apply` False it is left as it is."""
    promoted: bool
    """The primary is to run the canary's variant (`primary_spec`)."""
    requeue_after: float | None
    facts: tuple[ServiceFact, ...]
    """What has just happened to it."""
    message: str
    """How the canary is doing, in a sentence or two; empty without one."""

    @property
    def weight(self) -> int:
        """The share to render now."""
        return self.split.weight


def advance(
    spec: InferenceServiceSpec,
    state: CanaryState | None,
    observed: CanaryObservation,
    now: datetime,
    *,
    frozen: bool = False,
) -> CanaryDecision:
    """Say what a canary's next move is. Total: every state can meet every world.

    A `frozen` one makes none: it is rendered as it was left.
    """
    transitions = CanaryTransitions(spec=spec, observed=observed, now=now, before=state)
    after = state if frozen else transitions.to_rest()
    return CanaryDecision(
        state=after,
        split=_split(transitions, after),
        apply=after is not None and after.phase in DECLARED_PHASES,
        keep=after is not None and after.phase not in _ABSENT_PHASES,
        promoted=promoted(spec, after),
        requeue_after=None if frozen else _requeue_after(transitions, after),
        facts=_facts(transitions, after),
        message=message(spec, after, transitions.target()) if after else "",
    )


def _split(transitions: CanaryTransitions, state: CanaryState | None) -> TrafficSplit:
    """The division to render now, on the way to the target."""
    target = transitions.target()
    if state is None or state.phase in ENDED_PHASES:
        return TrafficSplit(
            mode=SplitMode.NONE, primary=transitions.declared_replicas(), canary=None, weight=0
        )
    if state.phase not in DECLARED_PHASES:
        mode = SplitMode.GATEWAY if transitions.observed.gateway else SplitMode.REPLICA_RATIO
        return TrafficSplit(
            mode=mode, primary=transitions.declared_replicas(), canary=None, weight=state.weight
        )
    declared, observed = transitions.declared_replicas(), transitions.observed
    primary, canary = target.primary, target.canary
    if target.mode is SplitMode.REPLICA_RATIO and declared is not None:
        # Pods of one side go only as those of the other are ready: the sum never dips.
        primary = declared
        if state.weight:
            primary = max(target.primary or 1, declared - observed.ready)
            if observed.primary_ready < (target.primary or 1):
                canary = max(canary or 1, min(observed.replicas, declared))
    return TrafficSplit(mode=target.mode, primary=primary, canary=canary, weight=state.weight)


def _requeue_after(transitions: CanaryTransitions, state: CanaryState | None) -> float | None:
    if state is None:
        return None
    if state.phase is CanaryPhase.DRAINING:
        return max(transitions.drained_in(state), REQUEUE_SOON)
    if state.phase is CanaryPhase.HANDING_OVER:
        left = HANDOVER_TIMEOUT - seconds_since(state.since, transitions.now)
        return max(left, REQUEUE_SOON) if left > 0 else None
    moved = transitions.before is None or transitions.before.phase is not state.phase
    if moved and state.phase in _PHASES_TO_CONFIRM:
        return REQUEUE_SOON  # it was only just written: look whether it arrived
    left_to_round = analysis.seconds_until_round(transitions.spec, state, transitions.now)
    return None if left_to_round is None else max(left_to_round, REQUEUE_SOON)


def _facts(transitions: CanaryTransitions, after: CanaryState | None) -> tuple[ServiceFact, ...]:
    before = transitions.before
    old = (before.phase, before.reason) if before else None
    new = (after.phase, after.reason) if after else None
    if old == new:
        return ()
    if after is None:
        return (CanaryEnded(ending=before.ending if before else None),)
    text = message(transitions.spec, after, transitions.target())
    alarming = after.reason in _WARNINGS
    return (CanaryMoved(reason=after.reason, alarming=alarming, message=text),)
