"""Everything that can happen to an InferenceService, as typed facts.

A pass makes them, each once. Kubernetes Events, log lines and metrics are projections of them;
`reconcile/service/messages.py` makes the sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, TypeAlias

from holdfast.core.cost import Cost
from holdfast.core.engine_report import RuntimeDifference
from holdfast.core.facts import Fact
from holdfast.core.object_ref import ObjectRef
from holdfast.core.service.spec import CanaryEnding


class ConditionReason(StrEnum):
    """Reasons of conditions that something depends on, besides being shown."""

    INVALID_SPEC = "InvalidSpec"
    MULTI_NODE_NOT_INSTALLED = "MultiNodeNotInstalled"
    """The cluster has no LeaderWorkerSets."""
    KEDA_NOT_INSTALLED = "KedaNotInstalled"
    NO_PROMETHEUS = "NoPrometheus"
    """KEDA is to scale by metrics of pods, and the operator was told of no Prometheus."""
    ROLLING_OUT = "RollingOut"
    PODS_FAILING = "PodsFailing"
    PODS_CANNOT_START = "PodsCannotStart"
    PODS_FLAPPING = "PodsFlapping"
    """Pods are ready and stop being so, again and again."""
    HARDWARE_FAILING = "HardwareFailing"
    """Pods are lost or fail, and their nodes explain it."""
    PODS_REFUSED = "PodsRefused"
    """The Pod Security admission of the namespace takes no pods as they are."""
    DRIFTED = "Drifted"
    FOREIGN_OBJECT = "ForeignObject"
    WRITE_REFUSED = "WriteRefused"
    UNKNOWN_FIELDS = "UnknownFields"
    """A later version declared something that this one does not know."""
    ALTERED = "AlteredByAdmission"
    FIGHTING = "Fighting"
    """Somebody changes a field each time it is put back."""
    DOWNLOADING = "Downloading"
    DOWNLOAD_FAILED = "DownloadFailed"
    NO_DOWNLOADER = "NoDownloader"
    MODEL_COMPLETE = "Complete"
    HEAD_MOVED = "HeadMoved"
    """The branch of a model is at another commit than the one that is pinned or downloaded."""
    AT_HEAD = "AtHead"
    NOT_RESOLVED = "NotResolved"
    """Nothing says which commit is served."""
    NOT_ON_BRANCH = "NotOnBranch"
    """The pinned commit is not known to be one of the branch."""
    HUB_UNAVAILABLE = "HubUnavailable"
    HUB_REFUSED = "HubRefused"
    HUB_NOT_ALLOWED = "HubNotAllowed"
    """The operator was not told that it may ask the hub that a service names."""
    HEALING = "Healing"
    HEALED = "Healed"
    REFUSED = "Refused"
    PLANNED = "Planned"
    RUNTIME = "RuntimeDrift"
    """Pods serve something else than was declared, while their objects are as they should be."""
    LEFT = "Left"
    SUSPENDED = "Suspended"
    SCALED_TO_ZERO = "ScaledToZero"
    WAKING = "Waking"
    """It was scaled to zero, and none of its new pods has been ready yet."""
    SUSPENSION_ENDED = "Ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterChanges:
    """What one writer changed at one time."""

    writer: str
    at: datetime | None
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildDrift:
    """How one child drifted. Without changes, somebody wiped the record of who owns what."""

    ref: ObjectRef
    deleted: bool = False
    changes: tuple[WriterChanges, ...] = ()
    served: tuple[RuntimeDifference, ...] = ()
    """What a pod serves otherwise than declared, by its engine's own word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionReport:
    """One condition as a pass found it: compared by its values, whatever the sentence says."""

    type: str
    status: str
    reason: str
    message: str = field(compare=False)
    drifts: tuple[ChildDrift, ...] = ()
    details: tuple[object, ...] = ()
    """What else the sentence names."""


ConditionReports: TypeAlias = Mapping[str, ConditionReport]
"""The conditions of one pass, by type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFact(Fact):
    """Something that happened to a service."""

    is_drift: ClassVar[bool] = False
    """True for what counts as a detected drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCreated(ServiceFact):
    """A declared child was not there, and never had been."""

    event = "Created"
    ref: ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildUpdated(ServiceFact):
    """A child was made as declared."""

    event = "Updated"
    ref: ObjectRef
    cost: Cost | None = None
    """What its rollout costs, where that was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildDeleted(ServiceFact):
    """A child that is no longer declared was deleted."""

    event = "Deleted"
    ref: ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftHealed(ServiceFact):
    """A child was put back, or created again after somebody deleted it."""

    event, warning, is_drift = "DriftHealed", True, True
    drift: ChildDrift
    cost: Cost | None = None
    """What that did to pods; None where nobody asked, or nobody can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionChanged(ServiceFact):
    """A condition says something that it did not say before."""

    condition: ConditionReport


