"""From events to what has to be looked at: everything that counts, and nothing that only ticks."""

from __future__ import annotations

import copy
from typing import Any

from holdfast.apps.gitops.object_index import AffectedObject, affected_objects
from holdfast.core.object_ref import ObjectRef


# Any: objects of the Kubernetes API, which tests change at will.
def deployment(**status: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), 1)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "generation": 1, "resourceVersion": "1"},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, "availableReplicas": 1, **counts, **status},
    }


def changed(item: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    other = copy.deepcopy(item)
    other["metadata"].update({"resourceVersion": "2", **metadata})
    return other


WEB = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="shop", name="web")


def test_a_new_or_vanished_object_is_looked_at_at_once() -> None:
    item = deployment()
    assert list(affected_objects(None, item)) == [AffectedObject(ref=WEB)]
    assert list(affected_objects(item, None)) == [AffectedObject(ref=WEB)]


def test_an_edit_is_looked_at_at_once() -> None:
    before = deployment()
    after = changed(before)
    after["spec"]["replicas"] = 3
    assert list(affected_objects(before, after)) == [AffectedObject(ref=WEB)]


def test_a_lost_label_counts_as_an_edit() -> None:
    before = changed(deployment(), labels={"a": "b"})
    assert list(affected_objects(before, changed(before, labels={}))) == [AffectedObject(ref=WEB)]


def test_a_status_that_says_how_it_does_is_looked_at_soon() -> None:
    before = deployment()
    after = changed(deployment(readyReplicas=0, availableReplicas=0))
    assert list(affected_objects(before, after)) == [AffectedObject(ref=WEB, soon=True)]


def test_a_status_that_only_ticks_is_no_news() -> None:
    condition = {"type": "Available", "status": "True", "lastUpdateTime": "2026-11-16T12:00:00Z"}
    later = {**condition, "lastUpdateTime": "2026-11-16T12:05:00Z"}
    before, after = deployment(conditions=[condition]), changed(deployment(conditions=[later]))
    assert list(affected_objects(before, after)) == []


def service(head: str, *, moved: str = "True") -> dict[str, Any]:
    return {
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "shop", "resourceVersion": "1"},
        "spec": {"modelRevision": "a" * 40},
        "status": {
            "model": {"head": head},
            "conditions": [{"type": "ModelMoved", "status": moved}],
        },
    }


def test_a_model_whose_branch_moved_is_looked_at_soon() -> None:
    at_pin, at_next, at_last = (
        service("a" * 40, moved="False"),
        service("b" * 40),
        service("c" * 40),
    )
    for before, after in ((at_pin, at_next), (at_next, at_last), (at_last, at_pin)):
        assert [each.soon for each in affected_objects(before, changed(after))] == [True]
    assert list(affected_objects(at_next, changed(at_next))) == []


def test_what_a_controller_made_is_marked_as_nobodys_orphan() -> None:
    owner = {"kind": "ReplicaSet", "name": "x", "controller": True}
    made = changed(deployment(), ownerReferences=[owner])
    assert [each.kept for each in affected_objects(None, made)] == [True]


def test_an_autoscaler_leads_to_what_it_scales_and_scaled() -> None:
    def scaler(name: str) -> dict[str, Any]:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        return {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "bot", "namespace": "shop"},
            "spec": {"scaleTargetRef": target},
        }

    found = {each.ref.name for each in affected_objects(scaler("web"), scaler("db"))}
    assert found == {"bot", "web", "db"}


def test_a_pod_that_runs_another_image_leads_to_its_workload_and_its_secrets() -> None:
    def pod(image: str) -> dict[str, Any]:
        owner = {"kind": "ReplicaSet", "name": "web-abc", "controller": True}
        env = [{"valueFrom": {"secretKeyRef": {"name": "token"}}}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "web-abc-1",
                "namespace": "shop",
                "ownerReferences": [owner],
                "labels": {"pod-template-hash": "abc"},
            },
            "spec": {"containers": [{"name": "c", "env": env}]},
            "status": {"containerStatuses": [{"name": "c", "imageID": image}]},
        }

    secret = ObjectRef(api_version="v1", kind="Secret", namespace="shop", name="token")
    found = {each.ref for each in affected_objects(pod("x@sha256:1"), pod("x@sha256:2"))}
    assert {WEB, secret} <= found
