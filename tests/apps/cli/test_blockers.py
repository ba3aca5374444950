"""What keeps an application from reaching a goal without a person, as a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.apps.cli.application_wait import Blocker, GoalState, WaitGoal, first_blocker
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import HoldEnd, Remediation
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.objects import ObjectHealth, SyncStatus
from holdfast.core.gitops.records import ApprovalReason
from holdfast.core.gitops.source import StaleReason
from holdfast.wire.gitops_http_v1 import (
    ConditionForm,
    FollowedForm,
    HoldForm,
    ObjectStatusForm,
    SourceForm,
    WaitingPlanForm,
)
from holdfast.wire.gitops_v1 import ApplicationDriftForm, ObjectForm
from holdfast.wire.ledger_v1 import DriftEntryForm

NOW = datetime(2026, 11, 16, 14, tzinfo=UTC)
UNTIL = NOW + timedelta(minutes=15)
LATER, SOONER = UNTIL + timedelta(minutes=1), UNTIL - timedelta(minutes=1)
A = ObjectForm(api_version="v1", kind="ConfigMap", namespace="chat", name="a")
ALTERED = DriftEntryForm(
    path="data.x", desired="One", live="one", kind=DriftKind.CONFIGURATION, cause=Cause.ADMISSION
)


def followed(**more: Any) -> FollowedForm:
    given = {"sync": "ahead", "health": ObjectHealth.HEALTHY, "automatic": True, **more}
    stale, reason = given.pop("stale", ""), given.pop("stale_reason", "")
    source = SourceForm(
        url="https://git.example.com/x.git", revision="main", stale=stale, stale_reason=reason
    )
    return FollowedForm(id="team/shop", label="team.shop", project="p", source=source, **given)


def drift(state: DriftState, **more: Any) -> ApplicationDriftForm:
    given = {"remediation": Remediation.SELF_HEAL, "entries": [], **more}
    return ApplicationDriftForm(
        id="drf-1", application="team/shop", project="p", object=A, kinds=[],
        commit="c", state=state, first_seen=NOW, last_seen=NOW, **given,
    )  # fmt: skip


def standing(name: str, kind: SyncStatus, **more: Any) -> ObjectStatusForm:
    ref = ObjectForm(api_version="v1", kind="ConfigMap", namespace="chat", name=name)
    return ObjectStatusForm(object=ref, standing=kind, health=ObjectHealth.HEALTHY, **more)


def hold(until: datetime, **more: Any) -> HoldForm:
    return HoldForm(
        id="h", application="team/shop", reason="INC", by="joe", since=NOW, until=until,
        end=HoldEnd.REVERT, **more,
    )  # fmt: skip


def plan(**more: Any) -> WaitingPlanForm:
    return WaitingPlanForm(
        id="plan-1", digest="d", application="team/shop", commit="c",
        reasons=[ApprovalReason.MASS_DELETE], told="8 of 20.", steps=[], made_at=NOW, **more,
    )  # fmt: skip


def found(
    application: FollowedForm,
    *parts: ApplicationDriftForm | ObjectStatusForm,
    goal: GoalState = "ready",
    **more: bool,
) -> Blocker | None:
    drifts = [each for each in parts if isinstance(each, ApplicationDriftForm)]
    objects = [each for each in parts if isinstance(each, ObjectStatusForm)]
    return first_blocker(application, drifts, objects, WaitGoal(state=goal, **more), until=UNTIL)


@pytest.mark.parametrize(
    ("state", "more"),
    [
        (DriftState.AWAITING, {}),
        (DriftState.REJECTED, {}),
        (DriftState.FIGHTING, {}),
        (DriftState.PULL_REQUEST, {"url": "https://git.example.com/pulls/1"}),
        (DriftState.HELD, {"until": LATER}),
        (DriftState.SNOOZED, {"until": LATER}),
        (DriftState.DETECTED, {"healable": False}),
        (DriftState.BLOCKED, {"healable": False}),
        (DriftState.BLOCKED, {"until": LATER}),
        (DriftState.BLOCKED, {"entries": [ALTERED], "until": SOONER}),
        (DriftState.DETECTED, {"entries": [ALTERED]}),
        (DriftState.DETECTED, {"remediation": Remediation.REPORT}),
    ],
)
def test_drift_that_needs_somebody_is_a_blocker(state: DriftState, more: dict[str, Any]) -> None:
    blocker = found(followed(sync="drifted"), drift(state, **more))
    assert blocker
    assert blocker.message.startswith("ConfigMap chat/a has drifted, and drf-1 ")
    assert "drf-1" in blocker.hint
    assert blocker.exit == 3
    assert not found(followed(sync="drifted"), drift(state, **more), goal="healthy")


@pytest.mark.parametrize(
    ("state", "more"),
    [
        (DriftState.DETECTED, {}),
        (DriftState.APPROVED, {}),
        (DriftState.HEALING, {}),
        (DriftState.BLOCKED, {}),
        (DriftState.HELD, {"until": SOONER}),
        (DriftState.SNOOZED, {"until": SOONER}),
        (DriftState.DETECTED, {"remediation": Remediation.REVIEW}),
    ],
)
def test_drift_that_heals_by_itself_is_no_blocker(state: DriftState, more: dict[str, Any]) -> None:
    assert not found(followed(sync="drifted"), drift(state, **more))


def test_reported_drift_is_put_back_by_a_sync_that_was_asked_for() -> None:
    reported = drift(DriftState.DETECTED, remediation=Remediation.REPORT)
    assert not found(followed(sync="drifted"), reported, requested=True)


def test_a_hold_counts_if_it_lasts_longer_and_something_is_apart() -> None:
    assert found(followed(holds=[hold(LATER)]))
    assert not found(followed(holds=[hold(SOONER)]))
    assert not found(followed(holds=[hold(LATER, object=A)]))
    assert not found(followed(sync="unknown", holds=[hold(LATER)]))
    ahead = followed(ahead=1)
    assert found(ahead, standing("a", SyncStatus.OUT_OF_SYNC, held_until=LATER))
    assert not found(ahead, standing("a", SyncStatus.OUT_OF_SYNC, held_until=SOONER))
    assert not found(ahead, standing("a", SyncStatus.IN_SYNC, held_until=LATER))


def test_what_is_left_over_counts_once_it_is_all_that_is_apart() -> None:
    left, ahead = standing("l", SyncStatus.PRUNABLE), standing("a", SyncStatus.OUT_OF_SYNC)
    blocker = found(followed(), left, standing("m", SyncStatus.PRUNABLE))
    assert blocker
    assert blocker.message.startswith("ConfigMap chat/l and 1 other object of team/shop")
    assert blocker.hint == "holdfast sync team/shop --prune --wait"
    assert not found(followed(), left, ahead)
    assert not found(followed(prunes=True), left)
    assert not found(followed(), left, prunes=True)


def test_a_plan_counts_until_it_is_approved() -> None:
    assert found(followed(plans=[plan()]))
    assert not found(followed(plans=[plan(approved_by="joe")]))


def test_who_syncs_by_hand_has_to() -> None:
    assert found(followed(automatic=False))
    assert not found(followed(automatic=False), requested=True)


@pytest.mark.parametrize("reason", StaleReason)
def test_the_reason_tells_whether_a_source_may_come_back(reason: StaleReason) -> None:
    needs_a_person = reason in (StaleReason.INVALID, StaleReason.UNACCEPTED)
    blocker = found(followed(sync="synced", stale="As may be.", stale_reason=reason.value))
    assert bool(blocker) is needs_a_person


@pytest.mark.parametrize("reason", ["", "of-a-later-version"])
@pytest.mark.parametrize("stale", ["Source could not be read.", "Input was refused. No YAML."])
def test_what_is_not_known_to_need_a_person_is_waited_for(stale: str, reason: str) -> None:
    """The sentence is for people: a controller of before gives no other reason."""
    now = followed(sync="synced", stale=stale, stale_reason=reason)
    assert not WaitGoal(state="ready").is_reached(now)
    assert not found(now)


def test_what_is_declared_wrongly_is_an_error_and_no_decision() -> None:
    broken = followed(sync="synced", stale="a.yaml:3: no YAML.", stale_reason=StaleReason.INVALID)
    blocker = found(broken)
    assert blocker
    assert blocker.exit == 1
    twice = ConditionForm(type="Ready", status="False", reason="DeclaredTwice", message="Both.")
    blocker = found(followed(sync="unknown", conditions=[twice]))
    assert blocker
    assert (blocker.message, blocker.exit) == ("Both.", 1)


def test_what_git_suspends_is_ready_and_not_healthy() -> None:
    resting = followed(sync="synced", health=ObjectHealth.SUSPENDED)
    assert WaitGoal(state="ready").is_reached(resting)
    assert not WaitGoal(state="healthy").is_reached(resting)
    assert found(resting, goal="healthy")
    assert not WaitGoal(state="ready").is_reached(
        followed(sync="synced", stale="Source could not be read.")
    )
