"""Debian packages as plain files: fetched, checked by apt against Debian's signatures, unpacked.

Nothing is installed on the machine, no service starts, and what is fetched stays in a cache. Called
by tools/image.py and by the real node of the test bed, whose runtime and images are made of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

Say = Callable[[str], None]

# What only a package manager runs: not for a machine where nothing is ever installed.
FOR_INSTALLING = frozenset(
    "adduser debconf dpkg git-man libaudit-common libaudit1 libcap-ng0 libdb5.3 liberror-perl "
    "libgdbm-compat4 libgdbm6 libpam-modules libpam-modules-bin libpam0g libperl5.36 "
    "libsemanage-common libsemanage2 libsepol2 passwd perl perl-base perl-modules-5.36 "
    "readline-common tar".split()
)


class NoPackages(Exception):
    """Debian's packages can't be had here; the text says why, and what to do about it."""


def unpack_packages(names: Sequence[str], cache: Path, say: Say) -> Path:
    """Give a directory with these packages, and all they need to run, unpacked over each other."""
    key = hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]
    directory = cache / "debian" / key
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            say(f"Fetching {', '.join(names)} and what they need from Debian, once ...")
            with tempfile.TemporaryDirectory(dir=directory.parent, prefix="fetching-") as scratch:
                _unpack(names, Path(scratch))
                (Path(scratch) / "unpacked").rename(directory)
    return directory / "root"


def package_versions(root: Path) -> dict[str, str]:
    """Tell the version of each package in a directory that `unpack_packages` gave."""
    lines = (root.parent / "versions.txt").read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines)


def _unpack(names: Sequence[str], scratch: Path) -> None:
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise NoPackages(f"This is made of Debian packages, and {program} is not here.")
    scratch.chmod(0o755)  # apt fetches as a user of its own
    root = scratch / "unpacked" / "root"
    root.mkdir(parents=True)
    try:
        needed = _needed(names, scratch)
    except NoPackages:  # a machine that never asked for Debian's lists, or long ago
        _run("apt-get", "update", "--quiet", cwd=scratch)
        needed = _needed(names, scratch)
    _run("apt-get", "download", "--quiet", *needed, cwd=scratch)
    versions = []
    for package in sorted(scratch.glob("*.deb")):
        _run("dpkg-deb", "--extract", str(package), str(root), cwd=scratch)
        shown = "--showformat=${Package} ${Version}"
        versions.append(_run("dpkg-deb", "--show", shown, str(package), cwd=scratch))
    for manual in ("doc", "info", "locale", "man"):
        shutil.rmtree(root / "usr" / "share" / manual, ignore_errors=True)
    (root.parent / "versions.txt").write_text("\n".join(versions) + "\n")


def _needed(names: Sequence[str], scratch: Path) -> list[str]:
    """Give the packages that apt would install on a machine without any."""
    nothing = scratch / "status"
    nothing.touch()
    lines = _run(
        "apt-get", "install", "--print-uris", "--yes", "-qq", "--no-install-recommends",
        "--option", f"Dir::State::status={nothing}", *sorted(names), cwd=scratch,
    )  # fmt: skip
    found = re.findall(r"^'\S+' ([^_\s]+)_", lines, re.MULTILINE)
    return sorted(set(found) - FOR_INSTALLING | set(names))


def _run(*command: str, cwd: Path) -> str:
    ran = subprocess.run(
        command, cwd=cwd, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True
    )
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip()[-400:]
        raise NoPackages(f"Debian's packages could not be fetched: {said}")
    return ran.stdout
