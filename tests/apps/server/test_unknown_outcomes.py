"""A write whose answer was lost on its way to the cluster or the ledger.

Clients repeat a 503 by themselves, so 503 says that nothing was begun; an open outcome is 504.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.apps.server.api import Api
from tests.support.endpoint_cluster import NAMESPACE, EndpointCluster, endpoint_cluster
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, configmap, route
from tests.support.server import bearer, running_server

from holdfast.adapters.postgres.sessions import postgres_error
from holdfast.apps.server.config import ClusterLocation
from holdfast.apps.server.errors import to_http_error
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    StoreFull,
    StoreUnavailable,
    TargetUnavailable,
)
from holdfast.core.gitops.application import Remediation

Answer = Callable[[str, str, bytes], tuple[int, dict[str, Any]]]


def status(code: int, reason: str) -> dict[str, Any]:
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason}
    return {**said, "code": code, "reason": reason}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EndpointCluster]:
    with endpoint_cluster(tmp_path) as (made, kubeconfig):
        made.add_service()
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield made


@pytest.fixture
def api(cluster: EndpointCluster, tmp_path: Path) -> Iterator[Api]:
    with (
        running_server(tmp_path, cluster=ClusterLocation()) as server,
        httpx2.Client(base_url=server.url, timeout=30) as http,
    ):
        yield Api(server=server, http=http, project=NAMESPACE)


def refuse_writes(
    cluster: EndpointCluster, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    answer: Answer = cluster.answer

    def refusing(method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        return (code, status(code, reason)) if method == "PATCH" else answer(method, path, body)

    monkeypatch.setattr(cluster, "answer", refusing)


def change_the_model(api: Api) -> httpx2.Response:
    spec = {"name": "bot", "slug": "bot", "model": "other", "backend": "vllm"}
    return api.ask("POST", "ensure", json={"spec": spec})


def test_a_write_that_the_cluster_lost_is_no_503(
    cluster: EndpointCluster, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_writes(cluster, monkeypatch, 504, "Timeout")
    answer = change_the_model(api)
    assert (answer.status_code, answer.json()["error"]) == (504, "outcome_unknown"), answer.text
    assert OUTCOME_UNKNOWN in answer.json()["message"]
    assert int(answer.headers["retry-after"]) > 0


def test_a_write_that_the_cluster_did_not_begin_is_a_503(
    cluster: EndpointCluster, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_writes(cluster, monkeypatch, 429, "TooManyRequests")
    answer = change_the_model(api)
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable"), answer.text
    assert NOTHING_CHANGED in answer.json()["message"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedApplications]:
    world = GitopsWorld(route(Remediation.REVIEW))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        running.passes = False
        yield running


def post(served: ServedApplications, path: str, **form: object) -> httpx2.Response:
    token = served.server.token(PROJECT, ["admin"], name="maria")
    url = f"{served.url}/api/projects/{PROJECT}/gitops/applications/shop{path}"
    return httpx2.post(url, json=form, headers=bearer(token), timeout=30)


def hold(served: ServedApplications) -> httpx2.Response:
    until = datetime.now(UTC) + timedelta(hours=1)
    return post(served, "/holds", reason="INC-1", until=until.isoformat())


@pytest.mark.parametrize(
    ("committing", "wanted"), [(True, (504, "outcome_unknown")), (False, (503, "unavailable"))]
)
def test_a_commit_that_the_database_lost_is_no_503(
    served: ServedApplications, committing: bool, wanted: tuple[int, str]
) -> None:
    (world,) = served.worlds
    world.ledger_store.failure = postgres_error(
        ConnectionResetError(), "db", transaction_timeout=30, committing=committing
    )
    answer = hold(served)
    assert (answer.status_code, answer.json()["error"]) == wanted, answer.text


def test_a_sync_that_was_begun_is_not_called_undone_when_the_ledger_goes_away(
    served: ServedApplications, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world,) = served.worlds
    review = served.services.review_service
    assert review is not None
    begin = review.sync

    def begin_and_lose_the_ledger(*context: Any, **how: Any) -> None:
        begin(*context, **how)
        world.ledger_store.failure = TargetUnavailable("The database is away.")

    monkeypatch.setattr(review, "sync", begin_and_lose_the_ledger)
    answer = post(served, "/sync")
    assert (answer.status_code, answer.json()["error"]) == (504, "outcome_unknown"), answer.text
    assert "The sync of team/shop was begun." in answer.json()["message"]
    assert NOTHING_CHANGED not in answer.json()["message"]


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (TargetUnavailable("Away."), 503),
        (TargetUnavailable("Lost.", changed=OUTCOME_UNKNOWN), 504),
        (TargetUnavailable("Half.", changed="One object was written."), 504),
        (StoreFull("Full."), 507),
        (StoreFull("Full.", changed=OUTCOME_UNKNOWN), 504),
        (StoreUnavailable("Broken.", changed="The write was begun, who knows."), 504),
    ],
)
def test_only_what_changed_nothing_may_be_repeated_by_itself(
    error: TargetUnavailable, wanted: int
) -> None:
    assert to_http_error(error).status == wanted
