"""Which events call for a look, and at which service."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from holdfast.adapters.kubernetes.objects import ObjectKey
from holdfast.apps.operator.watches import (
    child_changed,
    service_changed,
    service_of_child,
    service_scaled_by,
    status_changed,
)

BOT = ObjectKey(namespace="shop", name="bot")


def deployment() -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "bot-primary",
            "namespace": "shop",
            "resourceVersion": "5",
            "generation": 1,
            "labels": {"holdfast.dev/workload": "bot"},
            "ownerReferences": [
                {
                    "apiVersion": "holdfast.dev/v1alpha1",
                    "kind": "InferenceService",
                    "name": "bot",
                    "uid": "u1",
                    "controller": True,
                }
            ],
            "managedFields": [
                {"manager": "us", "operation": "Apply", "time": "1", "fieldsV1": "{}"},
                {"manager": "kcm", "operation": "Update", "subresource": "status", "time": "1",
                 "fieldsV1": "{}"},
            ],
        },
        "spec": {"replicas": 2},
        "status": {
            "readyReplicas": 1,
            "conditions": [
                {"type": "Available", "status": "True", "reason": "X", "lastUpdateTime": "1"}
            ],
        },
    }  # fmt: skip


def changed(*path: Any, to: Any) -> dict[str, Any]:
    item = deployment()
    spot: Any = item
    for step in path[:-1]:
        spot = spot[step]
    spot[path[-1]] = to
    item["metadata"]["resourceVersion"] = "6"
    return item


@pytest.mark.parametrize(
    "new",
    [
        changed("spec", "replicas", to=3),
        changed("metadata", "labels", "mesh", to="on"),
        changed("metadata", "deletionTimestamp", to="now"),
        changed("metadata", "managedFields", 0, "fieldsV1", to='{"f:spec":{}}'),
        changed("metadata", "managedFields", 0, "manager", to="them"),
    ],
)
def test_a_child_that_may_matter_calls_for_a_look(new: dict[str, Any]) -> None:
    assert child_changed(deployment(), new)
    assert not status_changed(deployment(), new)


@pytest.mark.parametrize(
    "new",
    [
        changed("status", "readyReplicas", to=2),
        changed("status", "conditions", 0, "status", to="False"),
        changed("status", "parents", to=[{"conditions": [{"type": "Accepted"}]}]),
    ],
)
def test_a_status_that_says_something_new_is_told_from_the_rest(new: dict[str, Any]) -> None:
    assert status_changed(deployment(), new)
    assert not child_changed(deployment(), new)


@pytest.mark.parametrize(
    "new",
    [
        changed("metadata", "resourceVersion", to="6"),
        changed("metadata", "managedFields", 1, "time", to="2"),
        changed("metadata", "managedFields", 1, "fieldsV1", to='{"f:status":{}}'),
        changed("status", "conditions", 0, "lastUpdateTime", to="2"),
        changed("status", "currentMetrics", to=[{"cpu": 12}]),
        changed("status", "lastScaleTime", to="2"),
    ],
)
def test_clockwork_calls_for_none(new: dict[str, Any]) -> None:
    assert not child_changed(deployment(), new)
    assert not status_changed(deployment(), new)


def test_a_child_belongs_to_its_controller_by_uid() -> None:
    assert service_of_child(deployment()) == (BOT, "u1")


def test_a_child_that_lost_its_controller_is_known_by_its_label() -> None:
    orphan = changed("metadata", "ownerReferences", to=[])
    assert service_of_child(orphan) == (BOT, "")


def test_a_child_of_another_controller_is_not_ours_whatever_its_label_says() -> None:
    taken = deployment()
    taken["metadata"]["ownerReferences"][0]["kind"] = "Rollout"
    assert service_of_child(taken) is None


@pytest.mark.parametrize(
    ("target", "key"),
    [
        ({"kind": "Deployment", "name": "bot-primary"}, BOT),
        ({"kind": "Deployment", "name": "bot-canary"}, BOT),
        ({"kind": "Deployment", "name": "other"}, None),
        ({"kind": "StatefulSet", "name": "bot-primary"}, None),
        (None, None),
    ],
)
def test_an_autoscaler_concerns_the_service_whose_deployment_it_targets(
    target: Any, key: ObjectKey | None
) -> None:
    item = {"metadata": {"name": "hpa", "namespace": "shop"}, "spec": {"scaleTargetRef": target}}
    assert service_scaled_by(item) == key


def test_a_status_of_our_own_calls_for_no_look_and_a_new_spec_does() -> None:
    old = {"metadata": {"uid": "u", "generation": 1}, "status": {}}
    told = copy.deepcopy(old) | {"status": {"ready": True}}
    assert not service_changed(old, told)
    for name, value in (("generation", 2), ("annotations", {"a": "b"}), ("uid", "other"),
                        ("deletionTimestamp", "now")):  # fmt: skip
        new = copy.deepcopy(old)
        new["metadata"][name] = value
        assert service_changed(old, new)
