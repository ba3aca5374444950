"""What drift, reviews, plans and pull requests of an application say about their cost."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.support.gitops_world import NAMESPACE, GitopsWorld, configmap, route

from holdfast.core.cost import CostKind
from holdfast.core.errors import PermissionDenied
from holdfast.core.gitops.application import (
    MatchSpec,
    PullRequestKind,
    Remediation,
    RouteSpec,
    SyncSpec,
)
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.pull_request_text import pull_request_body
from holdfast.core.gitops.records import ApprovalReason
from holdfast.core.gitops.source import Ancestry
from holdfast.core.object_ref import ObjectRef, ref_of
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


async def test_a_drift_of_number_and_template_is_priced_as_one() -> None:
    """Each of them finds a free GPU, and both together do not."""
    world = GitopsWorld(route(Remediation.REVIEW))
    await full_node(world)
    await add_node(world, "n2")
    world.git.commit({"chat.yaml": deployment(2)})
    await world.reconcile()
    world.kube.edit(CHAT, lambda item: item["spec"].update(replicas=1))
    set_image(world)
    await world.reconcile()
    (drift,) = world.drifts
    assert len(drift.entries) == 2
    assert str(drift.cost) == (
        "will not finish on the nodes there are: needs 2 nvidia.com/gpu beside the running ones,"
        " 1 free; rolling restart of 1 pod, starts 1 pod more; cold start unknown"
    )


async def test_a_plan_to_approve_says_what_its_steps_cost_together_whatever_is_unknown() -> None:
    world = GitopsWorld(sync=SyncSpec(automatic=True))
    await full_node(world)
    await add_node(world, "n2")

    def files(replicas: int) -> dict[str, str]:
        scaler = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "else", "namespace": NAMESPACE},
            "spec": {"maxReplicas": 3 + replicas, "scaleTargetRef": {"name": "else"}},
        }
        chats = {f"{n}.yaml": deployment(replicas).replace("chat", n) for n in ("one", "two")}
        more = {f"{n}.yaml": configmap(f"c{n}", x=str(replicas)) for n in range(20)}
        return {**chats, **more, "scaler.yaml": yaml.safe_dump(scaler)}

    world.git.commit(files(0))
    await world.reconcile()
    world.git.commit(files(1))
    await world.fetch_and_reconcile()
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    assert plan.reasons == (ApprovalReason.MASS_CHANGE,)
    assert str(plan.cost) == (
        "will not finish on the nodes there are: needs 2 nvidia.com/gpu in all, 1 free;"
        " starts 2 pods; cold start unknown; the rest unknown"
    )


async def test_a_commit_that_is_not_followed_yet_has_an_unknown_cost() -> None:
    world = GitopsWorld(sync=SyncSpec(automatic=True))
    world.git.commit({"chat.yaml": deployment(2)})
    await world.reconcile()
    world.git.commit({"chat.yaml": deployment(1)})
    world.git.ancestry = Ancestry.REWOUND
    await world.fetch_and_reconcile()
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    assert (plan.reasons, plan.cost) == ((ApprovalReason.REWOUND,), None)


async def test_bounds_of_a_service_that_hold_only_together_are_priced_together() -> None:
    """The lower one alone would be above the upper one that is live: nobody can tell that."""
    world = GitopsWorld(route(Remediation.REVIEW))
    spec: Any = {"modelRef": "org/chat", "resources": {"cpu": "1"}}
    service: Any = {
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": NAMESPACE},
        "spec": {**spec, "minReplicas": 5, "maxReplicas": 8},
    }
    chat = ref_of(service)
    world.git.commit({"chat.yaml": yaml.safe_dump(service)})
    await world.reconcile()
    status = {"ready": True, "replicas": 2, "message": ""}
    world.kube.edit(chat, lambda item: item.update(status=status), subresource="status")
    world.kube.edit(chat, lambda item: item["spec"].update(minReplicas=2, maxReplicas=4))
    await world.reconcile()
    (drift,) = world.drifts
    assert str(drift.cost) == "starts 3 pods; cold start unknown"


async def test_what_is_done_to_a_service_for_callers_is_not_said_to_cost_nothing() -> None:
    world = GitopsWorld(
        RouteSpec(
            name="unnoticed",
            match=MatchSpec(cost=(CostKind.NONE,)),
            remediation=Remediation.SELF_HEAL,
        )
    )
    service: Any = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": NAMESPACE, "labels": {"team": "a"}},
        "spec": {"selector": {"app": "chat"}, "ports": [{"port": 80}]},
    }
    world.git.commit({"chat.yaml": yaml.safe_dump(service)})
    await world.reconcile()
    world.kube.edit(ref_of(service), lambda item: item["spec"]["selector"].update(app="other"))
    await world.reconcile()
    (drift,) = world.drifts
    assert (drift.cost, drift.route) == (None, "")
