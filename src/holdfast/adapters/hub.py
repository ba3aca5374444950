"""Downloads a model from the Hugging Face Hub, or a server that speaks as it does, and checks it.

A directory is complete once its marker is there: it is written last, and lists every file with
its size and SHA-256. A file gets its name only after all of it was checked against what the Hub
says of it, so a download that was cut off, or is another's, never looks like a model. Run again,
it goes on where it was. `holdfast models` calls it, mostly in a Job of the operator's.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from holdfast.core.errors import (
    HoldfastError,
    NotFound,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.model import DEFAULT_HUB, files_digest
from holdfast.core.redact import Secret
from holdfast.core.service.model_cache import GGUF_NAME, MARKER
from holdfast.version import __version__

MARKER_HEAD = "# holdfast-model 1"
PARTS = ".holdfast-parts"
CHUNK = 4 * 2**20
MAX_LISTING = 64 * 2**20
MAX_FILES = 10_000
MAX_REDIRECTS = 5
OTHER_FORMATS = (
    "*.bin", "*.h5", "*.msgpack", "*.onnx", "*.ot", "*.pt", "*.pth", "onnx/*", "openvino/*",
)  # fmt: skip
"""The same weights once more, which nobody loads where they are there as safetensors."""
COPIES = ("original/*",)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """One file of a commit. Large ones have a SHA-256, the others the name of a Git blob."""

    path: str
    size: int
    sha256: str | None
    blob: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a revision stood for when the Hub was asked."""

    repo: str
    commit: str
    files: tuple[RemoteFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A complete directory, by its marker."""

    repo: str
    revision: str
    commit: str
    files: Mapping[str, tuple[int, str]]
    """Size and SHA-256 by path."""

    @property
    def digest(self) -> str:
        return files_digest({path: sha256 for path, (_, sha256) in self.files.items()})

    @property
    def size(self) -> int:
        return sum(size for size, _ in self.files.values())


class _Lfs(msgspec.Struct):
    sha256: str


class HubFile(msgspec.Struct):
    """A file as the Hub lists it."""

    rfilename: str
    size: int | None = None
    blobId: str | None = None  # noqa: N815  # the Hub's own name
    lfs: _Lfs | None = None


class HubListing(msgspec.Struct):
    """A commit as the Hub lists it."""

    sha: str
    siblings: list[HubFile]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Leave it to us: a token must not go along to another host."""


class Hub:
    """One server, asked with one token. Blocking, as a download is all that its process does."""

    def __init__(
        self, endpoint: str = DEFAULT_HUB, *, token: Secret | None = None, timeout: float = 60
    ) -> None:
        """`timeout` is for how long nothing may come."""
        self.endpoint = endpoint.rstrip("/")
        self._token = token
        self._timeout = timeout
        self._opener = urllib.request.build_opener(_NoRedirects)

    def find(self, repo: str, revision: str) -> Snapshot:
        """Ask what a revision stands for now."""
        path = f"/api/models/{quote(repo)}/revision/{quote(revision, safe='')}?blobs=true"
        what = f"{repo} at {revision}"
        with self._get(f"{self.endpoint}{path}", what) as response:
            body = _read(response, MAX_LISTING + 1)
        if len(body) > MAX_LISTING:
            raise ValidationError(f"The Hub's list of {what} is over {MAX_LISTING} bytes.")
        try:
            listing = msgspec.json.decode(body, type=HubListing)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise TargetUnavailable(
                f"The Hub's list of {what} cannot be read: {error}.",
                hint="Check HF_ENDPOINT.",
            ) from None
        if len(listing.siblings) > MAX_FILES:
            raise ValidationError(f"{what} has over {MAX_FILES} files.")
        files = tuple(remote_file(each) for each in listing.siblings)
        return Snapshot(repo=repo, commit=listing.sha, files=files)

    @contextmanager
    def open(
        self, found: Snapshot, file: RemoteFile, start: int
    ) -> Iterator[tuple[IO[bytes], int]]:
        """Give a file's content and where it begins: at `start`, or at 0 where that is refused."""
        url = f"{self.endpoint}/{quote(found.repo)}/resolve/{found.commit}/{quote(file.path)}"
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._get(url, file.path, headers) as response:
            resumed = response.status == 206
            if resumed and not str(response.headers.get("Content-Range", "")).startswith(
                f"bytes {start}-"
            ):
                raise TargetUnavailable(f"{file.path}: another part was sent than was asked for.")
            yield response, start if resumed else 0

    @contextmanager
    def _get(
        self, url: str, what: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        for _ in range(MAX_REDIRECTS + 1):
            request = urllib.request.Request(url, headers=self._headers(url, headers or {}))  # noqa: S310
            try:
                with self._opener.open(request, timeout=self._timeout) as response:
                    yield response
                return
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in (301, 302, 303, 307, 308):
                        raise _refusal(error.code, what) from None
                    url = _redirect(url, error.headers.get("Location", ""), what)
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                raise TargetUnavailable(f"{what}: {reason or type(error).__name__}.") from None
        raise TargetUnavailable(f"{what}: it was redirected more than {MAX_REDIRECTS} times.")

    def _headers(self, url: str, given: Mapping[str, str]) -> dict[str, str]:
        headers = {"User-Agent": f"holdfast/{__version__}", "Accept-Encoding": "identity", **given}
        if self._token is not None and _origin(url) == _origin(self.endpoint):
            headers["Authorization"] = f"Bearer {self._token.reveal()}"
        return headers


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _redirect(url: str, location: str, what: str) -> str:
    target = urljoin(url, location)
    scheme = urlsplit(target).scheme
    if scheme not in ("http", "https") or (scheme == "http" and urlsplit(url).scheme == "https"):
        raise ValidationError(f"{what}: it was redirected to an address that is not https.")
    return target


def _refusal(status: int, what: str) -> HoldfastError:
    if status in (401, 403):
        return PermissionDenied(
            f"The Hub refused {what} (HTTP {status}): it does not exist, is private, or its terms "
            "were not accepted.",
            hint="Check the name, and give HF_TOKEN of an account that may read it.",
        )
    if status == 404:
        return NotFound(f"The Hub has no {what}.", hint="Check the name and the revision.")
    return TargetUnavailable(f"{what}: the Hub answered HTTP {status}.")


def remote_file(sibling: HubFile) -> RemoteFile:
    """Read a file of a list. Raises ValidationError for one that cannot be kept or checked."""
    path = sibling.rfilename
    parts = path.split("/")
    if (
        not all(part not in ("", ".", "..") for part in parts)
        or "\\" in path
        or not path.isprintable()
        or parts[0] in (MARKER, PARTS)
    ):
        raise ValidationError(f"The Hub lists a file that cannot be kept: {path!r}.")
    if sibling.size is None or sibling.size < 0 or not (sibling.lfs or sibling.blobId):
        raise ValidationError(f"The Hub says neither size nor hash of {path}.")
    return RemoteFile(
        path=path,
        size=sibling.size,
        sha256=sibling.lfs.sha256 if sibling.lfs else None,
        blob=None if sibling.lfs else sibling.blobId,
    )


def select_files(files: Sequence[RemoteFile], gguf: str | None) -> list[RemoteFile]:
    """Choose what a backend loads.

    With `gguf` one file of that quantisation, as llama.cpp chooses it; else everything but copies
    of weights that are there as safetensors, and what begins with a dot.
    """
    if gguf is not None:
        return [_select_gguf(files, gguf)]
    seen = [each for each in files if not any(p.startswith(".") for p in each.path.split("/"))]
    left_out: tuple[str, ...] = COPIES
    if any(each.path.endswith(".safetensors") for each in seen):
        left_out = (*COPIES, *OTHER_FORMATS)
    kept = [e for e in seen if not any(fnmatchcase(e.path, pattern) for pattern in left_out)]
    if not kept:
        raise ValidationError("The repository has no files.")
    return kept


def _select_gguf(files: Sequence[RemoteFile], tag: str) -> RemoteFile:
    models = sorted(
        (each for each in files if each.path.endswith(".gguf") and "mmproj" not in each.path),
        key=lambda each: each.path,
    )
    wanted = tag or "Q4_K_M"
    found = [each for each in models if wanted.lower() in each.path.lower()]
    chosen = found or ([] if tag else models)
    if not chosen:
        raise NotFound(
            f"The repository has no GGUF file of {wanted}.",
            hint="Name one that it has behind the model: org/name:Q8_0.",
        )
    if len(chosen) > 1 and "-of-" in chosen[0].path:
        raise ValidationError(
            f"{chosen[0].path} is one part of several, and a cache holds one GGUF file.",
            hint="Merge it with llama-gguf-split, or choose a smaller quantisation.",
        )
    return chosen[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A model that is to be in a directory."""

    repo: str
    revision: str
    directory: Path
    gguf: str | None = None
    """What is quantised how, for llama.cpp; empty for the usual one."""
    digest: str | None = None
    """What all of it must be."""
    attempts: int = 5
    pause: float = 2.0
    workers: int = 4

    def run(self, hub: Hub, say: Callable[[str], None] = lambda text: None) -> LocalModel:
        """Download what is missing, check all of it, and only then say that it is complete."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with _lock(self.directory):
            held = read_marker(self.directory)
            if held is not None and held.repo == self.repo and held.revision == self.revision:
                check_sizes(self.directory, held)
                return self._checked(held)
            found = self._try(lambda: hub.find(self.repo, self.revision))
            files = select_files(found.files, self.gguf)
            self._check_space(files)
            say(f"{self.repo} at {found.commit}: {len(files)} files")
            with ThreadPoolExecutor(self.workers) as pool:
                hashes = list(pool.map(lambda file: self._fetch(hub, found, file), files))
            kept = {file.path: (file.size, sha) for file, sha in zip(files, hashes, strict=True)}
            if self.gguf is not None:
                _link(self.directory / GGUF_NAME, files[0].path)
            model = LocalModel(
                repo=self.repo, revision=self.revision, commit=found.commit, files=kept
            )
            self._checked(model)
            _write_marker(self.directory, model)
            shutil.rmtree(self.directory / PARTS, ignore_errors=True)
            return model

    def _checked(self, model: LocalModel) -> LocalModel:
        if self.digest is not None and model.digest != self.digest:
            raise ValidationError(
                f"{self.repo} at {model.commit} is {model.digest}, and {self.digest} is declared.",
                hint="Find out which of the two is meant before you change the declaration.",
            )
        return model

    def _check_space(self, files: Sequence[RemoteFile]) -> None:
        there = (self.directory / each.path for each in files)
        missing = sum(each.size for each in files) - sum(
            p.stat().st_size for p in there if p.exists()
        )
        parts = self.directory / PARTS
        missing -= sum(each.stat().st_size for each in parts.glob("*")) if parts.exists() else 0
        free = shutil.disk_usage(self.directory).free
        if missing > free:
            raise ValidationError(
                f"{missing} bytes are still to be downloaded, and {free} are free.",
                hint="Give the cache a larger size.",
            )

    def _fetch(self, hub: Hub, found: Snapshot, file: RemoteFile) -> str:
        """Have one file, whole and checked; returns its SHA-256."""
        target = self.directory / file.path
        if target.exists():
            hashes = _Hashes(file)
            with target.open("rb") as held:
                while chunk := held.read(CHUNK):
                    hashes.update(chunk)
            if not hashes.problem():
                return hashes.sha256
            target.unlink()
        part = self.directory / PARTS / hashlib.sha256(file.path.encode()).hexdigest()
        part.parent.mkdir(exist_ok=True)
        sha256 = self._try(lambda: _fetch_part(hub, found, file, part))
        target.parent.mkdir(parents=True, exist_ok=True)
        part.chmod(0o644)
        part.replace(target)
        _sync(target.parent)
        return sha256

    def _try(self, action: Callable[[], T]) -> T:
        """Repeat what another time may do."""
        for attempt in range(self.attempts):
            try:
                return action()
            except TargetUnavailable:
                if attempt + 1 == self.attempts:
                    raise
                time.sleep(self.pause * 2**attempt)
        raise AssertionError("at least one attempt is made")


class _Hashes:
    """What a file is, while it is read."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._size = 0
        self._sha256 = hashlib.sha256()
        self._blob = hashlib.sha1(usedforsecurity=False)
        self._blob.update(f"blob {file.size}\0".encode())

    def update(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._sha256.update(chunk)
        if self._file.blob is not None:
            self._blob.update(chunk)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def problem(self) -> str:
        """Say how it differs from what the Hub says of it; empty when it does not."""
        file = self._file
        if self._size != file.size:
            return f"{self._size} of {file.size} bytes came"
        if file.sha256 is not None and self.sha256 != file.sha256:
            return f"its SHA-256 is {self.sha256}, and the Hub says {file.sha256}"
        if file.blob is not None and self._blob.hexdigest() != file.blob:
            return f"its Git hash is {self._blob.hexdigest()}, and the Hub says {file.blob}"
        return ""


def _fetch_part(hub: Hub, found: Snapshot, file: RemoteFile, part: Path) -> str:
    """Go on with a part, and check the whole; a part that is wrong is thrown away."""
    hashes = _Hashes(file)
    held = part.stat().st_size if part.exists() else 0
    if held >= file.size:
        held = 0
    with hub.open(found, file, held) as (content, start), part.open("ab") as out:
        if start:
            with part.open("rb") as before:
                while chunk := before.read(CHUNK):
                    hashes.update(chunk)
        else:
            out.truncate(0)
        left = file.size - start
        while left >= 0 and (chunk := _read(content, min(CHUNK, left + 1))):
            left -= len(chunk)
            hashes.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    problem = hashes.problem()
    if problem:
        if part.stat().st_size >= file.size:
            part.unlink()  # whole, and not what it should be: to go on with it is no use
        raise TargetUnavailable(f"{file.path}: {problem}.")
    return hashes.sha256


def _read(content: IO[bytes], size: int) -> bytes:
    try:
        return content.read(size)
    except http.client.IncompleteRead as cut:
        return cut.partial
    except (OSError, http.client.HTTPException) as error:
        raise TargetUnavailable(
            f"The download was cut off: {error or type(error).__name__}."
        ) from None


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """One at a time: a second pod of one Job waits for the first."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _link(link: Path, target: str) -> None:
    if target == link.name:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_marker(directory: Path, model: LocalModel) -> None:
    lines = [MARKER_HEAD, f"# repo {model.repo}", f"# revision {model.revision}"]
    lines += [f"# commit {model.commit}", f"# digest {model.digest}"]
    lines += [f"{size} {sha256} {path}" for path, (size, sha256) in sorted(model.files.items())]
    unfinished = directory / f"{MARKER}.new"
    with unfinished.open("w") as out:
        out.write("\n".join(lines) + "\n")
        out.flush()
        os.fsync(out.fileno())
    unfinished.replace(directory / MARKER)
    _sync(directory)


def read_marker(directory: Path) -> LocalModel | None:
    """Read what a directory holds; None where no download of it was ever completed."""
    try:
        lines = (directory / MARKER).read_text().splitlines()
    except FileNotFoundError:
        return None
    head = dict(line.removeprefix("# ").split(" ", 1) for line in lines if line.startswith("# "))
    rows = [line.split(" ", 2) for line in lines if not line.startswith("#")]
    return LocalModel(
        repo=head["repo"],
        revision=head["revision"],
        commit=head["commit"],
        files={path: (int(size), sha256) for size, sha256, path in rows},
    )


def check_sizes(directory: Path, model: LocalModel) -> None:
    """Raise where a file is missing or of another size than the marker says."""
    for path, (size, _) in model.files.items():
        file = directory / path
        there = file.stat().st_size if file.exists() else 0
        if there != size:
            raise ValidationError(
                f"{path} has {there} bytes, and {size} were downloaded.",
                hint=f"Somebody changed it. Delete {MARKER} in its directory, and run it again.",
            )


def directory_digest(directory: Path) -> str:
    """Name the files of a directory by what is in them, without what begins with a dot."""
    hashes = {}
    for file in sorted(directory.rglob("*")):
        path = file.relative_to(directory)
        if file.is_symlink() or not file.is_file() or any(p.startswith(".") for p in path.parts):
            continue
        with file.open("rb") as held:
            hashes[path.as_posix()] = hashlib.file_digest(held, "sha256").hexdigest()
    return files_digest(hashes)
