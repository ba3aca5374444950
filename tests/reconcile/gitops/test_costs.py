"""What drift, reviews, plans and pull requests of an application say about their cost."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.support.gitops_world import NAMESPACE, GitopsWorld, route

from holdfast.core.cost import CostKind
from holdfast.core.errors import PermissionDenied
from holdfast.core.gitops.application import MatchSpec, PullRequestKind, Remediation, RouteSpec
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.pull_request_text import pull_request_body
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops.ports import RecordKind
from holdfast.wire.gitops_v1 import drift_from_json, drift_to_json

GPU = "nvidia.com/gpu"
CHAT = ObjectRef(api_version="apps/v1", kind="Deployment", namespace=NAMESPACE, name="chat")
DEADLOCK = (
    "will not finish on the nodes there are: needs 1 nvidia.com/gpu beside the running ones, 0 free"
)


def deployment(replicas: int = 1, *, surge: int = 1, gpus: int = 1) -> str:
    labels = {"app": "chat"}
    limits = {GPU: str(gpus)} if gpus else {"cpu": "1"}
    container = {"name": "server", "image": "x:1", "resources": {"limits": limits}}
    rolling = {"maxSurge": surge, "maxUnavailable": 0 if surge else 1}
    return yaml.safe_dump(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "chat", "namespace": NAMESPACE},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
    )


async def add_node(world: GitopsWorld, name: str) -> None:
    """A node with one GPU."""
    node: Any = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    await world.kube.apply(node, manager="kubelet")
    status = {"allocatable": {GPU: "1"}, "conditions": [{"type": "Ready", "status": "True"}]}
    await world.kube.apply({**node, "status": status}, manager="kubelet", subresource="status")


async def full_node(world: GitopsWorld) -> None:
    """One node with one GPU, which a pod has."""
    await add_node(world, "n1")
    container = {"name": "s", "image": "x", "resources": {"limits": {GPU: "1"}}}
    spec = {"nodeName": "n1", "containers": [container]}
    metadata = {"name": "p", "namespace": NAMESPACE}
    pod: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    await world.kube.apply(pod, manager="kubelet")


def set_image(world: GitopsWorld) -> None:
    def change(item: Any) -> None:
        item["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"

    world.kube.edit(CHAT, change)


async def drifted(world: GitopsWorld, declared: str) -> ObjectDrift:
    world.git.commit({"chat.yaml": declared})
    await world.reconcile()
    set_image(world)
    await world.reconcile()
    (drift,) = world.drifts
    return drift


async def test_a_drift_that_waits_says_what_putting_it_back_costs_and_foretells_the_deadlock() -> (
    None
):
    world = GitopsWorld(route(Remediation.REVIEW))
    await full_node(world)
    drift = await drifted(world, deployment())
    assert drift.cost is not None and drift.cost.blocked
    assert (drift.cost.kind, drift.cost.pods) == (CostKind.ROLLING, 1)
    assert str(drift.cost).startswith(DEADLOCK)
    (asked,) = [
        entry
        for entry in await world.ledger_store.entries(subject=drift.id)
        if entry.action == "approval-requested"
    ]
    assert DEADLOCK in str(asked.detail["steps"])
    (notice,) = [each for each in world.notices if each.type.endswith("drift.detected.v1")]
    assert DEADLOCK in notice.text and notice.data["cost"] == "rolling"
    assert DEADLOCK in pull_request_body(drift)
    assert drift_from_json(drift_to_json(drift)).cost == drift.cost


async def test_nodes_that_cannot_be_read_leave_the_free_ones_unknown() -> None:
    world = GitopsWorld(route(Remediation.REVIEW))
    world.kube.fail_next("list", PermissionDenied("nodes is forbidden"), kind="Node")
    drift = await drifted(world, deployment())
    assert drift.cost is not None and not drift.cost.blocked
    assert "needs 1 nvidia.com/gpu beside the running ones, free unknown" in str(drift.cost)


async def test_what_is_free_moves_no_plan_and_is_written_down_only_with_the_drift() -> None:
    world = GitopsWorld(route(Remediation.REVIEW))
    await full_node(world)
    drift = await drifted(world, deployment())
    before = await world.ledger_store.records(RecordKind.DRIFT, state="open")
    await add_node(world, "n2")
    world.pass_time(60)
    await world.reconcile()
    (now,) = world.drifts
    assert drift.cost is not None and drift.cost.blocked
    assert now.cost is not None and not now.cost.blocked
    assert now.plan == drift.plan
    assert await world.ledger_store.records(RecordKind.DRIFT, state="open") == before


@pytest.mark.parametrize(("surge", "chosen"), [(0, "interrupts"), (1, "unnoticed")])
async def test_a_route_may_match_on_the_cost(surge: int, chosen: str) -> None:
    world = GitopsWorld(
        RouteSpec(
            name="interrupts",
            match=MatchSpec(cost=(CostKind.GAP, CostKind.RECREATE)),
            remediation=Remediation.REVIEW,
        ),
        RouteSpec(
            name="unnoticed",
            match=MatchSpec(cost=(CostKind.NONE, CostKind.ROLLING)),
            remediation=Remediation.PULL_REQUEST,
            pull=PullRequestKind.REVERT,
        ),
    )
    drift = await drifted(world, deployment(surge=surge, gpus=0))
    assert drift.route == chosen


async def test_what_was_deleted_costs_a_start() -> None:
    world = GitopsWorld(route(Remediation.REVIEW))
    world.git.commit({"chat.yaml": deployment(2)})
    await world.reconcile()
    await world.kube.delete(CHAT)
    await world.reconcile()
    (drift,) = world.drifts
    assert drift.cost is not None
    assert (drift.cost.kind, drift.cost.added) == (CostKind.NONE, 2)
