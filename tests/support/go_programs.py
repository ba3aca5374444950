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

    @property
    def how_to_build(self) -> str:
        return f"{self.title} is not built: `make testbed` builds it, in {self.lasting}."

    def find(self) -> str:
        """Give the program that is there already. Never builds; raises NotBuilt."""
        chosen = os.environ.get(f"HOLDFAST_{self.name.upper()}")
        for candidate in (chosen, shutil.which(self.name), str(self.path)):
            if candidate and os.access(candidate, os.X_OK):
                return str(Path(candidate).absolute())
        raise NotBuilt(self.how_to_build)

    def find_or_build(self, say: Say) -> str:
        """Give the program, building it first where it is missing; raises NotBuilt."""
        try:
            return self.find()
        except NotBuilt:
            return str(build_program(self, say))

    def find_or_skip(self, config: pytest.Config) -> str:
        """Give the program, or skip the test that asks for it."""
        try:
            return self.find()
        except NotBuilt as missing:
            skip_without(config, self.title, missing)


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


__all__ = ["promtool", "sops"]

HELM = GoProgram(
    name="helm",
    title="Helm",
    module="helm.sh/helm/v3",
    version="v3.22.0",
    package="./cmd/helm",
    lasting="about two minutes",
)
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


@pytest.fixture(scope="session")
def promtool(pytestconfig: pytest.Config) -> str:
    """The path of promtool."""
    return PROMTOOL.find_or_skip(pytestconfig)


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


KUSTOMIZE = GoProgram(
    name="kustomize",
    title="Kustomize",
    module="sigs.k8s.io/kustomize/kustomize/v5",
    version="v5.8.2",
    lasting="about a minute",
)


def build_image_programs(say: Say) -> list[Path]:
    """Give the programs that Holdfast's image has beside Python, building what is missing."""
    return [build_program(program, say) for program in (KUSTOMIZE, SOPS)]


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


@pytest.fixture(scope="session")
def sops(pytestconfig: pytest.Config) -> Sops:
    """SOPS, to encrypt with."""
    return Sops(SOPS.find_or_skip(pytestconfig))
