"""What a user declares, checked when built, and placed in a project.

One list of fields, the same in Python and in YAML. A field left unset means "not mine":
it is never compared and never written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import wraps
from typing import TypeVar

from holdfast.core import check
from holdfast.core.backends import Backend
from holdfast.core.cluster_parts import DeviceClaimSpec, Scaler, ServiceSpec
from holdfast.core.custom_resource import ValueType, schema_fields
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.lora import LoraAdapter
from holdfast.core.names import MAX_SLUG, WorkloadId, canonical_slug
from holdfast.core.redact import redact
from holdfast.core.rules import missing_problem, shape_problem, unknown_problem
from holdfast.core.scan import safe_name
from holdfast.core.tree import Fields, Tree, digest, plain_tree


class TaskType(StrEnum):
    """What the model does; a control plane takes `text2text` when it is left unset."""

    TEXT2TEXT = "text2text"
    EMBEDDING = "embedding"
    TEXT2IMAGE = "text2image"
    TEXT2VIDEO = "text2video"
    TEXT2AUDIO = "text2audio"
    IMAGE2IMAGE = "image2image"
    IMAGE2VIDEO = "image2video"
    AUDIO2TEXT = "audio2text"
    OMNI = "omni"
    RERANKER = "reranker"
    CLASSIFICATION = "classification"
    REWARD = "reward"
    FORECAST = "forecast"


class ExecutionPolicy(StrEnum):
    """How many run and when; details ride in `execution_policy_config`."""

    FIXED = "fixed"
    SCHEDULED = "scheduled"
    AUTOSCALING = "autoscaling"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """Where a secret is kept. The value itself never enters a declaration."""

    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one replica needs. Quantities as Kubernetes writes them."""

    cpu: str | None = None
    memory: str | None = None
    gpu: int | None = None
    gpu_memory: str | None = None
    accelerators: Mapping[str, int] | None = None
    """How many of any other accelerator, by the name of its resource: `amd.com/gpu: 1`."""
    claims: tuple[DeviceClaimSpec, ...] | None = None
    """For Kubernetes: devices by dynamic resource allocation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """Let an autoscaler choose the number of replicas, within bounds."""

    min: int
    max: int
    metric: str | None = None
    target: float | None = None
    metrics: tuple[ScalingMetric, ...] | None = None
    """Several, instead of `metric`; the one that asks for most replicas counts."""
    preset: str | None = None
    """`queue` or `kv-cache`: the metric of the backend for it, with its usual target."""
    behavior: Mapping[str, Tree] | None = None
    """How fast the number changes, as autoscaling/v2 of Kubernetes writes it."""
    idle_after: str | float | None = None
    """With `min=0`: how long without a request until there are no replicas; 10 minutes if unset."""
    scaler: Scaler | str | None = None
    """For Kubernetes: `hpa`, which it is when left unset, or `keda`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingMetric:
    """One of several metrics to scale by."""

    metric: str
    target: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Judge a canary by a metric: promote when it stays within bounds, else roll back."""

    metric: str
    max: float | None = None
    min: float | None = None
    interval: str | float | None = None
    rounds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A second group that gets `weight` percent of the requests once it is ready.

    Declared as a whole. To end a canary, declare `Canary(weight=0)` and nothing else: leaving
    the field out of a spec would only say that it is not yours.
    """

    weight: int
    model: str | None = None
    model_revision: str | None = None
    model_digest: str | None = None
    command: str | None = None
    image: str | None = None
    replicas: int | None = None
    env: Mapping[str, str] | None = None
    """Beside the primary's variables, and instead of those of the same name."""
    resources: Resources | None = None
    """Each field that is given takes the place of the primary's."""
    analysis: Analysis | None = None

    @property
    def is_none(self) -> bool:
        """True when nothing sets it apart from the primary: there is no canary."""
        own = (
            self.model,
            self.model_revision,
            self.model_digest,
            self.command,
            self.image,
            self.env,
            self.resources,
        )
        return all(each is None for each in own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Have models downloaded once for all replicas, into a volume of the workload's own."""

    size: str
    storage_class: str | None = None
    access_mode: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Limits of a change: how many extra replicas, and how long requests may take to end."""

    max_surge: int | None = None
    drain_timeout: str | float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a replica is judged. `startup` is the budget for loading the model."""

    path: str | None = None
    interval: str | float | None = None
    timeout: str | float | None = None
    startup: str | float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """Have a cluster's operator write nothing to the workload's objects for a while.

    Declared as a whole. Leaving the field out of a spec would only say that it is not yours: to
    end a suspension, declare it with an `until` that has passed.
    """

    reason: str
    until: str | None = None
    """RFC 3339, such as `2026-11-20T18:00:00Z`; left unset, it has no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """A declared inference workload.

    Building one checks it: `ValidationError` lists every problem at once.
    """

    name: str
    model: str
    backend: Backend | str
    slug: str = ""
    """The key drift is matched on; made from the name when left out."""
    project: str | None = None
    description: str | None = None
    task_type: TaskType | str | None = None
    model_revision: str | None = None
    """Of a repository: a commit pins it, a branch or a tag does not."""
    model_digest: str | None = None
    """Of the files that a cache holds; another content is not served."""
    cache: Cache | None = None
    command: str | None = None
    """Run without a shell. `${PORT}` and `${HOST}` are filled in where it runs."""
    image: str | None = None
    args: tuple[str, ...] | None = None
    env: Mapping[str, str] | None = None
    secrets: Mapping[str, SecretRef] | None = None
    """Environment variable to where its value is kept."""
    config: Mapping[str, Tree] | None = None
    vllm_version: str | None = None
    worker_id: str | None = None
    gpu_resource_id: str | None = None
    replicas: int | None = None
    autoscaling: Autoscaling | None = None
    resources: Resources | None = None
    execution_policy: ExecutionPolicy | str | None = None
    execution_policy_config: Mapping[str, Tree] | None = None
    canary: Canary | None = None
    rollout: Rollout | None = None
    health: Health | None = None
    nodes: int | None = None
    """How many machines, each with the declared resources, make up one replica."""
    suspend: Suspend | None = None
    adapters: tuple[LoraAdapter, ...] | None = None
    """All LoRA adapters that are to be loaded: an empty list says none. Left unset, they are not
    yours, and neither loaded nor compared."""
    pod_template: Mapping[str, Tree] | None = None
    """For Kubernetes: `metadata` and `spec` that are put over the rendered pod template."""
    service: ServiceSpec | None = None
    """For Kubernetes: type, annotations and further ports of the Service that callers use."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        if too_large := check.size_problem(self):
            raise ValidationError("The spec is too large.", problems=[too_large])
        shapes: list[Problem] = []
        for name, kind in NESTED_TYPES.items():
            put(self, name, _build_nested(kind, getattr(self, name), name, shapes))
        put(self, "secrets", _build_secret_refs(self.secrets, shapes))
        put(self, "adapters", _build_adapters(self.adapters, shapes))
        if isinstance(self.args, list):
            put(self, "args", tuple(self.args))
        for name, enum in _ENUMS.items():
            put(self, name, _coerce_enum(enum, getattr(self, name)))
        problems = [*shapes, *check.spec_problems(self)]
        if problems:
            given = self.slug or self.name
            shown = canonical_slug(redact(given))[:MAX_SLUG] if isinstance(given, str) else ""
            count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
            raise ValidationError(
                f"The spec of workload {shown or '(unnamed)'} has {count}.", problems=problems
            )
        put(self, "slug", canonical_slug(self.slug or self.name))
        if self.autoscaling and self.autoscaling.behavior is not None:
            rules = self.autoscaling.behavior
            behavior = {str(name): _plain_value(part) for name, part in rules.items()}
            put(self, "autoscaling", replace(self.autoscaling, behavior=behavior))
        for name in (
            "env",
            "config",
            "execution_policy_config",
            "pod_template",
        ):  # ours: the caller keeps theirs
            value = getattr(self, name)
            put(self, name, None if value is None else _plain_value(value))

    def fields(self) -> Fields:
        """Return the declared fields as a plain tree, without the identity."""
        declared = _plain_fields(self)
        return {name: value for name, value in declared.items() if name not in IDENTITY_FIELDS}


POSITIONAL_FIELDS = (
    "name", "slug", "model", "backend", "project", "description", "command", "vllm_version",
    "task_type", "config", "execution_policy", "execution_policy_config", "worker_id",
    "gpu_resource_id",
)  # fmt: skip
"""The fields of InferenceKey's own spec in its order: scripts may give them without names."""


def _init_by_place(init: Callable[..., None]) -> Callable[..., None]:
    """Take what InferenceKey's spec takes by its place; type checkers ask for names."""

    @wraps(init)
    def by_place(self: WorkloadSpec, /, *placed: object, **named: object) -> None:
        if len(placed) > len(POSITIONAL_FIELDS):
            raise TypeError(
                f"WorkloadSpec takes at most {len(POSITIONAL_FIELDS)} fields by their place, "
                f"{len(placed)} were given"
            )
        given = dict(zip(POSITIONAL_FIELDS, placed, strict=False))
        twice = given.keys() & named.keys()
        if twice:
            raise TypeError(f"WorkloadSpec got {', '.join(sorted(twice))} twice")
        init(self, **given, **named)

    return by_place


WorkloadSpec.__init__ = _init_by_place(WorkloadSpec.__init__)  # type: ignore[method-assign]

IDENTITY_FIELDS = frozenset({"slug", "project"})
NESTED_TYPES: dict[str, type] = {
    "cache": Cache,
    "autoscaling": Autoscaling,
    "resources": Resources,
    "canary": Canary,
    "rollout": Rollout,
    "health": Health,
    "suspend": Suspend,
    "service": ServiceSpec,
}
_ENUMS: dict[str, type[StrEnum]] = {
    "backend": Backend,
    "task_type": TaskType,
    "execution_policy": ExecutionPolicy,
}
SPEC_FIELDS = tuple(field.name for field in fields(WorkloadSpec))


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """What was declared for one workload. Fields that are not here are not ours."""

    id: WorkloadId
    fields: Fields
    source: str | None = None
    """Where it was declared, for people: a file and line, or None for Python."""

    @property
    def revision(self) -> str:
        """A digest that is equal for equal declarations."""
        return digest({"id": str(self.id), "fields": self.fields})


def desired_of(spec: WorkloadSpec, *, project: str, source: str | None = None) -> Desired:
    """Place a spec in a project."""
    where = WorkloadId(project=spec.project or project, slug=spec.slug)
    return Desired(id=where, fields=spec.fields(), source=source)


T = TypeVar("T")


def _build_nested(kind: type[T], value: object, name: str, problems: list[Problem]) -> object:
    """Build a nested value from a mapping; a value of the right type passes as it is."""
    if value is None or isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        problems.append(shape_problem(name, value))
        return None
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # kind is one of ours
    unknown = [str(key) for key in value if key not in known]
    problems.extend(unknown_problem(f"{name}.{key}", sorted(known)) for key in unknown)
    given = {str(key): item for key, item in value.items() if key in known}
    for part in schema_fields(kind):  # type: ignore[arg-type]  # a class can be hashed
        if part.name in given:
            where = f"{name}.{part.name}"
            given[part.name] = _build_part(part.shape, given[part.name], where, problems)
    try:
        return kind(**given)
    except TypeError:
        problems.append(missing_problem(name, kind, set(given)))
        return None


def _build_part(shape: ValueType, value: object, name: str, problems: list[Problem]) -> object:
    """Build what nests in a nested value; what it cannot be built from is left for the checks."""
    if shape.is_nested:
        return _build_nested(shape.base, value, name, problems)
    if shape.base is tuple and isinstance(value, list | tuple):
        item = shape.item
        if item is None or not item.is_nested:
            return tuple(value)
        built = (
            _build_nested(item.base, {} if each is None else each, name, problems) for each in value
        )
        return tuple(each for each in built if each is not None)
    if shape.is_enum and isinstance(value, str) and value in shape.choices:
        return shape.base(value)
    number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if number and shape.form is not None and shape.form.numeric else value


def _build_secret_refs(value: object, problems: list[Problem]) -> dict[str, object] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        problems.append(shape_problem("secrets", value))
        return None
    return {
        str(name): _build_nested(
            SecretRef, {} if ref is None else ref, f"secrets.{safe_name(name)}", problems
        )
        for name, ref in value.items()
    }


def _build_adapters(value: object, problems: list[Problem]) -> tuple[object, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        problems.append(shape_problem("adapters", value))
        return None
    built = [
        _build_nested(LoraAdapter, {} if each is None else each, f"adapters[{place}]", problems)
        for place, each in enumerate(value)
    ]
    return tuple(each for each in built if each is not None)


def _coerce_enum(enum: type[StrEnum], value: object) -> object:
    if isinstance(value, str):
        text = "".join(value.split()).lower()
        return enum(text) if text in enum._value2member_map_ else str(value)
    return value


def _plain_fields(value: object) -> Fields:
    """Turn one of our dataclasses into a tree of the fields that are set."""
    names: tuple[str, ...] = type(value).__slots__  # type: ignore[attr-defined]  # all have slots
    given = ((name, getattr(value, name)) for name in names)
    return {name: _plain_value(item) for name, item in given if item is not None}


def _plain_value(item: object) -> Tree:
    if type(item) is str or type(item) is int:
        return item
    if isinstance(item, Mapping):
        return {str(key): _plain_value(inner) for key, inner in item.items()}
    if hasattr(type(item), "__dataclass_fields__"):
        return _plain_fields(item)
    if isinstance(item, tuple):
        return [_plain_value(inner) for inner in item]
    return plain_tree(item)
