"""One pass at a time: what is said, what is written, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.inference_services import canary
from tests.support.operator_world import GATEWAY, KIND, NAME, OperatorWorld

from holdfast.core.errors import (
    HoldfastError,
    InvalidSpec,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.service.spec import InferenceService, InferenceServiceSpec
from holdfast.operator import MemoryKube, Reconciler
from holdfast.reconcile.kube import KindNotServed, KubeConflict
from holdfast.wire.inference_service_v1alpha1 import service_from_json

BOUNDS = {"minReplicas": 2, "maxReplicas": 10}
HPA = "HorizontalPodAutoscaler"


def autoscaler(name: str, target: str = f"{NAME}-primary") -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": HPA,
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 9},
    }


def test_a_service_that_is_being_deleted_is_left_alone(world: OperatorWorld) -> None:
    service = world.declare()
    world.client.calls.clear()
    world.run(world.reconciler.reconcile(replace(service, deleting=True)))
    assert world.client.calls == []


def test_a_stored_service_that_is_wrong_is_told_so_and_left_as_it_runs(
    world: OperatorWorld,
) -> None:
    world.declare()
    world.converge()
    service = world.service()
    wrong = replace(service, generation=9, spec=replace(service.spec, replicas=-1))
    world.client.calls.clear()
    result = world.run(world.reconciler.reconcile(wrong))
    assert [call.subresource for call in world.client.writes] == ["status"]
    assert world.condition("Ready") == ("False", "InvalidSpec")
    assert result.requeue_after is None
    assert [note.reason for note in result.notes] == ["InvalidSpec"]
    assert world.primary()["spec"]["replicas"] == 2
    assert world.condition("Available")[0] == "True"


def test_a_wrong_service_that_is_not_stored_is_refused_before_any_call(
    world: OperatorWorld,
) -> None:
    spec = InferenceServiceSpec(model_ref="a/b", replicas=-1)
    with pytest.raises(InvalidSpec):
        world.run(world.reconciler.reconcile(InferenceService(name=NAME, spec=spec)))
    assert world.client.calls == []


def test_a_service_that_is_not_stored_is_served_and_deleted(world: OperatorWorld) -> None:
    client = MemoryKube()
    reconciler = Reconciler(client)
    service = InferenceService(name=NAME, spec=InferenceServiceSpec(model_ref="a/b", replicas=2))
    result = world.run(reconciler.reconcile(service))
    assert [note.reason for note in result.notes].count("Created") == 4
    again = world.run(reconciler.reconcile(replace(service, status=result.status)))
    assert again.notes == ()
    assert world.run(reconciler.delete(service))
    assert not world.run(reconciler.delete(service))


def test_a_pass_after_only_a_status_changed_writes_no_child(world: OperatorWorld) -> None:
    world.declare()
    world.reconcile()
    world.settle()
    world.reconcile()
    assert {call.subresource for call in world.client.writes} == {"status"}
    world.reconcile()
    assert world.client.writes == []


def test_a_time_moves_only_when_its_condition_does(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    before = world.service().status
    world.clock.time = world.clock.time.replace(hour=20)
    world.declare({"replicas": 3})
    world.converge()
    after = world.service().status
    assert before
    assert after
    times = {each.type: each.last_transition_time for each in before.conditions}
    assert {each.type: each.last_transition_time for each in after.conditions}[
        "Available"
    ] == times["Available"]


def test_it_stays_available_during_a_rollout_and_is_not_ready(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    world.declare({"env": {"A": "1"}})
    world.reconcile()
    world.play(world.primary(), ready=2, updated=1)
    world.reconcile()
    assert world.condition("Available") == ("True", "Serving")
    assert world.condition("Ready") == ("False", "RollingOut")
    assert world.condition("Progressing") == ("True", "RollingOut")


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_what_a_user_writes_on_a_service_at_rest_reaches_its_children_and_no_pod(
    world: OperatorWorld, where: str
) -> None:
    world.declare()
    world.converge()
    template = world.primary()["spec"]["template"]
    held = world.get(KIND, NAME)["metadata"].get(where) or {}
    value = {**held, "example.com/team": "chat", "argocd.argoproj.io/instance": "shop"}
    world.edit(KIND, NAME, {"op": "add", "path": f"/metadata/{where}", "value": value})
    world.reconcile()
    for kind, name in (("Deployment", f"{NAME}-primary"), ("Service", f"{NAME}-svc")):
        found = world.get(kind, name)["metadata"][where]
        assert found["example.com/team"] == "chat"
        assert "argocd.argoproj.io/instance" not in found
    assert world.primary()["spec"]["template"] == template
    value = {name: each for name, each in value.items() if name != "example.com/team"}
    world.edit(KIND, NAME, {"op": "add", "path": f"/metadata/{where}", "value": value})
    world.reconcile()
    assert "example.com/team" not in world.primary()["metadata"][where]


def pod(name: str, **state: Any) -> dict[str, Any]:
    labels = {"holdfast.dev/workload": NAME, "holdfast.dev/role": "primary"}
    status = {"containerStatuses": [{"name": "server", "state": state, "restartCount": 1}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "server", "image": "x"}]},
        "status": status,
    }


def test_it_is_not_ready_while_a_pod_crashes_and_says_which(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    world.apply(pod("my-llama-primary-x"))
    status: Any = pod("", waiting={"reason": "CrashLoopBackOff"})["status"]
    world.edit("Pod", "my-llama-primary-x", {"op": "add", "path": "/status", "value": status},
               at="status", by="kubelet")  # fmt: skip
    world.settle(primary=1)
    result = world.reconcile()
    assert "NotReady" in [note.reason for note in result.notes]
    assert result.requeue_after is not None, "a pod that fails sends no event of ours"
    world.clock.time += timedelta(seconds=result.requeue_after)
    result = world.reconcile()
    assert world.condition("Ready") == ("False", "PodsFailing")
    assert world.condition("Available")[0] == "True"
    assert world.condition("Degraded") == ("True", "PodsFailing")
    assert "CrashLoopBackOff" in result.status.message
    assert [note.reason for note in result.notes] == ["PodsFailing"]
    assert world.reconcile().notes == ()  # told once


def test_a_probe_that_kills_a_pod_is_told_in_its_own_words(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    killed = pod("my-llama-primary-x")
    ask = {"httpGet": {"path": "/nowhere", "port": 8000}}
    killed["spec"]["containers"][0]["startupProbe"] = ask
    uid = world.apply(killed)["metadata"]["uid"]
    started = "2026-11-18T05:00:00Z"
    ended = {"reason": "Error", "exitCode": 137, "startedAt": started}
    state = {"name": "server", "state": {"running": {}}, "restartCount": 1,
             "lastState": {"terminated": ended}}  # fmt: skip
    world.edit("Pod", "my-llama-primary-x",
               {"op": "add", "path": "/status", "value": {"containerStatuses": [state]}},
               at="status", by="kubelet")  # fmt: skip
    said = "Startup probe failed: HTTP probe failed with statuscode: 404"
    kill = "Container server failed startup probe, will be restarted"
    for reason, message in (("Unhealthy", said), ("Killing", kill)):
        about = {"kind": "Pod", "namespace": world.namespace, "uid": uid}
        world.apply({"apiVersion": "v1", "kind": "Event", "involvedObject": about,
                     "metadata": {"name": reason.lower()}, "reason": reason, "message": message,
                     "lastTimestamp": started}, by="kubelet")  # fmt: skip
    world.settle(primary=1)
    result = world.reconcile()
    world.clock.time += timedelta(seconds=result.requeue_after or 0)
    world.client.calls.clear()
    result = world.reconcile()
    assert f"{said} (GET /nowhere)" in result.status.message
    assert world.condition("Degraded") == ("True", "PodsFailing")
    assert [call.kind for call in world.client.calls].count("Event") == 1

    denied = PermissionDenied("events is forbidden")
    world.client.failing = lambda call: denied if call.kind == "Event" else None
    result = world.reconcile()
    assert "ended with Error, exit code 137, restarted once" in result.status.message


def seen_pod(ready: bool, restarts: int = 0) -> dict[str, Any]:
    found = pod("my-llama-primary-x")
    states = [{"name": "server", "state": {"running": {}}, "restartCount": restarts,
               "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]  # fmt: skip
    conditions = [{"type": "Ready", "status": str(ready)}]
    found["status"] = {"containerStatuses": states, "conditions": conditions}
    return found


def test_a_pod_that_does_not_stay_ready_is_told_although_it_is_ready_now(
    world: OperatorWorld,
) -> None:
    world.declare()
    world.converge()
    world.apply(pod("my-llama-primary-x"))
    for count in (1, 2, 3):
        assert world.reconcile().notes == ()
        assert world.condition("Degraded") == ("False", "Healthy"), "a restart or two are none"
        world.clock.time += timedelta(seconds=60)
        world.pod_seen(seen_pod(True, count - 1), seen_pod(False, count))
        world.pod_seen(seen_pod(False, count), seen_pod(True, count))
    status = seen_pod(True, 3)["status"]
    world.edit("Pod", "my-llama-primary-x", {"op": "add", "path": "/status", "value": status},
               at="status", by="kubelet")  # fmt: skip
    result = world.reconcile()
    assert [note.reason for note in result.notes] == ["PodsFlapping"]
    assert world.condition("Degraded") == ("True", "PodsFlapping")
    assert world.condition("Ready") == ("True", "Serving"), "it serves"
    assert "stopped being ready 3 times within 30 minutes" in world.says("Degraded")
    assert "OOMKilled" in world.says("Degraded")
    assert world.reconcile().notes == ()  # told once

    assert result.requeue_after is not None, "no event says that it has calmed down"
    world.clock.time += timedelta(seconds=result.requeue_after)
    world.reconcile()
    assert world.condition("Degraded") == ("False", "Healthy")


def test_a_flapping_pod_that_is_gone_is_forgotten(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    for _ in range(3):
        world.pod_seen(seen_pod(True), seen_pod(False))
    world.pod_seen(seen_pod(False), None)
    world.reconcile()
    assert world.condition("Degraded") == ("False", "Healthy")


def lose_node(world: OperatorWorld) -> None:
    """Put the one pod of a service that is ready on a node that stops answering."""
    world.declare()
    world.converge()
    lost = pod("my-llama-primary-x")
    lost["spec"]["nodeName"] = "gpu-1"
    world.apply(lost)
    status: Any = {"conditions": [{"type": "Ready", "status": "False"}]}
    world.edit("Pod", "my-llama-primary-x", {"op": "add", "path": "/status", "value": status},
               at="status", by="kubelet")  # fmt: skip
    world.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}})
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-18T05:00:00Z",
             "message": "Kubelet stopped posting node status."}  # fmt: skip
    world.edit("Node", "gpu-1", {"op": "add", "path": "/status", "value": {"conditions": [ready]}},
               at="status", by="kube-controller-manager")  # fmt: skip
    world.settle(primary=1)
    result = world.reconcile()
    world.clock.time += timedelta(seconds=result.requeue_after or 0)


def test_a_lost_node_is_named_as_the_cause_and_nothing_is_deleted(world: OperatorWorld) -> None:
    lose_node(world)
    world.client.calls.clear()
    result = world.reconcile()
    assert world.condition("Degraded") == ("True", "HardwareFailing")
    assert world.condition("Ready") == ("False", "HardwareFailing")
    assert (
        "cause hardware: node gpu-1 Unreachable since 2026-11-18T05:00:00Z" in result.status.message
    )
    assert [note.reason for note in result.notes] == ["HardwareFailing"]
    assert [call.subresource for call in world.client.writes] == ["status"]
    (row,) = result.status.hardware or ()
    assert (row.pod, row.node, row.condition) == ("my-llama-primary-x", "gpu-1", "Unreachable")
    assert row.since == "2026-11-18T05:00:00Z"
    assert world.reconcile().notes == ()  # told once


def crash_with_gpu(world: OperatorWorld) -> None:
    """Have the one pod of a service crash on a node that is well, with a GPU of it."""
    world.declare()
    world.converge()
    crashing = pod("my-llama-primary-x", waiting={"reason": "CrashLoopBackOff"})
    status = crashing.pop("status")
    gpu = {"name": "server", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    crashing["spec"] = {**crashing["spec"], "nodeName": "gpu-1", "containers": [gpu]}
    world.apply(crashing)
    world.edit("Pod", "my-llama-primary-x", {"op": "add", "path": "/status", "value": status},
               at="status", by="kubelet")  # fmt: skip
    world.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}})
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    world.edit("Node", "gpu-1", {"op": "add", "path": "/status", "value": ready},
               at="status", by="kubelet")  # fmt: skip
    world.settle(primary=1)
    result = world.reconcile()
    world.clock.time += timedelta(seconds=result.requeue_after or 0)


def test_a_crash_is_explained_by_an_xid_in_an_event_about_its_node(world: OperatorWorld) -> None:
    crash_with_gpu(world)
    for name, node in (("a", "gpu-1"), ("b", "gpu-2")):
        world.apply({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": node}, "type": "Warning",
            "reason": "XIDError", "message": f"NVRM: Xid (PCI:0000:{name * 2}:00): 79, pid=1",
        })  # fmt: skip
    world.client.calls.clear()
    result = world.reconcile()
    assert world.condition("Degraded") == ("True", "HardwareFailing")
    said = result.status.message
    assert "node gpu-1 Xid 79" in said
    assert "GPU has fallen off the bus, PCI 0000:aa:00" in said
    assert "0000:bb" not in said
    assert [call.subresource for call in world.client.writes] == ["status"]


def test_events_that_cannot_be_read_leave_an_xid_unknown_and_say_so(world: OperatorWorld) -> None:
    crash_with_gpu(world)
    denied = PermissionDenied("events is forbidden")
    world.client.failing = lambda call: denied if call.kind == "Event" else None
    result = world.reconcile()
    assert world.condition("Degraded") == ("True", "PodsFailing")
    assert "whether a GPU reported an Xid is unknown" in result.status.message
    assert result.status.hardware is None


def test_nodes_that_cannot_be_read_leave_the_cause_unknown_and_say_so(
    world: OperatorWorld,
) -> None:
    world.declare()
    world.converge()
    crashing = pod("my-llama-primary-x")
    crashing["spec"]["nodeName"] = "gpu-1"
    world.apply(crashing)
    status: Any = pod("", waiting={"reason": "CrashLoopBackOff"})["status"]
    world.edit("Pod", "my-llama-primary-x", {"op": "add", "path": "/status", "value": status},
               at="status", by="kubelet")  # fmt: skip
    world.settle(primary=1)
    result = world.reconcile()
    world.clock.time += timedelta(seconds=result.requeue_after or 0)
    denied = PermissionDenied("nodes is forbidden")
    world.client.failing = lambda call: denied if call.kind == "Node" else None
    result = world.reconcile()
    assert world.condition("Degraded") == ("True", "PodsFailing")
    assert "so whether hardware is the cause is unknown" in result.status.message


def test_pods_that_cannot_be_listed_leave_open_whether_one_fails(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    world.settle(primary=0)
    result = world.reconcile()
    degraded = next(each for each in result.status.conditions if each.type == "Degraded")
    assert (degraded.status, degraded.message) == (
        "False",
        "Pods are starting; none is known to fail.",
    )
    world.clock.time += timedelta(seconds=result.requeue_after or 0)
    denied = PermissionDenied("pods is forbidden")
    world.client.failing = lambda call: denied if call.kind == "Pod" else None
    world.reconcile()
    assert world.condition("Degraded") == ("Unknown", "PodsUnread")
    world.client.failing = lambda call: None
    world.reconcile()
    assert world.condition("Degraded") == ("False", "Healthy")


def test_ready_and_not_ready_are_told_once(world: OperatorWorld) -> None:
    world.declare()
    told = [note.reason for note in world.reconcile().notes]
    assert "NotReady" not in told, "it has never been ready"
    world.settle()
    assert [note.reason for note in world.reconcile().notes] == ["Ready"]
    world.settle(primary=0)
    assert [note.reason for note in world.reconcile().notes] == ["NotReady"]
    assert world.reconcile().notes == ()


def test_an_object_of_another_service_is_named_with_its_owner(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    service = world.service()
    other = replace(service, uid="another-uid")
    world.client.calls.clear()
    result = world.run(world.reconciler.reconcile(other))
    assert not [call for call in world.client.writes if call.subresource != "status"]
    assert "belongs to InferenceService my-llama" in result.status.message
    assert not world.run(world.reconciler.delete(other)), "nothing of it is deleted either"


def test_another_autoscaler_is_reported_and_its_number_left(world: OperatorWorld) -> None:
    world.declare({"replicas": 2})
    world.converge()
    world.apply(autoscaler("theirs"))
    world.scale(5, by="kube-controller-manager")
    world.declare({"replicas": 3, "env": {"A": "1"}})
    world.converge()
    assert world.primary()["spec"]["replicas"] == 5
    assert world.condition("AutoscalingReady") == ("False", "AnotherAutoscaler")
    assert "HorizontalPodAutoscaler/theirs" in world.says("AutoscalingReady")
    assert world.find(HPA, "theirs")


def test_a_second_autoscaler_is_not_put_beside_another(world: OperatorWorld) -> None:
    world.apply(autoscaler("theirs"))
    world.declare(BOUNDS)
    world.converge()
    assert world.find(HPA, f"{NAME}-hpa") is None


def test_the_autoscaler_s_word_is_passed_on(world: OperatorWorld) -> None:
    world.declare(BOUNDS)
    world.converge()
    conditions: Any = [
        {"type": "AbleToScale", "status": "True", "reason": "SucceededGetScale"},
        {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric",
         "message": "no metrics"},
    ]  # fmt: skip
    world.edit(HPA, f"{NAME}-hpa", {"op": "add", "path": "/status", "value":
               {"conditions": conditions}}, at="status", by="kube-controller-manager")  # fmt: skip
    world.reconcile()
    assert world.condition("AutoscalingReady") == ("False", "FailedGetResourceMetric")


def test_a_person_s_scaling_of_a_fixed_number_is_drift(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    world.scale(9, by="kubectl")
    result = world.reconcile()
    assert world.primary()["spec"]["replicas"] == 2
    assert "kubectl changed spec.replicas" in str(result.notes)


def test_without_the_gateway_api_nothing_is_missed(world: OperatorWorld) -> None:
    cluster: Any = world.client.client
    cluster.unserve("HTTPRoute")
    world.declare()
    world.converge()
    assert world.condition("RoutesReady") == ("True", "ServiceOnly")


def test_with_a_gateway_a_missing_kind_is_an_error(routed: OperatorWorld) -> None:
    cluster: Any = routed.client.client
    cluster.unserve("HTTPRoute")
    routed.declare()
    with pytest.raises(KindNotServed):
        routed.reconcile()
    assert routed.condition("Reconciling") == ("False", "ApiError")


def accept(world: OperatorWorld) -> None:
    """Play the gateway's controller."""
    route = world.get("HTTPRoute", NAME)
    generation = route["metadata"]["generation"]
    conditions = [
        {"type": kind, "status": "True", "observedGeneration": generation}
        for kind in ("Accepted", "ResolvedRefs")
    ]
    parents = [{"parentRef": route["spec"]["parentRefs"][0], "conditions": conditions}]
    operation: Any = {"op": "add", "path": "/status", "value": {"parents": parents}}
    world.edit("HTTPRoute", NAME, operation, by="gateway", at="status")


