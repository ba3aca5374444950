"""What a server is told when it starts. Built by the command line and by tests."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.core.errors import ConfigurationError
from holdfast.core.page_links import normalize_base_url, parse_origin

MEBIBYTE = 1024 * 1024
WORKLOAD_URL = "http://{name}-svc.{namespace}.svc:8000"
"""The Service that the operator keeps, as pods of the cluster reach it: where requests go when
EndpointSlices may not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """How much one client may ask of the server. Times are in seconds, sizes in bytes."""

    control_body: int = 4 * MEBIBYTE
    data_body: int = 64 * MEBIBYTE
    replay_body: int = MEBIBYTE
    """Up to this size a request to a workload is kept, so that another replica can have it."""
    routed_body: int = 8 * MEBIBYTE
    """Of a request whose body names its workload, so that it has to be read first."""
    head_bytes: int = 32 * 1024
    head_fields: int = 100
    url_bytes: int = 8 * 1024
    connections: int = 2_000
    """Open at once. At the limit the longest idle one makes room for a new one."""
    peer_connections: int = 1_000
    """Of one address, unless it is loopback: a proxy on this machine stands for many clients."""
    loopback_connections: int = 100
    """Of `connections`, kept for this machine."""
    probe_connections: int = 50
    """Beyond `connections`, for probes alone, when there is nothing idle to close."""
    head_time: float = 10.0
    """From the first byte of a request to the end of its head."""
    body_time: float = 30.0
    """For a whole body, and one second more for each `body_rate` bytes that came."""
    body_rate: int = 64 * 1024
    write_time: float = 30.0
    """How long a client may leave what was sent to it unread."""
    write_buffer: int = 256 * 1024
    keep_alive: float = 30.0
    answer_time: float = 600.0
    """How long a workload may take to begin its answer."""
    idle_time: float = 120.0
    """How long a workload may be silent in the middle of its answer."""
    connect_time: float = 5.0
    rate: float | None = None
    """Requests a second for each credential; None is no limit on loopback, 200 beyond."""
    failure_rate: float = 10.0
    """Refused credentials a second for each peer address, after a burst of ten times that."""
    sign_in_rate: float = 5.0
    """Sign-ins a second of each token, person and CI job, after a burst of ten times that."""
    recheck_time: float = 2.0
    """How often an open stream asks whether its credential is still good."""
    tls_check_time: float = 5.0
    """How often the certificate's files are looked at."""
    grace: float = 15.0
    """How long requests under way may take to end once the server was told to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLocation:
    """A cluster that keeps the workloads, as `kubernetes://CONTEXT/NAMESPACE` names it."""

    context: str = ""
    namespace: str = ""
    """Empty: each project has the namespace of its name."""
    workload_url: str | None = None
    """Where a workload answers, with `{name}` and `{namespace}` to be filled in. None: its pods
    are asked, and its Service where they may not be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where to listen, what to keep, and whether to run workloads."""

    db: Path
    host: str = "127.0.0.1"
    port: int = 8400
    """0 lets the system choose; `on_ready` says what it chose."""
    run: bool | None = None
    """Start local processes. None: only when listening on loopback."""
    shared_runner: bool = False
    """Run the workloads of several projects, which can then read each other's secrets."""
    home: Path | None = None
    """Where the runner keeps its logs and records; beside the database unless given."""
    secrets_dir: Path | None = None
    cluster: ClusterLocation | None = None
    """Where workloads are kept instead of here; then nothing is started on this machine."""
    accept_rollback: bool = False
    leave_running: bool = False
    """Leave the workloads' processes alive when the server stops."""
    log_format: str = "json"
    log_level: str = "info"
    limits: ServerLimits = field(default_factory=ServerLimits)
    base_url: str = ""
    """Where browsers reach this server, such as `https://holdfast.example.com`, behind a proxy or
    not. Empty: at the address they asked for."""
    people: Path | None = None
    """The people file: issuers at which people and CI jobs are known, and what they may do."""
    tls_cert: Path | None = None
    """A PEM certificate with its chain, and beside it its key: then the server speaks TLS."""
    tls_key: Path | None = None
    cors_origins: tuple[str, ...] = ()
    """Origins whose scripts may read what the API and the data plane answer; never with cookies."""
    on_ready: Callable[[str], None] | None = None
    """Called once with the server's URL when it accepts connections."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", normalize_base_url(self.base_url))
        origins = []
        for text in self.cors_origins:
            origin = parse_origin(text)
            if origin is None:
                raise ConfigurationError(
                    "An origin for CORS is not one: it has a scheme, a host and, where needed, a "
                    "port, and nothing else. There is no wildcard.",
                    hint="Give --cors-origin as https://app.example.com, once for each origin.",
                )
            origins.append(origin)
        object.__setattr__(self, "cors_origins", tuple(origins))

    @property
    def loopback(self) -> bool:
        """True when nobody beyond this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def secure(self) -> bool:
        """True when browsers reach this server by TLS."""
        return self.tls_cert is not None or self.base_url.startswith("https://")

    @property
    def runs(self) -> bool:
        """Whether this server starts processes."""
        if self.cluster is not None:
            return False
        return self.loopback if self.run is None else self.run

    @property
    def one_project(self) -> bool:
        """Whether the processes that this server starts are of one project alone."""
        return self.runs and not self.shared_runner

    @property
    def rate(self) -> float | None:
        """Requests a second for each credential, or None for no limit."""
        if self.limits.rate is not None:
            return self.limits.rate
        return None if self.loopback else 200.0
