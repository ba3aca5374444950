"""Rules about how many replicas an InferenceService has, and what changes their number."""

from __future__ import annotations

from holdfast.core.backends import BACKENDS, backend_profile
from holdfast.core.custom_resource import ValidationRule, matches_pattern
from holdfast.core.rules import SCALED_ONCE
from holdfast.core.service.autoscaling import RESOURCE_METRICS
from holdfast.core.service.rule_terms import (
    CEL_BACKEND,
    CEL_MAX,
    CEL_MIN,
    CEL_NODES,
    as_number,
    backend_of,
    least_replicas,
    most_replicas,
)
from holdfast.core.service.spec import AutoscalingSpec, Scaler
from holdfast.core.service.spec import InferenceServiceSpec as Spec

_SCALE = "self.autoscaling"
_USES_CPU = (
    f"(!has({_SCALE}) || (has({_SCALE}.metric) ? {_SCALE}.metric == 'cpu' : "
    f"!has({_SCALE}.metrics) && !has({_SCALE}.preset)) || "
    f"(has({_SCALE}.metrics) && {_SCALE}.metrics.exists(m, m.metric == 'cpu')))"
)
_USES_MEMORY = (
    f"(has({_SCALE}) && ((has({_SCALE}.metric) && {_SCALE}.metric == 'memory') || "
    f"(has({_SCALE}.metrics) && {_SCALE}.metrics.exists(m, m.metric == 'memory'))))"
)
_PROMETHEUS_NAME = r"^[A-Za-z_:][A-Za-z0-9_:]*$"
_PRESETS = tuple(
    f"{name}/{preset}" for name, each in BACKENDS.items() for preset, _ in each.scaling_presets
)
_METERED = tuple(
    (name, each.metrics_flag, each.metrics_flag in each.command)
    for name, each in BACKENDS.items()
    if each.metrics_flag
)


def _within(spec: Spec) -> bool:
    low, high = least_replicas(spec), most_replicas(spec)
    return not (high and spec.replicas) or low <= as_number(spec.replicas) <= high


def _requested(spec: Spec) -> bool:
    if not spec.scales_by_load:
        return True
    scale = spec.autoscaling or AutoscalingSpec()
    named = {each.metric for each in scale.metrics or ()}
    if scale.preset is None and scale.metrics is None:
        named.add(scale.metric or "cpu")
    return all(
        name not in named or bool(spec.resources and getattr(spec.resources, name) is not None)
        for name in RESOURCE_METRICS
    )


def _targeted(spec: Spec) -> bool:
    scale = spec.autoscaling
    if scale is None or (scale.preset is not None and scale.target is None):
        return True
    if scale.target is None:
        return scale.metrics is not None or scale.metric in (None, *RESOURCE_METRICS)
    return isinstance(scale.target, int | float) and scale.target > 0


def _all_targeted(spec: Spec) -> bool:
    return all(
        each.metric in RESOURCE_METRICS if each.target is None else each.target > 0
        for each in (spec.autoscaling and spec.autoscaling.metrics) or ()
    )


def _has_preset(spec: Spec) -> bool:
    preset = spec.autoscaling.preset if spec.autoscaling else None
    backend = backend_of(spec)
    return preset is None or f"{backend}/{preset}" in _PRESETS


def _reports_metrics(spec: Spec) -> bool:
    profile = backend_profile(backend_of(spec))
    flag = profile.metrics_flag
    if flag is None or spec.autoscaling is None or spec.autoscaling.preset is None:
        return True
    return flag in (*(spec.command or profile.command), *(spec.args or ()))


def _asks_prometheus(spec: Spec) -> bool:
    scale = spec.autoscaling
    if scale is None or scale.scaler is not Scaler.KEDA:
        return True
    names = [each.metric for each in scale.metrics or ()]
    names += [scale.metric] if scale.metric is not None else []
    return all(matches_pattern(_PROMETHEUS_NAME, name) for name in names)


