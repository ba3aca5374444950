"""What an application applied, and what else of it has to survive a restart: values of the ledger.

Only what stands in the inventory can be pruned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.core.cost import Cost
from holdfast.core.gitops.source import Ancestry
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef
from holdfast.core.plan import Action


class ApprovalReason(StrEnum):
    """Why a plan waits for a person."""

    EMPTY = "empty"
    MASS_DELETE = "mass-delete"
    MASS_CHANGE = "mass-change"
    DATA_LOSS = "data-loss"
    CLAIMED = "claimed"
    TO_ZERO = "scale-to-zero"
    MASS_HEAL = "mass-heal"
    REWOUND = "rewound"
    DIVERGED = "diverged"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedObject:
    """One object that we put there. Only what stands here may ever be pruned."""

    ref: ObjectRef
    uid: str
    commit: str
    declaration: str
    """The digest of what was applied."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Container to the digest that its image had when its pods first ran."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Keys of a Secret that a declared object had made for it, to their keyed marks."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Of a Secret: since when its data had which keyed mark, the last few, oldest first."""
    values: str = ""
    """Keyed digests of the values that the declared fields had after the last apply, by which an
    edit shows whatever name it was made under. Empty in what older versions wrote."""
    found: tuple[str, ...] = ()
    """Paths of what others had on it when it was taken over, as long as that is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRevision:
    """How far an application is with its source."""

    commit: str
    """Applied last, as a whole; empty when none was yet."""
    at: datetime
    accepted: str = ""
    """A commit that a person agreed to although its history is strange."""
    begun: str = ""
    """The commit of which something was applied last, if that was not the whole of it."""
    begun_as: Ancestry = Ancestry.AHEAD
    """How that one stood to what was applied before it."""

    @property
    def newest(self) -> str:
        """The newest commit of which anything was applied. A branch is set back from there."""
        return self.begun or self.commit

    def ancestry(self, commit: str, found: Ancestry) -> Ancestry:
        """Say how a commit stands to what was applied; `found` is how it stands to the newest.

        What a commit that was not applied whole left in question stays in question: one that
        follows a rewritten branch is not plainly ahead before it is there as a whole.
        """
        if not self.begun:
            return found
        if commit == self.begun:
            return self.begun_as
        plain = self.begun_as in (Ancestry.FIRST, Ancestry.SAME, Ancestry.AHEAD)
        return found if plain or found is not Ancestry.AHEAD else Ancestry.DIVERGED


MAX_PLANNED_FIELDS = 500
"""Fields of a plan that are kept for reviewers; its steps are all kept as sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedField:
    """One field of one object that a plan would change, redacted."""

    object: ObjectRef
    action: Action
    entry: DriftEntry
    """A path of "" is the whole object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPlan:
    """A plan that waits for a person, by its digest."""

    id: str
    digest: str
    commit: str
    reasons: tuple[ApprovalReason, ...]
    told: str
    """Why it waits, and what it would do, in sentences."""
    steps: tuple[str, ...]
    """One line for each step, redacted."""
    made_at: datetime
    fields: tuple[PlannedField, ...] = ()
    """What it would change, the first few hundred; empty in what older versions wrote."""
    cost: Cost | None = None
    """What that costs, as things stood; None where nobody could tell."""
    requested_by: str = ""
    """Who asked for the sync that it is of; the controller itself when empty."""
    approved_by: str = ""
    rejected_by: str = ""
    comment: str = ""

    @property
    def decided(self) -> bool:
        """True when somebody has approved or rejected it."""
        return bool(self.approved_by or self.rejected_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestRecord:
    """A pull request of ours."""

    branch: str
    drift: str
    digest: str
    """Of the drift that it is about, when it was pushed last."""
    number: int
    """0 where there is no forge, and for a claim: it is about to be opened."""
    url: str
    head: str
    opened_at: datetime
    checked_at: datetime
    stopped: str = ""
    """Why it is not written any more: a person pushed to it, or closed it."""
    merged: bool = False
    """It was merged, and its drift is not over yet."""
    lately: tuple[datetime, ...] = ()
    """When others of the same branch were opened, within the hour before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryIgnoreRule:
    """An ignore rule that a person added for a while."""

    name: str
    drift: str
    path: str
    manager: str | None
    kind: str
    object_name: str
    namespace: str
    owner: str
    reason: str
    expires: datetime
