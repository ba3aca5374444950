"""Says in words how a canary is doing, for a condition and for events. Called by `canary`."""

from __future__ import annotations

from holdfast.core.service import analysis
from holdfast.core.service.canary_state import CanaryEnding, CanaryPhase, CanaryState
from holdfast.core.service.spec import InferenceServiceSpec
from holdfast.core.service.split import Split


def message(spec: InferenceServiceSpec, state: CanaryState, target: Split) -> str:
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
                f"{_ending(state)} It gets no requests until its model, image, command or "
                "arguments change, or it is taken out and declared again."
            )


def _starting(spec: InferenceServiceSpec, state: CanaryState, target: Split) -> str:
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
    if state.inconclusive >= analysis.INCONCLUSIVE:
        return (
            f" Its metric had no value {state.inconclusive} times in a row, so nothing is decided. "
            "Check canary.analysis.metric and that Prometheus is reachable."
        )
    text = f" {state.passed} of {analysis.rounds(given)} rounds passed"
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
    for name, value in (("image", own.image), ("command", own.command), ("args", own.args)):
        if value is not None:
            parts.append(f"the canary's {name}")
    return ", ".join(parts) + " for the service and leave canary out"
