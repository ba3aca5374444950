"""Backends that crash, hang, never load or shout are reported, retried and kept in bounds."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

from tests.adapters.runner.harness import QUICK, UID, bench, run, spec, until
from tests.support.processes import echo_command, rogue_command

from holdfast.core.live import Phase


def test_an_exit_while_loading_is_reported_at_once_and_retried(tmp_path: Path) -> None:
    """The start-up budget is ten minutes here: nobody waits for it."""

    async def work() -> None:
        command = rogue_command("crash")
        async with bench(tmp_path, spec(command, health={"startup": "10m"})) as b:
            await until(lambda: b.runner.status(UID).phase is Phase.ERROR, "the verdict")
            assert b.kinds().count("started") == QUICK.quick_crashes
            message = b.runner.status(UID).message
            assert "exited with code 1" in message and "no usable device" in message
            await until(lambda: b.kinds().count("started") > 4, "more attempts")
            assert b.runner.status(UID).phase is Phase.ERROR
            last = [progress async for progress in b.runner.progress(UID)]
            assert [progress.phase for progress in last] == [Phase.ERROR]

    run(work())


def test_a_backend_that_never_gets_ready_is_killed_when_its_budget_is_spent(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        command = rogue_command("never-ready")
        async with bench(tmp_path, spec(command, health={"startup": "700ms"})) as b:
            await until(lambda: "failed" in b.kinds(), "the verdict")
            failed = next(event for event in b.events if event.kind == "failed")
            assert "0.7 s" in failed.message and "503" in failed.message
            await until(lambda: b.kinds().count("started") == 2, "another attempt")
            await until(lambda: len(b.leaders()) == 1, "the first process to be gone")
            assert b.runner.acquire(UID) is None

    run(work())


def test_a_backend_on_a_port_of_its_own_is_told_of_the_one_it_was_given(tmp_path: Path) -> None:
    async def work() -> None:
        server = (
            "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.BaseHTTPRequestHandler);"
            " print(s.server_port, flush=True); s.serve_forever()"
        )
        command = [sys.executable, "-c", server]
        async with bench(tmp_path, spec(command, health={"startup": "1500ms"})) as b:
            await until(lambda: "failed" in b.kinds(), "the verdict")
            failed = next(event for event in b.events if event.kind == "failed")
            assert re.search(r"It listens on port \d+, and requests go to port \d+", failed.message)
            assert "write ${PORT} in its command" in failed.message

    run(work())


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(["no-such-server", "--port", "1"])) as b:
            await until(lambda: b.runner.status(UID).phase is Phase.ERROR, "the verdict")
            assert "'no-such-server' was not found" in b.runner.status(UID).message

    run(work())


def test_a_backend_that_keeps_crashing_after_it_was_ready_is_restarted_each_time(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(rogue_command("crash-after", "0.4"))) as b:
            await until(lambda: b.kinds().count("exited") >= 2, "two crashes")
            exited = next(event for event in b.events if event.kind == "exited")
            assert "out of memory" in exited.message

    run(work())


def test_a_flood_of_log_stays_within_its_limit(tmp_path: Path) -> None:
    async def work() -> None:
        limit = 1_000_000
        limits = replace(QUICK, log_bytes=limit)
        async with bench(tmp_path, spec(rogue_command("flood-log", "30")), limits=limits) as b:
            await b.ready()
            folder = b.home / "logs" / UID

            def sizes() -> list[int]:
                return [path.stat().st_size for path in folder.iterdir()]

            await until(lambda: len(sizes()) == 2 and max(sizes()) <= limit, "the flood to ebb")
            lines = [line async for line in b.runner.logs(UID, tail=50)]
            assert lines and all(line.startswith("primary-1 ") for line in lines)
            assert (await b.get("/health"))["status"] == "ok"

    run(work())


def test_following_a_log_survives_rotation_and_a_new_replica(tmp_path: Path) -> None:
    async def work() -> None:
        limits = replace(QUICK, log_bytes=500, tick=3600)
        async with bench(tmp_path, spec(echo_command()), limits=limits) as b:
            await b.ready()
            follow = b.runner.logs(UID, tail=10, follow=True)
            assert "listening on" in await anext(follow)
            path = b.home / "logs" / UID / "primary-1.log"
            rotations = 0
            for number in range(0, 300, 3):
                with path.open("a") as log:
                    log.writelines(f"line {number + more}\n" for more in range(3))
                assert await anext(follow) == f"primary-1 line {number}"
                rotations += b.runner._supervisors[UID].rotate_logs()
                for more in (1, 2):
                    assert await anext(follow) == f"primary-1 line {number + more}"
            assert rotations > 3
            b.runner.put(spec(echo_command("--model", "new")))
            assert "primary-2 listening on" in await anext(follow)

    run(work())
