"""Starts a server and stops it in order. The command line calls `serve`; tests call `Server`.

Stopping: no new connections, event streams end, requests under way get their time, then the
workloads' processes are stopped and the store is closed. A second signal ends the process at
once; what was acknowledged is safe, and processes left behind are taken up at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import uvicorn
import uvloop

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.runner import RunEvent, Runner
from holdfast.adapters.store import OpenMode, Store
from holdfast.apps.server import logs
from holdfast.apps.server.app import HttpApplication
from holdfast.apps.server.authorize import Authorizer, StoreCache, TokenBuckets
from holdfast.apps.server.cluster_routes import ClusterWorkloads
from holdfast.apps.server.config import ServerConfig
from holdfast.apps.server.identities import Identities
from holdfast.apps.server.live_events import EventHub
from holdfast.apps.server.metrics import ServerMetrics
from holdfast.apps.server.page import PageFiles
from holdfast.apps.server.pods import ReplicaConnector
from holdfast.apps.server.protocol import make_protocol
from holdfast.apps.server.services import Services
from holdfast.apps.server.sessions import SignInLinks
from holdfast.apps.server.supervisor import ServerSupervisor
from holdfast.apps.server.tls import ServerTls
from holdfast.core.errors import ConfigurationError

BACKLOG = 1_024
_MAX_OPEN_FILES = 16_384
Companion = Callable[[Services, Callable[[], None]], contextlib.AbstractAsyncContextManager[None]]
"""Something that runs for as long as the server does: entered before it listens, left after the
last request and before the store is closed. It may set what it offers in the services, ends in
order once `closing` is set, and may ask for the end of the server by calling its argument."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(config: ServerConfig) -> None:
    """Serve until a signal comes. Raises our errors when the server cannot start."""
    logs.configure(form=config.log_format, level=config.log_level)
    _raise_open_file_limit()
    Server(config).run()


def _raise_open_file_limit() -> None:
    """Ask for as many open files as we may have: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Server:
    """One server. `stop` may be called from any thread."""

    def __init__(self, config: ServerConfig, *, companion: Companion | None = None) -> None:
        self._config = config
        self._companion = companion
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: _Listener | None = None
        self._asked = False
        """True once it was asked to stop, also before it listens."""

    def run(self) -> None:
        """Serve in this thread until `stop`, or a signal where this is the main thread."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run())

    def stop(self) -> None:
        """Ask the server to stop in order."""
        self._asked = True
        if self._loop is not None and self._listener is not None:
            with contextlib.suppress(RuntimeError):  # it has stopped meanwhile
                self._loop.call_soon_threadsafe(self._listener.finish)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        config = self._config
        tls = _open_tls(config)
        async with _open_services(config) as services, contextlib.AsyncExitStack() as stack:
            bound = stack.enter_context(_bind_socket(config))
            services.url = _url(bound, tls=tls is not None)
            services.store.announce(services.url, one_project=config.one_project)
            _check_one_project(services)
            await services.supervisor.start()
            stack.push_async_callback(services.supervisor.stop, leave_running=config.leave_running)
            if services.cluster is not None:
                projects = services.store.projects
                await stack.enter_async_context(
                    services.cluster.give_signs(lambda: [each.slug for each in projects()])
                )
            if self._companion is not None:
                await stack.enter_async_context(self._companion(services, self.stop))
            if tls is not None:
                stack.callback(asyncio.create_task(tls.watch(config.limits.tls_check_time)).cancel)
            self._listener = _Listener(services, tls)
            logs.event("listening", url=services.url, runner=config.runs)
            if self._asked:
                self._listener.finish()
            await self._listener.serve(sockets=[bound])
            logs.event("stopping")
        logs.event("stopped")


