"""A real forge with pull requests: Gitea, built once per machine, started in two seconds.

A server keeps everything in one directory, listens on loopback, and ends with the process that
started it. Used through the fixtures `gitea` and `gitea_repository`.
"""

from __future__ import annotations

import base64
import getpass
import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.cluster_fixtures import skip_without
from tests.support.go_programs import GoProgram, NotBuilt, build_program
from tests.support.processes import (
    assert_running,
    dying_with_us,
    free_port,
    start_on_free_ports,
    start_process,
    stop_process,
    wait_until,
)
from tests.support.testbed import Say

GITEA = GoProgram(
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
ENABLED = true
JWT_SIGNING_ALGORITHM = ES256
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


class GiteaError(AssertionError):
    """Gitea refused what a test asked of it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:500]}")
        self.status = status


def find_gitea() -> Path:
    """Give the directory of a built Gitea. Never builds; raises NotBuilt."""
    given = os.environ.get("HOLDFAST_GITEA")
    directory = Path(given) if given else GITEA.directory
    if os.access(directory / GITEA.name, os.X_OK):
        return directory
    raise NotBuilt(GITEA.how_to_build)


def find_or_build_gitea(say: Say) -> Path:
    """Give Gitea, building it first where it is missing; raises NotBuilt."""
    try:
        return find_gitea()
    except NotBuilt:
        return build_program(GITEA, say, _add_static_files).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user of the forge, with a token that may do all that the user may."""

    name: str
    token: str


class Gitea:
    """One server. `directory` is its own."""

    def __init__(self, directory: Path, programs: Path | None = None) -> None:
        self._programs = programs or find_gitea()
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
        start_on_free_ports(lambda: self._serve(keys), self.stop)

    def stop(self) -> None:
        """End the server. Safe to call twice; its files stay."""
        process, self._process = self._process, None
        if process is not None:
            stop_process(process, STOP_TIMEOUT)

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

    def create_login(self, redirect_url: str, *, name: str = "holdfast") -> tuple[str, str]:
        """Register a program at which people may sign in; return its client id and secret."""
        made = self.ask(
            "POST",
            "/user/applications/oauth2",
            {
                "name": name,
                "redirect_uris": [redirect_url],
                "confidential_client": True,
            },
        )
        return made["client_id"], made["client_secret"]

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
        """Send one request to the API and give its answer; raises GiteaError."""
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
                raise GiteaError(error.code, error.read().decode(errors="replace")) from None
        return json.loads(text) if text else None

    def _serve(self, keys: dict[str, str]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        _configure(self._directory, self._programs, keys, port=port)
        self._process = start_process(
            dying_with_us(*_command(self._directory, self._programs), "web"),
            self._directory / "log",
            cwd=self._directory,
            env=_environment(self._directory),
        )
        wait_until(self._ready, START_TIMEOUT, "Gitea to answer")

    def _ready(self) -> bool:
        assert self._process is not None
        assert_running(self._process, "Gitea", self._directory / "log")
        try:
            self.ask("GET", "/version")
        except OSError:
            return False
        return True


def _add_static_files(source: Path, made: Path) -> None:
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
        name.lower(): _run_gitea(made, made, "generate", "secret", name)
        for name in ("INTERNAL_TOKEN", "JWT_SECRET", "SECRET_KEY")
    }
    _configure(template, made, keys, port=1)
    _run_gitea(template, made, "migrate")
    create = ["--username", ADMIN, "--password", PASSWORD, "--email", "admin@forge.test"]
    _run_gitea(template, made, "admin", "user", "create", "--admin", *create)
    keys["admin_token"] = _run_gitea(
        template, made, "admin", "user", "generate-access-token", "--raw",
        "--username", ADMIN, "--scopes", "all",
    )  # fmt: skip
    (template / "keys.json").write_text(json.dumps(keys))
    with closing(sqlite3.connect(template / "gitea.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # one file is the whole of it
    for path in template.iterdir():
        if path.name not in ("gitea.db", "keys.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _run_gitea(directory: Path, programs: Path, *arguments: str) -> str:
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
        raise NotBuilt(f"Gitea was built, but `{' '.join(arguments[:3])}` said: {said}")
    return ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else ""


def _command(directory: Path, programs: Path) -> list[str]:
    # Before the subcommand, where all of them understand it.
    return [str(programs / GITEA.name), "--config", str(directory / "app.ini")]


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


_COUNT = itertools.count(1)
MERGE_TIMEOUT = 20.0


class GiteaRepository:
    """Made with a first commit on `main`, and an owner of its own."""

    def __init__(self, gitea: Gitea, owner: Account, name: str) -> None:
        self.gitea = gitea
        self.owner = owner
        self.name = name

    @classmethod
    def create(
        cls, gitea: Gitea, files: Mapping[str, str] | None = None, name: str = "fleet"
    ) -> GiteaRepository:
        """Make a private repository that holds these files."""
        owner = gitea.create_user(f"team-{next(_COUNT)}")
        options = {"name": name, "private": True, "auto_init": True, "default_branch": "main"}
        gitea.ask("POST", "/user/repos", options, by=owner)
        made = cls(gitea, owner, name)
        if files:
            made.commit(files, message="What runs")
        return made

    @property
    def full_name(self) -> str:
        return f"{self.owner.name}/{self.name}"

    @property
    def url(self) -> str:
        """Where to clone it from, with a token as the password."""
        return f"{self.gitea.url}/{self.full_name}.git"

    def add_member(self, name: str, permission: str = "write") -> Account:
        """Make another user who may write to it."""
        account = self.gitea.create_user(f"{name}-of-{self.owner.name}")
        self.ask("PUT", f"/collaborators/{account.name}", {"permission": permission})
        return account

    # Any: JSON as Gitea answers it, here and below.
    def ask(self, method: str, path: str, body: object = None, by: Account | None = None) -> Any:
        """Send one request about this repository, as its owner unless told."""
        return self.gitea.ask(method, f"/repos/{self.full_name}{path}", body, by=by or self.owner)

    def commit(
        self,
        files: Mapping[str, str | None],
        *,
        branch: str = "main",
        message: str = "A change",
        by: Account | None = None,
    ) -> str:
        """Put one commit on a branch, which is made from `main` where it is missing; give its id.

        None deletes a file.
        """
        new = branch != "main" and self.head(branch) is None
        known = self._blobs("main" if new else branch)
        changes = []
        for path, content in files.items():
            change = {"path": path, "operation": "update" if path in known else "create"}
            if path in known:
                change["sha"] = known[path]
            if content is None:
                change["operation"] = "delete"
            else:
                change["content"] = base64.b64encode(content.encode()).decode()
            changes.append(change)
        where = {"branch": "main", "new_branch": branch} if new else {"branch": branch}
        made = self.ask("POST", "/contents", {"files": changes, "message": message, **where}, by)
        return str(made["commit"]["sha"])

    def head(self, branch: str = "main") -> str | None:
        """Give the commit of a branch; None when there is no such branch."""
        try:
            return str(self.ask("GET", f"/branches/{quote(branch, safe='')}")["commit"]["id"])
        except GiteaError as said:
            if said.status == 404:
                return None
            raise

    def files(self, branch: str = "main") -> dict[str, str]:
        """Give every file of a branch, by its path."""
        return {
            path: base64.b64decode(self.ask("GET", f"/git/blobs/{sha}")["content"]).decode()
            for path, sha in self._blobs(branch).items()
        }

    def history(self, branch: str = "main") -> list[dict[str, Any]]:
        """Give the commits of a branch, newest first."""
        found: list[dict[str, Any]] = self.ask("GET", f"/commits?sha={quote(branch, safe='')}")
        return found

    def pulls(self, state: str = "all") -> list[dict[str, Any]]:
        """Give the pull requests, newest first."""
        found: list[dict[str, Any]] = self.ask("GET", f"/pulls?state={state}&limit=50")
        return found

    def pull(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/pulls/{number}")
        return found

    def open_pull(self, branch: str, title: str = "A change", by: Account | None = None) -> int:
        """Open a pull request to `main`; give its number."""
        new = {"head": branch, "base": "main", "title": title}
        return int(self.ask("POST", "/pulls", new, by)["number"])

    def merge(self, number: int, by: Account | None = None) -> None:
        """Merge a pull request, once Gitea has found out that it can be."""

        def merged() -> bool:
            try:
                self.ask("POST", f"/pulls/{number}/merge", {"Do": "merge"}, by)
            except GiteaError as said:
                if said.status == 405 and "try again later" in str(said):
                    return False
                raise
            return True

        wait_until(merged, MERGE_TIMEOUT, f"pull request {number} to be merged")

    def close(self, number: int, by: Account | None = None) -> None:
        """Close a pull request without merging it."""
        self.ask("PATCH", f"/pulls/{number}", {"state": "closed"}, by)

    def comment(self, number: int, text: str, by: Account | None = None) -> None:
        self.ask("POST", f"/issues/{number}/comments", {"body": text}, by)

    def comments(self, number: int) -> list[str]:
        """Give what was said under a pull request, in order."""
        return [each["body"] for each in self.ask("GET", f"/issues/{number}/comments")]

    def labels(self) -> list[str]:
        return [each["name"] for each in self.ask("GET", "/labels?limit=50")]

    def add_webhook(self, url: str, secret: str, events: tuple[str, ...] = ("push",)) -> int:
        """Have Gitea tell an address on loopback of what happens here."""
        hook = {
            "type": "gitea",
            "active": True,
            "events": list(events),
            "config": {"url": url, "content_type": "json", "secret": secret},
        }
        return int(self.ask("POST", "/hooks", hook)["id"])

    def clone(self, directory: str, branch: str = "main") -> None:
        """Clone it with git itself, as a person would."""
        address = self.url.replace("://", f"://{self.owner.name}:{self.owner.token}@")
        subprocess.run(
            ["git", "clone", "--quiet", "--branch", branch, "--", address, directory], check=True
        )

    def _blobs(self, branch: str) -> dict[str, str]:
        tree = self.ask("GET", f"/git/trees/{quote(branch, safe='')}?recursive=true&per_page=1000")
        return {each["path"]: each["sha"] for each in tree["tree"] if each["type"] == "blob"}


__all__ = ["gitea", "gitea_repository"]


@pytest.fixture(scope="session")
def gitea(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Gitea]:
    """The forge of this process: a start takes two seconds, less than sharing one would."""
    try:
        forge = Gitea(tmp_path_factory.mktemp("gitea"))
    except NotBuilt as missing:
        skip_without(pytestconfig, "a real forge", missing)
    try:
        forge.start()
        yield forge
    finally:
        forge.stop()


@pytest.fixture
def gitea_repository(gitea: Gitea) -> GiteaRepository:
    """A repository with an owner of its own and a first commit."""
    return GiteaRepository.create(gitea)
