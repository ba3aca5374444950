"""Files that an earlier version stored are read as they were meant, and acted on.

`before/` holds them; its README says how they were made. What a person sees of them, and what
is written next, must not depend on the version that reads them.
"""

from __future__ import annotations

import asyncio
import copy
import json
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from tests.support.gitops_world import GitopsWorld, config_ref
from tests.support.operator_world import GATEWAY, NAME, OperatorWorld, OperatorWorlds
from tests.support.postgres import Postgres
from tests.support.server import bearer, running_server

from holdfast import ManagementClient
from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.kubeconfig import load_config
from holdfast.adapters.memory.kube import MemoryKube
from holdfast.adapters.postgres import open_ledger_store
from holdfast.adapters.store import Store
from holdfast.adapters.store.ledger_store import SqliteLedgerStore
from holdfast.apps.cli.main import cli
from holdfast.apps.gitops.applications import ApplicationStatusWriter, ObservedApplication
from holdfast.core.errors import HoldfastError
from holdfast.core.object_ref import ObjectRef, ref_of
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ledger_store import export_drifts, export_journal
from holdfast.reconcile.gitops.notifier import Outbox
from holdfast.reconcile.gitops.ports import LedgerStore, PullRequest, PullRequestState, RecordKind
from holdfast.wire import application_v1alpha1, inference_service_v1alpha1

BEFORE = Path(__file__).parent / "before"
PROJECT = "ml-platform"
OPEN_DRIFTS = {
    "ask-1": "awaiting-approval",
    "ask-2": "snoozed",
    "ask-3": "rejected",
    "ask-secret": "awaiting-approval",
    "hold-1": "held",
    "hold-2": "held",
    "park": "parked",
    "propose": "pull-request",
    "report": "detected",
}
RECORDS = {
    "drift": Counter(open=11, closed=5),
    "inventory": Counter(open=16),
    "hold": Counter(open=2),
    "plan": Counter(open=1, closed=1),
    "revision": Counter(open=4, closed=4),
    "pull": Counter(open=1),
    "notice": Counter(open=1, closed=2),
    "rule": Counter(open=1),
}


def load_json(name: str) -> Any:  # Any: documents as they were stored, here and below
    return json.loads((BEFORE / name).read_text())


def load_store(name: str, folder: Path) -> Path:
    """Make a store out of its dump."""
    path = folder / "holdfast.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((BEFORE / name).read_text())
    return path


def load_objects(kube: MemoryKube, objects: list[Any]) -> None:
    """Put objects there as they were stored, with their versions and managed fields."""
    for item in objects:
        kube._store.items[ref_of(item)] = item
        version = int(item["metadata"]["resourceVersion"])
        kube._store.version = max(kube._store.version, version)


def writes(kube: MemoryKube) -> list[str]:
    return [f"{each.verb} {each.ref}" for each in kube.writes if not each.dry_run]


# The embedded store and the command line.


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return load_store("embedded.sql", tmp_path)


@pytest.fixture
def client(store: Path) -> Iterator[ManagementClient]:
    with ManagementClient(f"sqlite:///{store}", project="acme") as client:
        yield client


def test_a_store_is_whole(store: Path) -> None:
    with Store.open(store) as opened:
        assert opened.check() == []
        assert [each.slug for each in opened.projects()] == ["acme", "empty"]
        tokens = {each.name: each for each in opened.tokens("acme")}
    assert {name: sorted(each.scopes) for name, each in tokens.items()} == {
        "app": [], "ci": ["read", "write"], "revoked": ["admin"],
    }  # fmt: skip
    assert tokens["revoked"].revoked_at is not None


