"""Each extra does its job where nothing else is installed.

The wheel is built as for a release and installed with one extra at a time, at the locked versions,
into an environment of its own; what is run there is what a user of that extra would run.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from tests.support.cluster_fixtures import skip_without
from tests.support.processes import ROOT, free_port, wait_until

CHAT = "name: chat\nmodel: m\nbackend: vllm\ncommand: vllm serve m --max-model-len 8192\n"
APPLICATION = """\
apiVersion: holdfast.dev/v1alpha1
kind: Application
metadata: {name: shop, namespace: team}
spec:
  project: acme
  source: {url: https://git.example.com/acme/deploy.git, path: prod}
  sync: {windows: [{kind: allow, schedule: 0 22 * * 1-5, duration: 2h, timeZone: Europe/Paris}]}
"""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = ROOT / "requirements" / "dev.txt"
WORKING: dict[str, set[str]] = {
    "": set(),
    # All that the operator imports comes with the server.
    "server": {"server", "kubernetes"},
    "kubernetes": {"kubernetes"},
    "gitops": {"server", "kubernetes", "gitops"},
    "postgres": {"postgres"},
}
"""Extra that is installed, to those that the doctor has to find working there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment with the wheel in it, and a home of its own."""

    home: Path

    @property
    def programs(self) -> Path:
        return self.home / "env" / "bin"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(self.home / "none"),
            "NO_COLOR": "1",
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.programs / command[0]), *command[1:]],
            cwd=self.home,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def told(self, *command: str) -> str:
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", str(made)], cwd=ROOT, check=True, capture_output=True)
    (found,) = made.glob("holdfast_ml-*-py3-none-any.whl")
    return found


def install(wheel: Path, extra: str, home: Path, *more: str) -> Installed:
    """Install the wheel with one extra: from uv's own cache, else from the registry."""
    installed = Installed(home=home)
    uv = [str(Path(sys.executable).with_name("uv")), "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, str(home / "env")], check=True)
    wanted = f"holdfast-ml{f'[{extra}]' if extra else ''} @ {wheel.as_uri()}"
    command = [*uv, "pip", "install", "--python", str(installed.programs / "python"), *more, wanted]
    for place in ([], ["--offline"]) if "--upgrade" in more else (["--offline"], []):
        done = subprocess.run([*command, *place], capture_output=True, text=True)
        if done.returncode == 0:
            return installed
    raise ConnectionError(done.stderr)


@pytest.fixture
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> Installed:
    try:
        return install(wheel, request.param, tmp_path, "-c", str(LOCKED))
    except ConnectionError as error:
        skip_without(pytestconfig, "a package registry", error)


def only(extra: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("installed", [extra], indirect=True, ids=[extra or "none"])


@contextmanager
def serving(installed: Installed) -> Iterator[str]:
    port = free_port()
    with (installed.home / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(installed.programs / "holdfast"),
                "serve",
                "--no-run",
                "--db",
                "s.db",
                "--port",
                str(port),
            ],
            cwd=installed.home,
            env=installed.environ,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, (installed.home / "log").read_text()
        try:
            return httpx2.get(f"{url}/healthz").status_code == 200
        except httpx2.TransportError:
            return False

    try:
        wait_until(answers, 60, "the server")
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def ensure_there(installed: Installed, url: str) -> None:
    (installed.home / "chat.yaml").write_text(CHAT)
    token = ("holdfast", "token", "create", "--name", "me", "--scope", "admin", "-o", "name")
    made = installed.told(*token, "--db", "s.db", "-p", "acme").strip()
    (installed.home / ".env").write_text(made)
    program = (
        "import pathlib, holdfast\n"
        f"mgmt = holdfast.ManagementClient({url!r}, project='acme',"
        " token=pathlib.Path('.env').read_text())\n"
        "spec = holdfast.WorkloadSpec(name='chat', model='m', backend='vllm')\n"
        "print(mgmt.ensure(spec).outcome, mgmt.ensure(spec).outcome)\n"
    )
    assert installed.told("python", "-W", "error", "-c", program) == "created unchanged\n"


@pytest.mark.parametrize(
    "installed", list(WORKING), indirect=True, ids=[each or "none" for each in WORKING]
)
def test_the_doctor_tells_the_truth_about_what_is_installed(
    installed: Installed, request: pytest.FixtureRequest
) -> None:
    extra = request.node.callspec.params["installed"]
    diagnosis = json.loads(installed.told("holdfast", "doctor", "-o", "json"))
    checks = {each["name"]: each for each in diagnosis["checks"]}
    extras = list(PROJECT["optional-dependencies"])
    assert {name for name in extras if checks[name]["verdict"] == "ok"} == WORKING[extra]
    for name in set(extras) - WORKING[extra]:
        assert f"pip install 'holdfast-ml[{name}]'" in checks[name]["fix"]


@only("")
def test_without_an_extra_the_sdk_and_the_command_line_work_on_a_file(installed: Installed) -> None:
    (installed.home / "chat.yaml").write_text(CHAT)
    assert "1 to create" in installed.told("holdfast", "plan", "-f", "chat.yaml")
    assert "1 created." in installed.told("holdfast", "ensure", "-f", "chat.yaml")
    assert "default/chat" in installed.told("holdfast", "status")
    program = (
        "from holdfast import ManagementClient, WorkloadSpec\n"
        "spec = WorkloadSpec(name='chat', model='m', backend='vllm', replicas=2)\n"
        "print(ManagementClient().ensure(spec).outcome)\n"
    )
    assert installed.told("python", "-W", "error", "-c", program) == "updated\n"
    for verb, extra in (("serve", "server"), ("operator", "kubernetes"), ("gitops", "gitops")):
        refused = installed.run("holdfast", verb)
        assert refused.returncode == 1
        assert f"pip install 'holdfast-ml[{extra}]'" in refused.stderr
        assert "Traceback" not in refused.stderr


@only("server")
def test_the_server_serves(installed: Installed) -> None:
    with serving(installed) as url:
        ensure_there(installed, url)
        page = httpx2.get(f"{url}/", follow_redirects=True)
        assert page.content == (ROOT / "web" / "index.html").read_bytes()


@only("kubernetes")
def test_the_operator_is_exported_and_starts(installed: Installed) -> None:
    exported = installed.told("holdfast", "install", "--export")
    assert "kind: CustomResourceDefinition" in exported and "kind: Deployment" in exported
    (installed.home / "chat.yaml").write_text(CHAT)
    rendered = installed.told("holdfast", "render", "-f", "chat.yaml", "--as", "objects")
    assert "kind: Deployment" in rendered
    assert "Usage: holdfast operator" in installed.told("holdfast", "operator", "--help")
    lacking = installed.run("holdfast", "operator")
    assert lacking.returncode == 1
    assert str(installed.home / "none") in lacking.stderr
    assert "Traceback" not in lacking.stderr


@only("gitops")
def test_the_gitops_controller_starts_and_checks_applications(installed: Installed) -> None:
    (installed.home / "shop.yaml").write_text(APPLICATION)
    assert "team/shop" in installed.told("holdfast", "validate", "-f", "shop.yaml")
    lacking = installed.run("holdfast", "gitops", "--db", "g.db")
    assert lacking.returncode == 1
    assert str(installed.home / "none") in lacking.stderr
    assert "Traceback" not in lacking.stderr


@only("postgres")
def test_the_driver_is_there(installed: Installed) -> None:
    installed.told("python", "-W", "error", "-c", "import holdfast.adapters.postgres")


@only("postgres")
def test_the_ledger_opens_in_postgresql(installed: Installed, postgres: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from holdfast.adapters.postgres import open_ledger_store\n"
        "from holdfast.core.redact import Secret\n"
        "async def main():\n"
        "    book = await open_ledger_store(Secret(sys.argv[1]))\n"
        "    print(await book.entries(limit=1))\n"
        "    await book.aclose()\n"
        "asyncio.run(main())\n"
    )
    assert installed.told("python", "-W", "error", "-c", program, postgres) in ("[]\n", "()\n")


def uvicorn_bound() -> tuple[int, int]:
    (found,) = (
        each for each in PROJECT["optional-dependencies"]["server"] if each.startswith("uvicorn")
    )
    major, minor = re.fullmatch(r"uvicorn>=[\d.]+,<(\d+)\.(\d+)", found).groups()  # type: ignore[union-attr]  # it has to match
    return int(major), int(minor)


def test_the_whole_suite_runs_with_the_newest_uvicorn_that_is_permitted() -> None:
    """The server builds on its private parts, so each new version is tried before it is let in."""
    major, minor = uvicorn_bound()
    assert re.search(rf"^uvicorn=={major}\.{minor - 1}\.", LOCKED.read_text(), re.MULTILINE)


@pytest.mark.long
def test_the_newest_uvicorn_that_is_permitted_serves(
    wheel: Path, tmp_path: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the registry has it today, which may be newer than the locked one."""
    try:
        installed = install(wheel, "server", tmp_path, "--upgrade")
    except ConnectionError as error:
        skip_without(pytestconfig, "a package registry", error)
    program = "import importlib.metadata as m; print(m.version('uvicorn'))"
    version = installed.told("python", "-c", program).strip()
    with capsys.disabled():
        print(f"\nserved with uvicorn {version}, the newest that is permitted")
    assert tuple(map(int, version.split(".")[:2])) < uvicorn_bound()
    with serving(installed) as url:
        ensure_there(installed, url)
