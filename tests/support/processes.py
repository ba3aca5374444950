"""Starts backends as real processes and waits for things without sleeping blindly.

Called by every test that needs a server to talk to, or a command to run one.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ROOT / "examples" / "backends"
ECHO_SERVER = BACKENDS / "echo_server.py"
LLAMA_SERVER = BACKENDS / "llama_server.py"
ROGUE_BACKEND = ROOT / "tests" / "support" / "rogue_backend.py"

HOLDFAST = [sys.executable, "-c", "from holdfast.apps.cli.main import main; main()"]
DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
START_ATTEMPTS = 3
LISTENING = re.compile(rb"listening on (http://\S+:(\d+))\s")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBackend:
    process: subprocess.Popen[bytes]
    url: str
    port: int
    log: Path
    """Both outputs. Gone when the backend is."""

    @property
    def pid(self) -> int:
        return self.process.pid


def echo_command(*arguments: str) -> list[str]:
    """Give the command line of an echo server; it takes its port from PORT unless told."""
    return [sys.executable, str(ECHO_SERVER), *arguments]


def rogue_command(misbehaviour: str, *arguments: str) -> list[str]:
    """Give the command line of a misbehaving backend; it takes its port from PORT unless told."""
    return [sys.executable, str(ROGUE_BACKEND), misbehaviour, *arguments]


def llama_command(*arguments: str) -> list[str]:
    """Give the command line of llama.cpp's server; it needs `--model`, and the wheel."""
    return [sys.executable, str(LLAMA_SERVER), *arguments]


@contextmanager
def start_backend(
    *arguments: str,
    rogue: str | None = None,
    command: list[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> Iterator[RunningBackend]:
    """Run a backend until the block ends, entering once its port accepts connections.

    An echo server unless `rogue` names a misbehaviour or `command` gives another
    program that takes `--port 0` and says where it listens. The port is chosen by
    the system, so two tests never meet. The whole process group is killed at the end.
    """
    if command is None:
        command = rogue_command(rogue) if rogue else echo_command()
    with tempfile.TemporaryDirectory(prefix="holdfast-backend-") as directory:
        log = Path(directory) / "log"
        environment = {**os.environ, **(env or {})}
        process = start_process([*command, *arguments, "--port", "0"], log, env=environment)
        try:
            url, port = wait_until(
                lambda: _announced(process, log), timeout, f"{command[1]} to listen"
            )
            wait_until(lambda: accepts_connections(port), timeout, f"port {port} to accept")
            yield RunningBackend(process=process, url=url, port=port, log=log)
        finally:
            kill_group(process)


def start_process(
    command: Sequence[str | Path],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    out: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own; both outputs go to the log, or one to `out`."""
    with log.open("ab") as errors, (out or log).open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )


def dying_with_us(*command: str | Path) -> list[str | Path]:
    """The command line of a program that ends when this process does."""
    return [sys.executable, "-S", "-E", DIE_WITH_PARENT, str(os.getpid()), *command]


def start_on_free_ports(start: Callable[[], None], stop: Callable[[], None]) -> None:
    """Start what binds ports that were free a moment ago; again where another was faster."""
    for attempt in range(1, START_ATTEMPTS + 1):
        try:
            start()
            return
        except BaseException as failure:
            stop()
            if attempt == START_ATTEMPTS or "address already in use" not in str(failure).lower():
                raise


def assert_running(process: subprocess.Popen[bytes], what: str, log: Path) -> None:
    """Fail with the end of its log if a program has ended."""
    if process.poll() is not None:
        text = log.read_text(errors="replace")[-2000:]
        raise AssertionError(f"{what} ended with {process.returncode}:\n{text}")


def stop_process(
    process: subprocess.Popen[bytes], timeout: float = 40.0, by: signal.Signals = signal.SIGTERM
) -> None:
    """Ask a program to end, and kill what is left of it when it does not."""
    if process.poll() is None:
        process.send_signal(by)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout)
    kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process started in its own session with all that it started, and reap it."""
    # The group outlives its leader while a child is left, so a dead leader is no reason to skip.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def restore_interrupts_for_children() -> None:
    """Give children the default answer to SIGINT, also in a background job of a script.

    There a shell has it ignored, and a child inherits that: Control-C would not end it. A handler
    is not inherited; ours does nothing, so this run stays as deaf as the shell asked.
    """
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):
        signal.signal(signal.SIGINT, lambda *_: None)


@contextmanager
def started(
    command: list[str], *, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """Run a program to talk to. At the end it is killed and its pipes are closed, come what may:
    a pipe left open by a test that failed would fail another one, far away."""
    with subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(
    predicate: Callable[[], T],
    timeout: float = 10.0,
    what: str = "it",
    every: float = 0.02,
    show: Callable[[], object] = lambda: "",
) -> T:
    """Poll until `predicate` gives something true, and return that; fail with what `show` gives."""
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s in vain for {what}. {show()}".strip())
        time.sleep(every)


def free_port() -> int:
    """Give a port that was free a moment ago.

    Another process may take it first: prefer port 0 wherever the program under
    test can report what it got.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts_connections(port: int) -> bool:
    """Say whether something on loopback accepts connections to the port."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that ended but was not reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with suppress(OSError):  # no /proc outside Linux: the signal's answer has to do
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _announced(process: subprocess.Popen[bytes], log: Path) -> tuple[str, int] | None:
    ended = process.poll()
    with log.open("rb") as written:
        said = written.read(65536)  # a flooding backend announces itself first
    if found := LISTENING.search(said):
        return found[1].decode(), int(found[2])
    if ended is not None:
        text = said.decode(errors="replace")
        raise AssertionError(f"the backend exited with {ended} before it listened:\n{text}")
    return None
