"""The loop: each service by itself, failures apart, nothing before its time, an orderly end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client import generate_latest
from tests.adapters.kubernetes.harness import eventually
from tests.support.inference_services import document

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.objects import ObjectKey
from holdfast.apps.operator.build import build_operator
from holdfast.apps.operator.metrics import OperatorMetrics
from holdfast.apps.operator.settings import OperatorSettings
from holdfast.core.errors import ApiError, PermissionDenied, TargetUnavailable, ValidationError
from holdfast.core.object_ref import ObjectRef
from holdfast.core.service.facts import (
    ChildDrift,
    ConditionReport,
    DriftHealed,
    ServiceFact,
    WriteRefused,
)
from holdfast.core.service.spec import InferenceService, InferenceServiceStatus
from holdfast.reconcile.kube import ConflictReason, KubeConflict
from holdfast.reconcile.service.reconciler import ServiceReconciler
from holdfast.reconcile.service.status import ServiceResult


class Copy:
    """Stands in for an informer of services."""

    has_synced = True

    def __init__(self, *names: str) -> None:
        self.items = {ObjectKey(namespace="shop", name=name): stored(name) for name in names}

    def get(self, name: str, namespace: str = "") -> dict[str, Any] | None:
        return self.items.get(ObjectKey(namespace=namespace, name=name))

    def uid(self, key: ObjectKey) -> str | None:
        item = self.items.get(key)
        return item["metadata"]["uid"] if item else None

    def names(self) -> list[ObjectKey]:
        return list(self.items)

    def __len__(self) -> int:
        return len(self.items)


def stored(name: str, generation: int = 1) -> dict[str, Any]:
    item = document(name=name, namespace="shop")
    item["metadata"] |= {"uid": f"uid-{name}", "generation": generation, "resourceVersion": "1"}
    return item


class Statuses:
    """Stands in for the client: takes statuses in."""

    def __init__(self) -> None:
        self.applied: list[dict[str, Any]] = []

    async def apply(self, item: dict[str, Any], **more: Any) -> dict[str, Any]:
        self.applied.append(item)
        return item


class Passes:
    """Stands in for the reconciler: does as told for a service, and writes down the rest."""

    def __init__(self, client: Statuses) -> None:
        reconciler = ServiceReconciler(client, clock=SystemClock(), key=b"k")  # type: ignore[arg-type]
        self.refuse = reconciler.refuse
        self.seen: list[str] = []
        self.under_way: set[str] = set()
        self.orders: dict[str, Callable[[], Awaitable[ServiceResult | None]]] = {}
        self.untold: list[ServiceFact] = []
        self.unknown: tuple[str, ...] = ()

    async def reconcile(self, service: InferenceService) -> ServiceResult:
        assert service.name not in self.under_way
        self.under_way.add(service.name)
        self.seen.append(service.name)
        self.unknown = service.unknown
        try:
            order = self.orders.get(service.name)
            made = await order() if order else None
            return made or ServiceResult(status=InferenceServiceStatus(ready=True))
        finally:
            self.under_way.discard(service.name)

    def take_facts(self, service: InferenceService) -> list[ServiceFact]:
        return [self.untold.pop()] if self.untold else []


class Loop:
    """A controller with its stand-ins."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.copy = Copy(*names)
        self.client = Statuses()
        self.passes = Passes(self.client)
        self.events: list[dict[str, Any]] = []
        self.metrics = OperatorMetrics()
        clock = SystemClock()

        async def post(event: dict[str, Any]) -> None:
            self.events.append(event)

        operator = build_operator(
            self.client,  # type: ignore[arg-type]
            settings=OperatorSettings(**{"resync": 3600.0, **settings}),
            services=(self.copy,),  # type: ignore[arg-type]
            post_event=post,
            clock=clock,
            chance=lambda: 0.5,
            key=b"k",
            metrics=self.metrics,
            instance="i",
            reconciler=self.passes,
        )
        self.controller, self.recorder = operator.controller, operator.recorder

    def figure(self, name: str) -> float:
        lines = generate_latest(self.metrics.registry).decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def add(self, *names: str) -> None:
        for name in names:
            self.controller.on_service(
                None, self.copy.items[ObjectKey(namespace="shop", name=name)]
            )


def play(loop: Loop, story: Callable[[Loop], Awaitable[None]]) -> None:
    async def played() -> None:
        task = asyncio.ensure_future(loop.controller.run())
        try:
            await story(loop)
        finally:
            loop.controller.workers.stop()
            await asyncio.wait_for(task, 20)

    asyncio.run(played())


def fails(
    times: int, error: Callable[[], Exception]
) -> Callable[[], Awaitable[ServiceResult | None]]:
    left = [times]

    async def order() -> None:
        if left[0]:
            left[0] -= 1
            raise error()

    return order


