"""A workload without replicas: its first requests are held, it is woken, and they are answered."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.apps.server.test_pods import DataPlane, plane, pods
from tests.support.endpoint_cluster import Pod
from tests.support.processes import wait_until

from holdfast.apps.server.waking import WorkloadWaker
from holdfast.core.names import WorkloadId
from holdfast.core.service.idle import DATA_PLANE_ANNOTATION, LAST_REQUEST_ANNOTATION

__all__ = ["plane", "pods"]

SLEEPS = {"minReplicas": 0, "maxReplicas": 1, "healthCheck": {"startup": "20s"}}
RESTING = {"replicas": 0, "readyReplicas": 0, "message": "Scaled to zero since noon."}


@pytest.fixture
def asleep(plane: DataPlane) -> DataPlane:
    plane.cluster.add_service(spec=SLEEPS, status=RESTING)
    return plane


def annotation(plane: DataPlane, name: str) -> str:
    return (plane.cluster.services["bot"]["metadata"].get("annotations") or {}).get(name, "")


@pytest.fixture
def operator(asleep: DataPlane, pods: tuple[Pod, Pod]) -> Iterator[None]:
    """Starts a pod some time after the workload was asked."""

    def run() -> None:
        wait_until(lambda: annotation(asleep, LAST_REQUEST_ANNOTATION), 20, "a request")
        threading.Event().wait(0.3)
        asleep.cluster.set_pods("bot-svc", pods[0])

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()


@pytest.mark.usefixtures("operator")
def test_first_requests_are_held_and_answered_by_the_pod_they_woke(asleep: DataPlane) -> None:
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(asleep.ask().text)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert answers == ["bot-a"] * 8
    woken = [each for each in asleep.cluster.patches if LAST_REQUEST_ANNOTATION in str(each)]
    assert len(woken) <= 2  # however many wait


@pytest.fixture
def woken(asleep: DataPlane) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Give what happens once the workload was asked, to be played beside the request."""
    threads: list[threading.Thread] = []

    def play(story: Callable[[], None]) -> None:
        def run() -> None:
            wait_until(lambda: annotation(asleep, LAST_REQUEST_ANNOTATION), 20, "a request")
            story()

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield play
    for each in threads:
        each.join()


