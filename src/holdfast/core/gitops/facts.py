"""Everything that can happen to an application, as typed facts.

The reconciler and the review service tell them, each once. A fact names the action of its journal
line and the reason of its Kubernetes Event; `wording.py` makes the sentences, and `notices.py` the
notice of those that have one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, dataclass_transform

from holdfast.core.facts import Fact
from holdfast.core.gitops.drift import ObjectDrift, Resolution
from holdfast.core.gitops.guard import ApprovalRequirement
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.objects import DuplicateDeclaration
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.records import PendingPlan, PullRequestRecord, TemporaryIgnoreRule
from holdfast.core.gitops.source import StaleSource
from holdfast.core.object_ref import ObjectRef

CONTROLLER = "holdfast-gitops"
"""The actor of what the controller does by itself, and its field manager."""


class JournalAction(StrEnum):
    """What a line of the journal says was done."""

    DETECTED = "detected"
    CHANGED = "changed"
    RESOLVED = "resolved"
    HELD = "held"
    FIGHT = "fight"
    ALTERED = "altered"
    APPROVAL_REQUESTED = "approval-requested"
    APPLYING = "applying"
    HEAL_FAILED = "heal-failed"
    STALE = "stale"
    BLOCKED = "parked"
    SYNCING = "syncing"
    SYNCED = "synced"
    SYNC_FAILED = "sync-failed"
    ACCEPTED = "accepted"
    SOURCE_STALE = "source-stale"
    SOURCE_RECOVERED = "source-recovered"
    REFUSED = "refused"
    """A decision; or an application that declares what another owns."""
    HANDED_OVER = "handed-over"
    RETIRED = "left"
    MOVED = "moved"
    RULE_EXPIRED = "rule-expired"
    IGNORED = "ignored"
    PAUSED = "paused"
    RESUMED = "resumed"
    HOLD_REFUSED = "hold-refused"
    HOLD_EXPIRED = "pause-expired"
    APPROVED = "approved"
    FIRST_APPROVED = "first-approved"
    REJECTED = "rejected"
    SNOOZED = "snoozed"
    CODIFY_REQUESTED = "codify-requested"
    REVERT_REQUESTED = "revert-requested"
    PULL_OPENED = "pull-opened"
    PULL_MERGED = "pull-merged"
    PULL_CLOSED = "pull-closed"
    PULL_REJECTED = "pull-rejected"
    PULL_LEFT_ALONE = "pull-left-alone"
    PULL_OVERDUE = "pull-overdue"


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class ApplicationFact(Fact):
    """Something that happened to an application or to part of it.

    Every class below is a frozen dataclass with keyword arguments, without saying so.
    """

    action: ClassVar[JournalAction | None] = None
    """What its line of the journal says; None for what has no line."""
    actor: str = CONTROLLER

    def __init_subclass__(cls) -> None:
        """Make a dataclass of it."""
        dataclass(frozen=True, kw_only=True)(cls)

    @property
    def journal_action(self) -> JournalAction | None:
        """The action of its line of the journal."""
        return self.action

    @property
    def subject(self) -> str:
        """The id of the drift, hold or plan that it is about; empty for the application."""
        return ""

    @property
    def object(self) -> ObjectRef | None:
        """The object that it is about; None for the application."""
        return None


class DriftFact(ApplicationFact):
    """Something that happened to one drift, which is given as it is afterwards."""

    drift: ObjectDrift

    @property
    def subject(self) -> str:
        """The id of the drift."""
        return self.drift.id

    @property
    def object(self) -> ObjectRef | None:
        """The object that drifted."""
        return self.drift.object


class DriftDetected(DriftFact):
    """A live object is not as declared any more."""

    action, event, warning = JournalAction.DETECTED, "DriftDetected", True


class DriftChanged(DriftFact):
    """An open drift has other fields or values now."""

    action = JournalAction.CHANGED


class DriftCorrected(DriftFact):
    """A drift ended: the object is as declared, or nobody declares it any more."""

    action, event = JournalAction.RESOLVED, "DriftCorrected"
    healed: bool = False
    """True when this pass put it back."""


class DriftEnded(DriftCorrected):
    """A drift ended although the object differs: a rule hides it, or it is another now."""

    event = "DriftEnded"


class DriftAbandoned(DriftFact):
    """The application of an open drift no longer exists."""

    action = JournalAction.RESOLVED


class DriftHeld(DriftFact):
    """A drift stays while a hold lasts."""

    action, event = JournalAction.HELD, "DriftTolerated"


class FightDetected(DriftFact):
    """What is put back does not stay."""

    action, event, warning = JournalAction.FIGHT, "SelfHealLoopDetected", True
    writers: tuple[str, ...]
    since: datetime


class AlteredByAdmission(DriftFact):
    """The server stores fields differently from what is sent, so nothing was put back."""

    action, event, warning = JournalAction.ALTERED, "AlteredByAdmission", True


class ApprovalRequested(DriftFact):
    """A plan for a drift waits for a review."""

    action, event = JournalAction.APPROVAL_REQUESTED, "ApprovalRequested"
    plan: SyncPlan


class HealStarted(DriftFact):
    """A drift is about to be put back."""

    action = JournalAction.APPLYING
    plan: SyncPlan


class HealFailed(DriftFact):
    """A drift should have been put back, and was not."""

    action, event, warning = JournalAction.HEAL_FAILED, "ReconciliationFailed", True


class ApprovalExpired(DriftFact):
    """The approval of a drift's plan does not hold any more."""

    action, event, warning = JournalAction.STALE, "PlanStale", True