def test_workloads_drifts_and_history_are_read(client: ManagementClient) -> None:
    chat, embed = client.list()
    assert (chat.id.slug, chat.generation, chat.fields["replicas"]) == ("chat", 3, 7)
    assert chat.fields["health"] == {"path": "/health", "startup": 600}
    assert embed.fields == {
        "name": "embed", "model": "bge-m3", "backend": "llamacpp", "replicas": 1,
    }  # fmt: skip
    open_ones = {each.workload.slug: each for each in client.drifts()}
    assert set(open_ones) == {"chat", "embed"}
    (entry,) = open_ones["chat"].fields
    assert (entry.path, entry.desired, entry.live) == ("/replicas", 2, 7)
    assert entry.writer is not None
    assert (entry.writer.manager, entry.writer.actor) == ("curl", "ops")
    actions = Counter(each.action for each in client.history())
    assert actions == {
        "project-created": 1, "created": 3, "updated": 2, "token-created": 3, "token-revoked": 1,
        "drifted": 3, "resolved": 1, "deleted": 1,
    }  # fmt: skip


def test_tokens_open_what_they_opened(store: Path, tmp_path: Path) -> None:
    tokens = load_json("tokens.json")
    with running_server(tmp_path, db=store, run=False) as server:
        address = f"{server.url}/api/projects/acme/workloads"
        answer = httpx2.get(address, headers=bearer(tokens["ci"]))
        assert [each["slug"] for each in answer.json()["workloads"]] == ["chat", "embed"]
        for name in ("app", "revoked"):
            assert httpx2.get(address, headers=bearer(tokens[name])).status_code in (401, 403)


