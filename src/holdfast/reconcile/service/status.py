"""Makes the status of a service from what one pass saw and did, and what a pass ends with. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from holdfast.core.backends import POD_PORT
from holdfast.core.errors import InvalidSpec
from holdfast.core.policy import OnDrift
from holdfast.core.service.children import PRIMARY, Gateway, selector
from holdfast.core.service.facts import (
    ConditionReason,
    ConditionReport,
    ConditionReports,
    Note,
    ServiceFact,
)
from holdfast.core.service.pod_health import hardware_failures
from holdfast.core.service.spec import (
    AppliedChild,
    Condition,
    InferenceService,
    InferenceServiceStatus,
)
from holdfast.core.service.split import SplitMode
from holdfast.reconcile.service.conditions import report_conditions
from holdfast.reconcile.service.decisions import make_dry_run_plan
from holdfast.reconcile.service.drift_conditions import cost_of_drift, count_drift
from holdfast.reconcile.service.messages import note_of, plan_lines, runtime_plan_lines, truncate
from holdfast.reconcile.service.model_status import make_model_status
from holdfast.reconcile.service.status_inputs import (
    FALSE,
    TRUE,
    UNKNOWN,
    StatusInputs,
    by_type,
    make_report,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """The outcome of a pass."""

    status: InferenceServiceStatus
    requeue_after: float | None = None
    """Seconds until time alone may change something; None when only an event can."""
    facts: tuple[ServiceFact, ...] = ()

    @property
    def notes(self) -> tuple[Note, ...]:
        """What happened, in words."""
        return tuple(map(note_of, self.facts))


def make_status(inputs: StatusInputs) -> tuple[InferenceServiceStatus, ConditionReports]:
    """Describe a service that is valid: its status, and the conditions of it as values."""
    service = inputs.service
    old = service.status or InferenceServiceStatus()
    primary, unread = inputs.primary, inputs.unread
    reports = report_conditions(inputs)
    ready, split = reports["Ready"], inputs.split
    status = InferenceServiceStatus(
        ready=ready.status == TRUE,
        replicas=old.replicas if unread else primary.desired if primary else 0,
        ready_replicas=old.ready_replicas if unread else primary.ready if primary else 0,
        message=ready.message,
        selector=",".join(
            f"{key}={value}" for key, value in selector(service.name, PRIMARY).items()
        ),
        observed_generation=service.generation or None,
        canary_weight=split.weight if split.mode is not SplitMode.NONE else None,
        split_mode=str(split.mode),
        drift=count_drift(inputs),
        drift_cost=cost_of_drift(inputs),
        runtime=(inputs.runtime.differences or None) if inputs.runtime else None,
        hardware=hardware_failures(inputs.pods.problems) or None,
        url=_url(service, inputs.gateway),
        model=make_model_status(inputs),
        plan=_plan(inputs) or None,
        canary=inputs.canary,
        applied=tuple(
            AppliedChild(child=child, digest=digest)
            for child, digest in sorted(inputs.applied.items())
        )
        or None,
        conditions=_date_conditions(reports.values(), service, inputs.now),
    )
    return status, reports


def _plan(inputs: StatusInputs) -> tuple[str, ...]:
    plan = plan_lines(make_dry_run_plan(inputs.children))
    if inputs.policy is OnDrift.DRY_RUN:
        plan += runtime_plan_lines(inputs.served_otherwise)
    return plan


def make_refused_status(
    service: InferenceService, error: InvalidSpec, now: datetime
) -> tuple[InferenceServiceStatus, ConditionReports]:
    """Describe a service that cannot be served as it stands. What runs, goes on running."""
    message = truncate(" ".join(str(problem) for problem in error.problems) or str(error))
    details = (error.happened, *error.problems)
    return _make_unserved_status(service, ConditionReason.INVALID_SPEC, message, now, details)


def _make_unserved_status(
    service: InferenceService,
    reason: ConditionReason,
    message: str,
    now: datetime,
    details: Iterable[object] = (),
) -> tuple[InferenceServiceStatus, ConditionReports]:
    old = service.status or InferenceServiceStatus()
    untouched = "The spec was refused, so nothing was changed."
    unseen = "The spec was refused, so nobody looked."
    reports = by_type(
        make_report("Ready", FALSE, reason, message, details),
        make_report("UpToDate", FALSE, reason, untouched),
        make_report("DriftDetected", UNKNOWN, reason, unseen),
    )
    kept = tuple(each for each in old.conditions if each.type not in reports)
    status = replace(
        old,
        ready=False,
        message=message,
        drift=None,
        drift_cost=None,
        observed_generation=service.generation or None,
        conditions=_date_conditions((*reports.values(), *kept), service, now),
    )
    return status, reports


def make_missing_kind_status(
    service: InferenceService, now: datetime
) -> tuple[InferenceServiceStatus, ConditionReports]:
    """Describe a service of several nodes in a cluster that has no LeaderWorkerSets."""
    message = (
        f"nodes: {service.spec.nodes} needs LeaderWorkerSets (leaderworkerset.x-k8s.io/v1), and "
        "the cluster does not serve them. Nothing was created or changed. Install LeaderWorkerSet "
        "0.9 or later, or leave nodes out."
    )
    return _make_unserved_status(service, ConditionReason.MULTI_NODE_NOT_INSTALLED, message, now)


def _date_conditions(
    made: Iterable[ConditionReport | Condition], service: InferenceService, now: datetime
) -> tuple[Condition, ...]:
    """Date conditions: the time moves only when the status does."""
    old = {each.type: each for each in service.status.conditions} if service.status else {}
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    dated = []
    for each in made:
        before = old.get(each.type)
        kept = before.last_transition_time if before and before.status == each.status else None
        dated.append(
            Condition(
                type=each.type,
                status=each.status,
                reason=each.reason,
                message=each.message,
                observed_generation=service.generation or None,
                last_transition_time=kept or stamp,
            )
        )
    return tuple(dated)


def _url(service: InferenceService, gateway: Gateway | None) -> str:
    if gateway is None:
        return f"http://{service.name}-svc.{service.namespace}.svc:{POD_PORT}"
    scheme = "https" if "https" in (gateway.section or "") else "http"
    return f"{scheme}://{service.name}.{service.namespace}.{gateway.domain}"
