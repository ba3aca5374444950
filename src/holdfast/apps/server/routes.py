"""The table of routes, as data, and the matcher that reads it.

Authorisation, OpenAPI and the authorisation test are all made from this table. Paths are
matched on the raw bytes: a parameter may hold letters, digits, dash, dot and underscore, so no
encoding, dot segment or doubled slash can lead to a route that was not written here.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote_to_bytes

from holdfast.adapters.store import TokenScope

if TYPE_CHECKING:
    from holdfast.apps.server.request import HttpResponse, HttpStream, Request
    from holdfast.apps.server.services import Services

Handler: TypeAlias = "Callable[[Services, Request], Awaitable[HttpResponse | HttpStream]]"


class RouteCredential(StrEnum):
    """What a route asks for."""

    OPEN = "open"
    CONTROL = "control"
    """A control token, `ik_sdk_…`."""
    DATA = "data"
    """A data key, `ik_live_…`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """One query parameter."""

    name: str
    type: type = str
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    """One method on one path."""

    method: str
    path: str
    handler: Handler
    credential: RouteCredential
    scope: TokenScope | None = None
    summary: str
    name: str = ""
    """What the description calls it; empty for the name of its handler, if that has one route."""
    body: type | None = None
    response: type | None = None
    """The form of a successful answer; None when it has no JSON body."""
    status: int = 200
    media: str = "application/json"
    query: tuple[QueryParameter, ...] = ()
    headers: tuple[str, ...] = ()
    """Request headers that mean something here."""
    errors: tuple[int, ...] = ()
    """Statuses beyond those that every route of its credential can give."""
    streams: bool = False

    @property
    def operation_id(self) -> str:
        """The name that generated clients give it: `listWorkloads`."""
        name: str = self.name or getattr(self.handler, "__name__", "")
        first, *more = name.split("_")
        return first + "".join(part.capitalize() for part in more)


_MAX_CACHED_PATHS = 4_096
_SEGMENT = re.compile(rb"[A-Za-z0-9._~-]{1,253}")
_TAIL = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:@%/-]{1,1024}")


class PathNode:
    """One step of a path: what may follow it, and what may be asked of it."""

    __slots__ = ("literal", "methods", "name", "param", "tail", "tail_name")

    def __init__(self) -> None:
        self.literal: dict[bytes, PathNode] = {}
        self.param: PathNode | None = None
        self.name = ""
        self.methods: dict[str, ApiRoute] = {}
        self.tail: dict[str, ApiRoute] = {}
        self.tail_name = ""


class RouteMatcher:
    """Finds the route of a raw path in as many steps as the path has segments."""

    def __init__(self, routes: Sequence[ApiRoute]) -> None:
        self._root = PathNode()
        self._seen: dict[bytes, tuple[dict[str, ApiRoute], dict[str, str]]] = {}
        for route in routes:
            node = self._root
            for part in route.path.split("/")[1:]:
                if part.endswith(":path}"):
                    node.tail[route.method] = route
                    node.tail_name = part[1:-6]
                    break
                if part.startswith("{"):
                    node.param = node.param or PathNode()
                    node = node.param
                    node.name = part[1:-1]
                else:
                    node = node.literal.setdefault(part.encode(), PathNode())
            else:
                node.methods[route.method] = route

    def match(self, raw_path: bytes) -> tuple[dict[str, ApiRoute], dict[str, str]]:
        """Return the routes of a path by method, and its parameters; empty when it has none."""
        found = self._seen.get(raw_path)
        if found is None:
            params: dict[str, str] = {}
            found = (self._walk(raw_path, params), params)
            if found[0] and len(raw_path) <= 256:
                if len(self._seen) >= _MAX_CACHED_PATHS:
                    self._seen.clear()
                self._seen[raw_path] = found
        return found

    def _walk(self, raw_path: bytes, params: dict[str, str]) -> dict[str, ApiRoute]:
        node = self._root
        parts = raw_path.split(b"/")
        for index in range(1, len(parts)):
            part = parts[index]
            child = node.literal.get(part)
            if child is None:
                if node.tail:
                    tail = b"/".join(parts[index:])
                    if not is_harmless_tail(tail):
                        return {}
                    params[node.tail_name] = tail.decode("ascii")
                    return node.tail
                child = node.param
                if child is None or not _SEGMENT.fullmatch(part) or part in (b".", b".."):
                    return {}
                params[child.name] = part.decode("ascii")
            node = child
        return node.methods


def is_harmless_tail(tail: bytes) -> bool:
    """True for a path that stays where it is put, however often it is decoded once."""
    if not _TAIL.fullmatch(tail):
        return False
    plain = unquote_to_bytes(tail).replace(b"\\", b"/")
    if b"\0" in plain or any(byte < 32 for byte in plain):
        return False
    return not any(part in (b"", b".", b"..") for part in plain.split(b"/")[:-1]) and (
        plain.rsplit(b"/", 1)[-1] not in (b".", b"..")
    )
