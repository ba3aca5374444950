"""Reads request bodies within bounds, and JSON without its ambiguities.

What two parsers could read in two ways is refused: repeated keys, numbers beyond 64 bits,
unpaired surrogates, deep nesting. Every problem of a form is reported, not only the first.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import cache
from typing import Literal, TypeVar, get_args, get_origin

import msgspec

from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.request import Receive, Request
from holdfast.core.check import unknown_problem
from holdfast.core.errors import MAX_PROBLEMS, Problem
from holdfast.core.tree import Tree

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
INLINE = 64 * 1024
"""Up to this size a body is read in the event loop, which takes a few milliseconds at most."""
_APART = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-bodies")


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
        raise too_large(limit)


async def read_body(request: Request, limit: int) -> bytes:
    """Read a whole body, and never more than the limit."""
    check_body(request, limit)
    parts: list[bytes] = []
    size = 0
    while True:
        part, more = await next_part(request.receive)
        size += len(part)
        if size > limit:
            raise too_large(limit)
        parts.append(part)
        if not more:
            request.body_size = size
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def next_part(receive: Receive) -> tuple[bytes, bool]:
    """Return the next piece of a body, and whether more follows."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    return message.get("body", b""), message.get("more_body", False)


class ClientLeft(Exception):
    """The client closed its connection before the answer; nobody is left to answer."""


def too_large(limit: int) -> HttpError:
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
    return await apart(request, lambda: form_of(_parsed(raw), form))


async def apart(request: Request, work: Callable[[], V]) -> V:
    """Do work that grows with the body: here when that is small, else away from the event loop.

    One thread for all: many large bodies at once wait for each other, and for nobody else.
    """
    if request.body_size <= INLINE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_APART, work)


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


def _parsed(raw: bytes) -> dict[str, Tree]:
    value = parse_json(raw)
    if not isinstance(value, dict):
        raise bad("The body must be one JSON object.")
    return value


def parse_json(raw: bytes) -> Tree:
    """Parse JSON strictly."""
    if raw.count(b",") > MAX_COMMAS:  # counted first: a parser holds everybody up meanwhile
        raise bad(f"The body has over {MAX_COMMAS} commas, so it holds too much. Send less.")
    try:
        value: Tree = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # The parser's own words may quote the input, so they are not repeated.
        reason = "it is nested too deep" if isinstance(error, RecursionError) else "it is malformed"
        raise bad(f"The body cannot be read as JSON: {reason}.") from None
    _check_depth_and_numbers(value)
    # The fast parser keeps the last of two equal keys without a word.
    json.loads(raw, object_pairs_hook=_unique)
    return value


def form_of(value: dict[str, Tree], form: type[T]) -> T:
    """Build a form, reporting all unknown, missing and ill-typed fields at once."""
    known = _fields(form)
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
            allowed = ", ".join(_allowed(kind))
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


def bad(message: str) -> HttpError:
    """The request makes no sense."""
    return HttpError(400, "bad_request", f"{message} Nothing was changed.")


@cache
def _fields(form: type[msgspec.Struct]) -> dict[str, tuple[object, bool]]:
    return {
        field.encode_name: (field.type, field.required) for field in msgspec.structs.fields(form)
    }


def _allowed(kind: object) -> list[str]:
    """Return the values that a type lists: those of an enum, a literal, or a list of them."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    if get_origin(kind) is Literal:
        return [str(each) for each in get_args(kind)]
    return [value for part in get_args(kind) for value in _allowed(part)]


def _check_depth_and_numbers(value: Tree) -> None:
    level: list[Tree] = [value]
    depth = 0
    while level:
        if depth > MAX_DEPTH:
            raise bad(f"The body is nested over {MAX_DEPTH} deep.")
        below: list[Tree] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, int) and not -(2**63) <= item < 2**63:
                raise bad("A number in the body is beyond 64 bits.")
        level = below
        depth += 1


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise bad("A key appears twice in one object of the body.")
    return found