def backends(world: OperatorWorld) -> dict[str, int]:
    (rule,) = world.get("HTTPRoute", NAME)["spec"]["rules"]
    return {each["name"]: each["weight"] for each in rule["backendRefs"]}


def test_a_route_carries_the_weight_once_the_canary_is_ready(routed: OperatorWorld) -> None:
    routed.declare(canary())
    routed.reconcile()
    assert backends(routed) == {"my-llama-primary": 100}
    assert routed.condition("RoutesReady") == ("False", "NotAccepted")
    routed.settle()
    accept(routed)
    routed.reconcile()
    assert backends(routed) == {"my-llama-primary": 80, "my-llama-canary": 20}
    accept(routed)
    result = routed.reconcile()
    assert routed.condition("RoutesReady") == ("True", "Accepted")
    assert result.status.url == f"https://{NAME}.default.example.com"
    assert (result.status.split_mode, result.status.canary_weight) == ("Gateway", 20)


def test_a_canary_leaves_the_route_before_it_is_deleted(routed: OperatorWorld) -> None:
    routed.declare(canary())
    for _ in range(4):
        routed.reconcile()
        routed.settle()
        accept(routed)
    routed.declare()
    routed.reconcile()
    assert backends(routed) == {"my-llama-primary": 100}
    assert routed.find("Deployment", f"{NAME}-canary"), "the gateway has not said yes yet"
    routed.reconcile()
    assert routed.find("Deployment", f"{NAME}-canary")
    accept(routed)
    result = routed.reconcile()
    assert routed.find("Deployment", f"{NAME}-canary"), "requests may end first"
    assert result.requeue_after
    routed.converge()
    assert routed.find("Deployment", f"{NAME}-canary") is None


