"""Applications on the HTTP wire: what a controller answers about them, and what it is asked.

Written by the server, read by the client of the command line. Everything is an allow-list of
values that were redacted where they were made; no form has room for a declared object itself.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import HoldEnd, PullRequestKind
from holdfast.core.gitops.objects import ForeignOwner, ObjectHealth, SyncStatus
from holdfast.core.gitops.records import ApprovalReason
from holdfast.core.plan import Action
from holdfast.wire.gitops_v1 import ApplicationDriftForm, ObjectForm
from holdfast.wire.ledger_v1 import DriftEntryForm
from holdfast.wire.plan_v1 import CostForm, WriterForm

DAY_SECONDS = 86_400
MAX_WAIT_SECONDS = 60
"""Seconds that one request may wait for the outcome of a sync."""

Comment = Annotated[str, msgspec.Meta(max_length=500)]
ReadDigest = Annotated[str, msgspec.Meta(max_length=100)]
"""The `digest` of the drift as it was read: refused as stale where it is another by now. Without
it a decision is about the drift as it is."""
Seconds = Annotated[int, msgspec.Meta(ge=1, le=30 * DAY_SECONDS)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class SourceForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is followed, and how far it is known. The address never holds a credential."""

    url: str
    revision: str
    path: str = ""
    commit: str = ""
    """The newest that was fetched."""
    subject: str = ""
    author: str = ""
    fetched_at: datetime | None = None
    stale: str = ""
    """Why the newest commit is not followed, or not known."""
    stale_reason: str = ""
    """The same as a word: a `StaleReason`. Controllers before it did not say it."""


class HeldChangeForm(msgspec.Struct, kw_only=True):
    """One drift under a hold: what is left as it is until the hold ends."""

    drift: str
    object: ObjectForm
    fields: list[str]
    """Paths; an empty one is the whole object."""


class HoldForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Nothing is written to an object, or to a whole application, until it ends."""

    id: str
    application: str
    object: ObjectForm | None = None
    reason: str
    by: str
    since: datetime
    until: datetime
    end: HoldEnd
    from_annotation: bool = False
    changes: list[HeldChangeForm] = []
    """What is under it now, as far as it was seen."""


class WaitingPlanForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A plan that a guard parked until a person agrees to its digest."""

    id: str
    digest: str
    application: str
    commit: str
    reasons: list[ApprovalReason]
    told: str
    steps: list[str]
    made_at: datetime
    approved_by: str = ""
    rejected_by: str = ""
    comment: str = ""
    current: bool = True
    """True while it is what an approval of its digest would carry out."""
    drift: str = ""
    """The drift that it would put back; left out for a plan of a whole application."""
    waiting_for_me: bool = False
    """True when who asks may approve it now."""
    cost: CostForm | None = None
    """What it costs; left out where nobody can tell."""

    @property
    def decided(self) -> bool:
        """True when somebody has approved or rejected it."""
        return bool(self.approved_by or self.rejected_by)


class PlanFieldForm(DriftEntryForm, kw_only=True, omit_defaults=True):
    """One field that a plan would change: `live` becomes `desired`."""

    object: ObjectForm
    action: Action


class ReviewPlanForm(WaitingPlanForm, kw_only=True, omit_defaults=True):
    """A plan as it was made, whether it still counts, and what moved where it does not.

    `steps` has all that it does; `fields` the first few hundred fields of it.
    """

    fields: list[PlanFieldForm]
    current: bool
    moved: list[str]
    """What happened to it since, in sentences."""
    page: str = ""
    """Where people read it, where the base URL is set."""
    why_not: str = ""
    """Why who asks may not approve it now."""
    needs_comment: bool = False
    """True where an approval is refused without a `comment`."""


class ConditionForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One condition of the status, as the cluster shows it."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class OpenPullRequestForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One pull request of ours that is open."""

    url: str
    kind: PullRequestKind
    object: ObjectForm | None = None
    """What it is about; left out once its drift is over."""
    drift: str
    opened_at: datetime | None = None


class NextWindowForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """When the controller may write by itself next, or until when it may; one of the two."""

    opens_at: datetime | None = None
    closes_at: datetime | None = None


class FollowedForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One application and how it stands. `id` is `namespace/name`, `label` fits into a path."""

    id: str
    label: str
    project: str
    sync: str
    """`synced`, `ahead`, `drifted` or `unknown`."""
    health: ObjectHealth
    message: str = ""
    revision: str = ""
    """The commit that was applied last, whole."""
    source: SourceForm
    objects: int = 0
    drifted: int = 0
    ahead: int = 0
    held: int = 0
    tolerated: int = 0
    orphans: int = 0
    awaiting: int = 0
    """Drifts and plans that wait for a person."""
    suspended: bool = False
    automatic: bool = False
    """Whether what Git declares anew is applied without being asked for."""
    prunes: bool = False
    """Whether a sync also deletes what is no longer declared."""
    looked_at: datetime | None = None
    holds: list[HoldForm] = []
    plans: list[WaitingPlanForm] = []
    conditions: list[ConditionForm] = []
    pull_requests: list[OpenPullRequestForm] = []
    next_window: NextWindowForm | None = None
    """Told of one application alone; left out where windows change nothing."""


class FollowedListForm(msgspec.Struct, kw_only=True):
    """Applications of a project, by name."""

    applications: list[FollowedForm]


class ToleratedForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A field that differs and is left alone, with the rule or the reason."""

    path: str
    rule: str


class ObjectStatusForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One object of an application."""

    object: ObjectForm
    standing: SyncStatus
    health: ObjectHealth
    message: str = ""
    owner: ForeignOwner | None = None
    drift: str = ""
    held_until: datetime | None = None
    tolerated: list[ToleratedForm] = []


class ObjectListForm(msgspec.Struct, kw_only=True):
    """Objects of an application, by name."""

    application: str
    objects: list[ObjectStatusForm]


class DiffState(StrEnum):
    """Why a field differs."""

    PENDING = "pending"
    """Git moved, and it is not applied yet."""
    DRIFTED = "drifted"
    """Somebody changed the live side."""
    TOLERATED = "tolerated"
    """A rule, or another controller's right, leaves it alone."""


class DiffFieldForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One field that differs. An empty path is the whole object."""

    path: str
    state: DiffState
    kind: DriftKind
    # Trees: any JSON value.
    live: object = None
    git: object = None
    cause: Cause = Cause.UNKNOWN
    writer: WriterForm | None = None
    evidence: str = ""
    rule: str = ""
    where: str = ""
    """File and line that declare it."""


class ObjectDiffForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One object that is not as declared, or that would not be but for a rule."""

    object: ObjectForm
    standing: SyncStatus
    health: ObjectHealth
    message: str = ""
    where: str = ""
    drift: str = ""
    owner: ForeignOwner | None = None
    fields: list[DiffFieldForm] = []
    cost: CostForm | None = None
    """What it costs to make it as declared; left out where unknown."""


class DiffForm(msgspec.Struct, kw_only=True):
    """What a fresh look at an application found."""

    application: str
    commit: str
    looked_at: datetime
    objects: list[ObjectDiffForm]
    stale: str = ""
    """Why that may not be the newest commit; empty when Git was read for this."""


class SyncStepForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One action on one object: `live` of each field becomes `desired`."""

    object: ObjectForm
    action: Action
    reason: str
    fields: list[DriftEntryForm] = []
    cost: CostForm | None = None


class SyncPlanForm(msgspec.Struct, kw_only=True):
    """What a sync would do now, in its order."""

    id: str
    digest: str
    application: str
    commit: str
    prune: bool
    steps: list[SyncStepForm]
    stale: str = ""
    """Why that may not be the newest commit; empty when Git was read for this."""


class SyncForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A wish that Git be applied now."""

    prune: bool = False
    force: bool = False
    wait: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0
    """Seconds to wait for the outcome."""


class RefusedForm(msgspec.Struct, kw_only=True):
    """An object whose last write was refused."""

    object: ObjectForm
    message: str


class SyncedForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of a sync. Without `done` it is still under way."""

    done: bool
    application: FollowedForm
    told: list[str] = []
    """What the journal says of it, oldest first."""
    refused: list[RefusedForm] = []


class ApplicationDriftListForm(msgspec.Struct, kw_only=True):
    """Drifts of applications, newest first: of their page as much as every controller tells."""

    drifts: list[ApplicationDriftForm]
    next: str = ""


class DriftLinksForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where a drift can be looked at. What is not known is left out."""

    page: str = ""
    """In the page of this server, where its base URL is set."""
    source: str = ""
    """File and line of its declaration on the forge."""
    pull_request: str = ""


class ReviewDriftForm(ApplicationDriftForm, kw_only=True, omit_defaults=True):
    """One drift of an application, for whoever asks."""

    links: DriftLinksForm
    waiting_for_me: bool
    """True when who asks may approve it now."""


class DriftGroupForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Drifts of one cause and one writer."""

    cause: Cause
    writer: str = ""
    """The field manager; left out where nobody knows it."""
    count: int
    kinds: list[str]
    applications: list[str]
    first_seen: datetime
    last_seen: datetime
    drifts: list[str]
    """The ids of the newest 50."""


class DriftPageForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Drifts, newest first; with `group=cause` groups of them instead, the largest first."""

    drifts: list[ReviewDriftForm] | msgspec.UnsetType = msgspec.UNSET
    groups: list[DriftGroupForm] | msgspec.UnsetType = msgspec.UNSET
    next: str = ""
    """The `cursor` of the next page; left out with the last one."""
    total: int
    """How many there are on all pages."""


class ChoiceForm(msgspec.Struct, kw_only=True):
    """One thing that can be decided about a drift, for whoever asks."""

    choice: str
    """`approve`, `reject`, `snooze`, `codify`, `revert`, `hold` or `ignore`."""
    allowed: bool
    why_not: str = ""
    effect: str
    """What it does, in a sentence."""
    cost: CostForm | msgspec.UnsetType = msgspec.UNSET
    """What that costs; left out where nobody can tell."""
    needs_comment: bool
    """True where it is refused without a `comment` that says why."""


class ChoiceListForm(msgspec.Struct, kw_only=True):
    """Everything that can be decided about a drift.

    An approval names `plan`; the other decisions may name `digest`.
    """

    drift: str
    digest: str
    plan: str
    choices: list[ChoiceForm]


class CodifyPreviewForm(msgspec.Struct, kw_only=True):
    """What a pull request about a drift would change. Nothing was pushed."""

    possible: bool
    why_not: str = ""
    title: str
    branch: str
    files: list[str] = []
    notes: list[str] = []
    """What a reviewer should know."""
    patch: str = ""
    """A unified diff; what looks like a credential is masked."""
    secret: bool = False
    """True for a Secret, of which no line is shown."""


class LiveEventForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The data of one live event: what to read anew."""

    id: str
    """Of the drift, hold or plan; the label of an application; the subject of a journal line."""
    application: str
    state: str = ""
    """How it stands now: the state of a drift, the action of a journal line, …"""
    at: datetime
    url: str = ""
    """Where the page shows it, where the server's base URL is set."""


class ApproveForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Agreement to exactly one plan, by its whole digest."""

    plan: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    comment: Comment = ""


class RejectForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The live side stays as it is, for this reason."""

    comment: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class RejectDriftForm(RejectForm, kw_only=True, forbid_unknown_fields=True):
    """The live side stays as it is, for this reason, where it is what was read."""

    digest: ReadDigest = ""


class SnoozeForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Ask again later. Give one of `seconds` and `until`."""

    seconds: Seconds | None = None
    until: Moment | None = None
    comment: Comment = ""
    digest: ReadDigest = ""


class Via(StrEnum):
    """How a declared value is put back."""

    DIRECT = "direct"
    PULL_REQUEST = "pull-request"


class RevertForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Have the declared value put back."""

    via: Via = Via.DIRECT
    comment: Comment = ""
    digest: ReadDigest = ""


class IgnoreForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Hide a drift, or one field of it, for a while. Give one of `seconds` and `until`."""

    reason: Comment
    path: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    manager: Annotated[str, msgspec.Meta(max_length=200)] = ""
    seconds: Seconds | None = None
    until: Moment | None = None
    digest: ReadDigest = ""


class IgnoredForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One rule of a moment."""

    name: str
    path: str
    object: str
    manager: str = ""
    owner: str
    reason: str
    expires: datetime


class IgnoredListForm(msgspec.Struct, kw_only=True):
    """The rules that were made."""

    rules: list[IgnoredForm]


class HiddenFieldForm(msgspec.Struct, kw_only=True):
    """One field that differs, and that a rule hides or would hide."""

    object: ObjectForm
    path: str


class IgnoreRuleForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One ignore rule, and what it hides now."""

    name: str
    application: str
    origin: str
    """`spec`, `temporary`, `annotation`, `argo-cd` or `flux`."""
    path: str = ""
    """A glob, or a JSON pointer; left out where any path is meant, or only its tool knows."""
    object: str = ""
    """Which objects; left out where all are meant."""
    manager: str = ""
    owner: str = ""
    reason: str = ""
    expires: datetime | None = None
    hides: list[HiddenFieldForm]
    """The first 200."""
    hides_count: int


class IgnoreRuleListForm(msgspec.Struct, kw_only=True):
    """Ignore rules of a project, by application and name."""

    rules: list[IgnoreRuleForm]


class IgnorePreviewRequestForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A rule that nobody has made: `*` stands for any text in all of it but the application."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    application: Annotated[str, msgspec.Meta(max_length=600)] = ""
    kind: Annotated[str, msgspec.Meta(max_length=200)] = ""
    namespace: Annotated[str, msgspec.Meta(max_length=200)] = ""
    name: Annotated[str, msgspec.Meta(max_length=300)] = ""
    manager: Annotated[str, msgspec.Meta(max_length=200)] = ""


class IgnorePreviewForm(msgspec.Struct, kw_only=True):
    """What such a rule would hide of the drifts that are open now."""

    hides: list[HiddenFieldForm]
    """The first 200."""
    hides_count: int


class HoldRequestForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Hold an application, or one object `KIND/NAMESPACE/NAME` of it."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    object: Annotated[str, msgspec.Meta(max_length=600)] = ""
    seconds: Seconds | None = None
    until: Moment | None = None
    end: HoldEnd | None = None
    """What becomes of changes made meanwhile; the application's own rule when unset."""


class HoldListForm(msgspec.Struct, kw_only=True):
    """Holds, those that end first first."""

    holds: list[HoldForm]


class JournalEntryForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of the journal."""

    seq: int
    at: datetime
    application: str
    subject: str = ""
    action: str
    actor: str
    summary: str
    detail: dict[str, object] = {}


class JournalForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Lines of the journal, newest first. `next` is where the next page begins."""

    entries: list[JournalEntryForm]
    next: int | None = None


class DriftCountForm(msgspec.Struct, kw_only=True):
    """How many drifts there were of one key, and how long they lasted together."""

    key: str
    """`unknown` where nobody knows it."""
    count: int
    seconds: float
    minutes: float
    """The same, rounded to a tenth."""


class TimeToResolveForm(msgspec.Struct, kw_only=True):
    """Seconds within which half, and nine of ten, of those that ended did; null when none did."""

    p50: float | None
    p90: float | None
    count: int


class DecisionCountForm(msgspec.Struct, kw_only=True):
    """How often somebody decided what."""

    actor: str
    approved: int
    rejected: int
    codified: int
    reverted: int
    snoozed: int


class StatisticsForm(msgspec.Struct, kw_only=True):
    """Figures of the drifts that there were between two times, the most frequent keys first."""

    since: datetime
    until: datetime
    drifts: int
    open: int
    """Not ended at `until`."""
    drift_seconds: float
    drift_minutes: float
    """The same, rounded to a tenth."""
    time_to_resolve: TimeToResolveForm
    by_cause: list[DriftCountForm]
    by_writer: list[DriftCountForm]
    by_kind: list[DriftCountForm]
    by_resolution: list[DriftCountForm]
    """`open` for those that did not end."""
    by_application: list[DriftCountForm]
    decisions: list[DecisionCountForm]
