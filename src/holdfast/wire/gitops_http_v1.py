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
from holdfast.core.gitops.application import HoldEnd
from holdfast.core.gitops.objects import ForeignOwner, ObjectHealth, SyncStatus
from holdfast.core.gitops.records import ApprovalReason
from holdfast.core.plan import Action
from holdfast.wire.gitops_v1 import ApplicationDriftForm, ObjectForm
from holdfast.wire.ledger_v1 import DriftEntryForm
from holdfast.wire.plan_v1 import WriterForm

DAY_SECONDS = 86_400
MAX_WAIT_SECONDS = 60
"""Seconds that one request may wait for the outcome of a sync."""

Comment = Annotated[str, msgspec.Meta(max_length=500)]
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

    @property
    def decided(self) -> bool:
        """True when somebody has approved or rejected it."""
        return bool(self.approved_by or self.rejected_by)


class ConditionForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One condition of the status, as the cluster shows it."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


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
    """Drifts of applications, newest first."""

    drifts: list[ApplicationDriftForm]


class ApproveForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Agreement to exactly one plan, by its whole digest."""

    plan: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    comment: Comment = ""


class RejectForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The live side stays as it is, for this reason."""

    comment: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class SnoozeForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Ask again later. Give one of `seconds` and `until`."""

    seconds: Seconds | None = None
    until: Moment | None = None
    comment: Comment = ""


class Via(StrEnum):
    """How a declared value is put back."""

    DIRECT = "direct"
    PULL_REQUEST = "pull-request"


class RevertForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Have the declared value put back."""

    via: Via = Via.DIRECT
    comment: Comment = ""


class IgnoreForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Hide a drift, or one field of it, for a while. Give one of `seconds` and `until`."""

    reason: Comment
    path: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    manager: Annotated[str, msgspec.Meta(max_length=200)] = ""
    seconds: Seconds | None = None
    until: Moment | None = None


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
