"""A killed server loses no workload: the next one finds every process it started."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.adapters.runner.harness import (
    UID,
    bench,
    make_runner,
    processes_of,
    run,
    spec,
    until,
)
from tests.support.processes import ROOT, echo_command, is_alive, rogue_command, wait_until

from holdfast.adapters.runner import RunEvent, Runner


@contextmanager
def orphaned(home: Path, command: list[str]) -> Iterator[int]:
    """Let a server start a workload and kill the server; give the workload's process."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.adapters.runner.orphan_maker", home, shlex.join(command)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if line.strip() == "ready":
                break
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    with nothing_left(home):
        (leader,) = [found.pid for found in processes_of(home) if found.leader]
        yield leader


@contextmanager
def nothing_left(home: Path) -> Iterator[None]:
    """Kill what a failed test left running."""
    try:
        yield
    finally:
        for found in processes_of(home):
            os.kill(found.pid, signal.SIGKILL)


def test_a_process_of_a_killed_server_goes_on_under_the_next_one(tmp_path: Path) -> None:
    async def work(pid: int) -> None:
        async with bench(tmp_path, spec(echo_command())) as b:
            await b.ready()
            assert b.leaders() == [pid]
            assert b.kinds() == ["adopted"]
            assert (await b.get("/health"))["status"] == "ok"
            # Its end is noticed although it is nobody's child here.
            os.kill(pid, signal.SIGKILL)
            await until(lambda: b.kinds()[-1] == "ready", "the healing")
            assert b.kinds() == ["adopted", "exited", "started", "ready"]

    with orphaned(tmp_path / "home", echo_command()) as pid:
        run(work(pid))
        assert not is_alive(pid)


def test_a_process_of_an_old_revision_serves_until_the_new_one_is_ready(tmp_path: Path) -> None:
    async def work(pid: int) -> None:
        async with bench(tmp_path, spec(echo_command("--model", "new"))) as b:
            lease = await until(lambda: b.runner.acquire(UID), "the old process to serve")
            lease.release()
            await b.ready()
            assert await b.model() == "new"
            await until(lambda: "replaced" in b.kinds(), "the old process to be replaced")
            assert not is_alive(pid)

    with orphaned(tmp_path / "home", echo_command("--model", "old")) as pid:
        run(work(pid))


def test_what_an_adopted_process_was_started_from_is_known(tmp_path: Path) -> None:
    """A server that takes over a failed rollout must not think that all is as it is written."""

    async def work() -> None:
        async with bench(tmp_path, spec(rogue_command("crash"), generation=2)) as b:
            status = await until(
                lambda: (s := b.runner.status(UID)).failed and s.outdated and s, "the verdict"
            )
            (serving,) = status.outdated
            assert serving.generation == 1 and serving.fields is not None
            assert "--model old" in str(serving.fields["command"])

    with orphaned(tmp_path / "home", echo_command("--model", "old")):
        run(work())


def test_a_record_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It does not say what the process was started from, so that is unknown and not guessed."""

    async def work(pid: int) -> None:
        (path,) = (tmp_path / "home").glob("replicas/*/*.json")
        old = json.loads(path.read_text())
        path.write_text(
            json.dumps(
                {k: v for k, v in old.items() if k not in ("generation", "fields", "fingerprints")}
            )
        )
        async with bench(tmp_path, spec(rogue_command("crash"), generation=2)) as b:
            status = await until(
                lambda: (s := b.runner.status(UID)).failed and s.outdated and s, "the verdict"
            )
            assert b.leaders() and pid in b.leaders()
            (serving,) = status.outdated
            assert (serving.generation, serving.fields) == (0, None)

    with orphaned(tmp_path / "home", echo_command("--model", "old")) as pid:
        run(work(pid))


def test_a_process_that_nobody_wants_is_stopped_with_its_children(tmp_path: Path) -> None:
    async def work(pid: int) -> None:
        family = [found.pid for found in processes_of(tmp_path / "home")]
        assert pid in family and len(family) == 2
        events: list[RunEvent] = []
        runner = make_runner(tmp_path / "home", events)
        await runner.start()
        assert all(map(is_alive, family))  # not judged before the wanted set is known
        runner.set([])
        await until(lambda: not any(map(is_alive, family)), "the strays to end")
        await until(lambda: [e.kind for e in events] == ["stopped"], "the report")
        await runner.stop()

    with orphaned(tmp_path / "home", rogue_command("fork-child")) as pid:
        run(work(pid))


def test_a_process_whose_record_was_lost_is_found_by_its_marker(tmp_path: Path) -> None:
    async def work(pid: int) -> None:
        for record in (tmp_path / "home" / "replicas").rglob("*.json"):
            record.unlink()
        async with bench(tmp_path, spec(echo_command())) as b:
            await b.ready()
            await until(lambda: not is_alive(pid), "the stray to end")
            assert len(b.leaders()) == 1

    with orphaned(tmp_path / "home", echo_command()) as pid:
        run(work(pid))


def test_a_server_killed_between_the_start_and_the_record_of_it_still_finds_the_process(
    tmp_path: Path,
) -> None:
    async def work(pid: int) -> None:
        (record,) = (tmp_path / "home" / "replicas").rglob("*.json")
        intent = json.loads(record.read_text()) | {"pid": 0, "start": 0}
        record.write_text(json.dumps(intent))
        async with bench(tmp_path, spec(echo_command())) as b:
            await b.ready()
            assert b.leaders() == [pid]

    with orphaned(tmp_path / "home", echo_command()) as pid:
        run(work(pid))


def test_a_recorded_number_that_another_process_has_now_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    async def work() -> None:
        (record,) = (tmp_path / "home" / "replicas").rglob("*.json")
        old = json.loads(record.read_text())
        os.kill(old["pid"], signal.SIGKILL)
        wait_until(lambda: not is_alive(old["pid"]))
        record.write_text(json.dumps(old | {"pid": stranger.pid}))
        async with bench(tmp_path, spec(echo_command())) as b:
            await b.ready()
            assert b.kinds() == ["started", "ready"]

    try:
        with orphaned(tmp_path / "home", echo_command()):
            run(work())
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_runner_that_is_told_to_leave_them_leaves_them_running(tmp_path: Path) -> None:
    home = tmp_path / "home"

    async def first() -> list[int]:
        runner = await started(home)
        pids = [found.pid for found in processes_of(home)]
        await runner.stop(leave_running=True)
        return pids

    async def second(pids: list[int]) -> None:
        assert pids and all(map(is_alive, pids))
        runner = await started(home)
        assert [found.pid for found in processes_of(home)] == pids
        await runner.stop()
        assert not any(map(is_alive, pids))

    async def started(home: Path) -> Runner:
        runner = make_runner(home, [])
        runner.set([spec(echo_command())])
        await runner.start()
        await until(lambda: runner.status(UID).ready, "readiness")
        return runner

    with nothing_left(home):
        run(second(run(first())))


def test_stopping_before_the_wanted_set_is_known_leaves_no_orphan(tmp_path: Path) -> None:
    async def work(pid: int) -> None:
        runner = make_runner(tmp_path / "home", [])
        await runner.start()
        await runner.stop()
        assert not is_alive(pid)

    with orphaned(tmp_path / "home", echo_command()) as pid:
        run(work(pid))
