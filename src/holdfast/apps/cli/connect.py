"""Opens the SDK's own client where the settings point, under the command line's name."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.apps.cli.settings import Settings
from holdfast.core.errors import AuthError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.adapters.store import Store
    from holdfast.apps.cli.session import Session
    from holdfast.apps.sdk import settings as sdk
    from holdfast.apps.sdk.management import ManagementClient

MANAGER = "holdfast-cli"
"""What writes made here are attributed to."""


def connect(
    settings: Settings, *, project: str | None, patience: float | None = None
) -> ManagementClient:
    """Return a client; nothing is asked yet. With `patience` it asks once, for so many seconds."""
    from holdfast.apps.sdk.management import ManagementClient

    place = sdk_settings(settings)
    if place.is_remote and place.token is None:
        raise no_token(place.url)
    token = settings.get("token") if place.is_remote else None
    if patience is None:
        return ManagementClient(place.url, project=project, token=token, manager=MANAGER)
    return ManagementClient(
        place.url, project=project, token=token, manager=MANAGER, timeout=patience, max_retries=0
    )


@contextmanager
def administered(session: Session, db: str | None) -> Iterator[Store]:
    """Open a store file on this machine beside whoever uses it."""
    from holdfast.adapters.store import Mode, Store

    path = sdk_settings(session.settings, db=db).path
    if path is None:
        raise ConfigurationError(
            f"This works on a store file, and {session.settings.get('url')} is not one.",
            todo="Run it where the server's file is, with --db FILE.",
        )
    with Store.open(path, mode=Mode.ADMIN) as store:
        yield store


def no_token(url: str) -> AuthError:
    """A control plane needs a token, and none is set."""
    return AuthError(
        f"There is no token for {url}.",
        todo="Set HOLDFAST_TOKEN. Where the server runs, make one with: "
        "holdfast token create --name NAME --scope write --db FILE",
    )


def default_project(settings: Settings) -> str | None:
    """Return the project that a cluster's address or its context stands for; None elsewhere."""
    if not (settings.get("url") or "").startswith("kubernetes:"):
        return None
    from holdfast.apps.sdk.connect import default_project as of_the_cluster
    from holdfast.apps.sdk.settings import resolve

    return of_the_cluster(resolve(settings.get("url"), environ={}))


def default_url() -> str:
    """Return the embedded store of this user."""
    from holdfast.apps.sdk.settings import default_file

    return f"sqlite:///{default_file()}"


def sdk_settings(settings: Settings, *, db: str | None = None) -> sdk.Settings:
    """Say where to connect, checked; `db` names a store file and beats everything else."""
    from pathlib import Path

    from holdfast.apps.sdk.settings import resolve

    if db:
        return resolve(f"sqlite:///{Path(db).absolute()}", environ={})
    return resolve(
        settings.get("url") or default_url(), token=settings.get("token"), environ=os.environ
    )
