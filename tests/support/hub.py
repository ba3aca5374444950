"""A model hub of ours for tests, with the shapes of the Hugging Face Hub's API. Not the Hub.

`/api/models/{repo}/revision/{revision}?blobs=true` lists a commit,
`/api/models/{repo}/commits/{revision}` the commits of a branch, page by page, and
`/{repo}/resolve/{commit}/{file}` gives a file: small ones directly, large ones ("LFS") by a
redirect to another host, which plays the content network. What goes
wrong is asked for by name. Also runs as a program, for a pod.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

SMALL = 1024


@dataclass
class ModelHub:
    """Repositories by name, commits by the hash of what is in them."""

    files: dict[str, bytes] = field(default_factory=dict)
    repo: str = "org/tiny"
    token: str = ""
    """Without it the repository is gated."""
    cut_after: int | None = None
    """Bytes of a large file after which the connection is closed, once."""
    always_cut: bool = False
    corrupt: bool = False
    """Large files come with another byte in them."""
    ignore_ranges: bool = False
    stall: float = 0.0
    failures: int = 0
    """So many requests are answered with 503 first."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers of every request."""
    cdn: str = ""
    past: list[str] = field(default_factory=list)
    """Earlier commits of `main`, the newest first."""
    page: int = 50
    """So many commits are listed at a time."""
    no_commits: bool = False
    """It does not list commits, as a mirror may not."""
    renamed: str = ""
    """What the repository was called before: requests for that are sent on."""

    failing: str = ""
    """Requests whose path has this are answered with 503."""
    stall_lists: float = 0.0
    """Seconds before anything is answered."""
    says: bytes = b""
    """What a list is answered with, in place of the list."""
    sends_to: str = ""
    """Where a list is redirected to."""

    def move(self, files: dict[str, bytes]) -> str:
        """Commit other files to `main`; returns what it was at before."""
        before = self.commit
        self.past.insert(0, before)
        self.files = files
        return before

    @property
    def commit(self) -> str:
        text = "".join(f"{path} {len(data)}" for path, data in sorted(self.files.items()))
        return hashlib.sha1(  # noqa: S324  # as Git does
            text.encode() + b"".join(self.files.values())
        ).hexdigest()

    def listing(self) -> dict[str, object]:
        siblings: list[dict[str, object]] = []
        for path, data in self.files.items():
            blob = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()  # noqa: S324
            each: dict[str, object] = {"rfilename": path, "size": len(data), "blobId": blob}
            if len(data) > SMALL:
                sha256 = hashlib.sha256(data).hexdigest()
                each["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": 134}
            siblings.append(each)
        return {"id": self.repo, "sha": self.commit, "siblings": siblings}

    def asked(self, part: str) -> list[dict[str, str]]:
        """The headers of the requests whose path has a part."""
        return [headers for path, headers in self.requests if part in path]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: ModelHub

    def log_message(self, *_: object) -> None:
        """Tests look at what came, not at a log."""

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.requests.append((path, {name.lower(): text for name, text in self.headers.items()}))
        if hub.failures:
            hub.failures -= 1
            return self._answer(503, b"")
        if hub.failing and hub.failing in path:
            return self._answer(503, b"")
        if hub.stall_lists:
            time.sleep(hub.stall_lists)
        if path.startswith("/cdn/"):
            return self._content(hub.files[path.removeprefix("/cdn/")], large=True)
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._answer(401, b"")
        if path.startswith(f"/api/models/{hub.repo}/revision/"):
            revision = path.rpartition("/revision/")[2]
            if revision not in ("main", hub.commit):
                return self._answer(404, b"")
            if hub.sends_to:
                return self._answer(302, b"", {"Location": hub.sends_to})
            return self._answer(200, hub.says or json.dumps(hub.listing()).encode())
        if hub.renamed and path.startswith(f"/api/models/{hub.renamed}/"):
            rest = self.path.removeprefix(f"/api/models/{hub.renamed}/")
            return self._answer(307, b"", {"Location": f"/api/models/{hub.repo}/{rest}"})
        if path == f"/api/models/{hub.repo}/commits/main" and not hub.no_commits:
            return self._commits()
        found = re.fullmatch(f"/{hub.repo}/resolve/{hub.commit}/(.*)", path)
        if found is None or found[1] not in hub.files:
            return self._answer(404, b"")
        data = hub.files[found[1]]
        if len(data) > SMALL:
            return self._answer(302, b"", {"Location": f"{hub.cdn}/cdn/{found[1]}"})
        return self._content(data, large=False)

    def _commits(self) -> None:
        hub, path = self.hub, urlsplit(self.path).path
        number = int((parse_qs(urlsplit(self.path).query).get("p") or ["0"])[0])
        every = [hub.commit, *hub.past]
        start = number * hub.page
        body = [{"id": each, "title": "x"} for each in every[start : start + hub.page]]
        more = start + hub.page < len(every)
        headers = {"Link": f'<{path}?p={number + 1}>; rel="next"'} if more else {}
        self._answer(200, json.dumps(body).encode(), headers)

    def _content(self, data: bytes, *, large: bool) -> None:
        hub, status, headers, start = self.hub, 200, {}, 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and not hub.ignore_ranges:
            status, start = 206, int(asked[1])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        if large and hub.corrupt:
            data = bytes([data[0] ^ 1]) + data[1:]
        if large and hub.stall:
            time.sleep(hub.stall)
        if large and hub.cut_after is not None:
            cut, hub.cut_after = hub.cut_after, hub.cut_after if hub.always_cut else None
            self._head(status, len(data) - start, headers)
            self.wfile.write(data[start : start + cut])
            self.close_connection = True
            return None
        return self._answer(status, data[start:], headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self._head(status, len(body), headers or {})
        self.wfile.write(body)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, text in {"Content-Length": str(length), **headers}.items():
            self.send_header(name, text)
        self.end_headers()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing: clients of these tests go away in the middle."""


def _serve(hub: ModelHub, host: str, port: int) -> ThreadingHTTPServer:
    server = _Server((host, port), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    return server


@contextmanager
def serve_hub(
    hub: ModelHub, *, address: str = "127.0.0.1", enter: Callable[[], None] = lambda: None
) -> Iterator[str]:
    """Serve it on two ports, the second of which plays the content network; gives the first.

    `enter` is called in the thread that opens them, to move that to another network.
    """

    def listen() -> list[ThreadingHTTPServer]:
        enter()
        return [_serve(hub, address, 0) for _ in range(2)]

    with ThreadPoolExecutor(1) as pool:
        servers = pool.submit(listen).result()
    threads = [threading.Thread(target=each.serve_forever, args=(0.02,)) for each in servers]
    for thread in threads:
        thread.start()
    front, content = (f"http://{address}:{each.server_address[1]}" for each in servers)
    hub.cdn = content
    try:
        yield front
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


def main(port: int, repo: str, directory: str) -> None:
    """Serve the files of a directory as one repository."""
    root = Path(directory)
    files = {
        str(each.relative_to(root)): each.read_bytes() for each in root.rglob("*") if each.is_file()
    }
    hub = ModelHub(files=files, repo=repo)
    _serve(hub, "", port).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
