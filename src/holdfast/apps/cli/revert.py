"""`holdfast revert`: have the declared value put back."""

from __future__ import annotations

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.controller import required
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.decisions import effect, show_decided
from holdfast.wire.gitops_http_v1 import Via
from holdfast.wire.gitops_v1 import ApplicationDriftForm

_VIA = {"direct": Via.DIRECT, "pr": Via.PULL_REQUEST}


@click.command(
    "revert",
    cls=Verb,
    examples=[
        "holdfast revert drf-57557f5b59",
        "holdfast revert drf-57557f5b59 --via pr      # merging the decision is the approval",
    ],
)
@click.argument("id")
@click.option(
    "--via",
    type=click.Choice(list(_VIA)),
    default="direct",
    show_default=True,
    help="direct: as the policy allows, which may be a review. pr: by a pull request.",
)
@options.comment()
@options.connection
@options.output(*options.ONE)
@pass_session
def command(session: Session, id: str, via: str, comment: str) -> None:
    """Put Git's value back, through the policy.

    Where the policy asks for a review, or for four eyes, it waits for somebody to approve it.
    """
    with required(session) as controller:
        after = controller.ask(controller.api.revert(id, via=_VIA[via], comment=comment))
    show_decided(session.screen, after, list(_told(after)))
    session.screen.next(f"holdfast drift show {id}")


def _told(drift: ApplicationDriftForm) -> list[str]:
    if drift.state == "approved":
        return [f"{drift.id} is put back with the next pass, if nothing moves.", effect(drift)]
    if drift.remediation == "pull-request":
        return [f"{drift.id}: a pull request with the decision is opened with the next pass."]
    return [f"{drift.id} waits for a review: the policy asks for one before it is put back."]
