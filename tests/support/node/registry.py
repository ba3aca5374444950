"""A read-only image registry for the real node, over plain HTTP, out of archives of tools/oci.py.

A tag is a file, `DIRECTORY/NAME/TAG`, that names an archive: who writes another archive into it
moves the tag. Run inside the node's network namespace as
`python -m tests.support.node.registry ADDRESS PORT DIRECTORY`.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tools.oci import MANIFEST, read_image


def set_tag(directory: Path, name: str, tag: str, archive: Path) -> None:
    """Let a tag name an archive from now on."""
    file = directory / name / tag
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{tag}.new")
    partial.write_text(str(archive))
    partial.replace(file)


def serve(address: str, port: int, directory: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.split("?")[0].strip("/")
            if path == "v2":
                self._send(b"{}", "application/json", "")
                return
            name, kind, reference = path.removeprefix("v2/").rsplit("/", 2)
            for archive in _archives(directory / name, kind, reference):
                if kind == "manifests":
                    digest = read_image(archive).digest
                    if reference.startswith("sha256:") and reference != digest:
                        continue
                    self._send(_blob(archive, digest) or b"", MANIFEST, digest)
                    return
                if blob := _blob(archive, reference):
                    self._send(blob, "application/octet-stream", reference)
                    return
            self._send(b'{"errors":[{"code":"NOT_FOUND"}]}', "application/json", "", status=404)

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, body: bytes, content_type: str, digest: str, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            if digest:
                self.send_header("Docker-Content-Digest", digest)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            print(format % arguments, flush=True)

    ThreadingHTTPServer((address, port), Handler).serve_forever()


def _archives(repository: Path, kind: str, reference: str) -> Iterator[Path]:
    """Give the archives that may hold it: the one with the tag, or all of the repository."""
    if kind == "manifests" and not reference.startswith("sha256:"):
        files = [repository / reference]
    else:
        files = sorted(repository.glob("[!.]*"))
    for file in files:
        if file.is_file():
            yield Path(file.read_text())


def _blob(archive: Path, digest: str) -> bytes | None:
    with tarfile.open(archive) as tar:
        try:
            file = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
        except KeyError:
            return None
        return file.read() if file else None


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
