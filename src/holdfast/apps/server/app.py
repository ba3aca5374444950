"""One request from its match to its last byte: route, authorise, handle, answer, count.

A plain ASGI callable without middleware: the way of every request can be read top to bottom.
"""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from urllib.parse import unquote

from holdfast.apps.server import logs
from holdfast.apps.server.errors import (
    HttpError,
    cluster_refusal,
    internal_error,
    to_http_error,
)
from holdfast.apps.server.origins import KnownHosts, SharedOrigins
from holdfast.apps.server.protocol import MAX_SKIPPED_BODY, SEND_WHOLE_EXTENSION
from holdfast.apps.server.proxy import StreamInterrupted, interrupted_event
from holdfast.apps.server.request import (
    AsgiReceive,
    AsgiScope,
    AsgiSend,
    ClientDisconnected,
    Headers,
    HttpResponse,
    HttpStream,
    Request,
    declared_length,
    json_response,
)
from holdfast.apps.server.route_table import CLUSTER_ROUTES, EMBEDDED_ROUTES, GITOPS_ROUTES
from holdfast.apps.server.routes import ApiRoute, RouteCredential, RouteMatcher
from holdfast.apps.server.services import Services
from holdfast.apps.server.streams import StreamEnd, watch_client
from holdfast.core.errors import AuthError, HoldfastError, PermissionDenied
from holdfast.core.redact import quote_text, redact

_UNMATCHED = "(no such route)"
DATA_PLANE_PREFIXES = (b"/endpoint/", b"/p/")
"""Where the data plane begins, whose clients speak OpenAI's API."""
_NO_STORE = (b"cache-control", b"no-store")
_COMMON_HEADERS: Headers = [_NO_STORE, (b"x-content-type-options", b"nosniff")]


class HttpApplication:
    """The ASGI application of one server."""

    def __init__(self, services: Services) -> None:
        self._services = services
        routes, target = EMBEDDED_ROUTES, b"embedded"
        if services.review_service is not None:
            routes, target = GITOPS_ROUTES, b"gitops"
        elif services.cluster is not None:
            routes, target = CLUSTER_ROUTES, b"kubernetes"
        self._matcher = RouteMatcher(routes)
        self._hosts = KnownHosts(services.config)
        self._known_hosts = self._hosts.known
        origins = services.config.cors_origins
        self._origins = SharedOrigins(origins) if origins else None
        # So that a client can refuse what the target cannot do before it plans anything.
        self._always: Headers = [*_COMMON_HEADERS, (b"holdfast-target", target)]

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        services = self._services
        metrics = services.metrics
        began = perf_counter()
        metrics.in_flight += 1
        request: Request | None = None
        route: ApiRoute | None = None
        status = 499
        try:
            try:
                request = Request(scope, receive)
                if request.headers.get(b"host", b"") not in self._known_hosts:
                    self._hosts.check(request)
                answer: HttpResponse | HttpStream | None = None
                if self._origins is not None:
                    answer = self._answer_preflight(request)
                if answer is None:
                    route = self._match_route(request)
                    services.authorizer.authorize(request, route, services.clock.now())
                    answer = await route.handler(services, request)
            except (HttpError, HoldfastError) as error:
                answer = self._error_response(error, request)
            except ClientDisconnected:
                return
            except Exception:
                logs.event(
                    "request_failed", level=logging.ERROR, exc=True, route=_route_name(route)
                )
                answer = self._error_response(internal_error(), request)
            status = answer.status
            await self._send(answer, request, route, send)
        finally:
            metrics.in_flight -= 1
            spent = perf_counter() - began
            metrics.count_response(scope["method"], _route_name(route), status, spent)
            if logs.access_log.on:
                _log_access(scope, request, status, spent)

    def _answer_preflight(self, request: Request) -> HttpResponse | None:
        """Answer a browser's question before it sends. It comes without a credential."""
        if request.method != "OPTIONS" or self._origins is None:
            return None
        methods, _ = self._matcher.match(request.scope["raw_path"])
        return self._origins.answer_preflight(request, methods) if methods else None

    def _match_route(self, request: Request) -> ApiRoute:
        routes, request.params = self._matcher.match(request.scope["raw_path"])
        method = request.method
        route = routes.get(method)
        if route is None and method == "HEAD":
            route = routes.get("GET")
            if route is not None and route.streams:
                route = None
        if route is not None:
            return route
        if not routes:
            raise HttpError(404, "no_such_route", "There is nothing at this path.")
        allowed = ", ".join(sorted(routes)).encode()
        raise HttpError(
            405,
            "method_not_allowed",
            "This path does not take that method.",
            headers=[(b"allow", allowed)],
        )

    def _error_response(
        self, error: HttpError | HoldfastError, request: Request | None
    ) -> HttpResponse:
        if isinstance(error, HoldfastError):
            error = self._http_error(error)
        if error.status >= 500:
            logs.event("refused", level=logging.WARNING, status=error.status, code=error.code)
        request_id = request.id if request else ""
        headers = list(error.headers)
        if error.close or (request is not None and _has_long_body(request)):
            headers.append((b"connection", b"close"))
        endpoint = request is not None and request.scope["raw_path"].startswith(DATA_PLANE_PREFIXES)
        form = error.endpoint_form(request_id) if endpoint else error.form(request_id)
        return json_response(form, status=error.status, headers=headers)

    def _http_error(self, error: HoldfastError) -> HttpError:
        refused = isinstance(error, AuthError | PermissionDenied)
        if refused and self._services.cluster is not None:
            logs.event("cluster_refused", level=logging.ERROR, reason=error.happened)
            return cluster_refusal(error, whose="this server's")
        return to_http_error(error)

    async def _send(
        self,
        answer: HttpResponse | HttpStream,
        request: Request | None,
        route: ApiRoute | None,
        send: AsgiSend,
    ) -> None:
        headers = [*answer.headers, *self._always]
        if request is not None:
            headers.append((b"x-request-id", request.id.encode()))
            if self._origins is not None:
                headers += self._origins.headers(request)
        if isinstance(answer, HttpResponse):
            if answer.own_caching:
                headers.remove(_NO_STORE)
            if answer.status not in (204, 304):
                headers.append((b"content-length", b"%d" % len(answer.body)))
            if request is not None and _send_at_once(answer, headers, request, route):
                return
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": answer.body})
            return
        assert request is not None  # noqa: S101  # a handler gave the stream
        assert route is not None  # noqa: S101  # so there was a route
        await self._send_stream(answer, headers, request, route, send)

    async def _send_stream(
        self,
        answer: HttpStream,
        headers: Headers,
        request: Request,
        route: ApiRoute,
        send: AsgiSend,
    ) -> None:
        """Send the pieces as they come. An answer that breaks off is left incomplete."""
        control = route.credential is RouteCredential.CONTROL
        broken = False
        try:
            async with watch_client(self._services, request, until_closing=control) as watch:
                await send(
                    {"type": "http.response.start", "status": answer.status, "headers": headers}
                )
                try:
                    async for chunk in answer.chunks:
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                except StreamInterrupted:
                    broken = True
                except HoldfastError:
                    broken = True
                    logs.event("stream_failed", level=logging.ERROR, exc=True, route=route.path)
        finally:
            await asyncio.shield(_close_stream(answer))
        if broken or watch.ended is StreamEnd.LEFT:
            return
        last = b""
        if watch.ended is not None and not control:
            if (b"content-type", b"text/event-stream") not in headers:
                return
            last = interrupted_event("was ended by the server")
        await send({"type": "http.response.body", "body": last})


