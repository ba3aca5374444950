"""A change reaches the processes without losing a request; a bad change reaches none."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from pathlib import Path

import aiohttp
from tests.adapters.runner.harness import QUICK, UID, Bench, bench, chat, run, spec, until
from tests.support.processes import echo_command, is_alive, rogue_command

from holdfast.core.live import Phase


class Load:
    """Clients that ask as the proxy does, one request after another, until told to stop."""

    def __init__(self, bench: Bench, clients: int = 4) -> None:
        self.answers: list[str] = []
        self.failures: list[str] = []
        self._bench = bench
        self._stopping = False
        self._tasks = [asyncio.create_task(self._client()) for _ in range(clients)]

    async def _client(self) -> None:
        while not self._stopping:
            lease = self._bench.runner.acquire(UID)
            if lease is None:
                self.failures.append("no replica")
                await asyncio.sleep(0.01)
                continue
            try:
                request = self._bench.http.post(
                    f"{lease.url}/v1/chat/completions", **chat("hello there")
                )
                async with request as response:
                    body = await response.json()
                    if response.status == 200:
                        self.answers.append(body["model"])
                    else:
                        self.failures.append(str(response.status))
            except (aiohttp.ClientError, OSError) as error:
                self.failures.append(repr(error))
            finally:
                lease.release()

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)


def slow(model: str) -> list[str]:
    return echo_command("--model", model, "--token-delay", "0.02")


def test_a_change_under_load_loses_no_request(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(slow("one"), replicas=2)) as b:
            await b.ready()
            before = b.leaders()
            load = Load(b)
            await until(lambda: len(load.answers) > 20, "answers before the change")
            b.runner.put(spec(slow("two"), replicas=2))
            await b.ready()
            await until(lambda: not any(map(is_alive, before)), "the old processes to end")
            reached = len(load.answers)
            await until(lambda: len(load.answers) > reached + 20, "answers after the change")
            await load.stop()
            assert load.failures == []
            assert set(load.answers[:20]) == {"one"} and set(load.answers[-10:]) == {"two"}
            assert b.kinds().count("replaced") == 2

    run(work())


def test_a_failing_new_revision_never_replaces_the_old_one(tmp_path: Path) -> None:
    async def work() -> None:
        first = spec(echo_command("--model", "good"))
        async with bench(tmp_path, first) as b:
            await b.ready()
            old = b.leaders()
            b.runner.put(spec(rogue_command("crash"), generation=2))
            await until(lambda: b.runner.status(UID).phase is Phase.ERROR, "the verdict")
            status = b.runner.status(UID)
            assert "exited with code 1" in status.message
            assert "no usable device was found" in status.message
            assert "previous revision keeps serving" in status.message
            assert status.ready == 1
            assert await b.model() == "good"
            assert is_alive(old[0])
            (failed,), (serving,) = status.failed, status.outdated
            assert failed.generation == 2 and "no usable device was found" in failed.reason
            assert serving.generation == 1 and serving.fields is not None
            assert serving.fields["command"] == first.fields["command"]
            told = next(event for event in b.events if event.instead)
            assert serving.name in told.instead and "generation 1" in told.instead

            b.runner.put(spec(echo_command("--model", "better"), generation=3))
            await b.ready()
            assert await b.model() == "better"
            status = b.runner.status(UID)
            assert (status.failed, status.outdated) == ((), ())

    run(work())


def test_a_replica_that_failed_is_started_at_once_when_it_is_asked_for(tmp_path: Path) -> None:
    """The pause after a failure is for nobody's benefit once somebody has mended the cause."""

    async def work() -> None:
        flag = tmp_path / "mended"
        command = ["sh", "-c", f"test -e {flag} || exit 7; exec {shlex.join(echo_command())}"]
        limits = replace(QUICK, back_off=30.0, back_off_max=30.0)
        async with bench(tmp_path, spec(command), limits=limits) as b:
            await until(lambda: b.runner.status(UID).failed, "the first failure")
            flag.touch()
            b.runner.try_again(UID)
            assert b.runner.status(UID).failed, "what went wrong is told until it serves"
            await b.ready()
            assert not b.runner.status(UID).failed

    run(work())


def test_going_back_to_the_revision_that_runs_restarts_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(echo_command())) as b:
            await b.ready()
            old = b.leaders()
            b.runner.put(spec(rogue_command("never-ready")))
            await until(lambda: len(b.leaders()) == 2, "the new process")
            b.runner.put(spec(echo_command()))
            await b.ready()
            await until(lambda: b.leaders() == old, "only the old process to be left")

    run(work())