def test_one_service_that_fails_stops_none_of_the_others() -> None:
    async def story(loop: Loop) -> None:
        loop.passes.orders["poison"] = fails(10**6, lambda: RuntimeError("poison"))
        loop.add("poison", "a", "b")
        await eventually(lambda: {"a", "b"} <= set(loop.passes.seen), "the others")
        await eventually(lambda: loop.passes.seen.count("poison") > 2, "another try")
        assert loop.figure("controller_runtime_reconcile_errors_total") >= 2

    play(Loop("poison", "a", "b"), story)


def test_a_conflict_comes_back_and_is_no_error() -> None:
    async def story(loop: Loop) -> None:
        loop.passes.orders["a"] = fails(
            2, lambda: KubeConflict("moved", reason=ConflictReason.CHANGED)
        )
        loop.add("a")
        await eventually(lambda: len(loop.passes.seen) == 3, "the third try")
        await eventually(lambda: loop.controller.queue.idle, "the end")
        assert loop.figure("controller_runtime_reconcile_errors_total") == 0
        assert loop.controller.queue.failures(ObjectKey(namespace="shop", name="a")) == 0

    play(Loop("a"), story)


@pytest.mark.parametrize("error", [PermissionDenied, TargetUnavailable, ApiError])
def test_a_failure_that_may_pass_is_tried_again(error: type[Exception]) -> None:
    async def story(loop: Loop) -> None:
        loop.passes.orders["a"] = fails(1, lambda: error("no"))
        loop.add("a")
        await eventually(lambda: len(loop.passes.seen) == 2, "another try")

    play(Loop("a"), story)


def test_a_server_that_asks_for_time_gets_it() -> None:
    def busy() -> Exception:
        error = TargetUnavailable("busy")
        error.retry_after = 3600.0
        return error

    async def story(loop: Loop) -> None:
        loop.passes.orders["a"] = fails(1, busy)
        loop.add("a")
        await eventually(lambda: loop.controller.queue.later == 1, "the wait")
        await asyncio.sleep(0.1)
        assert loop.passes.seen == ["a"]

    play(Loop("a"), story)


def test_what_the_api_server_refuses_is_asked_again_and_told() -> None:
    """An admission policy may be mended at any time, and no event of ours says so."""

    async def story(loop: Loop) -> None:
        loop.passes.orders["a"] = fails(2, lambda: ValidationError("denied"))
        condition = ConditionReport(
            type="UpToDate", status="False", reason="WriteRefused", message="denied"
        )
        loop.passes.untold = [WriteRefused(condition=condition)]
        loop.add("a")
        await eventually(lambda: len(loop.passes.seen) == 3, "another try")
        await loop.recorder.flush()
        assert [event["reason"] for event in loop.events] == ["WriteRefused"]

    play(Loop("a"), story)


def test_no_failure_is_left_alone_for_more_than_a_minute() -> None:
    async def story(loop: Loop) -> None:
        key = ObjectKey(namespace="shop", name="a")
        waits = [loop.controller.queue.add_rate_limited(key) for _ in range(40)]
        assert max(waits) <= 60

    play(Loop("a"), story)


def test_a_spec_that_cannot_be_read_is_told_once_until_it_is_another() -> None:
    async def story(loop: Loop) -> None:
        key = ObjectKey(namespace="shop", name="a")
        del loop.copy.items[key]["spec"]["modelRef"]
        loop.add("a")
        await eventually(lambda: loop.client.applied, "the status")
        (written,) = loop.client.applied
        assert written["status"]["ready"] is False
        assert "modelRef" in written["status"]["message"]
        drift = [
            each for each in written["status"]["conditions"] if each["type"] == "DriftDetected"
        ]
        assert drift[0]["status"] == "Unknown", "nobody looked"
        loop.add("a")
        await eventually(lambda: loop.controller.queue.idle, "the second look")
        assert len(loop.client.applied) == 1
        loop.copy.items[key] = stored("a", generation=2)
        loop.add("a")
        await eventually(lambda: loop.passes.seen == ["a"], "the look at the mended spec")

    play(Loop("a"), story)


def test_a_field_of_a_later_version_does_not_stop_the_looks() -> None:
    async def story(loop: Loop) -> None:
        loop.copy.items[ObjectKey(namespace="shop", name="a")]["spec"]["bogus"] = 1
        loop.add("a")
        await eventually(lambda: loop.passes.seen == ["a"], "the look")
        assert loop.passes.unknown == ("spec.bogus",)

    play(Loop("a"), story)


def test_a_look_that_hangs_is_cut_off() -> None:
    async def hang() -> None:
        await asyncio.sleep(3600)

    async def story(loop: Loop) -> None:
        loop.passes.orders["a"] = hang
        loop.add("a", "b")
        await eventually(lambda: loop.passes.seen.count("a") > 1, "the next try")
        assert "b" in loop.passes.seen

    play(Loop("a", "b", reconcile_within=0.1), story)


