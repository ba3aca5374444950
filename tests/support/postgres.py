"""A private PostgreSQL server: started in a second, on loopback, without a password or a disk
that is waited for. It ends with the process that started it.

Used through the fixtures `postgres` (a database of one test's own) and `postgres_server`.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.cluster_fixtures import skip_without
from tests.support.processes import (
    assert_running,
    dying_with_us,
    free_port,
    start_on_free_ports,
    start_process,
    stop_process,
    wait_until,
)

__all__ = ["Postgres", "postgres", "postgres_server"]

ROLE = "holdfast"
START_TIMEOUT = 30.0
STOP_TIMEOUT = 10.0
DEBIAN = Path("/usr/lib/postgresql")
UNPRIVILEGED = ("postgres", "nobody")
"""Whom the server runs as where the tests run as root, which it refuses."""
SETTINGS = {
    # What is committed outlives a crash of the server, though not one of the machine.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "max_wal_size": "128MB",
    "autovacuum": "off",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "warning",
}


class NoPostgres(Exception):
    """It is not there, or cannot be run by this user; the text says why."""


def find_postgres() -> Path:
    """Give the directory of PostgreSQL's programs; raises NoPostgres."""
    on_path = shutil.which("initdb")
    installed = sorted(DEBIAN.glob("*/bin"), key=lambda each: int(each.parent.name), reverse=True)
    for candidate in (
        os.environ.get("HOLDFAST_POSTGRES"),
        str(Path(on_path).resolve().parent) if on_path else None,
        *map(str, installed),
    ):
        if candidate and all(
            os.access(Path(candidate) / name, os.X_OK) for name in ("initdb", "postgres", "psql")
        ):
            return Path(candidate)
    raise NoPostgres(
        "PostgreSQL is not installed: `apt install postgresql`, or set HOLDFAST_POSTGRES to the "
        "directory that holds initdb, postgres and psql."
    )


class Postgres:
    """One server, in a directory that goes when it does."""

    def __init__(self) -> None:
        self._programs = find_postgres()
        self._user = _unprivileged()
        # Not below pytest's own directory, where only the user of the tests can look.
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._count = itertools.count(1)
        self.port = 0

    def start(self) -> None:
        """Make the cluster of databases and serve it; returns once it answers."""
        if self._user is not None:
            shutil.chown(self.directory, self._user.pw_uid, self._user.pw_gid)
        made = subprocess.run(
            [*self._as_user(), self._programs / "initdb", "--no-sync", "--auth=trust",
             "--encoding=UTF8", "--locale=C", f"--username={ROLE}", self._data],
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            text=True,
        )  # fmt: skip
        if made.returncode:
            self.stop()
            raise RuntimeError(f"initdb failed: {made.stderr.strip()[-500:]}")
        start_on_free_ports(self._serve, self._end)

    def stop(self) -> None:
        """End the server and remove its directory. Safe to call twice."""
        self._end()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # At once, and nothing here is worth a checkpoint.
            stop_process(process, STOP_TIMEOUT, signal.SIGQUIT)

    def dsn(self, database: str) -> str:
        """Give the address of a database, over TCP so that a proxy can stand in between."""
        return f"postgresql://{ROLE}@127.0.0.1:{self.port}/{database}"

    def create(self) -> str:
        """Make an empty database and give its name."""
        name = f"test_{next(self._count)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE template0")
        return name

    def drop(self, database: str) -> None:
        """Remove a database, under whoever still uses it."""
        self.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def run(self, statement: str, database: str = "postgres") -> str:
        """Carry out one statement from outside, and give its rows as psql writes them."""
        ran = subprocess.run(
            [self._programs / "psql", "--no-psqlrc", "-XAtq", "-v", "ON_ERROR_STOP=1",
             "-d", self.dsn(database), "-c", statement],
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        if ran.returncode:
            raise RuntimeError(f"{statement}: {ran.stderr.strip()}")
        return ran.stdout.rstrip("\n")

    def pause(self) -> None:
        """Stop answering without closing a connection, until `resume`: a server that hangs."""
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def restart(self) -> None:
        """End the server without a word to its clients, and serve its data on the same port."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(timeout=STOP_TIMEOUT)
        self._serve(self.port)

    def _serve(self, port: int = 0) -> None:
        self.port = port or free_port()
        settings = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        server = [self._programs / "postgres", "-D", self._data, f"-p{self.port}"]
        server += [f"-cunix_socket_directories={self.directory}", *settings]
        self._process = start_process(
            self._guard(server),
            self.directory / "log",
            cwd=self.directory,
            env=self._environment(),
        )
        wait_until(self._ready, START_TIMEOUT, "PostgreSQL to answer")

    def _ready(self) -> bool:
        assert self._process is not None
        assert_running(self._process, "PostgreSQL", self.directory / "log")
        try:
            return self.run("SELECT 1") == "1"
        except RuntimeError:
            return False

    def _pids(self) -> list[int]:
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [self._process.pid, *map(int, children.read_text().split())]

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _guard(self, server: list[str | Path]) -> list[str | Path]:
        """The command line of a server that dies with this process."""
        if self._user is None:
            return dying_with_us(*server)
        # A change of user would cancel what that script asks of the kernel.
        return [*self._as_user(), "--pdeathsig", "QUIT", *server]

    def _as_user(self) -> list[str]:
        if self._user is None:
            return []
        user, group = self._user.pw_uid, self._user.pw_gid
        return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.defpath, "LC_ALL": "C", "HOME": str(self.directory)}


def _unprivileged() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    if shutil.which("setpriv", path=os.defpath) is None:
        raise NoPostgres("PostgreSQL does not run as root, and there is no setpriv to leave it.")
    for name in UNPRIVILEGED:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgres("PostgreSQL does not run as root, and there is no user postgres or nobody.")


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[Postgres]:
    """The server of this process, started when the first test asks for it."""
    try:
        server = Postgres()
    except NoPostgres as missing:
        skip_without(pytestconfig, "PostgreSQL", missing)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[str]:
    """The address of an empty database of this test's own."""
    database = postgres_server.create()
    yield postgres_server.dsn(database)
    postgres_server.drop(database)
