"""What is worth telling of a pass, as facts: what was written, and what is said anew. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.core.policy import DecisionAction
from holdfast.core.service import facts
from holdfast.core.service.facts import (
    ConditionReason,
    ConditionReport,
    ConditionReports,
    ServiceFact,
)
from holdfast.core.service.spec import Condition, InferenceServiceStatus
from holdfast.reconcile.service.decisions import ChildDecision
from holdfast.reconcile.service.messages import drift_of
from holdfast.reconcile.service.status_inputs import FALSE, TRUE


def facts_of_writes(children: Sequence[ChildDecision]) -> Iterator[ServiceFact]:
    """What was written: each write is a fact of its own."""
    for each in children:
        if each.error is not None:
            continue
        match each.action:
            case DecisionAction.CREATE if each.deleted:
                yield facts.DriftHealed(drift=drift_of(each), cost=each.cost)
            case DecisionAction.CREATE:
                yield facts.ChildCreated(ref=each.ref)
            case DecisionAction.UPDATE | DecisionAction.UPDATE_AROUND_DRIFT:
                asked = any(field.cost for field in each.pending)
                yield facts.ChildUpdated(ref=each.ref, cost=each.cost if asked else None)
            case DecisionAction.HEAL if each.healed:
                drift = drift_of(each, healed=True)
                yield facts.DriftHealed(drift=drift, cost=each.cost)
            case _:
                pass


def facts_of_transition(
    before: InferenceServiceStatus | None, last: ConditionReports, new: ConditionReports
) -> Iterator[ServiceFact]:
    """What the conditions say that they did not say before.

    `before` is the status until now, and `last` has the conditions as this process found them
    last. After a restart only a condition with another reason counts as new.
    """
    old = {each.type: each for each in before.conditions} if before else {}

    def is_new(report: ConditionReport) -> bool:
        stored = old.get(report.type)
        if stored is None or stored.reason != report.reason:
            return True
        return last.get(report.type, report) != report

    ready, drift, up_to_date = new["Ready"], new["DriftDetected"], new["UpToDate"]
    if ready.reason == ConditionReason.INVALID_SPEC:
        if is_new(ready):
            yield facts.SpecRefused(condition=ready)
    elif ready.reason == ConditionReason.MULTI_NODE_NOT_INSTALLED:
        if is_new(ready):
            yield facts.MultiNodeRefused(condition=ready)
    else:
        yield from _facts_of_readiness(old.get("Ready"), old.get("ScaledToZero"), new)
    cached = new.get("ModelCached")
    if cached is not None and cached.reason in _DOWNLOAD_FACTS and is_new(cached):
        yield _DOWNLOAD_FACTS[cached.reason](condition=cached)
    moved, moved_before = new.get("ModelMoved"), old.get("ModelMoved")
    if moved is not None and moved.status == TRUE and moved.details:
        known = before.model.head if before is not None and before.model is not None else None
        if moved_before is None or moved_before.status != TRUE or known != moved.details[1]:
            yield facts.ModelMoved(condition=moved)
    degraded = new.get("Degraded")
    if degraded is not None and degraded.reason in _POD_FAILURES:
        stored = old.get("Degraded")
        if stored is None or stored.reason != degraded.reason:
            yield _POD_FAILURES[degraded.reason](condition=degraded)
    if drift.status == TRUE and is_new(drift):
        yield _DRIFT_FACTS.get(drift.reason, facts.ChildrenDrifted)(condition=drift)
    suspended, suspended_before = new.get("Suspended"), old.get("Suspended")
    if suspended is not None and suspended.status == TRUE:
        if is_new(suspended):
            yield facts.ServiceSuspended(condition=suspended)
    elif suspended_before is not None and suspended_before.status == TRUE:
        yield facts.ServiceResumed(expired=suspended is not None)
    if up_to_date.reason in _BLOCKING_FACTS and is_new(up_to_date):
        yield _BLOCKING_FACTS[up_to_date.reason](condition=up_to_date)


def _facts_of_readiness(
    old_ready: Condition | None, old_rest: Condition | None, new: ConditionReports
) -> Iterator[ServiceFact]:
    """What is told of a service that may be used, or not any more, and of its rest and waking."""
    ready, rest = new["Ready"], new.get("ScaledToZero")
    was_ready = old_ready is not None and old_ready.status == TRUE
    rested = old_rest is not None and old_rest.status == TRUE
    if rest is not None and rest.status == TRUE and not rested:
        yield facts.ScaledToZero(condition=rest)
        if ready.status == TRUE:
            return  # which says the same
    if rested and rest is not None and rest.status == FALSE:
        starts = rest.reason == ConditionReason.WAKING or new["Available"].status == TRUE
        if starts:  # which one that was asked while it is suspended does not
            yield facts.Woken(condition=ready)
    if ready.status == TRUE and not was_ready:
        yield facts.BecameReady(condition=ready)
    if ready.status == TRUE or not was_ready or ready.reason == ConditionReason.WAKING:
        return
    rolling = ready.reason == ConditionReason.ROLLING_OUT
    yield (facts.RolloutStarted if rolling else facts.BecameUnready)(condition=ready)


_DRIFT_FACTS: Mapping[str, type[facts.ConditionChanged]] = {
    ConditionReason.LEFT: facts.DriftLeft,
    ConditionReason.RUNTIME: facts.RuntimeDrifted,
    ConditionReason.ALTERED: facts.ChildAltered,
    ConditionReason.FIGHTING: facts.ChildrenContested,
}
"""What the drift condition says that is told under a name of its own."""
_BLOCKING_FACTS: Mapping[str, type[facts.ConditionChanged]] = {
    ConditionReason.FOREIGN_OBJECT: facts.ForeignObjectFound,
    ConditionReason.WRITE_REFUSED: facts.WriteRefused,
    ConditionReason.UNKNOWN_FIELDS: facts.UnknownFieldsFound,
    ConditionReason.KEDA_NOT_INSTALLED: facts.ScalerBlocked,
    ConditionReason.NO_PROMETHEUS: facts.ScalerBlocked,
}
"""Why something is not as declared that people have to do something about."""
_DOWNLOAD_FACTS: Mapping[str, type[facts.ConditionChanged]] = {
    ConditionReason.MODEL_COMPLETE: facts.ModelDownloaded,
    ConditionReason.DOWNLOAD_FAILED: facts.ModelDownloadFailed,
}
_POD_FAILURES: Mapping[str, type[facts.ConditionChanged]] = {
    ConditionReason.PODS_FAILING: facts.PodsFailed,
    ConditionReason.PODS_CANNOT_START: facts.PodsFailed,
    ConditionReason.PODS_REFUSED: facts.PodsFailed,
    ConditionReason.PODS_FLAPPING: facts.PodsFlapped,
    ConditionReason.HARDWARE_FAILING: facts.HardwareFailed,
}