def test_an_operator_that_was_told_of_no_gateway_deletes_no_route(routed: OperatorWorld) -> None:
    """The absence of a flag takes nothing away: the route stays, and is kept as it stands."""
    routed.declare(canary())
    for _ in range(4):
        routed.reconcile()
        routed.settle()
        accept(routed)
    routed.restart()
    routed.converge()
    assert backends(routed) == {"my-llama-primary": 80, "my-llama-canary": 20}
    routed.declare()
    routed.reconcile()
    assert backends(routed) == {"my-llama-primary": 100}, "it shares requests out as before"
    assert routed.service().status.url == f"https://{NAME}.default.example.com"


def test_a_route_that_the_user_deletes_stays_away_without_a_gateway(routed: OperatorWorld) -> None:
    routed.declare()
    routed.reconcile()
    routed.restart()
    routed.delete("HTTPRoute", NAME)
    routed.reconcile()
    assert routed.find("HTTPRoute", NAME) is None
    routed.restart(GATEWAY)
    routed.reconcile()
    assert routed.find("HTTPRoute", NAME)


def test_a_route_that_others_moved_is_left_by_who_knows_no_gateway(routed: OperatorWorld) -> None:
    routed.declare()
    routed.reconcile()
    hosts: Any = {"op": "replace", "path": "/spec/hostnames", "value": ["else.example.org"]}
    routed.edit("HTTPRoute", NAME, hosts)
    routed.restart()
    routed.reconcile()
    assert routed.get("HTTPRoute", NAME)["spec"]["hostnames"] == ["else.example.org"]


