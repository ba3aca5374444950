"""What a person may choose to do about a drift: whether it would be taken, and what it does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from holdfast.core.cost import NO_COST, Cost
from holdfast.core.gitops.application import DriftSpec, HoldEnd
from holdfast.core.gitops.drift import DriftReason, DriftState, ObjectDrift
from holdfast.core.gitops.wording import list_names
from holdfast.core.ownership.ignore import concerns_security
from holdfast.reconcile.gitops.application_context import ApplicationContext

if TYPE_CHECKING:
    from holdfast.reconcile.gitops.review import ReviewService


class DriftChoice(StrEnum):
    """What can be chosen."""

    APPROVE = "approve"
    REJECT = "reject"
    SNOOZE = "snooze"
    CODIFY = "codify"
    REVERT = "revert"
    HOLD = "hold"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceOutlook:
    """One choice about one drift, as things stand."""

    choice: DriftChoice
    obstacle: str
    """Why it would be refused; empty when it would be taken."""
    effect: str
    """What it does, in a sentence."""
    cost: Cost | None
    """What that costs; None where nobody can tell."""
    needs_comment: bool
    """True where it is refused without a comment that says why."""


def choices_for(
    review: ReviewService,
    context: ApplicationContext | None,
    drift: ObjectDrift,
    *,
    actor: str,
    now: datetime,
) -> tuple[ChoiceOutlook, ...]:
    """Say of every choice whether this person's would be taken now, and what it would do.

    Nothing is read anew: what the last pass saw counts, and the choice itself looks again.
    """
    return tuple(
        ChoiceOutlook(
            choice=choice,
            obstacle=_obstacle(review, context, drift, choice, actor, now),
            effect=_effect(review, context, drift, choice),
            cost=_cost(drift, choice),
            needs_comment=_needs_comment(review, context, drift, choice),
        )
        for choice in DriftChoice
    )


def _obstacle(
    review: ReviewService,
    context: ApplicationContext | None,
    drift: ObjectDrift,
    choice: DriftChoice,
    actor: str,
    now: datetime,
) -> str:
    if drift.state is DriftState.RESOLVED:
        return f"{drift.id} has ended, so there is nothing to decide."
    if context is None:
        return "Its application is not followed any more."
    if choice is DriftChoice.APPROVE:
        return review.approval_obstacle(context, drift, actor)
    if choice is DriftChoice.HOLD:
        return ""
    if choice is DriftChoice.IGNORE:
        return _ignore_obstacle(drift)
    if drift.state is DriftState.APPROVED:
        return f"It was approved by {drift.decided_by} already, and is being put back."
    match choice:
        case DriftChoice.REJECT | DriftChoice.SNOOZE:
            return ""
        case DriftChoice.CODIFY:
            return _codify_obstacle(context, drift)
        case DriftChoice.REVERT:
            seen = context.object_states.get(drift.object)
            return review.revert_obstacle(context, drift, seen.owner if seen else None, now)
        case _:
            assert_never(choice)


def _ignore_obstacle(drift: ObjectDrift) -> str:
    paths = [entry.path for entry in drift.entries]
    if "" in paths:
        return f"It is about {drift.object} as a whole, and a rule hides fields alone."
    guarded = [
        path for path in paths if concerns_security(tuple(path.split(".")), drift.object.kind)
    ]
    if not guarded:
        return ""
    return f"{list_names(guarded)} concerns security, so only a rule of the Application hides it."


def _codify_obstacle(context: ApplicationContext, drift: ObjectDrift) -> str:
    declared = context.desired.declared.get(drift.object) if context.desired else None
    secret = drift.object.kind == "Secret" and drift.object.api_version == "v1"
    if secret and not (declared is not None and declared.encrypted):
        return f"{drift.object} would stand in Git in clear, so it is not written there."
    if drift.reason is DriftReason.NOT_CODIFIABLE:
        return drift.note
    return ""


def _effect(
    review: ReviewService,
    context: ApplicationContext | None,
    drift: ObjectDrift,
    choice: DriftChoice,
) -> str:
    rules = (context.application.spec.drift if context else None) or DriftSpec()
    match choice:
        case DriftChoice.APPROVE:
            more = ""
            first = drift.first_approver and drift.first_plan == drift.plan
            if rules.four_eyes and not drift.known_origin and not first:
                more = " It takes one more person, as nobody knows who made the change."
            return f"{_put_back(drift)}, if nothing has moved since this plan was made.{more}"
        case DriftChoice.REJECT:
            return f"{drift.object} stays as it is live; asked again only when it changes."
        case DriftChoice.SNOOZE:
            return f"{drift.object} stays as it is live until a time that you choose."
        case DriftChoice.CODIFY:
            return (
                "A pull request proposes that Git declares the live value; the cluster does not "
                "change when it is opened."
            )
        case DriftChoice.REVERT:
            if context is None or not review.reverts_at_once(context, drift):
                return f"A review is asked for; once it is approved: {_put_back(drift)}."
            return f"{_put_back(drift)} with the next pass, without a review."
        case DriftChoice.HOLD:
            back = (rules.hold_end or HoldEnd.PULL_REQUEST) is HoldEnd.PULL_REQUEST
            after = "goes to Git by a pull request" if back else "is put back"
            return (
                f"Nothing is written to {drift.object} until the hold ends; what changed under it "
                f"then {after}, unless you choose otherwise."
            )
        case DriftChoice.IGNORE:
            return "Its fields are neither reported nor written until a time that you choose."
        case _:
            assert_never(choice)


def _put_back(drift: ObjectDrift) -> str:
    if any(not entry.path for entry in drift.entries):
        if not drift.uid:
            return f"{drift.object} is created again"
        if not drift.where:
            return f"{drift.object} is deleted, for Git does not declare it"
        return f"{drift.object}, which somebody replaced, is set to what Git declares"
    count = len(drift.entries)
    fields = "1 field" if count == 1 else f"{count} fields"
    return f"{fields} of {drift.object} put back to what Git declares"


def _needs_comment(
    review: ReviewService,
    context: ApplicationContext | None,
    drift: ObjectDrift,
    choice: DriftChoice,
) -> bool:
    if choice is DriftChoice.REJECT:
        return True
    if context is None or not review.asks_for_comment(context):
        return False
    at_once = choice is DriftChoice.REVERT and review.reverts_at_once(context, drift)
    return choice is DriftChoice.APPROVE or at_once


def _cost(drift: ObjectDrift, choice: DriftChoice) -> Cost | None:
    puts_back = choice in (DriftChoice.APPROVE, DriftChoice.REVERT)
    return drift.cost if puts_back else NO_COST
