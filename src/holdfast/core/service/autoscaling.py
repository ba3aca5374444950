"""What an autoscaler looks at: the declared metrics and presets, as an HPA and as KEDA want them.

Pure. `children` renders one of the two; the checks ask what a preset of an engine stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from holdfast.core.backends import DEFAULT_BACKEND, backend_profile
from holdfast.core.service.spec import (
    AutoscalingSpec,
    BehaviorSpec,
    InferenceService,
    InferenceServiceSpec,
    Scaler,
    ScalingRulesSpec,
)
from holdfast.core.tree import Fields, Tree

RESOURCE_METRICS = ("cpu", "memory")
"""Scaled by their share of what is requested; any other metric by its value per pod."""
DEFAULT_UTILIZATION = 80.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTarget:
    """One metric, and the value at which another pod should start."""

    metric: str
    target: float

    @property
    def is_resource(self) -> bool:
        """True for what the cluster measures itself."""
        return self.metric in RESOURCE_METRICS


def metric_targets(spec: InferenceServiceSpec) -> tuple[MetricTarget, ...]:
    """What is looked at, in the order of the spec: cpu, where nothing is said."""
    given = spec.autoscaling or AutoscalingSpec()
    found: list[MetricTarget] = []
    if given.preset is not None:
        preset = dict(backend_profile(spec.backend or DEFAULT_BACKEND).scaling_presets)
        metric, usual = preset[str(given.preset)]
        target = usual if given.target is None else given.target
        found.append(MetricTarget(metric=metric, target=target))
    elif given.metrics is None:
        found.append(_metric_target(given.metric or "cpu", given.target))
    found += [_metric_target(each.metric, each.target) for each in given.metrics or ()]
    return tuple(found)


def _metric_target(metric: str, target: float | None) -> MetricTarget:
    return MetricTarget(metric=metric, target=DEFAULT_UTILIZATION if target is None else target)


def uses_keda(spec: InferenceServiceSpec) -> bool:
    """True when KEDA is to scale the service."""
    chosen = spec.autoscaling.scaler if spec.autoscaling else None
    return spec.autoscaled and chosen is Scaler.KEDA


def needs_prometheus(spec: InferenceServiceSpec) -> bool:
    """True when KEDA has to ask a Prometheus for what is looked at."""
    return uses_keda(spec) and not all(each.is_resource for each in metric_targets(spec))


def initial_replicas(service: InferenceService) -> int:
    """With how many a Deployment starts whose number others choose.

    One that was deleted comes back as it was seen last, not as a single pod.
    """
    spec = service.spec
    seen = service.status.replicas if service.status else 0
    start = seen or spec.replicas or spec.min_replicas or 1
    if spec.autoscaled:
        start = min(max(start, spec.min_replicas or 1), spec.max_replicas or start)
    return start


def hpa_metric(given: MetricTarget) -> Fields:
    """Write a metric as autoscaling/v2 has it."""
    if given.is_resource:
        target: Fields = {"type": "Utilization", "averageUtilization": max(1, round(given.target))}
        return {"type": "Resource", "resource": {"name": given.metric, "target": target}}
    average: Fields = {"type": "AverageValue", "averageValue": _quantity(given.target)}
    pods: Fields = {"metric": {"name": given.metric}, "target": average}
    return {"type": "Pods", "pods": pods}


def keda_trigger(given: MetricTarget, *, prometheus: str, namespace: str, pods: str) -> Fields:
    """Write a metric as a trigger of KEDA. `pods` is a pattern of the names of pods."""
    if given.is_resource:
        value = str(max(1, round(given.target)))
        return {"type": given.metric, "metricType": "Utilization", "metadata": {"value": value}}
    query = f'sum({given.metric}{{namespace="{namespace}",pod=~"{pods}"}})'
    metadata: Fields = {
        "serverAddress": prometheus,
        "query": query,
        "threshold": f"{given.target:g}",
    }
    # KEDA divides the sum by the number of pods, which is the value per pod that was declared.
    return {"type": "prometheus", "metricType": "AverageValue", "metadata": metadata}


def behavior_fields(given: BehaviorSpec) -> Fields:
    """Write what is declared of the behavior, and nothing else."""
    found: Fields = {}
    for name, rules in (("scaleUp", given.scale_up), ("scaleDown", given.scale_down)):
        if rules is not None:
            found[name] = _rules(rules)
    return found


def _rules(given: ScalingRulesSpec) -> Fields:
    found: Fields = {}
    if given.stabilization_window_seconds is not None:
        found["stabilizationWindowSeconds"] = given.stabilization_window_seconds
    if given.select_policy is not None:
        found["selectPolicy"] = str(given.select_policy)
    if given.policies is not None:
        found["policies"] = [
            {"type": str(each.type), "value": each.value, "periodSeconds": each.period_seconds}
            for each in given.policies
        ]
    return found


def _quantity(number: float) -> Tree:
    """Write a number as the API server would: thousandths where it is not whole."""
    thousandths = round(Decimal(str(number)) * 1000)
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)