def test_what_somebody_changed_since_it_was_seen_is_not_deleted(world: OperatorWorld) -> None:
    """A delete holds for the object as it was seen, and a status that moved is no change."""
    world.declare({"minReplicas": 1, "maxReplicas": 3})
    world.converge()
    name = f"{NAME}-hpa"
    moved = []

    def somebody_is_first(call: Any) -> None:
        if call.verb == "delete" and not moved:
            moved.append(call)
            cluster: Any = world.client.client
            cluster.edit(
                world.ref("HorizontalPodAutoscaler", name),
                lambda live: live["spec"].update(maxReplicas=7),
            )

    world.client.failing = somebody_is_first
    world.declare()
    with pytest.raises(KubeConflict):
        world.reconcile()
    assert world.get("HorizontalPodAutoscaler", name)["spec"]["maxReplicas"] == 7


def test_a_status_that_moves_does_not_stop_a_deletion(world: OperatorWorld) -> None:
    world.declare({"minReplicas": 1, "maxReplicas": 3})
    world.converge()
    name = f"{NAME}-hpa"
    moved = []

    def status_moves(call: Any) -> None:
        if call.verb == "delete" and len(moved) < 2:
            moved.append(call)
            cluster: Any = world.client.client
            cluster.edit(
                world.ref("HorizontalPodAutoscaler", name),
                lambda live: live.update(status={"currentReplicas": len(moved)}),
                subresource="status",
            )

    world.client.failing = status_moves
    world.declare()
    world.reconcile()
    assert world.find("HorizontalPodAutoscaler", name) is None