SCALING_RULES: tuple[ValidationRule[Spec], ...] = (
    ValidationRule(
        field="minReplicas",
        reason="only one of minReplicas and maxReplicas is given.",
        fix="Give both, or neither for a fixed number.",
        cel=f"{CEL_MAX} > 0 ? has(self.minReplicas) : {CEL_MIN} == 0",
        holds=lambda spec: (
            spec.min_replicas is not None if most_replicas(spec) > 0 else least_replicas(spec) == 0
        ),
    ),
    ValidationRule(
        field="minReplicas",
        reason="it is above maxReplicas.",
        fix="Lower it, or raise maxReplicas.",
        cel=f"{CEL_MAX} == 0 || {CEL_MIN} <= {CEL_MAX}",
        holds=lambda spec: most_replicas(spec) == 0 or least_replicas(spec) <= most_replicas(spec),
    ),
    ValidationRule(
        field="replicas",
        reason="it is outside minReplicas and maxReplicas.",
        fix="Choose a number within the bounds, or leave it out.",
        cel=f"!has(self.replicas) || {CEL_MAX} == 0 || "
        f"({CEL_MIN} <= self.replicas && self.replicas <= {CEL_MAX})",
        holds=_within,
    ),
    ValidationRule(
        field="autoscaling",
        reason="there are no bounds to scale within.",
        fix="Give minReplicas and maxReplicas.",
        cel=f"!has(self.autoscaling) || (has(self.minReplicas) && {CEL_MAX} > 0)",
        holds=lambda spec: spec.autoscaling is None or spec.autoscaled,
    ),
    ValidationRule(
        field="minReplicas",
        reason="a service of several nodes is not scaled to zero.",
        fix="Give at least 1, or leave nodes out.",
        cel=f"{CEL_NODES} <= 1 || {CEL_MAX} == 0 || {CEL_MIN} > 0",
        holds=lambda spec: (
            as_number(spec.nodes) <= 1 or most_replicas(spec) == 0 or least_replicas(spec) > 0
        ),
    ),
    ValidationRule(
        field="autoscaling.idleAfter",
        reason="it is for a service that may have no replicas.",
        fix="Give minReplicas: 0, or leave it out.",
        cel=f"!has(self.autoscaling) || !has(self.autoscaling.idleAfter) || {CEL_MIN} == 0",
        holds=lambda spec: (
            spec.autoscaling is None
            or spec.autoscaling.idle_after is None
            or least_replicas(spec) == 0
        ),
    ),
    ValidationRule(
        field="autoscaling.metric",
        reason="cpu and memory are scaled by their share of what is requested, and nothing is.",
        fix="Give resources.cpu (or resources.memory), or scale by a metric of the backend.",
        cel=f"{CEL_MAX} == 0 || ({CEL_MIN} == 0 && {CEL_MAX} == 1) || "
        f"((!{_USES_CPU} || (has(self.resources) && has(self.resources.cpu))) && "
        f"(!{_USES_MEMORY} || (has(self.resources) && has(self.resources.memory))))",
        holds=_requested,
    ),
    ValidationRule(
        field="autoscaling.target",
        reason="it is not above 0, or it is missing and the metric has no usual one.",
        fix="Give the value per pod at which another pod should start.",
        cel=f"!has({_SCALE}) || (has({_SCALE}.target) ? {_SCALE}.target > 0.0 : "
        f"has({_SCALE}.preset) || has({_SCALE}.metrics) || !has({_SCALE}.metric) || "
        f"{_SCALE}.metric in ['cpu', 'memory'])",
        holds=_targeted,
    ),
    ValidationRule(
        field="autoscaling.metrics",
        reason="a target is not above 0, or it is missing and the metric has no usual one.",
        fix="Give each the value per pod at which another pod should start.",
        cel=f"!has({_SCALE}) || !has({_SCALE}.metrics) || {_SCALE}.metrics.all(m, "
        "has(m.target) ? m.target > 0.0 : m.metric in ['cpu', 'memory'])",
        holds=_all_targeted,
    ),
    ValidationRule(
        field="autoscaling",
        reason=SCALED_ONCE.reason,
        fix=SCALED_ONCE.fix,
        cel=f"!has({_SCALE}) || ((!has({_SCALE}.metric) || "
        f"(!has({_SCALE}.metrics) && !has({_SCALE}.preset))) && "
        f"(!has({_SCALE}.target) || !has({_SCALE}.metrics) || has({_SCALE}.preset)))",
        holds=lambda spec: spec.autoscaling is None or SCALED_ONCE.holds(spec.autoscaling),
    ),
    ValidationRule(
        field="autoscaling.preset",
        reason="the backend reports no such figure.",
        fix=f"What there is: {', '.join(_PRESETS)}. Or name a metric of your own.",
        cel=f"!has({_SCALE}) || !has({_SCALE}.preset) || "
        f"({CEL_BACKEND} + '/' + {_SCALE}.preset) in {[*_PRESETS]}",
        holds=_has_preset,
    ),
    ValidationRule(
        field="autoscaling.preset",
        reason="the backend reports no metrics as it is started.",
        fix="Add to args: " + ", ".join(f"{flag} for {name}" for name, flag, _ in _METERED) + ".",
        cel=f"!has({_SCALE}) || !has({_SCALE}.preset) || ("
        + " && ".join(
            f"({CEL_BACKEND} != '{name}' || (has(self.args) && '{flag}' in self.args) || "
            f"(has(self.command) ? '{flag}' in self.command : {str(usual).lower()}))"
            for name, flag, usual in _METERED
        )
        + ")",
        holds=_reports_metrics,
    ),
    ValidationRule(
        field="autoscaling.scaler",
        reason="KEDA asks Prometheus, which has no metric of that name.",
        fix="Use letters, digits, underscores and colons, or scale by hpa.",
        cel=f"!has({_SCALE}) || !has({_SCALE}.scaler) || {_SCALE}.scaler != 'keda' || "
        f"((!has({_SCALE}.metric) || {_SCALE}.metric.matches('{_PROMETHEUS_NAME}')) && "
        f"(!has({_SCALE}.metrics) || {_SCALE}.metrics.all(m, "
        f"m.metric.matches('{_PROMETHEUS_NAME}'))))",
        holds=_asks_prometheus,
    ),
    ValidationRule(
        field="autoscaling.scaler",
        reason="no pod is left to measure at zero, so that KEDA would start none again.",
        fix="Give a minReplicas of at least 1, or scale by hpa.",
        cel=f"!has({_SCALE}) || !has({_SCALE}.scaler) || {_SCALE}.scaler != 'keda' || "
        f"{CEL_MIN} > 0",
        holds=lambda spec: (
            spec.autoscaling is None
            or spec.autoscaling.scaler is not Scaler.KEDA
            or least_replicas(spec) > 0
        ),
    ),
)
