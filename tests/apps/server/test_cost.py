"""What a step costs on the runner: every app is told by the server that has the processes."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from aiohttp import web
from click.testing import CliRunner
from tests.adapters.kubernetes.harness import serving
from tests.support.processes import echo_command
from tests.support.server import RunningServer, bearer, running_server

from holdfast import Disruption, ManagementClient, Step, WorkloadSpec
from holdfast.adapters.clock import SystemClock
from holdfast.adapters.http.client import HttpClient
from holdfast.adapters.http.target import RemoteTarget
from holdfast.adapters.http.transports import AsyncTransport
from holdfast.apps.cli.main import cli
from holdfast.core.cost import NO_COST, Cost, CostKind, describe_cost
from holdfast.core.errors import HoldfastError
from holdfast.core.names import WorkloadId
from holdfast.core.plan import Action, with_cost
from holdfast.wire.plan_v1 import CostForm, cost_from_json

COMMAND = shlex.join(echo_command())
SPEC = WorkloadSpec(
    name="bot", slug="bot", model="tiny", backend="echo", command=COMMAND, replicas=2
)
RESTARTED = replace(SPEC, env={"A": "1"})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("cost")) as server:
        yield server


@pytest.fixture(scope="module")
def mgmt(server: RunningServer) -> Iterator[ManagementClient]:
    with ManagementClient(server.url, project="acme", token=server.token()) as client:
        (step,) = client.plan(SPEC).steps
        assert step.cost == Cost(kind=CostKind.NONE, added=2)
        client.ensure(SPEC)
        client.wait_until_ready("bot", timeout=60, silent=True)
        yield client


def test_a_plan_says_how_many_processes_are_replaced_and_how_long_the_last_start_took(
    mgmt: ManagementClient,
) -> None:
    (step,) = mgmt.plan(RESTARTED).steps
    assert step.cost is not None
    assert (step.cost.kind, step.cost.pods, step.cost.added) == (CostKind.ROLLING, 2, 0)
    assert step.cost.cold_start is not None
    assert 0 < step.cost.cold_start < 60
    assert step.disruption is Disruption.RESTART
    assert mgmt.ensure(RESTARTED, on_drift="dry_run").plan.steps == (step,)


def test_a_health_check_restarts_no_process(mgmt: ManagementClient) -> None:
    """On Kubernetes it does, by the pod template: the target says it, and not the field."""
    (step,) = mgmt.plan(replace(SPEC, health={"path": "/healthz"})).steps
    assert step.cost is not None
    assert (step.cost.kind, step.cost.pods) == (CostKind.NONE, 0)
    assert mgmt.plan(SPEC).steps[0].cost == NO_COST


def test_every_door_says_the_same(
    mgmt: ManagementClient,
    server: RunningServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mgmt.get("bot")
    token = server.token()
    spec = {"name": "bot", "slug": "bot", "model": "tiny", "backend": "echo",
            "command": COMMAND, "replicas": 2, "env": {"A": "1"}}  # fmt: skip
    with httpx2.Client(base_url=server.url, headers=bearer(token), trust_env=False) as http:
        plan = http.post("/api/projects/acme/plan", json={"specs": [spec]}).json()
        body = {"spec": spec, "on_drift": "dry_run"}
        ensured = http.post("/api/projects/acme/ensure", json=body).json()
    (step,) = plan["steps"]
    assert (step["cost"]["kind"], step["cost"]["pods"]) == ("rolling", 2)
    assert step["disruption"] == "rolling-restart"
    assert ensured["plan"]["steps"] == [step]

    (tmp_path / "bot.yaml").write_text(json.dumps(spec))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", server.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", token)
    monkeypatch.setenv("HOLDFAST_PROJECT", "acme")
    for verb in ("plan", "diff"):
        ran = CliRunner().invoke(cli, [verb, "-f", "bot.yaml"])
        assert "update: rolling restart of 2 replicas; last cold start" in ran.stdout
        ran = CliRunner().invoke(cli, [verb, "-f", "bot.yaml", "-o", "json"])
        (shown,) = json.loads(ran.stdout)["steps"]
        assert shown["cost"] == step["cost"]
    ran = CliRunner().invoke(cli, ["plan", "-f", "bot.yaml", "-o", "markdown"])
    assert "update: `rolling restart of 2 replicas; last cold start" in ran.stdout
    ran = CliRunner().invoke(cli, ["ensure", "-f", "bot.yaml", "--on-drift", "dry-run"])
    assert "update: rolling restart of 2 replicas; last cold start" in ran.stdout


def test_drift_is_told_with_what_putting_it_back_costs_by_every_door(
    mgmt: ManagementClient, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = server.token()
    curl = {**bearer(token), "User-Agent": "curl/8.1"}
    uid = mgmt.get("bot").uid
    with httpx2.Client(base_url=server.url, headers=curl, trust_env=False) as http:
        sent = {"execution_policy": "fixed", "execution_policy_config": {"replicas": 1}}
        http.patch(f"/api/workloads/{uid}", json=sent).raise_for_status()
        (listed,) = http.get("/api/projects/acme/drift").json()["drifts"]
        one = http.get(f"/api/projects/acme/drift/{listed['id']}").json()
        assert {name: one[name] for name in listed} == listed
    (drift,) = mgmt.drifts()
    assert drift.cost == cost_from_json(msgspec.convert(listed["cost"], CostForm))
    assert (listed["cost"]["kind"], listed["cost"]["added"]) == ("none", 1)
    assert mgmt.plan(SPEC).steps[0].cost == drift.cost

    monkeypatch.setenv("HOLDFAST_URL", server.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", token)
    monkeypatch.setenv("HOLDFAST_PROJECT", "acme")
    said = f"Putting it back: {describe_cost(drift.cost, 'replica')}."
    for verb in ("show", "explain"):
        assert said in CliRunner().invoke(cli, ["drift", verb, drift.id]).stdout
    wide = CliRunner().invoke(cli, ["drift", "list", "-o", "wide"]).stdout
    assert wide.splitlines()[0].endswith("COST")
    assert wide.splitlines()[1].endswith(listed["cost"]["kind"])
    ran = CliRunner().invoke(cli, ["drift", "list", "-o", "json"])
    assert json.loads(ran.stdout)["items"][0]["cost"] == listed["cost"]

    mgmt.ensure(SPEC)
    (ended, *_) = mgmt.drifts(include_resolved=True)
    assert (ended.id, ended.cost) == (drift.id, None)


def test_a_deletion_is_planned_with_what_it_costs_and_carried_out_as_planned(
    mgmt: ManagementClient,
) -> None:
    doomed = replace(SPEC, name="doomed", slug="doomed", replicas=1)
    assert not mgmt.plan_delete("doomed")
    mgmt.ensure(doomed)
    mgmt.wait_until_ready("doomed", timeout=60, silent=True)
    plan = mgmt.plan_delete("doomed")
    assert plan.steps[0].cost is not None
    assert (plan.steps[0].cost.kind, plan.steps[0].cost.added) == (CostKind.GAP, -1)
    assert mgmt.get("doomed").id.slug == "doomed"
    assert mgmt.apply(plan) == [None]
    assert not mgmt.plan_delete("doomed")


def test_a_server_of_an_earlier_version_is_sent_no_cost_and_leaves_it_unknown() -> None:
    """It refuses fields of a step that it does not know, and has no route for the question."""
    sent: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        sent.append(await request.json())
        return web.json_response({"error": "not_found", "message": "No such route."}, status=404)

    step = Step(
        id=WorkloadId(project="acme", slug="bot"), action=Action.CREATE, reason="it is not there",
        disruption=Disruption.NONE, write={"model": "m"}, uid=None, version=None,
    )  # fmt: skip

    async def story() -> None:
        async with serving(answer) as url:
            client = HttpClient(
                url, token=None, user_agent="us", transport=AsyncTransport(),
                clock=SystemClock(), retries=0,
            )  # fmt: skip
            target = RemoteTarget(client).within(20)
            assert await target.cost(step) is None
            priced = with_cost(step, Cost(kind=CostKind.NONE, added=1))
            with pytest.raises(HoldfastError):
                await target.perform(priced, key="k")
            await target.aclose()

    asyncio.run(story())
    assert len(sent) == 2
    assert not any("cost" in body for body in sent)