def test_a_held_request_takes_the_pod_at_once_and_reads_nothing_before(
    asleep: DataPlane,
    pods: tuple[Pod, Pod],
    woken: Callable[[Callable[[], None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pod that is ready may be gone again a moment later, and the request would be lost."""
    monkeypatch.setattr("holdfast.apps.server.cluster_routes.FRESH_SECONDS", 0.0)

    def leave() -> None:
        asleep.cluster.set_pods("bot-svc")
        time.sleep(0.3)  # until the data plane has heard of it

    def story() -> None:
        asleep.cluster.on_read = leave
        asleep.cluster.set_pods("bot-svc", pods[0])

    woken(story)
    answer = asleep.ask()
    asleep.cluster.on_read = None
    assert (answer.status_code, answer.text) == (200, "bot-a")


def test_a_held_request_whose_pod_leaves_before_it_answers_waits_for_the_next_one(
    asleep: DataPlane, pods: tuple[Pod, Pod], woken: Callable[[Callable[[], None]], None]
) -> None:
    pods[0].dies = True

    def leave() -> None:
        asleep.cluster.set_pods("bot-svc")
        time.sleep(0.3)  # until the data plane has heard of it

    def story() -> None:
        asleep.cluster.set_pods("bot-svc", pods[0])
        wait_until(lambda: pods[0].asked, 10, "the first pod to be asked")
        time.sleep(0.3)
        asleep.cluster.set_pods("bot-svc", pods[1])

    pods[0].on_request = leave
    woken(story)
    answer = asleep.ask()
    assert (answer.status_code, answer.text) == (200, "bot-b")


def test_a_pod_that_breaks_off_and_stays_is_not_waited_for(
    asleep: DataPlane, pods: tuple[Pod, Pod]
) -> None:
    pods[0].dies = True
    asleep.cluster.set_pods("bot-svc", pods[0])
    answer = asleep.ask()
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "workload_unreachable")


def test_one_that_does_not_start_in_its_budget_gets_the_pods_problem(asleep: DataPlane) -> None:
    problem = "Pod bot-primary-x cannot start: ImagePullBackOff"
    spec = {**SLEEPS, "healthCheck": {"startup": "1s"}}
    asleep.cluster.add_service(spec=spec, status={**RESTING, "ready": False, "message": problem})
    answer = asleep.ask()
    assert answer.status_code == 503
    assert problem in answer.json()["error"]["message"]
    assert answer.headers["retry-after"]


def test_only_so_many_wait(asleep: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.apps.server.waking.MAX_HELD", 0)
    answer = asleep.ask()
    assert answer.status_code == 503
    assert "0 requests wait for it already" in answer.json()["error"]["message"]
    assert answer.headers["retry-after"] == "5"


def test_others_are_answered_at_once_that_they_are_not_ready(plane: DataPlane) -> None:
    assert plane.ask().status_code == 503
    assert plane.cluster.patches == []


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.apps.server.waking.DATA_PLANE_BEAT", 0.1)


@pytest.mark.usefixtures("often")
def test_signs_of_life_are_given_for_what_may_rest_and_for_nothing_else(
    asleep: DataPlane, pods: tuple[Pod, Pod]
) -> None:
    asleep.cluster.add_service("other")
    asleep.cluster.set_pods("bot-svc", pods[0])
    wait_until(lambda: annotation(asleep, DATA_PLANE_ANNOTATION), 25, "a sign of life")
    assert annotation(asleep, LAST_REQUEST_ANNOTATION) == ""
    asleep.ask()
    wait_until(lambda: annotation(asleep, LAST_REQUEST_ANNOTATION), 25, "the request to be told")
    assert "annotations" not in asleep.cluster.services["other"]["metadata"]


class SteppedClock:
    """Time that passes when told; who sleeps wakes up then."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sleeping: list[tuple[float, asyncio.Event]] = []

    def now(self) -> datetime:
        return datetime(2026, 11, 18, 12, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        self._sleeping.append((self.seconds + seconds, over))
        await over.wait()

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        for until, over in self._sleeping:
            if until <= self.seconds:
                over.set()


class ScriptedApi:
    """One service whose annotations are listed and patched; a patch may be held on its way."""

    def __init__(self, idle_after: str) -> None:
        spec = {"minReplicas": 0, "maxReplicas": 1, "autoscaling": {"idleAfter": idle_after}}
        self.annotations: dict[str, str] = {}
        self.item = {
            "metadata": {"name": "bot", "annotations": self.annotations},
            "spec": spec,
        }
        self.patched = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def list(self, scope: object) -> SimpleNamespace:
        return SimpleNamespace(items=[self.item])

    async def patch(self, ref: object, change: dict[str, Any]) -> None:
        self.patched.set()
        await self.gate.wait()
        self.annotations.update(change["metadata"]["annotations"])


class ScriptedRouter:
    """A workload that is answering all the time."""

    def __init__(self, clock: SteppedClock) -> None:
        self.clock = clock
        self.asked: datetime | None = None
        self.next_change = asyncio.Event()

    async def follow(self, namespace: str) -> bool:
        return True

    def last_request(self, namespace: str, name: str) -> datetime | None:
        return self.asked or self.clock.now()

    def note_request(self, namespace: str, name: str) -> None:
        pass


def make_waker(idle_after: str) -> tuple[WorkloadWaker, ScriptedApi, ScriptedRouter, SteppedClock]:
    clock = SteppedClock()
    api, router = ScriptedApi(idle_after), ScriptedRouter(clock)
    # The parts that it uses of each, and no cluster.
    return WorkloadWaker(cast("Any", api), cast("Any", router), clock), api, router, clock


@pytest.mark.parametrize(("idle_after", "at_most"), [("5s", 2), ("30s", 11), ("10m", 16)])
def test_an_answering_workload_is_told_of_long_before_it_would_rest(
    idle_after: str, at_most: float
) -> None:
    async def story() -> None:
        waker, api, _, clock = make_waker(idle_after)
        running = asyncio.create_task(waker.run(lambda: ["acme"]))
        oldest = 0.0
        try:
            for _ in range(60):
                await asyncio.sleep(0.001)
                clock.advance(1)
                await asyncio.sleep(0.001)
                told = datetime.fromisoformat(api.annotations[LAST_REQUEST_ANNOTATION])
                oldest = max(oldest, (clock.now() - told).total_seconds())
        finally:
            running.cancel()
        assert oldest <= at_most

    asyncio.run(story())


def test_a_request_is_not_unsaid_by_a_sign_that_was_on_its_way() -> None:
    async def story() -> None:
        waker, api, router, clock = make_waker("1m")
        router.asked = clock.now()
        api.gate.clear()
        running = asyncio.create_task(waker.run(lambda: ["acme"]))
        await api.patched.wait()  # the sign is on its way, with the request of then
        clock.advance(10)
        asked = clock.now()
        workload = WorkloadId(project="acme", slug="bot")
        held = asyncio.create_task(waker.wait_for_lease(workload, "acme", 60, lambda: None))
        await asyncio.sleep(0.01)
        api.gate.set()
        await asyncio.sleep(0.01)
        held.cancel()
        running.cancel()
        told = datetime.fromisoformat(api.annotations[LAST_REQUEST_ANNOTATION])
        assert told == asked.replace(microsecond=0)

    asyncio.run(story())
