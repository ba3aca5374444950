"""The operator as it is put together for its process, around a cluster in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.adapters.kubernetes.harness import eventually
from tests.support.fake_engines import FakeEngines
from tests.support.inference_services import document

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.hub_heads import HubClient
from holdfast.adapters.kubernetes.objects import ObjectKey
from holdfast.adapters.memory.kube import MemoryKube
from holdfast.apps.operator.build import build_operator
from holdfast.apps.operator.metrics import OperatorMetrics
from holdfast.apps.operator.settings import OperatorSettings
from holdfast.core.service.pod_health import FLAPS
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ObjectRef, ref_of

BOT = ObjectKey(namespace="shop", name="bot")
PRIMARY = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="shop", name="bot-primary")
IMAGE = "/spec/template/spec/containers/0/image"


class StoredServices:
    """Stands in for the informer: knows the one service as it was stored."""

    has_synced = True

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item

    def get(self, name: str, namespace: str = "") -> dict[str, Any]:
        return self.item

    def uid(self, key: ObjectKey) -> str:
        return str(self.item["metadata"]["uid"])

    def names(self) -> list[ObjectKey]:
        return [BOT]

    def __len__(self) -> int:
        return 1


def pod(ready: str) -> dict[str, Any]:
    labels = {"holdfast.dev/workload": "bot"}
    metadata = {"name": "bot-1", "namespace": "shop", "uid": "1", "labels": labels}
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}


async def test_the_parts_work_together_from_an_event_to_what_people_read() -> None:
    kube, events = MemoryKube(), list[dict[str, Any]]()
    service: Any = await kube.apply(document(name="bot", namespace="shop"), manager="kubectl")

    async def post(event: dict[str, Any]) -> None:
        events.append(event)

    operator = build_operator(
        kube,
        settings=OperatorSettings(resync=3600.0),
        services=(StoredServices(service),),  # type: ignore[arg-type]
        post_event=post,
        clock=SystemClock(),
        chance=lambda: 0.5,
        key=b"k",
        metrics=OperatorMetrics(),
        instance="one",
        engines=FakeEngines(),
    )
    controller, monitors = operator.controller, operator.monitors

    def told(reason: str) -> list[str]:
        return [each["note"] for each in events if each["reason"] == reason]

    working = asyncio.create_task(operator.work())
    background = [
        asyncio.create_task(operator.recorder.run()),
        asyncio.create_task(operator.statuses.run()),
    ]
    controller.on_service(None, service)
    await eventually(lambda: told("Created"), "an Event of what was created")
    assert {each["reportingController"] for each in events} == {"holdfast.dev/operator"}

    image: Fields = {"op": "replace", "path": IMAGE, "value": "evil:1"}
    edited: Any = await kube.patch(PRIMARY, [image], manager="kubectl-edit")
    controller.on_child(None, edited)
    await eventually(lambda: told("DriftHealed"), "an Event of what was put back")
    assert "evil:1" not in str(await kube.get(PRIMARY))

    async def runtime() -> str:
        stored: Any = await kube.get(ref_of(service))
        conditions = (stored.get("status") or {}).get("conditions") or ()
        return next((each["reason"] for each in conditions if "Runtime" in each["type"]), "")

    await operator.statuses.flush()
    assert await runtime() == "NotAsked", "what the monitors know is in the status"

    assert monitors.flaps is not None
    await eventually(lambda: controller.queue.idle, "rest")
    for _ in range(FLAPS):
        controller.on_pod(pod("True"), pod("False"))
    assert not controller.queue.idle, "what a monitor finds out asks for a pass"
    assert monitors.flaps.find("shop", "bot")
    controller.on_service(service, None)
    assert not monitors.flaps.find("shop", "bot"), "it is gone, and so is what was known of it"

    controller.workers.stop()
    await asyncio.wait_for(working, 20)
    for task in background:
        task.cancel()
    await asyncio.gather(*background, return_exceptions=True)


@pytest.mark.parametrize("once", [False, True])
async def test_one_that_looks_once_asks_no_pods_as_it_would_miss_the_answer(once: bool) -> None:
    operator = build_operator(
        MemoryKube(),
        settings=OperatorSettings(once=once, model_heads=False),
        services=(),
        post_event=lambda event: asyncio.sleep(0),
        clock=SystemClock(),
        chance=lambda: 0.5,
        key=b"k",
        metrics=OperatorMetrics(),
        instance="one",
        engines=FakeEngines(),
        hub=HubClient(),
    )
    assert (operator.monitors.runtime is None) == once
    assert operator.monitors.model_heads is None, "which the settings say"
