"""The custom resource `InferenceService`, as values.

The operator reconciles these, others embed them. The reference's names are kept (`model_ref`,
`min_replicas`, `health_check`), and beside them stands what a real pod needs. A field left unset
is "not mine", as everywhere in Holdfast: it is neither written nor compared.
How a value must look is said once, in its type; the checks here and the schema that the API
server enforces are both read off it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from holdfast.core.custom_resource import API_VERSION as API_VERSION
from holdfast.core.custom_resource import (
    Argument,
    Count,
    CountOrNone,
    Duration,
    ObjectName,
    Percent,
    Quantity,
    Slug,
    Text,
    ValueFormat,
    duration_text,
    raise_problems,
)
from holdfast.core.custom_resource import Condition as Condition
from holdfast.core.policy import OnDrift
from holdfast.core.workload import SecretRef, TaskType


class CanaryPhase(StrEnum):
    """Where a canary is on its way. Every move between two phases is safe to repeat."""

    STARTING = "Starting"
    """It has no share: not ready yet, not ready any more, or given none."""
    SHIFTING = "Shifting"
    """Its share was written; whoever routes has not taken it over yet."""
    RUNNING = "Running"
    """It gets its share, and is judged where a metric was given."""
    HANDING_OVER = "HandingOver"
    """It keeps its share until the primary can take all requests."""
    DETACHING = "Detaching"
    """Its share was taken away; whoever routes has not taken that over yet."""
    DRAINING = "Draining"
    """Nothing new comes in; running requests may end."""
    REMOVING = "Removing"
    PROMOTED = "Promoted"
    """It passed: the primary runs its variant, though another one is declared."""
    ROLLED_BACK = "RolledBack"
    """It failed, and stays away until its variant changes."""


class CanaryEnding(StrEnum):
    """Why a canary is on its way out."""

    REMOVED = "Removed"
    """It is no longer declared, or another one is."""
    ADOPTED = "Adopted"
    """Its variant was declared as the primary's."""
    PROMOTED = "Promoted"
    """Its metric stayed within bounds."""
    ROLLED_BACK = "RolledBack"
    """Its metric did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryState:
    """One canary, remembered. Times are RFC 3339; an unreadable one counts as just now."""

    phase: CanaryPhase
    digest: str = ""
    """Of the variant that this is about."""
    base: str = ""
    """Of the primary's declared variant when this began; a promotion holds as long as it does."""
    since: str = ""
    """When the phase began."""
    weight: int = 0
    """The share that is written now, in percent."""
    declared: int = 0
    """The declared weight that the rounds below are about."""
    served: bool = False
    """It has had a share, so there may be requests to wait for."""
    ending: CanaryEnding | None = None
    passed: int = 0
    failed: int = 0
    inconclusive: int = 0
    """Rounds in a row: within bounds, out of them, without a value."""
    checked: str | None = None
    """When the last round was."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryObservation:
    """What was observed, before anything of this pass was written."""

    gateway: bool
    """A route divides the requests; else the ratio of pods does."""
    exists: bool = False
    """There is a canary Deployment."""
    current: bool = False
    """It carries what is declared, and all its pods run that."""
    replicas: int = 0
    ready: int = 0
    routed: int = 0
    """The canary's share on the live route (`route_weight`), or what the selector of the front
    Service lets through (`selector_weight`)."""
    accepted: bool = True
    """Every parent took over the live route (`route_accepted`). Always so without a gateway."""
    primary_replicas: int | None = None
    primary_ready: int = 0
    primary_current: bool = False
    """The primary carries what `variant.primary_spec(spec, state)` declares, its rollout is
    complete and all its pods are ready. `state` is the one that goes into `advance`."""
    asked: bool = False
    """The metric was asked, because `analysis.due` said so."""
    metric: float | None = None


def format_time(now: datetime) -> str:
    """Write a time as the state keeps it."""
    return now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_since(text: str | None, now: datetime) -> float:
    """How long ago that was. A time that lies ahead, after the clock was set, is just now."""
    try:
        then = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    if then.tzinfo is None:
        return 0.0
    return max(0.0, (now - then).total_seconds())


KIND = "InferenceService"
PLURAL = "inferenceservices"
MAX_NAME = 40
"""`NAME-primary-` and the hashes of a ReplicaSet and a pod have to fit into 63 characters."""


Image = Annotated[
    str,
    ValueFormat(description="the name of an image", pattern=r"^[^\s@:/][^\s]*$", max_length=500),
]
Command = Annotated[
    tuple[Argument, ...], ValueFormat(description="a list of at least one", minimum=1)
]
Seconds = Annotated[
    str,
    ValueFormat(
        description="a duration in whole seconds such as 10s or 1m30s, "
        "which is what probes can count",
        pattern=r"^([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?$",
        numeric=True,
        nanoseconds=True,
        minimum=1_000_000_000,
        max_length=40,
    ),
]
Gpus = Annotated[int, ValueFormat(description="a whole number from 0 to 64", minimum=0, maximum=64)]
HttpPath = Annotated[str, ValueFormat(description="a path that starts with '/'", pattern=r"^/\S*$")]
MetricName = Annotated[
    str,
    ValueFormat(
        description="the name of a metric", pattern=r"^[A-Za-z_][A-Za-z0-9_:.-]*$", max_length=200
    ),
]
MountPath = Annotated[
    str,
    ValueFormat(
        description="an absolute path below '/', without a colon", pattern=r"^/[^\s:]*[^\s:/]$"
    ),
]
Version = Annotated[
    str,
    ValueFormat(description="a version such as 0.32.0", pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]*$"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSpec:
    """What one replica needs. `gpu_memory` is what each of its GPUs must have at the least."""

    cpu: Quantity | None = None
    memory: Quantity | None = None
    gpu_memory: Quantity | None = None
    gpu: Gpus | None = None
    """Left unset, it is 1 when `gpu_memory` is given."""

    @property
    def gpus(self) -> int:
        """How many GPUs a replica asks for."""
        if self.gpu is not None:
            return self.gpu
        return 1 if self.gpu_memory is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisSpec:
    """Judge a canary by a metric."""

    metric: Text
    max: float | None = None
    min: float | None = None
    interval: Duration | None = None
    rounds: Count | None = None

    def __post_init__(self) -> None:
        _durations_as_text(self, "interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySpec:
    """A second group that gets `weight` percent of the requests while it is ready."""

    weight: Percent
    model_ref: Text | None = None
    image: Image | None = None
    command: Command | None = None
    args: tuple[Argument, ...] | None = None
    replicas: Count | None = None
    analysis: AnalysisSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheckSpec:
    """How a replica is judged. `startup` is the budget for loading the model.

    Numbers are seconds here, and nanoseconds on the wire.
    """

    path: HttpPath | None = None
    interval: Seconds | None = None
    timeout: Seconds | None = None
    startup: Seconds | None = None

    def __post_init__(self) -> None:
        _durations_as_text(self, "interval", "timeout", "startup")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalingSpec:
    """What the autoscaler looks at: `cpu`, `memory`, or a metric that the pods report."""

    metric: MetricName | None = None
    target: float | None = None
    """Percent of the request for cpu and memory, the value per pod for any other metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """Limits of a change: how many extra pods, and how long requests may take to end."""

    max_surge: Count | None = None
    drain_timeout: Duration | None = None

    def __post_init__(self) -> None:
        _durations_as_text(self, "drain_timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingSpec:
    """Where pods may run, handed to Kubernetes as it stands."""

    node_selector: Mapping[str, str] | None = None
    tolerations: tuple[Mapping[str, object], ...] | None = None
    affinity: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVolumeSpec:
    """A volume for weights: an existing claim, mounted where the backend looks for models.

    All replicas share it, so a claim for several of them has to allow many readers.
    """

    claim: ObjectName
    path: MountPath
    read_only: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceServiceSpec:
    """What is to be served, and how."""

    model_ref: Text
    backend: Slug | None = None
    """Left unset, it is vLLM."""
    display_name: Text | None = None
    description: Argument | None = None
    task_type: TaskType | None = None
    image: Image | None = None
    command: Command | None = None
    args: tuple[Argument, ...] | None = None
    env: Mapping[str, str] | None = None
    secrets: Mapping[str, SecretRef] | None = None
    vllm_version: Version | None = None
    replicas: Count | None = None
    """With bounds for an autoscaler, only the number to start with."""
    min_replicas: CountOrNone | None = None
    max_replicas: CountOrNone | None = None
    autoscaling: AutoscalingSpec | None = None
    resources: ResourceSpec | None = None
    canary: CanarySpec | None = None
    health_check: HealthCheckSpec | None = None
    rollout: RolloutSpec | None = None
    scheduling: SchedulingSpec | None = None
    image_pull_secrets: tuple[ObjectName, ...] | None = None
    """Names of Secrets in the same namespace."""
    service_account_name: ObjectName | None = None
    """For identities that a cloud grants; no token of the cluster's own is mounted."""
    model_volume: ModelVolumeSpec | None = None
    on_drift: OnDrift | None = None

    @property
    def autoscaled(self) -> bool:
        """True when an autoscaler chooses the number. Both bounds 0 is the reference's "no"."""
        return bool(self.min_replicas and self.max_replicas)

    def validate(self) -> None:
        """Raise InvalidSpec with everything that is wrong, unless nothing is."""
        from holdfast.core.service.validation import (
            spec_problems,  # it needs the types, not vice versa
        )

        raise_problems(KIND, spec_problems(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedChild:
    """What the operator applied last to one child, by the digest of its declaration."""

    child: str
    """Kind and name, as `Deployment/bot-primary`."""
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceServiceStatus:
    """What the operator says. `ready`, `replicas` and `message` are the summary."""

    ready: bool = False
    replicas: int = 0
    ready_replicas: int | None = None
    message: str = ""
    selector: str | None = None
    """Of the primary's pods, for the scale subresource."""
    observed_generation: int | None = None
    canary_weight: int | None = None
    """The share that the canary really gets, which is not always the declared one."""
    split_mode: str | None = None
    drift: str | None = None
    """How many fields are not as declared, in words."""
    url: str | None = None
    plan: tuple[str, ...] | None = None
    """What would be put back, where the policy is to write it down only."""
    canary: CanaryState | None = None
    """How far the canary is. The operator's own memory, not an interface."""
    applied: tuple[AppliedChild, ...] | None = None
    """What the operator applied last, by which it tells an edit of a child from a change that was
    declared, whatever the child itself says. Its own memory, not an interface."""
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceService:
    """The whole object."""

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    spec: InferenceServiceSpec
    status: InferenceServiceStatus | None = None
    unknown: tuple[str, ...] = ()
    """Fields of the stored spec that this version does not know, so they are not in `spec`."""

    def validate(self) -> None:
        """Raise InvalidSpec with everything that is wrong, the name included."""
        from holdfast.core.service.validation import name_problems, spec_problems

        raise_problems(KIND, [*name_problems(self.name), *spec_problems(self.spec)])


def _durations_as_text(value: object, *names: str) -> None:
    for name in names:
        given: object = getattr(value, name)
        if isinstance(given, int | float) and not isinstance(given, bool):
            object.__setattr__(value, name, duration_text(given))