def _send_at_once(
    answer: HttpResponse, headers: Headers, request: Request, route: ApiRoute | None
) -> bool:
    """Send an answer that is entirely our own in one go, where the server can do that."""
    send_whole = request.scope.get("extensions", {}).get(SEND_WHOLE_EXTENSION)
    if send_whole is None or route is None or route.credential is RouteCredential.DATA:
        return False
    if (b"connection", b"close") in headers:
        return False
    lines = [part for name, value in headers for part in (name, b": ", value, b"\r\n")]
    return bool(send_whole(answer.status, b"".join(lines), answer.body))


def _has_long_body(request: Request) -> bool:
    """True when a body was announced that is not worth receiving only to keep a connection."""
    length = declared_length(request)
    return (
        length > MAX_SKIPPED_BODY if length is not None else b"transfer-encoding" in request.headers
    )


async def _close_stream(answer: HttpStream) -> None:
    close = getattr(answer.chunks, "aclose", None)
    if close is not None:
        await close()


def _route_name(route: ApiRoute | None) -> str:
    return route.path if route else _UNMATCHED


def _log_access(scope: AsgiScope, request: Request | None, status: int, spent: float) -> None:
    path = scope["raw_path"].decode("latin-1")
    token = request.token if request else None
    logs.access_log.line(
        request_id=request.id if request else "",
        method=scope["method"],
        # The parameters of a path that was answered are slugs; anything else may hold a secret.
        path=path if token and status < 400 and len(path) <= 512 else _redact_path(path[:512]),
        status=status,
        ms=round(spent * 1000, 3),
        token=token.id if token else "",
        peer=request.peer if request else "",
    )


def _redact_path(path: str) -> str:
    """Mask a path, also where what must not be seen is percent-encoded."""
    plain = unquote(path, errors="replace")
    return redact(path) if redact(plain) == plain else quote_text(plain, 512)
