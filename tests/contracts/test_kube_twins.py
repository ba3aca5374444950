"""Scenes played on a real API server and in memory: both must have the same at every step.

The same objects, with the same owners of the same fields, and the same refusals. What reconcilers
rely on about field ownership and defaults is in these scenes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.contracts.kube_worlds import (
    US,
    KubeWorld,
    MemoryKubeWorld,
    cluster_world,
    comparable,
    config_map,
    deployment,
    get_live,
    outcome_of,
    pod_of,
    server_of,
    service,
    transfer_ownership,
)
from tests.support.cluster import Cluster
from tests.support.gateway import GatewayController, gateway_api
from tests.support.inference_services import ACCEPTED, document

from holdfast.core.service.children import Facts, Gateway, manifests
from holdfast.reconcile.kube import ref_of
from holdfast.wire.inference_service_v1alpha1 import service_from_json

__all__ = ["gateway_api"]

Story = Callable[[KubeWorld], AsyncIterator[Any]]


# Any: objects of the Kubernetes API as they come over the wire, here and below.
async def an_object_is_changed_by_its_applier(world: KubeWorld) -> AsyncIterator[Any]:
    item = deployment(world)
    yield await world.client.apply(item, manager=US)
    server_of(item)["image"] = "registry.example/vllm:v2"
    server_of(item)["env"] = [{"name": "C", "value": "3"}, {"name": "B", "value": ""}]
    yield await world.client.apply(item, manager=US)
    item["metadata"]["annotations"] = {"note": "2"}
    yield await world.client.apply(item, manager=US)
    item["metadata"]["labels"]["more"] = "1"
    yield await world.client.apply(item, manager=US)
    del item["metadata"]["annotations"], pod_of(item)["tolerations"], server_of(item)["args"]
    del server_of(item)["env"], server_of(item)["volumeMounts"], pod_of(item)["volumes"]
    yield await world.client.apply(item, manager=US)
    del item["spec"]["replicas"]
    yield await world.client.apply(item, manager=US)
    item["spec"]["replicas"] = None
    yield await world.client.apply(item, manager=US)


async def others_change_our_fields(world: KubeWorld) -> AsyncIterator[Any]:
    item, ref = deployment(world), ref_of(deployment(world))

    def change(live: dict[str, Any]) -> None:
        server_of(live)["image"] = "registry.example/vllm:hot"
        server_of(live)["args"].append("--fast")
        pod_of(live)["tolerations"] = []
        live["spec"]["replicas"] = None
        live["metadata"]["annotations"]["note"] = "theirs"
        server_of(live)["resources"]["requests"]["memory"] = "67108864"

    yield await world.client.apply(item, manager=US)
    await world.edit(ref, change, manager="kubectl-edit")
    yield await get_live(world, item)
    yield await outcome_of(world.client.apply(item, manager=US, dry_run=True))
    yield await outcome_of(world.client.apply(item, manager=US))
    yield await world.client.apply(item, manager=US, force=True, dry_run=True)
    yield await get_live(world, item)
    yield await world.client.apply(item, manager=US, force=True)


async def others_remove_our_fields(world: KubeWorld) -> AsyncIterator[Any]:
    item, ref = deployment(world), ref_of(deployment(world))

    def change(live: dict[str, Any]) -> None:
        server_of(live)["env"].pop(0)
        del live["metadata"]["annotations"]["note"], server_of(live)["resources"]
        del server_of(live)["volumeMounts"], pod_of(live)["volumes"]

    yield await world.client.apply(item, manager=US)
    await world.edit(ref, change, manager="kubectl-edit")
    yield await get_live(world, item)
    yield await world.client.apply(item, manager=US)


async def others_change_back_and_reorder(world: KubeWorld) -> AsyncIterator[Any]:
    item, ref = deployment(world), ref_of(deployment(world))
    yield await world.client.apply(item, manager=US)
    for image in ("registry.example/vllm:hot", "registry.example/vllm:v1"):
        await world.edit(
            ref, lambda live, image=image: server_of(live).update(image=image), manager="ed"
        )
    yield await get_live(world, item)
    yield await world.client.apply(item, manager=US)
    await world.edit(ref, lambda live: server_of(live)["env"].reverse(), manager="ed")
    yield await get_live(world, item)
    yield await world.client.apply(item, manager=US)
    await world.edit(
        ref,
        lambda live: server_of(live)["resources"]["requests"].update(cpu="0.5", memory="65536Ki"),
        manager="ed",
    )
    yield await get_live(world, item)


async def others_add_fields_that_are_then_taken_over(world: KubeWorld) -> AsyncIterator[Any]:
    item, ref = deployment(world), ref_of(deployment(world))

    def change(live: dict[str, Any]) -> None:
        server_of(live)["env"].insert(1, {"name": "X", "value": "1"})
        server_of(live)["ports"].append({"containerPort": 9000})
        server_of(live)["imagePullPolicy"] = "Always"
        pod_of(live)["containers"].append({"name": "sidecar", "image": "registry.example/s"})
        pod_of(live)["volumes"].append({"name": "more", "configMap": {"name": "x"}})
        live["metadata"]["labels"]["theirs"] = "1"
        live["metadata"]["finalizers"] = ["example.com/hold"]
        live["spec"]["paused"] = True

    yield await world.client.apply(item, manager=US)
    await world.edit(ref, change, manager="kubectl-edit")
    yield await get_live(world, item)
    yield await world.client.apply(item, manager=US)
    yield await world.client.apply(item, manager=US, force=True)
    yield await transfer_ownership(world, item, to=US)
    yield await world.client.apply(item, manager=US)


async def a_heal_is_blocked_until_the_fields_are_taken_over(world: KubeWorld) -> AsyncIterator[Any]:
    item, ref = deployment(world), ref_of(deployment(world))

    def change(live: dict[str, Any]) -> None:
        server_of(live)["ports"][0]["containerPort"] = 9000
        pod_of(live)["volumes"] = [{"name": "models", "hostPath": {"path": "/models", "type": ""}}]

    yield await world.client.apply(item, manager=US)
    await world.edit(ref, change, manager="kubectl-edit")
    yield await get_live(world, item)
    yield await outcome_of(world.client.apply(item, manager=US, force=True, dry_run=True))
    yield await outcome_of(world.client.apply(item, manager=US, force=True))
    yield await transfer_ownership(world, item, to=US)
    yield await world.client.apply(item, manager=US)
    front = service(world)
    yield await world.client.apply(front, manager=US)
    await world.edit(
        ref_of(front), lambda live: live["spec"]["ports"][0].update(port=81), manager="ed"
    )
    yield await outcome_of(world.client.apply(front, manager=US, force=True))
    yield await transfer_ownership(world, front, to=US)
    yield await world.client.apply(front, manager=US)


async def two_appliers_share_an_object(world: KubeWorld) -> AsyncIterator[Any]:
    item = deployment(world)
    yield await world.client.apply(item, manager=US)
    yield await world.client.apply(item, manager="them")
    server_of(item)["env"].append({"name": "C", "value": "3"})
    yield await world.client.apply(item, manager="them")
    server_of(item)["image"] = "registry.example/vllm:v2"
    yield await outcome_of(world.client.apply(item, manager=US))
    yield await world.client.apply(item, manager=US, force=True)
    del server_of(item)["env"], pod_of(item)["tolerations"]
    yield await world.client.apply(item, manager=US)
    yield await world.client.apply(item, manager="them")


async def replicas_are_scaled_by_others(world: KubeWorld) -> AsyncIterator[Any]:
    item, ref = deployment(world), ref_of(deployment(world))

    async def scale(count: int, manager: str) -> Any:
        await world.edit(
            ref,
            lambda live: live["spec"].update(replicas=count),
            manager=manager,
            subresource="scale",
        )
        return await get_live(world, item)

    yield await world.client.apply(item, manager=US)
    yield await scale(2, "kubectl")
    yield await scale(3, "kubectl")
    yield await scale(4, "kubectl")
    yield await scale(5, "autoscaler")
    yield await outcome_of(world.client.apply(item, manager=US))
    yield await world.client.apply(item, manager=US, force=True)
    del item["spec"]["replicas"]
    parked = {**item, "spec": {"replicas": 2}}
    yield await world.client.apply(parked, manager="parking")
    yield await world.client.apply(item, manager=US)
    yield await scale(6, "autoscaler")
    yield await world.client.apply(item, manager=US)
    await world.client.delete(ref)
    yield await world.client.apply(item, manager=US)
    yield await scale(7, "autoscaler")


async def an_object_is_created_by_others_first(world: KubeWorld) -> AsyncIterator[Any]:
    found = service_from_json(document(ACCEPTED["with everything"], namespace=world.namespace))
    rendered: Any = {each["kind"]: each for each in manifests(found, Facts())}
    rendered["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] = "nobody"
    for item in (
        deployment(world),
        service(world),
        config_map(world, text="x"),
        document(ACCEPTED["with everything"], namespace=world.namespace),
        rendered["PodDisruptionBudget"],
    ):
        await world.create(item, manager="kubectl-create")
        yield await get_live(world, item)
        yield await world.client.apply(item, manager=US)
    item = deployment(world)
    del server_of(item)["env"]
    yield await world.client.apply(item, manager=US)
    yield await transfer_ownership(world, item, to=US)
    yield await world.client.apply(item, manager=US)


async def the_record_of_owners_is_wiped(world: KubeWorld) -> AsyncIterator[Any]:
    for number, wiped in enumerate(([{}], [])):
        item = config_map(world, f"m{number}", a="1", b="2")
        yield await world.client.apply(item, manager=US)
        wipe: Any = {"op": "replace", "path": "/metadata/managedFields", "value": wiped}
        yield await world.client.patch(ref_of(item), [wipe], manager="wiper")
        await world.edit(ref_of(item), lambda live: live["data"].update(a="x"), manager="ed")
        yield await get_live(world, item)
        yield await outcome_of(world.client.apply(item, manager=US))
        yield await world.client.apply(item, manager=US, force=True)
        del item["data"]["b"]
        yield await world.client.apply(item, manager=US, force=True)
    for item in (document(namespace=world.namespace), service(world)):
        await world.client.apply(item, manager=US)
        wipe = {"op": "replace", "path": "/metadata/managedFields", "value": [{}]}
        await world.client.patch(ref_of(item), [wipe], manager="wiper")
        yield await world.client.apply(item, manager=US)


async def many_writers_leave_their_marks(world: KubeWorld) -> AsyncIterator[Any]:
    item = config_map(world, a="1")
    yield await world.client.apply(item, manager=US)
    for number in range(13):
        await world.edit(
            ref_of(item),
            lambda live, number=number: live["data"].update({f"k{number}": "1"}),
            manager=f"writer-{number:02}",
        )
    yield await get_live(world, item)
    yield await world.client.apply(config_map(world, k1="2", k12="2"), manager=US, force=True)


async def the_status_has_owners_of_its_own(world: KubeWorld) -> AsyncIterator[Any]:
    item = document(ACCEPTED["with everything"], namespace=world.namespace)
    ready = {"type": "Ready", "status": "True", "reason": "Fine"}
    synced = {"type": "Synced", "status": "True", "reason": "Fine"}
    yield await world.client.apply(item, manager=US)
    status = {**item, "status": {"ready": True, "conditions": [ready, synced]}}
    yield await world.client.apply(status, manager=US, subresource="status")
    yield await world.client.apply(item, manager=US)
    await world.edit(
        ref_of(item),
        lambda live: live["status"]["conditions"][1].update(status="False", message="no"),
        manager="ed",
        subresource="status",
    )
    yield await get_live(world, item)
    yield await outcome_of(world.client.apply(status, manager=US, subresource="status"))
    status["status"] = {"ready": False, "conditions": [ready]}
    yield await world.client.apply(status, manager=US, subresource="status", force=True)
    yield await transfer_ownership(world, item, to=US)


async def custom_resources_are_edited(world: KubeWorld) -> AsyncIterator[Any]:
    item = document(ACCEPTED["with everything"], namespace=world.namespace)

    def change(live: dict[str, Any]) -> None:
        live["spec"]["secrets"]["MORE"] = {"name": "s", "key": "k"}
        live["spec"]["env"]["B"] = "2"
        live["spec"]["args"] = ["--other"]
        live["spec"]["scheduling"]["affinity"]["nodeAffinity"] = {"x": {"y": [1]}}
        del live["spec"]["canary"]
        live["metadata"]["annotations"] = {"theirs": "1"}

    yield await world.client.apply(item, manager=US)
    await world.edit(ref_of(item), change, manager="ed")
    yield await get_live(world, item)
    yield await outcome_of(world.client.apply(item, manager=US))
    yield await world.client.apply(item, manager=US, force=True)
    yield await transfer_ownership(world, item, to=US)
    yield await world.client.apply(item, manager=US)


async def secrets_and_other_kinds_are_edited(world: KubeWorld) -> AsyncIterator[Any]:
    secret: Any = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": world.namespace},
        "stringData": {"a": "one"},
        "data": {"b": "dHdv"},
    }
    yield await world.client.apply(secret, manager=US)
    await world.edit(ref_of(secret), lambda live: live["data"].update(a="eA=="), manager="ed")
    yield await get_live(world, secret)
    yield await world.client.apply(secret, manager=US)
    found = service_from_json(document(ACCEPTED["with everything"], namespace=world.namespace))
    rendered: Any = {each["kind"]: each for each in manifests(found, Facts())}
    scaler, budget = rendered["HorizontalPodAutoscaler"], rendered["PodDisruptionBudget"]
    scaler["metadata"]["name"] = "alone"
    scaler["spec"]["scaleTargetRef"]["name"] = "nobody"
    for item, change in (
        (scaler, lambda live: live["spec"].update(minReplicas=None, metrics=[])),
        (budget, lambda live: live["spec"].update(maxUnavailable="50%")),
        (rendered["Service"], lambda live: live["spec"]["selector"].update(more="1")),
    ):
        yield await world.client.apply(item, manager=US)
        await world.edit(ref_of(item), change, manager="ed")
        yield await get_live(world, item)
        yield await outcome_of(world.client.apply(item, manager=US, dry_run=True))


STORIES: list[Story] = [
    an_object_is_changed_by_its_applier,
    others_change_our_fields,
    others_remove_our_fields,
    others_change_back_and_reorder,
    others_add_fields_that_are_then_taken_over,
    a_heal_is_blocked_until_the_fields_are_taken_over,
    two_appliers_share_an_object,
    replicas_are_scaled_by_others,
    an_object_is_created_by_others_first,
    the_record_of_owners_is_wiped,
    many_writers_leave_their_marks,
    the_status_has_owners_of_its_own,
    custom_resources_are_edited,
    secrets_and_other_kinds_are_edited,
]


async def told(story: Story, world: KubeWorld, *, controllers: bool = True) -> list[Any]:
    return [
        comparable(found, world.namespace, controllers=controllers) async for found in story(world)
    ]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_both_end_up_with_the_same_fields_of_the_same_owners(
    definitions: Cluster, namespace: str, story: Story
) -> None:
    async def played() -> None:
        async with cluster_world(definitions, namespace) as world:
            real = await told(story, world)
        memory = await told(story, MemoryKubeWorld())
        for number, (theirs, ours) in enumerate(zip(real, memory, strict=True)):
            assert ours == theirs, f"step {number}"

    asyncio.run(played())


@pytest.mark.parametrize("name", ["as it is", "with a canary", "with bounds", "with everything"])
def test_both_complete_every_child_of_a_service_alike(
    definitions: Cluster, namespace: str, gateway_api: GatewayController, name: str
) -> None:
    gateway = Gateway(name="inference", namespace="infra", domain="example.com", section="https")

    async def story(world: KubeWorld) -> AsyncIterator[Any]:
        made = await world.client.apply(
            document(ACCEPTED[name], namespace=world.namespace), manager=US
        )
        yield made
        for item in manifests(service_from_json(made), Facts(gateway=gateway, canary_ready=True)):
            yield await world.client.apply(item, manager=US, absent=True)

    async def played() -> None:
        async with cluster_world(definitions, namespace) as world:
            real = await told(story, world, controllers=False)
        assert await told(story, MemoryKubeWorld(), controllers=False) == real
        assert {"Deployment", "Service", "HTTPRoute"} <= {each["kind"] for each in real}

    asyncio.run(played())
