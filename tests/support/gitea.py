"""A real forge with pull requests: Gitea, built once per machine, started in two seconds.

A server keeps everything in one directory, listens on loopback, and ends with the process that
started it. Used through the fixture `gitea`; repositories and what happens in them are in
tests/support/gitea_repository.py.
"""

from __future__ import annotations

import base64
import getpass
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import go_module
from tests.support.control_plane import DIE_WITH_PARENT
from tests.support.processes import free_port, wait_until
from tests.support.testbed import Say

PROGRAM = go_module.GoProgram(
    name="gitea",
    title="Gitea",
    module="code.gitea.io/gitea",
    version="v1.26.0",
    tags="sqlite sqlite_unlock_notify",
    flags="-s -w -X main.Version=1.26.0",
    cgo=True,
    lasting="about six minutes",
)
ADMIN = "root-of-the-forge"
PASSWORD = "made-up-for-tests-only"
START_TIMEOUT = 60.0
STOP_TIMEOUT = 5.0
ATTEMPTS = 3
TEMPLATE = "template"
"""Beside the program: a migrated database with an administrator, and the secrets it goes with."""
SETTINGS = """
APP_NAME = Gitea
RUN_USER = {user}
WORK_PATH = {directory}
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = http://127.0.0.1:{port}/
STATIC_ROOT_PATH = {static}
OFFLINE_MODE = true
DISABLE_SSH = true
LFS_START_SERVER = false
[database]
DB_TYPE = sqlite3
PATH = {directory}/gitea.db
SQLITE_JOURNAL_MODE = WAL
[security]
INSTALL_LOCK = true
INTERNAL_TOKEN = {internal_token}
SECRET_KEY = {secret_key}
PASSWORD_HASH_ALGO = pbkdf2$1$50
[oauth2]
ENABLED = false
JWT_SECRET = {jwt_secret}
[repository]
ROOT = {directory}/repositories
DEFAULT_BRANCH = main
[service]
DISABLE_REGISTRATION = true
[webhook]
ALLOWED_HOST_LIST = loopback
[queue]
TYPE = channel
[indexer]
ISSUE_INDEXER_TYPE = db
[i18n]
LANGS = en-US
NAMES = English
[log]
MODE = console
LEVEL = Warn
[cron]
ENABLED = false
[actions]
ENABLED = false
[packages]
ENABLED = false
[picture]
DISABLE_GRAVATAR = true
"""


class NoGitea(go_module.NotBuilt):
    """It is not there; the text says why."""


class GiteaSaid(AssertionError):
    """Gitea refused what a test asked of it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:500]}")
        self.status = status


def find() -> Path:
    """Give the directory of a built Gitea. Never builds; raises NoGitea."""
    given = os.environ.get("HOLDFAST_GITEA")
    directory = Path(given) if given else PROGRAM.directory
    if os.access(directory / PROGRAM.name, os.X_OK):
        return directory
    raise NoGitea(f"Gitea is not built: `make testbed` builds it, in {PROGRAM.lasting}.")


def find_or_build(say: Say) -> Path:
    """Give Gitea, building it first where it is missing; raises NotBuilt."""
    try:
        return find()
    except NoGitea:
        return go_module.build(PROGRAM, say, _finish).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user of the forge, with a token that may do all that the user may."""

    name: str
    token: str


