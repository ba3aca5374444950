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

from holdfast.core.cluster_parts import DeviceClaimSpec as DeviceClaimSpec
from holdfast.core.cluster_parts import PortProtocol as PortProtocol
from holdfast.core.cluster_parts import Scaler as Scaler
from holdfast.core.cluster_parts import ServicePortSpec as ServicePortSpec
from holdfast.core.cluster_parts import ServiceSpec as ServiceSpec
from holdfast.core.cluster_parts import ServiceType as ServiceType
from holdfast.core.cost import Cost
from holdfast.core.custom_resource import API_VERSION as API_VERSION
from holdfast.core.custom_resource import (
    Argument,
    Count,
    CountOrNone,
    Duration,
    Moment,
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
from holdfast.core.engine_report import RuntimeDifference
from holdfast.core.lora import LoraAdapter
from holdfast.core.model import DIGEST_PATTERN, REVISION_PATTERN
from holdfast.core.node_health import HardwareFailure
from holdfast.core.policy import OnDrift
from holdfast.core.quantity import parse_moment
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
    """The primary carries what `canary.primary_spec(spec, state)` declares, its rollout is
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
Nodes = Annotated[
    int, ValueFormat(description="a whole number from 1 to 64", minimum=1, maximum=64)
]
HttpPath = Annotated[str, ValueFormat(description="a path that starts with '/'", pattern=r"^/\S*$")]
MetricName = Annotated[
    str,
    ValueFormat(
        description="the name of a metric", pattern=r"^[A-Za-z_][A-Za-z0-9_:.-]*$", max_length=200
    ),
]
PolicyValue = Annotated[
    int, ValueFormat(description="a whole number from 1 to 10000", minimum=1, maximum=10_000)
]
PolicyPeriod = Annotated[
    int, ValueFormat(description="from 1 to 1800 seconds", minimum=1, maximum=1800)
]
StabilizationWindow = Annotated[
    int, ValueFormat(description="from 0 to 3600 seconds", minimum=0, maximum=3600)
]
MountPath = Annotated[
    str,
    ValueFormat(
        description="an absolute path below '/', without a colon", pattern=r"^/[^\s:]*[^\s:/]$"
    ),
]
Revision = Annotated[
    str,
    ValueFormat(
        description="a branch, a tag or a commit", pattern=REVISION_PATTERN, max_length=200
    ),
]
FilesDigest = Annotated[
    str, ValueFormat(description="sha256: and 64 digits of 0-9a-f", pattern=DIGEST_PATTERN)
]
Version = Annotated[
    str,
    ValueFormat(description="a version such as 0.32.0", pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]*$"),
]


DeviceCount = Annotated[
    int, ValueFormat(description="a whole number from 1 to 1000", minimum=1, maximum=1000)
]
WHOLE_GPUS = frozenset(
    {
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "nvidia.com/gpu",
    }
)
"""Resources that stand for whole accelerators, over which a model may be spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSpec:
    """What one replica needs. `gpu_memory` is what each of its GPUs must have at the least."""

    cpu: Quantity | None = None
    memory: Quantity | None = None
    gpu_memory: Quantity | None = None
    gpu: Gpus | None = None
    """Left unset, it is 1 when `gpu_memory` is given."""
    accelerators: Mapping[str, DeviceCount] | None = None
    """How many of any extended resource, by its name: `amd.com/gpu: 1`."""
    claims: tuple[DeviceClaimSpec, ...] | None = None

    @property
    def needs_devices(self) -> bool:
        """True when a replica needs something of which a spare one is not counted on."""
        return bool(self.gpus or self.accelerators or self.claims)

    @property
    def whole_gpus(self) -> int:
        """How many accelerators a model can be spread over, of any maker."""
        others = self.accelerators or {}
        return self.gpus + sum(others[name] for name in WHOLE_GPUS & others.keys())

    @property
    def gpus(self) -> int:
        """How many of NVIDIA's GPUs a replica asks for."""
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
    model_revision: Revision | None = None
    """Left unset, it is the primary's where the model is."""
    model_digest: FilesDigest | None = None
    image: Image | None = None
    command: Command | None = None
    args: tuple[Argument, ...] | None = None
    replicas: Count | None = None
    env: Mapping[str, str] | None = None
    """Beside the primary's variables, and instead of those of the same name."""
    resources: ResourceSpec | None = None
    """Each field that is given takes the place of the primary's."""
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


class ScalingPreset(StrEnum):
    """What an engine is usually scaled by; its metric is in the table of backends."""

    QUEUE = "queue"
    """Requests that wait for their turn."""
    KV_CACHE = "kv-cache"
    """The share of the memory for running requests that is taken."""


class ScalingPolicyType(StrEnum):
    """What a policy counts in."""

    PODS = "Pods"
    PERCENT = "Percent"


class SelectPolicy(StrEnum):
    """Which of several policies counts; `Disabled` keeps from scaling that way."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingMetricSpec:
    """One of several metrics; the one that asks for most pods counts."""

    metric: MetricName
    target: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicySpec:
    """How many pods, or percent of them, may come or go within a time."""

    type: ScalingPolicyType
    value: PolicyValue
    period_seconds: PolicyPeriod


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRulesSpec:
    """How fast the number changes one way."""

    stabilization_window_seconds: StabilizationWindow | None = None
    select_policy: SelectPolicy | None = None
    policies: ScalingPolicies | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviorSpec:
    """How fast the number changes, as autoscaling/v2 has it."""

    scale_up: ScalingRulesSpec | None = None
    scale_down: ScalingRulesSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalingSpec:
    """What the autoscaler looks at: `cpu`, `memory`, or metrics that the pods report."""

    metric: MetricName | None = None
    target: float | None = None
    """Percent of the request for cpu and memory, the value per pod for any other metric."""
    metrics: ScalingMetrics | None = None
    preset: ScalingPreset | None = None
    behavior: BehaviorSpec | None = None
    scaler: Scaler | None = None
    """Left unset, it is a HorizontalPodAutoscaler of Kubernetes' own."""
    idle_after: Duration | None = None
    """With minReplicas 0: how long without a request until there are no replicas; 10m if unset."""

    def __post_init__(self) -> None:
        _durations_as_text(self, "idle_after")


ScalingMetrics = Annotated[
    tuple[ScalingMetricSpec, ...], ValueFormat(description="a list of at least one", minimum=1)
]
ScalingPolicies = Annotated[
    tuple[ScalingPolicySpec, ...], ValueFormat(description="a list of at least one", minimum=1)
]


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
class PodMetadataSpec:
    """Labels and annotations of the pods, beside those that Holdfast sets."""

    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplateSpec:
    """What the pods have beyond the fields of the service: put over the rendered template.

    `spec` is a part of a PodSpec, merged as `kubectl patch` would; see `pod_overlay`.
    """

    metadata: PodMetadataSpec | None = None
    spec: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendSpec:
    """Write nothing to the children for a while; what drifts is still observed and told."""

    reason: Text
    """For people: why nobody should wonder that nothing happens."""
    until: Moment | None = None
    """When it ends by itself; left unset, when it is taken out of the spec."""

    @property
    def ends(self) -> datetime | None:
        """The end as a time."""
        return parse_moment(self.until)

    def is_over(self, now: datetime) -> bool:
        """True once the end has passed."""
        return self.ends is not None and self.ends <= now


class AccessMode(StrEnum):
    """Which nodes may mount a claim at a time, in Kubernetes' words."""

    ONCE = "ReadWriteOnce"
    """One node: all pods of the service have to run on it."""
    MANY = "ReadWriteMany"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSpec:
    """A claim of the service's own, into which each model is downloaded once for all pods."""

    size: Quantity
    storage_class: ObjectName | None = None
    """Left unset, the cluster's default."""
    access_mode: AccessMode | None = None
    """Left unset, one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceServiceSpec:
    """What is to be served, and how."""

    model_ref: Text
    model_revision: Revision | None = None
    """Of a repository: a commit pins it, a branch or a tag does not."""
    model_digest: FilesDigest | None = None
    """Of the files that the cache holds; another content is not served. With Ollama, what pods are
    to say that they have; another is drift."""
    cache: CacheSpec | None = None
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
    adapters: tuple[LoraAdapter, ...] | None = None
    """All LoRA adapters that are to be loaded: an empty list says none. Left unset, they are not
    yours, and neither loaded nor compared."""
    pod_template: PodTemplateSpec | None = None
    service: ServiceSpec | None = None
    on_drift: OnDrift | None = None
    nodes: Nodes | None = None
    """How many pods, each on a node with the declared resources, make up one replica."""
    suspend: SuspendSpec | None = None

    @property
    def autoscaled(self) -> bool:
        """True when the number is chosen within bounds. Both 0 is the reference's "no"."""
        return self.min_replicas is not None and bool(self.max_replicas)

    @property
    def scales_to_zero(self) -> bool:
        """True when there may be no replicas for as long as nobody asks."""
        return self.autoscaled and self.min_replicas == 0

    @property
    def scales_by_load(self) -> bool:
        """True when an autoscaler has a choice beside none at all."""
        return self.autoscaled and not (self.scales_to_zero and self.max_replicas == 1)

    @property
    def multi_node(self) -> bool:
        """True when a replica is more than one pod."""
        return (self.nodes or 1) > 1

    def suspended(self, now: datetime) -> bool:
        """True while nothing is to be written."""
        return self.suspend is not None and not self.suspend.is_over(now)

    @property
    def canary_model_digest(self) -> str | None:
        """What the canary's files have to be: the primary's where it is the same commit."""
        own = self.canary
        if own is None or own.model_digest is not None:
            return own.model_digest if own else None
        same = own.model_ref in (None, self.model_ref) and own.model_revision in (
            None,
            self.model_revision,
        )
        return self.model_digest if same else None

    @property
    def canary_revision(self) -> str | None:
        """The revision of the canary's model: the primary's is of no use to another model."""
        own = self.canary
        if own is None or own.model_revision is not None:
            return own.model_revision if own else None
        return self.model_revision if own.model_ref in (None, self.model_ref) else None

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
class ModelStatus:
    """What the primary's model was resolved to. What is not known is left out."""

    ref: str
    revision: str | None = None
    """As it is declared."""
    commit: str | None = None
    digest: str | None = None
    """Of the files that the cache holds, of the image, or of what Ollama says that it has."""
    unknown: str | None = None
    """Why neither of the two is known."""
    branch: str | None = None
    """The branch or tag that its hub is asked about."""
    head: str | None = None
    """The commit that this was at when the hub told last."""
    head_digest: str | None = None
    """Of the files of that commit, where a digest is declared and the hub's list tells it."""


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
    drift_cost: Cost | None = None
    """What it costs to put back what drifted on objects and stays so; None where nothing does, or
    nobody can tell."""
    runtime: tuple[RuntimeDifference, ...] | None = None
    """What pods serve otherwise than it was declared, by their engines' own word."""
    hardware: tuple[HardwareFailure, ...] | None = None
    """Pods that are lost or fail, where their hardware explains it."""
    url: str | None = None
    model: ModelStatus | None = None
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