@dataclass(frozen=True, slots=True, kw_only=True)
class BecameReady(ConditionChanged):
    """Everything is as declared and answers."""

    event = "Ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class BecameUnready(ConditionChanged):
    """It was ready, and is not any more."""

    event, warning = "NotReady", True


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStarted(ConditionChanged):
    """It is not ready because somebody asked for a rollout, which is no reason to worry."""

    event = "NotReady"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledToZero(ConditionChanged):
    """It has no replicas from now on, since nobody asks."""

    event = "ScaledToZero"


@dataclass(frozen=True, slots=True, kw_only=True)
class Woken(ConditionChanged):
    """It had no replicas, and is to have some again."""

    event = "Woken"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsFailed(ConditionChanged):
    """Pods crash or cannot start; told also of a service that was never ready."""

    event, warning = "PodsFailing", True


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsFlapped(ConditionChanged):
    """Pods that were ready stopped being so, again and again."""

    event, warning = "PodsFlapping", True


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareFailed(ConditionChanged):
    """Pods are lost or fail, and what is wrong with their nodes explains it."""

    event, warning = "HardwareFailing", True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDownloaded(ConditionChanged):
    """The models of a service are complete in its cache."""

    event = "ModelDownloaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDownloadFailed(ConditionChanged):
    """A download ended without a model, and is not tried again by itself."""

    event, warning = "ModelDownloadFailed", True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMoved(ConditionChanged):
    """The branch of a model went on to another commit. Nothing that runs changes by that."""

    event = "ModelMoved"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRefused(ConditionChanged):
    """The spec cannot be served as it stands."""

    event, warning = "InvalidSpec", True


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiNodeRefused(ConditionChanged):
    """Several nodes are declared, and the cluster cannot join any."""

    event, warning = "MultiNodeNotInstalled", True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerBlocked(ConditionChanged):
    """KEDA is to scale the service and cannot."""

    event, warning = "AutoscalingBlocked", True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildrenDrifted(ConditionChanged):
    """Something drifted and is not put back yet."""

    event, warning, is_drift = "DriftDetected", True, True


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeDrifted(ConditionChanged):
    """Pods serve something else than was declared, and it is not put back yet."""

    event, warning, is_drift = "RuntimeDrift", True, True


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftLeft(ConditionChanged):
    """Something drifted, and the policy leaves it."""

    event, warning, is_drift = "DriftLeft", True, True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildAltered(ConditionChanged):
    """The API server stores something differently from what was sent."""

    event, warning, is_drift = "AlteredByAdmission", True, True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildrenContested(ConditionChanged):
    """Somebody changes a field each time it is put back."""

    event, warning = "Fighting", True


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignObjectFound(ConditionChanged):
    """An object of somebody else has the name of a child."""

    event, warning = "ForeignObject", True


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRefused(ConditionChanged):
    """The cluster refused a write of ours."""

    event, warning = "WriteRefused", True


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownFieldsFound(ConditionChanged):
    """A later version declared something that this one does not know."""

    event, warning = "UnknownFields", True


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSuspended(ConditionChanged):
    """From now on nothing is written to the service's objects, or for another reason or time."""

    event = "Suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResumed(ServiceFact):
    """A suspension is over: its end has passed, or it was taken out of the spec."""

    event = "Resumed"
    expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainFailed(ServiceFact):
    """Pods were stopped without waiting for what they were answering: their hook failed."""

    event, warning = "DrainFailed", True
    pods: tuple[str, ...]
    message: str = field(compare=False)
    """What the kubelet says of the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryMoved(ServiceFact):
    """A canary is in another phase, or there for another reason, which names its Event."""

    reason: str
    alarming: bool
    message: str = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryEnded(ServiceFact):
    """A canary is gone."""

    event = "CanaryEnded"
    ending: CanaryEnding | None


ROUTINE_EVENTS = frozenset(each.event for each in (ChildCreated, ChildUpdated, ChildDeleted))
"""When not all can be told, these are left out first: drift, heals, promotions and failures are
what people look for afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A fact in words, worth an event."""

    warning: bool
    reason: str
    message: str
