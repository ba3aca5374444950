"""A canary on a real cluster, from its first pod to its last, through a gateway and by ratio.

Every pass is made by a new Reconciler, so each is a restart as well: what it knows, it knows from
the cluster. Between two steps the endpoints are what the cluster's own controllers made of it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.control_plane import MERGE_PATCH, ApiRequestFailed
from tests.support.gateway import GatewayController, gateway_api
from tests.support.inference_services import merged

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.kubeconfig import load_config
from holdfast.core.custom_resource import GROUP, VERSION
from holdfast.core.service.children import Gateway
from holdfast.core.service.spec import PLURAL
from holdfast.reconcile.kube import KubeConflict
from holdfast.reconcile.service.reconciler import ServiceReconciler
from holdfast.reconcile.service.status import ServiceResult
from holdfast.wire.crd import INFERENCE_SERVICE, make_crd
from holdfast.wire.inference_service_v1alpha1 import service_from_json

__all__ = ["gateway_api"]

pytestmark = pytest.mark.cluster

ROUTES = "/apis/gateway.networking.k8s.io/v1"
GATEWAY = Gateway(name="inference", namespace="infra", domain="example.com")
CANARY = {"modelRef": "llama-new", "weight": 20}
BY_METRIC = {"metric": "errors", "max": 0.01, "interval": "10s", "rounds": 2}
PRIMARY_ONLY = {"bot-primary": 100}
WITHIN = 60.0


class FastClock(SystemClock):
    """The machine's clock, which a test can put forward."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


class Metric:
    """A metric that is what the test says."""

    def __init__(self) -> None:
        self.value: float | None = None
        self.asked: list[str] = []

    async def query(self, expression: str) -> float | None:
        self.asked.append(expression)
        return self.value