@pytest.fixture
def command(store: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{store}")
    monkeypatch.setenv("HOLDFAST_PROJECT", "acme")
    monkeypatch.setenv("HOME", str(store.parent))

    def run(*words: str) -> str:
        result = CliRunner().invoke(cli, list(words), prog_name="holdfast")
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def test_a_plan_is_saved_and_printed_as_before(command: Callable[..., str], tmp_path: Path) -> None:
    specs = str(BEFORE / "specs")
    command("plan", "-f", specs, "--out", str(tmp_path / "plan.json"))
    assert (tmp_path / "plan.json").read_text() == (BEFORE / "plan.json").read_text()
    printed = command("plan", "-f", specs, "-o", "json")
    assert printed == (BEFORE / "plan_printed.json").read_text()


def test_a_saved_plan_is_applied(command: Callable[..., str], client: ManagementClient) -> None:
    command("ensure", "--plan", str(BEFORE / "plan.json"))
    chat = client.get("chat").fields
    assert (chat["replicas"], chat["env"]) == (2, {"LOG_LEVEL": "debug"})
    assert client.get("rerank").fields["model"] == "bge-reranker"
    assert [each.workload.slug for each in client.drifts()] == ["embed"]


def test_settings_of_a_user_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_URL", "HOLDFAST_PROJECT", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".config" / "holdfast"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_bytes((BEFORE / "config.toml").read_bytes())
    shown = CliRunner().invoke(cli, ["config", "view", "-o", "json"], prog_name="holdfast").stdout
    values = {each["name"]: each["value"] for each in json.loads(shown)["settings"]}
    assert (values["url"], values["project"]) == ("https://holdfast.acme.example", "acme")


@pytest.mark.parametrize(
    ("context", "server", "namespace"),
    [(None, "https://dev.example:6443", "shop"), ("prod", "https://prod.example", "default")],
)
def test_a_kubeconfig_is_read(context: str | None, server: str, namespace: str) -> None:
    environ = {"KUBECONFIG": str(BEFORE / "kubeconfig.yaml")}
    config = load_config(context, clock=SystemClock(), environ=environ)
    assert (config.server, config.namespace) == (server, namespace)


# The operator.


class FixedMetric:
    async def query(self, expression: str) -> float | None:
        return 0.25


@pytest.fixture(params=["canary", "drifted"])
def service(request: pytest.FixtureRequest) -> Iterator[OperatorWorld]:
    """A service with the status and the children that the earlier operator left."""
    stored = load_json(f"inference_service_{request.param}.json")
    gateway = GATEWAY if request.param == "canary" else None
    with OperatorWorlds() as worlds:
        world = worlds.memory(gateway, metrics=FixedMetric())
        kube = world.client.client
        assert isinstance(kube, MemoryKube)
        world.clock.time = datetime.fromisoformat(stored["now"])
        kube._store._clock = world.clock
        load_objects(kube, stored["objects"])
        yield world


def test_a_service_with_its_status_is_read_and_written_alike(service: OperatorWorld) -> None:
    stored = service.get("InferenceService", NAME)
    read = inference_service_v1alpha1.service_from_json(stored)
    assert read.status is not None
    assert inference_service_v1alpha1.status_to_json(read.status) == stored["status"]


def test_an_operator_writes_nothing_but_how_pods_start_and_stop(service: OperatorWorld) -> None:
    """Pods are asked more often while they start, and drain, since: an upgrade rolls them once."""
    before = [_without_hooks(each) for each in _deployments(service)]
    service.reconcile()
    assert {call.kind for call in service.client.writes} <= {"Deployment", "InferenceService"}
    assert [_without_hooks(each) for each in _deployments(service)] == before


def _deployments(service: OperatorWorld) -> list[Any]:  # Any: as stored
    names = (f"{NAME}-primary", f"{NAME}-canary")
    found = (service.find("Deployment", name) for name in names)
    return [each for each in found if each is not None]


def _without_hooks(deployment: Any) -> Any:
    spec = copy.deepcopy(deployment["spec"])
    for container in spec["template"]["spec"]["containers"]:
        container.pop("startupProbe", None)
        container.pop("lifecycle", None)
    return spec


@pytest.mark.parametrize("service", ["drifted"], indirect=True)
def test_drift_that_was_left_is_put_back_under_another_policy(service: OperatorWorld) -> None:
    operation: Any = {"op": "replace", "path": "/spec/onDrift", "value": "reconcile"}
    service.edit("InferenceService", NAME, operation)
    service.converge()
    assert service.primary()["spec"]["replicas"] == 2
    assert "edited" not in json.dumps(service.primary()["spec"])


@pytest.mark.parametrize("service", ["canary"], indirect=True)
def test_a_canary_goes_on_from_where_it_was(service: OperatorWorld) -> None:
    service.run(service.clock.sleep(61))
    service.reconcile()
    state = service.service().status
    assert state is not None
    assert state.canary is not None
    assert state.canary.passed == 11


# The GitOps controller.


class Team:
    """The two applications of the ledger, on their cluster."""

    def __init__(self, ledger: Any) -> None:
        stored = load_json("gitops_cluster.json")
        self.shop = self._world("shop", stored, GitopsWorld())
        self.bank = self._world("bank", stored, GitopsWorld())
        self.kube = self.bank.kube = self.bank.client = self.shop.kube  # type: ignore[assignment]
        self.bank.clock = self.shop.clock
        load_objects(self.kube, stored["objects"])
        for pull in stored["pulls"]:
            self.shop.forge.pulls[pull["number"]] = PullRequest(
                state=PullRequestState.OPEN, mergeable=True, **pull
            )
        self.shop.ledger_store = self.bank.ledger_store = ledger

    def _world(self, name: str, stored: Any, world: GitopsWorld) -> GitopsWorld:
        (item,) = (
            each
            for each in stored["objects"]
            if (each["kind"], each["metadata"]["name"]) == ("Application", name)
        )
        world.clock.time = datetime.fromisoformat(stored["now"])
        world.application = application_v1alpha1.application_from_json(item)
        for files in stored["repositories"][f"team/{name}"]:
            world.git.commit(files)
        return world


Story = Callable[[Team], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Story], None]:
    """Play a story with what the earlier controller stored, in SQLite."""

    def run(story: Story) -> None:
        async def played() -> None:
            team = Team(None)
            path = load_store("gitops_ledger.sql", tmp_path)
            with Store.open(path, clock=team.shop.clock) as store:
                team.shop.ledger_store = team.bank.ledger_store = SqliteLedgerStore(store)  # type: ignore[assignment]
                await story(team)

        asyncio.run(played())

    return run


