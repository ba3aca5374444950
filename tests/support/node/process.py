"""The process that a real node lives in: it makes its cgroups and namespaces, and removes them.

Test workers hold a shared lock on the file `users`, as with the cluster without a node; once this
process gets that lock for itself, nobody is left and it ends the node. It also relays a port on the
machine's loopback to the API server, whose network nobody else reaches without entering it.
Started by tests/support/cluster.py as `python -m tests.support.node.process DIRECTORY [--stay]`.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.node.images import find_or_build_images
from tests.support.node.inside import PRIVATE_DIRECTORIES, READY_TIMEOUT, RUNTIME_PACKAGES
from tests.support.processes import ROOT, dying_with_us, start_process, wait_until
from tests.support.testbed import Say, cache_root, say_on_stderr
from tools.debian import unpack_packages

CGROUPS = Path("/sys/fs/cgroup")
CGROUP_PREFIX = "holdfast-node-"
CONTROLLERS = frozenset({"cpu", "cpuset", "memory", "pids"})
"""What kubelet cannot do without."""
IF_OFFERED = frozenset({"hugetlb"})
"""What kubelet asks of its group as well, where the machine offers it to the topmost one."""
CLONE_NEWNET = 0x40000000


class NoNode(Exception):
    """A real node can't run here; the text says why, and what to do about it."""


NAMESPACES = ("--net", "--mount", "--pid", "--ipc", "--uts")


def check_machine() -> None:
    """Raise NoNode where a real node can't run."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise NoNode("A real node needs Linux on x86-64.")
    if os.geteuid() != 0:
        raise NoNode("A real node needs root: it makes namespaces, mounts and cgroups of its own.")
    for program in ("ip", "mount", "nsenter", "openssl", "unshare"):
        if shutil.which(program) is None:
            raise NoNode(f"A real node needs the program {program}, which is not on the path.")
    check_cgroups()
    tried = subprocess.run(
        ["unshare", *NAMESPACES, "--fork", "mount", "--make-rprivate", "/"],
        capture_output=True, text=True,
    )  # fmt: skip
    if tried.returncode:
        raise NoNode(f"A real node needs namespaces of its own: {tried.stderr.strip()}")


def check_cgroups() -> None:
    """Raise NoNode where no cgroups can be made for pods."""
    hierarchies = _hierarchies()
    if not hierarchies or not all(os.access(each, os.W_OK) for each in hierarchies):
        raise NoNode(f"A real node needs cgroups that it may write, and {CGROUPS} offers none.")
    if hierarchies == [CGROUPS] and (missing := CONTROLLERS - _enable_controllers()):
        raise NoNode(
            f"A real node needs the cgroup controllers {', '.join(sorted(missing))}, and {CGROUPS} "
            "does not pass them on to its groups."
        )


def prepare(say: Say) -> None:
    """Fetch and build what is missing of a node, which has no way to the network itself."""
    unpack_packages(RUNTIME_PACKAGES, cache_root(), say)
    find_or_build_images(say)


def main(directory: Path, *, stay: bool) -> None:
    """Run a node until its last user is gone or, with `stay`, until told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    lock = (directory / "keeper.lock").open("a")
    fcntl.flock(lock, fcntl.LOCK_EX)  # for life: this is how others know that the node runs
    check_machine()
    prepare(say_on_stderr)
    for path in PRIVATE_DIRECTORIES:  # mount points, for the node's own view of them
        Path(path).mkdir(parents=True, exist_ok=True)
    remove_cgroups()
    cgroup = f"{CGROUP_PREFIX}{os.getpid()}"
    make_cgroups(cgroup)
    process = _start_inside(directory, cgroup)
    try:
        state = _wait_for_inside(directory, process)
        first = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        port = relay(first, urlsplit(state["server"]).port or 0)
        server = f"https://127.0.0.1:{port}"
        _point_kubeconfig_at(directory / "admin.kubeconfig", server)
        found = {"server": server, "keeper": os.getpid(), "pids": {"inside": first}}
        partial = directory / "cluster.json.new"
        partial.write_text(json.dumps(found))
        partial.replace(directory / "cluster.json")
        if stay:
            signal.pause()
        with (directory / "users").open("w") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        (directory / "cluster.json").unlink(missing_ok=True)
        process.kill()  # unshare, which takes the first process inside along
        process.wait()
        wait_until(lambda: remove_cgroups(cgroup), 10, "the node's cgroups to be empty")
        for name in ("containerd", "etcd", "kubelet"):  # half a gigabyte; logs stay
            shutil.rmtree(directory / name, ignore_errors=True)