class ToleranceExpired(DriftFact):
    """A hold ended with the drift still there."""

    ended: datetime
    follows: str
    """What is done about it now, as the end of a sentence."""
    reason: str
    """Why it was tolerated."""


class DriftDecided(DriftFact):
    """A person decided something about a drift."""

    decision: JournalAction
    comment: str

    @property
    def journal_action(self) -> JournalAction | None:
        """What was decided."""
        return self.decision


class DecisionMerged(DriftFact):
    """A merged decision file approves that a drift is reverted."""

    action, event = JournalAction.APPROVED, "DriftApproved"


class DriftIgnored(DriftFact):
    """A person hides a drift, or fields of it, for a while."""

    action = JournalAction.IGNORED
    paths: tuple[str, ...]
    until: datetime


class DecisionRefused(ApplicationFact):
    """What a person decided about a drift or a plan does not count, and changed nothing."""

    action = JournalAction.REFUSED
    about: str
    """The id of the drift or plan, which may be over by now."""
    decision: JournalAction
    reason: str

    @property
    def subject(self) -> str:
        """The id of the drift or plan."""
        return self.about


class PullRequestOpened(DriftFact):
    """A pull request about a drift is open."""

    action, event = JournalAction.PULL_OPENED, "PullRequestOpened"
    url: str
    """Of the pull request, or its branch where there is no forge."""


class PullRequestFact(ApplicationFact):
    """Something that happened to a pull request of ours."""

    pull: PullRequestRecord
    drift: ObjectDrift | None = None
    """What it is about, while that is open."""

    @property
    def subject(self) -> str:
        """The id of the drift that it is about."""
        return self.pull.drift


class PullRequestMerged(PullRequestFact):
    """A pull request was merged."""

    action, event = JournalAction.PULL_MERGED, "PullRequestMerged"


class PullRequestRejected(PullRequestFact):
    """A person closed a pull request: the same drift is not proposed again."""

    action, event = JournalAction.PULL_REJECTED, "DriftRejected"


class PullRequestClosed(PullRequestFact):
    """A pull request had nothing to ask any more, and was closed by us."""

    action, event = JournalAction.PULL_CLOSED, "PullRequestClosed"
    reason: str


class PullRequestLeftAlone(ApplicationFact):
    """A person pushed to the branch of a pull request, so it is theirs now."""

    action, event = JournalAction.PULL_LEFT_ALONE, "PullRequestLeftAlone"
    drift: ObjectDrift
    branch: str

    @property
    def subject(self) -> str:
        """The id of the drift."""
        return self.drift.id


class PullRequestOverdue(PullRequestFact):
    """Nobody decided about a pull request in time."""

    action, event, warning = JournalAction.PULL_OVERDUE, "PullRequestOverdue", True
    ended: datetime


class PullRequestFailed(ApplicationFact):
    """Pull requests cannot be opened or followed for now, or one cannot be made."""

    event, warning = "PullRequestFailed", True
    reason: str
    about: ObjectRef | None = None

    @property
    def object(self) -> ObjectRef | None:
        """The object that it would be about."""
        return self.about


class SyncStarted(ApplicationFact):
    """A plan is about to be carried out."""

    action = JournalAction.SYNCING
    plan: SyncPlan


class Synced(ApplicationFact):
    """A plan was carried out."""

    action, event = JournalAction.SYNCED, "Synced"
    plan: SyncPlan


class SyncFailed(ApplicationFact):
    """Some objects of a sync were not applied."""

    action, event, warning = JournalAction.SYNC_FAILED, "ReconciliationFailed", True
    reason: str


