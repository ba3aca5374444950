"""The runner's pure decisions: what to start and retire, whom to ask, what to execute."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.runner.balancer import Balancer, effective_weight
from holdfast.adapters.runner.launch import Launch, LaunchRefused, make_launch
from holdfast.adapters.runner.replica import restart_delay
from holdfast.adapters.runner.replica_log import ReplicaLog
from holdfast.adapters.runner.run_spec import DesiredRun, RunnerLimits, RunSpec, make_desired_run
from holdfast.adapters.runner.secrets import SecretFolder
from holdfast.adapters.runner.supervisor import next_rollout_step, replacement_cost
from holdfast.core.cost import Cost, CostKind
from holdfast.core.names import WorkloadId
from holdfast.core.tree import Fields, Tree


@dataclass
class Standing:
    revision: str
    ready: bool = False
    was_ready: bool = False
    in_flight: int = 0
    suspect: bool = False
    chosen_at: int = 0
    group: str = "primary"
    fields: Fields | None = None
    cold_start: float | None = None


def standing(revision: str, state: str) -> Standing:
    return Standing(revision, ready=state == "ready", was_ready=state in ("ready", "ill"))


REPLICAS = st.lists(
    st.builds(standing, st.sampled_from(["old", "new"]), st.sampled_from(["ready", "ill", "dead"])),
    max_size=6,
)


@given(replicas=REPLICAS, count=st.integers(0, 4), surge=st.integers(1, 3))
def test_a_rollout_keeps_serving_stays_in_bounds_and_ends(
    replicas: list[Standing], count: int, surge: int
) -> None:
    """No move takes a serving replica that is still needed, and once new replicas get ready
    the group ends up exactly as wanted, whatever it began with."""
    for _ in range(40):
        serving = sum(r.ready for r in replicas)
        moves = next_rollout_step(replicas, desired=count, revision="new", surge=surge)
        if (
            not moves.start
            and not moves.retire
            and all(r.ready for r in replicas if r.revision == "new")
        ):
            break
        kept = [r for r in replicas if not any(r is gone for gone in moves.retire)]
        assert sum(r.ready for r in kept) >= min(serving, count)
        if moves.start:
            assert len(kept) + moves.start <= count + (
                surge if any(r.revision == "old" for r in kept) else 0
            )
        replicas = kept + [standing("new", "dead") for _ in range(moves.start)]
        waiting = [r for r in replicas if r.revision == "new" and not r.ready]
        for replica in waiting[:1]:
            replica.ready = replica.was_ready = True
    assert [r.revision for r in replicas] == ["new"] * count
    assert all(r.ready for r in replicas)


@given(replicas=REPLICAS, count=st.integers(1, 4))
def test_a_revision_that_is_never_ready_replaces_no_serving_replica(
    replicas: list[Standing], count: int
) -> None:
    replicas = [r for r in replicas if r.revision == "old" and r.ready][:count]
    serving = list(replicas)
    for _ in range(10):
        moves = next_rollout_step(replicas, desired=count, revision="new", surge=1)
        assert not any(gone is r for gone in moves.retire for r in serving)
        replicas = replicas + [standing("new", "dead") for _ in range(moves.start)]
    assert all(any(r is kept for kept in replicas) for r in serving)


@given(weight=st.integers(0, 100), rounds=st.integers(1, 3))
def test_the_canary_gets_exactly_its_weight_of_every_hundred(weight: int, rounds: int) -> None:
    balancer, primary, canary = Balancer(), Standing("a"), Standing("b")
    chosen = [balancer.choose([primary], [canary], weight) for _ in range(100 * rounds)]
    assert sum(one is canary for one in chosen) == weight * rounds


def test_a_group_without_ready_replicas_gives_its_share_to_the_other() -> None:
    replica = Standing("a")
    assert Balancer().choose([replica], [], 100) is replica
    assert Balancer().choose([], [replica], 5) is replica
    assert Balancer().choose([], [replica], 0) is None
    assert Balancer().choose([], [], 50) is None
    assert effective_weight(False, True, 5) == 100


def test_a_doubtful_replica_is_chosen_only_when_there_is_no_other() -> None:
    doubtful, busy = Standing("a", suspect=True), Standing("b", in_flight=9)
    assert Balancer().choose([doubtful, busy], [], 0) is busy
    assert Balancer().choose([doubtful], [], 0) is doubtful


def test_the_pause_before_another_attempt_doubles_up_to_its_bound() -> None:
    pauses = [restart_delay(failures, RunnerLimits(), 0.5) for failures in range(9)]
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert (
        restart_delay(1000, RunnerLimits(), 0.0) == 45
        and restart_delay(1000, RunnerLimits(), 1.0) == 75
    )


def made(tmp_path: Path, inherited: Mapping[str, str] | None = None, **fields: Tree) -> Launch:
    declared = read(**fields)
    return make_launch(
        declared,
        declared.groups[-1],
        secrets=SecretFolder(tmp_path),
        key=b"k",
        inherited=inherited or {"PATH": str(Path(sys.executable).parent)},
    )


def read(**fields: Tree) -> DesiredRun:
    base: dict[str, Tree] = {"name": "w", "model": "m/x", "backend": "echo"}
    spec = RunSpec(
        id=WorkloadId(project="p", slug="w"), uid="u", generation=1, fields={**base, **fields}
    )
    return make_desired_run(spec, RunnerLimits())


@pytest.mark.parametrize(
    ("backend", "command", "expected"),
    [
        ("echo", "python serve.py", ["serve.py"]),
        ("echo", "python serve.py --port ${PORT}", ["serve.py", "--port", "7"]),
        ("echo", "python serve.py --port 8000", ["serve.py", "--port", "7"]),
        ("vllm", "python -m v ${MODEL}", ["-m", "v", "m/x", "--host", "127.0.0.1", "--port", "7"]),
        ("llamacpp", "python --port=9 --host 0.0.0.0", ["--port=7", "--host", "127.0.0.1"]),
        ("ollama", "python serve", ["serve"]),
    ],
)
def test_a_command_is_given_its_port(
    tmp_path: Path, backend: str, command: str, expected: list[str]
) -> None:
    launch = made(tmp_path, backend=backend, command=command)
    assert launch.argv(7)[1:] == expected
    env = launch.environment(7, "mark")
    assert env["PORT"] == "7" and env["HOLDFAST_REPLICA"] == "mark"
    assert env.get("OLLAMA_HOST") == ("127.0.0.1:7" if backend == "ollama" else None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"command": "nothing-of-this-name"}, "was not found"),
        ({"image": "vllm/vllm-openai:v1"}, "container engine"),
        ({}, "has no command"),
        ({"command": "python ${HOME}"}, "not filled in"),
        ({"command": "python $(HOME)"}, "not filled in"),
        ({"command": "python", "canary": {"weight": 1, "image": "x"}}, "container engine"),
    ],
)
def test_what_cannot_be_started_is_refused_with_the_reason(
    tmp_path: Path, fields: dict[str, Tree], reason: str
) -> None:
    with pytest.raises(LaunchRefused, match=reason):
        made(tmp_path, **fields).argv(7)


def test_a_variable_of_the_workload_is_filled_in(tmp_path: Path) -> None:
    launch = made(tmp_path, command="python ${ROOT}/a $(ROOT)/b", env={"ROOT": "/srv"})
    assert launch.argv(7)[1:] == ["/srv/a", "/srv/b"]


def test_a_known_backend_has_a_usual_command(tmp_path: Path) -> None:
    launch = made(tmp_path, backend="vllm", args=["--max-model-len", "8192"])
    assert launch.command == ("vllm", "serve", "${MODEL}", "--max-model-len", "8192")


@pytest.mark.parametrize(
    ("fields", "count", "note"),
    [
        ({}, 1, ""),
        ({"replicas": 3}, 3, ""),
        ({"replicas": 0}, 0, ""),
        ({"execution_policy": "fixed", "execution_policy_config": {"replicas": 2}}, 2, ""),
        ({"autoscaling": {"min": 2, "max": 2}}, 2, ""),
        ({"autoscaling": {"min": 0, "max": 4}}, 1, "Autoscaling is not done"),
        (
            {
                "execution_policy": "autoscaling",
                "execution_policy_config": {"min_workers": 2, "max_workers": 5},
            },
            2,
            "Autoscaling is not done",
        ),
        ({"execution_policy": "scheduled"}, 1, "schedule"),
        ({"command": "serve --port 8000"}, 1, "port is replaced"),
    ],
)
def test_the_number_of_replicas_is_what_one_machine_can_honour(
    fields: dict[str, Tree], count: int, note: str
) -> None:
    declared = read(**fields)
    assert declared.replicas == count
    assert (note in " ".join(declared.notes)) if note else not declared.notes


def test_a_log_is_cut_without_losing_its_end_or_its_readers_place(tmp_path: Path) -> None:
    path = tmp_path / "primary-1.log"
    path.write_bytes(b"".join(b"%04d\n" % number for number in range(100)))
    log = ReplicaLog(path)
    assert log.rotate(100) and not log.rotate(100)
    assert (log.start, log.end) == (400, 500)
    assert log.tail(2) == ["0098", "0099"]
    assert log.read(495) == (b"0099\n", 500)
    assert log.read(0)[0] == b"".join(b"%04d\n" % number for number in range(80, 100))
    with path.open("ab") as file:
        file.write(b"half")
    assert log.tail(1) == ["half"]
    assert log.whole_tail(1) == (["0099"], 500)
    assert log.tail(5, since=500) == ["half"]


BEFORE: Fields = {"model": "m", "command": "serve --a=1", "replicas": 2}
CANARY: Fields = {"model": "n", "weight": 10}
ROLLING, GAP, NONE = CostKind.ROLLING, CostKind.GAP, CostKind.NONE


@pytest.mark.parametrize(
    ("after", "cost"),
    [
        ({"model": "n"}, Cost(kind=ROLLING, pods=2, cold_start=3.5)),
        ({"model": "n", "replicas": 3}, Cost(kind=ROLLING, pods=2, added=1, cold_start=3.5)),
        # The same command in another spelling, and what is probed or said, restart nothing.
        ({"command": "serve --a 1"}, Cost(kind=NONE, cold_start=3.5)),
        ({"health": {"path": "/x"}}, Cost(kind=NONE, cold_start=3.5)),
        ({"replicas": 4}, Cost(kind=NONE, added=2, cold_start=3.5)),
        ({"replicas": 1}, Cost(kind=NONE, added=-1, cold_start=3.5)),
        ({"replicas": 0}, Cost(kind=GAP, added=-2, cold_start=3.5)),
        ({"canary": CANARY}, Cost(kind=NONE, added=1, cold_start=3.5)),
        (None, Cost(kind=GAP, added=-2, cold_start=3.5)),
    ],
)
def test_what_another_spec_does_to_processes_that_serve(after: Fields | None, cost: Cost) -> None:
    run = desired_run(BEFORE)
    replicas = [
        Standing("a", ready=True, was_ready=True, fields=run.groups[0].fields, cold_start=start)
        for start in (9.0, 3.5)
    ]
    groups = desired_run({**BEFORE, **after}).groups if after is not None else ()
    assert replacement_cost(replicas, before=run.groups, after=groups) == cost  # type: ignore[arg-type]  # stand-ins


def test_replacing_what_does_not_serve_leaves_nobody_answering() -> None:
    run, after = desired_run(BEFORE), desired_run({**BEFORE, "model": "n"})
    loading = [Standing("a", fields=run.groups[0].fields)]
    found = replacement_cost(loading, before=run.groups, after=after.groups)  # type: ignore[arg-type]  # stand-ins
    assert found == Cost(kind=GAP, pods=1, added=1)
    assert replacement_cost([], before=(), after=run.groups) == Cost(kind=NONE, added=2)


def test_a_rollout_that_failed_is_taken_back_without_touching_what_serves() -> None:
    run, failed = desired_run(BEFORE), desired_run({**BEFORE, "model": "wrong"})
    serving = [Standing("a", ready=True, fields=run.groups[0].fields) for _ in range(2)]
    cost = replacement_cost(serving, before=failed.groups, after=run.groups)  # type: ignore[arg-type]  # stand-ins
    assert cost == Cost(kind=NONE)


def desired_run(fields: Fields) -> DesiredRun:
    where = WorkloadId(project="acme", slug="bot")
    return make_desired_run(RunSpec(id=where, uid="u", generation=1, fields=fields), RunnerLimits())
