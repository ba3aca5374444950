"""What pods serve, asked of their engines: found, told, and put back as `onDrift` says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.fake_engines import FakeEngine, FakeEngines
from tests.support.operator_world import NAME, OperatorWorld, OperatorWorlds

from holdfast.adapters.memory.kube import MemoryKube, custom_kind
from holdfast.core.errors import PermissionDenied
from holdfast.core.service.facts import ChildrenDrifted, DriftHealed, RuntimeDrifted
from holdfast.reconcile.service.messages import describe_not_asked, describe_obstacle
from holdfast.reconcile.service.runtime import (
    NotAsked,
    NotAskedReason,
    ObstacleKind,
    RuntimeObstacle,
)
from holdfast.reconcile.service.status import ServiceResult

SQL = "/lora/sql.gguf"
LLAMA = {
    "backend": "llamacpp",
    "modelRef": "/models/base.gguf",
    "args": ["--ctx-size", "8192", "--alias", "bot"],
    "adapters": [{"name": "sql", "source": SQL}],
    "replicas": 1,
}
VLLM = {
    "modelRef": "org/base",
    "args": ["--max-model-len", "8192"],
    "adapters": [{"name": "sql", "source": "/lora/sql"}],
    "replicas": 1,
}
SGLANG = {"backend": "sglang", "modelRef": "org/base", "replicas": 2}


class RuntimeWorld:
    """A cluster in memory whose pods run engines in memory."""

    def __init__(self, world: OperatorWorld) -> None:
        self.world = world
        self.engines = world.engines = FakeEngines()
        self._made = 0
        self.restart()

    def restart(self) -> None:
        """Another operator process, which remembers nothing."""
        self.world.restart()
        assert self.world.monitors.runtime is not None
        self.monitor = self.world.monitors.runtime

    def declare(self, spec: dict[str, Any]) -> None:
        self.world.declare(spec)
        self.world.converge()

    def add_pod(self, engine: FakeEngine | str, **change: Any) -> str:
        """Start a pod of the primary as its Deployment would; returns its name."""
        self._made += 1
        name, address = f"{NAME}-primary-{self._made}", f"10.0.0.{self._made}"
        if self.world.service().spec.multi_node:
            group = self.world.get("LeaderWorkerSet", f"{NAME}-primary")
            which = change.get("template", "leaderTemplate")
            template = group["spec"]["leaderWorkerTemplate"][which]
            controller = {"kind": "StatefulSet", "name": change.get("owner", f"{NAME}-primary")}
        else:
            template = self.world.primary()["spec"]["template"]
            controller = {"kind": "ReplicaSet", "name": f"{NAME}-primary-1"}
        owner = {"apiVersion": "apps/v1", **controller, "uid": "rs", "controller": True}
        item: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": template["metadata"]["labels"],
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }
        item["metadata"] |= change.get("metadata", {})
        if "args" in change:
            (container,) = item["spec"]["containers"]
            item["spec"] = {
                **item["spec"], "containers": [{**container, "args": change["args"]}]
            }  # fmt: skip
        self.world.apply(item, by="kube-controller-manager")
        status = {
            "podIP": address,
            "conditions": [{"type": "Ready", "status": change.get("ready", "True")}],
        }
        self.world.edit("Pod", name, {"op": "add", "path": "/status", "value": status},
                        by="kubelet", at="status")  # fmt: skip
        self.engines.at[f"http://{address}:8000"] = engine
        return name

    def ask(self) -> ServiceResult:
        """Ask all pods once, as happens every minute, and make the pass that follows."""
        self.world.clock.time += timedelta(seconds=60)
        self.world.run(self.monitor.ask(self.world.service()))
        return self.world.reconcile()

    def obstacles(self) -> list[ObstacleKind]:
        """What keeps what its pods serve otherwise from being put back."""
        return [each.kind for each in self.monitor.findings(self.world.service()).obstacles]

    def verified(self) -> tuple[str, str]:
        return self.world.condition("RuntimeVerified")

    def pods(self) -> list[str]:
        found = self.world.run(self.monitor._list_pods(self.world.service()))
        return sorted(str(pod["metadata"]["name"]) for pod in found)  # type: ignore[index, call-overload]


@pytest.fixture
def runtime() -> Iterator[RuntimeWorld]:
    with OperatorWorlds() as worlds:
        yield RuntimeWorld(worlds.memory())


def llama(**given: Any) -> FakeEngine:
    return FakeEngine(**{"model": "/models/base.gguf", "adapters": {SQL: 1.0}, **given})


def test_what_is_served_as_declared_is_verified_and_names_the_fields(runtime: RuntimeWorld) -> None:
    runtime.declare(LLAMA)
    assert runtime.verified() == ("Unknown", "NotAsked")
    runtime.add_pod(llama())
    runtime.ask()
    assert runtime.verified() == ("True", "AsDeclared")
    said = runtime.world.says("RuntimeVerified")
    assert said == "1 replica is serving what is declared: model, names, maxLength, adapters."
    assert runtime.engines.sent == []


def test_an_adapter_scaled_by_hand_is_put_back_and_told(runtime: RuntimeWorld) -> None:
    runtime.declare(LLAMA)
    engine = llama()
    pod = runtime.add_pod(engine)
    runtime.ask()
    engine.adapters[SQL] = 0.25
    result = runtime.ask()
    assert engine.adapters == {SQL: 1.0}
    assert runtime.verified() == ("True", "AsDeclared")
    assert runtime.world.condition("DriftDetected") == ("False", "Healed")
    (fact,) = [each for each in result.facts if isinstance(each, DriftHealed)]
    (difference,) = fact.drift.served
    assert (difference.pod, difference.field) == (pod, "adapters.sql.scale")
    assert (difference.declared, difference.served) == ("1", "0.25")
    assert (
        f"Pod {pod} serves adapters.sql.scale 0.25, and 1 is declared." in result.notes[0].message
    )
    assert runtime.pods() == [pod]
    again = runtime.ask()
    assert not [each for each in again.facts if isinstance(each, DriftHealed)]


@pytest.mark.parametrize(
    ("policy", "ready", "drift"),
    [
        ("fail", "False", ("True", "RuntimeDrift")),
        ("dry_run", "True", ("True", "RuntimeDrift")),
        ("warn", "True", ("True", "RuntimeDrift")),
        ("ignore", "True", ("False", "Ignored")),
    ],
)
def test_other_policies_write_nothing_and_say_it(
    runtime: RuntimeWorld, policy: str, ready: str, drift: tuple[str, str]
) -> None:
    runtime.declare({**LLAMA, "onDrift": policy})
    engine = llama()
    pod = runtime.add_pod(engine)
    runtime.ask()
    engine.adapters[SQL] = 0.0
    result = runtime.ask()
    assert engine.adapters == {SQL: 0.0}
    assert runtime.engines.sent == []
    assert runtime.verified() == ("False", "RuntimeDrift")
    assert runtime.world.condition("Ready")[0] == ready
    assert runtime.world.condition("DriftDetected") == drift
    status = runtime.world.service().status
    assert status is not None
    (found,) = status.runtime or ()
    assert (found.pod, found.field, found.served) == (pod, "adapters.sql.scale", "0")
    assert status.drift == "1 field"
    planned = [f"Pod {pod}: adapters.sql.scale: 0 → 1 (by whoever told its engine)"]
    assert list(status.plan or ()) == (planned if policy == "dry_run" else [])
    told = [each for each in result.facts if isinstance(each, RuntimeDrifted)]
    assert bool(told) == (policy != "ignore")
    assert not [each for each in result.facts if isinstance(each, ChildrenDrifted)]


def test_a_suspended_service_is_asked_and_left(runtime: RuntimeWorld) -> None:
    runtime.declare(LLAMA)
    runtime.declare({**LLAMA, "suspend": {"reason": "a migration"}})
    runtime.add_pod(llama(adapters={SQL: 0.5}))
    runtime.ask()
    assert runtime.engines.sent == []
    assert runtime.verified() == ("False", "RuntimeDrift")
    assert "since the service is suspended" in runtime.world.says("RuntimeVerified")
    assert runtime.obstacles() == [ObstacleKind.SUSPENDED]


def test_adapters_of_vllm_are_loaded_and_unloaded_where_it_allows(runtime: RuntimeWorld) -> None:
    runtime.declare(VLLM)
    engine = FakeEngine(model="org/base", names=[NAME, "org/base"], adapters={"sql": "/lora/sql"})
    runtime.add_pod(engine)
    runtime.ask()
    assert runtime.verified() == ("True", "AsDeclared")
    engine.adapters = {"extra": "/lora/extra"}
    runtime.ask()
    assert engine.adapters == {"sql": "/lora/sql"}
    assert runtime.verified() == ("True", "AsDeclared")
    assert [each.path for each in runtime.engines.sent] == [
        "/v1/unload_lora_adapter", "/v1/load_lora_adapter",
    ]  # fmt: skip


def test_where_the_engine_refuses_the_pod_is_restarted_once(runtime: RuntimeWorld) -> None:
    runtime.declare(VLLM)
    engine = FakeEngine(model="org/base", names=[NAME, "org/base"],
                        adapters={"sql": "/lora/sql"}, runtime_updates=False)  # fmt: skip
    runtime.add_pod(engine)
    runtime.ask()
    engine.adapters = {}
    runtime.ask()
    assert runtime.pods() == []
    assert runtime.world.condition("DriftDetected") == ("True", "RuntimeDrift")
    assert "It is being put back." in runtime.world.says("DriftDetected")
    runtime.add_pod(FakeEngine(model="org/base", names=[NAME, "org/base"],
                               adapters={"sql": "/lora/sql"}))  # fmt: skip
    result = runtime.ask()
    assert runtime.verified() == ("True", "AsDeclared")
    assert [each for each in result.facts if isinstance(each, DriftHealed)]


def test_an_engine_that_refuses_without_a_word_has_refused(runtime: RuntimeWorld) -> None:
    """Whether it took a change is no matter of how much it says about it."""
    runtime.declare(VLLM)
    engine = FakeEngine(model="org/base", names=[NAME, "org/base"], refusal="",
                        adapters={"extra": "/lora/extra"}, runtime_updates=False)  # fmt: skip
    runtime.add_pod(engine)
    runtime.ask()
    assert [each.path for each in runtime.engines.sent] == ["/v1/unload_lora_adapter"]
    assert runtime.obstacles() == [ObstacleKind.NEVER_RIGHT]


def test_whatever_is_left_or_not_asked_has_a_sentence() -> None:
    obstacles = [RuntimeObstacle(kind=kind, error="It said no.") for kind in ObstacleKind]
    asked = [NotAsked(reason=reason, backend="own", error="No.") for reason in NotAskedReason]
    said = [*map(describe_obstacle, obstacles), *map(describe_not_asked, asked)]
    assert len(set(said)) == len(ObstacleKind) + len(NotAskedReason)


NODES = {"nodes": 2, "modelRef": "org/base", "replicas": 1}


def vllm(model: str = "org/base", **given: Any) -> FakeEngine:
    return FakeEngine(model=model, names=[NAME, "org/base"], **given)


@pytest.fixture
def groups(runtime: RuntimeWorld) -> RuntimeWorld:
    """A cluster whose services of several nodes are LeaderWorkerSets."""
    kube = runtime.world.client.client
    assert isinstance(kube, MemoryKube)
    kube.serve(custom_kind("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", scale=True))
    return runtime


def test_the_leader_of_several_nodes_is_asked_and_its_workers_are_not(
    groups: RuntimeWorld,
) -> None:
    groups.declare(NODES)
    leader = groups.add_pod(vllm())
    groups.add_pod(vllm(), template="workerTemplate", owner=f"{NAME}-primary-0")
    groups.ask()
    assert groups.engines.asked == ["http://10.0.0.1:8000"]
    assert groups.verified() == ("True", "AsDeclared")
    groups.engines.at["http://10.0.0.1:8000"] = vllm("org/other")
    groups.ask()
    assert groups.verified() == ("False", "RuntimeDrift")
    assert f"Pod {leader} serves model org/other" in groups.world.says("RuntimeVerified")


def test_a_leader_is_never_restarted_as_its_whole_group_would_be(groups: RuntimeWorld) -> None:
    groups.declare(NODES)
    engine = vllm()
    pod = groups.add_pod(engine)
    groups.ask()
    engine.model = "org/updated"
    for _ in range(3):
        groups.ask()
    assert groups.pods() == [pod]
    assert "all pods of its group" in groups.world.says("RuntimeVerified")
    assert groups.obstacles() == [ObstacleKind.WHOLE_GROUP]
    assert groups.world.condition("DriftDetected") == ("True", "RuntimeDrift")


def test_adapters_of_a_leader_are_put_back_through_its_engine(groups: RuntimeWorld) -> None:
    groups.declare({**NODES, "adapters": [{"name": "sql", "source": "/lora/sql"}]})
    engine = vllm(adapters={"sql": "/lora/sql"})
    groups.add_pod(engine)
    groups.ask()
    engine.adapters = {}
    groups.ask()
    assert engine.adapters == {"sql": "/lora/sql"}
    assert groups.verified() == ("True", "AsDeclared")


def sglang(model: str = "org/base") -> FakeEngine:
    return FakeEngine(model=model, names=["org/base"])


def test_updated_weights_restart_one_pod_at_a_time(runtime: RuntimeWorld) -> None:
    runtime.declare(SGLANG)
    first, second = sglang(), sglang()
    names = [runtime.add_pod(first), runtime.add_pod(second)]
    runtime.ask()
    assert runtime.verified() == ("True", "AsDeclared")
    first.model = second.model = "org/updated"
    runtime.ask()
    assert runtime.pods() == [names[1]]
    runtime.ask()
    assert runtime.pods() == [names[1]], "the second waits until the first is there again"
    third = runtime.add_pod(sglang())
    runtime.ask()
    assert runtime.pods() == [third]
    runtime.add_pod(sglang())
    runtime.ask()
    assert runtime.verified() == ("True", "AsDeclared")


def test_a_restart_that_did_not_help_is_not_repeated(runtime: RuntimeWorld) -> None:
    """Else a comparison that is wrong would restart pods for ever."""
    runtime.declare(SGLANG)
    first, second = sglang(), sglang()
    runtime.add_pod(first)
    runtime.add_pod(second)
    runtime.ask()
    first.model = second.model = "org/updated"
    runtime.ask()
    runtime.add_pod(sglang("org/updated"))
    for _ in range(5):
        runtime.ask()
    assert len(runtime.pods()) == 2
    assert "the new one serves the same" in runtime.world.says("RuntimeVerified")
    assert runtime.obstacles() == [ObstacleKind.RESTART_USELESS]
    assert runtime.world.condition("Ready") == ("False", "Drifted")


def test_a_pod_never_seen_right_is_not_restarted(runtime: RuntimeWorld) -> None:
    runtime.declare(SGLANG)
    runtime.add_pod(sglang("org/other"))
    for _ in range(3):
        runtime.ask()
    runtime.restart()
    runtime.world.reconcile()
    for _ in range(3):
        runtime.ask()
    assert len(runtime.pods()) == 1
    assert "No pod has been seen to serve it as declared" in runtime.world.says("RuntimeVerified")
    assert runtime.obstacles() == [ObstacleKind.NEVER_RIGHT]


def test_who_keeps_scaling_an_adapter_is_left_for_a_while(runtime: RuntimeWorld) -> None:
    runtime.declare(LLAMA)
    engine = llama()
    runtime.add_pod(engine)
    runtime.ask()
    for _ in range(4):
        engine.adapters[SQL] = 0.5
        runtime.world.run(runtime.monitor.ask(runtime.world.service()))
        runtime.world.clock.time += timedelta(seconds=1)
    runtime.world.reconcile()
    assert engine.adapters == {SQL: 0.5}
    assert "so it is left until" in runtime.world.says("RuntimeVerified")
    assert runtime.obstacles() == [ObstacleKind.FIGHT]
    assert len(runtime.pods()) == 1
    runtime.world.clock.time += timedelta(minutes=11)
    runtime.ask()
    assert engine.adapters == {SQL: 1.0}


def test_who_cannot_be_reached_is_unknown_with_the_reason(runtime: RuntimeWorld) -> None:
    runtime.declare(LLAMA)
    runtime.add_pod("gave no answer in 5s")
    runtime.ask()
    assert runtime.verified() == ("Unknown", "Unreported")
    assert "GET /props: it gave no answer in 5s." in runtime.world.says("RuntimeVerified")
    assert runtime.world.condition("Ready")[0] == "True"


ENGINES: dict[str, tuple[dict[str, Any], Callable[[], FakeEngine], str]] = {
    "llamacpp": (LLAMA, llama, "/lora-adapters"),
    "vllm": (
        VLLM,
        lambda: vllm(adapters={"sql": "/lora/sql"}),
        "/v1/models",
    ),
}


@pytest.mark.parametrize("fault", ["hangs", "answers half"])
@pytest.mark.parametrize("backend", ENGINES)
def test_an_engine_that_fails_while_adapters_are_loaded_is_unknown_and_nothing_is_done_about_it(
    runtime: RuntimeWorld, backend: str, fault: str
) -> None:
    """Adapters that nobody tells of are neither missing nor too many."""
    declared, make, path = ENGINES[backend]
    runtime.declare(declared)
    engine = make()
    pod = runtime.add_pod(engine)
    runtime.ask()
    (url,) = runtime.engines.at
    runtime.engines.at[url] = "gave no answer in 5s"
    if fault == "answers half":
        runtime.engines.at[url] = replace(engine, halved=path)
    for _ in range(3):
        status = runtime.ask().status
        assert runtime.verified() == ("Unknown", "Unreported")
        assert (runtime.engines.sent, runtime.pods()) == ([], [pod])
        assert (status.runtime, status.drift) == (None, "none")
        assert runtime.world.condition("DriftDetected") == ("False", "None")
        assert runtime.world.condition("Ready")[0] == "True"
    assert pod in runtime.world.says("RuntimeVerified")
    runtime.engines.at[url] = engine
    runtime.ask()
    assert runtime.verified() == ("True", "AsDeclared")


def test_adapters_that_a_restart_of_the_engine_lost_are_loaded_again(
    runtime: RuntimeWorld,
) -> None:
    runtime.declare(VLLM)
    engine = vllm(adapters={"sql": "/lora/sql"})
    pod = runtime.add_pod(engine)
    runtime.ask()
    (url,) = runtime.engines.at
    for answer in ("could not be reached: Connection refused", vllm()):
        runtime.engines.at[url] = answer
        runtime.ask()
    again = runtime.engines.at[url]
    assert isinstance(again, FakeEngine) and again.adapters == {"sql": "/lora/sql"}
    assert runtime.verified() == ("True", "AsDeclared")
    assert runtime.pods() == [pod]


def test_a_change_of_adapters_that_gets_no_answer_restarts_nothing(runtime: RuntimeWorld) -> None:
    """It may be loading them still: what is unknown is no refusal."""
    runtime.declare(VLLM)
    engine = vllm(adapters={"sql": "/lora/sql"})
    pod = runtime.add_pod(engine)
    runtime.ask()
    engine.adapters, engine.hangs = {}, engine
    for _ in range(3):
        runtime.ask()
        assert runtime.pods() == [pod]
        assert runtime.verified() == ("False", "RuntimeDrift")
    assert "it gave no answer in 60s" in runtime.world.says("RuntimeVerified")
    assert "not known" in runtime.world.says("DriftDetected")
    engine.hangs = None
    runtime.ask()
    assert engine.adapters == {"sql": "/lora/sql"}
    assert runtime.world.condition("DriftDetected") == ("False", "Healed")


def test_adapters_are_not_said_to_be_back_by_an_engine_that_says_nothing_afterwards(
    runtime: RuntimeWorld,
) -> None:
    runtime.declare(VLLM)
    engine = vllm(adapters={"sql": "/lora/sql"})
    pod = runtime.add_pod(engine)
    runtime.ask()
    engine.adapters, engine.hangs = {}, "gave no answer in 5s"
    result = runtime.ask()
    assert runtime.verified() == ("Unknown", "Unreported")
    assert not [each for each in result.facts if isinstance(each, DriftHealed)]
    assert runtime.world.condition("DriftDetected")[1] != "Healed"
    assert runtime.pods() == [pod]


def test_one_pod_in_sync_does_not_speak_for_another(runtime: RuntimeWorld) -> None:
    runtime.declare(LLAMA)
    runtime.add_pod(llama())
    silent = runtime.add_pod("could not be reached: No route to host")
    runtime.ask()
    assert runtime.verified() == ("Unknown", "Unreported")
    assert silent in runtime.world.says("RuntimeVerified")


def test_only_ready_pods_of_its_own_deployments_are_asked(runtime: RuntimeWorld) -> None:
    runtime.declare(LLAMA)
    runtime.add_pod(llama(), metadata={"ownerReferences": []})
    runtime.add_pod(llama(), ready="False")
    runtime.ask()
    assert runtime.engines.asked == []
    assert runtime.verified() == ("Unknown", "NotAsked")


def test_a_pod_of_an_older_version_is_not_compared(runtime: RuntimeWorld) -> None:
    runtime.declare(LLAMA)
    runtime.add_pod(llama(), args=["--ctx-size", "4096"])
    runtime.ask()
    assert runtime.engines.asked == []
    assert "a rollout is under way" in runtime.world.says("RuntimeVerified")


def test_pods_that_may_not_be_listed_are_unknown(runtime: RuntimeWorld) -> None:
    runtime.declare(LLAMA)
    runtime.world.client.failing = lambda call: (
        PermissionDenied("It may not list pods.") if call.verb == "list" and call.kind == "Pod"
        else None
    )  # fmt: skip
    runtime.ask()
    assert "Its pods could not be listed" in runtime.world.says("RuntimeVerified")


def test_an_engine_of_the_users_own_is_never_in_sync(runtime: RuntimeWorld) -> None:
    runtime.declare({"backend": "tei", "image": "registry.example/tei:1", "replicas": 1})
    assert runtime.verified() == ("Unknown", "NotAsked")
    assert "Nobody knows how to ask a tei engine" in runtime.world.says("RuntimeVerified")


def test_without_a_monitor_the_status_does_not_speak_of_it() -> None:
    with OperatorWorlds() as worlds:
        world = worlds.memory()
        world.declare(LLAMA)
        world.converge()
        assert not world.has_condition("RuntimeVerified")


def test_a_declaration_without_adapters_unloads_what_is_there(runtime: RuntimeWorld) -> None:
    runtime.declare({**VLLM, "adapters": []})
    engine = FakeEngine(model="org/base", names=[NAME, "org/base"], adapters={"x": "/lora/x"})
    runtime.add_pod(engine)
    runtime.ask()
    assert engine.adapters == {}


def test_adapters_that_are_not_declared_are_nobodys_business(runtime: RuntimeWorld) -> None:
    runtime.declare({**VLLM, "adapters": None})
    engine = FakeEngine(model="org/base", names=[NAME, "org/base"], adapters={"x": "/lora/x"})
    runtime.add_pod(engine)
    runtime.ask()
    assert engine.adapters == {"x": "/lora/x"}
    assert runtime.verified() == ("True", "AsDeclared")


A, B = "a" * 64, "b" * 64
OLLAMA = {
    "backend": "ollama",
    "modelRef": "llama3:8b",
    "modelDigest": f"sha256:{A}",
    "args": None,
    "replicas": 2,
}


def ollama(digest: str = A) -> FakeEngine:
    return FakeEngine(model="llama3:8b", stored=digest, loaded=digest)


def model_status(runtime: RuntimeWorld) -> tuple[str | None, str]:
    status = runtime.world.service().status
    assert status is not None and status.model is not None
    return status.model.digest, status.model.unknown or ""


def test_a_tag_that_was_moved_is_drift_where_a_digest_is_declared(runtime: RuntimeWorld) -> None:
    runtime.declare(OLLAMA)
    runtime.add_pod(ollama())
    runtime.ask()
    assert runtime.verified() == ("True", "AsDeclared")
    assert "model, digest" in runtime.world.says("RuntimeVerified")
    moved = runtime.add_pod(ollama(B))
    runtime.ask()
    assert runtime.verified() == ("False", "RuntimeDrift")
    assert moved not in runtime.pods(), "a pod was seen right, so a restart may help"
    again = runtime.add_pod(ollama(B))
    runtime.ask()
    runtime.ask()
    assert again in runtime.pods(), "it did not, so it is not tried again"
    runtime.declare({**OLLAMA, "modelDigest": f"sha256:{B}"})
    runtime.ask()
    status = runtime.world.service().status
    assert status is not None
    assert [(each.declared, each.served) for each in status.runtime or ()] == [
        (f"sha256:{B}", f"sha256:{A}")
    ]


def test_a_declared_digest_rolls_no_pod_of_ollama(runtime: RuntimeWorld) -> None:
    runtime.declare({**OLLAMA, "modelDigest": None})
    before = runtime.world.primary()["spec"]["template"]
    runtime.declare(OLLAMA)
    assert runtime.world.primary()["spec"]["template"] == before


def test_what_ollama_says_of_its_weights_is_in_the_status(runtime: RuntimeWorld) -> None:
    runtime.declare({**OLLAMA, "modelDigest": None})
    assert model_status(runtime) == (None, "Its pods have not been asked yet.")
    runtime.add_pod(ollama())
    runtime.ask()
    assert model_status(runtime) == (f"sha256:{A}", "")
    runtime.add_pod("gave no answer in 5s")
    runtime.ask()
    assert model_status(runtime) == (None, "Not every pod that is ready has said it.")
    runtime.engines.at["http://10.0.0.2:8000"] = ollama(B)
    runtime.ask()
    said = f"Its pods have different weights: sha256:{A}, sha256:{B}."
    assert model_status(runtime) == (None, said)


@pytest.mark.parametrize("backend", ["vllm", "llamacpp"])
def test_another_engine_tells_no_digest(runtime: RuntimeWorld, backend: str) -> None:
    runtime.declare({"backend": backend, "modelRef": "org/base", "replicas": 1})
    runtime.add_pod(FakeEngine(model="org/base", names=[NAME, "org/base"]))
    runtime.ask()
    digest, unknown = model_status(runtime)
    assert digest is None and "engines do not tell which commit" in unknown
