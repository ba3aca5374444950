"""Durable creates against the rate at which the file system itself can commit."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

import uvloop

from bench.control_plane import BENCH, PROJECT, fields
from bench.report import Row
from holdfast.adapters.clock import SystemClock
from holdfast.adapters.store import OpenMode, Store
from holdfast.core.names import WorkloadId
from holdfast.core.workload import Desired

COUNT = 4_000
LOGGED = b"x" * 32_768
"""As much as one create appends to the write-ahead log: eight pages of row, index and audit."""


def measure() -> list[Row]:
    """Both write into the same directory, one after the other, twice; the better of each counts."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=Path.cwd()) as scratch:
        limit = max(_commits(Path(scratch)) for _ in range(2))
        rows = []
        for clients, goal in ((1, None), (32, 0.8)):
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:  # as the server
                rate = max(loop.run(_creates(Path(scratch), clients)) for _ in range(2))
            rows.append(
                Row(
                    what=f"durable creates, {clients} at a time, against commits of that size",
                    ours=f"{rate:,.0f}/s",
                    peer=f"{limit:,.0f}/s",
                    ratio=rate / limit,
                    goal=goal,
                )
            )
        return rows


def _commits(scratch: Path) -> float:
    """Append and sync the same bytes, one by one: what a log without group commit could reach."""
    path = scratch / "limit"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    begin = time.perf_counter()
    for _ in range(COUNT):
        os.write(handle, LOGGED)
        os.fdatasync(handle)
    seconds = time.perf_counter() - begin
    os.close(handle)
    path.unlink()
    return COUNT / seconds


async def _creates(scratch: Path, clients: int) -> float:
    store = Store.open(
        scratch / f"{time.monotonic_ns()}.db", mode=OpenMode.SERVER, clock=SystemClock()
    )
    await store.submit(lambda tx: tx.ensure_project(PROJECT))
    names = iter(range(COUNT))

    async def client() -> None:
        for index in names:
            where = WorkloadId(project=PROJECT, slug=f"w-{index}")
            desired = Desired(id=where, fields=fields(where.slug))
            await store.submit(
                lambda tx, desired=desired: tx.create_workload(desired, writer=BENCH, declare=True)
            )

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - begin
    store.close()
    return COUNT / seconds
