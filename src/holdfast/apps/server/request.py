"""One request as handlers see it, and the answers they give."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from holdfast.apps.server.errors import HttpError
from holdfast.core.errors import MAX_PROBLEMS, Problem
from holdfast.core.live import Writer
from holdfast.core.people import actor_text
from holdfast.core.redact import credential_in
from holdfast.core.rules import unknown_problem
from holdfast.core.tree import Tree

if TYPE_CHECKING:
    from holdfast.adapters.store import SignedInSession, Token

# Any: these three are ASGI's own shapes.
AsgiScope: TypeAlias = MutableMapping[str, Any]
AsgiReceive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

JSON_CONTENT_TYPE = (b"content-type", b"application/json")
encode_json = msgspec.json.Encoder().encode

_SAFE_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_MAX_QUERY_FIELDS = 32
PAGE_MANAGER = "holdfast-ui"
"""The writer of what is done on the page, whatever the browser calls itself."""
_PROCESS_PREFIX = secrets.token_hex(4)
"""Sets the request ids of this process apart from those of others."""
_REQUEST_COUNT = itertools.count(1)


@dataclass(slots=True, kw_only=True)
class HttpResponse:
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    headers: Headers = field(default_factory=list)
    own_caching: bool = False
    """True where its headers say how it may be kept. Anything else is kept by nobody."""


@dataclass(slots=True, kw_only=True)
class HttpStream:
    """An answer that goes on: its pieces are sent as they come, and `chunks` is always closed."""

    status: int = 200
    headers: Headers = field(default_factory=list)
    chunks: AsyncIterator[bytes]


def check_one_of(text: str, known: Sequence[str], name: str) -> None:
    """Refuse a parameter that has none of the values that mean something."""
    if text not in known:
        shown = ", ".join(each for each in known if each)
        raise HttpError(400, "invalid", f"The parameter {name} is one of {shown}.")


def json_response(
    form: object, *, status: int = 200, headers: Headers | None = None
) -> HttpResponse:
    """Answer with a JSON body."""
    return HttpResponse(
        status=status, body=encode_json(form), headers=[JSON_CONTENT_TYPE, *(headers or ())]
    )


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
        "session",
        "token",
    )

    def __init__(self, scope: AsgiScope, receive: AsgiReceive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.params: Mapping[str, str] = {}
        self.token: Token | None = None
        self.session: SignedInSession | None = None
        """Set where a cookie brought the credential."""
        self.body_size = 0
        """How many bytes of a body were read."""
        self._request_id: str | None = None
        self._query: dict[str, str] | None = None
        self.headers: dict[bytes, bytes] = {}
        headers = self.headers
        for name, value in scope["headers"]:
            if name in headers:
                if name in _SINGLE_HEADERS:
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
            sane = (
                given
                and len(given) <= 64
                and _SAFE_CHARACTERS.issuperset(given)
                and not credential_in(given)
            )
            self._request_id = given if sane else f"{_PROCESS_PREFIX}{next(_REQUEST_COUNT):08x}"
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
            self._query = _parse_query(raw) if raw else {}
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
        manager = product if product and _SAFE_CHARACTERS.issuperset(product) else "unknown"
        return Writer(
            manager=PAGE_MANAGER if self.session else manager,
            actor=self.writer_name,
            operation=operation,
        )

    @property
    def writer_name(self) -> str | None:
        """The name on the token, or the person where one is signed in."""
        if self.token is None:
            return None
        if self.session is not None and self.session.person is not None:
            return actor_text(self.token.name, person=self.session.person)
        return self.token.name


_SINGLE_HEADERS = frozenset(
    (
        b"authorization host content-length content-type content-encoding idempotency-key"
        b" if-match if-none-match transfer-encoding user-agent"
    ).split()
)


def _parse_query(raw: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_MAX_QUERY_FIELDS,
        )
    except ValueError as error:
        raise HttpError(400, "bad_request", "The query cannot be read.") from error
    query = dict(pairs)
    if len(query) != len(pairs):
        raise HttpError(400, "bad_request", "A query parameter was given twice.")
    return query


MAX_DEPTH = 64
MAX_COMMAS = 100_000
"""In one body; about as many values as it can hold."""
SERVER_OWNED = frozenset(
    "id uid project_id project_slug workload_slug created_at updated_at generation version"
    " status writers drift declared declared_by request_id".split()
)
"""Fields of an answer that no request may set."""

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")
MAX_INLINE_BODY = 64 * 1024
"""Up to this size a body is read in the event loop, which takes a few milliseconds at most."""
_LARGE_BODY_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-bodies")


def declared_length(request: Request) -> int | None:
    """Return the length the client announced, or None when it did not."""
    text = request.headers.get(b"content-length")
    return int(text) if text is not None and text.isdigit() else None


def check_body(request: Request, limit: int) -> None:
    """Refuse, before reading anything, a body that is compressed or announced as too large."""
    coding = request.header(b"content-encoding")
    if coding and coding.lower() != "identity":
        raise HttpError(
            415,
            "unsupported_media_type",
            "Compressed request bodies are not accepted. Send the body as it is.",
            close=True,
        )
    length = declared_length(request)
    if length is not None and length > limit:
        raise body_too_large(limit)


async def read_body(request: Request, limit: int) -> bytes:
    """Read a whole body, and never more than the limit."""
    check_body(request, limit)
    parts: list[bytes] = []
    size = 0
    while True:
        part, more = await receive_part(request.receive)
        size += len(part)
        if size > limit:
            raise body_too_large(limit)
        parts.append(part)
        if not more:
            request.body_size = size
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def receive_part(receive: AsgiReceive) -> tuple[bytes, bool]:
    """Return the next piece of a body, and whether more follows."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message.get("body", b""), message.get("more_body", False)