class Story:
    """One service `bot`, and an operator that does one pass when told to."""

    def __init__(
        self, cluster: Cluster, namespace: str, controller: GatewayController | None
    ) -> None:
        self.cluster, self.namespace, self.controller = cluster, namespace, controller
        self.clock, self.metric = FastClock(), Metric()
        self.runner = asyncio.Runner()
        config = load_config(clock=SystemClock(), environ={"KUBECONFIG": str(cluster.kubeconfig)})
        self.api = KubeApi(KubeConnection(config, clock=SystemClock()), manager="holdfast-operator")
        self.path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"
        self.lowest: int | None = None

    def close(self) -> None:
        self.runner.run(self.api.aclose())
        self.runner.close()

    # Any: objects of the Kubernetes API as they come over the wire, here and below.
    def declare(self, **change: Any) -> None:
        """Create the service, or change its spec; None takes a field out."""
        if self.get(f"/apis/{GROUP}/{VERSION}", PLURAL, "bot") is None:
            spec = merged({"rollout": {"maxSurge": 1}}, change)
            document = {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "InferenceService",
                "metadata": {"name": "bot", "namespace": self.namespace},
                "spec": spec,
            }
            self.cluster.api().request("POST", self.path, document)
        else:
            self.cluster.api().request(
                "PATCH", f"{self.path}/bot", {"spec": change}, content_type=MERGE_PATCH
            )

    def once(self) -> ServiceResult | None:
        """One pass of an operator that has just started. None when another writer was first."""
        stored = self.cluster.api().request("GET", f"{self.path}/bot")
        reconciler = ServiceReconciler(
            self.api,
            clock=self.clock,
            key=b"k" * 32,
            gateway=GATEWAY if self.controller else None,
            metrics=self.metric,
        )
        try:
            return self.runner.run(reconciler.reconcile(service_from_json(stored)))
        except KubeConflict:
            return None
        finally:
            self.watch_endpoints()

    def until(self, true: Callable[[], object], what: str, *, accept: bool = False) -> None:
        """Make passes until something is so; once anybody answered, somebody always must."""
        deadline = time.monotonic() + WITHIN
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: {json.dumps(self.status(), indent=1)}")
            self.once()
            if accept:
                self.accept()
            time.sleep(0.2)

    def until_phase(self, phase: str | None, *, accept: bool = False) -> None:
        self.until(lambda: self.phase() == phase, f"phase {phase}", accept=accept)

    def several(self, passes: int = 3) -> None:
        for _ in range(passes):
            self.once()

    def rounds(self) -> None:
        """Let rounds of the analysis pass until they have led to something."""

        def judged() -> bool:
            self.later(11)
            return self.phase() != "Running"

        self.until(judged, "a conclusion")

    def accept(self) -> None:
        if self.controller and self.routes():
            self.controller.accept(self.namespace, "bot")

    def later(self, seconds: float) -> None:
        self.clock.ahead += timedelta(seconds=seconds)

    # What there is

    def status(self) -> dict[str, Any]:
        found = self.cluster.api().request("GET", f"{self.path}/bot")
        status: dict[str, Any] = found.get("status", {})
        return status

    def phase(self) -> str | None:
        phase: str | None = (self.status().get("canary") or {}).get("phase")
        return phase

    def get(self, api: str, plural: str, name: str) -> dict[str, Any] | None:
        """One object; not by kubectl, whose start would take most of the test's time."""
        path = f"{api}/namespaces/{self.namespace}/{plural}/{name}"
        try:
            return self.cluster.api().request("GET", path)
        except ApiRequestFailed as failed:
            if failed.status != 404:
                raise
            return None

    def routes(self) -> bool:
        return bool(self.controller and self.get(ROUTES, "httproutes", "bot"))

    def deployment(self, role: str) -> dict[str, Any] | None:
        return self.get("/apis/apps/v1", "deployments", f"bot-{role}")

    def generation(self, role: str) -> int:
        live = self.deployment(role)
        assert live is not None
        generation: int = live["metadata"]["generation"]
        return generation

    def model(self, role: str) -> str:
        live = self.deployment(role)
        assert live is not None
        model: str = live["spec"]["template"]["metadata"]["annotations"]["holdfast.dev/model"]
        return model

    def weights(self) -> dict[str, int]:
        assert self.controller is not None
        return self.controller.weights(self.namespace, "bot")

    def endpoints(self, service: str) -> dict[str, int]:
        """Ready pods behind a Service, by role."""
        count: dict[str, int] = {}
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"
        label = f"?labelSelector=kubernetes.io/service-name%3D{service}"
        for each in self.cluster.api().request("GET", path + label)["items"]:
            for endpoint in each.get("endpoints") or ():
                if endpoint["conditions"].get("ready"):
                    role = endpoint["targetRef"]["name"].split("-")[1]
                    count[role] = count.get(role, 0) + 1
        return count

    def watch_endpoints(self) -> None:
        """Count who answers: behind the route through a gateway, behind the front elsewhere."""
        services = list(self.weights()) if self.routes() else ["bot-svc"]
        ready = sum(sum(self.endpoints(each).values()) for each in services)
        if ready or self.lowest is not None:
            self.lowest = ready if self.lowest is None else min(self.lowest, ready)

    def probe(self, value: str) -> None:
        """Let the canary's pods fail their probe, or pass it again (`-` takes the note off)."""
        mark = f"testbed.holdfast.dev/probe{value}"
        labels = "holdfast.dev/workload=bot,holdfast.dev/role=canary"
        self.cluster.kubectl(
            "annotate", "pods", "-n", self.namespace, "-l", labels, mark, "--overwrite"
        )


@pytest.fixture(scope="module", autouse=True)
def definition(cluster: Cluster) -> None:
    cluster.install_definitions(make_crd(INFERENCE_SERVICE))


@contextmanager
def told(cluster: Cluster, namespace: str, controller: GatewayController | None) -> Iterator[Story]:
    story = Story(cluster, namespace, controller)
    try:
        yield story
        assert story.lowest, "there was a moment in which nobody answered"
    finally:
        story.close()


@pytest.fixture
def routed(cluster: Cluster, namespace: str, gateway_api: GatewayController) -> Iterator[Story]:
    """A service of two behind a gateway, without a canary yet."""
    with told(cluster, namespace, gateway_api) as story:
        story.declare(modelRef="llama-old", replicas=2)
        story.until(lambda: story.endpoints("bot-primary") == {"primary": 2}, "a primary")
        story.accept()
        yield story