def test_only_what_a_process_is_made_of_restarts_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(echo_command("--model", "a", "--tokens=3"))) as b:
            await b.ready()
            before = b.leaders()
            same = spec(
                echo_command("--tokens", "3", "--model", "a"),
                name="renamed",
                description="other words",
                health={"interval": 0.5},
                rollout={"drain_timeout": "3s"},
            )
            b.runner.put(same)
            await b.ready()
            assert b.leaders() == before and b.kinds().count("started") == 1
            b.runner.put(spec(echo_command("--model", "a", "--tokens=3"), env={"A": "1"}))
            await b.ready()
            assert b.kinds().count("started") == 2

    run(work())


def test_stopping_waits_for_a_stream_to_end(tmp_path: Path) -> None:
    async def work() -> None:
        command = echo_command("--model", "old", "--token-delay", "0.1", "--tokens", "12")
        rollout = {"drain_timeout": "20s"}
        async with bench(tmp_path, spec(command, rollout=rollout)) as b:
            await b.ready()
            old = b.leaders()
            lease = b.lease()
            ask = b.http.post(f"{lease.url}/v1/chat/completions", **chat("hi", stream=True))
            async with ask as response:
                await response.content.readline()
                b.runner.put(spec(echo_command("--model", "new"), rollout=rollout))
                await b.ready()
                assert await b.model() == "new"
                assert b.leaders() != old and is_alive(old[0])
                rest = await response.content.read()
            assert rest.rstrip().endswith(b"data: [DONE]")
            lease.release()
            await until(lambda: not is_alive(old[0]), "the old process to end")

    run(work())


def test_a_request_that_never_ends_holds_a_stop_only_for_the_drain_time(tmp_path: Path) -> None:
    async def work() -> None:
        command = rogue_command("silent-stream")
        async with bench(tmp_path, spec(command, rollout={"drain_timeout": "300ms"})) as b:
            await b.ready()
            old = b.leaders()
            lease = b.lease()
            b.runner.put(spec(echo_command(), rollout={"drain_timeout": "300ms"}))
            await until(lambda: not is_alive(old[0]), "the old process to end")
            lease.release()
            await b.ready()

    run(work())


def test_a_canary_gets_exactly_its_share_of_the_requests(tmp_path: Path) -> None:
    async def work() -> None:
        command = echo_command("--model", "${MODEL}")
        async with bench(tmp_path, spec(command, model="base")) as b:
            await b.ready()
            primary = b.leaders()
            b.runner.put(spec(command, model="base", canary={"weight": 20, "model": "next"}))
            await b.ready()
            status = b.runner.status(UID)
            assert (status.ready, status.wanted, status.canary_weight) == (2, 2, 20)
            assert primary[0] in b.leaders()
            models = [await b.model() for _ in range(100)]
            assert models.count("next") == 20 and models.count("base") == 80

            b.runner.put(spec(command, model="base"))
            assert b.runner.status(UID).canary_weight == 0
            assert {await b.model() for _ in range(20)} == {"base"}
            await until(lambda: b.leaders() == primary, "the canary to be gone")

    run(work())


def test_a_canary_that_is_not_ready_gets_no_request(tmp_path: Path) -> None:
    async def work() -> None:
        canary = {"weight": 50, "command": " ".join(rogue_command("never-ready"))}
        async with bench(tmp_path, spec(echo_command("--model", "base"), canary=canary)) as b:
            await until(lambda: b.runner.status(UID).ready == 1, "the primary")
            await until(lambda: len(b.leaders()) == 2, "the canary's process")
            assert b.runner.status(UID).canary_weight == 0
            assert {await b.model() for _ in range(20)} == {"base"}

    run(work())


def test_a_canary_that_crashes_takes_no_requests_and_leaves_the_primary_alone(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        canary = {"weight": 50, "command": " ".join(rogue_command("crash"))}
        async with bench(tmp_path, spec(echo_command("--model", "base"), canary=canary)) as b:
            await until(lambda: b.runner.status(UID).phase is Phase.ERROR, "the verdict")
            status = b.runner.status(UID)
            assert "canary-" in status.message and status.canary_weight == 0
            await until(lambda: b.runner.status(UID).ready == 1, "the primary")
            assert {await b.model() for _ in range(10)} == {"base"}

    run(work())
