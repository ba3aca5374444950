"""The page: files of the repository, scripts without their comments.

Headers confine what they may do. From a clone they are read where they are (`web/`, and the
client's source beside it), and an edit shows at the next reload. A wheel has the same files in the
package. There is no build step.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.page_scripts import strip_comments
from holdfast.apps.server.request import Headers, HttpResponse, Request
from holdfast.apps.server.services import Services

INDEX = "index.html"
_MEDIA_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".json": b"application/json",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
    ".txt": b"text/plain; charset=utf-8",
}
"""What is served; a file of another type is as good as absent."""
_SMALLEST_PACKED = 512
_NAME = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*")
"""Of a file: no encoded character, no dot in front, so nothing that leads out of its folder."""
_UNSERVED_FOLDERS = frozenset({"node_modules", "tests"})

PAGE_HEADERS: Headers = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; "
        b"require-trusted-types-for 'script'; trusted-types holdfast",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_ABSENT = (
    b"This installation has no page: its files are missing. The HTTP API answers as usual; "
    b"/openapi.json describes it.\n"
)


@dataclass(frozen=True, kw_only=True)
class PageFile:
    """One file, as it was when it was read; a script without its comments."""

    body: bytes
    media: bytes
    stamp: tuple[int, int] = (0, 0)
    """When it was changed, and its size."""

    @cached_property
    def tag(self) -> bytes:
        """A strong entity tag, without its quotes."""
        return hashlib.sha256(self.body).hexdigest()[:32].encode()

    @cached_property
    def packed(self) -> bytes | None:
        """The body as gzip; None where that would save nothing."""
        if self.media == _MEDIA_TYPES[".png"] or len(self.body) < _SMALLEST_PACKED:
            return None
        packed = gzip.compress(self.body, mtime=0)
        return packed if len(packed) < len(self.body) else None


class PageFiles:
    """The files below `/ui/assets/`, kept in memory. Used from the event loop only."""

    def __init__(self, roots: Sequence[tuple[str, Path]], *, edited: bool) -> None:
        self._roots = roots
        """Folders by the prefix of the names that they hold; the longest prefix first."""
        self._edited = edited
        """True where files may change while they are served: each is looked at every time."""
        self._files: dict[str, PageFile] = {}
        if not edited:
            for prefix, folder in reversed(roots):
                for path in sorted(folder.rglob("*")):
                    name = prefix + path.relative_to(folder).as_posix()
                    if (found := self._read(name)) is not None:
                        self._files[name] = found

    @classmethod
    def open(cls) -> PageFiles:
        """Find the files: in the package, or in the clone that the package is part of."""
        package = Path(__file__).resolve().parents[2]
        if (package / "web").is_dir():
            return cls([("", package / "web")], edited=False)
        clone = package.parent.parent
        client = clone / "clients" / "javascript" / "src"
        return cls([("client/", client), ("", clone / "web")], edited=True)

    def find(self, name: str) -> PageFile | None:
        """Return a file by its name below `/ui/assets/`."""
        return self._read(name) if self._edited else self._files.get(name)

    def _read(self, name: str) -> PageFile | None:
        path = self._path_of(name)
        if path is None:
            return None
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            known = self._files.get(name)
            if known is not None and known.stamp == stamp:
                return known
            body = path.read_bytes()
        except OSError:
            return None
        if path.suffix == ".js":
            script = strip_comments(body.decode(errors="surrogateescape"))
            body = script.encode(errors="surrogateescape")
        found = PageFile(body=body, media=_MEDIA_TYPES[path.suffix], stamp=stamp)
        self._files[name] = found
        return found

    def _path_of(self, name: str) -> Path | None:
        if not _NAME.fullmatch(name) or not _UNSERVED_FOLDERS.isdisjoint(name.split("/")):
            return None
        prefix, folder = next(each for each in self._roots if name.startswith(each[0]))
        path = (folder / name.removeprefix(prefix)).resolve()
        served = path.suffix in _MEDIA_TYPES and path.is_relative_to(folder.resolve())
        return path if served and path.is_file() else None


async def redirect_to_page(services: Services, request: Request) -> HttpResponse:
    """Lead a browser to the page."""
    headers = [*PAGE_HEADERS, (b"location", b"/ui/")]
    return HttpResponse(status=302, headers=headers, own_caching=True)


async def get_page(services: Services, request: Request) -> HttpResponse:
    """Give the page. What it shows is in the rest of the path, which only the page reads."""
    found = services.page.find(INDEX)
    if found is None:
        headers = [*PAGE_HEADERS, (b"content-type", b"text/plain; charset=utf-8")]
        return HttpResponse(status=404, body=_ABSENT, headers=headers)
    return _file_response(request, found)


async def get_page_file(services: Services, request: Request) -> HttpResponse:
    """Give one of the page's files, or 304 when the browser has it already."""
    found = services.page.find(request.params["path"])
    if found is None:
        raise HttpError(404, "not_found", "The page has no such file.", headers=PAGE_HEADERS)
    return _file_response(request, found)


def _file_response(request: Request, file: PageFile) -> HttpResponse:
    packed = file.packed if _accepts_gzip(request) else None
    tag = b'"%s%s"' % (file.tag, b"" if packed is None else b"-gzip")
    headers = [
        *PAGE_HEADERS,
        (b"cache-control", b"no-cache"),
        (b"vary", b"accept-encoding"),
        (b"etag", tag),
    ]
    if _has_tag(request, tag):
        return HttpResponse(status=304, headers=headers, own_caching=True)
    headers.append((b"content-type", file.media))
    if packed is not None:
        headers.append((b"content-encoding", b"gzip"))
    return HttpResponse(body=packed or file.body, headers=headers, own_caching=True)


def _has_tag(request: Request, tag: bytes) -> bool:
    """Compare weakly: a proxy that packs an answer weakens its tag."""
    sent = request.headers.get(b"if-none-match", b"")
    return any(each.strip().removeprefix(b"W/") in (tag, b"*") for each in sent.split(b","))


def _accepts_gzip(request: Request) -> bool:
    for each in request.headers.get(b"accept-encoding", b"").lower().split(b","):
        coding, _, weight = each.partition(b";")
        if coding.strip() in (b"gzip", b"*"):
            return weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
