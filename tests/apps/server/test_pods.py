"""The data plane before a cluster: which pod gets a request, and what happens when one goes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.apps.server.api import Api
from tests.support.endpoint_cluster import NAMESPACE, EndpointCluster, Pod, endpoint_cluster
from tests.support.processes import wait_until
from tests.support.server import bearer, running_server

from holdfast.adapters.kubernetes.endpoints import PodEndpoint, ready_endpoints
from holdfast.apps.server.config import ClusterLocation


class DataPlane:
    """A server before a scripted cluster, with the key of one workload."""

    def __init__(self, cluster: EndpointCluster, http: httpx2.Client, key: str) -> None:
        self.cluster = cluster
        self.http = http
        self._key = key

    def ask(self, path: str = "models", **more: object) -> httpx2.Response:
        url = f"/endpoint/{NAMESPACE}/bot/v1/{path}"
        return self.http.post(url, headers=bearer(self._key), **{"json": {}, **more})

    def stream(self, path: str = "slow"):  # httpx's own context manager
        url = f"/endpoint/{NAMESPACE}/bot/v1/{path}"
        return self.http.stream("POST", url, headers=bearer(self._key), json={})

    def metric(self, name: str) -> float:
        lines = self.http.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataPlane]:
    with endpoint_cluster(tmp_path) as (cluster, kubeconfig):
        cluster.add_service()
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        with (
            running_server(tmp_path, cluster=ClusterLocation()) as server,
            httpx2.Client(base_url=server.url, timeout=30) as http,
        ):
            api = Api(server=server, http=http, project=NAMESPACE)
            made = api.ask("POST", "tokens", json={"kind": "live", "name": "a", "workload": "bot"})
            assert made.status_code == 201, made.text
            yield DataPlane(cluster, http, made.json()["token"])


@pytest.fixture
def pods() -> Iterator[tuple[Pod, Pod]]:
    made = Pod("bot-a", "127.0.0.2"), Pod("bot-b", "127.0.0.3")
    yield made
    for each in made:
        each.gate.set()
        each.stop()


def until_known(plane: DataPlane, *names: str) -> None:
    """Ask until exactly these pods answer; a change takes a moment to be heard."""
    wait_until(lambda: {plane.ask().text for _ in range(6)} == set(names), 10, f"{names} to answer")


def test_requests_are_shared_by_the_pods_that_are_ready(
    plane: DataPlane, pods: tuple[Pod, Pod]
) -> None:
    plane.cluster.set_pods("bot-svc", *pods)
    answers = [plane.ask() for _ in range(20)]
    assert Counter(each.text for each in answers) == {"bot-a": 10, "bot-b": 10}
    assert answers[0].headers["x-holdfast-replica"] == answers[0].text


def test_the_least_busy_pod_gets_the_next_request(plane: DataPlane, pods: tuple[Pod, Pod]) -> None:
    plane.cluster.set_pods("bot-svc", *pods)
    with plane.stream() as slow:
        pieces = slow.iter_text()
        busy = next(pieces)
        others = {plane.ask().text for _ in range(5)}
        assert others == {"bot-a", "bot-b"} - {busy}
        for each in pods:
            each.gate.set()


def test_a_request_whose_pod_dies_before_it_answers_goes_to_another(
    plane: DataPlane, pods: tuple[Pod, Pod]
) -> None:
    plane.cluster.set_pods("bot-svc", *pods)
    pods[0].dies = True
    assert [plane.ask().text for _ in range(10)] == ["bot-b"] * 10
    assert plane.metric("holdfast_proxy_retries_total") == 1  # doubted from then on
    pods[0].stop()
    pods[1].dies = True
    refused = plane.ask()
    assert (refused.status_code, refused.json()["error"]["code"]) == (502, "workload_unreachable")


def test_a_dead_canary_does_not_cost_the_primarys_answers(
    plane: DataPlane, pods: tuple[Pod, Pod]
) -> None:
    plane.cluster.set_pods("bot-svc", *pods)
    plane.cluster.set_pods("bot-canary", pods[1])
    pods[1].dies = True
    assert [plane.ask().text for _ in range(10)] == ["bot-a"] * 10


def test_a_body_that_is_not_kept_is_sent_once(plane: DataPlane, pods: tuple[Pod, Pod]) -> None:
    plane.cluster.set_pods("bot-svc", *pods)
    for each in pods:
        each.dies = True
    answer = plane.ask(json=None, content=b"x" * (1024 * 1024 + 1))
    assert answer.status_code == 502
    assert sum(each.asked for each in pods) == 1
    assert plane.metric("holdfast_proxy_retries_total") == 0


def test_a_pod_that_leaves_gets_nothing_new_and_may_end_what_it_answers(
    plane: DataPlane, pods: tuple[Pod, Pod]
) -> None:
    leaving, staying = pods
    plane.cluster.set_pods("bot-svc", *pods)
    until_known(plane, "bot-a", "bot-b")
    assert leaving.connections == 1
    plane.cluster.set_pods("bot-svc", leaving)
    until_known(plane, "bot-a")
    with plane.stream() as slow:
        pieces = slow.iter_text()
        assert next(pieces) == "bot-a"
        plane.ask()  # on a second connection, which is idle from then on
        plane.cluster.set_pods("bot-svc", staying)
        until_known(plane, "bot-b")
        wait_until(lambda: leaving.connections == 1, 5, "the idle connection to be closed")
        leaving.gate.set()
        assert "".join(pieces) == "."
    wait_until(lambda: leaving.connections == 0, 5, "the last connection to be closed")


@pytest.mark.parametrize("conditions", [{"ready": False}, {"ready": True, "terminating": True}])
def test_without_a_pod_that_takes_requests_the_answer_says_so(
    plane: DataPlane, pods: tuple[Pod, Pod], conditions: dict[str, bool]
) -> None:
    plane.cluster.set_pods("bot-svc", *pods, **conditions)
    answer = plane.ask()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"
    said = answer.json()["error"]["message"]
    assert "None of its pods takes requests at the moment" in said
    assert sum(each.asked for each in pods) == 0


def test_the_ratio_of_pods_is_the_canarys_share_without_a_gateway(
    plane: DataPlane, pods: tuple[Pod, Pod]
) -> None:
    third = Pod("bot-c", "127.0.0.4")
    try:
        plane.cluster.set_pods("bot-svc", *pods, third)
        plane.cluster.set_pods("bot-canary", third)
        counted = Counter(plane.ask().text for _ in range(100))
        assert counted["bot-c"] == 33
    finally:
        third.stop()


def test_the_reported_weight_is_the_canarys_share_behind_a_gateway(
    plane: DataPlane, pods: tuple[Pod, Pod]
) -> None:
    primary, canary = pods
    canary_spec = {"canary": {"weight": 20, "modelRef": "tiny-2"}}
    plane.cluster.add_service(spec=canary_spec, status={"canaryWeight": 20})
    plane.cluster.set_pods("bot-svc", primary)
    plane.cluster.set_pods("bot-primary", primary)
    plane.cluster.set_pods("bot-canary", canary)
    wait_until(lambda: "bot-b" in {plane.ask().text for _ in range(6)}, 10, "the canary's share")
    counted = Counter(plane.ask().text for _ in range(100))
    assert counted == {"bot-a": 80, "bot-b": 20}


def test_where_slices_may_not_be_read_requests_go_to_the_service(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch, pods: tuple[Pod, Pod]
) -> None:
    plane.cluster.slices_refused = True
    url = f"http://{pods[0].host}:{pods[0].port}"
    monkeypatch.setattr("holdfast.apps.server.cluster_routes.WORKLOAD_URL", url)
    answers = [plane.ask() for _ in range(3)]
    assert {(each.text, each.headers["x-holdfast-replica"]) for each in answers} == {
        ("bot-a", "bot-svc")
    }
    assert plane.metric("holdfast_proxy_endpoints_refused_total") == 1


def test_pods_serve_on_while_the_api_server_is_away(
    plane: DataPlane, pods: tuple[Pod, Pod], monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.cluster.set_pods("bot-svc", *pods)
    plane.ask()
    monkeypatch.setattr("holdfast.apps.server.cluster_routes.FRESH_SECONDS", 0.0)
    away = {"kind": "Status", "apiVersion": "v1", "code": 503, "reason": "ServiceUnavailable"}
    monkeypatch.setattr(plane.cluster, "answer", lambda *_: (503, away))
    monkeypatch.setattr("holdfast.apps.server.cluster_routes.CLUSTER_TIMEOUT", 0.2)
    assert plane.ask().status_code == 200


def test_many_at_once_lose_nothing_while_pods_come_and_go(
    plane: DataPlane, pods: tuple[Pod, Pod]
) -> None:
    plane.cluster.set_pods("bot-svc", *pods)
    statuses: Counter[int] = Counter()
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            statuses[plane.ask().status_code] += 1

    threads = [threading.Thread(target=load) for _ in range(4)]
    for each in threads:
        each.start()
    for turn in range(6):
        plane.cluster.set_pods("bot-svc", pods[turn % 2])
        stop.wait(0.05)
        plane.cluster.set_pods("bot-svc", *pods)
        stop.wait(0.05)
    stop.set()
    for each in threads:
        each.join()
    assert set(statuses) == {200}


SLICE = {
    "addressType": "IPv4",
    "ports": [{"name": "metrics", "port": 9}, {"name": "http", "port": 8000}],
    "endpoints": [
        {"addresses": ["10.0.0.1"], "targetRef": {"name": "a"}},
        {"addresses": ["10.0.0.2"], "conditions": {"ready": False}, "targetRef": {"name": "b"}},
        {"addresses": ["10.0.0.3"], "conditions": {"ready": True, "terminating": True}},
        {"addresses": ["10.0.0.4"], "conditions": {"ready": True, "serving": True}},
    ],
}


def test_endpoints_of_a_slice_are_those_that_take_new_requests() -> None:
    found = ready_endpoints(SLICE)
    assert [(each.name, each.url) for each in found] == [
        ("a", "http://10.0.0.1:8000"),
        ("10.0.0.4", "http://10.0.0.4:8000"),
    ]
    assert ready_endpoints({**SLICE, "addressType": "FQDN"}) == ()
    assert ready_endpoints({**SLICE, "ports": None}) == ()
    assert PodEndpoint("x", "fd00::1", 80).url == "http://[fd00::1]:80"
