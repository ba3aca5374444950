"""Every fact of an application and its projections, as a table: who adds one decides on each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.gitops import facts
from holdfast.core.gitops.application import ApplicationId, HoldEnd, Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.facts import JournalAction
from holdfast.core.gitops.guard import ApprovalRequirement
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.notices import notice_of
from holdfast.core.gitops.objects import DuplicateDeclaration
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.records import (
    ApprovalReason,
    PendingPlan,
    PullRequestRecord,
    TemporaryIgnoreRule,
)
from holdfast.core.gitops.source import StaleReason, StaleSource
from holdfast.core.gitops.wording import (
    describe_state,
    event_message,
    journal_detail,
    message_of,
)
from holdfast.core.object_ref import ObjectRef

AT = datetime(2026, 11, 16, 14, tzinfo=UTC)
APPLICATION = ApplicationId(namespace="team", name="shop")
REF = ObjectRef(api_version="v1", kind="ConfigMap", namespace="chat", name="a")
DRIFT = ObjectDrift(
    id="drf-1",
    application=APPLICATION,
    project="p",
    object=REF,
    entries=(),
    commit="c1",
    remediation=Remediation.SELF_HEAL,
    note="It could not be put back.",
    first_seen=AT,
    last_seen=AT,
)
HEALED = replace(
    DRIFT, state=DriftState.RESOLVED, resolution=Resolution.SELF_HEALED, resolved_at=AT
)
PLAN = SyncPlan(application=APPLICATION, commit="c" * 40, steps=())
PENDING = PendingPlan(
    id="pln-1", digest="sha256:1", commit="c1", reasons=(), told="Much.", steps=(), made_at=AT
)
PULL = PullRequestRecord(
    branch="holdfast/codify/a",
    drift="drf-1",
    digest="",
    number=1,
    url="https://git.example.com/1",
    head="",
    opened_at=AT,
    checked_at=AT,
    stopped="A person closed it.",
)
HOLD = Hold(
    id="hld-1",
    application=APPLICATION,
    object=REF,
    reason="An incident.",
    by="alice",
    since=AT,
    until=AT + timedelta(hours=1),
    end=HoldEnd.REVERT,
)
RULE = TemporaryIgnoreRule(
    name="r",
    drift="drf-1",
    path="data.x",
    manager=None,
    kind="ConfigMap",
    object_name="a",
    namespace="chat",
    owner="ml",
    reason="A test.",
    expires=AT,
)
TOO_MUCH = ApprovalRequirement(why=ApprovalReason.MASS_HEAL, message="Too much drifted.")
STALE = StaleSource(reason=StaleReason.UNAVAILABLE, detail="No answer.")
SOURCE = {"repository": "https://git.example.com/x.git", "revision": "main", "since": AT}

TABLE: list[tuple[facts.ApplicationFact, str, str, str]] = [
    # A fact, the action of its journal line, the reason of its Event, and the type of its notice;
    # empty for what it has none of.
    (facts.DriftDetected(drift=DRIFT), "detected", "DriftDetected", "drift.detected"),
    (facts.DriftChanged(drift=DRIFT), "changed", "", ""),
    (facts.DriftCorrected(drift=HEALED, healed=True), "resolved", "DriftCorrected", "drift.healed"),
    (facts.DriftCorrected(drift=HEALED), "resolved", "DriftCorrected", ""),
    (facts.DriftEnded(drift=HEALED), "resolved", "DriftEnded", ""),
    (facts.DriftAbandoned(drift=HEALED), "resolved", "", ""),
    (facts.DriftHeld(drift=DRIFT), "held", "DriftTolerated", "drift.tolerated"),
    (
        facts.FightDetected(drift=DRIFT, writers=("keda",), since=AT),
        "fight",
        "SelfHealLoopDetected",
        "drift.fight",
    ),
    (facts.AlteredByAdmission(drift=DRIFT), "altered", "AlteredByAdmission", "drift.failed"),
    (
        facts.ApprovalRequested(drift=DRIFT, plan=PLAN),
        "approval-requested",
        "ApprovalRequested",
        "",
    ),
    (facts.HealStarted(drift=DRIFT, plan=PLAN), "applying", "", ""),
    (facts.HealFailed(drift=DRIFT), "heal-failed", "ReconciliationFailed", "drift.failed"),
    (facts.ApprovalExpired(drift=DRIFT), "stale", "PlanStale", ""),
    (facts.ToleranceExpired(drift=DRIFT, ended=AT, follows="", reason=""), "", "", "drift.expired"),
    (
        facts.DriftDecided(drift=DRIFT, decision=JournalAction.APPROVED, comment=""),
        "approved",
        "",
        "drift.approved",
    ),
    (
        facts.DriftDecided(drift=DRIFT, decision=JournalAction.REJECTED, comment=""),
        "rejected",
        "",
        "drift.rejected",
    ),
    *(
        (facts.DriftDecided(drift=DRIFT, decision=decision, comment=""), decision.value, "", "")
        for decision in (
            JournalAction.FIRST_APPROVED,
            JournalAction.SNOOZED,
            JournalAction.CODIFY_REQUESTED,
            JournalAction.REVERT_REQUESTED,
        )
    ),
    (
        facts.DecisionRefused(about="drf-1", decision=JournalAction.APPROVED, reason="Late."),
        "refused",
        "",
        "",
    ),
    (facts.DecisionMerged(drift=DRIFT), "approved", "DriftApproved", ""),
    (facts.DriftIgnored(drift=DRIFT, paths=("data.x",), until=AT), "ignored", "", ""),
    (
        facts.PullRequestOpened(drift=DRIFT, url=PULL.url),
        "pull-opened",
        "PullRequestOpened",
        "drift.codified",
    ),
    (
        facts.PullRequestMerged(pull=PULL, drift=DRIFT),
        "pull-merged",
        "PullRequestMerged",
        "drift.codified",
    ),
    (facts.PullRequestMerged(pull=PULL), "pull-merged", "PullRequestMerged", ""),
    (facts.PullRequestRejected(pull=PULL), "pull-rejected", "DriftRejected", ""),
    (facts.PullRequestClosed(pull=PULL, reason="It is."), "pull-closed", "PullRequestClosed", ""),
    (
        facts.PullRequestLeftAlone(drift=DRIFT, branch=PULL.branch),
        "pull-left-alone",
        "PullRequestLeftAlone",
        "",
    ),
    (
        facts.PullRequestOverdue(pull=PULL, drift=DRIFT, ended=AT),
        "pull-overdue",
        "PullRequestOverdue",
        "drift.expired",
    ),
    (facts.PullRequestFailed(reason="No answer."), "", "PullRequestFailed", ""),
    (facts.SyncStarted(plan=PLAN), "syncing", "", ""),
    (facts.Synced(plan=PLAN), "synced", "Synced", ""),
    (facts.SyncFailed(reason="Refused."), "sync-failed", "ReconciliationFailed", ""),
    (facts.ObjectAltered(about=REF, reason="It is."), "altered", "AlteredByAdmission", ""),
    (facts.CommitAccepted(commit="c1"), "accepted", "", ""),
    (facts.HealsBlocked(requirement=TOO_MUCH, count=40), "parked", "Parked", "plan.parked"),
    (facts.PlanBlocked(plan=PLAN, requirements=(TOO_MUCH,)), "parked", "Parked", "plan.parked"),
    (facts.PlanApproved(plan=PENDING), "approved", "", ""),
    (facts.PlanRejected(plan=PENDING), "rejected", "", ""),
    (facts.PlanApprovalExpired(plan=PENDING), "stale", "", ""),
    (facts.SourceStale(**SOURCE, stale=STALE), "source-stale", "SourceStale", "source.stale"),
    (facts.SourceRecovered(**SOURCE, commit="c1"), "source-recovered", "", "source.recovered"),
    (
        facts.ApplicationRefused(duplicate=DuplicateDeclaration(object=REF, owner=APPLICATION)),
        "refused",
        "DeclaredTwice",
        "",
    ),
    (facts.ObjectMoved(about=REF, owner="team/other"), "moved", "", ""),
    (facts.HandedOver(), "handed-over", "", ""),
    (facts.ApplicationRetired(objects=3), "left", "", ""),
    (facts.RuleExpired(rule=RULE), "rule-expired", "", ""),
    (facts.Paused(hold=HOLD), "paused", "", ""),
    (facts.PausedByAnnotation(hold=HOLD), "paused", "Paused", ""),
    (facts.Resumed(hold=HOLD), "resumed", "", ""),
    (facts.ResumedByAnnotation(hold=HOLD), "resumed", "Resumed", ""),
    (facts.HoldRefused(hold=HOLD, never=True), "hold-refused", "HoldRefused", ""),
    (facts.HoldExpired(hold=HOLD, follows="is reported"), "pause-expired", "PauseExpired", ""),
]
BASES = {
    facts.ApplicationFact,
    facts.DriftFact,
    facts.PullRequestFact,
    facts.PendingPlanFact,
    facts.SourceFact,
    facts.HoldFact,
}


@pytest.mark.parametrize(("fact", "action", "event", "notice"), TABLE)
def test_a_fact_has_exactly_these_projections(
    fact: facts.ApplicationFact, action: str, event: str, notice: str
) -> None:
    assert (fact.journal_action or "") == action
    assert fact.event == event
    made = notice_of(fact, APPLICATION, AT)
    assert (made.type if made else "") == (f"dev.holdfast.{notice}.v1" if notice else "")
    if action or event:
        assert message_of(fact)
        assert event_message(fact)
        assert isinstance(journal_detail(fact), dict)


def test_every_fact_and_every_journal_action_is_in_the_table() -> None:
    assert {type(row[0]) for row in TABLE} == {*every_fact(facts.ApplicationFact)} - BASES
    assert {row[1] for row in TABLE} - {""} == {each.value for each in JournalAction}


@pytest.mark.parametrize(
    ("decision", "name"),
    [
        (JournalAction.APPROVED, "approval"),
        (JournalAction.REJECTED, "rejection"),
        (JournalAction.SNOOZED, "snooze"),
        (JournalAction.CODIFY_REQUESTED, "pull request"),
        (JournalAction.REVERT_REQUESTED, "revert"),
        (JournalAction.IGNORED, "ignore rule"),
    ],
)
def test_a_refused_decision_is_named_as_before(decision: JournalAction, name: str) -> None:
    """The journal keeps the sentence, so lines of earlier versions read the same."""
    fact = facts.DecisionRefused(about="drf-1", decision=decision, reason="It moved.")
    assert message_of(fact) == f"Its {name} was refused: It moved."
    assert (fact.subject, fact.object, journal_detail(fact)) == ("drf-1", None, {})


def every_fact(base: type[facts.ApplicationFact]) -> Iterator[type[facts.ApplicationFact]]:
    yield base
    for each in base.__subclasses__():
        yield from every_fact(each)


def test_each_state_is_said_in_words_that_people_use() -> None:
    said = [describe_state(state) for state in DriftState]
    assert len({*said}) == len(said)
    assert not {"parked", "held", "pull-request"} & {*said}