class Gitea:
    """One server. `directory` is its own."""

    def __init__(self, directory: Path, programs: Path | None = None) -> None:
        self._programs = programs or find()
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.admin = Account(name=ADMIN, token="")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def api_url(self) -> str:
        return f"{self.url}/api/v1"

    def start(self) -> None:
        """Serve an empty forge; returns once it answers."""
        self._directory.mkdir(parents=True, exist_ok=True)
        template = self._programs / TEMPLATE
        shutil.copy(template / "gitea.db", self._directory)
        keys = json.loads((template / "keys.json").read_text())
        self.admin = Account(name=ADMIN, token=keys.pop("admin_token"))
        for attempt in range(1, ATTEMPTS + 1):
            port = free_port()
            self.url = f"http://127.0.0.1:{port}"
            _configure(self._directory, self._programs, keys, port=port)
            try:
                self._serve()
                return
            except BaseException as failure:
                self.stop()
                # A free port can be taken between our asking for it and Gitea's binding it.
                if attempt == ATTEMPTS or "address already in use" not in str(failure):
                    raise

    def stop(self) -> None:
        """End the server. Safe to call twice; its files stay."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def create_user(self, name: str, scopes: Sequence[str] = ("all",)) -> Account:
        """Make a user and a token for it."""
        user = {"username": name, "email": f"{name}@forge.test", "password": PASSWORD}
        self.ask("POST", "/admin/users", {**user, "must_change_password": False})
        token = self.ask(
            "POST",
            f"/users/{name}/tokens",
            {"name": "test", "scopes": list(scopes)},
            authorization="Basic " + base64.b64encode(f"{name}:{PASSWORD}".encode()).decode(),
        )
        return Account(name=name, token=token["sha1"])

    # Any: JSON as Gitea answers it, which the tests know the shape of.
    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        by: Account | None = None,
        authorization: str = "",
    ) -> Any:
        """Send one request to the API and give its answer; raises GiteaSaid."""
        request = urllib.request.Request(  # noqa: S310  # our own server
            self.api_url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": authorization or f"token {(by or self.admin).token}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise GiteaSaid(error.code, error.read().decode(errors="replace")) from None
        return json.loads(text) if text else None

    def _serve(self) -> None:
        guard = [sys.executable, "-S", "-E", str(DIE_WITH_PARENT), str(os.getpid())]
        with (self._directory / "log").open("wb") as output:
            self._process = subprocess.Popen(
                [*guard, *_command(self._directory, self._programs), "web"],
                cwd=self._directory,
                env=_environment(self._directory),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._ready, START_TIMEOUT, "Gitea to answer")

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            said = (self._directory / "log").read_text(errors="replace")[-800:]
            raise RuntimeError(f"Gitea ended with {self._process.returncode}: {said}")
        try:
            self.ask("GET", "/version")
        except OSError:
            return False
        return True


def _finish(source: Path, made: Path) -> None:
    """Put beside the program what it reads when it runs, and a database to begin with."""
    static = made / "static"
    shutil.copytree(source / "templates", static / "templates")
    shutil.copytree(
        source / "options",
        static / "options",
        ignore=lambda folder, names: (
            [name for name in names if "en-US" not in name] if folder.endswith("locale") else []
        ),
    )
    for path in [static, *static.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)  # Go's copy of the sources is read-only
    template = made / TEMPLATE
    template.mkdir(mode=0o700)
    keys = {
        name.lower(): _gitea(made, made, "generate", "secret", name)
        for name in ("INTERNAL_TOKEN", "JWT_SECRET", "SECRET_KEY")
    }
    _configure(template, made, keys, port=1)
    _gitea(template, made, "migrate")
    create = ["--username", ADMIN, "--password", PASSWORD, "--email", "admin@forge.test"]
    _gitea(template, made, "admin", "user", "create", "--admin", *create)
    keys["admin_token"] = _gitea(
        template, made, "admin", "user", "generate-access-token", "--raw",
        "--username", ADMIN, "--scopes", "all",
    )  # fmt: skip
    (template / "keys.json").write_text(json.dumps(keys))
    with closing(sqlite3.connect(template / "gitea.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # one file is the whole of it
    for path in template.iterdir():
        if path.name not in ("gitea.db", "keys.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _gitea(directory: Path, programs: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [*_command(directory, programs), *arguments],
        cwd=directory,
        env=_environment(directory),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip()[-500:]
        raise go_module.NotBuilt(f"Gitea was built, but `{' '.join(arguments[:3])}` said: {said}")
    return ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else ""


def _command(directory: Path, programs: Path) -> list[str]:
    # Before the subcommand, where all of them understand it.
    return [str(programs / PROGRAM.name), "--config", str(directory / "app.ini")]


def _configure(directory: Path, programs: Path, keys: dict[str, str], *, port: int) -> None:
    path = directory / "app.ini"
    path.touch(mode=0o600)
    path.write_text(
        SETTINGS.format(
            user=getpass.getuser(),
            directory=directory,
            static=programs / "static",
            port=port,
            **keys,
        )
    )


def _environment(directory: Path) -> dict[str, str]:
    # A home of its own: no one's Git settings are for this forge.
    return {
        "HOME": str(directory),
        "PATH": os.environ.get("PATH", os.defpath),
        "GITEA_WORK_DIR": str(directory),
        "GITEA_I_AM_BEING_UNSAFE_RUNNING_AS_ROOT": "true",
    }