@pytest.fixture
def by_ratio(cluster: Cluster, namespace: str) -> Iterator[Story]:
    """A service of four without a gateway, and without a canary yet."""
    with told(cluster, namespace, None) as story:
        story.declare(modelRef="llama-old", replicas=4)
        story.until(lambda: story.endpoints("bot-svc") == {"primary": 4}, "a primary")
        yield story


def with_share(story: Story, **canary: Any) -> None:
    story.declare(canary={**CANARY, **canary})
    story.until_phase("Running", accept=True)


def test_a_canary_is_added_stepped_and_removed_through_a_gateway(routed: Story) -> None:
    story = routed
    assert story.weights() == PRIMARY_ONLY
    story.declare(canary=CANARY)
    story.once()
    assert story.deployment("canary")
    assert story.weights() == PRIMARY_ONLY, "nothing is sent to pods that are not there yet"

    story.until_phase("Shifting")
    assert story.weights() == {"bot-primary": 80, "bot-canary": 20}
    story.until(lambda: story.endpoints("bot-canary") == {"canary": 1}, "its endpoint")
    story.until(lambda: story.endpoints("bot-svc") == {"primary": 2}, "the front's endpoints")
    story.several()
    assert story.phase() == "Shifting", "the gateway has not said that it knows"
    assert story.controller is not None
    story.controller.refuse(story.namespace, "bot")
    story.several()
    assert story.phase() == "Shifting"
    story.accept()
    story.until_phase("Running")
    assert story.status()["canaryWeight"] == 20

    story.probe("=failing")
    story.until(lambda: story.weights() == PRIMARY_ONLY, "the loss of its share")
    assert story.phase() == "Starting"
    story.probe("-")
    story.until_phase("Running", accept=True)
    assert story.weights() == {"bot-primary": 80, "bot-canary": 20}

    story.declare(canary={"weight": 100})
    story.until_phase("Running", accept=True)
    story.until(lambda: story.weights() == {"bot-canary": 100}, "all of the share", accept=True)
    story.until_phase("Running", accept=True)

    story.declare(canary=None)
    story.until(lambda: story.weights() == PRIMARY_ONLY, "its share to go")
    story.several()
    assert story.phase() == "Detaching"
    assert story.endpoints("bot-canary"), "a gateway that does not know may still send requests"
    story.accept()
    story.until_phase("Draining")
    story.several()
    assert story.endpoints("bot-canary"), "requests may still be running"
    story.later(60)
    story.until(lambda: story.deployment("canary") is None, "its pods to go")
    story.until_phase(None)
    assert story.get("/api/v1", "services", "bot-canary") is None
    assert story.endpoints("bot-primary") == {"primary": 2}


def test_a_canary_becomes_the_primary_by_declaration_through_a_gateway(routed: Story) -> None:
    story = routed
    with_share(story)
    story.declare(modelRef="llama-new", canary=None)
    story.once()
    assert story.model("primary") == "llama-new"
    assert story.weights() == {"bot-primary": 80, "bot-canary": 20}
    story.until(lambda: story.weights() == PRIMARY_ONLY, "its share to go")
    live = story.deployment("primary")
    assert live is not None
    assert live["status"]["updatedReplicas"] == live["status"]["readyReplicas"] == 2
    assert live["status"]["observedGeneration"] == live["metadata"]["generation"]
    assert story.deployment("canary")
    story.accept()
    story.until_phase("Draining")
    story.later(60)
    story.until(lambda: story.deployment("canary") is None, "its pods to go")


