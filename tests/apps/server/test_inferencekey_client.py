"""The published InferenceKey client, unmodified, against a running server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

inferencekey = pytest.importorskip("inferencekey")

from tests.apps.server.api import ECHO  # noqa: E402
from tests.support.server import RunningServer, running_server  # noqa: E402

from holdfast.adapters.store import TokenScope  # noqa: E402  # after the skip

MODES = ["reconcile", "fail", "dry_run", "warn", "ignore"]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("inferencekey")) as running:
        yield running


@pytest.fixture(scope="module")
def serving(runner: RunningServer) -> inferencekey.Endpoint:
    """An endpoint whose workload is ready."""
    client = management(runner, "serving")
    client.ensure(spec("bot", command=ECHO))
    client.wait_until_ready("bot", timeout=30, silent=True)
    data = inferencekey.DataClient(base_url=runner.url, project="serving")
    return data.endpoint("bot", api_key=runner.data_key("serving", "bot"))


def management(
    server: RunningServer, project: str, token: str | None = None
) -> inferencekey.ManagementClient:
    return inferencekey.ManagementClient(
        base_url=server.url, sdk_token=token or server.token(project), project=project
    )


def spec(slug: str = "bot", **more: object) -> inferencekey.WorkloadSpec:
    return inferencekey.WorkloadSpec(
        **{"name": slug, "slug": slug, "model": "tiny", "backend": "custom", **more}
    )


def stored(server: RunningServer, project: str, slug: str) -> dict[str, object] | None:
    from holdfast.core.names import WorkloadId

    with server.admin() as store:
        record = store.record(WorkloadId(project=project, slug=slug))
        return record.fields if record else None


@pytest.mark.parametrize("mode", MODES)
def test_ensure_creates_what_is_absent(server: RunningServer, mode: str) -> None:
    """Its dry run writes nothing at all, in this situation too; ours creates."""
    project = f"absent-{mode}".replace("_", "-")
    ref = management(server, project).ensure(spec("My Bot"), on_drift=mode)
    assert (ref.project_slug, ref.workload_slug) == (project, "my-bot")
    assert (stored(server, project, "my-bot") is not None) == (mode != "dry_run")


@pytest.mark.parametrize("mode", MODES)
def test_ensure_leaves_what_is_in_sync_alone_in_every_mode(
    server: RunningServer, mode: str
) -> None:
    project = f"sync-{mode}".replace("_", "-")
    full = spec(
        "bot",
        command="serve --a 1",
        description="says hello",
        execution_policy="autoscaling",
        execution_policy_config={"min_workers": 0, "max_workers": 2},
        worker_id="w1",
        gpu_resource_id="g1",
    )
    client = management(server, project)
    client.ensure(full)
    with server.admin() as store:
        before = len(store.history(project))
    client.ensure(full, on_drift=mode)
    with server.admin() as store:
        assert len(store.history(project)) == before


@pytest.mark.parametrize("mode", MODES)
def test_ensure_treats_drift_as_its_mode_says(server: RunningServer, mode: str) -> None:
    project = f"drift-{mode}".replace("_", "-")
    client = management(server, project)
    client.ensure(spec(command="serve --a 1"))
    changed = spec(command="serve --a 2", model="tiny-2")
    if mode == "fail":
        with pytest.raises(inferencekey.ApiError):
            client.ensure(changed, on_drift=mode)
    else:
        client.ensure(changed, on_drift=mode)
    fields = stored(server, project, "bot")
    assert fields is not None
    wanted = ("serve --a 2", "tiny-2") if mode == "reconcile" else ("serve --a 1", "tiny")
    assert (fields["command"], fields["model"]) == wanted


def test_delete_says_whether_there_was_anything_to_delete(server: RunningServer) -> None:
    client = management(server, "deleting")
    client.ensure(spec())
    assert client.delete("bot") is True
    assert client.delete("bot") is False
    assert stored(server, "deleting", "bot") is None


def test_waiting_ends_with_the_reason_where_nothing_is_run(server: RunningServer) -> None:
    client = management(server, "waiting")
    client.ensure(spec())
    with pytest.raises(inferencekey.ApiError, match="runner is off"):
        client.wait_until_ready("bot", timeout=10, silent=True)


def test_waiting_reports_progress_up_to_ready(runner: RunningServer) -> None:
    client = management(runner, "progress")
    client.ensure(spec(command=ECHO))
    seen: list[str] = []
    client.wait_until_ready("bot", timeout=30, on_progress=lambda event: seen.append(event.phase))
    assert seen[-1] == "ready"


def test_text_comes_back_whole(serving: inferencekey.Endpoint) -> None:
    assert serving.generate_text(prompt="hello there").text == "echo: hello there"


def test_text_comes_back_in_pieces(serving: inferencekey.Endpoint) -> None:
    pieces = [chunk.text for chunk in serving.generate_text_stream(prompt="one two three")]
    assert "".join(pieces) == "echo: one two three"
    assert len(pieces) > 2


def test_embeddings_come_back_one_for_each_input(serving: inferencekey.Endpoint) -> None:
    assert len(serving.embed(input=["a", "b"]).embeddings) == 2


def test_documents_come_back_ranked(serving: inferencekey.Endpoint) -> None:
    found = serving.rerank(query="blue sky", documents=["green grass", "the blue sky"], top_n=1)
    assert [item.index for item in found.results] == [1]


def test_an_unknown_token_is_an_authentication_failure(server: RunningServer) -> None:
    token = server.token("revoking", name="gone")
    server.revoke(token)
    # The client cannot reach its own AuthError: its native layer reports this as a RuntimeError.
    with pytest.raises(inferencekey.InferenceKeyError, match=r"(?i)authentication failed|401"):
        management(server, "revoking", token).ensure(spec())


def test_the_three_ways_of_not_being_permitted_are_told_apart(
    server: RunningServer, serving: inferencekey.Endpoint, runner: RunningServer
) -> None:
    reader = server.token("permissions", [TokenScope.READ])
    with pytest.raises(inferencekey.PermissionDenied, match="scope_insufficient"):
        management(server, "permissions", reader).ensure(spec())
    with pytest.raises(inferencekey.PermissionDenied, match="project_scope_mismatch"):
        management(server, "elsewhere", reader).ensure(spec())
    data_key = runner.data_key("serving", "bot")
    with pytest.raises(inferencekey.PermissionDenied, match="wrong_credential_type"):
        management(runner, "serving", data_key).ensure(spec())


def test_an_absent_workload_is_not_found(server: RunningServer) -> None:
    with pytest.raises(inferencekey.InferenceKeyError, match=r"(?i)not.found|404"):
        management(server, "nothing").wait_until_ready("bot", timeout=5, silent=True)


def test_a_bad_request_is_a_validation_error(server: RunningServer) -> None:
    with pytest.raises(inferencekey.InferenceKeyError, match=r"(?i)bad request|quote|400"):
        management(server, "bad").ensure(spec(command="serve 'unclosed"))
