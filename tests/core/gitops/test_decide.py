"""What is done about a drift, and how it stands afterwards: a table, and laws over all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import (
    ApplicationId,
    GuardSpec,
    HoldEnd,
    PullRequestKind,
    Remediation,
)
from holdfast.core.gitops.decide import FIGHT_TRUCE, DriftSituation, guard_heals
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.guard import ApprovalRequirement
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.objects import ForeignOwner
from holdfast.core.gitops.records import ApprovalReason
from holdfast.core.gitops.window import WindowState
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef
from holdfast.core.policy import Decision, DecisionAction, Reason

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SOON, LATER = NOW + timedelta(minutes=5), NOW + timedelta(hours=3)
APPLICATION = ApplicationId(namespace="gitops", name="chat")
CHAT = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="prod", name="chat")
OPEN = WindowState(open=True, until=None, why="There are no windows.")
CLOSED = WindowState(open=False, until=LATER, why="No window allows writing.")
HOLD = Hold(
    id="hold-1",
    application=APPLICATION,
    object=CHAT,
    reason="incident 7",
    by="alice",
    since=NOW,
    until=LATER,
    end=HoldEnd.REVERT,
)
TOO_MUCH = ApprovalRequirement(why=ApprovalReason.MASS_HEAL, message="6 of 10 drifted at once.")
ROUNDS = tuple(NOW - timedelta(minutes=each) for each in (3, 2, 1))


def drift(
    remediation: Remediation = Remediation.SELF_HEAL,
    state: DriftState = DriftState.DETECTED,
    *,
    cause: Cause = Cause.PERSON,
    **more: object,
) -> ObjectDrift:
    entry = DriftEntry(
        path="spec.replicas",
        desired=1,
        live=2,
        kind=DriftKind.CONFIGURATION,
        cause=cause,
        evidence="",
    )
    base = ObjectDrift(
        id="drf-1",
        application=APPLICATION,
        project="p",
        object=CHAT,
        entries=(entry,),
        commit="c1",
        remediation=remediation,
        state=state,
        note="As before.",
        first_seen=NOW - timedelta(hours=1),
        last_seen=NOW,
    )
    return replace(base, **more)  # type: ignore[arg-type]


def situation(drift: ObjectDrift, **more: object) -> DriftSituation:
    return DriftSituation(drift=drift, now=NOW, **{"window": OPEN, **more})  # type: ignore[arg-type]


R, S, A = Remediation, DriftState, DecisionAction
DECIDED = ("state", "note", "reason", "until")
"""The fields of a drift that a decision may change."""
TABLE: dict[str, tuple[DriftSituation, DecisionAction, Reason, DriftState]] = {
    "reported": (situation(drift(R.REPORT)), A.REPORT, Reason.POLICY, S.DETECTED),
    "ignored": (situation(drift(R.IGNORE)), A.LEAVE, Reason.POLICY, S.DETECTED),
    "healed": (situation(drift(R.SELF_HEAL)), A.HEAL, Reason.POLICY, S.HEALING),
    "reviewed": (situation(drift(R.REVIEW)), A.REVIEW, Reason.POLICY, S.AWAITING),
    "proposed": (situation(drift(R.PULL_REQUEST)), A.PROPOSE, Reason.POLICY, S.DETECTED),
    "proposed still": (
        situation(drift(R.PULL_REQUEST, S.PULL_REQUEST, until=LATER)),
        A.PROPOSE,
        Reason.POLICY,
        S.PULL_REQUEST,
    ),
    "proposed after a hold": (
        situation(drift(R.PULL_REQUEST, S.HELD)),
        A.PROPOSE,
        Reason.POLICY,
        S.DETECTED,
    ),
    "approved, outside of windows": (
        situation(drift(R.REVIEW, S.APPROVED), window=CLOSED),
        A.HEAL,
        Reason.APPROVED,
        S.APPROVED,
    ),
    "approved, on hold": (
        situation(drift(R.REVIEW, S.APPROVED), hold=HOLD),
        A.LEAVE,
        Reason.HELD,
        S.HELD,
    ),
    "approved, of another tool": (
        situation(drift(R.REPORT, S.APPROVED), owner=ForeignOwner.FLUX),
        A.LEAVE,
        Reason.FOREIGN,
        S.DETECTED,
    ),
    "approved, failed a moment ago": (
        situation(drift(R.REVIEW, S.APPROVED, until=SOON)),
        A.LEAVE,
        Reason.RETRYING,
        S.APPROVED,
    ),
    "rejected, on hold": (
        situation(drift(R.REVIEW, S.REJECTED), hold=HOLD),
        A.LEAVE,
        Reason.REJECTED,
        S.REJECTED,
    ),
    "snoozed": (
        situation(drift(R.REVIEW, S.SNOOZED, until=LATER)),
        A.LEAVE,
        Reason.SNOOZED,
        S.SNOOZED,
    ),
    "snoozed until now": (
        situation(drift(R.REVIEW, S.SNOOZED, until=NOW)),
        A.REVIEW,
        Reason.POLICY,
        S.AWAITING,
    ),
    "window closed": (
        situation(drift(), window=CLOSED),
        A.LEAVE,
        Reason.WINDOW_CLOSED,
        S.BLOCKED,
    ),
    "pods alone": (
        situation(drift(healable=False)),
        A.LEAVE,
        Reason.UNHEALABLE,
        S.BLOCKED,
    ),
    "altered by admission": (
        situation(drift(cause=Cause.ADMISSION)),
        A.LEAVE,
        Reason.ALTERED,
        S.BLOCKED,
    ),
    "altered and only reported": (
        situation(drift(R.REPORT, cause=Cause.ADMISSION)),
        A.REPORT,
        Reason.POLICY,
        S.DETECTED,
    ),
    "a revert of another tool's object": (
        situation(drift(R.PULL_REQUEST, pull=PullRequestKind.REVERT), owner=ForeignOwner.ARGO_CD),
        A.LEAVE,
        Reason.FOREIGN,
        S.DETECTED,
    ),
    "fought": (
        situation(drift(fought=True, rounds=ROUNDS)),
        A.LEAVE,
        Reason.FIGHT,
        S.FIGHTING,
    ),
    "fought, resting": (
        situation(drift(state=S.FIGHTING, until=SOON)),
        A.LEAVE,
        Reason.FIGHT,
        S.FIGHTING,
    ),
    "healed a moment ago": (
        situation(drift(state=S.HEALING, rounds=(NOW,))),
        A.LEAVE,
        Reason.BACKING_OFF,
        S.HEALING,
    ),
    "too much at once": (situation(drift(), guard=TOO_MUCH), A.REVIEW, Reason.GUARD, S.BLOCKED),
    "too much at once, approved": (
        situation(drift(R.REVIEW, S.APPROVED), guard=TOO_MUCH),
        A.HEAL,
        Reason.APPROVED,
        S.APPROVED,
    ),
    "too much at once, to be reviewed anyway": (
        situation(drift(R.REVIEW), guard=TOO_MUCH),
        A.REVIEW,
        Reason.POLICY,
        S.AWAITING,
    ),
    "too much at once, window closed": (
        situation(drift(), guard=TOO_MUCH, window=CLOSED),
        A.LEAVE,
        Reason.WINDOW_CLOSED,
        S.BLOCKED,
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_what_is_decided_and_how_the_drift_stands(case: str) -> None:
    given_now, action, reason, state = TABLE[case]
    decision = given_now.decide()
    assert (decision.action, decision.reason) == (action, reason)
    assert given_now.drift_after(decision).state is state


def test_a_drift_that_the_guard_keeps_says_why_in_its_words() -> None:
    now = situation(drift(until=NOW), guard=TOO_MUCH)
    after = now.drift_after(now.decide())
    assert (after.note, after.until) == (TOO_MUCH.message, None)


situations = st.builds(
    situation,
    st.builds(
        drift,
        st.sampled_from(Remediation),
        st.sampled_from([each for each in DriftState if each is not DriftState.RESOLVED]),
        cause=st.sampled_from([Cause.PERSON, Cause.ADMISSION]),
        pull=st.sampled_from(PullRequestKind),
        healable=st.booleans(),
        fought=st.booleans(),
        until=st.sampled_from([None, NOW - timedelta(hours=1), SOON, LATER]),
        rounds=st.sampled_from([(), (NOW,), ROUNDS]),
    ),
    owner=st.sampled_from([None, *ForeignOwner]),
    hold=st.sampled_from([None, HOLD]),
    window=st.sampled_from([OPEN, CLOSED]),
    recheck_at=st.sampled_from([None, SOON]),
    guard=st.sampled_from([None, TOO_MUCH]),
)


@given(situations)
def test_nothing_is_written_on_hold_or_to_what_another_tool_applies(now: DriftSituation) -> None:
    if now.hold is not None or now.owner is not None:
        assert not now.decide().action.writes


@given(situations)
def test_nothing_is_written_that_no_apply_can_put_back(now: DriftSituation) -> None:
    if not now.drift.healable or now.drift.altered:
        assert not now.decide().action.writes


@given(situations)
def test_only_an_approval_writes_under_a_policy_that_does_not_heal(now: DriftSituation) -> None:
    if now.decide().action.writes and now.drift.state is not DriftState.APPROVED:
        assert now.drift.remediation is Remediation.SELF_HEAL
        assert now.window.open
        assert now.guard is None


@given(situations)
def test_the_guard_keeps_what_would_be_healed_unasked_and_nothing_else(now: DriftSituation) -> None:
    free = replace(now, guard=None).decide()
    guarded = replace(now, guard=TOO_MUCH).decide()
    if free.action is A.HEAL and free.reason is Reason.POLICY:
        assert (guarded.action, guarded.reason) == (A.REVIEW, Reason.GUARD)
    else:
        assert guarded == free


def others(count: int, **more: object) -> list[DriftSituation]:
    """Make drifts of as many objects."""
    refs = [replace(CHAT, name=f"other-{n}") for n in range(count)]
    return [situation(drift(object=ref, id=f"drf-{ref.name}"), **more) for ref in refs]


TWO_MAY = GuardSpec(objects=2, percent=0)
TWICE = [situation(drift(id="drf-2")), situation(drift(id="drf-3"))]
GUARDED: dict[str, tuple[list[DriftSituation], tuple[datetime, ...], bool]] = {
    "as many as may be": (others(2), (), False),
    "one too many": (others(3), (), True),
    "drifts of one object count once": ([*others(1), *TWICE], (), False),
    "healed a moment ago": (others(2), (NOW - timedelta(seconds=30),), True),
    "healed before": (others(2), (NOW - timedelta(minutes=2),), False),
    "approved": ([*others(2), situation(drift(R.REVIEW, S.APPROVED))], (), False),
    "reviewed": ([*others(2), situation(drift(R.REVIEW))], (), False),
    "on hold": ([*others(2), situation(drift(), hold=HOLD)], (), False),
    "another tool's": ([*others(2), situation(drift(), owner=ForeignOwner.FLUX)], (), False),
    "outside of windows": (others(3, window=CLOSED), (), False),
    "none": ([], (), False),
}


@pytest.mark.parametrize("case", GUARDED)
def test_the_guard_counts_the_objects_that_would_be_healed_unasked(case: str) -> None:
    given_now, rounds, asks = GUARDED[case]
    found = guard_heals(given_now, now=NOW, rounds=rounds, inventory=5, guard=TWO_MAY)
    assert [replace(each, guard=None) for each in found] == given_now
    assert {each.guard is not None for each in found} == ({asks} if given_now else set())
    approved = [each for each in found if each.drift.state is S.APPROVED]
    assert all(each.decide().reason is Reason.APPROVED for each in approved)
    assert any(each.decide().reason is Reason.GUARD for each in found) is asks


def test_what_was_approved_is_healed_though_the_rest_is_too_much() -> None:
    approved = situation(drift(R.REVIEW, S.APPROVED))
    found = guard_heals([*others(3), approved], now=NOW, rounds=(), inventory=5, guard=TWO_MAY)
    assert [each.decide().reason for each in found] == [Reason.GUARD] * 3 + [Reason.APPROVED]


@given(situations)
def test_deciding_again_at_once_changes_nothing_more(now: DriftSituation) -> None:
    """What a pass decided, the next one at the same moment finds decided. An approval is used up
    by what keeps it from being carried out, such as a hold."""
    assume(now.drift.state is not DriftState.APPROVED)
    after = now.drift_after(now.decide())
    again = replace(now, drift=after)
    assert again.drift_after(again.decide()) == after


@given(situations)
def test_what_waits_for_a_time_waits_for_one_that_comes(now: DriftSituation) -> None:
    decision = now.decide()
    if decision.until is not None:
        assert decision.until > NOW
    if decision.reason is Reason.FIGHT:
        assert decision.until is not None
        assert decision.until <= NOW + FIGHT_TRUCE


def every_situation() -> Iterator[DriftSituation]:
    """Yield every remediation and state under every circumstance that a drift can be in."""
    states = [each for each in S if each is not S.RESOLVED]
    for (
        remediation, state, cause, pull, healable, fought, until, rounds, owner, hold, window,
    ) in product(
        R, states, (Cause.PERSON, Cause.ADMISSION), PullRequestKind, (True, False), (True, False),
        (None, SOON), ((), ROUNDS), (None, ForeignOwner.FLUX), (None, HOLD), (OPEN, CLOSED),
    ):  # fmt: skip
        each = drift(
            remediation,
            state,
            cause=cause,
            pull=pull,
            healable=healable,
            fought=fought,
            until=until,
            rounds=rounds,
        )
        yield situation(each, owner=owner, hold=hold, window=window)


def test_every_drift_is_decided_about_and_no_other_remediation_does_what_is_not_its_own() -> None:
    acts = {
        R.IGNORE: {A.LEAVE, A.HEAL},
        R.REPORT: {A.REPORT, A.LEAVE, A.HEAL},
        R.REVIEW: {A.REVIEW, A.LEAVE, A.HEAL},
        R.PULL_REQUEST: {A.PROPOSE, A.LEAVE, A.HEAL},
        R.SELF_HEAL: {A.LEAVE, A.HEAL},
    }
    reached: dict[Remediation, set[DecisionAction]] = {each: set() for each in R}
    for now in every_situation():
        decision, was = now.decide(), now.drift
        after = now.drift_after(decision)
        reached[was.remediation].add(decision.action)
        assert after.state is not S.RESOLVED
        assert replace(after, **{name: getattr(was, name) for name in DECIDED}) == was
        if decision.action is A.HEAL:
            assert now.hold is None
            assert now.owner is None
            assert was.healable
            assert after.state in (S.APPROVED, S.HEALING)
            assert was.state is S.APPROVED or was.remediation is R.SELF_HEAL
    assert reached == acts


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("action", DecisionAction)
def test_a_drift_stands_somehow_after_every_decision(
    reason: Reason, action: DecisionAction
) -> None:
    for state in S:
        now = situation(drift(state=state), hold=HOLD, owner=ForeignOwner.FLUX)
        after = now.drift_after(Decision(action=action, reason=reason, until=SOON))
        assert after.id == now.drift.id
        assert (after.state is S.RESOLVED) <= (state is S.RESOLVED)
