"""The page: its bytes against the budget, when an inbox of many drifts can be read, and what open
pages cost the server."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import aiohttp

from bench.control_plane import PROJECT as BENCH_PROJECT
from bench.control_plane import ControlPlane, control_plane
from bench.report import Row
from holdfast.apps.server.page import PageFiles
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import ApplicationId, Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.facts import CONTROLLER, JournalAction
from holdfast.core.ledger import DriftEntry
from holdfast.core.live import Writer
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops.ledger_store import CLOSED
from holdfast.reconcile.gitops.ports import JournalEntry, LedgerWrite, RecordKind
from holdfast.wire.gitops_v1 import drift_to_json, encode_record

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
CLIENT = ROOT / "clients" / "javascript" / "src"
SCRIPT_BUDGET = 60_000
STYLE_BUDGET = 10_000
FIRST_SCREENS = ("app.js", "drift.js")
"""What the inbox and an open drift need; other screens are read when they are opened."""
PAINT_GOALS = {1_000: 1.0, 10_000: 1.5}
"""Seconds until the first rows are there, by how many drifts are open."""
OPEN_PAGES = 200
REST_SECONDS = 10.0
REST_BUDGET = 0.05
"""Of a core, for all open pages together while nothing happens."""
EVENTS = 20
EVENT_GOAL = 0.25
"""Seconds within which 99 of 100 pages hear of an event."""
FIGURE_DRIFTS = 10_000
"""In the ledger that figures are counted over, each with three lines of the journal."""
DECIDED = 10
"""One in so many was approved by a person, the others were put back unasked."""
FIGURES_GOAL = 5.0
"""How many times cheaper figures are once one drift changed than when all are read."""
_IMPORT = re.compile(r'^(?:import|export)\b[^;]*?\bfrom "([^"]+)"', flags=re.MULTILINE)


def module_graph(*names: str) -> list[Path]:
    """Return the files that a browser reads for these modules, each once."""
    found: dict[Path, None] = {}
    waiting = [WEB / name for name in names]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = None
        for name in _IMPORT.findall(path.read_text()):
            below = name.removeprefix("/ui/assets/client/")
            waiting.append(CLIENT / below if below != name else (path.parent / name).resolve())
    return list(found)


def packed_size(paths: Iterable[Path]) -> int:
    """Return how many bytes travel: each file for itself, as the server packs it."""
    files = PageFiles.open()
    size = 0
    for path in paths:
        prefix, folder = ("client/", CLIENT) if path.is_relative_to(CLIENT) else ("", WEB)
        found = files.find(prefix + path.relative_to(folder).as_posix())
        assert found is not None, path
        size += len(found.packed or found.body)
    return size


def measure() -> list[Row]:
    """Weigh the files, then open inboxes in a browser where there is one."""
    script, style = packed_size(module_graph(*FIRST_SCREENS)), packed_size([WEB / "style.css"])
    every = packed_size(module_graph(*(path.name for path in WEB.glob("*.js"))))
    rows = [
        _budget("script of the inbox and a drift, gzip", script, SCRIPT_BUDGET, goal=1.0),
        _budget("script of every screen, gzip", every, SCRIPT_BUDGET, goal=None),
        _budget("style, gzip", style, STYLE_BUDGET, goal=1.0),
    ]
    rows.append(asyncio.run(_figures()))
    with control_plane(workloads=1) as server:
        rows += asyncio.run(_open_pages(server))
    sys.path.insert(0, str(ROOT))
    from tests.support.browser import find_browser

    if find_browser() is None:
        print("no browser is installed: nothing is painted", file=sys.stderr)
        return rows
    return rows + [_paint(count, goal) for count, goal in PAINT_GOALS.items()]


def _budget(what: str, ours: int, budget: int, *, goal: float | None) -> Row:
    return Row(
        what=what,
        ours=f"{ours / 1000:.1f} kB",
        peer=f"{budget / 1000:.0f} kB",
        ratio=budget / ours,
        goal=goal,
    )


async def _open_pages(server: ControlPlane) -> list[Row]:
    """Hold as many event streams open as there are pages: at rest, then with events."""
    headers = {"Authorization": f"Bearer {server.token}"}
    where = f"{server.url}/api/projects/{BENCH_PROJECT}"
    heard: asyncio.Queue[float] = asyncio.Queue()
    listening = asyncio.Semaphore(0)

    async def listen(session: aiohttp.ClientSession) -> None:
        async with session.get(f"{where}/events") as stream:
            listening.release()
            async for line in stream.content:
                if line.startswith(b"data:"):
                    heard.put_nowait(time.perf_counter())

    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        headers=headers, connector=connector, timeout=timeout
    ) as session:
        pages = [asyncio.create_task(listen(session)) for _ in range(OPEN_PAGES)]
        for _ in pages:
            await listening.acquire()
        await asyncio.sleep(2)
        before = _cpu_seconds(server.pid)
        await asyncio.sleep(REST_SECONDS)
        rest = (_cpu_seconds(server.pid) - before) / REST_SECONDS
        async with session.get(f"{where}/workloads/w-000000") as answer:
            id = (await answer.json())["id"]
        delays: list[float] = []
        for number in range(EVENTS):
            began = time.perf_counter()
            change = {"description": f"change {number}"}
            async with session.patch(f"{server.url}/api/workloads/{id}", json=change) as answer:
                answer.raise_for_status()
            delays += [await heard.get() - began for _ in pages]
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)
    late = statistics.quantiles(delays, n=100)[98]
    return [
        Row(
            what=f"{OPEN_PAGES} open pages at rest, of a core",
            ours=f"{rest:.2%}",
            peer=f"{REST_BUDGET:.0%}",
            ratio=REST_BUDGET / max(rest, 1e-6),
            goal=1.0,
        ),
        Row(
            what=f"a write until {OPEN_PAGES} pages heard of it, p99",
            ours=f"{late * 1000:.0f} ms",
            peer=f"{EVENT_GOAL * 1000:.0f} ms",
            ratio=EVENT_GOAL / late,
            goal=1.0,
        ),
    ]


async def _figures() -> Row:
    """Time the figures of the history when one drift changed since they were counted last."""
    from holdfast.adapters.store import Store
    from holdfast.adapters.store.ledger_store import SqliteLedgerStore
    from holdfast.apps.server.gitops_statistics import count_drifts_and_decisions
    from holdfast.reconcile.gitops.drift_facts import DriftFacts

    now = datetime.now(UTC)
    read: list[float] = []
    followed: list[float] = []

    async def count(facts: DriftFacts) -> float:
        began = time.perf_counter()
        found = await count_drifts_and_decisions(
            facts, "shop", ["team/shop"], now - timedelta(days=30), now
        )
        took = time.perf_counter() - began
        assert found.whole.count == FIGURE_DRIFTS  # what is timed is the whole
        return took

    with tempfile.TemporaryDirectory() as scratch, Store.open(Path(scratch, "l.db")) as store:
        ledger = SqliteLedgerStore(store)
        for start in range(0, FIGURE_DRIFTS, 500):
            numbers = range(start, start + 500)
            drifts = {number: _ended_drift(number, now) for number in numbers}
            lines = [_lines(drifts[each], decided=each % DECIDED == 0) for each in numbers]
            await ledger.write(
                [_put(each, seen=0) for each in drifts.values()], [*chain.from_iterable(lines)]
            )
        for _ in range(3):
            facts = DriftFacts(ledger)
            read.append(await count(facts))
        for number in range(9):
            await ledger.write([_put(_ended_drift(number, now), seen=1)], [])
            followed.append(await count(facts))
    ours, peer = statistics.median(followed), statistics.median(read)
    return Row(
        what=f"figures over {FIGURE_DRIFTS:,} drifts, once one of them changed",
        ours=f"{ours * 1000:.0f} ms",
        peer=f"{peer * 1000:.0f} ms, all read",
        ratio=peer / ours,
        goal=FIGURES_GOAL,
    )


def _ended_drift(number: int, now: datetime) -> ObjectDrift:
    seen = now - timedelta(minutes=number + 60)
    entry = DriftEntry(
        path="spec.replicas",
        desired=2,
        live=5,
        kind=DriftKind.CONFIGURATION,
        cause=Cause.PERSON,
        evidence="written by kubectl-scale",
        writer=Writer(manager="kubectl-scale", operation="Update", at=seen),
    )
    return ObjectDrift(
        id=f"drf-{number:010x}",
        application=ApplicationId(namespace="team", name="shop"),
        project="shop",
        object=ObjectRef(
            api_version="apps/v1", kind="Deployment", namespace="shop", name=f"chat-{number}"
        ),
        entries=(entry,),
        commit="0123456789abcdef0123456789abcdef01234567",
        remediation=Remediation.REVIEW,
        first_seen=seen,
        last_seen=seen,
        state=DriftState.RESOLVED,
        resolved_at=seen + timedelta(minutes=7),
        resolution=Resolution.APPROVED,
    )


def _put(drift: ObjectDrift, *, seen: int) -> LedgerWrite:
    return LedgerWrite(
        kind=RecordKind.DRIFT,
        application=str(drift.application),
        key=drift.id,
        seen=seen,
        state=CLOSED,
        body=encode_record(drift_to_json(drift)),
    )


def _lines(drift: ObjectDrift, *, decided: bool) -> list[JournalEntry]:
    second = JournalAction.APPROVED if decided else JournalAction.APPLYING
    return [
        JournalEntry(
            application=str(drift.application),
            subject=drift.id,
            action=action.value,
            actor="maria (0123abcd)" if action is JournalAction.APPROVED else CONTROLLER,
            summary=f"{drift.object} differs in spec.replicas.",
            detail={"project": drift.project},
            at=drift.last_seen,
        )
        for action in (JournalAction.DETECTED, second, JournalAction.RESOLVED)
    ]


def _cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _paint(count: int, goal: float) -> Row:
    """Time an inbox from its address to its first rows, signed in, with nothing in the cache."""
    from playwright.sync_api import sync_playwright
    from tests.support.browser import FLAGS, Screens, find_browser
    from tests.support.gitops_server import PROJECT, serve_applications
    from tests.support.gitops_world import GitopsWorld, configmap, route

    from holdfast.core.gitops.application import Remediation

    world = GitopsWorld(route(Remediation.REVIEW))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    times = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        serve_applications(Path(scratch), world) as served,
        sync_playwright() as playwright,
    ):
        served.reconcile()
        served.call(lambda: world.edit("a"))
        served.reconcile()

        def multiply() -> None:
            assert world.context is not None
            (one,) = world.context.state.drifts.values()
            for place in range(count - 1):
                named = replace(
                    one,
                    id=f"drf-{place:010x}",
                    object=replace(one.object, name=f"settings-{place}"),
                    first_seen=one.first_seen - timedelta(seconds=place),
                )
                world.context.state.drifts[named.id] = named

        served.call(multiply)
        token = served.server.token(PROJECT, ["read", "write", "approve"])
        program = find_browser()
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for _ in range(5):
            screens = Screens(browser)
            signed_in = screens.open(served.url, token, path="/ui/me").page.context.storage_state()
            # A new profile with the session alone: the first has the page's scripts in its cache.
            screen = screens.open(served.url, storage_state=signed_in)
            began = time.perf_counter()
            screen.page.goto(f"{served.url}/ui/p/{PROJECT}/inbox", wait_until="commit")
            screen.rows.first.wait_for()
            times.append(time.perf_counter() - began)
            screens.close()
        browser.close()
    ours = statistics.median(times)
    return Row(
        what=f"first rows of an inbox of {count:,} open drifts",
        ours=f"{ours * 1000:.0f} ms",
        peer=f"{goal * 1000:.0f} ms",
        ratio=goal / ours,
        goal=1.0,
    )
