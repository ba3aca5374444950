"""From a declaration to an answer, on a server that really runs the workload."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from tests.support.both_clients import CLIENT_KINDS, data_client, management_client
from tests.support.processes import echo_command
from tests.support.server import RunningServer, running_server

from holdfast import (
    AuthError,
    BackendError,
    Health,
    PermissionDenied,
    Phase,
    Progress,
    WorkloadSpec,
)

ECHO = WorkloadSpec(
    name="echo",
    model="echo",
    backend="echo",
    command=shlex.join(echo_command()),
    health=Health(path="/health", interval="1s", startup="60s"),
)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("serving")) as server:
        yield server


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_a_declared_workload_is_waited_for_and_answers(colour: str, serving: RunningServer) -> None:
    seen: list[Progress] = []
    token = serving.token("acme")
    with management_client(colour, serving.url, project="acme", token=token) as mgmt:
        ref = mgmt.ensure(ECHO)
        ready = mgmt.wait_until_ready(ref.workload_slug, timeout=60, on_progress=seen.append)
        assert ready.phase is Phase.READY
        assert seen[-1] == ready
        assert mgmt.get("echo").status.ready == 1
        assert isinstance(list(mgmt.logs("echo", tail=5)), list)

    key = serving.data_key("acme", "echo", name=f"app-{colour}")
    with data_client(colour, serving.url, project="acme", api_key=key) as client:
        echo = client.endpoint("echo")
        whole = echo.generate_text(prompt="Hello there")
        pieces = list(echo.generate_text_stream(prompt="Hello there"))
        assert "Hello there" in whole.text
        assert "".join(piece.text for piece in pieces) == whole.text
        assert len(echo.embed(["one", "two"]).embeddings) == 2
        with pytest.raises(BackendError, match="The server of acme/echo answered 4") as raised:
            echo.generate_text(messages=[])
        assert raised.value.status == 400 and raised.value.message
        with pytest.raises(AuthError, match="401") as refused:
            client.endpoint("echo", api_key=key[:-4] + "0000").generate_text(prompt="Hello")
        assert "HOLDFAST_API_KEY" in refused.value.hint
        with pytest.raises(PermissionDenied) as denied:
            client.endpoint("echo", api_key=token).generate_text(prompt="Hello")
        assert denied.value.reason == "wrong_credential_type"
        best = echo.rerank(query="red apple", documents=["a blue sky", "a red apple"], top_n=1)
        assert len(best.results) == 1
        with openai.OpenAI(**echo.openai_kwargs()) as official:
            said = official.chat.completions.create(
                model="echo", messages=[{"role": "user", "content": "Hello there"}]
            )
        assert said.choices[0].message.content == whole.text


def test_a_workload_that_cannot_start_ends_the_wait_with_its_reason(
    serving: RunningServer, tmp_path: Path
) -> None:
    from holdfast import WorkloadFailed

    token = serving.token("acme")
    spec = WorkloadSpec(
        name="broken", model="m", backend="echo", command=f"{tmp_path}/no-such-program"
    )
    with management_client("sync", serving.url, project="acme", token=token) as mgmt:
        mgmt.ensure(spec)
        with pytest.raises(WorkloadFailed):
            mgmt.wait_until_ready("broken", timeout=60, silent=True)
        mgmt.delete("broken")
