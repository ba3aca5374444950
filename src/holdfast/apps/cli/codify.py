"""`holdfast codify`: propose the live value to Git by a pull request."""

from __future__ import annotations

import time

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.controller import Controller, required
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.decisions import show_decided
from holdfast.core.errors import ValidationError, WaitTimeout, having_changed
from holdfast.core.quantity import shown_seconds
from holdfast.wire.gitops_v1 import ApplicationDriftForm

POLL = 0.5
"""Seconds between two questions."""


@click.command(
    "codify",
    cls=Verb,
    examples=["holdfast codify drf-57557f5b59", "holdfast codify drf-57557f5b59 --wait"],
)
@click.argument("id")
@click.option("--wait", is_flag=True, help="Wait until the pull request is there.")
@options.timeout("2m")
@options.connection
@options.output(*options.ONE)
@pass_session
def command(session: Session, id: str, wait: bool, timeout: float) -> None:
    """Propose the live value of a drift to Git, by one pull request.

    The drift is tolerated until the pull request is merged or closed. Values of Secrets are
    never proposed in clear.
    """
    with required(session) as controller:
        after = controller.ask(controller.api.codify(id))
        if wait:
            with having_changed(f"{id} was marked to be proposed."):
                after = _opened(controller, id, timeout)
    told = f"{id}: a pull request is opened with the next pass."
    if after.url:
        told = f"{id} is proposed in {after.url}"
    elif after.state == "pull-request":
        told = f"{id} is proposed by a branch: its repository has no pull requests."
    show_decided(session.screen, after, [told])
    session.screen.next(f"holdfast drift show {id}")


def _opened(controller: Controller, id: str, timeout: float) -> ApplicationDriftForm:
    end = time.monotonic() + timeout
    while True:
        drift = controller.ask(controller.api.drift(id))
        if drift.url or drift.state == "pull-request" or drift.resolved_at is not None:
            return drift
        if drift.state == "parked":
            raise ValidationError(
                f"{id} is not proposed. {drift.note}",
                todo=f"holdfast revert {id} puts Git's value back; or change Git by hand.",
            )
        if time.monotonic() >= end:
            why = f" {drift.note}" if drift.note else ""
            raise WaitTimeout(
                f"{id} has no pull request after {shown_seconds(timeout)}.{why}",
                changed="",
                todo=f"holdfast drift show {id} tells when it is there.",
            )
        time.sleep(min(POLL, max(0.0, end - time.monotonic())))