def _start_inside(directory: Path, cgroup: str) -> subprocess.Popen[bytes]:
    (directory / "inside.json").unlink(missing_ok=True)
    log = directory / "inside.log"
    log.unlink(missing_ok=True)
    unshare = ["/usr/bin/unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
    inside = [sys.executable, "-m", "tests.support.node.inside", str(directory), cgroup]
    return start_process(dying_with_us(*unshare, *inside), log, cwd=ROOT)


def _wait_for_inside(directory: Path, process: subprocess.Popen[bytes]) -> dict[str, str]:
    ready = directory / "inside.json"

    def started() -> bool:
        if process.poll() is not None:
            raise RuntimeError((directory / "inside.log").read_text()[-3000:])
        return ready.exists()

    wait_until(started, READY_TIMEOUT, "the node to start", every=0.1)
    state: dict[str, str] = json.loads(ready.read_text())
    return state


def _point_kubeconfig_at(path: Path, server: str) -> None:
    document = json.loads(path.read_text())
    document["clusters"][0]["cluster"]["server"] = server
    path.write_text(json.dumps(document, indent=2))


def relay(pid: int, port: int) -> int:
    """Forward a free port of ours to one on the loopback of a process's network; give ours."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))

    async def run() -> None:
        server = await asyncio.start_server(forward, sock=listener)
        await server.serve_forever()

    def enter_and_run() -> None:
        # Only this thread moves; the listener stays a socket of the network it was made in.
        enter_network(pid)
        asyncio.run(run())

    threading.Thread(target=enter_and_run, daemon=True).start()
    found: int = listener.getsockname()[1]
    return found


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    with suppress(OSError):
        target.close()


def enter_network(pid: int) -> None:
    """Let this thread see the network of a process, and no other."""
    with Path(f"/proc/{pid}/ns/net").open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def _hierarchies() -> list[Path]:
    """Give where groups are made: each controller of version 1, or the one tree of version 2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path.parent for path in sorted(CGROUPS.glob("*/cgroup.procs"))]


def _enable_controllers() -> set[str]:
    """Have the one tree of version 2 pass its controllers on to its groups; give those it does."""
    offered = (CONTROLLERS | IF_OFFERED) & {*(CGROUPS / "cgroup.controllers").read_text().split()}
    passed_on = CGROUPS / "cgroup.subtree_control"
    try:
        if offered - {*passed_on.read_text().split()}:
            passed_on.write_text(" ".join(f"+{each}" for each in sorted(offered)))
        return {each.lstrip("+") for each in passed_on.read_text().split()}
    except OSError:  # in a container whose own processes are in that group
        return set()


def make_cgroups(name: str) -> None:
    """Make the node's own group in each hierarchy."""
    for hierarchy in _hierarchies():
        if hierarchy.name == "unified":  # of a mixed machine; the runtime makes its own there
            continue
        group = hierarchy / name
        group.mkdir()
        if hierarchy.name == "cpuset":
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((hierarchy / file).read_text())


def remove_cgroups(name: str = f"{CGROUP_PREFIX}*") -> bool:
    """Remove the groups of a node that is gone, or of all such; say whether none is left."""
    left = False
    for hierarchy in _hierarchies():
        for top in hierarchy.glob(name):
            for path in sorted(top.rglob("*/"), key=lambda path: -len(path.parts)):
                with suppress(OSError):
                    path.rmdir()
            try:
                top.rmdir()
            except OSError:  # processes in it: a node that runs, or is about to end
                left = True
    return not left


if __name__ == "__main__":
    where = Path(sys.argv[1])
    try:
        main(where, stay="--stay" in sys.argv[2:])
    except Exception:
        (where / "failed").write_text(traceback.format_exc())
        raise
