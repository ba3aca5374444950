"""The GitOps controller behind the address that the settings name, if one runs there.

Verbs that work on workloads and on applications ask once; those that decide about drift need it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.apps.cli.connect import MANAGER, no_token, sdk_settings
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.waiting import patiently
from holdfast.core.errors import ConfigurationError
from holdfast.reconcile.colour import iterate, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.adapters.http.gitops import RemoteApplications
    from holdfast.wire.gitops_http_v1 import FollowedForm

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller that answered, and the applications it follows in this project."""

    api: RemoteApplications
    applications: list[FollowedForm]

    def ask(self, question: Coroutine[Any, Any, T]) -> T:  # Any: nothing is sent or yielded
        """Have a question answered, blocking."""
        return run(question)

    def each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Go through answers as they come, blocking."""
        return iterate(items)


@contextmanager
def asked(
    session: Session,
    *,
    patience: float | None = None,
    until: float | None = None,
    timeout: float = 0.0,
) -> Iterator[Controller | None]:
    """Give the controller; None where the address is no server, or one without applications.

    With `until`, a moment of the monotonic clock, a server that does not answer yet is waited for.
    """
    place = sdk_settings(session.settings)
    if not place.is_remote:
        yield None
        return
    if place.token is None:
        raise no_token(place.url)
    from holdfast.adapters.http.gitops import RemoteApplications
    from holdfast.apps.sdk.connect import Options, transport

    options = Options(
        timeout=patience or 30.0, max_retries=2 if patience is None else 0, manager=MANAGER,
        blocking=True,
    )  # fmt: skip
    api = RemoteApplications(
        transport(place, options, place.token), session.project, patience=patience
    )
    try:
        if until is None:
            found = run(api.follows())
        else:
            found = patiently(session, lambda: run(api.follows()), end=until, timeout=timeout)
        yield None if found is None else Controller(api, found)
    finally:
        run(api.aclose())


@contextmanager
def required(session: Session) -> Iterator[Controller]:
    """Give the controller, or say that there is none."""
    with asked(session) as controller:
        if controller is None:
            raise ConfigurationError(
                f"There is no GitOps controller at {session.place}: this is about applications "
                "that it follows.",
                todo="Set HOLDFAST_URL, or --url, to where holdfast gitops answers.",
            )
        yield controller
