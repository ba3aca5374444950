"""Two objects are compared by what they mean, not by how they are spelled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.ownership import KEY, corpus

from holdfast.core.diff import Change
from holdfast.core.ownership.canonical import (
    OBJECT_RULES,
    canonical_object,
    compare_objects,
    is_default,
    leaf_paths,
    path_of_pointer,
    rules_for,
    value_at,
)
from holdfast.core.ownership.managed_fields import Ownership
from holdfast.core.tree import Fields, parse_pointer, show_path

NOBODY = Ownership(entries=())
CORPUS = [pytest.param(item, id=f"{item['kind']}-{item['metadata']['name']}") for item in corpus()]


# Any, here and below: manifests as people write them.
def changes(desired: dict[str, Any], live: dict[str, Any]) -> tuple[Change, ...]:
    kind, version = str(desired.get("kind", "Pod")), str(desired.get("apiVersion", "v1"))
    rules = rules_for(kind, version, NOBODY)
    return compare_objects(
        desired=canonical_object(desired, rules, key=KEY),
        live=canonical_object(live, rules, key=KEY),
        rules=rules,
    )


def pod(**fields: Any) -> dict[str, Any]:
    return {"kind": "Pod", "spec": fields}


def container(**fields: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "app", **fields}])


@pytest.mark.parametrize(
    ("desired", "live"),
    [
        (
            container(resources={"limits": {"cpu": "0.5", "memory": "1024Mi"}}),
            container(resources={"limits": {"cpu": "500m", "memory": "1Gi"}}),
        ),
        (
            container(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]),
            container(env=[{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]),
        ),
        (
            container(ports=[{"containerPort": 80}]),
            container(ports=[{"containerPort": 80, "protocol": "TCP"}]),
        ),
        (container(), container(imagePullPolicy="Always")),
        (pod(nodeSelector={}, tolerations=[], priority=None), pod()),
        (
            pod(volumes=[{"name": "a", "projected": {"sources": [{"configMap": {"name": "x"}}]}}]),
            pod(
                volumes=[
                    {
                        "name": "a",
                        "projected": {
                            "defaultMode": 420,
                            "sources": [{"configMap": {"name": "x", "items": []}}],
                        },
                    }
                ]
            ),
        ),
        (
            {"kind": "Secret", "stringData": {"a": "x"}},
            {"kind": "Secret", "data": {"a": "eA==\n"}},
        ),
        (
            {"kind": "Pod", "metadata": {"creationTimestamp": None, "uid": "mine"}},
            {"kind": "Pod", "metadata": {"uid": "theirs"}, "status": {"phase": "Running"}},
        ),
    ],
    ids=[
        "quantities",
        "order",
        "key default",
        "default",
        "empty",
        "whole list",
        "secret",
        "server",
    ],
)
def test_spelling_order_and_defaults_are_no_change(
    desired: dict[str, Any], live: dict[str, Any]
) -> None:
    assert changes(desired, live) == ()


@pytest.mark.parametrize(
    ("desired", "live", "path"),
    [
        (
            container(env=[{"name": "A", "value": "1000m"}]),
            container(env=[{"name": "A", "value": "1"}]),
            "spec.containers[name=app].env[name=A].value",
        ),
        (pod(tolerations=[{"key": "a"}]), pod(tolerations=[{"key": "b"}]), "spec.tolerations"),
        (
            pod(nodeSelector={"a": "1"}),
            pod(nodeSelector={"a": "1", "b": "2"}),
            "spec.nodeSelector.b",
        ),
        (
            pod(volumes=[{"name": "v", "emptyDir": {}}]),
            pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
            "spec.volumes[name=v].emptyDir",
        ),
        (
            {"kind": "ConfigMap", "data": {"limits": "1000m"}},
            {"kind": "ConfigMap", "data": {"limits": "1"}},
            "data.limits",
        ),
        (
            {"kind": "NetworkPolicy", "spec": {"ingress": [{"ports": [{"port": 1}]}]}},
            {"kind": "NetworkPolicy", "spec": {"ingress": [{"ports": [{"port": 1}, {"port": 2}]}]}},
            "spec.ingress",
        ),
        (
            {"kind": "NetworkPolicy", "spec": {"ingress": []}},
            {"kind": "NetworkPolicy", "spec": {"ingress": [{}]}},
            "spec.ingress",
        ),
    ],
)
def test_a_real_change_is_found_at_its_path(
    desired: dict[str, Any], live: dict[str, Any], path: str
) -> None:
    assert [show_path(change.path) for change in changes(desired, live)] == [path]


@pytest.mark.parametrize("item", CORPUS)
def test_an_object_compared_with_itself_has_no_change(item: dict[str, Any]) -> None:
    assert changes(item, json.loads(json.dumps(item))) == ()


@pytest.mark.parametrize("item", [case for case in CORPUS if "Secret-" not in str(case.id)])
def test_the_canonical_form_of_a_canonical_form_is_itself(item: dict[str, Any]) -> None:
    rules = rules_for(item["kind"], item["apiVersion"], NOBODY)
    once = canonical_object(item, rules, key=KEY)
    assert canonical_object(once, rules, key=KEY) == once


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20), min_size=1, max_size=3))
def test_no_value_of_a_secret_survives(values: dict[str, str]) -> None:
    item: Fields = {"kind": "Secret", "stringData": dict(values)}
    data = canonical_object(item, OBJECT_RULES, key=KEY)["data"]
    assert isinstance(data, dict)
    assert data.keys() == values.keys()
    assert all(isinstance(mark, str) and mark.startswith("hmac:") for mark in data.values())


def test_a_copy_that_a_tool_kept_in_an_annotation_is_dropped() -> None:
    copied = "kubectl.kubernetes.io/last-applied-configuration"
    item: Fields = {"kind": "Secret", "metadata": {"annotations": {copied: "hunter2", "a": "b"}}}
    tree = canonical_object(item, OBJECT_RULES, key=KEY)
    assert value_at(tree, ("metadata", "annotations")) == {"a": "b"}


def test_a_pointer_counts_items_and_a_path_names_them() -> None:
    item = container(env=[{"name": "A"}, {"name": "B"}])
    path = path_of_pointer(item, parse_pointer("/spec/containers/0/env/1/value"), OBJECT_RULES)
    assert show_path(path) == "spec.containers[name=app].env[name=B].value"


def test_a_default_is_known_by_its_field_and_not_by_a_users_key() -> None:
    assert is_default(("spec", "strategy"), {"type": "RollingUpdate"})
    assert not is_default(("spec", "imagePullPolicy"), "Never")
    assert not is_default(("data", "type"), "Opaque")


def test_leaves_are_values_and_empty_mappings() -> None:
    assert list(leaf_paths({"a": {"b": 1, "c": {}}, "d": [1]})) == [("a", "b"), ("a", "c"), ("d",)]
