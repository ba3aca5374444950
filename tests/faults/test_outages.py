"""A control plane that dies, forgets or goes back in time: each test has a cluster of its own."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.adapters.kubernetes.harness import (
    CONFIG_MAPS,
    HastyClock,
    api_for,
    cluster_config,
    eventually,
)
from tests.faults.converge import STORY, Converger, text_of
from tests.faults.kube_faults import KubeFaults, calls
from tests.support.control_plane import ApiRequestFailed, ControlPlane
from tests.support.fault_proxy import Recorded
from tests.support.processes import start_process, wait_until
from tests.support.testbed import find_testbed

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.watch import ResourceScope

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]
WATCH = "watch=true"


class Plane(ControlPlane):
    """An API server and its database, to be ended and started again one by one."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        super().__init__(directory, find_testbed())
        self._start_api()
        self.database = directory / "etcd"
        wait_until(self._has_default, 30, "the default namespace")

    def _has_default(self) -> bool:
        try:
            self.api().request("GET", "/api/v1/namespaces/default")
        except ApiRequestFailed:
            return False
        return True

    def end(self, name: str, how: int = signal.SIGKILL) -> None:
        process = self._processes[name]
        process.send_signal(how)
        process.wait(30)

    def begin(self, name: str) -> None:
        log = self._directory / "logs" / f"{name}.again.log"
        self._processes[name] = start_process(
            self._processes[name].args,
            log,
            cwd=self._directory,
            env={"HOME": str(self._directory), "PATH": "/usr/bin:/bin"},
        )

    def ready(self) -> None:
        wait_until(self._ready, 60, "the API server to be back")

    def compact(self) -> None:
        """Make the database forget everything but what is there now."""
        arguments = self._processes["etcd"].args
        assert isinstance(arguments, list)
        flag = "--listen-client-urls="
        (url,) = (a.removeprefix(flag) for a in map(str, arguments) if a.startswith(flag))
        revision = _post(f"{url}/v3/kv/range", {"key": "AA=="})["header"]["revision"]
        _post(f"{url}/v3/kv/compaction", {"revision": revision, "physical": True})


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:  # Any: the database's own JSON
    request = Request(url, json.dumps(body).encode())  # noqa: S310  # our own address
    with urlopen(request, timeout=20) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
        return found


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    running = Plane(tmp_path / "plane")
    yield running
    running.stop()


@pytest.fixture
def kube(plane: Plane, tmp_path: Path) -> Iterator[KubeFaults]:
    with KubeFaults(plane.server, plane.authority, tmp_path) as running:
        yield running


@pytest.mark.parametrize("program", ["kube-apiserver", "etcd"])
def test_a_control_plane_killed_at_any_call_is_waited_out(
    program: str, plane: Plane, kube: KubeFaults
) -> None:
    """Killed at one call of each state that is wanted, down for seconds, then back."""

    async def story() -> None:
        async with api_for(cluster_config(kube.kubeconfig), clock=SystemClock()) as api:
            controller = Converger(api, "default", "g")
            for nth, wanted in enumerate(STORY, start=1):
                killer = Killer(plane, program, nth=nth + 1)
                kube.drop_request(killer)
                await controller.converge(wanted)
                kube.heal()
                assert killer.done.is_set()
                assert await controller.state() == wanted

    asyncio.run(story())
    assert sum(kube.created().values()) <= 5  # one write may hold without its answer being seen
    assert sum(kube.deleted().values()) <= 3


class Killer:
    """Kills a program when its turn comes, and brings it back after a while. Chooses nothing."""

    def __init__(self, plane: Plane, program: str, *, nth: int) -> None:
        self._plane = plane
        self._program = program
        self._left = nth
        self.done = threading.Event()

    def __call__(self, request: Recorded) -> bool:
        self._left -= 1
        if self._left == 0:
            self._plane.end(self._program)
            self.done.set()
            threading.Timer(2.0, self._plane.begin, (self._program,)).start()
        return False


class Copy:
    """An informer and what it holds, as the converger writes it."""

    def __init__(self, informer: Informer) -> None:
        self.informer = informer

    def now(self) -> dict[str, str]:
        return {item["metadata"]["name"][2:]: text_of(item) for item in self.informer}

    async def becomes(self, **wanted: str) -> None:
        await eventually(lambda: self.now() == wanted, f"a copy of {wanted}", seconds=90)


def test_a_cluster_restored_from_an_older_snapshot_is_believed_as_it_is(
    plane: Plane, kube: KubeFaults, tmp_path: Path
) -> None:
    snapshot = tmp_path / "snapshot"

    def stopped() -> None:
        plane.end("kube-apiserver")
        plane.end("etcd", signal.SIGTERM)

    def started() -> None:
        plane.begin("etcd")
        plane.begin("kube-apiserver")
        plane.ready()

    async def story() -> None:
        async with api_for(cluster_config(kube.kubeconfig), clock=SystemClock()) as api:
            controller = Converger(api, "default", "g")
            scope = ResourceScope(resource=CONFIG_MAPS, namespace="default", labels="group=g")
            copy = Copy(Informer(api, scope, silence=4.0))
            running = asyncio.ensure_future(copy.informer.run())
            try:
                await controller.converge({"a": "1", "b": "1"})
                await copy.becomes(a="1", b="1")
                await asyncio.to_thread(stopped)
                shutil.copytree(plane.database, snapshot)
                await asyncio.to_thread(started)
                for text in "23456":
                    await controller.converge({"a": text, "c": text})
                await copy.becomes(a="6", c="6")
                await asyncio.to_thread(stopped)
                shutil.rmtree(plane.database)
                shutil.copytree(snapshot, plane.database)
                await asyncio.to_thread(started)
                await copy.becomes(a="1", b="1")
                before = sum(kube.deleted().values())
                await controller.converge({"a": "7", "b": "1"})
                await copy.becomes(a="7", b="1")
                assert sum(kube.deleted().values()) == before
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


def test_a_version_that_was_really_compacted_away_leads_to_a_new_list(
    plane: Plane, kube: KubeFaults
) -> None:
    async def story() -> None:
        async with api_for(cluster_config(kube.kubeconfig), clock=HastyClock()) as api:
            controller = Converger(api, "default", "g")
            scope = ResourceScope(resource=CONFIG_MAPS, namespace="default", labels="group=g")
            copy = Copy(Informer(api, scope, silence=10.0))
            kube.silence(calls(path=WATCH), after=2)
            running = asyncio.ensure_future(copy.informer.run())
            try:
                await copy.informer.wait_synced(20)
                await controller.converge({"a": "1", "b": "1"})
                await copy.becomes(a="1", b="1")
                # No watch gets through while an object goes and its history is forgotten.
                refused = calls(path=WATCH, times=None)
                kube.answer(refused, 503)
                kube.answer(calls("GET", r"limit=", times=None, watch=False), 503)
                await asyncio.to_thread(_forget, plane, controller)
                kube.heal()
                await controller.converge({"b": "2"})
                await copy.becomes(b="2")
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


def _forget(plane: Plane, controller: Converger) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    plane.api().request("DELETE", f"{path}/g-a")
    for number in range(3):
        plane.api().request("POST", path, {"metadata": {"name": f"other{number}"}})
    plane.compact()
    plane.end("kube-apiserver")  # its own memory of the events goes with it
    plane.begin("kube-apiserver")
    plane.ready()