class ClientDisconnected(Exception):
    """The client closed its connection before the answer; nobody is left to answer."""


def body_too_large(limit: int) -> HttpError:
    """The body is over the limit."""
    return HttpError(
        413,
        "too_large",
        f"The body is over {limit} bytes. Nothing was changed. Send less at once.",
        close=True,
    )


async def read_form(request: Request, form: type[T], limit: int) -> T:
    """Read a JSON body as one of our forms."""
    raw = await _read_json(request, limit)
    return await run_off_loop(request, lambda: decode_form(_parse_object(raw), form))


async def run_off_loop(request: Request, work: Callable[[], V]) -> V:
    """Do work that grows with the body: here when that is small, else away from the event loop.

    One thread for all: many large bodies at once wait for each other, and for nobody else.
    """
    if request.body_size <= MAX_INLINE_BODY:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_LARGE_BODY_THREAD, work)


async def _read_json(request: Request, limit: int) -> bytes:
    kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpError(
            415,
            "unsupported_media_type",
            "The body must be JSON, and say so: Content-Type: application/json.",
            close=True,
        )
    return await read_body(request, limit)


def _parse_object(raw: bytes) -> dict[str, Tree]:
    value = parse_json(raw)
    if not isinstance(value, dict):
        raise bad_request("The body must be one JSON object.")
    return value


def parse_json(raw: bytes) -> Tree:
    """Parse JSON strictly."""
    if raw.count(b",") > MAX_COMMAS:  # counted first: a parser holds everybody up meanwhile
        raise bad_request(
            f"The body has over {MAX_COMMAS} commas, so it holds too much. Send less."
        )
    try:
        value: Tree = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # The parser's own words may quote the input, so they are not repeated.
        reason = "it is nested too deep" if isinstance(error, RecursionError) else "it is malformed"
        raise bad_request(f"The body cannot be read as JSON: {reason}.") from None
    _check_depth_and_numbers(value)
    # The fast parser keeps the last of two equal keys without a word.
    json.loads(raw, object_pairs_hook=_reject_duplicate_keys)
    return value


def decode_form(value: dict[str, Tree], form: type[T]) -> T:
    """Build a form, reporting all unknown, missing and ill-typed fields at once."""
    known = _form_fields(form)
    names = sorted(known)
    unknown = [name for name in value if name not in known]
    problems = [
        Problem(field=name[:60], reason="it is set by the server.", fix="Leave it out.")
        if name in SERVER_OWNED
        else unknown_problem(name[:60], names)
        for name in unknown[:MAX_PROBLEMS]
    ]
    more = len(unknown) - len(problems)
    for name, (kind, required) in known.items():
        if name not in value:
            if required:
                problems.append(Problem(field=name, reason="it is missing.", fix="Add it."))
            continue
        try:
            msgspec.convert(value[name], kind)
        except msgspec.ValidationError as error:
            allowed = ", ".join(_allowed_values(kind))
            fix = f"Use {allowed}." if allowed else "Correct its type."
            problems.append(Problem(field=name, reason=f"{error}.", fix=fix))
    if problems:
        found = len(problems) + more
        count = "1 problem" if found == 1 else f"{found} problems"
        raise HttpError(
            400,
            "invalid",
            f"Input was refused. The body has {count}. Nothing was changed.",
            problems=problems,
        )
    return msgspec.convert(value, form)


def bad_request(message: str) -> HttpError:
    """The request makes no sense."""
    return HttpError(400, "bad_request", f"{message} Nothing was changed.")


@cache
def _form_fields(form: type[msgspec.Struct]) -> dict[str, tuple[object, bool]]:
    return {
        field.encode_name: (field.type, field.required) for field in msgspec.structs.fields(form)
    }


def _allowed_values(kind: object) -> list[str]:
    """Return the values that a type lists: those of an enum, a literal, or a list of them."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    if get_origin(kind) is Literal:
        return [str(each) for each in get_args(kind)]
    return [value for part in get_args(kind) for value in _allowed_values(part)]


def _check_depth_and_numbers(value: Tree) -> None:
    level: list[Tree] = [value]
    depth = 0
    while level:
        if depth > MAX_DEPTH:
            raise bad_request(f"The body is nested over {MAX_DEPTH} deep.")
        below: list[Tree] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, int) and not -(2**63) <= item < 2**63:
                raise bad_request("A number in the body is beyond 64 bits.")
        level = below
        depth += 1


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise bad_request("A key appears twice in one object of the body.")
    return found
