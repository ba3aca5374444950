"""A control plane whose workloads a real cluster keeps: the published client, ours, and requests.

No operator runs; where one would report that a workload serves, the test writes that status.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

inferencekey = pytest.importorskip("inferencekey")

from tests.apps.server.api import Api  # noqa: E402  # after the skip, as all below
from tests.support.cluster import Cluster as RealCluster  # noqa: E402
from tests.support.cluster_fixtures import create_inference_service, edit, write_service_status  # noqa: E402
from tests.support.processes import RunningBackend, start_backend, wait_until  # noqa: E402
from tests.support.server import RunningServer, bearer, running_server  # noqa: E402

from holdfast import ManagementClient, Resources, ValidationError, WorkloadSpec  # noqa: E402
from holdfast.apps.server.config import ClusterLocation  # noqa: E402

MODES = ["reconcile", "fail", "dry_run", "warn", "ignore"]
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def backend() -> Iterator[RunningBackend]:
    """What answers in place of a workload's pods."""
    with start_backend() as running:
        yield running


@pytest.fixture
def on_cluster(
    kubeconfig: RealCluster, backend: RunningBackend, tmp_path: Path
) -> Iterator[RunningServer]:
    """A server; each project has the namespace of its name."""
    cluster = ClusterLocation(workload_url=backend.url)
    with running_server(tmp_path, cluster=cluster) as running:
        yield running


@pytest.fixture
def far(on_cluster: RunningServer, namespace: str) -> Iterator[Api]:
    """An administrator's view of the project that is this test's namespace."""
    with httpx2.Client(base_url=on_cluster.url, timeout=30) as http:
        yield Api(server=on_cluster, http=http, project=namespace)


def published(server: RunningServer, project: str) -> inferencekey.ManagementClient:
    return inferencekey.ManagementClient(
        base_url=server.url, sdk_token=server.token(project), project=project
    )


def spec(slug: str = "bot", **more: Any) -> inferencekey.WorkloadSpec:
    return inferencekey.WorkloadSpec(
        **{"name": slug, "slug": slug, "model": "tiny", "backend": "vllm", **more}
    )


def test_the_published_client_keeps_inference_services(
    kubeconfig: RealCluster, on_cluster: RunningServer, namespace: str
) -> None:
    client = published(on_cluster, namespace)
    for mode in MODES:
        slug = f"bot-{mode}".replace("_", "-")
        client.ensure(spec(slug), on_drift=mode)
        if mode == "dry_run":  # its dry run creates nothing
            client.ensure(spec(slug))
        client.ensure(spec(slug), on_drift=mode)
        changed = spec(slug, model="tiny-2", command="vllm serve tiny-2")
        if mode == "fail":
            with pytest.raises(inferencekey.ApiError):
                client.ensure(changed, on_drift=mode)
        else:
            client.ensure(changed, on_drift=mode)
        found = kubeconfig.get("inferenceservice", slug, namespace)
        assert found["spec"]["modelRef"] == ("tiny-2" if mode == "reconcile" else "tiny")
        assert found["metadata"]["generation"] == (2 if mode == "reconcile" else 1)
        assert client.delete(slug) is True
        assert client.delete(slug) is False
    assert kubeconfig.objects("inferenceservice", namespace) == []


def test_a_request_reaches_the_workload_through_its_service(
    kubeconfig: RealCluster, on_cluster: RunningServer, far: Api, namespace: str
) -> None:
    client = published(on_cluster, namespace)
    client.ensure(spec())
    made = far.ask("POST", "tokens", json={"kind": "live", "name": "app", "workload": "bot"})
    assert made.status_code == 201, made.text
    key = made.json()["token"]
    data = inferencekey.DataClient(base_url=on_cluster.url, project=namespace)
    endpoint = data.endpoint("bot", api_key=key)
    with pytest.raises(inferencekey.InferenceKeyError, match=r"(?i)not.ready|503|no operator"):
        endpoint.generate_text(prompt="too early")
    serving: dict[str, Any] = {"ready": True, "replicas": 1, "readyReplicas": 1}
    write_service_status(
        kubeconfig, namespace, "bot", **serving, observedGeneration=1, message="serving"
    )
    client.wait_until_ready("bot", timeout=30, silent=True)

    def answered() -> str | None:
        """The data plane may remember for two seconds that it was not ready."""
        try:
            return str(endpoint.generate_text(prompt="hello there").text)
        except inferencekey.InferenceKeyError:
            return None

    assert wait_until(answered, 20, "the workload to answer") == "echo: hello there"
    pieces = [chunk.text for chunk in endpoint.generate_text_stream(prompt="one two three")]
    assert "".join(pieces) == "echo: one two three"

    client.ensure(spec("other"))
    path = f"/endpoint/{namespace}/{{}}/v1/models"
    for slug in ("other", "nobody"):
        refused = httpx2.get(on_cluster.url + path.format(slug), headers=bearer(key))
        code = refused.json()["error"]["code"]
        assert (refused.status_code, code) == (403, "scope_insufficient")


