"""Builds a program out of a public Go module, once per machine, beside the test cluster.

For modules that `go install` refuses because their go.mod replaces or excludes something.
Called by tests/support/gitea.py and tests/support/promtool.py.
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


def build(program: GoProgram, say: Say, finish: Finish | None = None) -> Path:
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
    fetched = _go(program, [go, "mod", "download", "-json", f"{program.module}@{program.version}"])
    source = Path(json.loads(fetched)["Dir"])
    made.mkdir()
    # In place: Go never writes to the sources that it keeps.
    _go(
        program,
        [go, "-C", str(source), "build", "-trimpath", "-buildvcs=false", "-tags", program.tags,
         "-ldflags", program.flags, "-o", str(made / program.name), program.package],
    )  # fmt: skip
    if finish is not None:
        finish(source, made)
    shutil.rmtree(program.directory, ignore_errors=True)
    made.rename(program.directory)
    say(f"Built {program.title} in {time.monotonic() - started:.0f} s: {program.directory}")


def _go(program: GoProgram, command: list[str]) -> str:
    own = {"CGO_ENABLED": "1" if program.cgo else "0"}
    ran = subprocess.run(
        command, env={**go_environment(), **own}, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        said = "\n".join((ran.stderr or ran.stdout).strip().splitlines()[-8:])
        raise NotBuilt(f"{program.title} could not be built; nothing was kept. Go said:\n{said}")
    return ran.stdout
