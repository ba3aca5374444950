"""Asks a model hub which commit a branch is at, for the operator.

Few at a time and within bounds, without a token: the operator reads no Secrets. Redirects are
followed within the hub alone, as it sends where a repository was renamed to. Downloads are another
matter (`adapters/hub.py`): they run in a process of their own and may block.
"""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from holdfast.adapters.hub import HubListing, remote_file, select_files
from holdfast.adapters.outbound import NoResponse, OutboundClient, OutboundResponse, retry_delay
from holdfast.core.errors import HoldfastError
from holdfast.core.model import files_digest, is_commit
from holdfast.core.service.model_head import HeadQuestion, HubHead, HubProblem

_TIMEOUT = 20.0
_PARALLEL = 4
_MAX_BYTES = 16 * 2**20
_MAX_REDIRECTS = 3
_MAX_PAGES = 10
"""Of commits, which the Hub gives fifty at a time."""
_MAX_REMEMBERED = 10_000


class _Commit(msgspec.Struct):
    id: str


class HubClient:
    """Implements `reconcile.service.model_head.HubApi` over HTTP. Close it when done."""

    def __init__(self, *, timeout: float = _TIMEOUT) -> None:
        self._client = OutboundClient(
            timeout=timeout, max_bytes=_MAX_BYTES, use_proxy=True, keep_alive=False
        )
        self._turn = asyncio.Semaphore(_PARALLEL)
        self._on_branch: set[tuple[str, str, str, str]] = set()
        """Pins that were found on their branch, which they stay on."""

    async def find_head(self, question: HeadQuestion) -> HubHead | HubProblem:
        """Ask which commit a branch is at; see the port."""
        async with self._turn:
            return await self._find_head(question)

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._client.aclose()

    async def _find_head(self, question: HeadQuestion) -> HubHead | HubProblem:
        what = f"{question.repo} at {question.branch}"
        path = f"/revision/{quote(question.branch, safe='')}"
        path += "?blobs=true" if question.digest else ""
        response = await self._get(f"{_api(question)}{path}")
        if isinstance(response, NoResponse):
            return HubProblem(message=f"{question.endpoint} {response.reason}.")
        if response.status != 200:
            return _problem(question, response, what)
        try:
            listing = msgspec.json.decode(response.body, type=HubListing)
        except (msgspec.ValidationError, msgspec.DecodeError):
            listing = None
        if listing is None or not is_commit(listing.sha):
            message = f"{question.endpoint} answered about {what} with something else."
            return HubProblem(message=message)
        has_pin: bool | None = None
        if question.pin is not None:
            found = question.pin == listing.sha or await self._has_pin(question, question.pin)
            if isinstance(found, HubProblem):
                return found
            has_pin = found
        digest = _digest(listing, question) if question.digest else None
        return HubHead(commit=listing.sha, has_pin=has_pin, digest=digest)

    async def _has_pin(self, question: HeadQuestion, pin: str) -> bool | HubProblem | None:
        """Say whether a branch has a commit; None where the hub does not list commits."""
        key = (question.endpoint, question.repo, question.branch, pin)
        if key in self._on_branch:
            return True
        url = f"{_api(question)}/commits/{quote(question.branch, safe='')}"
        for _ in range(_MAX_PAGES):
            response = await self._get(url)
            if isinstance(response, NoResponse):
                return HubProblem(message=f"{question.endpoint} {response.reason}.")
            if response.status != 200:
                if response.status in (429, 500, 502, 503, 504):
                    return _problem(question, response, f"the commits of {question.repo}")
                return None
            try:
                commits = msgspec.json.decode(response.body, type=list[_Commit])
            except (msgspec.ValidationError, msgspec.DecodeError):
                return None
            if any(each.id == pin for each in commits):
                if len(self._on_branch) >= _MAX_REMEMBERED:
                    self._on_branch.clear()
                self._on_branch.add(key)
                return True
            following = _next_page(response, url)
            if not following:
                return False
            url = following
        return None

    async def _get(self, url: str) -> OutboundResponse | NoResponse:
        """Ask, and ask again where the hub itself sends to."""
        start = url
        for _ in range(_MAX_REDIRECTS + 1):
            response = await self._client.send("GET", url)
            if isinstance(response, NoResponse) or response.status not in (301, 302, 307, 308):
                return response
            url = urljoin(url, response.headers.get("location", ""))
            if _origin(url) != _origin(start):
                return NoResponse(reason="sends to another host, which is not asked")
        return NoResponse(reason=f"sent elsewhere more than {_MAX_REDIRECTS} times")


def _api(question: HeadQuestion) -> str:
    return f"{question.endpoint}/api/models/{quote(question.repo)}"


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _next_page(response: OutboundResponse, url: str) -> str:
    found = re.search(r'<([^<>]+)>\s*;\s*rel="?next"?', response.headers.get("link", ""))
    following = urljoin(url, found[1]) if found else ""
    return following if _origin(following) == _origin(url) else ""


def _problem(question: HeadQuestion, response: OutboundResponse, what: str) -> HubProblem:
    """Say what a status means. What the body says is not told: it may be anybody's."""
    if response.status in (401, 403, 404):
        message = (
            f"{question.endpoint} does not tell about {what} without a token "
            f"(HTTP {response.status}): it does not exist, is private, or is gated."
        )
        return HubProblem(message=message, refused=True)
    message = f"{question.endpoint} answered about {what} with HTTP {response.status}."
    return HubProblem(message=message, retry_after=retry_delay(response.headers))


def _digest(listing: HubListing, question: HeadQuestion) -> str | None:
    """Name the files of a commit by what is in them; None where the list has not all hashes.

    It has the SHA-256 of large files alone.
    """
    try:
        files = select_files([remote_file(each) for each in listing.siblings], question.gguf)
    except HoldfastError:
        return None
    hashes = {each.path: each.sha256 for each in files if each.sha256 is not None}
    return files_digest(hashes) if len(hashes) == len(files) else None
