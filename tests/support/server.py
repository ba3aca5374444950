"""Runs a control plane for a test, in a thread or as a process of its own.

    with running_server(tmp_path) as server:
        token = server.token("acme")
        httpx2.get(f"{server.url}/api/projects/acme/workloads", headers=bearer(token))

In a thread it starts in milliseconds. As a process (`process=True`) it can be killed and
given signals. Projects and tokens are written beside it, as the admin commands do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.processes import ROOT, assert_running, start_process, stop_process, wait_until

from holdfast.adapters.store import OpenMode, Store, TokenKind, TokenScope
from holdfast.apps.server.config import ServerConfig, ServerLimits
from holdfast.core import tokens
from holdfast.core.names import WorkloadId

if TYPE_CHECKING:
    from holdfast.apps.server.main import Companion

EVERYTHING = (TokenScope.READ, TokenScope.WRITE, TokenScope.ADMIN)


@dataclass(kw_only=True)
class RunningServer:
    url: str
    db: Path
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None
    _made: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def token(
        self,
        project: str = "acme",
        scopes: Iterable[TokenScope | str] = EVERYTHING,
        *,
        name: str = "test",
        expires_at: datetime | None = None,
    ) -> str:
        """Give a control token, making the project when there is none."""
        held = tuple(sorted({TokenScope(each) for each in scopes}))
        key = (project, held, name, expires_at)
        if key not in self._made:
            self._made[key] = self._mint(
                TokenKind.SDK, project, name=name, scopes=held, expires_at=expires_at
            )
        return self._made[key]

    def data_key(self, project: str, slug: str, *, name: str = "app") -> str:
        """Give a data key for a workload that is there."""
        with self.admin() as store:
            record = store.record(WorkloadId(project=project, slug=slug))
        assert record is not None, f"there is no workload {project}/{slug}"
        return self._mint(TokenKind.LIVE, project, name=name, workload_uid=record.uid)

    def project_key(self, project: str, *, name: str = "gateway") -> str:
        """Give a data key for every workload of a project."""
        return self._mint(TokenKind.LIVE, project, name=name)

    def revoke(self, token: str) -> None:
        """Revoke a token, as `holdfast token revoke` does."""
        parsed = tokens.parse(token)
        assert parsed
        with self.admin() as store:
            assert store.write(lambda tx: tx.revoke_token(parsed.id))

    @contextmanager
    def admin(self) -> Iterator[Store]:
        """Open the store beside the server."""
        with Store.open(self.db, mode=OpenMode.ADMIN) as store:
            yield store

    def _mint(self, kind: TokenKind, project: str, **more: Any) -> str:
        minted = tokens.mint(kind.value, os.urandom(tokens.RANDOM_BYTES))
        more = {"scopes": (), **more}

        def work(tx: Any) -> None:
            tx.ensure_project(project)
            tx.create_token(
                id=minted.id,
                kind=kind,
                project=project,
                secret_hash=minted.secret_hash,
                **more,
            )

        with self.admin() as store:
            store.write(work)
        return minted.secret.reveal()


def bearer(token: str) -> dict[str, str]:
    """Give the header that carries a token."""
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def running_server(
    tmp_path: Path,
    *,
    process: bool = False,
    limits: dict[str, Any] | None = None,
    companion: Companion | None = None,
    **config: Any,
) -> Iterator[RunningServer]:
    """Run a server until the block ends. `config` goes to `ServerConfig`, `limits` to `Limits`.

    The runner is on, as on any server on loopback, unless `run=False`. `beside` runs in the
    server's own loop, in a thread only.
    """
    settings = {
        "db": tmp_path / "holdfast.db",
        "port": 0,
        "log_level": "warning",
        "shared_runner": True,  # most tests have a project of their own on one server
        **config,
    }
    if process:
        with _as_process(tmp_path, settings, limits or {}) as server:
            yield server
        return
    from holdfast.apps.server.main import Server

    urls: list[str] = []
    ready, failures = threading.Event(), list[BaseException]()
    settings["on_ready"] = lambda url: (urls.append(url), ready.set())
    server = Server(
        ServerConfig(**settings, limits=ServerLimits(**(limits or {}))), companion=companion
    )

    def run() -> None:
        try:
            server.run()
        except BaseException as error:  # given to the test below
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="server")
    thread.start()
    try:
        assert ready.wait(20), "the server did not start"
        if failures:
            raise failures[0]
        yield RunningServer(url=urls[0], db=Path(settings["db"]))
    finally:
        server.stop()
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"
    if failures:
        raise failures[0]


@contextmanager
def _as_process(
    tmp_path: Path, settings: dict[str, Any], limits: dict[str, Any]
) -> Iterator[RunningServer]:
    log, url_file = tmp_path / "server.log", tmp_path / "server.url"
    url_file.unlink(missing_ok=True)
    given = {**settings, "limits": limits, "url_file": str(url_file)}
    command = [sys.executable, "-m", "tests.support.server", json.dumps(given, default=str)]
    child = start_process(command, log, cwd=ROOT)

    def announced() -> str | None:
        assert_running(child, "the server", log)
        return url_file.read_text() if url_file.exists() else None

    try:
        url = wait_until(announced, 30, "the server to start")
        yield RunningServer(url=url, db=Path(settings["db"]), process=child, log=log)
    finally:
        stop_process(child)


def _main(argument: str) -> None:
    """The process itself."""
    from holdfast.apps.server.main import serve

    given = json.loads(argument)
    url_file = Path(given.pop("url_file"))
    limits = ServerLimits(**given.pop("limits"))
    names = ("db", "home", "secrets_dir", "people", "tls_cert", "tls_key")
    paths = {name: Path(given.pop(name)) for name in names if name in given}

    def on_ready(url: str) -> None:
        part = url_file.with_suffix(".part")
        part.write_text(url)
        part.rename(url_file)

    serve(ServerConfig(**paths, **given, limits=limits, on_ready=on_ready))


if __name__ == "__main__":
    _main(sys.argv[1])
