"""The whole story on one machine: a workload is declared, serves, is changed, killed and healed.

Everything goes through a real `holdfast serve`, the SDK and the data plane.
"""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.load import Load
from tests.support.processes import (
    BACKENDS,
    echo_command,
    is_alive,
    llama_command,
    rogue_command,
    wait_until,
)
from tests.support.serving import ServeProcess, killing_orphans, running_serve

from holdfast import (
    Canary,
    DriftKind,
    Health,
    ManagementClient,
    Outcome,
    Phase,
    SecretRef,
    WorkloadFailed,
    WorkloadSpec,
)

ALPHABET = "abcdefghijklmnopqrstuvwxyz."
QUICK = Health(path="/health", interval="1s", startup="60s")
PROJECTS = (f"story-{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    folder = tmp_path_factory.mktemp("story")
    with killing_orphans(folder), running_serve(folder, "--log-level", "warning") as served:
        yield served


@pytest.fixture
def mgmt(server: ServeProcess) -> Iterator[ManagementClient]:
    """A client for a project of the test's own, whose workloads are gone after it."""
    with server.management(next(PROJECTS)) as client:
        yield client
        for live in client.list():
            client.delete(live.id.slug)
    wait_until(lambda: not server.children(), 60, "deleted workloads to be gone")


def echo(*flags: str, **more: Any) -> WorkloadSpec:
    command = shlex.join(echo_command(*flags))
    return WorkloadSpec(
        name="chat", model="stable", backend="echo", command=command, health=QUICK, **more
    )


def under_load(server: ServeProcess, mgmt: ManagementClient, **options: Any) -> Load:
    key = server.data_key(mgmt.project, "chat")
    return Load(server.url, mgmt.project, "chat", key, **options)


def settle(mgmt: ManagementClient, server: ServeProcess, replicas: int) -> dict[str, int]:
    """Wait until exactly the declared replicas serve and every older one is gone."""
    mgmt.wait_until_ready("chat", timeout=60, silent=True)

    def settled() -> dict[str, int] | None:
        status = mgmt.get("chat").status
        leaders = server.leaders()
        serves = status.phase is Phase.READY and status.ready == status.wanted == replicas
        return leaders if serves and len(leaders) == replicas else None

    return wait_until(settled, 60, f"{replicas} replicas and no other process")


def test_a_real_inference_server_answers_is_rolled_and_heals_after_a_kill(
    server: ServeProcess, mgmt: ManagementClient, tmp_path: Path
) -> None:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    model = tmp_path / "chat.gguf"
    subprocess.run([sys.executable, BACKENDS / "tiny_model.py", model], check=True)
    spec = WorkloadSpec(
        name="chat",
        model=str(model),
        backend="llamacpp",
        task_type="text2text",
        command=shlex.join(llama_command("--model", "${MODEL}", "--ctx-size", "1024")),
        health=Health(interval="1s", startup="60s"),
    )
    assert mgmt.ensure(spec).outcome is Outcome.CREATED
    (first,) = settle(mgmt, server, 1).values()
    with server.data("chat", mgmt.project) as data:
        chat = data.endpoint("chat")
        assert chat.generate_text(prompt="hello", temperature=0).text == ALPHABET
        pieces = list(chat.generate_text_stream(prompt="hello", temperature=0))
        assert "".join(piece.text for piece in pieces) == ALPHABET
        assert len(pieces) > 10

        changed = replace(spec, command=spec.command.replace("1024", "2048"))
        assert mgmt.ensure(changed).outcome is Outcome.UPDATED
        assert mgmt.ensure(changed).outcome is Outcome.UNCHANGED
        (second,) = settle(mgmt, server, 1).values()
        assert second != first
        wait_until(lambda: not is_alive(first), 30, "the old process to be reaped")
        assert chat.generate_text(prompt="hello", temperature=0).text == ALPHABET
        assert mgmt.drifts(slug="chat", include_resolved=True) == []

        os.kill(second, signal.SIGKILL)
        (drift,) = wait_until(
            lambda: [
                each
                for each in mgmt.drifts(slug="chat", include_resolved=True)
                if each.resolved_at is not None
            ],
            60,
            "the drift to be recorded and healed",
        )
        assert drift.resolution == "healed"
        assert drift.kinds == (DriftKind.RESOURCE,)
        (entry,) = drift.fields
        assert (entry.desired, entry.live) == ("running", "exited")
        assert "SIGKILL" in entry.evidence
        (third,) = settle(mgmt, server, 1).values()
        assert third != second
        assert chat.generate_text(prompt="hello", temperature=0).text == ALPHABET
    noted = [entry.action for entry in mgmt.history(slug="chat")]
    assert noted.count("exited") == 1
    assert noted.count("replaced") == 1


def test_no_request_fails_while_command_replicas_and_secret_change(
    server: ServeProcess, mgmt: ManagementClient
) -> None:
    server.put_secret(mgmt.project, "hub", "token", "first-value")
    spec = echo(
        "--token-delay",
        "0.02",
        replicas=2,
        secrets={"HUB_TOKEN": SecretRef(name="hub", key="token")},
    )
    mgmt.ensure(spec)
    before = settle(mgmt, server, 2)
    with under_load(server, mgmt) as load:
        load.more(20)
        spec = replace(spec, command=f"{spec.command} --model other")
        mgmt.ensure(spec)
        after = settle(mgmt, server, 2)
        assert not set(before) & set(after)

        mgmt.ensure(replace(spec, replicas=3))
        grown = settle(mgmt, server, 3)
        assert after.items() <= grown.items(), "more replicas leave the others alone"
        load.more(20)
        mgmt.ensure(replace(spec, replicas=1))
        (left,) = settle(mgmt, server, 1).items()
        assert left in grown.items()

        server.put_secret(mgmt.project, "hub", "token", "second-value")
        wait_until(
            lambda: [child.environ["HUB_TOKEN"] for child in server.children()] == ["second-value"],
            60,
            "the rotated secret to reach the replicas",
        )
        settle(mgmt, server, 1)
        load.more(20)
    assert load.failures() == []
    assert {each.kind for each in load.asked} == {"plain", "kept-alive", "stream"}
    assert {each.model for each in load.asked} == {"echo", "other"}
    assert {*before, *grown} <= {each.replica for each in load.asked}
    assert mgmt.drifts(slug="chat", include_resolved=True) == []


def test_a_canary_gets_its_share_once_it_is_ready_and_no_request_fails(
    server: ServeProcess, mgmt: ManagementClient
) -> None:
    spec = echo("--model", "stable")
    slow = shlex.join(echo_command("--model", "fresh", "--startup-delay", "2"))

    def stepped(weight: int) -> WorkloadSpec:
        return replace(spec, canary=Canary(weight=weight, model="fresh", command=slow))

    mgmt.ensure(spec)
    settle(mgmt, server, 1)
    kinds = ("plain", "kept-alive", "kept-alive", "stream")
    with under_load(server, mgmt, kinds=kinds) as load:
        began = time.monotonic()
        mgmt.ensure(stepped(50))
        not_ready = began

        def weighted() -> bool:
            nonlocal not_ready
            asked_at = time.monotonic()
            if mgmt.get("chat").status.canary_weight == 50:
                return True
            not_ready = asked_at
            return False

        wait_until(weighted, 60, "the canary to be ready")
        alone = load.between(began, not_ready)
        assert len(alone) > 20
        assert {each.model for each in alone} == {"stable"}

        for weight in (0, 10, 50, 100):
            mgmt.ensure(stepped(weight))
            settle(mgmt, server, 2)
            since = time.monotonic()
            load.more(200)
            asked = load.between(since, time.monotonic())
            canary = sum(each.model == "fresh" for each in asked)
            # The balancer counts rather than draws; only what was under way at either end of
            # the span is uncertain.
            slack = 2 * load.concurrency + 1 if 0 < weight < 100 else 0
            assert abs(canary - len(asked) * weight / 100) <= slack, f"weight {weight}"

        mgmt.ensure(replace(spec, canary=Canary(weight=0)))
        settle(mgmt, server, 1)
        since = time.monotonic()
        load.more(50)
        assert {each.model for each in load.between(since, time.monotonic())} == {"stable"}
    assert load.failures() == []


def test_a_revision_that_cannot_start_leaves_the_old_one_serving_and_says_why(
    server: ServeProcess, mgmt: ManagementClient
) -> None:
    spec = echo()
    mgmt.ensure(spec)
    good = settle(mgmt, server, 1)
    with under_load(server, mgmt) as load:
        mgmt.ensure(replace(spec, command=shlex.join(rogue_command("crash"))))
        with pytest.raises(WorkloadFailed, match="no usable device was found") as failed:
            mgmt.wait_until_ready("chat", timeout=60, silent=True)
        assert "The previous revision keeps serving." in str(failed.value)
        status = mgmt.get("chat").status
        assert status.phase is Phase.ERROR
        assert status.ready == 1
        assert good.items() <= server.leaders().items()
        load.more(20)

        mgmt.ensure(spec)
        assert settle(mgmt, server, 1) == good, "the old revision is the declared one again"
        load.more(20)
    assert load.failures() == []
