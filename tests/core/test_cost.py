"""What steps cost: tables over strategies, numbers, devices and nodes."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.capacity import ClusterCapacity, read_capacity
from holdfast.core.cost import NO_COST, Cost, CostKind, DeviceNeed, describe_cost, join_costs
from holdfast.core.object_cost import (
    CostBasis,
    cold_start_of,
    cost_of_field,
    create_cost,
    delete_cost,
)
from holdfast.core.object_ref import ref_of
from holdfast.core.service.service_cost import service_cost
from holdfast.core.service.spec import (
    InferenceService,
    InferenceServiceSpec,
    InferenceServiceStatus,
    ResourceSpec,
    RolloutSpec,
)

GPU = "nvidia.com/gpu"
IMAGE = ("spec", "template", "spec", "containers", "[name=server]", "image")
RESOURCES = ("spec", "template", "spec", "containers", "[name=server]", "resources", "limits", GPU)


# Any: objects as they come over the wire.
def deployment(
    replicas: int = 1, *, gpus: int = 0, kind: str = "Deployment", **spec: Any
) -> dict[str, Any]:
    limits = {GPU: str(gpus)} if gpus else {}
    container = {"name": "server", "image": "x:1", "resources": {"limits": limits}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "chat", "namespace": "ml"},
        "spec": {"replicas": replicas, **spec, "template": {"spec": {"containers": [container]}}},
        "status": {"desiredNumberScheduled": replicas},
    }


def rolling(surge: int | str, unavailable: int | str) -> dict[str, Any]:
    limits = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": limits}


def node(name: str = "n1", gpus: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"pool": name, **more.pop("labels", {})}},
        "spec": more,
        "status": {
            "allocatable": {GPU: str(gpus), "cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(on: str = "n1", gpus: int = 1, phase: str = "Running") -> dict[str, Any]:
    container = {"resources": {"requests": {GPU: str(gpus)}}}
    return {"spec": {"nodeName": on, "containers": [container]}, "status": {"phase": phase}}


def field_cost(item: dict[str, Any], path: tuple[str, ...], **basis: Any) -> Cost | None:
    return cost_of_field(ref_of(item), item, item, path, CostBasis(**basis))


STRATEGIES = [
    (deployment(2, strategy=rolling(1, 0)), CostKind.ROLLING, 2),
    (deployment(1, strategy=rolling(1, 0)), CostKind.ROLLING, 1),
    (deployment(1, strategy=rolling(0, 1)), CostKind.GAP, 1),
    (deployment(3, strategy=rolling(0, 3)), CostKind.GAP, 3),
    (deployment(3, strategy=rolling(0, 1)), CostKind.ROLLING, 3),
    (deployment(4, strategy=rolling("25%", "50%")), CostKind.ROLLING, 4),
    (deployment(2, strategy=rolling("0%", "100%")), CostKind.GAP, 2),
    (deployment(1, strategy=rolling(0, 0)), CostKind.GAP, 1),
    (deployment(2, strategy={"type": "Recreate"}), CostKind.RECREATE, 2),
    (deployment(3), CostKind.ROLLING, 3),  # the server's defaults: 25 % and 25 %
    (deployment(0, strategy=rolling(1, 0)), CostKind.NONE, 0),
    (deployment(1, kind="StatefulSet"), CostKind.GAP, 1),
    (deployment(3, kind="StatefulSet"), CostKind.ROLLING, 3),
    (deployment(3, kind="StatefulSet", updateStrategy={"type": "OnDelete"}), CostKind.NONE, 0),
    (deployment(3, kind="DaemonSet"), CostKind.ROLLING, 3),
    (deployment(1, kind="DaemonSet"), CostKind.GAP, 1),
]


@pytest.mark.parametrize(("item", "kind", "pods"), STRATEGIES)
def test_a_new_template_costs_what_the_strategy_makes_of_it(
    item: dict[str, Any], kind: CostKind, pods: int
) -> None:
    cost = field_cost(item, IMAGE)

    assert cost is not None
    assert (cost.kind, cost.pods) == (kind, pods)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (("metadata", "labels", "team"), CostKind.NONE),
        (("spec", "progressDeadlineSeconds"), CostKind.NONE),
        (("spec", "strategy", "rollingUpdate", "maxSurge"), CostKind.NONE),
        (("spec", "selector", "matchLabels", "app"), CostKind.RECREATE),
        (("spec", "template", "metadata", "annotations", "at"), CostKind.ROLLING),
    ],
)
def test_only_what_reaches_pods_costs_them(path: tuple[str, ...], kind: CostKind) -> None:
    cost = field_cost(deployment(2, strategy=rolling(1, 0)), path)

    assert cost is not None and cost.kind is kind


@pytest.mark.parametrize(
    ("api", "kind", "known"),
    [
        ("v1", "Service", True),
        ("v1", "ConfigMap", True),
        ("autoscaling/v2", "HorizontalPodAutoscaler", True),
        ("argoproj.io/v1alpha1", "Rollout", False),
        ("example.com/v1", "Service", False),
    ],
)
def test_what_a_foreign_controller_does_is_unknown(api: str, kind: str, known: bool) -> None:
    item = {"apiVersion": api, "kind": kind, "metadata": {"name": "x"}}

    assert field_cost(item, ("spec", "x")) == (NO_COST if known else None)
    assert describe_cost(None) == "cost unknown"


def test_scaling_tells_how_many_pods_start_or_end() -> None:
    live = deployment(2, gpus=1)
    more, fewer, gone = (
        cost_of_field(ref_of(live), live, deployment(count), ("spec", "replicas"))
        for count in (5, 1, 0)
    )

    assert more == Cost(kind=CostKind.NONE, added=3, devices=(DeviceNeed(resource=GPU, needed=3),))
    assert fewer == Cost(kind=CostKind.NONE, added=-1)
    assert gone == Cost(kind=CostKind.GAP, added=-2)
    assert str(gone) == "ends 2 pods, and none is left"


def test_creating_and_deleting() -> None:
    assert create_cost(deployment(2), CostBasis()) == Cost(kind=CostKind.NONE, added=2)
    assert delete_cost(deployment(2)) == Cost(kind=CostKind.GAP, added=-2)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}}
    assert create_cost(service, CostBasis()) == NO_COST
    assert delete_cost(service) is None  # who reaches pods through it is not known here


def capacity(*nodes: dict[str, Any], pods: tuple[dict[str, Any], ...] = ()) -> ClusterCapacity:
    return read_capacity(nodes, pods)


DEADLOCKS = [
    pytest.param(rolling(1, 0), capacity(node(), pods=(pod(),)), 1, 0, True, id="the deadlock"),
    pytest.param(rolling(1, 0), capacity(node(gpus=2), pods=(pod(),)), 1, 1, False, id="a spare"),
    pytest.param(rolling(1, 0), None, 1, None, False, id="nodes that cannot be read"),
    pytest.param(
        rolling(1, 0),
        capacity(node(), node("n2"), pods=(pod(), pod("n2", phase="Succeeded"))),
        1, 1, False, id="a pod that ended holds nothing",
    ),
    pytest.param(
        rolling(1, 0),
        capacity(node(), node("n2", unschedulable=True), pods=(pod(),)),
        1, 0, True, id="a cordoned node gives nothing",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "nodes", "needed", "free", "blocked"), DEADLOCKS)
def test_a_rollout_that_cannot_finish_is_foretold(
    strategy: dict[str, Any],
    nodes: ClusterCapacity | None,
    needed: int,
    free: int | None,
    blocked: bool,
) -> None:
    cost = field_cost(deployment(1, gpus=1, strategy=strategy), IMAGE, capacity=nodes)

    assert cost is not None
    assert cost.devices == (DeviceNeed(resource=GPU, needed=needed, free=free),)
    assert cost.blocked is blocked
    if blocked:
        assert str(cost).startswith(
            "will not finish on the nodes there are: needs 1 nvidia.com/gpu beside the running"
            " ones, 0 free"
        )


def test_where_the_old_pod_goes_first_nothing_more_is_needed() -> None:
    full = capacity(node(), pods=(pod(),))
    cost = field_cost(deployment(1, gpus=1, strategy=rolling(0, 1)), IMAGE, capacity=full)

    assert cost == Cost(kind=CostKind.GAP, pods=1)


def test_more_devices_for_each_pod_are_needed_beside_what_they_hold() -> None:
    live = deployment(2, gpus=1, strategy=rolling(0, 1))
    wanted = deployment(2, gpus=3, strategy=rolling(0, 1))
    nodes = capacity(node(gpus=5), pods=(pod(gpus=2),))
    cost = cost_of_field(ref_of(live), live, wanted, RESOURCES, CostBasis(capacity=nodes))

    assert cost is not None
    assert cost.devices == (DeviceNeed(resource=GPU, needed=4, free=3),)
    assert cost.blocked


def test_two_free_on_two_nodes_are_no_place_for_a_pod_that_wants_two() -> None:
    nodes = capacity(node(gpus=3), node("n2", gpus=1), pods=(pod(gpus=2),))
    cost = field_cost(deployment(1, gpus=2, strategy=rolling(1, 0)), IMAGE, capacity=nodes)

    assert cost is not None
    assert cost.devices == (DeviceNeed(resource=GPU, needed=2, free=2),)
    assert cost.blocked


TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def affinity(**expression: Any) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "pool", **expression}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}}


@pytest.mark.parametrize(
    ("pod_spec", "node_spec", "free"),
    [
        ({}, {}, 1),
        ({"nodeSelector": {"pool": "n1"}}, {}, 1),
        ({"nodeSelector": {"pool": "other"}}, {}, 0),
        ({}, {"taints": [TAINT]}, 0),
        ({}, {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, 1),
        ({"tolerations": [{"key": "team", "value": "a"}]}, {"taints": [TAINT]}, 1),
        ({"tolerations": [{"key": "team", "value": "b"}]}, {"taints": [TAINT]}, 0),
        ({"tolerations": [{"operator": "Exists"}]}, {"taints": [TAINT]}, 1),
        ({}, {"taints": [{"key": GPU, "effect": "NoSchedule"}]}, 1),
        (affinity(operator="In", values=["n1"]), {}, 1),
        (affinity(operator="NotIn", values=["n1"]), {}, 0),
        (affinity(operator="DoesNotExist"), {}, 0),
    ],
)
def test_only_nodes_that_would_take_the_pod_are_counted(
    pod_spec: dict[str, Any], node_spec: dict[str, Any], free: int
) -> None:
    container = {"resources": {"limits": {GPU: 1}}}
    spec = {"containers": [container], **pod_spec}

    assert capacity(node(**node_spec)).free(spec, GPU) == free
    assert capacity(node(**node_spec)).places(spec) == free


def test_costs_of_one_step_are_joined() -> None:
    need = DeviceNeed(resource=GPU, needed=1, free=0)
    rolls = Cost(kind=CostKind.ROLLING, pods=2, devices=(need,), blocked=True, cold_start=40.0)

    assert join_costs([NO_COST, rolls, Cost(kind=CostKind.NONE, added=1)]) == Cost(
        kind=CostKind.ROLLING, pods=2, added=1, devices=(need,), blocked=True, cold_start=40.0
    )
    assert join_costs([rolls, None]) is None
    assert join_costs([]) == NO_COST


def ready_pod(created: str, ready: str, restarts: int = 0, status: str = "True") -> dict[str, Any]:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": ready}
    return {
        "metadata": {"creationTimestamp": created},
        "status": {
            "conditions": [condition],
            "containerStatuses": [{"restartCount": restarts}],
        },
    }


def test_the_newest_ready_pod_tells_how_long_a_start_takes() -> None:
    day = "2026-11-18T05:"
    old = ready_pod(f"{day}00:00Z", f"{day}00:30Z")
    new = ready_pod(f"{day}10:00Z", f"{day}10:41Z")
    restarted = ready_pod(f"{day}20:00Z", f"{day}29:00Z", restarts=2)
    waiting = ready_pod(f"{day}30:00Z", f"{day}30:01Z", status="False")

    assert cold_start_of([old, new, restarted, waiting]) == 41.0
    assert cold_start_of([restarted, waiting]) is None
    assert str(Cost(kind=CostKind.ROLLING, pods=1, cold_start=41.0)) == (
        "rolling restart of 1 pod; last cold start 41 s"
    )
    assert str(Cost(kind=CostKind.GAP, pods=1)) == (
        "restarts 1 pod, and none answers meanwhile; cold start unknown"
    )


def service(replicas: int | None = 2, **spec: Any) -> InferenceService:
    made = InferenceServiceSpec(model_ref="org/model", replicas=replicas, **spec)
    status = InferenceServiceStatus(replicas=replicas or 3)
    return InferenceService(name="chat", namespace="ml", spec=made, status=status)


GPUS = ResourceSpec(gpu=1)

SERVICE_CHANGES = [
    (service(), service(), NO_COST),
    (service(2), service(3), Cost(kind=CostKind.NONE, added=1)),
    (service(2), service(2, args=("--x",)), Cost(kind=CostKind.ROLLING, pods=2)),
    (
        service(1, resources=GPUS),
        service(1, resources=GPUS, args=("--x",)),
        Cost(kind=CostKind.GAP, pods=1),
    ),
    (
        service(1, resources=GPUS, rollout=RolloutSpec(max_surge=1)),
        service(1, resources=GPUS, rollout=RolloutSpec(max_surge=1), args=("--x",)),
        Cost(kind=CostKind.ROLLING, pods=1, devices=(DeviceNeed(resource=GPU, needed=1),)),
    ),
    (None, service(2), Cost(kind=CostKind.NONE, added=2)),
    (service(2), None, Cost(kind=CostKind.GAP, added=-2)),
]


@pytest.mark.parametrize(("before", "after", "cost"), SERVICE_CHANGES)
def test_a_service_costs_what_its_deployments_cost(
    before: InferenceService | None, after: InferenceService | None, cost: Cost
) -> None:
    assert service_cost(before, after, CostBasis()) == cost


def test_a_service_that_cannot_be_served_has_no_known_cost() -> None:
    assert service_cost(service(), service(-1), CostBasis()) is None
