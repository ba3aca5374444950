"""Servers with something on every screen of the page.

Applications: drift of several hands, holds and what changed under them, ignore rules and what they
hide, a plan that waits and one that is stale, some days of decisions. A control plane: workloads
that answer, drifted and failed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
from tests.support.gitops_server import (
    PROJECT,
    ServedApplications,
    rename_world,
    serve_applications,
)
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route
from tests.support.processes import echo_command
from tests.support.server import RunningServer, bearer, running_server

from holdfast import Health, ManagementClient, WorkloadSpec
from holdfast.core.gitops.application import (
    DriftSpec,
    IgnoreSpec,
    MatchSpec,
    Remediation,
    SyncSpec,
)
from holdfast.core.object_ref import ObjectRef

PROMPT = "".join(
    f"{place}. {line}\n"
    for place, line in enumerate(
        ["You answer questions about orders.", "Be short.", "Name the order.", "Say please."] * 6
    )
)
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  replicas: 2
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      containers:
        - name: server
          image: vllm/vllm-openai:v0.10.2
          args: [--max-model-len, "8192"]
"""
DECIDED = ("limits", "routing", "flags", "alerts", "quota")
"""ConfigMaps about which something was decided."""


def deployment(name: str) -> str:
    return DEPLOYMENT.format(name=name)


def deployment_ref(name: str) -> ObjectRef:
    return ObjectRef(api_version="apps/v1", kind="Deployment", namespace="chat", name=name)


def prompts(text: str) -> str:
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: support-bot-prompts\ndata:\n"
    return f'{head}  MAX_TOKENS: "512"\n  prompt.txt: |\n{lines}'


class Story:
    """What people and tools did, and when."""

    def __init__(self, served: ServedApplications) -> None:
        self.served = served
        self.shop, self.search, _ = served.worlds
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.people = {
            name: httpx2.Client(
                base_url=f"{served.url}/api/projects/{PROJECT}/gitops",
                headers=bearer(
                    served.server.token(PROJECT, ["read", "write", "approve"], name=name)
                ),
                timeout=20,
            )
            for name in ("maria", "joe")
        }
        served.passes = False  # a pass is made where the story says so

    def close(self) -> None:
        for each in self.people.values():
            each.close()

    def at(self, ago: timedelta, *work: Callable[[], object]) -> None:
        """Do something in the cluster or in Git, and let the controller see it."""

        def then() -> None:
            for world in self.served.worlds:
                world.clock.time = self.now - ago
            for each in work:
                each()

        self.served.call(then)
        for world in self.served.worlds:
            self.served.run(world.fetch_and_reconcile())

    def decide(self, who: str, path: str, **form: object) -> Any:
        answer = self.people[who].post(path, json=form)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def drift(self, name: str) -> Any:
        found = self.people["maria"].get("/drifts").json()["drifts"]
        return next(each for each in found if each["object"]["name"] == name)

    def about(self, who: str, name: str, decision: str, **form: object) -> None:
        self.decide(who, f"/drifts/{self.drift(name)['id']}/{decision}", **form)

    def scale(self, name: str, replicas: int, manager: str) -> None:
        self.shop.kube.edit(
            deployment_ref(name),
            lambda item: item["spec"].update(replicas=replicas),
            manager=manager,
        )

    def decide_some_days(self) -> None:
        self.at(timedelta(days=5))
        self.at(
            timedelta(days=4, hours=6),
            lambda: self.shop.edit("limits", manager="kubectl-edit"),
            lambda: self.shop.edit("routing", manager="helm"),
            lambda: self.shop.edit("flags", manager="kubectl-edit"),
            lambda: self.shop.edit("alerts", manager="kubectl-patch"),
            lambda: self.shop.edit("quota", manager="kubectl-edit"),
        )
        self.at(timedelta(days=4, hours=1))
        self.about("maria", "limits", "approve", plan=self.drift("limits")["plan"])
        self.about("joe", "routing", "reject", comment="The launch needs it until Monday.")
        self.at(timedelta(days=3, hours=20))
        self.about("joe", "flags", "codify", comment="It proved itself in the load test.")
        self.about("maria", "alerts", "snooze", seconds=6 * 86_400, comment="After the freeze.")
        reason = "Tuned by hand until the sizing is done"
        self.about("maria", "quota", "ignore", reason=reason, seconds=7 * 86_400)
        self.at(timedelta(days=3))

    def hold_and_drift(self) -> None:
        week = 7 * 86_400
        path = "/applications/shop/holds"
        self.decide(
            "joe",
            path,
            object="Deployment/chat/reranker",
            reason="INC-1432: load test",
            seconds=week,
        )
        self.decide("maria", path, object="ConfigMap/chat/limits", reason="Freeze", seconds=week)

        def rewrite_prompt(item: Any) -> None:
            changed = PROMPT.replace("6. Name the order.", "6. Name the order and its date.")
            item["data"].update({"prompt.txt": changed, "MAX_TOKENS": "2048"})

        def upgrade(item: Any) -> None:
            server = item["spec"]["template"]["spec"]["containers"][0]
            server.update(image="vllm/vllm-openai:v0.11.0", args=["--max-model-len", "16384"])

        edit = self.shop.kube.edit
        self.at(
            timedelta(hours=2),
            lambda: edit(config_ref("support-bot-prompts"), rewrite_prompt, manager="kubectl-edit"),
            lambda: self.shop.edit("bge-m3-env", manager="helm"),
            lambda: self.shop.edit("reranker-env", manager="kubectl-edit"),
            lambda: edit(deployment_ref("support-bot"), upgrade, manager="kubectl-set"),
            lambda: self.search.kube.edit(
                deployment_ref("indexer"), upgrade, manager="kubectl-set"
            ),
            lambda: self.scale("bge-m3", 5, "kubectl-scale"),
            lambda: self.scale("reranker", 6, "kubectl-scale"),
            lambda: self.scale("embedder", 1, "night-shift"),
        )

    def plan_twice(self) -> None:
        """The second plan makes the first stale."""
        self.at(timedelta(hours=1), lambda: self.search.git.commit(search_files(12)))
        self.at(timedelta(), lambda: self.search.git.commit(search_files(11)))