def test_one_base_url_and_prompts_reach_workloads_of_the_cluster(
    kubeconfig: RealCluster, on_cluster: RunningServer, far: Api, namespace: str
) -> None:
    client = published(on_cluster, namespace)
    serving: dict[str, Any] = {"ready": True, "replicas": 1, "readyReplicas": 1}
    for slug in ("bot", "other"):
        client.ensure(spec(slug))
        write_service_status(
            kubeconfig, namespace, slug, **serving, observedGeneration=1, message="serving"
        )
    base = f"{on_cluster.url}/p/{namespace}/v1"
    made = far.ask("POST", "tokens", json={"kind": "live", "name": "gateway"})
    assert made.status_code == 201, made.text
    whole = bearer(made.json()["token"])
    listed = httpx2.get(f"{base}/models", headers=whole).json()["data"]
    assert [each["id"] for each in listed] == ["bot", "other"]
    chat = {"model": "bot", "messages": [{"role": "user", "content": "one two"}]}
    answer = httpx2.post(f"{base}/chat/completions", json=chat, headers=whole, timeout=30)
    assert answer.json()["choices"][0]["message"]["content"] == "echo: one two", answer.text
    absent = httpx2.post(f"{base}/chat/completions", json={"model": "none"}, headers=whole)
    assert (absent.status_code, absent.json()["error"]["code"]) == (404, "model_not_found")

    one = far.ask("POST", "tokens", json={"kind": "live", "name": "app", "workload": "bot"})
    key = bearer(one.json()["token"])
    listed = httpx2.get(f"{base}/models", headers=key).json()["data"]
    assert [each["id"] for each in listed] == ["bot"]
    for slug in ("other", "none"):
        refused = httpx2.post(f"{base}/chat/completions", json={"model": slug}, headers=key)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "scope_insufficient")

    form = {"messages": chat["messages"]}
    told = far.ask("POST", "workloads/bot/prompt", json=form).text
    assert told.replace(": alive\n\n", "").startswith('data: {"text":"echo:"}')
    assert '"done":true' in told
    assert far.ask("POST", "workloads/none/prompt", json=form).status_code == 404


def test_another_projects_workloads_are_as_good_as_none(
    kubeconfig: RealCluster, tmp_path: Path, namespace: str
) -> None:
    """Also where all projects share one namespace, and a name is taken in it."""
    create_inference_service(
        kubeconfig, namespace, "theirs", {"modelRef": "secret-model"}, project="theirs"
    )
    with (
        running_server(tmp_path, cluster=ClusterLocation(namespace=namespace)) as server,
        httpx2.Client(base_url=server.url, timeout=30) as http,
    ):
        mine = Api(server=server, http=http, project="mine")
        for path in (
            "workloads/theirs",
            "workloads/theirs/logs",
            "workloads/theirs/readiness-events",
        ):
            answer = mine.ask("GET", path)
            assert answer.status_code == 404, answer.text
        assert mine.ask("GET", "workloads").json() == {"workloads": []}
        body = {"name": "theirs", "backend": "vllm", "model_name": "m"}
        taken = mine.ask("POST", "workloads", json=body)
        assert (taken.status_code, taken.json()["error"]) == (409, "slug_taken")
        uid = kubeconfig.get("inferenceservice", "theirs", namespace)["metadata"]["uid"]
        for method, sent in (("PATCH", {"name": "x"}), ("DELETE", None)):
            assert mine.ask(method, f"/api/workloads/{uid}", json=sent).status_code == 404
        token = mine.ask(
            "POST", "tokens", json={"kind": "live", "name": "app", "workload": "theirs"}
        )
        assert token.status_code == 404
        said = taken.text + token.text
        assert "project theirs" not in said and "secret-model" not in said


def test_our_own_client_sees_the_cluster_through_the_server(
    kubeconfig: RealCluster, on_cluster: RunningServer, far: Api, namespace: str
) -> None:
    token = on_cluster.token(namespace)
    with ManagementClient(on_cluster.url, project=namespace, token=token) as client:
        chat = WorkloadSpec(name="chat", model="m", backend="vllm", replicas=2)
        ref = client.ensure(chat)
        assert ref.live is not None
        assert ref.live.status.endpoint == f"{on_cluster.url}/endpoint/{namespace}/chat/v1"
        big = WorkloadSpec(name="big", model="m", backend="vllm", resources=Resources(gpu=2))
        assert client.plan(big).changes  # what one machine refuses, a cluster has
        with pytest.raises(ValidationError, match="worker_id"):
            client.plan(WorkloadSpec(name="x", model="m", backend="vllm", worker_id="w1"))
        edit(kubeconfig, namespace, "chat", {"spec": {"replicas": 9}}, manager="kubectl-edit")
        (drift,) = client.drifts()
        assert far.ask("GET", f"drift/{drift.id}").json()["slug"] == "chat"
        assert client.ensure(chat).outcome == "updated"
        assert [live.fields["replicas"] for live in client.list()] == [2]
        history = client.history(slug="chat")
        assert [row.action for row in history] == ["resolved", "updated", "created"]
        assert {row.writer.actor for row in history} == {"test"}


