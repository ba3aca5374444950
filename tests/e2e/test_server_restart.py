"""What becomes of running workloads when their server ends, in each way that it can."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.processes import echo_command, wait_until
from tests.support.serving import (
    ServeProcess,
    clean_environment,
    killing_orphans,
    replica_processes,
    running_serve,
    serve_command,
)

from holdfast import Health, ManagementClient, NotFound, Phase, WorkloadSpec

ECHO = WorkloadSpec(
    name="chat",
    model="echo",
    backend="echo",
    command=shlex.join(echo_command()),
    replicas=2,
    health=Health(path="/health", interval="1s", startup="60s"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a server keeps everything; nothing that it started outlives the test."""
    with killing_orphans(tmp_path):
        yield tmp_path


def ready(mgmt: ManagementClient, slug: str = "chat", *, replicas: int = 2) -> None:
    mgmt.wait_until_ready(slug, timeout=60, silent=True)
    wait_until(lambda: mgmt.get(slug).status.ready == replicas, 60, "every replica to be ready")


def actions(mgmt: ManagementClient, slug: str = "chat") -> list[str]:
    return [entry.action for entry in mgmt.history(slug=slug)]


def ask(server: ServeProcess) -> str:
    with server.data("chat") as data:
        return data.endpoint("chat").generate_text(prompt="are you there").text


def test_a_killed_server_finds_its_workloads_running_and_takes_them_over(folder: Path) -> None:
    with running_serve(folder) as first:
        with first.management() as mgmt:
            mgmt.ensure(ECHO)
            ready(mgmt)
            before = mgmt.get("chat")
            wait_until(lambda: actions(mgmt).count("ready") == 2, what="both to be on record")
            noted = actions(mgmt)
        running = first.leaders()
        assert len(running) == 2
        first.kill()
        assert first.leaders() == running, "the backends outlive their server"

    with running_serve(folder) as second, second.management() as mgmt:
        ready(mgmt)
        assert second.leaders() == running
        assert ask(second) == "echo: are you there"
        assert mgmt.get("chat").generation == before.generation
        assert mgmt.get("chat").uid == before.uid
        since = wait_until(
            lambda: (now := actions(mgmt))[: len(now) - len(noted)], what="the adoption"
        )
        assert set(since) == {"adopted"}, "nothing was started, stopped or restarted"
        assert mgmt.drifts(include_resolved=True) == []

        mgmt.delete("chat")
        wait_until(lambda: not second.children(), 60, "adopted processes to be stopped")
        with pytest.raises(NotFound):
            mgmt.get("chat")


def test_what_died_with_its_server_is_started_anew(folder: Path) -> None:
    with running_serve(folder) as first:
        with first.management() as mgmt:
            mgmt.ensure(ECHO)
            ready(mgmt)
        lost, kept = sorted(first.leaders().items())
        first.kill()
    os.kill(lost[1], signal.SIGKILL)
    with running_serve(folder) as second, second.management() as mgmt:
        ready(mgmt)
        leaders = second.leaders()
        assert kept in leaders.items()
        assert lost[1] not in leaders.values()
        assert ask(second) == "echo: are you there"


def test_a_server_told_to_stop_stops_everything_that_it_started(folder: Path) -> None:
    family = WorkloadSpec(
        name="family",
        model="m",
        backend="echo",
        command=shlex.join(["sh", "-c", f"sleep 600 & exec {shlex.join(echo_command())}"]),
        health=ECHO.health,
    )
    with running_serve(folder) as server:
        with server.management() as mgmt:
            mgmt.ensure_all([ECHO, family])
            ready(mgmt)
            ready(mgmt, "family", replicas=1)
        children = server.children()
        assert len(children) == 4, "two replicas, and a backend with a child of its own"
        server.stop()
        assert server.process is not None and server.process.returncode == 0
        assert server.children() == []

    with running_serve(folder, "--no-run") as idle, idle.management() as mgmt:
        assert idle.children() == []
        assert mgmt.get("chat").status.phase is Phase.ERROR
        assert mgmt.drifts(include_resolved=True) == [], "an ordered stop is no drift"


def test_workloads_left_running_are_taken_over_by_the_next_server(folder: Path) -> None:
    with running_serve(folder, "--leave-running") as first:
        with first.management() as mgmt:
            mgmt.ensure(ECHO)
            ready(mgmt)
        running = first.leaders()
        first.stop()
    assert {child.pid for child in replica_processes(folder / "holdfast.db")} >= set(
        running.values()
    )
    with running_serve(folder) as second, second.management() as mgmt:
        ready(mgmt)
        assert second.leaders() == running
        assert ask(second) == "echo: are you there"
    assert replica_processes(folder / "holdfast.db") == [], "this one was not told to leave them"


def refused(folder: Path, *flags: str) -> str:
    """Start a server that must not start, and give what it says."""
    ended = subprocess.run(
        serve_command(folder / "holdfast.db", *flags),
        cwd=folder,
        env=clean_environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    assert "listens on" not in ended.stdout
    return " ".join(ended.stderr.split())


def test_a_second_server_on_the_same_file_is_refused_and_told_who_holds_it(folder: Path) -> None:
    with running_serve(folder) as first, first.management() as mgmt:
        mgmt.ensure(ECHO)
        ready(mgmt)
        running = first.leaders()
        said = refused(folder)
        assert f"process {first.pid} " in said
        assert first.url in said
        assert first.leaders() == running
        assert ask(first) == "echo: are you there"


def test_a_backup_put_back_is_refused_until_it_is_accepted(folder: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    with running_serve(folder) as server, server.management() as mgmt:
        mgmt.ensure(WorkloadSpec(name="old", model="m", backend="echo", replicas=0))
        with server.admin() as store:
            store.backup(backup)
        mgmt.ensure(WorkloadSpec(name="new", model="m", backend="echo", replicas=0))
    db = folder / "holdfast.db"
    for beside in ("-wal", "-shm"):
        Path(f"{db}{beside}").unlink(missing_ok=True)
    shutil.copyfile(backup, db)

    said = refused(folder)
    assert "is older than it was" in said
    assert "--accept-rollback" in said

    with running_serve(folder, "--accept-rollback") as server, server.management() as mgmt:
        assert [live.id.slug for live in mgmt.list()] == ["old"]
    with running_serve(folder):
        pass  # accepted once is accepted
