"""Real Git repositories to fetch from: on disk, and served over smart HTTP with a token.

The HTTP host runs `git http-backend` behind a small server in a thread of its own, which can be
told to misbehave. Called by every test that needs a remote repository.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import ssl
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

PEOPLE = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
}
_ALONE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}
_START = 1_767_225_600  # 2026-01-01


class BareRepository:
    """A bare repository that others fetch from, and the commits that people make in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clock = _START
        self._blobs: dict[bytes, str] = {}
        path.mkdir(parents=True)
        self.git("init", "--quiet", "--bare", "--initial-branch=main")
        self.git("config", "http.receivepack", "true")

    def git(self, *arguments: str, given: bytes | None = None, **more: str) -> str:
        """Run git in the repository and return what it wrote."""
        ran = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env={"PATH": os.environ["PATH"], "HOME": str(self.path), **_ALONE, **PEOPLE, **more},
            input=given,
            capture_output=True,
            check=False,
        )
        assert ran.returncode == 0, f"git {arguments}: {ran.stderr.decode(errors='replace')}"
        return ran.stdout.decode(errors="replace").strip()

    def commit(
        self,
        files: Mapping[str, bytes | str],
        *,
        branch: str = "main",
        message: str = "Change",
        parents: tuple[str, ...] | None = None,
    ) -> str:
        """Put one commit on a branch, with these files and no others."""
        entries = [("100644", self.blob(text), path.encode()) for path, text in files.items()]
        return self.commit_entries(entries, branch=branch, message=message, parents=parents)

    def commit_entries(
        self,
        entries: list[tuple[str, str, bytes]],
        *,
        branch: str = "main",
        message: str = "Change",
        parents: tuple[str, ...] | None = None,
    ) -> str:
        """Put one commit on a branch, of (mode, object id, path)."""
        index = {"GIT_INDEX_FILE": str(self.path / "scratch-index")}
        listing = b"".join(b"%s %s\t%s\0" % (m.encode(), o.encode(), p) for m, o, p in entries)
        (self.path / "scratch-index").unlink(missing_ok=True)
        self.git("update-index", "-z", "--index-info", given=listing, **index)
        return self.commit_tree(
            self.git("write-tree", "--missing-ok", **index),
            branch=branch,
            message=message,
            parents=parents,
        )

    def commit_tree(
        self,
        tree: str,
        *,
        branch: str = "main",
        message: str = "Change",
        parents: tuple[str, ...] | None = None,
    ) -> str:
        """Put one commit on a branch, with a tree that is there."""
        if parents is None:
            tip = self.tip(branch)
            parents = (tip,) if tip else ()
        self._clock += 60
        date = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"{self._clock} +0000")
        onto = [word for parent in parents for word in ("-p", parent)]
        commit = self.git("commit-tree", tree, *onto, given=message.encode(), **date)
        self.git("update-ref", f"refs/heads/{branch}", commit)
        return commit

    def blob(self, text: bytes | str) -> str:
        """Store a file's content and return its id."""
        data = text.encode() if isinstance(text, str) else text
        if data not in self._blobs:
            self._blobs[data] = self.git("hash-object", "-w", "--stdin", given=data)
        return self._blobs[data]

    def tip(self, branch: str) -> str:
        """Return where a branch is; empty when there is none."""
        return self.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")

    def show(self, what: str) -> str:
        """Return the content of `commit:path`, or of a commit."""
        return self.git("cat-file", "-p", what)


@dataclass
class HostFault:
    """How the host misbehaves."""

    on: str = ""
    """The requests it is for: `refs`, `list`, `fetch`, `begin-push`, `push`; empty for all."""
    status: int = 0
    """Answer with this and nothing else."""
    headers: Mapping[str, str] | None = None
    pause: Callable[[], Awaitable[None]] | None = None
    """Wait for this, then answer well."""
    hang: bool = False
    """Never answer."""
    after: int = -1
    """Send this many bytes of the body, then do what `then` says."""
    then: Callable[[], Awaitable[None]] | None = None
    """Runs once the bytes are out; afterwards the connection is cut. None cuts at once."""
    drip: bool = False
    """Send the body byte by byte, with pauses, for ever."""


