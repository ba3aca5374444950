"""One request as handlers see it, and the answers they give."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from holdfast.apps.server.errors import HttpError
from holdfast.core.errors import MAX_PROBLEMS, Problem
from holdfast.core.live import Writer
from holdfast.core.redact import credential_in

if TYPE_CHECKING:
    from holdfast.adapters.store import Token

# Any: these three are ASGI's own shapes.
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
encode = msgspec.json.Encoder().encode

_ID = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_MAX_QUERY = 32
_BOOT = secrets.token_hex(4)
"""Sets the request ids of this process apart from those of others."""
_COUNT = itertools.count(1)


@dataclass(slots=True, kw_only=True)
class Answer:
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    headers: Headers = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Stream:
    """An answer that goes on: its pieces are sent as they come, and `chunks` is always closed."""

    status: int = 200
    headers: Headers = field(default_factory=list)
    chunks: AsyncIterator[bytes]


def json_answer(form: object, *, status: int = 200, headers: Headers | None = None) -> Answer:
    """Answer with a JSON body."""
    return Answer(status=status, body=encode(form), headers=[JSON, *(headers or ())])


class Request:
    """One request. `params` come from the raw path, which is what was authorised."""

    __slots__ = (
        "_query",
        "_request_id",
        "body_size",
        "headers",
        "method",
        "params",
        "receive",
        "scope",
        "token",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.params: Mapping[str, str] = {}
        self.token: Token | None = None
        self.body_size = 0
        """How many bytes of a body were read."""
        self._request_id: str | None = None
        self._query: dict[str, str] | None = None
        self.headers: dict[bytes, bytes] = {}
        headers = self.headers
        for name, value in scope["headers"]:
            if name in headers:
                if name in _ONCE:
                    raise HttpError(
                        400, "bad_request", f"The header {name.decode()} was given twice."
                    )
                headers[name] += b", " + value
            else:
                headers[name] = value

    @property
    def id(self) -> str:
        """The caller's X-Request-Id where it is harmless, else one of ours."""
        if self._request_id is None:
            given = self.headers.get(b"x-request-id", b"").decode("latin-1")
            sane = given and len(given) <= 64 and _ID.issuperset(given) and not credential_in(given)
            self._request_id = given if sane else f"{_BOOT}{next(_COUNT):08x}"
        return self._request_id

    @property
    def peer(self) -> str:
        """The address at the other end of the socket. Forwarding headers are not believed."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters; each may be given once."""
        if self._query is None:
            raw: bytes = self.scope["query_string"]
            self._query = _parsed_query(raw) if raw else {}
        return self._query

    def header(self, name: bytes) -> str | None:
        """Return a header as text."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    def known_query(self, *names: str) -> Mapping[str, str]:
        """Return the query, refusing parameters that mean nothing here."""
        unknown = [name for name in self.query if name not in names]
        if unknown:
            known = ", ".join(names) or "none"
            raise HttpError(
                400,
                "invalid",
                "The query has parameters that mean nothing here.",
                problems=[
                    Problem(
                        field=name[:60],
                        reason="there is no such parameter.",
                        fix=f"Known parameters: {known}.",
                    )
                    for name in unknown[:MAX_PROBLEMS]
                ],
            )
        return self.query

    def number(self, name: str, *, default: int, high: int, low: int = 1) -> int:
        """Read a query parameter that is a number within bounds."""
        text = self.query.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 19 and low <= int(text) <= high):
            problem = Problem(
                field=name,
                reason="it is not a number within bounds.",
                fix=f"Give a number from {low} to {high}.",
            )
            raise HttpError(400, "invalid", "The query was refused.", problems=[problem])
        return int(text)

    def writer(self, operation: str) -> Writer:
        """Say who is writing: the tool by its User-Agent, and the credential by its name."""
        agent = self.header(b"user-agent") or ""
        product = agent.split("/", 1)[0].split(" ", 1)[0][:64]
        manager = product if product and _ID.issuperset(product) else "unknown"
        return Writer(
            manager=manager,
            actor=self.token.name if self.token else None,
            operation=operation,
        )


_ONCE = frozenset(
    (
        b"authorization host content-length content-type content-encoding idempotency-key"
        b" if-match if-none-match transfer-encoding user-agent"
    ).split()
)


def _parsed_query(raw: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_MAX_QUERY,
        )
    except ValueError as error:
        raise HttpError(400, "bad_request", "The query cannot be read.") from error
    query = dict(pairs)
    if len(query) != len(pairs):
        raise HttpError(400, "bad_request", "A query parameter was given twice.")
    return query
