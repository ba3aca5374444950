"""Opens what the settings point to: the SDK's client, a store file, or a GitOps controller.

Verbs that work on workloads and on applications ask with `find_controller` which it is; those that
decide about drift need `require_controller`.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.apps.cli.session import Session
from holdfast.apps.cli.settings import CliSettings
from holdfast.apps.cli.workload_wait import retry_until_available
from holdfast.core.errors import AuthError, ConfigurationError
from holdfast.reconcile.sync_bridge import iterate_sync, run_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.adapters.http.gitops import RemoteApplications
    from holdfast.adapters.store import Store
    from holdfast.apps.sdk import settings as sdk
    from holdfast.apps.sdk.management import ManagementClient
    from holdfast.wire.gitops_http_v1 import FollowedForm

T = TypeVar("T")
MANAGER = "holdfast-cli"
"""What writes made here are attributed to."""


def connect(
    settings: CliSettings, *, project: str | None, once_within: float | None = None
) -> ManagementClient:
    """Return a client; nothing is requested yet. `once_within` seconds, it tries only once."""
    from holdfast.apps.sdk.management import ManagementClient

    target = connection_settings(settings)
    if target.is_remote and target.token is None:
        raise missing_token_error(target.url)
    token = settings.get("token") if target.is_remote else None
    if once_within is None:
        return ManagementClient(target.url, project=project, token=token, manager=MANAGER)
    return ManagementClient(
        target.url,
        project=project,
        token=token,
        manager=MANAGER,
        timeout=once_within,
        max_retries=0,
    )


@contextmanager
def open_store(session: Session, db: str | None) -> Iterator[Store]:
    """Open a store file on this machine, also while a server has it open."""
    from holdfast.adapters.store import OpenMode, Store

    path = connection_settings(session.settings, db=db).path
    if path is None:
        raise ConfigurationError(
            f"This works on a store file, and {session.settings.get('url')} is not one.",
            hint="Run it where the server's file is, with --db FILE.",
        )
    with Store.open(path, mode=OpenMode.ADMIN) as store:
        yield store


def missing_token_error(url: str) -> AuthError:
    """Make the error for a control plane without a token."""
    return AuthError(
        f"There is no token for {url}.",
        hint="Set HOLDFAST_TOKEN. Where the server runs, make one with: "
        "holdfast token create --name NAME --scope write --db FILE",
    )


def default_project(settings: CliSettings) -> str | None:
    """Return the project that a cluster's address or its context stands for; None elsewhere."""
    if not (settings.get("url") or "").startswith("kubernetes:"):
        return None
    from holdfast.apps.sdk.connect import default_project as project_of_cluster
    from holdfast.apps.sdk.settings import resolve_connection

    return project_of_cluster(resolve_connection(settings.get("url"), environ={}))


def default_url() -> str:
    """Return the embedded store of this user."""
    from holdfast.apps.sdk.settings import default_store_file

    return f"sqlite:///{default_store_file()}"


def connection_settings(settings: CliSettings, *, db: str | None = None) -> sdk.ConnectionSettings:
    """Say where to connect, checked; `db` names a store file and beats everything else."""
    from pathlib import Path

    from holdfast.apps.sdk.settings import resolve_connection

    if db:
        return resolve_connection(f"sqlite:///{Path(db).absolute()}", environ={})
    return resolve_connection(
        settings.get("url") or default_url(), token=settings.get("token"), environ=os.environ
    )


@dataclass(frozen=True, slots=True)
class ControllerClient:
    """A controller that answered, and the applications it follows in this project."""

    api: RemoteApplications
    applications: list[FollowedForm]

    def call(self, request: Coroutine[Any, Any, T]) -> T:  # Any: nothing is sent or yielded
        """Wait for the response to a request."""
        return run_sync(request)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield items as they come."""
        return iterate_sync(items)


@contextmanager
def find_controller(
    session: Session,
    *,
    once_within: float | None = None,
    until: float | None = None,
    timeout: float = 0.0,
) -> Iterator[ControllerClient | None]:
    """Give the controller; None where the address is no server, or one without applications.

    With `until`, a moment of the monotonic clock, a server that does not answer yet is waited for.
    """
    target = connection_settings(session.settings)
    if not target.is_remote:
        yield None
        return
    if target.token is None:
        raise missing_token_error(target.url)
    from holdfast.adapters.http.gitops import RemoteApplications
    from holdfast.apps.sdk.connect import ClientOptions, make_transport

    retries = 2 if once_within is None else 0
    options = ClientOptions(
        timeout=once_within or 30.0, max_retries=retries, manager=MANAGER, blocking=True
    )
    transport = make_transport(target, options, target.token)
    api = RemoteApplications(transport, session.project, request_timeout=once_within)
    try:
        if until is None:
            found = run_sync(api.follows())
        else:
            found = retry_until_available(
                session, lambda: run_sync(api.follows()), end=until, timeout=timeout
            )
        yield None if found is None else ControllerClient(api, found)
    finally:
        run_sync(api.aclose())


@contextmanager
def require_controller(session: Session) -> Iterator[ControllerClient]:
    """Give the controller, or say that there is none."""
    with find_controller(session) as controller:
        if controller is None:
            raise ConfigurationError(
                f"There is no GitOps controller at {session.connected_to}: "
                "this is about applications that it follows.",
                hint="Set HOLDFAST_URL, or --url, to where holdfast gitops answers.",
            )
        yield controller
