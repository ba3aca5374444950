"""One workload, two forms: `WorkloadSpec` and the custom resource. The only place that maps them.

What the custom resource cannot say, or Kubernetes cannot honour, is refused with the reason.
What it says beyond a workload (where pods may run, what to do about drift) is kept as it is in
the object that is already there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from holdfast.core.backends import DEFAULT_BACKEND
from holdfast.core.command import split_command
from holdfast.core.custom_resource import camel_case
from holdfast.core.errors import InvalidSpec, Problem, ValidationError
from holdfast.core.normalize import WORKLOAD_RULES
from holdfast.core.plan import AMOUNT_FIELDS
from holdfast.core.quantity import parse_duration
from holdfast.core.service.spec import (
    AnalysisSpec,
    AutoscalingSpec,
    BehaviorSpec,
    CacheSpec,
    CanarySpec,
    HealthCheckSpec,
    InferenceService,
    InferenceServiceSpec,
    PodTemplateSpec,
    ResourceSpec,
    RolloutSpec,
    Scaler,
    ScalingMetricSpec,
    SuspendSpec,
)
from holdfast.core.tree import Fields, Tree
from holdfast.core.workload import (
    SPEC_FIELDS,
    Analysis,
    Autoscaling,
    Cache,
    Canary,
    ExecutionPolicy,
    Health,
    Resources,
    Rollout,
    ScalingMetric,
    Suspend,
    WorkloadSpec,
)
from holdfast.wire.resource_json import json_fields, read_value
from holdfast.wire.spec_v1 import spec_from_fields

T = TypeVar("T")

ENTRYPOINT = "entrypoint"
CANARY_ARGS = "canary_args"
"""Keys of `config` for what a container has and a workload elsewhere has not: a command beside
its image, and arguments of the canary alone."""

_CONVERTED = frozenset(
    "cache backend command replicas autoscaling resources canary rollout suspend"
    " pod_template".split()
)
"""Fields of the same name that say it in another way."""
_SAME = tuple(
    name
    for name in SPEC_FIELDS
    if name in InferenceServiceSpec.__slots__ and name not in _CONVERTED
)
RESOURCE_FIELDS: dict[str, tuple[str, ...]] = {
    **{name: (camel_case(name),) for name in (*_SAME, *_CONVERTED)},
    "name": ("displayName",),
    "model": ("modelRef",),
    "config": ("command", "canary"),
    "autoscaling": ("minReplicas", "maxReplicas", "autoscaling"),
    "execution_policy": ("replicas", "minReplicas", "maxReplicas"),
    "execution_policy_config": ("replicas", "minReplicas", "maxReplicas"),
    "health": ("healthCheck",),
}
"""A workload's field and the parts of the custom resource that it is written to."""
_WORKLOAD_FIELDS = {
    part: name for name, parts in reversed(RESOURCE_FIELDS.items()) for part in parts
}


def service_of(
    spec: WorkloadSpec, *, namespace: str, base: InferenceService | None = None
) -> InferenceService:
    """Write a workload as a custom resource. Raises InvalidSpec for what it cannot carry."""
    problems = list(_unsupported_fields(spec))
    low, high, replicas = _replica_bounds(spec)
    config = spec.config or {}
    command = _string_items(config.get(ENTRYPOINT))
    declared = {
        "model_ref": spec.model,
        "backend": str(spec.backend),
        "display_name": None if spec.name == spec.slug else spec.name,
        "command": command if spec.command is None else tuple(split_command(spec.command)),
        "replicas": replicas,
        "min_replicas": low,
        "max_replicas": high,
        "autoscaling": _autoscaling_spec(
            spec.autoscaling, base.spec.autoscaling if base else None, problems
        ),
        "cache": _copy_part(CacheSpec, spec.cache),
        "resources": _resource_spec(spec.resources, base.spec.resources if base else None),
        "canary": _canary_spec(
            spec.canary,
            _string_items(config.get(CANARY_ARGS)),
            base.spec.canary.resources if base and base.spec.canary else None,
        ),
        "health_check": _copy_part(HealthCheckSpec, spec.health),
        "rollout": _copy_part(RolloutSpec, spec.rollout),
        "suspend": _copy_part(SuspendSpec, spec.suspend),
        "pod_template": _pod_template_spec(spec.pod_template, problems),
        **{name: getattr(spec, name) for name in _SAME},
    }
    service = InferenceService(
        name=spec.slug,
        namespace=namespace,
        uid=base.uid if base else "",
        resource_version=base.resource_version if base else "",
        generation=base.generation if base else 0,
        labels=base.labels if base else {},
        annotations=base.annotations if base else {},
        spec=replace(base.spec, **declared) if base else InferenceServiceSpec(**declared),
        status=base.status if base else None,
    )
    try:
        service.validate()
    except InvalidSpec as error:
        problems += error.problems
    if problems:
        raise InvalidSpec(
            f"Workload {spec.slug} cannot run on Kubernetes as it is declared.", problems=problems
        )
    return service