def test_a_look_asked_for_later_comes_later() -> None:
    async def later() -> ServiceResult:
        return ServiceResult(status=InferenceServiceStatus(), requeue_after=0.05)

    async def story(loop: Loop) -> None:
        loop.passes.orders["a"] = later
        loop.add("a")
        await eventually(lambda: len(loop.passes.seen) > 2, "more looks")

    play(Loop("a"), story)


def test_every_service_is_looked_at_in_the_time_of_a_resync() -> None:
    async def story(loop: Loop) -> None:
        await eventually(lambda: set(loop.passes.seen) == {"a", "b", "c"}, "all of them")

    play(Loop("a", "b", "c", resync=0.2), story)


def test_an_event_of_a_child_leads_to_its_owner_and_to_nobody_elses() -> None:
    def child(name: str, uid: str) -> dict[str, Any]:
        owner = {"apiVersion": "holdfast.dev/v1alpha1", "kind": "InferenceService", "name": name,
                 "uid": uid, "controller": True}  # fmt: skip
        return {"metadata": {"name": "x", "namespace": "shop", "ownerReferences": [owner]}}

    async def story(loop: Loop) -> None:
        controller = loop.controller
        controller.on_child(None, child("a", "uid-a"))
        controller.on_child(None, child("b", "uid-of-a-predecessor"))
        controller.on_child(None, child("unknown", "u"))
        controller.on_child(child("c", "uid-of-a-predecessor"), None)
        await eventually(lambda: len(loop.passes.seen) == 2, "the looks")
        await eventually(lambda: controller.queue.idle, "the end")
        assert sorted(loop.passes.seen) == ["a", "c"]

    play(Loop("a", "b", "c"), story)


def test_facts_become_events_and_figures() -> None:
    ref = ObjectRef(api_version="v1", kind="Service", namespace="shop", name="a-svc")
    fact = DriftHealed(drift=ChildDrift(ref=ref, deleted=True))

    async def noted() -> ServiceResult:
        return ServiceResult(status=InferenceServiceStatus(), facts=(fact,))

    async def story(loop: Loop) -> None:
        loop.passes.orders["a"] = noted
        loop.add("a")
        await eventually(lambda: loop.passes.seen and loop.controller.queue.idle, "the look")
        await loop.recorder.flush()
        (event,) = loop.events
        assert (event["type"], event["reason"]) == ("Warning", "DriftHealed")
        assert event["regarding"]["uid"] == "uid-a"
        assert loop.figure("holdfast_drift_resolved_total") == 1

    play(Loop("a"), story)


def test_an_end_lets_the_look_under_way_finish_and_begins_no_other() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    finished: list[str] = []

    async def slow() -> None:
        begun.set()
        await may_end.wait()
        finished.append("a")

    async def story(loop: Loop) -> None:
        loop.passes.orders["a"] = slow
        loop.add("a", "b", "c")
        await begun.wait()
        loop.controller.workers.stop()
        await asyncio.sleep(0.05)
        may_end.set()

    loop = Loop("a", "b", "c", workers=1)
    play(loop, story)
    assert finished == ["a"]
    assert loop.passes.seen == ["a"]


def test_one_look_at_everything_ends_by_itself_and_tries_conflicts_again() -> None:
    async def played() -> Loop:
        loop = Loop("a", "b", once=True)
        loop.passes.orders["a"] = fails(
            1, lambda: KubeConflict("moved", reason=ConflictReason.CHANGED)
        )
        loop.passes.orders["b"] = fails(10**6, lambda: TargetUnavailable("gone"))
        loop.add("a", "b")
        await asyncio.wait_for(loop.controller.run(), 20)
        return loop

    loop = asyncio.run(played())
    assert sorted(loop.passes.seen) == ["a", "a", "b"]
    assert loop.controller.failed == 1


@pytest.mark.parametrize(
    ("labels", "project"),
    [({}, "shop"), ({"holdfast.dev/project": "acme"}, "acme")],
    ids=["of its namespace", "by its label"],
)
def test_events_link_to_the_service_in_the_page(labels: dict[str, str], project: str) -> None:
    loop = Loop("bot", page_url="https://holdfast.example.com")
    loop.copy.items[ObjectKey(namespace="shop", name="bot")]["metadata"]["labels"] = labels
    condition = ConditionReport(
        type="UpToDate", status="False", reason="WriteRefused", message="denied"
    )

    async def order() -> ServiceResult:
        facts = (WriteRefused(condition=condition),)
        return ServiceResult(status=InferenceServiceStatus(ready=True), facts=facts)

    async def story(loop: Loop) -> None:
        loop.passes.orders["bot"] = order
        loop.add("bot")
        await eventually(lambda: "bot" in loop.passes.seen, "the pass")
        await loop.recorder.flush()
        (event,) = loop.events
        link = f"https://holdfast.example.com/ui/p/{project}/workloads/bot"
        assert event["note"].endswith(f" See {link}")

    play(loop, story)
