"""What a workload and an InferenceService are both held to is refused in the same words."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import InvalidSpec, ValidationError
from holdfast.core.service.spec import (
    AnalysisSpec,
    AutoscalingSpec,
    CanarySpec,
    DeviceClaimSpec,
    InferenceServiceSpec,
    ResourceSpec,
    ScalingMetricSpec,
    ServicePortSpec,
    ServiceSpec,
)
from holdfast.core.workload import SecretRef, WorkloadSpec

BOUNDS = {"min_replicas": 1, "max_replicas": 2}
Given = dict[str, Any]  # Any: fields of either declaration
CASES: dict[str, tuple[Given, Given]] = {
    "a variable's name": ({"env": {"1A": "x"}}, {"env": {"1A": "x"}}),
    "a canary's variable": (
        {"canary": {"weight": 1, "env": {"a-b": "x"}}},
        {"canary": CanarySpec(weight=1, env={"a-b": "x"})},
    ),
    "a secret's name": (
        {"secrets": {"A": {"name": "No", "key": "k"}}},
        {"secrets": {"A": SecretRef(name="No", key="k")}},
    ),
    "a key that is too long": (
        {"secrets": {"A": {"name": "s", "key": "k" * 254}}},
        {"secrets": {"A": SecretRef(name="s", key="k" * 254)}},
    ),
    "a device without a domain": (
        {"resources": {"accelerators": {"/gpu": 1}}},
        {"resources": ResourceSpec(accelerators={"/gpu": 1})},
    ),
    "a secret in clear": (
        {"args": ["--api-key", "hunter2hunter2"]},
        {"args": ("--api-key", "hunter2hunter2")},
    ),
    "a variable that nobody fills in": ({"args": ["${ELSE}"]}, {"args": ("${ELSE}",)}),
    "a target beside metrics": (
        {"autoscaling": {"min": 1, "max": 2, "target": 2.0, "metrics": [{"metric": "m"}]}},
        {
            **BOUNDS,
            "autoscaling": AutoscalingSpec(
                target=2.0, metrics=(ScalingMetricSpec(metric="m", target=1.0),)
            ),
        },
    ),
    "a claim of nothing": (
        {"resources": {"claims": [{"name": "gpu"}]}},
        {"resources": ResourceSpec(claims=(DeviceClaimSpec(name="gpu"),))},
    ),
    "the port that is served": (
        {"service": {"ports": [{"name": "http", "port": 80}]}},
        {"service": ServiceSpec(ports=(ServicePortSpec(name="http", port=80),))},
    ),
    "a port twice": (
        {"service": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}},
        {
            "service": ServiceSpec(
                ports=(ServicePortSpec(name="a", port=80), ServicePortSpec(name="b", port=80))
            )
        },
    ),
    "an annotation of ours": (
        {"service": {"annotations": {"holdfast.dev/x": "1"}}},
        {"service": ServiceSpec(annotations={"holdfast.dev/x": "1"})},
    ),
    "an analysis without a bound": (
        {"canary": {"weight": 1, "model": "b", "analysis": {"metric": "m"}}},
        {"canary": CanarySpec(weight=1, model_ref="b", analysis=AnalysisSpec(metric="m"))},
    ),
}


def refused_by_workload(given: Given) -> set[tuple[str, str, str]]:
    with pytest.raises(ValidationError) as caught:
        WorkloadSpec(name="bot", model="org/base", backend="vllm", **given)
    return {(each.field, each.reason, each.fix) for each in caught.value.problems}


def refused_by_service(given: Given) -> set[tuple[str, str, str]]:
    with pytest.raises(InvalidSpec) as caught:
        InferenceServiceSpec(model_ref="org/base", **given).validate()
    return {(each.field, each.reason, each.fix) for each in caught.value.problems}


@pytest.mark.parametrize("case", CASES)
def test_both_declarations_are_refused_in_the_same_words(case: str) -> None:
    workload, service = CASES[case]
    assert refused_by_workload(workload) & refused_by_service(service), case
