"""The one decision: its rungs row by row, its laws over the whole product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from holdfast.core.drift import Situation
from holdfast.core.gitops.application import Remediation
from holdfast.core.policy import (
    Circumstances,
    Decision,
    DecisionAction,
    OnAbsent,
    OnDrift,
    Policy,
    Reason,
    decide,
)

LATER = datetime(2026, 1, 2, tzinfo=UTC)
DRIFTED, PENDING, ABSENT = Situation.DRIFTED, Situation.PENDING, Situation.ABSENT
BY_POLICY = {
    Policy.IGNORE: DecisionAction.LEAVE,
    Policy.REPORT: DecisionAction.REPORT,
    Policy.PLAN: DecisionAction.PLAN,
    Policy.REFUSE: DecisionAction.REFUSE,
    Policy.REVIEW: DecisionAction.REVIEW,
    Policy.PROPOSE: DecisionAction.PROPOSE,
    Policy.HEAL: DecisionAction.HEAL,
}
ABSENT_BY_POLICY = {
    OnAbsent.CREATE: DecisionAction.CREATE,
    OnAbsent.PLAN: DecisionAction.PLAN,
    OnAbsent.FAIL: DecisionAction.REFUSE,
}
HEALING = [Policy.HEAL, Policy.REVIEW]
OTHERS = [policy for policy in Policy if policy not in HEALING]
EVERY = list(Policy)

# Situation, policies, circumstances, then action, reason and until.
ROWS: list[tuple[Situation, list[Policy], dict[str, Any], str, str, datetime | None]] = [
    (Situation.UNKNOWN, EVERY, {}, "hold", "unread", None),
    (Situation.IN_SYNC, EVERY, {}, "nothing", "in-sync", None),
    (PENDING, EVERY, {}, "update", "newly-declared", None),
    (ABSENT, EVERY, {}, "create", "absent", None),
    (DRIFTED, EVERY, {"incomplete": True}, "hold", "incomplete", None),
    (DRIFTED, EVERY, {"terminating": True}, "wait", "terminating", None),
    (ABSENT, EVERY, {"terminating": True}, "wait", "terminating", None),
    (DRIFTED, EVERY, {"rejected": True}, "leave", "rejected", None),
    (DRIFTED, EVERY, {"snoozed_until": LATER}, "leave", "snoozed", LATER),
    (DRIFTED, EVERY, {"held": True, "held_until": LATER}, "leave", "held", LATER),
    (ABSENT, EVERY, {"held": True}, "leave", "held", None),
    (PENDING, EVERY, {"held": True}, "leave", "held", None),
    (DRIFTED, HEALING, {"foreign": True}, "leave", "foreign", None),
    (DRIFTED, EVERY, {"foreign": True, "approved": True}, "leave", "foreign", None),
    (DRIFTED, [Policy.PROPOSE], {"foreign": True, "reverts": True}, "leave", "foreign", None),
    (DRIFTED, [Policy.PROPOSE], {"foreign": True}, "propose", "policy", None),
    (ABSENT, EVERY, {"foreign": True}, "leave", "foreign", None),
    (PENDING, EVERY, {"foreign": True}, "leave", "foreign", None),
    (DRIFTED, HEALING, {"unhealable": True}, "leave", "unhealable", None),
    (DRIFTED, EVERY, {"unhealable": True, "approved": True}, "leave", "unhealable", None),
    (DRIFTED, HEALING, {"altered": True, "recheck_at": LATER},
     "leave", "altered-by-admission", LATER),
    (DRIFTED, HEALING, {"altered": True, "pending": True}, "update", "newly-declared", None),
    (DRIFTED, HEALING, {"altered": True, "pending": True, "unknown_fields": True},
     "leave", "unknown-fields", None),
    (DRIFTED, EVERY, {"retry_at": LATER}, "leave", "retrying", LATER),
    (DRIFTED, EVERY, {"retry_at": LATER, "approved": True}, "leave", "retrying", LATER),
    (DRIFTED, EVERY, {"approved": True}, "heal", "approved", None),
    (DRIFTED, EVERY, {"approved": True, "window_open": False}, "heal", "approved", None),
    (DRIFTED, EVERY, {"approved": True, "held": True}, "leave", "held", None),
    (DRIFTED, [Policy.HEAL], {"window_open": False, "window_until": LATER},
     "leave", "window-closed", LATER),
    (DRIFTED, [Policy.HEAL], {"fight_until": LATER}, "leave", "fight", LATER),
    (DRIFTED, [Policy.HEAL], {"fight_until": LATER, "pending": True},
     "update-around-drift", "fight", LATER),
    (DRIFTED, [Policy.HEAL], {"backoff_until": LATER}, "leave", "backing-off", LATER),
    (DRIFTED, [Policy.HEAL], {"guarded": True}, "review", "guard", None),
    (DRIFTED, [Policy.HEAL], {"pending": True}, "heal", "policy", None),
    (DRIFTED, [Policy.HEAL], {"pending": True, "unknown_fields": True},
     "leave", "unknown-fields", None),
    (DRIFTED, [Policy.HEAL], {"unknown_fields": True}, "heal", "policy", None),
    (DRIFTED, [Policy.IGNORE, Policy.REPORT], {"pending": True},
     "update-around-drift", "newly-declared", None),
    (DRIFTED, [Policy.IGNORE, Policy.REPORT], {"pending": True, "unknown_fields": True},
     "leave", "unknown-fields", None),
    (DRIFTED, [Policy.PLAN], {"pending": True}, "plan", "policy", None),
    (DRIFTED, [Policy.REFUSE], {"pending": True}, "refuse", "policy", None),
    (PENDING, EVERY, {"unknown_fields": True}, "nothing", "unknown-fields", None),
    (PENDING, EVERY, {"window_open": False}, "leave", "window-closed", None),
    (ABSENT, EVERY, {"unknown_fields": True}, "create", "absent", None),
    (ABSENT, EVERY, {"fight_until": LATER}, "leave", "fight", LATER),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{'-'.join(row[2]) or 'plain'}")
def test_every_rung_decides_as_the_table_says(
    row: tuple[Situation, list[Policy], dict[str, Any], str, str, datetime | None],
) -> None:
    situation, policies, given, action, reason, until = row
    for policy in policies:
        assert decide(situation, policy, Circumstances(**given)) == Decision(
            action=DecisionAction(action), reason=Reason(reason), until=until
        ), policy


@pytest.mark.parametrize("policy", Policy)
def test_plain_drift_is_handled_by_the_policy_alone(policy: Policy) -> None:
    assert decide(DRIFTED, policy) == Decision(action=BY_POLICY[policy], reason=Reason.POLICY)


@pytest.mark.parametrize(("on_drift", "on_absent"), list(product(OnDrift, OnAbsent)))
def test_what_is_absent_is_created_planned_or_refused_whatever_drift_would_be(
    on_drift: OnDrift, on_absent: OnAbsent
) -> None:
    found = decide(ABSENT, on_drift.policy, on_absent=on_absent)
    assert found == Decision(action=ABSENT_BY_POLICY[on_absent], reason=Reason.ABSENT)


def everything() -> Iterator[tuple[Situation, Policy, Circumstances]]:
    """Yield every situation and policy under every three circumstances together, and none."""
    names = (
        "pending incomplete unknown_fields terminating foreign held approved rejected unhealable"
        " altered reverts guarded"
    )
    values: dict[str, Any] = dict.fromkeys(names.split(), True) | {"window_open": False}
    values |= dict.fromkeys(("snoozed_until", "retry_at", "fight_until", "backoff_until"), LATER)
    chosen = {frozenset(three) for three in product(values, repeat=3)} | {frozenset[str]()}
    for some in chosen:
        given = Circumstances(**{name: values[name] for name in some})
        for situation, policy in product(Situation, Policy):
            yield situation, policy, given


def test_the_laws_hold_over_the_whole_product() -> None:
    for situation, policy, given in everything():
        found = decide(situation, policy, given)
        told = f"{situation} {policy.name} {given}: {found}"
        unseen = situation is Situation.UNKNOWN or given.incomplete
        assert (found.action is DecisionAction.HOLD) is unseen, told
        if not found.action.writes:
            continue
        assert situation not in (Situation.UNKNOWN, Situation.IN_SYNC), told
        assert not (given.held or given.foreign or given.rejected or given.terminating), told
        assert given.snoozed_until is None, told
        assert given.retry_at is None or given.altered, told
        if found.action is DecisionAction.HEAL:
            assert situation is DRIFTED or given.approved, told
            assert policy is Policy.HEAL or given.approved, told
            assert not (given.unhealable or given.altered) or situation is not DRIFTED, told
            assert given.approved or (given.window_open and given.fight_until is None), told
        if given.unknown_fields and found.action is not DecisionAction.CREATE:
            assert given.approved or not given.pending, told


def test_a_stricter_policy_never_writes_what_a_freer_one_leaves() -> None:
    """Up the scale, the live side is only ever touched more."""
    for situation, policy, given in everything():
        if policy is Policy.HEAL or given.altered or given.unhealable or given.foreign:
            continue
        if given.pending or given.guarded or not given.window_open:
            continue
        if given.fight_until or given.backoff_until:
            continue
        if decide(situation, policy, given).action.writes:
            assert decide(situation, Policy.HEAL, given).action.writes, (situation, policy, given)


def test_no_approval_is_needed_twice() -> None:
    """What was approved is not asked for again, by whatever policy it was found."""
    for policy in Policy:
        found = decide(DRIFTED, policy, Circumstances(approved=True, guarded=True))
        assert found.action is DecisionAction.HEAL


def test_both_users_scales_lie_on_the_one_scale() -> None:
    assert sorted(OnDrift, key=lambda each: each.policy) == [
        OnDrift.IGNORE, OnDrift.WARN, OnDrift.DRY_RUN, OnDrift.FAIL, OnDrift.RECONCILE,
    ]  # fmt: skip
    assert sorted(Remediation, key=lambda each: each.policy) == [
        Remediation.IGNORE, Remediation.REPORT, Remediation.REVIEW, Remediation.PULL_REQUEST,
        Remediation.SELF_HEAL,
    ]  # fmt: skip


def test_times_do_not_change_what_is_done() -> None:
    for situation, policy, given in everything():
        moved = replace(given, held_until=LATER, recheck_at=LATER + timedelta(days=1))
        assert decide(situation, policy, moved).action is decide(situation, policy, given).action


@pytest.mark.parametrize("bad", ["situation", "policy", "on_absent"])
def test_a_value_outside_the_table_is_an_error_and_not_a_default(bad: str) -> None:
    situation: Any = {"policy": DRIFTED, "on_absent": ABSENT}.get(bad, "?")
    unknown: Any = "?"
    with pytest.raises(AssertionError):
        decide(situation, unknown, on_absent=unknown)


def test_every_reason_and_every_action_is_reached() -> None:
    """A member of either enum that nothing decides would be a promise that nobody keeps."""
    found = [decide(*each) for each in everything()]
    found += [decide(ABSENT, Policy.HEAL, on_absent=each) for each in OnAbsent]
    assert {each.reason for each in found} == set(Reason)
    assert {each.action for each in found} == set(DecisionAction)


def test_what_is_ignored_reported_or_proposed_is_never_put_back_unasked() -> None:
    for situation, policy, given in everything():
        if policy is not Policy.HEAL and not given.approved:
            assert decide(situation, policy, given).action is not DecisionAction.HEAL