def test_a_canary_that_passes_becomes_the_primary_and_declaring_it_restarts_nothing(
    routed: Story,
) -> None:
    story = routed
    with_share(story, analysis={**BY_METRIC, "metric": 'e{pod=~"${CANARY}-.*"}'})
    story.metric.value = 0.001
    story.rounds()
    assert set(story.metric.asked) == {'e{pod=~"bot-canary-.*"}'}
    assert story.model("primary") == "llama-new"
    story.until_phase("Draining", accept=True)
    story.later(60)
    story.until_phase("Promoted")
    assert story.deployment("canary") is None
    assert story.weights() == PRIMARY_ONLY
    stored = story.get(f"/apis/{GROUP}/{VERSION}", PLURAL, "bot")
    assert stored is not None
    assert stored["spec"]["modelRef"] == "llama-old", "what the user declared is not touched"
    story.several()
    said = {each["type"]: each["message"] for each in story.status()["conditions"]}
    assert "declare modelRef: llama-new" in said["CanaryReady"]
    before = story.generation("primary")

    story.declare(modelRef="llama-new", canary=None)
    story.until_phase(None)
    story.several()
    assert story.generation("primary") == before


def test_a_canary_that_fails_is_rolled_back_and_stays_away(routed: Story) -> None:
    story = routed
    with_share(story, analysis=BY_METRIC)
    story.metric.value = 0.5
    story.rounds()
    story.until(lambda: story.weights() == PRIMARY_ONLY, "its share to go")
    assert story.deployment("canary")
    story.until_phase("Draining", accept=True)
    story.later(60)
    story.until_phase("RolledBack")
    story.several()
    assert story.deployment("canary") is None
    assert story.model("primary") == "llama-old"
    story.metric.value = None
    with_share(story, modelRef="llama-newer")
    assert story.model("canary") == "llama-newer"


def test_a_canary_is_added_stepped_and_removed_by_ratio(by_ratio: Story) -> None:
    story = by_ratio
    story.declare(canary={**CANARY, "weight": 25})
    story.once()
    assert story.endpoints("bot-svc") == {"primary": 4}
    story.until(
        lambda: story.endpoints("bot-svc") == {"primary": 3, "canary": 1}, "a quarter of the pods"
    )
    story.until_phase("Running")
    assert story.status()["canaryWeight"] == 25
    assert story.status()["splitMode"] == "ReplicaRatio"

    story.declare(canary={"weight": 50})
    story.until(
        lambda: story.endpoints("bot-svc") == {"primary": 2, "canary": 2}, "half of the pods"
    )
    story.declare(canary={"weight": 5})
    story.until(lambda: story.endpoints("bot-svc") == {"primary": 4}, "a refusal")
    story.several()
    assert story.status()["canary"]["reason"] == "WeightNotPossible"
    assert story.status()["canaryWeight"] == 0

    story.declare(canary={"weight": 50})
    story.until(
        lambda: story.endpoints("bot-svc") == {"primary": 2, "canary": 2}, "half of the pods"
    )
    story.probe("=failing")
    story.until(lambda: story.endpoints("bot-svc") == {"primary": 4}, "the primary to carry all")
    story.probe("-")
    story.until_phase("Running")

    story.declare(canary=None)
    story.until_phase("Draining")
    story.until(lambda: story.endpoints("bot-svc") == {"primary": 4}, "the primary to carry all")
    assert story.endpoints("bot-canary")
    story.later(60)
    story.until(lambda: story.deployment("canary") is None, "its pods to go")
    story.until_phase(None)


def test_a_canary_becomes_the_primary_by_ratio(by_ratio: Story) -> None:
    story = by_ratio
    with_share(story, weight=50)
    story.declare(modelRef="llama-new", canary=None)
    story.until_phase("Draining")
    assert story.model("primary") == "llama-new"
    story.until(lambda: story.endpoints("bot-svc") == {"primary": 4}, "the primary to carry all")
    story.later(60)
    story.until_phase(None)
    assert story.deployment("canary") is None


def test_a_canary_that_fails_is_rolled_back_by_ratio(by_ratio: Story) -> None:
    story = by_ratio
    with_share(story, weight=50, analysis=BY_METRIC)
    story.metric.value = 0.5
    story.rounds()
    story.until_phase("Draining")
    story.until(lambda: story.endpoints("bot-svc") == {"primary": 4}, "the primary to carry all")
    story.later(60)
    story.until_phase("RolledBack")
    assert story.deployment("canary") is None
