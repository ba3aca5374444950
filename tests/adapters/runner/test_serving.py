"""A declared command becomes processes that answer, and stays that way."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tests.adapters.runner.harness import QUICK, UID, bench, run, spec, until
from tests.support.processes import accepts_connections, echo_command, is_alive, rogue_command

from holdfast.adapters.runner.process import start_ticks
from holdfast.core.live import Phase, Progress


def test_a_declared_command_gets_a_port_becomes_ready_and_answers(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(echo_command("--model", "tiny"))) as b:
            assert b.runner.acquire(UID) is None
            await b.ready()
            assert await b.model() == "tiny"
            assert b.kinds() == ["started", "ready"]
            status = b.runner.status(UID)
            assert (status.ready, status.wanted, status.canary_weight) == (1, 1, 0)

    run(work())


def test_progress_goes_through_the_phases_for_every_listener(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path) as b:
            wanted = spec(echo_command("--startup-delay", "0.5"))

            async def follow() -> list[Progress]:
                return [progress async for progress in b.runner.progress(UID)]

            listeners = [asyncio.create_task(follow()) for _ in range(2)]
            await asyncio.sleep(0)
            b.runner.set([wanted])
            for seen in await asyncio.gather(*listeners):
                assert list(dict.fromkeys(progress.phase for progress in seen)) == [
                    Phase.SCHEDULING,
                    Phase.PROVISIONING,
                    Phase.BOOTSTRAPPING,
                    Phase.READY,
                ]
                assert any("503" in progress.message for progress in seen)
                times = [progress.elapsed_ms for progress in seen]
                assert times == sorted(times)
            again = await follow()
            assert [progress.phase for progress in again] == [Phase.READY]

    run(work())


def test_a_killed_replica_is_noticed_and_healed(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(echo_command(), replicas=2)) as b:
            await b.ready()
            victim, other = b.leaders()
            os.kill(victim, signal.SIGKILL)
            await until(lambda: "exited" in b.kinds(), "the death to be noticed")
            assert b.lease().url  # the other one serves meanwhile
            await b.ready()
            assert other in b.leaders() and victim not in b.leaders()
            assert len(b.leaders()) == 2
            exited = next(event for event in b.events if event.kind == "exited")
            assert "SIGKILL" in exited.evidence
            after = b.events[b.events.index(exited) :]
            assert [e.kind for e in after if e.replica == exited.replica] == [
                "exited",
                "started",
                "ready",
            ]

    run(work())


def test_a_replica_that_answers_only_errors_is_replaced(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(rogue_command("ready-then-500"))) as b:
            await b.ready()
            (pid,) = b.leaders()
            os.kill(pid, signal.SIGUSR1)
            await until(lambda: "failed" in b.kinds(), "the failed probes")
            await until(lambda: b.kinds()[-1] == "ready", "a new process")
            assert b.leaders() != [pid] and not is_alive(pid)

    run(work())


def test_a_replica_that_hangs_is_replaced(tmp_path: Path) -> None:
    async def work() -> None:
        health = {"interval": 0.1, "timeout": 0.3}
        async with bench(tmp_path, spec(echo_command(), health=health)) as b:
            await b.ready()
            (pid,) = b.leaders()
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: b.kinds().count("ready") == 2, "a new process")
            assert not is_alive(pid)
            assert any("no answer in 0.3 s" in e.message for e in b.events if e.kind == "failed")

    run(work())


def test_a_failed_request_makes_the_runner_look_at_once(tmp_path: Path) -> None:
    """The probe interval is an hour here, so only the doubt can have caused the look."""

    async def work() -> None:
        health = {"interval": 3600, "timeout": 1}
        async with bench(tmp_path, spec(rogue_command("ready-then-500"), health=health)) as b:
            await b.ready()
            (pid,) = b.leaders()
            os.kill(pid, signal.SIGUSR1)
            lease = b.lease()
            lease.failed()
            lease.release()
            await until(lambda: b.kinds().count("ready") == 2, "a new process")
            assert b.leaders() != [pid]

    run(work())


def test_a_doubt_about_a_healthy_replica_is_cleared_and_prefers_the_others_meanwhile(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(echo_command(), replicas=2)) as b:
            await b.ready()
            doubtful = b.lease()
            doubtful.failed()
            doubtful.release()
            assert {b.lease().replica for _ in range(3)}.isdisjoint({doubtful.replica})
            supervisor = b.runner._supervisors[UID]
            await until(lambda: not any(r.suspect for r in supervisor._replicas), "the all-clear")
            assert b.kinds().count("started") == 2

    run(work())


def test_requests_go_to_the_least_busy_replica(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(echo_command(), replicas=3)) as b:
            await b.ready()
            leases = [b.lease() for _ in range(9)]
            spread = sorted(
                [x.replica for x in leases].count(r) for r in {x.replica for x in leases}
            )
            assert spread == [3, 3, 3]
            freed = leases[4]
            freed.release()
            freed.release()
            assert b.lease().replica == freed.replica
            for lease in leases:
                lease.release()

    run(work())


def test_the_number_of_replicas_changes_without_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(echo_command(), replicas=1)) as b:
            await b.ready()
            (first,) = b.leaders()
            b.runner.put(spec(echo_command(), replicas=3, description="more"))
            await until(lambda: b.runner.status(UID).ready == 3, "three replicas")
            assert first in b.leaders()
            b.runner.put(spec(echo_command(), replicas=1))
            await until(lambda: b.leaders() == [first], "only the first to be left")
            b.runner.put(spec(echo_command(), replicas=0))
            await until(lambda: b.leaders() == [], "none to be left")
            assert b.runner.status(UID).phase is Phase.READY
            assert b.runner.acquire(UID) is None

    run(work())


def test_a_dropped_workload_is_stopped_and_its_files_are_gone(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(echo_command())) as b:
            await b.ready()
            b.runner.drop(UID)
            assert b.runner.acquire(UID) is None
            await until(lambda: b.leaders() == [], "the process to stop")
            await until(lambda: b.kinds()[-1] == "stopped", "the report")
            assert not list((b.home / "logs").glob("*/*"))
            assert not list((b.home / "replicas").glob("*/*"))

    run(work())


def test_a_workload_dropped_and_declared_again_at_once_runs_anew(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(echo_command())) as b:
            await b.ready()
            old = b.leaders()
            b.runner.drop(UID)
            b.runner.put(spec(echo_command()))
            await b.ready()
            await until(lambda: not is_alive(old[0]), "the dropped process to end")
            assert len(b.leaders()) == 1
            assert (await b.get("/health"))["status"] == "ok"

    run(work())


def test_a_new_wanted_set_stops_what_is_not_in_it(tmp_path: Path) -> None:
    async def work() -> None:
        both = spec(echo_command(), "w1"), spec(echo_command(), "w2")
        async with bench(tmp_path, *both) as b:
            await b.ready("w1")
            await b.ready("w2")
            before = b.leaders()
            b.runner.set([spec(echo_command(), "w2")])
            await until(lambda: len(b.leaders()) == 1, "the other to stop")
            assert b.leaders()[0] in before
            assert b.runner.acquire("w1") is None and b.lease("w2")

    run(work())


def test_what_one_machine_cannot_honour_is_said_in_the_status(tmp_path: Path) -> None:
    async def work() -> None:
        scheduled = spec(
            echo_command(),
            execution_policy="scheduled",
            execution_policy_config={"cron": "0 8 * * *"},
            resources={"cpu": "2"},
        )
        async with bench(tmp_path, scheduled) as b:
            await b.ready()
            message = b.runner.status(UID).message
            assert "schedule" in message and "resources" in message

    run(work())


def test_a_backend_that_exits_because_its_port_is_taken_gets_another(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path) as b:
            b.runner.set([])
            context = b.runner._context
            assert context is not None
            offered = [foreign.getsockname()[1]]
            free = context.ports.take
            context.ports.take = lambda: offered.pop() if offered else free()  # type: ignore[method-assign]
            b.runner.put(spec(echo_command()))
            await b.ready()
            assert "was taken" in next(e.message for e in b.events if e.kind == "failed")

    with socket.create_server(("127.0.0.1", 0)) as foreign:
        run(work())


def test_the_same_loop_serves_under_uvloop(tmp_path: Path) -> None:
    """The server runs on uvloop, whose readers must take a process handle too."""
    uvloop = pytest.importorskip("uvloop")

    async def work() -> None:
        async with bench(tmp_path, spec(echo_command())) as b:
            await b.ready()
            (pid,) = b.leaders()
            os.kill(pid, signal.SIGKILL)
            await until(lambda: b.kinds().count("ready") == 2, "the healing")

    uvloop.run(work())


def test_without_process_handles_the_runner_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(38, "not implemented")

    async def work() -> None:
        health = {"interval": 3600}
        async with bench(tmp_path, spec(echo_command(), health=health)) as b:
            await b.ready()
            (pid,) = b.leaders()
            os.kill(pid, signal.SIGKILL)
            await until(lambda: b.kinds().count("ready") == 2, "the healing")
            assert start_ticks(pid) is None

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refuse)
        run(work())


def test_a_home_has_one_runner(tmp_path: Path) -> None:
    from tests.adapters.runner.harness import make_runner

    from holdfast.core.errors import ConfigurationError

    async def work() -> None:
        async with bench(tmp_path) as b:
            with pytest.raises(ConfigurationError, match="Another server"):
                await make_runner(b.home, []).start()

    run(work())


def test_a_listener_that_raises_does_not_end_the_supervision(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path) as b:

            def refuse(_: object) -> None:
                raise RuntimeError("the ledger is full")

            b.runner._listener = refuse
            b.runner.set([spec(echo_command())])
            await b.ready()

    run(work())


def test_a_stubborn_process_and_its_child_are_killed_in_the_end(tmp_path: Path) -> None:
    async def work() -> None:
        specs = spec(rogue_command("hang-on-stop"), "w1"), spec(rogue_command("fork-child"), "w2")
        async with bench(tmp_path, *specs) as b:
            await b.ready("w1")
            await b.ready("w2")
            child = (await b.get("/child", "w2"))["pid"]
            pids = [*b.leaders(), child]
            assert all(map(is_alive, pids))
            b.runner.drop("w1")
            b.runner.drop("w2")
            await until(lambda: not any(map(is_alive, pids)), "all of them to end")

    run(work())


def test_the_children_of_a_killed_replica_do_not_outlive_it(tmp_path: Path) -> None:
    """Engine workers keep their memory when only their parent is killed."""

    async def work() -> None:
        async with bench(tmp_path, spec(rogue_command("fork-child"))) as b:
            await b.ready()
            child = (await b.get("/child"))["pid"]
            (leader,) = b.leaders()
            os.kill(leader, signal.SIGKILL)
            await until(lambda: b.kinds().count("ready") == 2, "the healing")
            assert not is_alive(child)

    run(work())


def test_ports_are_on_loopback_and_each_replica_has_its_own(tmp_path: Path) -> None:
    async def work() -> None:
        limits = replace(QUICK, grace=2.0)
        async with bench(tmp_path, spec(echo_command(), replicas=3), limits=limits) as b:
            await b.ready()
            urls = {b.lease().url for _ in range(3)}
            assert len(urls) == 3
            assert all(url.startswith("http://127.0.0.1:") for url in urls)
            assert all(accepts_connections(int(url.rpartition(":")[2])) for url in urls)

    run(work())
