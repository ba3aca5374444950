"""A child gets what it needs and what was declared, and nothing of the server's own."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
from tests.adapters.runner.harness import UID, Bench, bench, run, spec, until
from tests.support.processes import accepts_connections, echo_command, rogue_command

from holdfast.core.live import Phase

CANARY_VALUE = "correct-horse-battery-staple"


def put_secret(folder: Path, value: str, project: str = "acme", name: str = "hub") -> Path:
    path = folder / "secrets" / project / name / "token"
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(".fresh")
    fresh.write_text(value + "\n")
    fresh.replace(path)
    return path


SECRETS = {"HUB_TOKEN": {"name": "hub", "key": "token"}}


def test_the_servers_own_variables_do_not_reach_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", "server-side")
    monkeypatch.setenv("INFERENCEKEY_SDK_TOKEN", "server-side")
    monkeypatch.setenv("HF_TOKEN", "server-side")
    monkeypatch.setenv("DATABASE_PASSWORD", "server-side")
    monkeypatch.setenv("SOMETHING_ELSE", "server-side")
    monkeypatch.setenv("HF_HOME", "/models")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")

    async def work() -> None:
        env = {"MODE": "fast", "WHERE": "${HOST}:${PORT}"}
        async with bench(tmp_path, spec(rogue_command("env-dump"), env=env)) as b:
            await b.ready()
            seen = await b.get("/env")
            port = b.lease().url.rpartition(":")[2]
            assert "server-side" not in seen.values()
            assert seen["MODE"] == "fast"
            assert seen["WHERE"] == f"127.0.0.1:{port}"
            assert seen["PORT"] == port
            assert seen["HF_HOME"] == "/models" and seen["CUDA_VISIBLE_DEVICES"] == "3"
            assert seen["PATH"] == os.environ["PATH"]
            ours = [name for name in seen if name.startswith(("HOLDFAST", "INFERENCEKEY"))]
            assert ours == ["HOLDFAST_REPLICA"]

    run(work())


def ignored_by(pid: int) -> set[int]:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(status.partition("SigIgn:")[2].split()[0], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_a_child_can_be_interrupted_though_a_shell_has_the_server_ignore_it(
    tmp_path: Path,
) -> None:
    """`holdfast serve &` in a script: every child would inherit that Control-C is ignored."""
    own = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT)}
    for number in own:
        signal.signal(number, signal.SIG_IGN)

    async def work() -> None:
        async with bench(tmp_path, spec(echo_command())) as b:
            await b.ready()
            (found,) = [each for each in b.processes() if each.leader]
            assert ignored_by(found.pid).isdisjoint(own)

    try:
        run(work())
    finally:
        for number, handler in own.items():
            signal.signal(number, handler)


def test_a_child_does_not_hold_the_servers_sockets(tmp_path: Path) -> None:
    """A backend outlives a killed server, whose port must be free for the next one."""

    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.set_inheritable(True)
            port = listening.getsockname()[1]
            async with bench(tmp_path, spec(echo_command())) as b:
                await b.ready()
                listening.close()
                assert not accepts_connections(port)

    run(work())


def test_a_secret_reaches_the_child_and_no_text_of_ours(tmp_path: Path) -> None:
    put_secret(tmp_path, CANARY_VALUE)

    async def work() -> None:
        async with bench(tmp_path, spec(rogue_command("env-dump"), secrets=SECRETS)) as b:
            await b.ready()
            assert (await b.get("/env"))["HUB_TOKEN"] == CANARY_VALUE
            assert CANARY_VALUE not in b.everything_written()
            assert CANARY_VALUE not in repr(b.runner.status(UID))

    run(work())


def test_a_backend_that_prints_its_secret_is_not_quoted(tmp_path: Path) -> None:
    put_secret(tmp_path, CANARY_VALUE)
    script = "import os, sys; sys.exit('bad key ' + os.environ['HUB_TOKEN'])"

    async def work() -> None:
        command = [*echo_command()[:1], "-c", script]
        async with bench(tmp_path, spec(command, secrets=SECRETS)) as b:
            await until(lambda: b.runner.status(UID).phase is Phase.ERROR, "the verdict")
            assert "bad key ***" in b.runner.status(UID).message
            lines = [line async for line in b.runner.logs(UID, tail=10)]
            assert any("bad key ***" in line for line in lines)
            assert CANARY_VALUE not in repr([lines, b.events, b.runner.status(UID)])

    run(work())


def test_a_missing_secret_is_named_and_the_replica_starts_when_it_appears(tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(tmp_path, spec(rogue_command("env-dump"), secrets=SECRETS)) as b:
            await until(lambda: b.runner.status(UID).phase is Phase.ERROR, "the verdict")
            assert "acme/hub/token is missing" in b.runner.status(UID).message
            assert b.leaders() == []
            put_secret(tmp_path, CANARY_VALUE)
            await until(lambda: b.runner.status(UID).phase is Phase.READY, "readiness")

    run(work())


def test_a_rotated_secret_is_reported_and_rolled_out(tmp_path: Path) -> None:
    put_secret(tmp_path, "first-value")

    async def work() -> None:
        async with bench(tmp_path, spec(rogue_command("env-dump"), secrets=SECRETS)) as b:
            await b.ready()
            put_secret(tmp_path, "second-value")
            await until(lambda: "replaced" in b.kinds(), "the old process to be replaced")
            assert "secret-changed" in b.kinds()
            assert (await b.get("/env"))["HUB_TOKEN"] == "second-value"

    run(work())


def test_a_secret_that_is_taken_away_leaves_the_running_process_alone(tmp_path: Path) -> None:
    path = put_secret(tmp_path, "first-value")

    async def work() -> None:
        async with bench(tmp_path, spec(rogue_command("env-dump"), secrets=SECRETS)) as b:
            await b.ready()
            running = b.leaders()
            path.unlink()
            await until(lambda: b.runner.status(UID).phase is Phase.ERROR, "the verdict")
            assert b.leaders() == running and await served(b)
            put_secret(tmp_path, "first-value")
            await until(lambda: b.runner.status(UID).phase is Phase.READY, "readiness")
            assert b.leaders() == running

    async def served(b: Bench) -> bool:
        return bool((await b.get("/env"))["HUB_TOKEN"] == "first-value")

    run(work())


def test_a_reference_cannot_lead_to_another_projects_secret(tmp_path: Path) -> None:
    other = put_secret(tmp_path, CANARY_VALUE, project="rival")
    link = tmp_path / "secrets" / "acme" / "hub" / "token"
    link.parent.mkdir(parents=True)
    link.symlink_to(other)

    async def work() -> None:
        async with bench(tmp_path, spec(rogue_command("env-dump"), secrets=SECRETS)) as b:
            await until(lambda: b.runner.status(UID).phase is Phase.ERROR, "the verdict")
            assert "leads out of its project's folder" in b.runner.status(UID).message
            assert b.kinds() == ["failed"]

    run(work())


def test_a_secret_is_not_put_on_a_command_line(tmp_path: Path) -> None:
    put_secret(tmp_path, CANARY_VALUE)

    async def work() -> None:
        command = echo_command("--model", "${HUB_TOKEN}")
        async with bench(tmp_path, spec(command, secrets=SECRETS)) as b:
            await until(lambda: b.runner.status(UID).phase is Phase.ERROR, "the verdict")
            assert "${HUB_TOKEN} in the command is not filled in" in b.runner.status(UID).message

    run(work())
