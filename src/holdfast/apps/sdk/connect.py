"""Turns settings into a target, loading only the adapter that is needed."""

from __future__ import annotations

import platform
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.adapters.clock import BlockingClock, SystemClock
from holdfast.apps.sdk.settings import ConnectionSettings
from holdfast.core.errors import ConfigurationError, requires_extra
from holdfast.core.live import Writer
from holdfast.core.redact import Secret
from holdfast.reconcile.ports import Clock, ControlTarget
from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.adapters.http.client import HttpClient


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client behaves, whatever it talks to."""

    timeout: float
    max_retries: int
    manager: str
    """The tool that writes are attributed to."""
    blocking: bool
    """True for the sync clients."""

    @property
    def clock(self) -> Clock:
        """The clock that blocks, or the one for an event loop."""
        return BlockingClock() if self.blocking else SystemClock()


def connect_target(settings: ConnectionSettings, options: ClientOptions) -> ControlTarget:
    """Return the target. A remote one is not asked anything yet."""
    if settings.is_remote:
        from holdfast.adapters.http.target import RemoteTarget

        if settings.token is None:
            raise ConfigurationError(
                f"There is no token for {settings.url}.",
                hint="Set HOLDFAST_TOKEN, or give the token as an argument. Make one with holdfast "
                "token create.",
            )
        return RemoteTarget(make_transport(settings, options, settings.token))
    if settings.path is not None:
        return _open_embedded(settings, options)
    if settings.scheme == "kubernetes":
        return _open_cluster(settings, options)
    from holdfast.adapters.memory.target import MemoryTarget

    return MemoryTarget(
        clock=options.clock,
        writer=Writer(manager=options.manager),
        new_uid=lambda: str(uuid.uuid4()),
    )


def make_transport(
    settings: ConnectionSettings, options: ClientOptions, token: Secret | None
) -> HttpClient:
    """Return the way to a server, blocking or for an event loop as the client is."""
    from holdfast.adapters.http.client import HttpClient
    from holdfast.adapters.http.transports import AsyncTransport, BlockingTransport

    return HttpClient(
        settings.url,
        token=token,
        user_agent=f"{options.manager}/{__version__} python/{platform.python_version()}",
        transport=BlockingTransport() if options.blocking else AsyncTransport(),
        clock=options.clock,
        retries=options.max_retries,
    )


def _open_embedded(settings: ConnectionSettings, options: ClientOptions) -> ControlTarget:
    from holdfast.adapters.store import OpenMode, Store, StoreTarget

    assert settings.path is not None  # noqa: S101  # the caller looked
    store = Store.open(settings.path, mode=OpenMode.CLIENT, clock=options.clock)
    return StoreTarget(store, writer=Writer(manager=options.manager, actor=_machine_user()))


def default_project(settings: ConnectionSettings) -> str | None:
    """Return the project of calls that name none; in a cluster, the namespace one would get."""
    if settings.project is not None or settings.scheme != "kubernetes":
        return settings.project
    from holdfast.adapters.kubernetes.kubeconfig import load_config

    return load_config(settings.context or None, clock=SystemClock()).namespace


def _open_cluster(settings: ConnectionSettings, options: ClientOptions) -> ControlTarget:
    from holdfast.apps.sdk.background import BackgroundTarget

    with requires_extra("kubernetes", "A Kubernetes target"):
        from holdfast.adapters.kubernetes.target import open_kubernetes_target
    target = open_kubernetes_target(
        settings.context,
        settings.namespace,
        writer=Writer(manager=options.manager),
        timeout=options.timeout,
    )
    return BackgroundTarget(target) if options.blocking else target


def _machine_user() -> str | None:
    """Return the account of the machine, which is all that an embedded target knows."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None