def test_a_change_by_another_credential_is_drift_and_by_the_declarer_is_none(
    on_cluster: RunningServer, far: Api, namespace: str
) -> None:
    body = {"name": "bot", "backend": "vllm", "model_name": "m"}
    made = far.ask("POST", "workloads", json=body).json()
    path = f"/api/workloads/{made['id']}"
    stale = far.ask("PATCH", path, json={"model_name": "n"}, headers={"If-Match": '"other"'})
    assert stale.status_code == 412
    ours = far.ask(
        "PATCH", path, json={"model_name": "n"}, headers={"If-Match": f'"{made["version"]}"'}
    )
    assert ours.status_code == 200, ours.text
    assert far.ask("GET", "drift").json() == {"drifts": [], "total": 0}
    fixed = {"execution_policy": "fixed", "execution_policy_config": {"replicas": 3}}
    theirs = far.ask("PATCH", path, json={"model_name": "z", **fixed}, name="ops", agent="curl/8")
    assert theirs.status_code == 200, theirs.text
    (drift,) = far.ask("GET", "drift").json()["drifts"]
    assert [entry["path"] for entry in drift["fields"]] == ["/model"]
    assert drift["fields"][0]["writer"]["manager"] == "curl"
    assert far.ask("GET", "drift?cause=person&q=BOT").json()["drifts"] == [drift]
    assert far.ask("GET", "drift?cause=autoscaler").json()["total"] == 0
    (group,) = far.ask("GET", "drift?group=cause").json()["groups"]
    assert (group["writer"], group["workloads"]) == ("curl", ["bot"])
    refused = far.ask("PATCH", path, json={"worker_id": "w1"})
    assert (refused.status_code, refused.json()["problems"][0]["field"]) == (400, "worker_id")


def test_a_cluster_that_refuses_the_server_is_not_the_callers_fault(
    kubeconfig: RealCluster, tmp_path: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig.kubeconfig_for("nobody-special")))
    with (
        running_server(tmp_path, cluster=ClusterLocation()) as server,
        httpx2.Client(base_url=server.url, timeout=30) as http,
    ):
        answer = Api(server=server, http=http, project=namespace).ask("GET", "workloads")
        assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")


def test_changes_in_the_cluster_are_told_as_events(
    kubeconfig: RealCluster, on_cluster: RunningServer, far: Api, namespace: str
) -> None:
    headers = bearer(on_cluster.token(namespace))
    url = f"{on_cluster.url}{far.path('events')}"
    with httpx2.stream("GET", url, headers=headers, timeout=20) as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": listening"
        create_inference_service(kubeconfig, namespace, "chat", {"modelRef": "m"})
        told = next(line for line in lines if line.startswith("data:"))
    assert '"slug":"chat"' in told


def test_a_cut_stream_of_the_clusters_changes_is_resumed(
    kubeconfig: RealCluster, on_cluster: RunningServer, far: Api, namespace: str
) -> None:
    """The watch goes on while nobody listens, and is one for all who do."""
    headers = bearer(on_cluster.token(namespace))
    url = f"{on_cluster.url}{far.path('events')}"
    with httpx2.stream("GET", url, headers=headers, timeout=20) as answer:
        begin = next(line for line in answer.iter_lines() if line.startswith("id: "))
    for slug in ("one", "two"):
        create_inference_service(kubeconfig, namespace, slug, {"modelRef": "m"})
    told = []
    for _ in range(2):
        again = {**headers, "Last-Event-ID": begin.removeprefix("id: ")}
        with httpx2.stream("GET", url, headers=again, timeout=20) as answer:
            lines = answer.iter_lines()
            told.append([next(line for line in lines if '"slug"' in line) for _ in range(2)])
    assert told[0] == told[1]
    assert [slug in line for slug, line in zip(("one", "two"), told[0], strict=True)] == [True] * 2
    strange = {**headers, "Last-Event-ID": "1"}
    with httpx2.stream("GET", url, headers=strange, timeout=20) as answer:
        assert "event: reset" in [next(lines) for lines in [answer.iter_lines()] for _ in range(3)]