class _Listener(uvicorn.Server):
    """The HTTP side, with our signals and our order of stopping."""

    def __init__(self, services: Services, tls: ServerTls | None) -> None:
        self._services = services
        limits = services.config.limits
        config = uvicorn.Config(
            HttpApplication(services),
            http=make_protocol(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(limits.keep_alive),
            timeout_graceful_shutdown=int(limits.grace),
            backlog=BACKLOG,
        )
        self._tls = tls
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        if self._tls is None:
            await super().startup(sockets)
        else:
            await self._listen_by_tls(sockets or [], self._tls)
        self._services.ready = True
        if self._services.config.on_ready is not None:
            self._services.config.on_ready(self._services.url)

    async def _listen_by_tls(self, sockets: list[socket.socket], tls: ServerTls) -> None:
        """Do as uvicorn does, and do not wait long for a handshake: it is counted nowhere yet."""
        await self.lifespan.startup()
        config = self.config

        def make_connection() -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn calls it
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        self.servers = [
            await asyncio.get_running_loop().create_server(
                make_connection,
                sock=each,
                ssl=tls.context,
                backlog=config.backlog,
                ssl_handshake_timeout=self._services.config.limits.head_time,
            )
            for each in sockets
        ]
        self.started = True

    def finish(self) -> None:
        """Stop in order; asked for a second time, stop at once."""
        if self.should_exit:
            os._exit(1)
        self.should_exit = True
        self._services.closing.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals while serving and while stopping, without raising them anew."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self.finish)
        # They stay ours: the processes are still to be stopped when this block ends.
        yield


@contextlib.asynccontextmanager
async def _open_services(config: ServerConfig) -> AsyncIterator[Services]:
    clock = SystemClock()
    identities = Identities.open(config.people, clock)
    store = Store.open(
        config.db, mode=OpenMode.SERVER, clock=clock, accept_rollback=config.accept_rollback
    )
    with contextlib.closing(store):
        limits, metrics, hub, cache = (
            config.limits,
            ServerMetrics(),
            EventHub(base_url=config.base_url),
            StoreCache(store),
        )
        reports: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        runner = _make_runner(config, clock, reports.put_nowait) if config.runs else None
        supervisor = ServerSupervisor(store, runner, reports, hub, metrics)
        if config.cluster is None:
            metrics.watch_phases(supervisor.phases)
        rate = config.rate
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_time)
        connector = ReplicaConnector(limit=0, keepalive_timeout=15)
        async with (
            contextlib.aclosing(identities),
            _open_cluster(config, connector, metrics, clock) as cluster,
            aiohttp.ClientSession(
                connector=connector,
                timeout=timeout,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session,
        ):
            yield Services(
                config=config,
                clock=clock,
                store=store,
                cache=cache,
                authorizer=Authorizer(
                    store,
                    cache,
                    config=config,
                    person_grants=identities.grants,
                    sign_ins=TokenBuckets(
                        rate=limits.sign_in_rate,
                        burst=limits.sign_in_rate * 10,
                        monotonic=clock.monotonic,
                    ),
                    failures=TokenBuckets(
                        rate=limits.failure_rate,
                        burst=limits.failure_rate * 10,
                        monotonic=clock.monotonic,
                    ),
                    rates=TokenBuckets(rate=rate, burst=rate * 2, monotonic=clock.monotonic)
                    if rate
                    else None,
                ),
                metrics=metrics,
                hub=hub,
                supervisor=supervisor,
                session=session,
                cluster=cluster,
                identities=identities,
                sign_in_links=SignInLinks(clock.monotonic),
                closing=asyncio.Event(),
                page=PageFiles.open(),
            )


@contextlib.asynccontextmanager
async def _open_cluster(
    config: ServerConfig, connector: ReplicaConnector, metrics: ServerMetrics, clock: SystemClock
) -> AsyncIterator[ClusterWorkloads | None]:
    if config.cluster is None:
        yield None
        return
    opened = ClusterWorkloads.open(config.cluster, connector, metrics, clock)
    async with contextlib.aclosing(opened) as cluster:
        yield cluster


def _make_runner(
    config: ServerConfig, clock: SystemClock, report: Callable[[RunEvent], None]
) -> Runner:
    return Runner(
        home=config.home or _runner_home(config.db),
        secrets=config.secrets_dir or config.db.parent / "secrets",
        clock=clock,
        report=report,
    )


def _check_one_project(services: Services) -> None:
    """Refuse to run workloads of projects that were not said to trust each other.

    After the announcement: whoever makes a project from now on is refused by the store.
    """
    projects = [each.slug for each in services.store.projects()]
    if services.config.one_project and len(projects) > 1:
        names = ", ".join(projects[:5]) + (", …" if len(projects) > 5 else "")
        raise ConfigurationError(
            f"This store has {len(projects)} projects ({names}), and this server would run their "
            "workloads as one user: each could read the others' secrets, store and tokens.",
            hint="Say --shared-runner if all projects trust each other, --no-run if this server "
            "need not run workloads, or give each project a server and a store of its own.",
        )


def _runner_home(db: Path) -> Path:
    """Beside the real file; beside a link to it where an earlier server had it there."""
    named, real = Path(f"{db}.run"), Path(f"{db.resolve()}.run")
    return named if named.exists() else real


@contextlib.contextmanager
def _bind_socket(config: ServerConfig) -> Iterator[socket.socket]:
    try:
        found = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(found[0], found[1])
    except OSError as error:
        raise _bind_error(config, error) from error
    with bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(found[4])
        except OSError as error:
            raise _bind_error(config, error) from error
        bound.setblocking(False)
        yield bound


def _bind_error(config: ServerConfig, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The server cannot listen on {config.host} port {config.port}: {error.strerror}.",
        hint="Choose another --host or --port, or stop what uses it.",
    )


def _open_tls(config: ServerConfig) -> ServerTls | None:
    if config.tls_cert is None and config.tls_key is None:
        return None
    if config.tls_cert is None or config.tls_key is None:
        raise ConfigurationError(
            "TLS needs a certificate and its key.", hint="Give both: --tls-cert and --tls-key."
        )
    return ServerTls(config.tls_cert, config.tls_key)


def _url(bound: socket.socket, *, tls: bool) -> str:
    host, port = bound.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