def test_a_failed_read_beside_a_canary_moves_no_traffic(world: OperatorWorld) -> None:
    world.declare({"replicas": 4, **canary(weight=25)})
    world.converge()
    before = world.get("Service", f"{NAME}-svc")["metadata"]["resourceVersion"]
    world.client.failing = lambda call: (
        TargetUnavailable("No answer.")
        if (call.verb, call.kind, call.name) == ("get", "Deployment", f"{NAME}-canary")
        else None
    )
    world.declare({"replicas": 4})
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    assert world.get("Service", f"{NAME}-svc")["metadata"]["resourceVersion"] == before
    status = world.service().status
    assert status is not None
    assert status.canary_weight == 25


def test_a_refusal_of_rights_is_said_and_the_rest_goes_on(world: OperatorWorld) -> None:
    world.declare()
    world.client.failing = lambda call: (
        PermissionDenied("You may not.")
        if (call.verb, call.kind) == ("apply", "PodDisruptionBudget")
        else None
    )
    with pytest.raises(PermissionDenied):
        world.reconcile()
    assert world.find("Deployment", f"{NAME}-primary")
    assert "You may not." in world.says("Reconciling")


@pytest.mark.parametrize("refusal", [ValidationError, PermissionDenied])
def test_a_write_that_admission_denies_is_a_condition_and_a_note(
    world: OperatorWorld, refusal: type[HoldfastError]
) -> None:
    world.declare()
    world.converge()
    world.set_image()
    world.client.failing = lambda call: (
        refusal("admission webhook policy.example denied the request")
        if (call.verb, call.kind) == ("apply", "Deployment")
        else None
    )
    with pytest.raises(refusal):
        world.reconcile()
    assert world.condition("UpToDate") == ("False", "WriteRefused")
    assert world.condition("Reconciling") == ("False", "WriteRefused")
    told = world.reconciler.take_notes(world.service())
    assert ("WriteRefused", True) in [(note.reason, note.warning) for note in told]
    assert "policy.example" in world.says("UpToDate")
    with pytest.raises(refusal):
        world.reconcile()
    assert world.reconciler.take_notes(world.service()) == (), "a state that lasts is told once"
    world.client.failing = lambda call: None
    world.converge()
    assert world.condition("UpToDate") == ("True", "AsDeclared")