def spec_of(service: InferenceService) -> WorkloadSpec:
    """Read a custom resource as a workload. With bounds, `replicas` was only the first number."""
    spec = service.spec
    config: dict[str, Tree] = {}
    beside = spec.image is not None or spec.args is not None
    if spec.command is not None and beside:
        config[ENTRYPOINT] = list(spec.command)
    if spec.canary and spec.canary.args is not None:
        config[CANARY_ARGS] = list(spec.canary.args)
    return WorkloadSpec(
        name=spec.display_name or service.name,
        slug=service.name,
        project=service.namespace,
        model=spec.model_ref,
        backend=spec.backend or DEFAULT_BACKEND,
        command=None if spec.command is None or beside else shlex.join(spec.command),
        config=config or None,
        replicas=None if spec.autoscaled else spec.replicas,
        autoscaling=_workload_autoscaling(spec),
        cache=_copy_part(Cache, spec.cache),
        resources=_copy_part(Resources, spec.resources),
        canary=_workload_canary(spec.canary),
        rollout=_copy_part(Rollout, spec.rollout),
        health=_copy_part(Health, spec.health_check),
        suspend=_copy_part(Suspend, spec.suspend),
        pod_template=json_fields(spec.pod_template) if spec.pod_template else None,
        **{name: getattr(spec, name) for name in _SAME},
    )


def unsupported_on_kubernetes(slug: str, fields: Mapping[str, Tree]) -> list[Problem]:
    """Say what of a workload Kubernetes cannot honour, under the workload's own names.

    Parts of a workload are checked by themselves: what they would join is not known here.
    """
    whole = {"name": slug, "model": "unknown", "backend": DEFAULT_BACKEND, **fields}
    try:
        service_of(spec_from_fields(slug, whole), namespace="default")
    except ValidationError as error:
        found = [_with_workload_field(problem, fields) for problem in error.problems]
        partial = not {"model", "backend"} <= fields.keys()
        return [each for each in found if not partial or each.field.split(".")[0] in fields]
    return []


def spell_as_declared(live: Fields, slug: str, declared: Fields) -> Fields:
    """Give live fields the spelling of the declaration, wherever they mean what it says.

    The custom resource has one form for what a workload may say in several: a fixed policy, a
    canary that is to end, a command line. Without this they would look like drift for ever.
    """
    try:
        service = service_of(spec_from_fields(slug, declared), namespace="default")
    except ValidationError:  # declared by a later version, or edited by hand
        return live
    meant = spec_of(service).fields()
    fields = dict(live)
    if _subset(meant, AMOUNT_FIELDS) == _subset(live, AMOUNT_FIELDS):
        for name in AMOUNT_FIELDS:
            fields.pop(name, None)
        fields |= _subset(declared, AMOUNT_FIELDS)
    for name, value in declared.items():
        if name not in AMOUNT_FIELDS and _is_identical(meant.get(name), live.get(name)):
            fields[name] = value
    return fields


def _subset(fields: Fields, names: tuple[str, ...]) -> Fields:
    return {name: fields[name] for name in names if name in fields}


def _is_identical(one: Tree, other: Tree) -> bool:
    return one == other and type(one) is type(other)


def _with_workload_field(problem: Problem, fields: Mapping[str, Tree]) -> Problem:
    """Name the field as the user of a WorkloadSpec knows it."""
    first, dot, rest = problem.field.partition(".")
    if problem.field == "metadata.name":
        return Problem(field="slug", reason=problem.reason, fix=problem.fix)
    name, bracket, place = first.partition("[")
    said = _WORKLOAD_FIELDS.get(name, name)
    if said == "args" and "args" not in fields:  # a rule about all that is started
        said = "command"
    return Problem(
        field=f"{said}{bracket}{place}{dot}{rest}", reason=problem.reason, fix=problem.fix
    )


def _unsupported_fields(spec: WorkloadSpec) -> Iterator[Problem]:
    for name in ("worker_id", "gpu_resource_id"):
        if getattr(spec, name) is not None:
            yield Problem(
                field=name,
                reason="on Kubernetes the scheduler chooses the node.",
                fix="Leave it out, and give scheduling.nodeSelector in the custom resource.",
            )
    if spec.execution_policy == ExecutionPolicy.SCHEDULED:
        yield Problem(
            field="execution_policy",
            reason="an InferenceService runs all the time, not by a schedule.",
            fix="Use fixed or autoscaling, or give replicas.",
        )
    for name in spec.config or {}:
        if (
            name not in (ENTRYPOINT, CANARY_ARGS)
            or _string_items((spec.config or {})[name]) is None
        ):
            yield Problem(
                field="config",
                reason="settings of other targets mean nothing to a container.",
                fix="Give them as args of the backend.",
            )
            return
    fixed = spec.execution_policy == ExecutionPolicy.FIXED
    known = {"replicas"} if fixed else {"min_workers", "max_workers"}
    if set(spec.execution_policy_config or {}) - known - {"cron", "window"}:
        yield Problem(
            field="execution_policy_config",
            reason="it has details that an autoscaler of Kubernetes does not know.",
            fix=f"Keep {' and '.join(sorted(known))}.",
        )


