"""Sends requests to one server, repeats them where that is safe, and keeps the deadline.

Used by the remote target and by the data plane. It decides when to repeat a request; what a
response means is for `responses`.
"""

from __future__ import annotations

import copy
import logging
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from holdfast.adapters.http.responses import Response, response_error
from holdfast.adapters.http.transports import (
    NEVER,
    Deadline,
    HttpRequest,
    HttpTransport,
    StreamingResponse,
    TransportError,
)
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    ApiError,
    HoldfastError,
    TargetUnavailable,
)
from holdfast.core.quantity import format_seconds
from holdfast.core.redact import Secret
from holdfast.reconcile.ports import Clock

RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
MAX_RETRY_AFTER = 60.0
"""Longest wait that a server may ask for."""
FIRST_DELAY = 0.25
MAX_DELAY = 8.0


def back_off(attempt: int, chance: float) -> float:
    """Return seconds to wait before another attempt: doubling, with jitter from `chance`."""
    return min(MAX_DELAY, FIRST_DELAY * 2.0**attempt) * (0.5 + chance / 2)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return what `Retry-After` asks for, at most the cap; None when it makes no sense.

    A date is read against the `Date` of the same response, so our own clock does not matter.
    """
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,12}", text):
        return min(float(text), MAX_RETRY_AFTER)
    try:
        wait = (
            parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
        ).total_seconds()
    except (TypeError, ValueError):
        return None
    return min(wait, MAX_RETRY_AFTER) if wait >= 0 else None


BODY_LIMIT = 32 * 1024 * 1024
"""Largest response that is read into memory."""

log = logging.getLogger("holdfast")


class HttpClient:
    """One server, one credential."""

    def __init__(
        self,
        base_url: str,
        *,
        token: Secret | None,
        user_agent: str,
        transport: HttpTransport,
        clock: Clock,
        retries: int,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.clock = clock
        self._token = token
        self._user_agent = user_agent
        self._transport = transport
        self._retries = retries
        self._chance = chance

    def __repr__(self) -> str:
        return f"Transport({self.base_url!r})"

    def with_token(self, token: Secret) -> HttpClient:
        """Return a client over the same connections with another credential."""
        other = copy.copy(self)
        other._token = token
        return other

    async def request(
        self,
        method: str,
        path: str,
        *,
        deadline: Deadline,
        body: bytes | None = None,
        key: str | None = None,
        limit: int = BODY_LIMIT,
    ) -> Response:
        """Return the server's response, whatever its status.

        A GET, and a write under an idempotency key, is repeated when the response was lost or
        says that trying again may help; any other write only when it surely was not begun.
        """
        safe = method == "GET" or key is not None
        lost = False
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                response = await self._once(method, path, deadline, body, key, limit, lost)
            except TransportError as error:
                lost = lost or error.sent
                given_up = last or error.untrusted or deadline.left() <= 0
                if given_up or (error.sent and not safe):
                    raise self._no_response(method, deadline, error, lost) from error
                wait, why = back_off(attempt, self._chance()), error.why
            else:
                again = response.status in RETRIED_STATUSES if safe else response.turned_away
                if last or not again:
                    return response
                asked = retry_after(response.headers)
                wait = back_off(attempt, self._chance()) if asked is None else asked
                if wait >= deadline.left():
                    return response
                lost = lost or response.changed == OUTCOME_UNKNOWN
                why = f"status {response.status}"
            log.debug("request_repeated method=%s wait=%.2f why=%s", method, wait, why)
            await self.clock.sleep(max(0.0, min(wait, deadline.left())))
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        deadline: Deadline,
        body: bytes | None = None,
        accept: str = "text/event-stream",
        idle: float = NEVER,
        errors: Callable[[Response], HoldfastError] = response_error,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream of bytes. Raises the error of any other response; never repeats."""
        try:
            incoming = await self._send(method, path, deadline, body, accept=accept, idle=idle)
        except TransportError as error:
            raise self._no_response(method, deadline, error, error.sent) from error
        try:
            if incoming.status != 200:
                raise errors(await self._read(incoming, method, path, BODY_LIMIT, lost=False))
            kind = incoming.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != accept:
                raise ApiError(
                    f"{self._where(path)} answered with {kind[:60] or 'an untyped body'} where "
                    f"{accept} was asked for.",
                    status=incoming.status,
                    reason="unreadable",
                )
            async with aclosing(self._chunks(incoming, method, deadline)) as chunks:
                yield chunks
        finally:
            await incoming.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def _once(
        self,
        method: str,
        path: str,
        deadline: Deadline,
        body: bytes | None,
        key: str | None,
        limit: int,
        lost: bool,
    ) -> Response:
        incoming = await self._send(method, path, deadline, body, key=key)
        try:
            return await self._read(incoming, method, path, limit, lost=lost)
        finally:
            await incoming.aclose()

    async def _send(
        self,
        method: str,
        path: str,
        deadline: Deadline,
        body: bytes | None,
        *,
        key: str | None = None,
        accept: str = "application/json",
        idle: float = NEVER,
    ) -> StreamingResponse:
        headers = _HiddenHeaders(
            {
                "User-Agent": self._user_agent,
                "Accept": accept,
                # A compressed response could unpack to any size; responses are small as they are.
                "Accept-Encoding": "identity",
            }
        )
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.reveal()}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        url = self.base_url + path
        return await self._transport.send(
            HttpRequest(
                method=method, url=url, headers=headers, body=body, deadline=deadline, idle=idle
            )
        )

    async def _read(
        self, incoming: StreamingResponse, method: str, path: str, limit: int, *, lost: bool
    ) -> Response:
        parts: list[bytes] = []
        size = 0
        async for chunk in incoming.chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                raise ApiError(
                    f"{self._where(path)} answered with over {limit >> 20} MiB.",
                    status=incoming.status,
                    reason="too_large",
                    changed=NOTHING_CHANGED if method == "GET" else OUTCOME_UNKNOWN,
                )
        return Response(
            method=method,
            where=self._where(path),
            status=incoming.status,
            headers=dict(incoming.headers),
            body=b"".join(parts),
            lost=lost,
        )

    async def _chunks(
        self, incoming: StreamingResponse, method: str, deadline: Deadline
    ) -> AsyncGenerator[bytes]:
        try:
            async for chunk in incoming.chunks:
                yield chunk
        except TransportError as error:
            raise self._no_response(method, deadline, error, True) from error

    def _no_response(
        self, method: str, deadline: Deadline, error: TransportError, lost: bool
    ) -> TargetUnavailable:
        unknown = lost and method != "GET"
        if deadline.left() <= 0:
            happened = (
                f"{self._where('')} gave no full answer in {format_seconds(deadline.seconds)}."
            )
        elif error.timed_out:
            happened = f"{self._where('')} stopped answering."
        else:
            happened = f"{self._where('')} could not be asked: {error.why}."
        return TargetUnavailable(
            happened,
            changed=OUTCOME_UNKNOWN if unknown else NOTHING_CHANGED,
            hint="Repeat the call: it finds out what is there before it writes."
            if unknown
            else "Check the address and the certificate; SSL_CERT_FILE names one of your own."
            if error.untrusted
            else "Check the address and that the server runs, or raise the timeout.",
        )

    def _where(self, path: str) -> str:
        return self.base_url + urlsplit(path).path


class _HiddenHeaders(dict[str, str]):
    """What is sent. Shown by name alone: a traceback with local values would show the token."""

    def __repr__(self) -> str:
        return f"<headers {', '.join(self)}>"
