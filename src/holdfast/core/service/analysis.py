"""Judging a canary by a metric: when to ask, what to ask, and what the answer means.

Called by `canary`, and by the operator, which asks.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from holdfast.core.quantity import parse_duration
from holdfast.core.service.spec import (
    AnalysisSpec,
    CanaryPhase,
    CanaryState,
    InferenceService,
    InferenceServiceSpec,
    format_time,
    seconds_since,
)

DEFAULT_INTERVAL = 60.0
DEFAULT_ROUNDS = 5
MAX_FAILED_ROUNDS = 2
"""So many rounds in a row out of bounds roll a canary back: one may be an accident."""
MAX_INCONCLUSIVE_ROUNDS = 3
"""After so many rounds in a row without a value it is said that there is none."""


def metric_query(service: InferenceService) -> str | None:
    """Write the query of a service's canary, with its placeholders filled in."""
    canary = service.spec.canary
    if canary is None or canary.analysis is None:
        return None
    text = canary.analysis.metric
    for name, value in (
        ("${NAMESPACE}", service.namespace),
        ("${CANARY}", f"{service.name}-canary"),
        ("${NAME}", service.name),
    ):
        text = text.replace(name, value)
    return text


def seconds_until_round(
    spec: InferenceServiceSpec, state: CanaryState | None, now: datetime
) -> float | None:
    """How many seconds until the metric is to be asked; None when it is not to be asked at all."""
    analysis = _analysis_of(spec)
    if analysis is None or state is None or state.phase is not CanaryPhase.RUNNING:
        return None
    if state.weight == 0:
        return None
    last = seconds_since(state.since, now)
    if state.checked is not None:
        last = min(last, seconds_since(state.checked, now))
    return max(0.0, interval_seconds(analysis) - last)


def is_round_due(spec: InferenceServiceSpec, state: CanaryState | None, now: datetime) -> bool:
    """True when a round is due: ask the metric before the next `advance`."""
    return seconds_until_round(spec, state, now) == 0.0


def count_round(
    analysis: AnalysisSpec, state: CanaryState, value: float | None, now: datetime
) -> CanaryState:
    """Count one round.

    Without a value it counts neither way, and once it was said that there is none, the state
    rests: a metric that nobody delivers must not cause a write every interval.
    """
    if value is None:
        if state.inconclusive >= MAX_INCONCLUSIVE_ROUNDS:
            return state
        return replace(state, inconclusive=state.inconclusive + 1, checked=format_time(now))
    if is_within_bounds(analysis, value):
        return replace(
            state, passed=state.passed + 1, failed=0, inconclusive=0, checked=format_time(now)
        )
    return replace(
        state, passed=0, failed=state.failed + 1, inconclusive=0, checked=format_time(now)
    )


def is_within_bounds(analysis: AnalysisSpec, value: float) -> bool:
    """True when a value is within the declared bounds."""
    low = analysis.min is None or value >= analysis.min
    return low and (analysis.max is None or value <= analysis.max)


def interval_seconds(analysis: AnalysisSpec) -> float:
    """Seconds between two rounds."""
    return (analysis.interval and parse_duration(analysis.interval)) or DEFAULT_INTERVAL


def required_rounds(analysis: AnalysisSpec) -> int:
    """How many rounds in a row have to pass."""
    return analysis.rounds or DEFAULT_ROUNDS


def _analysis_of(spec: InferenceServiceSpec) -> AnalysisSpec | None:
    return spec.canary.analysis if spec.canary else None
