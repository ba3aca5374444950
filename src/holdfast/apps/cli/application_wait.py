"""Waits for an application, for `wait` and `sync --wait`: until it is there, or cannot be.

Better to say at once that somebody has to approve something than to wait for that in silence.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from holdfast.apps.cli.connect import ControllerClient
from holdfast.apps.cli.exits import Exit
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.applications import object_address, object_name
from holdfast.apps.cli.views.text import count, format_time, one_line
from holdfast.core.errors import TargetUnavailable, WaitTimeout
from holdfast.core.gitops.source import StaleReason
from holdfast.core.quantity import format_seconds
from holdfast.wire.gitops_http_v1 import FollowedForm, HoldForm, ObjectStatusForm
from holdfast.wire.gitops_v1 import ApplicationDriftForm

GoalState = Literal["ready", "synced", "healthy"]
POLL_SECONDS = 1.0
_LASTING_REASONS = frozenset({StaleReason.INVALID, StaleReason.UNACCEPTED})
"""What needs a person. The rest may pass by itself, and so may what is not known: a controller
of an earlier version gives no reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitGoal:
    """What is waited for."""

    state: GoalState
    requested: bool = False
    """A sync was requested just now, so what only waits for that is under way."""
    prunes: bool = False
    """The sync deletes what is no longer declared."""

    def is_reached(self, found: FollowedForm) -> bool:
        """True once it is so. An object that is suspended in Git is as ready as it can be."""
        if found.suspended:
            return False
        synced = found.sync == "synced" and not found.source.stale
        if self.state == "synced":
            return synced
        if self.state == "healthy":
            return found.health == "healthy"
        return synced and found.health in ("healthy", "suspended")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Why the goal cannot be reached without a person, and what to do."""

    message: str
    hint: str
    exit: Exit = Exit.POLICY


def first_blocker(
    found: FollowedForm,
    drifts: Sequence[ApplicationDriftForm],
    objects: Sequence[ObjectStatusForm],
    goal: WaitGoal,
    *,
    until: datetime,
) -> Blocker | None:
    """Say what a person has to do first; None while it may still come true by `until`."""
    return next(_blockers(found, drifts, objects, goal, until), None)


def _blockers(
    found: FollowedForm,
    drifts: Sequence[ApplicationDriftForm],
    objects: Sequence[ObjectStatusForm],
    goal: WaitGoal,
    until: datetime,
) -> Iterator[Blocker]:
    if found.suspended:
        yield Blocker(
            message=f"{found.id} is suspended: nothing of it is observed or written.",
            hint="Set spec.suspend of the Application to false.",
        )
    if goal.state == "healthy":
        if found.health == "suspended":
            yield Blocker(
                message=f"Part of {found.id} is suspended, and stays so until somebody resumes it.",
                hint=f"holdfast status {found.id} -o wide shows which.",
            )
        return
    yield from _source_blockers(found)
    yield from _plan_blockers(found)
    if found.sync in ("ahead", "drifted"):
        yield from _hold_blockers(found.holds, until)
    for drift in drifts:
        yield from _drift_blockers(drift, goal, until)
    if found.sync == "ahead":
        yield from _out_of_sync_blockers(found, objects, goal, until)


def _source_blockers(found: FollowedForm) -> Iterator[Blocker]:
    for each in found.conditions:
        if each.reason == "DeclaredTwice":
            hint = "Have one Application alone declare it."
            yield Blocker(message=each.message, hint=hint, exit=Exit.ERROR)
    source = found.source
    if source.stale_reason in _LASTING_REASONS and not found.plans:
        yield Blocker(
            message=f"{found.id} cannot follow its repository: {source.stale}",
            hint="Fix it in Git or in the Application, then wait again.",
            exit=Exit.ERROR,
        )


def _plan_blockers(found: FollowedForm) -> Iterator[Blocker]:
    for plan in found.plans:
        if plan.rejected_by:
            yield Blocker(
                message=f"{plan.id} of {found.id} was rejected by {plan.rejected_by}. {plan.told}",
                hint=f"holdfast sync {found.id} has it asked about again.",
            )
        elif not plan.approved_by:
            yield Blocker(
                message=f"{plan.id} of {found.id} waits for a person. {plan.told}",
                hint=f"holdfast approve {plan.id}",
            )


def _hold_blockers(holds: Sequence[HoldForm], until: datetime) -> Iterator[Blocker]:
    for hold in holds:
        if hold.object is None and hold.until > until:
            yield Blocker(
                message=f"{hold.application} is on hold until {format_time(hold.until)}, "
                f"by {hold.by}: {hold.reason}",
                hint=f"holdfast resume {hold.application}",
            )


def _drift_blockers(
    drift: ApplicationDriftForm, goal: WaitGoal, until: datetime
) -> Iterator[Blocker]:
    """A drift that heals by itself, or is being healed, blocks nothing."""
    what = f"{object_name(drift.object)} has drifted, and {drift.id}"
    show = f"holdfast drift show {drift.id}"
    match drift.state:
        case "awaiting-approval":
            yield Blocker(
                message=f"{what} waits for a review.", hint=f"holdfast approve {drift.id}"
            )
        case "held" | "snoozed" if drift.until is not None and drift.until > until:
            message = f"{what} is {drift.state} until {format_time(drift.until)}."
            yield Blocker(message=message, hint=show)
        case "rejected":
            yield Blocker(message=f"{what} stays, as somebody decided.", hint=show)
        case "fighting":
            yield Blocker(message=f"{what} comes back each time that it is healed.", hint=show)
        case "pull-request":
            message = f"{what} is in a pull request: {drift.url or 'being opened'}"
            yield Blocker(message=message, hint=f"Merge or close it, or holdfast revert {drift.id}")
        case "detected" | "parked" | "approved" | "healing" if not drift.healable:
            yield Blocker(message=f"{what} cannot be put back by applying Git.", hint=show)
        case "detected" | "parked" if drift.entries and all(
            each.cause == "admission" for each in drift.entries
        ):
            message = f"{what} cannot be put back: the API server changes what is written."
            yield Blocker(message=message, hint=show)
        case "parked" if drift.until is not None and drift.until > until:
            yield Blocker(message=f"{what} waits until {format_time(drift.until)}.", hint=show)
        case "detected" if drift.remediation == "report" and not goal.requested:
            yield Blocker(message=f"{what} is only reported.", hint=f"holdfast revert {drift.id}")


def _out_of_sync_blockers(
    found: FollowedForm, objects: Sequence[ObjectStatusForm], goal: WaitGoal, until: datetime
) -> Iterator[Blocker]:
    if not (found.automatic or goal.requested):
        yield Blocker(
            message=f"Git moved ahead, and {found.id} is synced only when somebody asks for it.",
            hint=f"holdfast sync {found.id} --wait",
        )
    out_of_sync = [each for each in objects if each.standing in ("ahead", "left-over")]
    prunable = [each for each in out_of_sync if each.standing == "left-over"]
    if prunable and len(prunable) == len(out_of_sync) and not (found.prunes or goal.prunes):
        others = len(prunable) - 1
        more = f" and {count(others, 'other object')}" if others else ""
        yield Blocker(
            message=f"{object_name(prunable[0].object)}{more} of {found.id} is no longer declared, "
            "and is deleted only when somebody asks for it.",
            hint=f"holdfast sync {found.id} --prune --wait",
        )
    for each in out_of_sync:
        if each.held_until is not None and each.held_until > until:
            yield Blocker(
                message=f"{object_name(each.object)} is on hold "
                f"until {format_time(each.held_until)}.",
                hint=f"holdfast resume {found.id} {object_address(each.object)}",
            )


def wait_for_application(
    session: Session,
    controller: ControllerClient,
    name: str,
    goal: WaitGoal,
    *,
    end: float,
    timeout: float,
) -> tuple[FollowedForm, Blocker | None]:
    """Return the application once the goal is reached, or with what a person has to do first.

    `end` is the moment, of the monotonic clock, when the time that was given is up. A controller
    that restarts meanwhile is waited for.
    """
    found, progress = None, ""
    while True:
        left = end - time.monotonic()
        try:
            found = controller.call(controller.api.application(name))
            if goal.is_reached(found):
                return found, None
            until = datetime.now(UTC) + timedelta(seconds=max(0.0, left))
            blocker = _find_blocker(controller, found, goal, until)
            if blocker is not None:
                return found, blocker
            missing = _describe_missing(controller, found)
            now = f"{found.id} is {found.sync} and {found.health}. {missing}".rstrip()
        except TargetUnavailable as error:
            now = f"{one_line(error.happened)} Still waiting."
        if now != progress:
            session.screen.info(now)
            progress = now
        if left <= 0:
            raise WaitTimeout(
                f"After {format_seconds(timeout)} {progress}".rstrip(),
                changed="The controller carries on.",
                hint=f"holdfast status {found.id if found else name} shows what is missing.",
            )
        time.sleep(min(POLL_SECONDS, left))


def _find_blocker(
    controller: ControllerClient, found: FollowedForm, goal: WaitGoal, until: datetime
) -> Blocker | None:
    """Read drifts and objects where some are not as declared: they say who has to act."""
    drifts = controller.call(controller.api.drifts(application=found.id)) if found.drifted else []
    objects = controller.call(controller.api.objects(found.id)) if found.ahead else []
    return first_blocker(found, drifts, objects, goal, until=until)


def _describe_missing(controller: ControllerClient, found: FollowedForm) -> str:
    """Say what is missing: once all of it is applied, the first object that is not healthy."""
    if found.sync == "synced" and not found.source.stale:
        for each in controller.call(controller.api.objects(found.id)):
            if each.health != "healthy":
                return f"{object_name(each.object)}: {one_line(each.message) or each.health}"
    return one_line(found.source.stale or found.message)


def show_blocker(session: Session, blocker: Blocker) -> None:
    """Write why waiting is of no use."""
    hint = f"Next: {session.caller.as_typed(blocker.hint)}"
    session.screen.error("waits-for-a-person", blocker.message, [hint])
