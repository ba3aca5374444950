"""A renderer's program gets what it needs and no more, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.adapters.render.repo import KEY, Repo
from tests.support.processes import is_alive, wait_until

from holdfast.adapters.render import program
from holdfast.adapters.render.program import LimitExceeded, ProgramResult, find_program, run_program
from holdfast.adapters.render.renderer import FileRenderer
from holdfast.core.errors import ConfigurationError
from holdfast.reconcile.gitops.ports import SourceUnavailable


def fake(folder: Path, body: str, name: str = "kustomize") -> str:
    """Write a program in Python."""
    path = folder / name
    path.write_text(f"#!{sys.executable} -IS\nimport os, sys, time, signal\n{body}\n")
    path.chmod(0o755)
    return str(path)


def ran(path: str, folder: Path, *, seconds: float = 30.0, stdin: bytes = b"") -> ProgramResult:
    found = find_program(path, (), hint="")
    return asyncio.run(
        run_program(found, ["--", "x"], directory=folder, seconds=seconds, stdin=stdin)
    )


def test_the_environment_is_built_and_holds_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "LD_PRELOAD_X", "GIT_SSH_COMMAND", "KUBECONFIG", "AWS_SECRET"):
        monkeypatch.setenv(name, "leak")
    path = fake(tmp_path, "print(sorted(os.environ)); print(os.getcwd()); print(sys.argv[1:])")
    done = ran(path, tmp_path)
    environment, folder, arguments = done.output.decode().splitlines()
    assert set(eval(environment)) <= {"HOME", "TMPDIR", "LC_CTYPE"}  # noqa: S307  # our own list
    assert folder == str(tmp_path)
    assert arguments == "['--', 'x']"


def test_no_program_makes_a_socket(tmp_path: Path) -> None:
    """Of no family: an abstract or bound Unix socket leads to other programs of the machine."""
    body = (
        "import socket\n"
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):\n"
        "    try:\n        socket.socket(family, socket.SOCK_RAW)\n"
        "    except OSError as error:\n        print(error.errno)\n"
    )
    assert ran(fake(tmp_path, body), tmp_path).output.split() == [b"13"] * 4


def test_a_child_of_the_program_makes_none_either(tmp_path: Path) -> None:
    inner = "import socket\ntry: socket.socket()\nexcept OSError as e: print(e.errno)"
    body = f"import subprocess\nsubprocess.run([sys.executable, '-IS', '-c', {inner!r}])"
    assert ran(fake(tmp_path, body), tmp_path).output == b"13\n"


@pytest.mark.parametrize("unconfined", [False, True])
def test_without_a_way_to_take_the_network_a_program_runs_only_where_that_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unconfined: bool
) -> None:
    """A system without both layers: here a sandbox that never succeeds."""
    sandbox = tmp_path / "sandbox.py"
    real = Path(program._SANDBOX).read_text()
    sandbox.write_text(
        real.replace(
            'if __name__ == "__main__":', "drop_network = bool\nif __name__ == '__main__':"
        )
    )
    monkeypatch.setattr(program, "_SANDBOX", sandbox)
    found = find_program(fake(tmp_path, "print('ran')"), (), hint="")
    running = run_program(found, [], directory=tmp_path, seconds=30, unconfined=unconfined)
    if unconfined:
        assert asyncio.run(running).output == b"ran\n"
        return
    with pytest.raises(ConfigurationError, match="was not started") as refusal:
        asyncio.run(running)
    assert "--allow-unconfined-renderer" in refusal.value.hint


def test_a_program_that_hangs_is_given_up_at_its_deadline(tmp_path: Path) -> None:
    with pytest.raises(LimitExceeded, match=r"did not end within 0\.5 s"):
        ran(fake(tmp_path, "time.sleep(600)"), tmp_path, seconds=0.5)


def test_a_program_is_ended_with_all_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        "pids = [os.fork() for _ in range(2)]\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "sys.stdout.write(f'{os.getpid()}\\n'); sys.stdout.flush()\n"
        "time.sleep(600)\n"
    )
    seen: list[int] = []

    async def listening(stream: asyncio.StreamReader | None) -> bytes:
        assert stream is not None
        while len(seen) < 4:
            seen.append(int(await stream.readline()))
        raise LimitExceeded("has told enough")

    monkeypatch.setattr(program, "_read_output", listening)
    with pytest.raises(LimitExceeded, match="enough"):
        ran(fake(tmp_path, body), tmp_path, seconds=60)
    wait_until(lambda: not any(is_alive(pid) for pid in seen), 10, "the whole group to be gone")


def test_a_grandchild_that_keeps_the_pipes_does_not_hold_us(tmp_path: Path) -> None:
    body = "print('done', flush=True)\nif os.fork() == 0:\n    time.sleep(600)\n"
    with pytest.raises(LimitExceeded):
        ran(fake(tmp_path, body), tmp_path, seconds=1.0)


def test_a_runaway_that_left_its_group_does_not_hold_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_REAP_SECONDS", 0.2)
    body = (
        "if os.fork() == 0:\n    os.setsid()\n"
        "    sys.stderr.write(f'{os.getpid()}\\n'); sys.stderr.flush(); time.sleep(600)\n"
        "time.sleep(600)\n"
    )
    seen: list[int] = []

    async def listening(stream: asyncio.StreamReader | None) -> str:
        assert stream is not None
        seen.append(int(await stream.readline()))
        raise LimitExceeded("has told enough")

    monkeypatch.setattr(program, "_read_stderr", listening)
    with pytest.raises(LimitExceeded, match="enough"):
        ran(fake(tmp_path, body), tmp_path, seconds=60)
    os.kill(seen[0], signal.SIGKILL)


def test_output_without_end_is_cut_off_and_its_writer_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "MAX_OUTPUT", 2**20)
    with pytest.raises(LimitExceeded, match="printed over 1 MiB"):
        ran(fake(tmp_path, "while True: print('x' * 10000)"), tmp_path)


def test_complaints_without_end_are_drained_and_their_end_kept(tmp_path: Path) -> None:
    body = "sys.stderr.write('x' * 3_000_000 + 'the end'); sys.exit(3)"
    done = ran(fake(tmp_path, body), tmp_path)
    assert done.code == 3
    assert done.stderr.endswith("the end")
    assert len(done.stderr) <= 64 * 2**10


def test_memory_cpu_and_written_files_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hungry = fake(tmp_path, "x = bytearray(8 * 2**30); print('got it')", "hungry")
    assert b"got it" not in ran(hungry, tmp_path).output
    writer = fake(
        tmp_path,
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "try:\n    f = open('f', 'wb'); f.write(b'x'); f.flush(); print('wrote')\n"
        "except OSError: print('kept from it')",
        "writer",
    )
    assert ran(writer, tmp_path).output == b"kept from it\n"
    busy = fake(
        tmp_path,
        "import resource; print(resource.getrlimit(resource.RLIMIT_CPU)[1],"
        " resource.getrlimit(resource.RLIMIT_CORE)[1])",
        "busy",
    )
    assert ran(busy, tmp_path, seconds=7).output == b"8 0\n"


def test_a_program_that_does_not_read_its_input_is_no_trouble(tmp_path: Path) -> None:
    done = ran(fake(tmp_path, "print('deaf')"), tmp_path, stdin=b"x" * 1_000_000)
    assert done.output == b"deaf\n"


def test_what_is_cancelled_is_ended_too(tmp_path: Path) -> None:
    path = fake(tmp_path, "print(os.getpid(), flush=True); time.sleep(600)")
    seen: list[int] = []
    started = asyncio.Event()
    real = program._read_output

    async def listening(stream: asyncio.StreamReader | None) -> bytes:
        assert stream is not None
        seen.append(int(await stream.readline()))
        started.set()
        return await real(stream)

    async def scene() -> None:
        found = find_program(path, (), hint="")
        task = asyncio.create_task(run_program(found, [], directory=tmp_path, seconds=60))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    program._read_output = listening
    try:
        asyncio.run(scene())
    finally:
        program._read_output = real
    wait_until(lambda: not is_alive(seen[0]), 10, "the program to be gone")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit(1)", "failed with status 1 and said nothing"),
        ("print('a: b'); sys.stderr.write('warning\\nboom\\n'); sys.exit(1)", "failed: boom"),
        ("os.kill(os.getpid(), 9)", "ended by signal 9"),
        ("time.sleep(600)", "did not end within"),
        ("while True: print('x' * 100000)", "printed over"),
        ("sys.stderr.write('\\x1b[31m\\u202e' + 'long ' * 1000); sys.exit(1)", "failed: "),
    ],
)
def test_a_renderer_that_fails_leaves_what_is_declared_unknown(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, said: str
) -> None:
    monkeypatch.setattr(program, "MAX_OUTPUT", 2**20)
    repo.write({"kustomization.yaml": "resources: []"})
    seconds = 0.5 if "sleep" in body else 60
    by = FileRenderer(key=KEY, kustomize=fake(tmp_path, body), seconds=seconds, scratch=tmp_path)
    with pytest.raises(SourceUnavailable, match=said) as failure:
        repo.render(by=by)
    assert str(failure.value).isascii() and len(str(failure.value)) < 700
    assert not list(tmp_path.glob("holdfast-render-*"))


def test_a_renderer_that_prints_nothing_declares_nothing(repo: Repo, tmp_path: Path) -> None:
    repo.write({"kustomization.yaml": "resources: []"})
    by = FileRenderer(key=KEY, kustomize=fake(tmp_path, "sys.stderr.write('# a warning')"))
    assert repo.render(by=by).objects == ()


def test_a_program_that_is_not_there_is_named(repo: Repo, tmp_path: Path) -> None:
    repo.write({"kustomization.yaml": "resources: []"})
    with pytest.raises(ConfigurationError, match="kustomize"):
        repo.render(by=FileRenderer(key=KEY, kustomize=str(tmp_path / "no-kustomize")))


def test_kustomize_is_looked_for_before_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Repo
) -> None:
    repo.write({"kustomization.yaml": "resources: []"})
    tell = "sys.stderr.write(' '.join(os.path.basename(a) for a in sys.argv)); sys.exit(1)"
    fake(tmp_path, tell, "kubectl")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceUnavailable, match=r"kubectl kustomize --load-restrictor=Load.* -- "):
        repo.render()
    fake(tmp_path, tell)
    with pytest.raises(SourceUnavailable, match=r"kustomize build --load-restrictor=Load.* -- "):
        repo.render()
