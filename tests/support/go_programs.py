"""Builds programs out of public Go modules, once per machine, beside the test cluster.

Helm, promtool and SOPS are found on PATH or built by `make testbed`. For modules that `go install`
refuses because their go.mod replaces or excludes something, the sources are built in place.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.cluster_fixtures import skip_without
from tests.support.testbed import NoTestbed, Say, cache_root, go_environment, go_program

Finish = Callable[[Path, Path], None]
"""Takes the module's sources and the directory with the program in it, before others see that."""


class NotBuilt(Exception):
    """It could not be built; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoProgram:
    """One main package of a module, at one version."""

    name: str
    title: str
    module: str
    version: str
    package: str = "."
    tags: str = ""
    flags: str = "-s -w"
    cgo: bool = False
    lasting: str = "some minutes"
    """How long a build takes, for people."""

    @property
    def directory(self) -> Path:
        """Where it is kept."""
        return cache_root() / self.name / self.version

    @property
    def path(self) -> Path:
        return self.directory / self.name

    @property
    def built(self) -> bool:
        return os.access(self.path, os.X_OK)


def build_program(program: GoProgram, say: Say, finish: Finish | None = None) -> Path:
    """Give the program, building it first where it is missing; raises NotBuilt."""
    parent = program.directory.parent
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.built:  # another process may have built it while this one waited
            with tempfile.TemporaryDirectory(prefix="building-", dir=parent) as scratch:
                _build(program, Path(scratch) / "made", say, finish)
    return program.path


def _build(program: GoProgram, made: Path, say: Say, finish: Finish | None) -> None:
    if program.cgo and shutil.which("gcc") is None:
        raise NotBuilt(f"{program.title} needs a C compiler to be built: install gcc.")
    try:
        go = go_program(say)
    except NoTestbed as missing:
        raise NotBuilt(str(missing)) from None
    started = time.monotonic()
    say(f"Building {program.title} with Go: {program.lasting}, once ...")
    fetched = _run_go(
        program, [go, "mod", "download", "-json", f"{program.module}@{program.version}"]
    )
    source = Path(json.loads(fetched)["Dir"])
    made.mkdir()
    # In place: Go never writes to the sources that it keeps.
    _run_go(
        program,
        [go, "-C", str(source), "build", "-trimpath", "-buildvcs=false", "-tags", program.tags,
         "-ldflags", program.flags, "-o", str(made / program.name), program.package],
    )  # fmt: skip
    if finish is not None:
        finish(source, made)
    shutil.rmtree(program.directory, ignore_errors=True)
    made.rename(program.directory)
    say(f"Built {program.title} in {time.monotonic() - started:.0f} s: {program.directory}")


def _run_go(program: GoProgram, command: list[str]) -> str:
    own = {"CGO_ENABLED": "1" if program.cgo else "0"}
    ran = subprocess.run(
        command, env={**go_environment(), **own}, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        said = "\n".join((ran.stderr or ran.stdout).strip().splitlines()[-8:])
        raise NotBuilt(f"{program.title} could not be built; nothing was kept. Go said:\n{said}")
    return ran.stdout


HELM_MODULE = "helm.sh/helm/v3/cmd/helm"
HELM_VERSION = "v3.22.0"


class NoHelm(Exception):
    """It is not there; the text says why."""


def find_helm() -> str:
    """Give the Helm that is there already. Never builds; raises NoHelm."""
    for candidate in (os.environ.get("HOLDFAST_HELM"), shutil.which("helm"), str(_built_helm())):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise NoHelm("Helm is not built: `make testbed` builds it, in about two minutes.")


def find_or_build_helm(say: Say) -> str:
    """Give Helm, building it first where it is missing; raises NoHelm."""
    try:
        return find_helm()
    except NoHelm:
        say("Building Helm with Go: about two minutes, once ...")
    try:
        go = go_program(say)
    except NoTestbed as missing:
        raise NoHelm(str(missing)) from None
    _built_helm().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=_built_helm().parent) as scratch:
        own = {"GOBIN": scratch, "GOFLAGS": "", "GOWORK": "off"}
        ran = subprocess.run(
            [go, "install", "-trimpath", "-ldflags", "-s -w", f"{HELM_MODULE}@{HELM_VERSION}"],
            env={**go_environment(), **own},
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            raise NoHelm(f"Helm could not be built: {ran.stderr.strip()[-500:]}")
        (Path(scratch) / "helm").rename(_built_helm())
    return str(_built_helm())


def _built_helm() -> Path:
    return cache_root() / "helm" / HELM_VERSION / "helm"


__all__ = ["promtool"]

PROMTOOL = GoProgram(
    name="promtool",
    title="promtool",
    module="github.com/prometheus/prometheus",
    version="v0.313.0",
    package="./cmd/promtool",
    # Without the clients of every cloud that Prometheus finds its targets in.
    tags="netgo,remove_all_sd",
    lasting="about two minutes",
)


class NoPromtool(NotBuilt):
    """It is not there; the text says why."""


def find_promtool() -> str:
    """Give the promtool that is there already. Never builds; raises NoPromtool."""
    for candidate in (
        os.environ.get("HOLDFAST_PROMTOOL"),
        shutil.which("promtool"),
        str(PROMTOOL.path),
    ):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise NoPromtool(f"promtool is not built: `make testbed` builds it, in {PROMTOOL.lasting}.")


def find_or_build_promtool(say: Say) -> str:
    """Give promtool, building it first where it is missing; raises NotBuilt."""
    try:
        return find_promtool()
    except NoPromtool:
        return str(build_program(PROMTOOL, say))


@pytest.fixture(scope="session")
def promtool(pytestconfig: pytest.Config) -> str:
    """The path of promtool."""
    try:
        return find_promtool()
    except NoPromtool as missing:
        skip_without(pytestconfig, "promtool", missing)


__all__ = ["sops"]

SOPS = GoProgram(
    name="sops",
    title="SOPS",
    module="github.com/getsops/sops/v3",
    version="v3.13.3",
    package="./cmd/sops",
    lasting="about two minutes",
)
# Made for these tests, by age-keygen; nothing else was ever encrypted for them.
RECIPIENT = "age14zwew6nxlnschrmuzrngk4rgc3y82kqjeyrgekepa250062yjyjs550r5a"
IDENTITY = "AGE-SECRET-KEY-1AD6K0C0YC8NRPC3RPUQ3VY6KEFFT4LE4N829DKEEE557NG34MRZSD6HKWY"
OTHER_IDENTITY = "AGE-SECRET-KEY-18YE3CCL02ZKT7NCKAJE08VNCA8VWLAGH7CJJ8UP2GF0T8VTP3V8SR0K99N"


class NoSops(NotBuilt):
    """It is not there; the text says why."""


@dataclass(frozen=True, slots=True)
class Sops:
    """The program, as a person at a terminal uses it."""

    path: str

    def encrypt(self, text: str, *, suffix: str = "yaml", only: str = "^(data|stringData)$") -> str:
        """Encrypt a document for the test key; `only` says which fields, empty for all."""
        chosen = ["--encrypted-regex", only] if only else []
        return self._run(
            ["encrypt", "--age", RECIPIENT, *chosen, "--input-type", suffix, "--output-type",
             suffix, "--filename-override", f"x.{suffix}"],
            text,
        )  # fmt: skip

    def decrypt(self, text: str, *, suffix: str = "yaml") -> str:
        """Decrypt a document with the test key, its seal checked."""
        return self._run(["decrypt", "--input-type", suffix, "--output-type", suffix], text)

    def _run(self, arguments: list[str], text: str) -> str:
        ran = subprocess.run(
            [self.path, *arguments],
            input=text,
            env={"SOPS_AGE_KEY": IDENTITY, "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            cwd="/",
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def find_sops() -> str:
    """Give the SOPS that is there already. Never builds; raises NoSops."""
    for candidate in (os.environ.get("HOLDFAST_SOPS"), shutil.which("sops"), str(SOPS.path)):
        if candidate and os.access(candidate, os.X_OK):
            return str(Path(candidate).absolute())
    raise NoSops(f"SOPS is not built: `make testbed` builds it, in {SOPS.lasting}.")


def find_or_build_sops(say: Say) -> str:
    """Give SOPS, building it first where it is missing; raises NotBuilt."""
    try:
        return find_sops()
    except NoSops:
        return str(build_program(SOPS, say))


@pytest.fixture(scope="session")
def sops(pytestconfig: pytest.Config) -> Sops:
    """SOPS, to encrypt with."""
    try:
        return Sops(find_sops())
    except NoSops as missing:
        skip_without(pytestconfig, "SOPS", missing)
