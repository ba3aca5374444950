"""What steps cost: tables over strategies, numbers, devices and nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.core.capacity import ClusterCapacity, read_capacity
from holdfast.core.cost import NO_COST, Cost, CostKind, DeviceNeed, describe_cost, total_cost
from holdfast.core.object_cost import (
    CostBasis,
    cold_start_of,
    cost_of_field,
    cost_of_fields,
    create_cost,
    delete_cost,
)
from holdfast.core.object_ref import ref_of
from holdfast.core.service.canary import canary_digest
from holdfast.core.service.service_cost import service_cost
from holdfast.core.service.spec import (
    CanaryEnding,
    CanaryPhase,
    CanarySpec,
    CanaryState,
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
    ("api", "kind", "labels", "spec", "creation"),
    [
        ("v1", "ConfigMap", True, True, True),
        ("policy/v1", "PodDisruptionBudget", True, True, True),
        ("v1", "Service", True, False, True),  # another selector leaves callers without an answer
        ("discovery.k8s.io/v1", "EndpointSlice", True, False, True),
        ("gateway.networking.k8s.io/v1", "HTTPRoute", True, False, True),
        ("networking.k8s.io/v1", "Ingress", True, False, True),
        ("networking.k8s.io/v1", "NetworkPolicy", True, False, False),
        ("autoscaling/v2", "HorizontalPodAutoscaler", True, False, False),  # starts and ends pods
        ("argoproj.io/v1alpha1", "Rollout", False, False, False),
        ("example.com/v1", "Service", False, False, False),
    ],
)
def test_what_a_controller_does_with_a_change_of_another_kind_is_known_or_said_to_be_unknown(
    api: str, kind: str, labels: bool, spec: bool, creation: bool
) -> None:
    item = {"apiVersion": api, "kind": kind, "metadata": {"name": "x"}}
    costs = (
        field_cost(item, ("metadata", "labels", "team")),
        field_cost(item, ("spec", "x")),
        create_cost(item, CostBasis()),
    )

    assert costs == tuple(NO_COST if known else None for known in (labels, spec, creation))
    assert describe_cost(None) == "cost unknown"


def test_scaling_tells_how_many_pods_start_or_end() -> None:
    live = deployment(2, gpus=1)
    more, fewer, gone = (
        cost_of_field(ref_of(live), live, deployment(count), ("spec", "replicas"))
        for count in (5, 1, 0)
    )

    needs = [(DeviceNeed(resource=GPU, needed=max(n, 0), added=n),) for n in (3, -1, -2)]
    assert more == Cost(kind=CostKind.NONE, added=3, devices=needs[0])
    assert fewer == Cost(kind=CostKind.NONE, added=-1, devices=needs[1])
    assert gone == Cost(kind=CostKind.GAP, added=-2, devices=needs[2])
    assert fewer.basis == ["none", 0, -1]
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
    assert cost.devices == (DeviceNeed(resource=GPU, needed=4, free=3, added=4),)
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


REPLICAS = ("spec", "replicas")


@pytest.mark.parametrize(
    ("live", "wanted", "paths", "needed", "blocked", "kind"),
    [
        pytest.param(
            deployment(1, gpus=1, strategy=rolling(1, 0)), 2, (REPLICAS, IMAGE), 2, True,
            CostKind.ROLLING, id="scale and rollout with a surge",
        ),
        pytest.param(
            deployment(1, gpus=1, strategy=rolling(1, 0)), 2, (REPLICAS,), 1, False,
            CostKind.NONE, id="the scaling alone",
        ),
        pytest.param(
            deployment(1, gpus=1, strategy=rolling(1, 0)), 2, (IMAGE,), 1, False,
            CostKind.ROLLING, id="the rollout alone",
        ),
        pytest.param(
            deployment(1, gpus=1, strategy=rolling(0, 1)), 2, (REPLICAS, IMAGE), 1, False,
            CostKind.ROLLING, id="the one that is added answers before the old one goes",
        ),
        pytest.param(
            deployment(1, gpus=1, strategy=rolling(0, 1)), 3, (REPLICAS, IMAGE), 2, True,
            CostKind.ROLLING, id="two have to be there before the old one goes",
        ),
        pytest.param(
            deployment(3, gpus=1, strategy=rolling(1, 0)), 2, (REPLICAS, IMAGE), 0, False,
            CostKind.ROLLING, id="what the scaling gives back is enough for the rollout",
        ),
        pytest.param(
            deployment(2, gpus=1, strategy=rolling(0, 1)), 1, (REPLICAS, IMAGE), 0, False,
            CostKind.GAP, id="the last one ends before the new one starts",
        ),
        pytest.param(
            deployment(1, gpus=1, strategy={"type": "Recreate"}), 2, (REPLICAS, IMAGE), 1, False,
            CostKind.RECREATE, id="all end first",
        ),
        pytest.param(
            deployment(1, gpus=1, kind="StatefulSet"), 3, (REPLICAS, IMAGE), 2, True,
            CostKind.ROLLING, id="a set starts what is added first",
        ),
        pytest.param(
            deployment(2, gpus=1, strategy=rolling(1, 0)), 0, (REPLICAS, IMAGE), 0, False,
            CostKind.GAP, id="none is left to roll out",
        ),
    ],
)  # fmt: skip
def test_a_scaling_and_a_rollout_at_once_are_priced_as_one(
    live: dict[str, Any],
    wanted: int,
    paths: tuple[tuple[str, ...], ...],
    needed: int,
    blocked: bool,
    kind: CostKind,
) -> None:
    declared = {**live, "spec": {**live["spec"], "replicas": wanted}}
    one_free = CostBasis(capacity=capacity(node(gpus=5), pods=(pod(gpus=4),)))
    cost = cost_of_fields(ref_of(live), live, declared, paths, one_free)

    assert cost is not None
    assert (sum(each.needed for each in cost.devices), cost.blocked, cost.kind) == (
        needed, blocked, kind,
    )  # fmt: skip


def test_a_rollout_while_fewer_are_declared_replaces_only_those_that_stay() -> None:
    live = deployment(4, strategy=rolling(1, 0))
    cost = cost_of_fields(ref_of(live), live, deployment(1), (REPLICAS, IMAGE))

    assert str(cost) == "rolling restart of 1 pod, ends 3 pods; cold start unknown"


def step(kind: CostKind = CostKind.NONE, *, gpus: int = 0, free: int = 1, **of: Any) -> Cost:
    """A step that needs GPUs, and keeps as many as it starts pods; below zero, gives them back."""
    keeps = gpus if of.get("added") else 0
    pool = of.pop("pool", "all")
    need = DeviceNeed(
        resource=GPU, needed=max(gpus, 0), free=free if gpus > 0 else None, added=keeps, pool=pool
    )
    return Cost(kind=kind, devices=(need,) if gpus else (), **of)


STARTS = step(added=1, gpus=1)
ROLLS = step(CostKind.ROLLING, pods=1, gpus=1)
STUCK = step(CostKind.ROLLING, pods=1, gpus=1, free=0, blocked=True)
ENDS = step(CostKind.GAP, added=-1, gpus=-1)
ALL = f"needs 2 {GPU}"

PLANS = [
    pytest.param([], False, "restarts nothing", id="no step at all"),
    pytest.param(
        [STARTS, STARTS], True,
        f"will not finish on the nodes there are: {ALL} in all, 1 free; starts 2 pods;"
        " cold start unknown",
        id="two starts that fit one by one",
    ),
    pytest.param(
        [STARTS, step(added=1, gpus=1, pool="other")], False,
        f"starts 2 pods; needs 1 {GPU} in all, 1 free, needs 1 {GPU} in all, 1 free;"
        " cold start unknown",
        id="two starts on nodes of their own",
    ),
    pytest.param(
        [ROLLS, ROLLS], False,
        f"rolling restart of 2 pods; {ALL} beside the running ones, 1 free; cold start unknown",
        id="two rollouts, of which one may wait for the other",
    ),
    pytest.param(
        [STARTS, STARTS, ENDS], False,
        f"starts 1 pod, and of one workload none is left; {ALL} in all, 1 free; cold start unknown",
        id="what one step gives back another may take",
    ),
    pytest.param(
        [STUCK, ENDS], False,
        f"restarts 1 pod, and of one workload none answers meanwhile, ends 1 pod;"
        f" needs 1 {GPU} beside the running ones, 0 free; cold start unknown",
        id="a step that waits for what another gives back",
    ),
    pytest.param(
        [STUCK, None], True,
        f"will not finish on the nodes there are: needs 1 {GPU} beside the running ones, 0 free;"
        " rolling restart of 1 pod; cold start unknown; the rest unknown",
        id="a blocked step beside one that nobody knows",
    ),
    pytest.param(
        [step(CostKind.GAP, pods=1), step(CostKind.ROLLING, pods=4)], False,
        "restarts 5 pods, and of one workload none answers meanwhile; cold start unknown",
        id="a gap of one of two workloads",
    ),
    pytest.param(
        [step(CostKind.GAP, added=-1), step(added=1)], False,
        "starts as many pods as it ends, and of one workload none is left",
        id="as many start as end",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "blocked", "said"), PLANS)
def test_a_plan_costs_what_its_steps_cost_together(
    steps: list[Cost | None], blocked: bool, said: str
) -> None:
    total = total_cost(steps)

    assert total is not None
    assert (total.blocked, str(total)) == (blocked, said)


def test_a_plan_of_which_nothing_is_known_that_moves_pods_has_an_unknown_cost() -> None:
    assert total_cost([None]) is None
    assert total_cost([None, NO_COST]) is None


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


CANARY = CanarySpec(weight=20, model_ref="org/other")
CPU = ResourceSpec(cpu="1")
IDLE = {"replicas": None, "min_replicas": 0, "max_replicas": 3, "resources": CPU}
BOUNDS = {"replicas": None, "min_replicas": 2, "max_replicas": 8, "resources": CPU}
ONE_GPU = ResourceSpec(cpu="1", gpu=1)


def running(count: int, before: InferenceService, **status: Any) -> InferenceService:
    """The service with so many replicas of its primary."""
    return replace(before, status=InferenceServiceStatus(replicas=count, **status))


def with_canary(count: int = 4, canary: CanarySpec = CANARY, **spec: Any) -> InferenceService:
    return running(count, service(count, canary=canary, **spec))


ENDED = CanaryState(
    phase=CanaryPhase.ROLLED_BACK,
    digest=canary_digest(with_canary().spec) or "",
    ending=CanaryEnding.ROLLED_BACK,
)
NODES = {"nodes": 2, "resources": GPUS}
COLD = "cold start unknown"

CASES = [
    pytest.param(
        with_canary(), service(4), CostKind.NONE, "ends 1 pod", id="a canary that is taken out"
    ),
    pytest.param(
        running(3, with_canary(), canary_weight=25, split_mode="ReplicaRatio"), service(4),
        CostKind.NONE, "restarts nothing", id="a canary whose pods the primary gets back",
    ),
    pytest.param(
        running(4, with_canary(), canary=ENDED), service(4), CostKind.NONE, "restarts nothing",
        id="a canary that was rolled back before",
    ),
    pytest.param(
        with_canary(resources=GPUS),
        with_canary(resources=GPUS, canary=replace(CANARY, model_ref="org/third")),
        CostKind.ROLLING, f"rolling restart of 1 pod; {COLD}",
        id="a GPU canary that gets another model, while the primary answers",
    ),
    pytest.param(
        running(4, with_canary(), canary_weight=100, split_mode="ReplicaRatio"),
        with_canary(resources=GPUS), CostKind.GAP, None,
        id="a canary that has all requests",
    ),
    pytest.param(
        with_canary(), with_canary(args=("--x",)), CostKind.ROLLING,
        f"rolling restart of 5 pods; {COLD}", id="primary and canary",
    ),
    pytest.param(
        running(2, service(**{**BOUNDS, "resources": ONE_GPU})),
        service(**{**BOUNDS, "resources": ONE_GPU, "min_replicas": 8}), CostKind.NONE,
        f"will not finish on the nodes there are: needs 6 {GPU} in all, 2 free;"
        f" starts 6 pods; {COLD}",
        id="an autoscaler that has to start more",
    ),
    pytest.param(
        running(2, service(**BOUNDS)), service(**{**BOUNDS, "min_replicas": 1}), CostKind.NONE,
        "restarts nothing", id="an autoscaler that may end some, and need not",
    ),
    pytest.param(
        running(3, service(**{**BOUNDS, "min_replicas": 1})),
        service(**{**BOUNDS, "min_replicas": 1, "max_replicas": 1}), CostKind.NONE,
        "ends 2 pods", id="an autoscaler that has to end some",
    ),
    pytest.param(
        running(0, service(**IDLE)), service(args=("--x",), **IDLE), CostKind.NONE,
        "restarts nothing", id="nothing runs of an idle service",
    ),
    pytest.param(
        running(0, service(**{**IDLE, "resources": ONE_GPU})), service(2, resources=ONE_GPU),
        CostKind.NONE,
        f"starts 2 pods; needs 2 {GPU} in all, 2 free; {COLD}", id="an idle service that is fixed",
    ),
    pytest.param(
        running(0, service(**IDLE)), service(canary=CANARY, **IDLE), CostKind.NONE,
        f"starts 2 pods; {COLD}", id="an idle service that a canary wakes",
    ),
    pytest.param(
        running(0, service(**IDLE)), None, CostKind.NONE, "restarts nothing",
        id="an idle service that is deleted",
    ),
    pytest.param(
        running(0, service(**IDLE)), service(**{**IDLE, "min_replicas": 1}), CostKind.NONE,
        f"starts 1 pod; {COLD}", id="an idle service that may not be idle",
    ),
    pytest.param(
        service(1, resources=GPUS, rollout=RolloutSpec(max_surge=1)),
        service(3, resources=GPUS, rollout=RolloutSpec(max_surge=1), args=("--x",)),
        CostKind.ROLLING,
        f"will not finish on the nodes there are: needs 3 {GPU} beside the running ones, 2 free;"
        f" rolling restart of 1 pod, starts 2 pods more; {COLD}",
        id="scaling and rollout at once",
    ),
    pytest.param(
        service(1, **NODES), service(1, args=("--x",), **NODES), CostKind.GAP,
        f"restarts 2 pods, and none answers meanwhile; {COLD}", id="a group of two pods",
    ),
    pytest.param(
        service(2, **NODES), service(2, args=("--x",), **NODES), CostKind.ROLLING,
        f"rolling restart of 4 pods; {COLD}", id="two groups of two pods",
    ),
    pytest.param(
        service(1, rollout=RolloutSpec(max_surge=1), **NODES),
        service(1, rollout=RolloutSpec(max_surge=1), args=("--x",), **NODES), CostKind.ROLLING,
        f"rolling restart of 2 pods; needs 2 {GPU} beside the running ones, 2 free; {COLD}",
        id="a group beside the group",
    ),
    pytest.param(
        service(1, **NODES), service(3, **NODES), CostKind.NONE,
        f"will not finish on the nodes there are: needs 4 {GPU} in all, 2 free;"
        f" starts 4 pods; {COLD}",
        id="two groups more",
    ),
    pytest.param(
        service(1, **NODES), None, CostKind.GAP, "ends 2 pods, and none is left",
        id="a group that is deleted",
    ),
    pytest.param(
        service(1, resources=GPUS), service(1, **NODES), CostKind.RECREATE,
        f"ends 1 pod before the first new one starts, starts 1 pod more;"
        f" needs 1 {GPU} beside the running ones, 2 free; {COLD}",
        id="several nodes instead of one",
    ),
    pytest.param(
        service(1, resources=GPUS), service(1, rollout=RolloutSpec(max_surge=1), **NODES),
        CostKind.ROLLING,
        f"rolling restart of 1 pod, starts 1 pod more;"
        f" needs 2 {GPU} beside the running ones, 2 free; {COLD}",
        id="several nodes beside the one",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "kind", "said"), CASES)
def test_the_cost_of_a_service_is_what_happens_to_all_its_pods(
    before: InferenceService, after: InferenceService | None, kind: CostKind, said: str | None
) -> None:
    """On two nodes with a GPU each that is free."""
    cost = service_cost(before, after, CostBasis(capacity=capacity(node(), node("n2"))))

    assert cost is not None
    assert (cost.kind, str(cost) if said else None) == (kind, said)


def test_a_service_that_cannot_be_served_has_no_known_cost() -> None:
    assert service_cost(service(), service(-1), CostBasis()) is None
