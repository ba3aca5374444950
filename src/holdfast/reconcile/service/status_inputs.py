"""What a status is made from: everything that one pass saw and did. Pure.

The conditions read it, each for itself, and are made by `make_report`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from holdfast.core.engine_report import RuntimeDifference
from holdfast.core.errors import HoldfastError
from holdfast.core.object_ref import ObjectRef
from holdfast.core.policy import OnDrift
from holdfast.core.redact import redact
from holdfast.core.service.children import Gateway
from holdfast.core.service.facts import (
    ChildDrift,
    ConditionReason,
    ConditionReport,
    ConditionReports,
)
from holdfast.core.service.idle import IdleDecision
from holdfast.core.service.model_head import ModelHead
from holdfast.core.service.spec import (
    CanaryState,
    Condition,
    InferenceService,
    InferenceServiceStatus,
)
from holdfast.core.service.split import TrafficSplit
from holdfast.core.tree import Fields
from holdfast.reconcile.service.decisions import ChildDecision
from holdfast.reconcile.service.messages import truncate
from holdfast.reconcile.service.observe import (
    NO_POD_PROBLEMS,
    CacheProgress,
    ChildRole,
    PodReport,
    RolloutStatus,
    rollout_of,
)
from holdfast.reconcile.service.runtime import RuntimeFindings

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


@dataclass(frozen=True, kw_only=True)
class StatusInputs:
    """Everything a status is made from."""

    service: InferenceService
    now: datetime
    live: Mapping[ChildRole, Fields]
    """After the writes of this pass."""
    children: Sequence[ChildDecision]
    errors: Mapping[ChildRole, HoldfastError]
    split: TrafficSplit
    gateway: Gateway | None
    other_autoscaler: str | None = None
    scaler_problem: ConditionReason | None = None
    """Why KEDA cannot scale a service that asks for it."""
    pods: PodReport = NO_POD_PROBLEMS
    """What ails them; empty where nobody asked."""
    canary: CanaryState | None = None
    canary_message: str = ""
    """How it is doing, in the words of the move that was made."""
    applied: Mapping[str, str] = field(default_factory=dict)
    """The digest of what was applied last to each child."""
    suspended: bool = False
    """Nothing is written for now, as the spec says."""
    to_remove: tuple[ObjectRef, ...] = ()
    """What is no longer declared, and stays while the service is suspended."""
    idle: IdleDecision | None = None
    """Whether it is to have replicas at all; None where it always has some."""
    healing: bool = False
    """Drift was detected and is about to be put back."""
    unfinished: tuple[ChildDrift, ...] = ()
    """Drift that an earlier pass wrote down to put it back, and did not get to report on."""
    runtime: RuntimeFindings | None = None
    """What pods serve; None where nobody asks."""
    runtime_healed: tuple[RuntimeDifference, ...] = ()
    """What they serve as declared again since the last pass."""
    cache: CacheProgress | None = None
    head: ModelHead | None = None
    """What is known of the branch of the model; None where nobody asks."""

    @property
    def waits_for_model(self) -> bool:
        """True while a Deployment is left alone until its model is there."""
        return self.cache is not None and bool(self.cache.waiting)

    @cached_property
    def primary(self) -> RolloutStatus | None:
        return rollout_of(self.live.get(ChildRole.PRIMARY))

    @property
    def unread(self) -> bool:
        """True when the primary could not be read."""
        return ChildRole.PRIMARY in self.errors and self.primary is None

    @property
    def asleep(self) -> bool:
        """True when it has no replicas because nobody asks."""
        to_rest = self.idle is not None and self.idle.asleep
        return to_rest and self.primary is not None and self.primary.desired == 0

    @property
    def waking(self) -> bool:
        """True from the end of its rest until a pod is ready for the first time."""
        if self.primary is None or not self.primary.desired or self.primary.available:
            return False
        before = condition_of(self.service.status, "ScaledToZero")
        if before is None:
            return False
        return before.status == TRUE or before.reason == ConditionReason.WAKING

    @property
    def policy(self) -> OnDrift:
        return self.service.spec.on_drift or OnDrift.RECONCILE

    @cached_property
    def left(self) -> list[ChildDecision]:
        """The children whose drift stays on purpose."""
        return [each for each in self.children if each.leaves_drift]

    @property
    def served_otherwise(self) -> tuple[RuntimeDifference, ...]:
        """What pods serve otherwise than declared, and goes on to be served so."""
        found = self.runtime
        if found is None or (self.policy is OnDrift.RECONCILE and not found.obstacles):
            return ()
        return found.differences


def condition_of(status: InferenceServiceStatus | None, type: str) -> Condition | None:
    """Return the stored condition of a type."""
    stored = status.conditions if status else ()
    return next((each for each in stored if each.type == type), None)


def make_report(
    type: str, status: str, reason: str, message: str, details: Iterable[object] = ()
) -> ConditionReport:
    """Make one condition; `details` are what the message names, by which it is compared."""
    return ConditionReport(
        type=type, status=status, reason=reason, message=message, details=tuple(details)
    )


def clean_text(text: str) -> str:
    """Take line ends and secrets out of what somebody else said."""
    return redact(" ".join(text.split()))


def describe_error(error: HoldfastError) -> str:
    """Say an error in one line of a condition."""
    return truncate(clean_text(str(error)))


def count_pods(count: int) -> str:
    """Say how many replicas there are that do what follows."""
    return f"{count} replicas are" if count > 1 else f"{count or 'No'} replica is"


def by_type(*reports: ConditionReport) -> ConditionReports:
    """Key conditions by their types, in order."""
    return {each.type: each for each in reports}