def shop_files() -> dict[str, str]:
    names = ["support-bot", "bge-m3", "reranker", "embedder"]
    files = {f"deploy/{name}.yaml": deployment(name) for name in names}
    settings = [*(f"{name}-env" for name in names), *DECIDED]
    files |= {f"deploy/{name}.yaml": configmap(name, x="1") for name in settings}
    return files | {"deploy/prompts.yaml": prompts(PROMPT)}


def search_files(shards: int) -> dict[str, str]:
    files = {f"{n}.yaml": configmap(f"shard-{n}", x="1") for n in range(shards)}
    return files | {"indexer.yaml": deployment("indexer")}


@contextmanager
def serve_full_applications(tmp_path: Path) -> Iterator[ServedApplications]:
    """Applications with a past, and one that waits for its first sync."""
    night = IgnoreSpec(
        name="fewer-at-night",
        owner="team-ml",
        path="spec.replicas",
        kind="Deployment",
        manager="night-shift",
    )
    shop = GitopsWorld(
        route(
            Remediation.REVIEW,
            name="settings-are-reviewed",
            match=MatchSpec(kinds=("ConfigMap",)),
        ),
        route(Remediation.REPORT, name="the-rest-is-reported"),
        drift=DriftSpec(ignore=(night,)),
    )
    search = rename_world(
        "search",
        ledger=shop.ledger_store,
        world=GitopsWorld(route(Remediation.REVIEW), sync=SyncSpec(automatic=True, prune=True)),
    )
    reports = rename_world(
        "reports",
        ledger=shop.ledger_store,
        world=GitopsWorld(route(Remediation.REPORT), sync=SyncSpec(automatic=False)),
    )
    shop.git.commit(shop_files())
    search.git.commit(search_files(20))
    reports.git.commit({"writer.yaml": deployment("writer"), "env.yaml": configmap("env", x="1")})
    with serve_applications(tmp_path, shop, search, reports) as served:
        story = Story(served)
        try:
            story.decide_some_days()
            story.hold_and_drift()
            story.plan_twice()
        finally:
            story.close()
        served.passes = True
        yield served


@contextmanager
def serve_full_plane(tmp_path: Path) -> Iterator[RunningServer]:
    """Workloads that answer, one of them drifted, one that failed, one at rest."""
    with running_server(tmp_path) as server:
        spec = WorkloadSpec(
            name="support-bot",
            model="org/tiny",
            backend="echo",
            description="Answers questions about orders",
            command=shlex.join(echo_command()),
            health=Health(path="/health", interval="1s", startup="60s"),
        )
        with ManagementClient(
            server.url, project="acme", token=server.token("acme", name="deploy-script")
        ) as owner:
            owner.ensure(spec)
            owner.ensure(
                WorkloadSpec(name="reranker", model="org/rerank", backend="echo", replicas=0)
            )
            owner.ensure(
                WorkloadSpec(name="embedder", model="org/embed", backend="echo", command="false")
            )
            owner.wait_until_ready("support-bot", timeout=60, silent=True)
            uid = owner.get("support-bot").uid
        answer = httpx2.patch(
            f"{server.url}/api/workloads/{uid}",
            json={"description": "Answers everything"},
            headers=bearer(server.token("acme", name="ops-laptop")),
        )
        assert answer.status_code == 200, answer.text
        yield server
