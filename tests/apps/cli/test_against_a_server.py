"""The command line against a control plane, and `holdfast serve` itself."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.apps.cli.conftest import EMBED, Holdfast
from tests.support.processes import HOLDFAST, echo_command, started, wait_until
from tests.support.server import RunningServer, bearer, running_server


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    with running_server(tmp_path) as running:
        monkeypatch.setenv("HOLDFAST_URL", running.url)
        monkeypatch.setenv("HOLDFAST_PROJECT", "acme")
        monkeypatch.setenv("HOLDFAST_TOKEN", running.token("acme", name="ci"))
        yield running


@pytest.fixture
def echo() -> Path:
    path = Path("echo.yaml")
    path.write_text(
        "name: echo\nmodel: echo\nbackend: llamacpp\nreplicas: 1\n"
        f"command: {json.dumps(shlex.join(echo_command()))}\n"
    )
    return path


def item(holdfast: Holdfast) -> dict[str, object]:
    (found,) = json.loads(holdfast("status", "-o", "json").out)["items"]
    return dict(found)


def test_a_workload_is_ensured_awaited_changed_behind_our_back_and_put_back(
    holdfast: Holdfast, server: RunningServer, echo: Path
) -> None:
    run = holdfast("ensure", "-f", "echo.yaml", "--wait", "--timeout", "60s")
    assert run.code == 0, run.screen
    assert run.out == "+ acme/echo  created\n1 created.\n"
    assert run.err.endswith("acme/echo is ready.\nNext: holdfast status\n")
    assert "1/1    synced  ready" in holdfast("status").out
    assert "primary-1 listening on" in holdfast("logs", "echo").out

    answer = httpx2.patch(
        f"{server.url}/api/workloads/{item(holdfast)['uid']}",
        json={"model_name": "other"},
        headers={**bearer(server.token("acme", name="ops")), "User-Agent": "curl/8.5"},
    )
    assert answer.status_code == 200
    assert holdfast("drift", "list", "--exit-code").code == 2
    plan = holdfast("plan", "-f", "echo.yaml", "--exit-code")
    assert plan.code == 2
    assert "     ~ model  other  →  echo   configuration, by curl (ops)\n" in plan.out
    assert holdfast("ensure", "-f", "echo.yaml", "--on-drift", "fail").code == 3

    assert holdfast("ensure", "-f", "echo.yaml").out.startswith("~ acme/echo  updated    1 field")
    assert holdfast("wait", "--for", "synced", "echo").code == 0
    assert holdfast("drift", "list").out == "No drift.\n"
    past = json.loads(holdfast("drift", "history", "-o", "json").out)["items"]
    assert "reconciled" in [each.get("resolution") for each in past]
    assert holdfast("delete", "echo", "--yes").code == 0
    assert holdfast("status").out == "No workloads.\n"


def test_a_saved_plan_goes_stale_when_somebody_else_writes(
    holdfast: Holdfast, server: RunningServer
) -> None:
    spec = Path("embed.yaml")
    spec.write_text(EMBED)
    holdfast("ensure", "-f", "embed.yaml")
    spec.write_text(EMBED + "description: mine\n")
    holdfast("plan", "-f", "embed.yaml", "--out", "plan.json")
    httpx2.patch(
        f"{server.url}/api/workloads/{item(holdfast)['uid']}",
        json={"description": "theirs"},
        headers=bearer(server.token("acme", name="ops")),
    ).raise_for_status()
    run = holdfast("ensure", "--plan", "plan.json")
    assert run.code == 5
    assert run.err.startswith("error[stale-plan]: ")
    assert item(holdfast)["spec"]["description"] == "theirs"  # type: ignore[index]


def test_a_revoked_token_exits_4(holdfast: Holdfast, server: RunningServer) -> None:
    assert holdfast("status").code == 0
    server.revoke(server.token("acme", name="ci"))
    run = holdfast("status")
    assert run.code == 4
    assert run.err.startswith("error[unauthenticated]: ")
    assert holdfast("doctor").code == 1


def test_a_token_that_may_only_read_cannot_change(
    holdfast: Holdfast, server: RunningServer, monkeypatch: pytest.MonkeyPatch, echo: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", server.token("acme", ["read"], name="reader"))
    assert holdfast("plan", "-f", "echo.yaml").code == 0
    run = holdfast("ensure", "-f", "echo.yaml")
    assert run.code == 4
    assert run.err.startswith("error[permission-denied]: ")
    assert holdfast("token", "list").code == 4


def test_tokens_are_made_over_http_too(holdfast: Holdfast, server: RunningServer) -> None:
    made = json.loads(
        holdfast("token", "create", "--name", "x", "--scope", "read", "-o", "json").out
    )
    headers = bearer(made["token"])
    url = f"{server.url}/api/projects/acme/workloads"
    assert httpx2.get(url, headers=headers).status_code == 200
    assert holdfast("token", "revoke", made["id"]).out == f"Token {made['id']} is revoked.\n"
    assert httpx2.get(url, headers=headers).status_code == 401
    assert holdfast("token", "revoke", made["id"]).out.endswith("was not valid any more.\n")
    assert holdfast("token", "revoke", "00000000").code == 1
    assert made["token"] not in holdfast("token", "list", "-o", "json").out


def test_a_file_that_a_server_holds_is_refused_with_its_address(
    holdfast: Holdfast, server: RunningServer
) -> None:
    run = holdfast("status", "--url", f"sqlite:///{server.db}")
    assert run.code == 1
    assert f"HOLDFAST_URL={server.url}" in run.err
    health = holdfast("doctor", "--url", f"sqlite:///{server.db}")
    assert health.code == 0
    assert "warn  holder" in health.out


def test_doctor_finds_the_server_well(holdfast: Holdfast, server: RunningServer) -> None:
    run = holdfast("doctor")
    assert run.code == 0
    assert run.out.splitlines()[-1] == "ok    token       reads project acme (0 workloads)"


def test_watch_tells_each_change(holdfast: Holdfast, server: RunningServer) -> None:
    Path("embed.yaml").write_text(EMBED)
    with started([*HOLDFAST, "watch"], stderr=subprocess.DEVNULL) as watching:
        assert watching.stdout
        assert json.loads(watching.stdout.readline())["type"] == "version"
        holdfast("ensure", "-f", "embed.yaml")
        seen = json.loads(watching.stdout.readline())
        assert (seen["type"], seen["workload"]["slug"]) in [
            ("created", "embed"),
            ("present", "embed"),
        ]
        holdfast("delete", "embed", "-y")
        kinds = [seen["type"]]
        while kinds[-1] != "deleted":
            kinds.append(json.loads(watching.stdout.readline())["type"])
        assert set(kinds[1:-1]) <= {"updated"}


def test_serve_says_where_it_listens_and_what_to_do_next(
    holdfast: Holdfast, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = home / "serve.out"
    with out.open("wb") as file:
        serving = subprocess.Popen(
            [*HOLDFAST, "serve", "--port", "0", "--db", "s.db"], stdout=file, stderr=file
        )
    try:
        wait_until(lambda: "Next: holdfast doctor" in out.read_text(), 30, "the server to start")
        lines = out.read_text().splitlines()
        (url,) = [line.split()[-1] for line in lines if line.startswith("Holdfast listens on ")]
        (recipe,) = [line for line in lines if "holdfast token create" in line]
        args = shlex.split(recipe.replace("PROJECT", "acme"))[1:]
        token = holdfast(*args, "-o", "name").out.strip()
        monkeypatch.setenv("HOLDFAST_URL", url)
        monkeypatch.setenv("HOLDFAST_PROJECT", "acme")
        monkeypatch.setenv("HOLDFAST_TOKEN", token)
        assert holdfast("doctor").code == 0
        second = subprocess.run(
            [*HOLDFAST, "serve", "--port", "0", "--db", "s.db"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 1
        assert f"process {serving.pid}" in second.stderr
    finally:
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(30) == 0


def test_an_interrupted_wait_leaves_the_workload_and_says_how_to_go_on(
    holdfast: Holdfast, server: RunningServer
) -> None:
    Path("slow.yaml").write_text(
        "name: slow\nmodel: slow\nbackend: llamacpp\n"
        f"command: {json.dumps(shlex.join(echo_command('--load-seconds', '600')))}\n"
    )
    command = [*HOLDFAST, "ensure", "-f", "slow.yaml", "--wait", "--timeout", "5m"]
    with started(command, stdout=subprocess.DEVNULL) as waiting:
        assert waiting.stderr
        assert waiting.stderr.readline().startswith("acme/slow: ")
        waiting.send_signal(signal.SIGINT)
        _, rest = waiting.communicate(timeout=30)
    assert waiting.returncode == 130
    assert rest == (
        "No longer waiting; the workloads go on.\n"
        "Next: holdfast wait --for ready acme/slow --timeout 300s\n"
    )
    assert item(holdfast)["slug"] == "slow"
    assert holdfast("wait", "slow", "--timeout", "1s").code == 124


@pytest.mark.parametrize("goal", ["ready", "synced"])
def test_a_wait_waits_for_a_server_that_is_only_starting(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goal: str, echo: Path
) -> None:
    with running_server(tmp_path) as first:
        port = int(first.url.rpartition(":")[2])
        monkeypatch.setenv("HOLDFAST_TOKEN", first.token("acme"))
        monkeypatch.setenv("HOLDFAST_URL", first.url)
        monkeypatch.setenv("HOLDFAST_PROJECT", "acme")
        assert holdfast("ensure", "-f", "echo.yaml").code == 0
    late = holdfast("wait", "--for", goal, "echo", "--timeout", "2s")
    assert late.code == 124
    assert "There was no answer in 2 s." in late.err
    command = [*HOLDFAST, "wait", "--for", goal, "echo", "--timeout", "60s"]
    with started(command, stdout=subprocess.DEVNULL) as waiting:
        assert waiting.stderr
        assert waiting.stderr.readline().endswith("Still waiting.\n")
        with running_server(tmp_path, port=port):
            assert waiting.wait(60) == 0, waiting.stderr.read()


def test_the_shell_completes_the_names_of_workloads(
    holdfast: Holdfast, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("embed.yaml").write_text(EMBED)
    holdfast("ensure", "-f", "embed.yaml")
    monkeypatch.setenv("_HOLDFAST_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "holdfast status em")
    monkeypatch.setenv("COMP_CWORD", "2")
    run = subprocess.run(HOLDFAST, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("plain,embed\n", "")
    monkeypatch.setenv("HOLDFAST_URL", "http://127.0.0.1:9")
    run = subprocess.run(HOLDFAST, capture_output=True, text=True, check=False)
    assert (run.stdout.strip(), run.stderr) == ("", "")
