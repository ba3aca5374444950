"""Opens the SDK's own client where the settings point, under the command line's name."""

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
    from collections.abc import AsyncIterator, Iterator

    from holdfast.adapters.http.gitops import RemoteApplications
    from holdfast.adapters.store import Store
    from holdfast.apps.cli.session import Session
    from holdfast.apps.sdk import settings as sdk
    from holdfast.apps.sdk.management import ManagementClient
    from holdfast.wire.gitops_http_v1 import FollowedForm

MANAGER = "holdfast-cli"
"""What writes made here are attributed to."""


def connect(
    settings: CliSettings, *, project: str | None, patience: float | None = None
) -> ManagementClient:
    """Return a client; nothing is asked yet. With `patience` it asks once, for so many seconds."""
    from holdfast.apps.sdk.management import ManagementClient

    place = connection_settings(settings)
    if place.is_remote and place.token is None:
        raise missing_token_error(place.url)
    token = settings.get("token") if place.is_remote else None
    if patience is None:
        return ManagementClient(place.url, project=project, token=token, manager=MANAGER)
    return ManagementClient(
        place.url, project=project, token=token, manager=MANAGER, timeout=patience, max_retries=0
    )


@contextmanager
def open_store(session: Session, db: str | None) -> Iterator[Store]:
    """Open a store file on this machine beside whoever uses it."""
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
    """A control plane needs a token, and none is set."""
    return AuthError(
        f"There is no token for {url}.",
        hint="Set HOLDFAST_TOKEN. Where the server runs, make one with: "
        "holdfast token create --name NAME --scope write --db FILE",
    )


def default_project(settings: CliSettings) -> str | None:
    """Return the project that a cluster's address or its context stands for; None elsewhere."""
    if not (settings.get("url") or "").startswith("kubernetes:"):
        return None
    from holdfast.apps.sdk.connect import default_project as of_the_cluster
    from holdfast.apps.sdk.settings import resolve_connection

    return of_the_cluster(resolve_connection(settings.get("url"), environ={}))


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


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ControllerClient:
    """A controller that answered, and the applications it follows in this project."""

    api: RemoteApplications
    applications: list[FollowedForm]

    def call(self, question: Coroutine[Any, Any, T]) -> T:  # Any: nothing is sent or yielded
        """Have a question answered, blocking."""
        return run_sync(question)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Go through answers as they come, blocking."""
        return iterate_sync(items)


@contextmanager
def find_controller(
    session: Session,
    *,
    patience: float | None = None,
    until: float | None = None,
    timeout: float = 0.0,
) -> Iterator[ControllerClient | None]:
    """Give the controller; None where the address is no server, or one without applications.

    With `until`, a moment of the monotonic clock, a server that does not answer yet is waited for.
    """
    place = connection_settings(session.settings)
    if not place.is_remote:
        yield None
        return
    if place.token is None:
        raise missing_token_error(place.url)
    from holdfast.adapters.http.gitops import RemoteApplications
    from holdfast.apps.sdk.connect import ClientOptions, make_transport

    options = ClientOptions(
        timeout=patience or 30.0, max_retries=2 if patience is None else 0, manager=MANAGER,
        blocking=True,
    )  # fmt: skip
    api = RemoteApplications(
        make_transport(place, options, place.token), session.project, request_timeout=patience
    )
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
                f"There is no GitOps controller at {session.place}: this is about applications "
                "that it follows.",
                hint="Set HOLDFAST_URL, or --url, to where holdfast gitops answers.",
            )
        yield controller