async def drift_of(world: GitopsWorld, name: str) -> Any:
    if world.context is None:
        await world.start()
    return next(each for each in world.drifts if each.object.name == name)


async def records_of(ledger: LedgerStore) -> dict[str, Counter[str]]:
    return {
        kind.value: Counter(
            "closed" if each.state == "closed" else "open" for each in await ledger.records(kind)
        )
        for kind in RecordKind
    }


async def exported(ledger: LedgerStore) -> bytes:
    return b"".join(
        [
            line
            for application in ("team/bank", "team/shop")
            for export in (export_drifts, export_journal)
            async for line in export(ledger, application=application, project=PROJECT)
        ]
    )


def test_every_record_of_a_ledger_is_read(play: Callable[[Story], None]) -> None:
    async def story(team: Team) -> None:
        assert await records_of(team.shop.ledger_store) == RECORDS
        await team.shop.start()
        assert {each.object.name: each.state.value for each in team.shop.drifts} == OPEN_DRIFTS
        await team.bank.start()
        assert {each.object.name: each.state.value for each in team.bank.drifts} == {
            "fight": "fighting", "vault": "awaiting-approval",
        }  # fmt: skip
        assert (await drift_of(team.bank, "vault")).first_approver == "ann (t1)"
        waiting = await Outbox(team.shop.ledger_store).read(lambda channel: None)
        assert [each.channels for each in waiting] == [{"log": "sent", "ops": "waiting"}]

    play(story)


def test_an_export_is_the_same_to_the_byte(play: Callable[[Story], None]) -> None:
    async def story(team: Team) -> None:
        assert (
            await exported(team.shop.ledger_store) == (BEFORE / "gitops_ledger.jsonl").read_bytes()
        )

    play(story)


def test_a_controller_finds_nothing_to_write(play: Callable[[Story], None]) -> None:
    """Neither to the cluster nor to the ledger nor to the status."""

    async def story(team: Team) -> None:
        before = await exported(team.shop.ledger_store)
        for world in (team.shop, team.bank):
            status = world.application.status
            stored = application_v1alpha1.status_to_json(status)  # type: ignore[arg-type]
            result = await world.reconcile()
            assert result.status == status
            found = ObservedApplication(
                id=world.application.id, application=world.application, status=stored
            )
            assert not await ApplicationStatusWriter(team.kube).report(found, result.status)
        assert writes(team.kube) == []
        assert await exported(team.shop.ledger_store) == before

    play(story)


def test_an_approved_plan_and_one_that_waited_for_its_window_are_applied(
    play: Callable[[Story], None],
) -> None:
    async def story(team: Team) -> None:
        drift = await drift_of(team.shop, "ask-1")
        secret = await drift_of(team.shop, "ask-secret")
        for each in (drift, secret):
            await team.shop.review().approve(PROJECT, each.id, plan=each.plan, actor="maria (t3)")
        team.shop.clock.time = team.shop.clock.time.replace(hour=18, minute=30)
        await team.shop.reconcile()
        for name in ("ask-1", "park"):
            assert await team.shop.data(name) == {"x": "1"}
        ref = ObjectRef(api_version="v1", kind="Secret", namespace="chat", name="ask-secret")
        live: Any = await team.kube.get(ref)
        assert live["data"] == {"password": "eA=="}
        (line, *_) = [
            each
            for each in await team.shop.ledger_store.entries(subject=drift.id)
            if each.action == "resolved"
        ]
        assert "(approved)" in line.summary

    play(story)


