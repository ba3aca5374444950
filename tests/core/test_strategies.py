"""The strategies must keep up with the values they draw."""

from __future__ import annotations

from dataclasses import fields

import pytest
from tests import strategies

from holdfast.core.cluster_parts import DeviceClaimSpec, ServicePortSpec, ServiceSpec
from holdfast.core.workload import (
    NESTED_TYPES,
    SPEC_FIELDS,
    Analysis,
    Autoscaling,
    Cache,
    Canary,
    Health,
    Resources,
    Rollout,
    ScalingMetric,
    SecretRef,
    Suspend,
)

PARTS = {
    Analysis: strategies.ANALYSIS,
    Autoscaling: strategies.AUTOSCALING,
    Cache: strategies.CACHE,
    Canary: strategies.CANARY,
    Health: strategies.HEALTH,
    Resources: strategies.RESOURCES,
    Rollout: strategies.ROLLOUT,
    ScalingMetric: strategies.SCALING_METRIC,
    SecretRef: strategies.SECRET_REF,
    Suspend: strategies.SUSPEND,
    DeviceClaimSpec: strategies.CLAIM,
    ServicePortSpec: strategies.PORT,
    ServiceSpec: strategies.SERVICE,
}


def test_every_field_of_a_spec_is_drawn() -> None:
    assert set(strategies.SPEC) == set(SPEC_FIELDS)


@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_nested_value_is_drawn(kind: type) -> None:
    assert set(PARTS[kind]) == {field.name for field in fields(kind)}


def test_every_nested_value_is_in_the_table() -> None:
    assert set(NESTED_TYPES.values()) <= set(PARTS)
