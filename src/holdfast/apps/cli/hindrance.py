"""What is waited for of an application, and what keeps it from coming true without a person. Pure.

Better to say at once that somebody has to approve something than to wait for that in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from holdfast.apps.cli.exits import Exit
from holdfast.apps.cli.views.applications import addressed, named
from holdfast.apps.cli.views.text import count, stamp
from holdfast.core.errors import SourceUnavailable, TargetUnavailable
from holdfast.wire.gitops_http_v1 import FollowedForm, HoldForm, ObjectStandingForm
from holdfast.wire.gitops_v1 import ApplicationDriftForm

Goal = Literal["ready", "synced", "healthy"]
_MAY_PASS = (SourceUnavailable.summary, TargetUnavailable.summary)
"""How the reasons begin for which a source is asked again; the others ask for somebody's commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is waited for."""

    goal: Goal
    asked: bool = False
    """A sync was asked for just now, so what only waits for that is under way."""
    prunes: bool = False
    """It was asked to delete, too."""

    def reached(self, found: FollowedForm) -> bool:
        """True once it is so. An object that Git has suspended is as ready as it can be."""
        if found.suspended:
            return False
        synced = found.sync == "synced" and not found.source.stale
        if self.goal == "synced":
            return synced
        if self.goal == "healthy":
            return found.health == "healthy"
        return synced and found.health in ("healthy", "suspended")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindrance:
    """Why it cannot come true by itself, and what to do."""

    told: str
    todo: str
    exit: Exit = Exit.POLICY


def hindrance(
    found: FollowedForm,
    drifts: Sequence[ApplicationDriftForm],
    objects: Sequence[ObjectStandingForm],
    wish: Wish,
    *,
    until: datetime,
) -> Hindrance | None:
    """Say what a person has to do first; None while it may still come true by `until`."""
    return next(_all(found, drifts, objects, wish, until), None)


def _all(
    found: FollowedForm,
    drifts: Sequence[ApplicationDriftForm],
    objects: Sequence[ObjectStandingForm],
    wish: Wish,
    until: datetime,
) -> Iterator[Hindrance]:
    if found.suspended:
        yield Hindrance(
            told=f"{found.id} is suspended: nothing of it is looked at or written.",
            todo="Set spec.suspend of the Application to false.",
        )
    if wish.goal == "healthy":
        if found.health == "suspended":
            yield Hindrance(
                told=f"Part of {found.id} is suspended, and stays so until somebody resumes it.",
                todo=f"holdfast status {found.id} -o wide shows which.",
            )
        return
    yield from _source(found)
    yield from _plans(found)
    if found.sync in ("ahead", "drifted"):
        yield from _paused(found.holds, until)
    for drift in drifts:
        yield from _drift(drift, wish, until)
    if found.sync == "ahead":
        yield from _ahead(found, objects, wish, until)


def _source(found: FollowedForm) -> Iterator[Hindrance]:
    for each in found.conditions:
        if each.reason == "DeclaredTwice":
            todo = "Have one Application alone declare it."
            yield Hindrance(told=each.message, todo=todo, exit=Exit.ERROR)
    stale = found.source.stale
    if stale and not found.plans and not stale.startswith(_MAY_PASS):
        yield Hindrance(
            told=f"{found.id} cannot follow its repository: {stale}",
            todo="Fix it in Git or in the Application, then wait again.",
            exit=Exit.ERROR,
        )


def _plans(found: FollowedForm) -> Iterator[Hindrance]:
    for plan in found.plans:
        if plan.rejected_by:
            yield Hindrance(
                told=f"{plan.id} of {found.id} was rejected by {plan.rejected_by}. {plan.told}",
                todo=f"holdfast sync {found.id} has it asked about again.",
            )
        elif not plan.approved_by:
            yield Hindrance(
                told=f"{plan.id} of {found.id} waits for a person. {plan.told}",
                todo=f"holdfast approve {plan.id}",
            )


def _paused(holds: Sequence[HoldForm], until: datetime) -> Iterator[Hindrance]:
    for hold in holds:
        if hold.object is None and hold.until > until:
            yield Hindrance(
                told=f"{hold.application} is on hold until {stamp(hold.until)}, by {hold.by}: "
                f"{hold.reason}",
                todo=f"holdfast resume {hold.application}",
            )


def _drift(drift: ApplicationDriftForm, wish: Wish, until: datetime) -> Iterator[Hindrance]:
    """A drift that heals by itself, or is being healed, is no hindrance."""
    what = f"{named(drift.object)} has drifted, and {drift.id}"
    show = f"holdfast drift show {drift.id}"
    match drift.state:
        case "awaiting-approval":
            yield Hindrance(told=f"{what} waits for a review.", todo=f"holdfast approve {drift.id}")
        case "held" | "snoozed" if drift.until is not None and drift.until > until:
            told = f"{what} is {drift.state} until {stamp(drift.until)}."
            yield Hindrance(told=told, todo=show)
        case "rejected":
            yield Hindrance(told=f"{what} stays, as somebody decided.", todo=show)
        case "fighting":
            yield Hindrance(told=f"{what} comes back each time that it is healed.", todo=show)
        case "pull-request":
            told = f"{what} is in a pull request: {drift.url or 'being opened'}"
            yield Hindrance(told=told, todo=f"Merge or close it, or holdfast revert {drift.id}")
        case "detected" | "parked" | "approved" | "healing" if not drift.healable:
            yield Hindrance(told=f"{what} cannot be put back by applying Git.", todo=show)
        case "detected" | "parked" if drift.entries and all(
            each.cause == "admission" for each in drift.entries
        ):
            told = f"{what} cannot be put back: the API server changes what is written."
            yield Hindrance(told=told, todo=show)
        case "parked" if drift.until is not None and drift.until > until:
            yield Hindrance(told=f"{what} waits until {stamp(drift.until)}.", todo=show)
        case "detected" if drift.remediation == "report" and not wish.asked:
            yield Hindrance(told=f"{what} is only reported.", todo=f"holdfast revert {drift.id}")


def _ahead(
    found: FollowedForm, objects: Sequence[ObjectStandingForm], wish: Wish, until: datetime
) -> Iterator[Hindrance]:
    if not (found.automatic or wish.asked):
        yield Hindrance(
            told=f"Git moved ahead, and {found.id} is synced only when somebody asks for it.",
            todo=f"holdfast sync {found.id} --wait",
        )
    apart = [each for each in objects if each.standing in ("ahead", "left-over")]
    left = [each for each in apart if each.standing == "left-over"]
    if left and len(left) == len(apart) and not (found.prunes or wish.prunes):
        more = f" and {count(len(left) - 1, 'other object')}" if len(left) > 1 else ""
        yield Hindrance(
            told=f"{named(left[0].object)}{more} of {found.id} is no longer declared, and is "
            "deleted only when somebody asks for it.",
            todo=f"holdfast sync {found.id} --prune --wait",
        )
    for each in apart:
        if each.held_until is not None and each.held_until > until:
            yield Hindrance(
                told=f"{named(each.object)} is on hold until {stamp(each.held_until)}.",
                todo=f"holdfast resume {found.id} {addressed(each.object)}",
            )
