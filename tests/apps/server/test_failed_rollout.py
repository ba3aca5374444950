"""A rollout that failed is told by every app: what runs is not what is written."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner
from tests.support.processes import echo_command, wait_until
from tests.support.server import RunningServer, bearer, running_server

from holdfast import DriftError, ManagementClient, OnDrift, Outcome, WorkloadFailed, WorkloadSpec
from holdfast.apps.cli.main import cli

GOOD = shlex.join(echo_command())
BAD = "sh -c 'echo the weights are not there >&2; exit 23'"
SPEC = WorkloadSpec(name="bot", slug="bot", model="tiny", backend="echo", command=GOOD)
BROKEN = replace(SPEC, command=BAD)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("rollout")) as server:
        yield server


@pytest.fixture(scope="module")
def mgmt(server: RunningServer) -> Iterator[ManagementClient]:
    """A client of a project whose workload was changed to a command that exits."""
    with ManagementClient(server.url, project="acme", token=server.token()) as client:
        client.ensure(SPEC)
        client.wait_until_ready("bot", timeout=60, silent=True)
        client.ensure(BROKEN)
        with pytest.raises(WorkloadFailed, match="the weights are not there"):
            client.wait_until_ready("bot", timeout=60, silent=True)
        yield client


def test_the_sdk_tells_it(mgmt: ManagementClient) -> None:
    status = mgmt.get("bot").status
    assert [each.generation for each in status.failed] == [2]
    assert "exited with code 23" in status.failed[0].reason
    assert "the weights are not there" in status.failed[0].reason
    assert [each.generation for each in status.outdated] == [1]
    plan = mgmt.plan(BROKEN)
    (step,) = plan.changes
    assert {field.change.path[0] for field in step.fields} == {"command"}
    assert "the weights are not there" in str(plan)
    with pytest.raises(DriftError) as refused:
        mgmt.ensure(BROKEN, on_drift=OnDrift.FAIL)
    assert "the weights are not there" in str(refused.value.plan)
    assert mgmt.ensure(BROKEN, on_drift="dry_run").outcome is Outcome.PLANNED
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert mgmt.ensure(BROKEN, on_drift="warn").outcome is Outcome.LEFT
    assert told
    (drift,) = mgmt.drifts()
    assert drift.fields[0].desired == "running generation 2"
    assert "exited with code 23" in drift.fields[0].evidence
    assert "generation 1" in drift.fields[0].evidence


def test_the_http_api_tells_it(server: RunningServer, mgmt: ManagementClient) -> None:
    sent = {"name": "bot", "slug": "bot", "model": "tiny", "backend": "echo", "command": BAD}
    with httpx2.Client(base_url=server.url, headers=bearer(server.token()), timeout=30) as http:
        shown = http.get("/api/projects/acme/workloads/bot").json()
        assert shown["status"]["failed"][0]["generation"] == 2
        assert shown["status"]["outdated"][0]["fields"]["command"] == GOOD
        plan = http.post("/api/projects/acme/plan", json={"specs": [sent]}).json()
        assert plan["steps"][0]["action"] == "update"
        assert "exited with code 23" in plan["steps"][0]["changes"][0]["evidence"]
        refused = http.post("/api/projects/acme/ensure", json={"spec": sent, "on_drift": "fail"})
        assert refused.status_code == 409
        assert "the weights are not there" in refused.text


def test_the_command_line_tells_it(
    server: RunningServer, mgmt: ManagementClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", server.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", server.token())
    monkeypatch.setenv("HOLDFAST_PROJECT", "acme")
    file = tmp_path / "bot.py"
    file.write_text(
        "from holdfast import WorkloadSpec\n"
        "bot = WorkloadSpec(name='bot', slug='bot', model='tiny', backend='echo',\n"
        f"                   command={BAD!r})\n"
    )

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, [*words], prog_name="holdfast")
        return done.exit_code, done.output

    code, text = run("status", "--exit-code")
    assert code == 2 and "drifted" in text and "synced" not in text, text
    code, text = run("plan", "-f", str(file), "--exit-code")
    assert code == 2 and "the weights are not there" in text, text
    code, text = run("drift", "list")
    assert "1 open" in text, text
    code, text = run("drift", "show", mgmt.drifts()[0].id)
    assert "exited with code 23" in text, text
    code, text = run("drift", "explain", mgmt.drifts()[0].id)
    assert "exited with code 23" in text and "holdfast logs" in text, text
    assert "Who wrote it" not in text and "puts the declared values back" not in text, text
    code, text = run("ensure", "-f", str(file), "--on-drift", "fail")
    assert code != 0 and "the weights are not there" in text, text
    code, text = run("ensure", "-f", str(file), "--wait", "--timeout", "60")
    assert code == 1 and "the weights are not there" in text, text


def test_it_is_over_when_the_declaration_is_mended(
    server: RunningServer, mgmt: ManagementClient
) -> None:
    """The last of this module: it ends the failure."""
    assert mgmt.ensure(SPEC).outcome is Outcome.UPDATED
    mgmt.wait_until_ready("bot", timeout=60, silent=True)
    assert mgmt.ensure(SPEC, on_drift=OnDrift.FAIL).outcome is Outcome.UNCHANGED
    assert not mgmt.get("bot").status.failed
    wait_until(lambda: mgmt.drifts() == [], 20, "the ledger to know it")


def test_a_first_start_that_fails_is_drift_too(server: RunningServer) -> None:
    spec = replace(BROKEN, name="new", slug="new")
    with ManagementClient(server.url, project="acme", token=server.token()) as client:
        client.ensure(spec)
        with pytest.raises(WorkloadFailed):
            client.wait_until_ready("new", timeout=60, silent=True)
        with pytest.raises(DriftError) as refused:
            client.ensure(spec, on_drift=OnDrift.FAIL)
        assert "exited with code 23" in str(refused.value.plan)
        client.delete("new")


def test_a_drift_of_a_replica_that_ended_with_its_server_is_superseded(tmp_path: Path) -> None:
    """Replicas get new names at a restart: the drift of the old one would stay open for ever."""

    def open_drifts(server: RunningServer) -> list[str]:
        with server.admin() as store:
            return [each.fields[0].path for each in store.drifts("acme")]

    with running_server(tmp_path) as server:
        with ManagementClient(server.url, project="acme", token=server.token()) as client:
            client.ensure(BROKEN)
        (first,) = wait_until(lambda: open_drifts(server), 30, "the drift")
    with running_server(tmp_path) as server:
        found = wait_until(
            lambda: (now := open_drifts(server)) and first not in now and now, 30, "the new one"
        )
        assert len(found) == 1
        with server.admin() as store:
            ended = [each.resolution for each in store.drifts("acme", include_resolved=True)]
        assert ended == [None, "superseded"]