def _replica_bounds(spec: WorkloadSpec) -> tuple[int | None, int | None, int | None]:
    """The bounds and the number, whichever way they were declared."""
    if spec.autoscaling is not None:
        # 0 and 0 would be read as "no autoscaling", so it is handed on as what cannot be.
        return spec.autoscaling.min, spec.autoscaling.max, None
    details = spec.execution_policy_config or {}
    if spec.execution_policy == ExecutionPolicy.FIXED:
        return None, None, _int_or(details.get("replicas"), 1)
    if spec.execution_policy == ExecutionPolicy.AUTOSCALING:
        return _int_or(details.get("min_workers"), 0), _int_or(details.get("max_workers"), 1), None
    return None, None, spec.replicas


def _autoscaling_spec(
    given: Autoscaling | None, old: AutoscalingSpec | None, problems: list[Problem]
) -> AutoscalingSpec | None:
    """Write what to scale by. Who scales stays where a workload does not say it."""
    if given is None:
        return None
    path = "autoscaling.behavior."
    made = AutoscalingSpec(
        metric=given.metric,
        target=given.target,
        metrics=_scaling_metrics(given),
        preset=given.preset,  # type: ignore[arg-type]  # text that is none is refused when checked
        behavior=None
        if given.behavior is None
        else read_value(BehaviorSpec, given.behavior, path, problems),
        scaler=Scaler(given.scaler) if given.scaler else old.scaler if old else None,
        idle_after=None if given.idle_after is None else _duration_text(given.idle_after),
    )
    return None if made == AutoscalingSpec() else made


def _scaling_metrics(given: Autoscaling) -> tuple[ScalingMetricSpec, ...] | None:
    if given.metrics is None:
        return None
    return tuple(
        ScalingMetricSpec(metric=each.metric, target=each.target) for each in given.metrics
    )


def _workload_autoscaling(spec: InferenceServiceSpec) -> Autoscaling | None:
    if not spec.autoscaled:
        return None
    scale = spec.autoscaling or AutoscalingSpec()
    metrics = scale.metrics
    return Autoscaling(
        min=spec.min_replicas or 0,
        max=spec.max_replicas or 1,
        metric=scale.metric,
        target=scale.target,
        metrics=None
        if metrics is None
        else tuple(ScalingMetric(metric=each.metric, target=each.target) for each in metrics),
        preset=None if scale.preset is None else str(scale.preset),
        behavior=None if scale.behavior is None else json_fields(scale.behavior),
        idle_after=scale.idle_after,
        scaler=scale.scaler,
    )


def _copy_part(kind: type[T], given: object) -> T | None:
    """Write a part of a workload as the part of the same fields, or the other way round.

    The custom resource has quantities and durations as text with their units.
    """
    if given is None:
        return None
    names: tuple[str, ...] = kind.__slots__  # type: ignore[attr-defined]  # all have
    values = {name: getattr(given, name) for name in names if hasattr(given, name)}
    for name, value in values.items():
        if value is not None and name in WORKLOAD_RULES.quantities:
            values[name] = str(value)
        elif value is not None and name in WORKLOAD_RULES.durations:
            values[name] = _duration_text(value)
    return kind(**values)


def _pod_template_spec(
    given: Mapping[str, Tree] | None, problems: list[Problem]
) -> PodTemplateSpec | None:
    return None if given is None else read_value(PodTemplateSpec, given, "podTemplate.", problems)


def _resource_spec(given: Resources | None, old: ResourceSpec | None) -> ResourceSpec | None:
    """What a workload says of resources, and the claims that are there where it names none."""
    made = _copy_part(ResourceSpec, given)
    claims = old.claims if old else None
    if not claims or (made is not None and made.claims is not None):
        return made
    return replace(made or ResourceSpec(), claims=claims)


def _canary_spec(
    given: Canary | None, args: tuple[str, ...] | None, old: ResourceSpec | None
) -> CanarySpec | None:
    if given is None or (given.is_none and args is None):
        return None
    return CanarySpec(
        weight=given.weight,
        model_ref=given.model,
        model_revision=given.model_revision,
        model_digest=given.model_digest,
        image=given.image,
        command=None if given.command is None else tuple(split_command(given.command)),
        args=args,
        replicas=given.replicas,
        env=given.env,
        resources=_resource_spec(given.resources, old),
        analysis=_copy_part(AnalysisSpec, given.analysis),
    )


def _workload_canary(given: CanarySpec | None) -> Canary | None:
    if given is None:
        return None
    return Canary(
        weight=given.weight,
        model=given.model_ref,
        model_revision=given.model_revision,
        model_digest=given.model_digest,
        image=given.image,
        command=None if given.command is None else shlex.join(given.command),
        replicas=given.replicas,
        env=given.env,
        resources=_copy_part(Resources, given.resources),
        analysis=_copy_part(Analysis, given.analysis),
    )


def _duration_text(value: str | float) -> str:
    """Seconds without a unit are a workload's way to write them, and no one else's."""
    text = str(value).strip()
    seconds = parse_duration(text)
    return f"{text}s" if text[-1:].isdigit() and seconds is not None else text


def _string_items(value: Tree) -> tuple[str, ...] | None:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(str(item) for item in value)
    return None


def _int_or(value: Tree, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