def test_another_plan_than_the_reviewed_one_is_refused(play: Callable[[Story], None]) -> None:
    async def story(team: Team) -> None:
        drift = await drift_of(team.shop, "ask-1")
        with pytest.raises(HoldfastError, match="changed after you reviewed it"):
            await team.shop.review().approve(PROJECT, drift.id, plan="sha256:0", actor="maria (t3)")

    play(story)


def test_deletions_that_the_guard_kept_back_are_approved(play: Callable[[Story], None]) -> None:
    async def story(team: Team) -> None:
        context = await team.shop.start()
        (plan,) = context.state.plans.values()
        assert len(plan.steps) == 3
        await team.shop.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="joe (t2)")
        team.shop.clock.time = team.shop.clock.time.replace(hour=18, minute=30)
        await team.shop.fetch_and_reconcile()
        assert [await team.shop.live(f"old-{number}") for number in (1, 2, 3)] == [None] * 3

    play(story)


def test_a_second_person_approves_what_a_first_one_did(play: Callable[[Story], None]) -> None:
    async def story(team: Team) -> None:
        drift = await drift_of(team.bank, "vault")
        review = team.bank.review()
        same = await review.approve(PROJECT, drift.id, plan=drift.plan, actor="ann (t9)")
        assert same.state.value == "awaiting-approval"
        await review.approve(PROJECT, drift.id, plan=drift.plan, actor="joe (t2)", comment="ok")
        await team.bank.reconcile()
        assert await team.bank.data("vault") == {"x": "1"}

    play(story)


def test_a_hold_ends_and_a_snooze_wakes(play: Callable[[Story], None]) -> None:
    async def story(team: Team) -> None:
        context = await team.shop.start()
        await team.shop.review().resume(context, actor="maria (t3)", object=config_ref("hold-1"))
        team.shop.clock.time = team.shop.clock.time.replace(day=18, hour=19)
        await team.shop.reconcile()
        await team.shop.reconcile()
        assert (await drift_of(team.shop, "hold-1")).state.value == "awaiting-approval"
        assert (await drift_of(team.shop, "ask-2")).state.value == "awaiting-approval"
        assert (await drift_of(team.shop, "ask-3")).state.value == "rejected"

    play(story)


def test_a_pull_request_that_was_open_is_merged(play: Callable[[Story], None]) -> None:
    async def story(team: Team) -> None:
        drift = await drift_of(team.shop, "propose")
        files = team.shop.git.files
        text = files["propose.yaml"].replace("'1'", "'9'")
        team.shop.git.commit({**files, "propose.yaml": text})
        team.shop.clock.time = team.shop.clock.time.replace(hour=18, minute=30)
        await team.shop.fetch_and_reconcile()
        (ended,) = await team.shop.ledger_store.records(RecordKind.DRIFT, key=drift.id)
        assert ended.body["resolution"] == "codified"

    play(story)


def test_a_ledger_in_postgresql_is_read_and_decided_on(
    postgres: str, postgres_server: Postgres
) -> None:
    program = str(postgres_server._programs / "psql")
    dump = BEFORE / "gitops_ledger_postgres.sql"
    subprocess.run(
        [program, "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", postgres, "-f", str(dump)], check=True
    )

    async def story() -> None:
        team = Team(None)
        ledger = await open_ledger_store(Secret(postgres), clock=team.shop.clock)
        team.shop.ledger_store = team.bank.ledger_store = ledger  # type: ignore[assignment]
        try:
            assert await records_of(ledger) == RECORDS
            assert await exported(ledger) == (BEFORE / "gitops_ledger.jsonl").read_bytes()
            drift = await drift_of(team.shop, "ask-1")
            await team.shop.review().approve(PROJECT, drift.id, plan=drift.plan, actor="maria (t3)")
            team.shop.clock.time = team.shop.clock.time.replace(hour=18, minute=30)
            await team.shop.reconcile()
            assert await team.shop.data("ask-1") == {"x": "1"}
        finally:
            await ledger.aclose()

    asyncio.run(story())
