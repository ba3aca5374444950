"""A sync client on a target that needs an event loop: one thread, any caller, a clean end."""

from __future__ import annotations

import asyncio
import builtins
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import started

from holdfast import ConfigurationError, ManagementClient, NotFound
from holdfast.adapters.clock import SystemClock
from holdfast.adapters.memory.target import MemoryTarget
from holdfast.apps.sdk.background import BackgroundTarget
from holdfast.apps.sdk.settings import resolve_connection
from holdfast.core.live import Absent, Live, Phase, Progress, Writer
from holdfast.core.names import WorkloadId
from holdfast.testing import a_spec

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {token: t}}]
contexts:
- {name: here, context: {cluster: c, user: u, namespace: team-a}}
- {name: "arn:aws:eks:eu:1:cluster/prod", context: {cluster: c, user: u}}
"""


class Suspending(MemoryTarget):
    """The memory target, as one that really waits: only a loop can drive it."""

    closed = 0

    async def observe(self, workload: WorkloadId) -> Live | Absent:
        await asyncio.sleep(0.001)
        return await super().observe(workload)

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        type(self).closed += 1


def loops() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "holdfast-loop"]


def client(**more: Any) -> tuple[ManagementClient, Suspending]:
    import uuid

    inner = Suspending(
        clock=SystemClock(),
        writer=Writer(manager="holdfast-sdk"),
        new_uid=lambda: str(uuid.uuid4()),
    )
    inner.phases["chat"] = [
        Progress(phase=Phase.BOOTSTRAPPING, message="loading"),
        Progress(phase=Phase.READY, message="serving"),
    ]
    return ManagementClient(target=BackgroundTarget(inner), project="acme", **more), inner


def test_every_call_works_as_on_a_target_that_never_waits() -> None:
    made, inner = client()
    with made:
        spec = a_spec(name="chat", replicas=2)
        assert made.ensure(spec).outcome == "created"
        assert made.ensure(spec, on_drift="fail").outcome == "unchanged"
        assert [live.id.slug for live in made.list()] == ["chat"]
        assert [row.action for row in made.history()] == ["created"]
        assert made.drifts() == []
        seen: list[str] = []
        made.wait_until_ready("chat", on_progress=lambda update: seen.append(update.phase))
        assert seen == ["bootstrapping", "ready"]
        inner.lines["chat"] = ["one", "two"]
        assert list(made.logs("chat")) == ["one", "two"]
        with pytest.raises(NotFound):
            list(made.logs("nobody"))
        assert len(loops()) == 1
    assert loops() == []


def test_a_client_that_is_closed_twice_or_never_used_leaves_no_thread() -> None:
    made, _ = client()
    before = Suspending.closed
    made.close()
    assert (Suspending.closed, loops()) == (before, [])  # nothing was opened
    made, _ = client()
    made.list()
    made.close()
    made.close()
    assert (Suspending.closed, loops()) == (before + 1, [])
    with pytest.raises(ConfigurationError, match="closed"):
        made.list()


def test_many_threads_share_one_loop() -> None:
    made, _ = client()
    with made, ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda n: made.ensure(a_spec(name=f"c{n}")).outcome, range(40)))
        assert outcomes == ["created"] * 40
        assert len(loops()) == 1
        assert len(made.list()) == 40


def test_it_works_inside_a_running_loop() -> None:
    """A notebook has one."""

    async def cell() -> int:
        made, _ = client()
        with made:
            made.ensure(a_spec(name="chat"))
            return len(made.list())

    assert asyncio.run(cell()) == 1


def test_an_interrupt_ends_the_wait_and_the_program_cleanly(tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text(
        "import asyncio, sys\n"
        "from holdfast.apps.sdk.background import BackgroundLoop\n"
        "async def forever():\n"
        "    print('waiting', flush=True)\n"
        "    try:\n"
        "        await asyncio.sleep(3600)\n"
        "    finally:\n"
        "        print('cancelled', flush=True)\n"
        "async def nothing():\n"
        "    pass\n"
        "loop = BackgroundLoop(nothing)\n"
        "try:\n"
        "    loop.wait_for(forever())\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    with started([sys.executable, str(program)]) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    # Two threads print, so their line ends may come together.
    assert out.count("cancelled") == out.count("interrupted") == 1
    assert err == ""


def test_a_client_that_nobody_closes_leaves_no_complaint_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c,"
        " contexts: [{name: c, context: {cluster: c, user: u, namespace: n}}],"
        f" clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}],"
        " users: [{name: u, user: {}}]}"
    )
    program = (
        "from holdfast import HoldfastError, ManagementClient\n"
        "client = ManagementClient('kubernetes://c/n', timeout=1)\n"
        "try:\n"
        "    client.list()\n"
        "except HoldfastError as error:\n"
        "    print(error.code)\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "always", "-c", program],
        env={**os.environ, "KUBECONFIG": str(config)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "target-unavailable\n", "")


@pytest.mark.parametrize(
    ("address", "context", "namespace", "project"),
    [
        ("kubernetes://", "", "", "team-a"),
        ("kubernetes:///", "", "", "team-a"),
        ("kubernetes:///shop", "", "shop", "shop"),
        ("kubernetes://here", "here", "", "team-a"),
        ("kubernetes://here/shop", "here", "shop", "shop"),
        (
            "kubernetes://arn:aws:eks:eu:1:cluster/prod/",
            "arn:aws:eks:eu:1:cluster/prod",
            "",
            "default",
        ),
        (
            "kubernetes://arn:aws:eks:eu:1:cluster/prod/shop",
            "arn:aws:eks:eu:1:cluster/prod",
            "shop",
            "shop",
        ),
    ],
)
def test_an_address_names_a_context_and_a_namespace_and_so_a_project(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    context: str,
    namespace: str,
    project: str,
) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("HOLDFAST_PROJECT", raising=False)
    found = resolve_connection(address, environ={})
    assert (found.context, found.namespace) == (context, namespace)
    assert resolve_connection(found.url, environ={}) == found
    with ManagementClient(address) as made:
        assert made.project == project
    with ManagementClient(address, project="acme") as made:
        assert made.project == "acme"


@pytest.mark.parametrize("address", ["kubernetes:///Not A Namespace", "kubernetes://here/a_b"])
def test_a_namespace_that_cannot_be_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="namespace"):
        resolve_connection(address, environ={})


def test_a_context_that_is_not_there_is_told_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(ConfigurationError, match="here"):
        ManagementClient("kubernetes://elsewhere/shop")


def test_without_the_extra_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    real = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name.split(".")[0] == "aiohttp":
            raise ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp")
        return real(name, *arguments, **more)

    for name in [
        name for name in sys.modules if name.startswith(("holdfast.adapters.kub", "aiohttp"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigurationError, match=r"pip install 'holdfast-ml\[kubernetes\]'"):
        ManagementClient("kubernetes:///shop", project="acme")
