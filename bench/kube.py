"""A real cluster for the benchmarks, a plain load generator, and the operator as a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.testbed import find_or_build_testbed, say_on_stderr

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.kubeconfig import load_config
from holdfast.adapters.kubernetes.objects import Object

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
AT_ONCE = 16
TICKS = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Start a cluster of the benchmark's own."""
    find_or_build_testbed(say_on_stderr)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as scratch:
        cluster = Cluster.join(Path(scratch) / "cluster")
        try:
            yield cluster
        finally:
            cluster.stop()


@contextlib.asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[KubeApi]:
    """Talk to it as admin."""
    clock = SystemClock()
    config = load_config(clock=clock, environ={"KUBECONFIG": str(cluster.kubeconfig)})
    api = KubeApi(KubeConnection(config, clock=clock), manager="bench", timeout=120.0)
    try:
        yield api
    finally:
        await api.aclose()


@contextlib.contextmanager
def operator(cluster: Cluster, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `holdfast operator` until the block ends."""
    log = (cluster.directory / "operator.log").open("wb")
    process = subprocess.Popen(
        [HOLDFAST, "operator", "--no-leader-election", *arguments],
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        stdout=log,
        stderr=log,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(30)
        log.close()


async def all_of(
    work: Callable[[Object], Awaitable[object]], items: Iterable[Object], *, at_once: int = AT_ONCE
) -> float:
    """Do the same to every item, so many at a time; return the seconds it took."""
    waiting = iter(items)

    async def hand() -> None:
        for item in waiting:
            await work(item)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(hand())
    return time.perf_counter() - began


def cpu_seconds(pid: int) -> float:
    """How much processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def percentile(values: list[float], share: float) -> float:
    """The value that this share of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