class GitHost:
    """Serves the repositories below a folder."""

    def __init__(self, root: Path, token: str = "", user: str = "holdfast") -> None:
        self.root = root
        self.token = token
        self.user = user
        self.fault: HostFault | None = None
        self.before: Callable[[str], None] = lambda _: None
        """Called with the kind of each request, before it is answered."""
        self.requests: list[str] = []
        self.authorizations: list[str] = []
        self.port = 0
        self.stopping = asyncio.Event()

    def url(self, name: str) -> str:
        """Give the address of a repository."""
        return f"http://127.0.0.1:{self.port}/{name}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, well or badly."""
        kind = _kind(request.path_qs, await request.read())
        self.requests.append(kind)
        self.authorizations.append(request.headers.get("Authorization", ""))
        fault = self.fault if self.fault and self.fault.on in ("", kind) else None
        if fault and fault.pause:
            await fault.pause()
        if fault and fault.hang:
            await self.stopping.wait()
        if fault and fault.status:
            return web.Response(status=fault.status, headers=fault.headers, text="no luck")
        expected = base64.b64encode(f"{self.user}:{self.token}".encode()).decode()
        if self.token and request.headers.get("Authorization") != f"Basic {expected}":
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="git"'})
        self.before(kind)
        status, headers, body = await self._backend(request)
        if fault and (fault.drip or fault.after >= 0):
            return await self._broken(request, fault, headers, body)
        return web.Response(status=status, headers=headers, body=body)

    async def _backend(self, request: web.Request) -> tuple[int, dict[str, str], bytes]:
        given = await request.read()
        process = await asyncio.create_subprocess_exec(
            "git",
            "http-backend",
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.root),
                **_ALONE,
                "GIT_PROJECT_ROOT": str(self.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": request.method,
                "PATH_INFO": request.path,
                "QUERY_STRING": request.query_string,
                "CONTENT_TYPE": request.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(given)),
                "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
                "REMOTE_USER": "someone",
                "REMOTE_ADDR": "127.0.0.1",
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        out, _ = await process.communicate(given)
        head, _, body = out.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(headers.pop("Status", "200").split()[0])
        return status, headers, body

    async def _broken(
        self, request: web.Request, fault: HostFault, headers: dict[str, str], body: bytes
    ) -> web.StreamResponse:
        answer = web.StreamResponse(headers={**headers, "Content-Length": str(len(body) + 1)})
        await answer.prepare(request)
        if fault.drip:
            with suppress(ConnectionError):
                for at in range(len(body)):
                    await answer.write(body[at : at + 1])
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self.stopping.wait(), 0.1)
            return answer
        await answer.write(body[: fault.after])
        if fault.then is not None:
            await fault.then()
        if request.transport is not None:
            request.transport.close()
        return answer


def _kind(address: str, body: bytes) -> str:
    if address.endswith("service=git-receive-pack"):
        return "begin-push"
    if address.endswith("/git-receive-pack"):
        return "push"
    if not address.endswith("/git-upload-pack"):
        return "refs"
    plain = gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body
    return "list" if b"command=ls-refs" in plain else "fetch"


@contextmanager
def serve(
    root: Path,
    *,
    token: str = "",
    user: str = "holdfast",
    tls: ssl.SSLContext | None = None,
    address: str = "127.0.0.1",
    enter: Callable[[], None] = lambda: None,
) -> Iterator[GitHost]:
    """Serve every repository below a folder until the block ends, on loopback unless told so.

    `enter` is called in the server's thread first, to move that to another network.
    """
    host = GitHost(root, token, user)
    loop = asyncio.new_event_loop()
    started = threading.Event()
    ended = asyncio.Event()

    async def run() -> None:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{tail:.*}", host.answer)
        runner = web.AppRunner(app, auto_decompress=False, access_log=None, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, address, 0, ssl_context=tls)
        await site.start()
        host.port = runner.addresses[0][1]
        started.set()
        await ended.wait()
        host.stopping.set()
        await runner.cleanup()

    def stop() -> None:
        host.stopping.set()
        ended.set()

    def work() -> None:
        enter()
        loop.run_until_complete(run())

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert started.wait(10), "the host did not start"
        yield host
    finally:
        loop.call_soon_threadsafe(stop)
        thread.join()
        loop.close()


def running_children(*words: str) -> list[int]:
    """Name the child processes of this process whose command line has all of these words."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            _, _, rest = stat.read_text().rpartition(")")
            line = (stat.parent / "cmdline").read_bytes().split(b"\0")
            if int(rest.split()[1]) == os.getpid() and {w.encode() for w in words} <= set(line):
                found.append(int(stat.parent.name))
    return found