class ObjectAltered(ApplicationFact):
    """The server stored fields of a synced object differently from what was sent."""

    action, event, warning = JournalAction.ALTERED, "AlteredByAdmission", True
    about: ObjectRef
    reason: str

    @property
    def object(self) -> ObjectRef | None:
        """The object."""
        return self.about


class CommitAccepted(ApplicationFact):
    """A person agreed to follow a commit of strange history."""

    action = JournalAction.ACCEPTED
    commit: str


class HealsBlocked(ApplicationFact):
    """So much drifted at once that a person has to agree before it is healed."""

    action, event, warning = JournalAction.BLOCKED, "Parked", True
    requirement: ApprovalRequirement
    count: int


class PlanBlocked(ApplicationFact):
    """A plan is too much, or too strange, to be carried out without a person."""

    action, event, warning = JournalAction.BLOCKED, "Parked", True
    plan: SyncPlan
    requirements: tuple[ApprovalRequirement, ...]

    @property
    def subject(self) -> str:
        """The id of the plan."""
        return self.plan.id


class PendingPlanFact(ApplicationFact):
    """Something about a plan that waits for a person."""

    plan: PendingPlan

    @property
    def subject(self) -> str:
        """The id of the plan."""
        return self.plan.id


class PlanApproved(PendingPlanFact):
    """A person agreed to a blocked plan."""

    action = JournalAction.APPROVED


class PlanRejected(PendingPlanFact):
    """A person said that a blocked plan is not carried out."""

    action = JournalAction.REJECTED


class PlanApprovalExpired(PendingPlanFact):
    """Who approved a plan may not approve any more."""

    action = JournalAction.STALE


class SourceFact(ApplicationFact):
    """Something that happened to the source of an application."""

    repository: str
    revision: str
    since: datetime


class SourceStale(SourceFact):
    """What a repository declares is unknown; what it declared last still counts."""

    action, event, warning = JournalAction.SOURCE_STALE, "SourceStale", True
    stale: StaleSource


class SourceRecovered(SourceFact):
    """A repository that was stale can be read again."""

    action = JournalAction.SOURCE_RECOVERED
    commit: str


class ApplicationRefused(ApplicationFact):
    """Another application declares some of the same objects, so nothing is applied."""

    action, event, warning = JournalAction.REFUSED, "DeclaredTwice", True
    duplicate: DuplicateDeclaration


class ObjectMoved(ApplicationFact):
    """An object belongs to another application now."""

    action = JournalAction.MOVED
    about: ObjectRef
    owner: str


class HandedOver(ApplicationFact):
    """The application belongs to another project now."""

    action = JournalAction.HANDED_OVER


class ApplicationRetired(ApplicationFact):
    """The application no longer exists."""

    action = JournalAction.RETIRED
    objects: int
    """How many it had applied."""


class RuleExpired(ApplicationFact):
    """An ignore rule that a person added ended."""

    action = JournalAction.RULE_EXPIRED
    rule: TemporaryIgnoreRule

    @property
    def subject(self) -> str:
        """The id of the drift that it was added for."""
        return self.rule.drift


class HoldFact(ApplicationFact):
    """Something about a hold."""

    hold: Hold

    @property
    def subject(self) -> str:
        """The id of the hold."""
        return self.hold.id

    @property
    def object(self) -> ObjectRef | None:
        """The object that is held; None for the whole application."""
        return self.hold.object


class Paused(HoldFact):
    """A person holds an application or an object."""

    action = JournalAction.PAUSED


class PausedByAnnotation(HoldFact):
    """An annotation holds its object."""

    action, event = JournalAction.PAUSED, "Paused"


class Resumed(HoldFact):
    """A person ended a hold before its time."""

    action = JournalAction.RESUMED


class ResumedByAnnotation(HoldFact):
    """The annotation that held an object is gone, or does not count any more."""

    action, event = JournalAction.RESUMED, "Resumed"


class HoldRefused(HoldFact):
    """Somebody asked by annotation for a hold that is not granted."""

    action, event, warning = JournalAction.HOLD_REFUSED, "HoldRefused", True
    never: bool
    """True where annotations hold nothing at all."""


class HoldExpired(HoldFact):
    """The time of a hold is over."""

    action, event = JournalAction.HOLD_EXPIRED, "PauseExpired"
    follows: str
    """What becomes of what changed under it, as the end of a sentence."""


def drift_resolved(drift: ObjectDrift, *, healed: bool = False) -> DriftCorrected:
    """Make the fact that a drift ended."""
    differs = drift.resolution in (Resolution.IGNORED, Resolution.SUPERSEDED)
    kind = DriftEnded if differs else DriftCorrected
    return kind(drift=drift, healed=healed, actor=drift.decided_by or CONTROLLER)