def test_an_upgrade_of_the_operator_changes_no_pod(world: OperatorWorld) -> None:
    """The renderer's version stands on every child; the pods' template does not carry it."""
    world.declare()
    world.converge()
    found = world.primary()
    assert found["metadata"]["annotations"]["holdfast.dev/renderer"] == "1"
    assert "holdfast.dev/renderer" not in found["spec"]["template"]["metadata"]["annotations"]


def test_a_child_on_its_way_out_is_waited_for(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    held: Any = {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/held"]}
    world.edit("Service", f"{NAME}-svc", held, by="somebody")
    world.delete("Service", f"{NAME}-svc")
    world.reconcile()
    assert not world.client.of("Service")
    assert world.condition("UpToDate") == ("False", "Waiting")
    released: Any = {"op": "remove", "path": "/metadata/finalizers"}
    world.edit("Service", f"{NAME}-svc", released, by="somebody")
    world.converge()
    assert world.condition("Ready") == ("True", "Serving")


def test_a_service_deleted_in_the_meantime_is_no_error(world: OperatorWorld) -> None:
    service = world.declare()
    world.delete("InferenceService", NAME)
    result = world.run(world.reconciler.reconcile(service))
    assert result.status.observed_generation == service.generation


def test_children_of_a_service_that_went_with_it_are_not_created_again(
    world: OperatorWorld,
) -> None:
    """The deletion of a child may be seen before that of its owner: those are two watches."""
    world.declare()
    world.converge()
    service = world.service()
    world.delete("InferenceService", NAME)
    assert not world.find("Service", f"{NAME}-svc"), "collected"
    before = len(world.client.writes)
    result = world.run(world.reconciler.reconcile(service))
    assert world.client.writes[before:] == []
    assert result.notes == ()


def test_children_of_a_service_that_is_on_its_way_out_are_not_created_again(
    world: OperatorWorld,
) -> None:
    world.declare()
    world.converge()
    service = world.service()
    finalizer: Any = {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/kept"]}
    world.edit("InferenceService", NAME, finalizer, by="somebody")
    world.delete("InferenceService", NAME)
    world.delete("Service", f"{NAME}-svc")
    before = len(world.client.writes)
    world.run(world.reconciler.reconcile(service))
    assert world.client.writes[before:] == []


def test_an_autoscaler_that_cannot_be_deleted_keeps_its_number(world: OperatorWorld) -> None:
    """The number is taken back only once nobody else would change it again."""
    world.declare(BOUNDS)
    world.converge()
    world.scale(7, by="kube-controller-manager")
    world.declare({"replicas": 3})
    world.client.failing = lambda call: (
        TargetUnavailable("No answer.") if (call.verb, call.kind) == ("delete", HPA) else None
    )
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    assert world.primary()["spec"]["replicas"] == 7
    world.client.failing = lambda call: None
    world.converge()
    assert world.primary()["spec"]["replicas"] == 3


def foreign_deployment(world: OperatorWorld, replicas: int) -> None:
    """A Deployment of somebody else's under the name of our primary, with its pods ready."""
    labels = {"app": "theirs"}
    container = {"name": "c", "image": "theirs:1"}
    world.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"{NAME}-primary"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
    )
    world.play(world.primary())


def test_the_pods_of_a_foreign_deployment_are_not_counted(world: OperatorWorld) -> None:
    foreign_deployment(world, 7)
    world.declare()
    world.reconcile()
    status = world.service().status
    assert status is not None
    assert (status.replicas, status.ready_replicas) == (0, 0)
    assert world.condition("Available") == ("False", "NoReplicaReady")
    assert world.condition("UpToDate") == ("False", "ForeignObject")


def test_a_foreign_deployment_that_goes_leaves_no_number_behind(world: OperatorWorld) -> None:
    foreign_deployment(world, 7)
    world.declare({"replicas": None, **BOUNDS})
    world.reconcile()
    world.delete("Deployment", f"{NAME}-primary")
    result = world.reconcile()
    assert world.primary()["spec"]["replicas"] == 2
    assert "DriftHealed" not in [note.reason for note in result.notes], "it was never ours"


def later_version(world: OperatorWorld, **fields: Any) -> InferenceService:
    """The service as an operator reads it that does not know some of its fields."""
    item = world.get("InferenceService", NAME)
    item["spec"] |= fields
    return service_from_json(item, lenient=True)


def test_a_field_of_a_later_version_is_named_and_drift_is_still_healed(
    world: OperatorWorld,
) -> None:
    world.declare()
    world.converge()
    before = world.primary()["spec"]["template"]["spec"]["containers"][0]["image"]
    service = later_version(world, topology={"racks": 2})
    world.set_image("evil:1")
    result = world.run(world.reconciler.reconcile(service))
    assert world.primary()["spec"]["template"]["spec"]["containers"][0]["image"] == before
    assert {"DriftHealed", "UnknownFields"} <= {note.reason for note in result.notes}
    found = {each.type: (each.status, each.reason) for each in result.status.conditions}
    assert found["UpToDate"] == ("Unknown", "UnknownFields")
    assert found["Ready"][0] != "True"
    assert "spec.topology" in world.says("UpToDate")


def test_where_a_field_is_not_known_nobody_says_that_nothing_drifted(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    result = world.run(world.reconciler.reconcile(later_version(world, topology={"racks": 2})))
    found = {each.type: (each.status, each.reason) for each in result.status.conditions}
    assert found["DriftDetected"] == ("Unknown", "UnknownFields")


def test_what_a_later_version_rendered_is_not_taken_back(world: OperatorWorld) -> None:
    """What differs may be what the unknown field asks for: only a version that knows can tell."""
    world.declare({"env": {"MADE": "by a later version"}})
    world.converge()
    before = world.primary()["spec"]
    item = world.get("InferenceService", NAME)
    del item["spec"]["env"]
    item["spec"]["environment"] = [{"MADE": "by a later version"}]
    item["metadata"]["generation"] += 1
    service = service_from_json(item, lenient=True)
    world.client.calls.clear()
    result = world.run(world.reconciler.reconcile(service))
    assert world.primary()["spec"] == before
    assert not world.client.of("Deployment")
    assert not result.status.ready
    world.delete("Service", f"{NAME}-svc")
    world.run(world.reconciler.reconcile(service))
    assert world.find("Service", f"{NAME}-svc"), "what is absent is still created"


def test_nothing_is_said_of_drift_where_a_spec_was_refused(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    service = world.service()
    wrong = replace(service, spec=replace(service.spec, replicas=-1), generation=99)
    result = world.run(world.reconciler.reconcile(wrong))
    found = {each.type: (each.status, each.reason) for each in result.status.conditions}
    assert found["DriftDetected"] == ("Unknown", "InvalidSpec")
    assert result.status.drift is None


def test_what_we_took_away_ourselves_was_deleted_by_nobody(world: OperatorWorld) -> None:
    world.declare(BOUNDS)
    world.converge()
    world.declare()
    world.converge()
    assert world.find(HPA, f"{NAME}-hpa") is None
    world.declare(canary())
    world.converge()
    world.declare()
    world.converge()
    assert world.find("Deployment", f"{NAME}-canary") is None
    for change in (BOUNDS, canary()):
        world.declare(change)
        notes = [note.reason for _ in range(3) for note in world.reconcile().notes]
        assert "Created" in notes
        assert "DriftHealed" not in notes
