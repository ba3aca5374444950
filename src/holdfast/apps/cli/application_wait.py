"""Waits for an application, for `wait` and `sync --wait`: until it is there, or cannot be."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from holdfast.apps.cli.controller import Controller
from holdfast.apps.cli.hindrance import Hindrance, Wish, hindrance
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.applications import named
from holdfast.apps.cli.views.text import one_line
from holdfast.core.errors import TargetUnavailable, WaitTimeout
from holdfast.core.quantity import shown_seconds
from holdfast.wire.gitops_http_v1 import FollowedForm

POLL = 1.0


def wait_for(
    session: Session,
    controller: Controller,
    name: str,
    wish: Wish,
    *,
    end: float,
    timeout: float,
) -> tuple[FollowedForm, Hindrance | None]:
    """Return the application once the wish is true, or with what a person has to do first.

    `end` is the moment, of the monotonic clock, when the time that was given is up. A controller
    that starts anew meanwhile is waited for.
    """
    found, told = None, ""
    while True:
        left = end - time.monotonic()
        try:
            found = controller.ask(controller.api.application(name))
            until = datetime.now(UTC) + timedelta(seconds=max(0.0, left))
            stopped = None if wish.reached(found) else _hindered(controller, found, wish, until)
            if wish.reached(found) or stopped is not None:
                return found, stopped
            now = f"{found.id} is {found.sync} and {found.health}. {_detail(controller, found)}"
        except TargetUnavailable as error:
            now = f"{one_line(error.happened)} Still waiting."
        if now != told:
            session.screen.note(now.rstrip())
            told = now
        if left <= 0:
            raise WaitTimeout(
                f"After {shown_seconds(timeout)} {told}".rstrip(),
                changed="The controller carries on.",
                todo=f"holdfast status {found.id if found else name} shows what is missing.",
            )
        time.sleep(min(POLL, left))


def _hindered(
    controller: Controller, found: FollowedForm, wish: Wish, until: datetime
) -> Hindrance | None:
    """Look closer at what is not as declared: only drifts and objects tell who has to act."""
    drifts = controller.ask(controller.api.drifts(application=found.id)) if found.drifted else []
    objects = controller.ask(controller.api.objects(found.id)) if found.ahead else []
    return hindrance(found, drifts, objects, wish, until=until)


def _detail(controller: Controller, found: FollowedForm) -> str:
    """Say what is missing: once all of it is applied, the first object that does not do well."""
    if found.sync == "synced" and not found.source.stale:
        for each in controller.ask(controller.api.objects(found.id)):
            if each.health != "healthy":
                return f"{named(each.object)}: {one_line(each.message) or each.health}"
    return one_line(found.source.stale or found.message)


def show_hindrance(session: Session, stopped: Hindrance) -> None:
    """Write why waiting is of no use."""
    session.screen.error(
        "waits-for-a-person",
        stopped.told,
        [f"Next: {session.caller.spoken(stopped.todo)}"],
    )
