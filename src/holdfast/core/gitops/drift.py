"""One drift of an application, from first seen to resolved, as the ledger keeps it.

A drift is what one remediation is about: the differing fields of one object that one route
matched. Its id stays while it is open, whatever is added to it or taken away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.core.cost import Cost
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import ApplicationId, PullRequestKind, Remediation
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import FINGERPRINT_PREFIX
from holdfast.core.ownership.signals import FieldDrift
from holdfast.core.redact import redact_tree
from holdfast.core.tree import Tree, digest, show_path


class DriftState(StrEnum):
    """How far the handling of a drift is."""

    DETECTED = "detected"
    AWAITING = "awaiting-approval"
    APPROVED = "approved"
    """Its plan will be applied, or is being applied."""
    REJECTED = "rejected"
    """A reviewer said that it stays. Asked again only when it changes."""
    SNOOZED = "snoozed"
    HEALING = "healing"
    FIGHTING = "fighting"
    """Somebody puts it back each time: left alone, and an alarm."""
    PULL_REQUEST = "pull-request"
    HELD = "held"
    BLOCKED = "parked"
    """The guard, a window, a missing right or the server's own admission keeps it from being
    healed; `note` says which."""
    RESOLVED = "resolved"


class DriftReason(StrEnum):
    """Why a drift is in its state, where the state alone does not say it."""

    BRANCH_LEFT_ALONE = "branch-left-alone"
    """A person pushed to the branch of its pull request."""
    NOT_CODIFIABLE = "not-codifiable"
    """No edit of the repository declares the live value; `note` says what was tried."""


class Resolution(StrEnum):
    """How a drift ended."""

    SELF_HEALED = "self_heal"
    APPROVED = "approved"
    CODIFIED = "codified"
    """Git declares it now."""
    REVERTED = "reverted"
    """By a merged decision, a command, or the end of a hold."""
    EXTERNAL = "external"
    """Others put it back, or Git moved to it."""
    IGNORED = "ignored"
    SUPERSEDED = "superseded"
    """What it was about differs still, and is another drift now, or something that Git asks for."""
    GONE = "gone"
    """The application, or the declaration, no longer exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDrift:
    """One drift. Every value in it was redacted when it was made."""

    id: str
    application: ApplicationId
    project: str
    object: ObjectRef
    uid: str = ""
    """Of the live object; empty when it is absent."""
    entries: tuple[DriftEntry, ...]
    """A path of "" is the whole object: deleted, replaced, or created without Git."""
    where: str = ""
    """File and line that declare it."""
    cost: Cost | None = field(default=None, compare=False)
    """What it costs to put it back; None where nobody can tell. Of the moment: no part of the
    digest, and no reason to write the drift down anew."""
    commit: str
    remediation: Remediation
    pull: PullRequestKind = PullRequestKind.CODIFY
    route: str = ""
    """The name of the route; empty when none matched."""
    chosen_by: str = ""
    """Who chose this remediation in place of the route's."""
    healable: bool = True
    """False for what no apply can put back, such as pods that run another image."""
    found: bool = False
    """True for what others had there when the object was taken over: somebody has to decide."""
    fought: bool = False
    """True for fields that one writer changes after each heal. Others of the object are healed."""
    state: DriftState = DriftState.DETECTED
    note: str = ""
    """Why it is in this state, in a sentence for people. Nothing is decided by it."""
    reason: DriftReason | None = None
    """The same for machines; None where the state says it, and in records of older versions."""
    first_seen: datetime
    last_seen: datetime
    rounds: tuple[datetime, ...] = ()
    """When it was healed lately."""
    plan: str = ""
    """The digest of the plan that waits or was approved."""
    requested_by: str = ""
    """Who asked for something that needs approval; the controller itself when empty."""
    first_approver: str = ""
    """The first of two who have to approve it where nobody knows who made the change."""
    first_plan: str = ""
    """The digest of the plan that the first one approved: for another one it does not count."""
    decided_by: str = ""
    comment: str = ""
    until: datetime | None = None
    """The end of a snooze or hold, or the deadline of a pull request."""
    url: str = ""
    """Of its pull request."""
    resolved_at: datetime | None = None
    resolution: Resolution | None = None

    @property
    def kinds(self) -> tuple[DriftKind, ...]:
        """The kinds of drift, each once, in the order of the enum."""
        found = {entry.kind for entry in self.entries}
        return tuple(kind for kind in DriftKind if kind in found)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes, each once, in the order of the enum."""
        found = {entry.cause for entry in self.entries}
        return tuple(cause for cause in Cause if cause in found)

    @property
    def involved(self) -> frozenset[str]:
        """Everybody who is known to have asked for it or to have made the change."""
        writers = (entry.writer.actor if entry.writer else "" for entry in self.entries)
        every = {self.requested_by, self.chosen_by, *(each or "" for each in writers)}
        return frozenset(every - {""})

    @property
    def known_origin(self) -> bool:
        """True when it is known who asked for it, or who made every part of the change.

        A field manager is a tool and no person, so of what kubectl did nobody knows.
        """
        writers = [entry.writer.actor if entry.writer else None for entry in self.entries]
        return bool(self.requested_by) or (bool(writers) and all(writers))

    @property
    def altered(self) -> bool:
        """True when the server stores it differently from what is sent: no apply ends that."""
        return bool(self.entries) and all(e.cause is Cause.ADMISSION for e in self.entries)

    @property
    def digest(self) -> str:
        """Equal while the same fields have the same values: what a reviewer looked at."""
        return digest(
            [[str(self.object), self.uid]]
            + [[entry.path, entry.kind.value, entry.desired, entry.live] for entry in self.entries]
        )


def drift_id(
    application: ApplicationId, object: ObjectRef, route: str, first_seen: datetime
) -> str:
    """Name a drift: one object, one route, one time that it began."""
    basis = [str(application), object.api_version, str(object), route, first_seen.isoformat()]
    return "drf-" + digest(basis).removeprefix("sha256:")[:10]


def entry_of(finding: FieldDrift) -> DriftEntry:
    """Write one finding for the ledger: masked, with its path in words."""
    return DriftEntry(
        path=show_path(finding.change.path),
        desired=_redacted(finding, finding.change.desired),
        live=_redacted(finding, finding.change.live),
        kind=finding.kind,
        cause=finding.cause,
        evidence=finding.evidence,
        writer=finding.writer,
    )


def _redacted(finding: FieldDrift, value: Tree) -> Tree:
    path = finding.change.path
    marked = finding.kind is DriftKind.SECRET and path[:1] == ("data",)
    if marked and isinstance(value, str) and value.startswith(FINGERPRINT_PREFIX):
        return value  # a keyed mark already: it tells one value from another, and no more
    # `env[name=API_TOKEN].value` goes by the name of its list item.
    named = path[-2:] if path[-1:] == ("value",) else path[-1:]
    return redact_tree(value, name=named[0] if named else "")
