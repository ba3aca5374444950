"""One object of an application: what is declared of it, what was observed, and how the two compare.

Made by the observer; drift, plans and the status are derived from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from holdfast.core.cost import Cost
from holdfast.core.drift import Situation
from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.source import DeclaredObject
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.object_diff import ObjectDiff, ObjectState
from holdfast.core.ownership.signals import Declaration, FieldDrift, declare
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields, Tree, digest


class SyncStatus(StrEnum):
    """How one object stands."""

    IN_SYNC = "in-sync"
    OUT_OF_SYNC = "ahead"
    """Git moved: it is to be created or changed, and nobody touched it."""
    DRIFTED = "drifted"
    """Somebody changed, deleted or replaced it."""
    PRUNABLE = "left-over"
    """Applied before, and no longer declared."""
    ORPHAN = "orphan"
    """In a namespace of ours, and never declared."""
    UNKNOWN = "unknown"
    """It could not be read. Nothing is done because of it."""


class ObjectHealth(StrEnum):
    """How an object does by its own account, in the words users know."""

    HEALTHY = "healthy"
    PROGRESSING = "progressing"
    DEGRADED = "degraded"
    SUSPENDED = "suspended"
    MISSING = "missing"
    UNKNOWN = "unknown"


class ForeignOwner(StrEnum):
    """Another tool that applies an object. Such objects are observed and never written."""

    ARGO_CD = "argo-cd"
    FLUX = "flux"
    HELM = "helm"


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateDeclaration:
    """An object that two applications declare: only the owner applies it."""

    object: ObjectRef
    owner: ApplicationId


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedObject:
    """One object: what is declared, what is there, and how the two stand."""

    ref: ObjectRef
    sync_status: SyncStatus
    health: ObjectHealth
    declared: DeclaredObject | None = None
    live: Fields | None = field(default=None, repr=False)
    """Holds the data of Secrets in clear: never shown, logged or stored."""
    diff: ObjectDiff | None = None
    """None where there was nothing to judge: left over, orphaned, unknown."""
    running: tuple[FieldDrift, ...] = ()
    """What its pods run instead."""
    owner: ForeignOwner | None = None
    claimed_by: ForeignOwner | None = None
    """Another tool whose mark it carries although it is ours by the inventory. A mark is a claim:
    it is told, and nothing is let go because of it."""
    applied: bool = False
    """True when it is in the inventory: we put it there."""
    found: tuple[str, ...] = ()
    """Paths of what others had on it when it was taken over."""
    cost: Cost | None = None
    """What it costs to create one that is absent, or to delete one that is not declared; what a
    field costs stands with the field."""
    message: str = ""

    @property
    def situation(self) -> Situation:
        """The same on the scale that decisions are made by.

        What is prunable is pending: Git moved on, and nobody touched it.
        """
        match self.sync_status:
            case SyncStatus.IN_SYNC:
                return Situation.IN_SYNC
            case SyncStatus.OUT_OF_SYNC:
                return Situation.ABSENT if self.live is None else Situation.PENDING
            case SyncStatus.PRUNABLE:
                return Situation.IN_SYNC if self.live is None else Situation.PENDING
            case SyncStatus.DRIFTED | SyncStatus.ORPHAN:
                return Situation.DRIFTED
            case SyncStatus.UNKNOWN:
                return Situation.UNKNOWN
            case _:
                assert_never(self.sync_status)

    @property
    def pending(self) -> tuple[FieldDrift, ...]:
        """What Git asks for anew of one that is there: all that differs where we never applied it.

        One that is absent has no such fields: it is created whole.
        """
        if self.live is None or self.diff is None:
            return ()
        return tuple(found for found in self.diff.differing if found.pending or not self.applied)

    @property
    def drifted(self) -> tuple[FieldDrift, ...]:
        """Everything about it that somebody moved."""
        found = self.diff.drifted if self.diff else ()
        return (*found, *self.running)

    def cost_of(self, findings: Iterable[FieldDrift]) -> Cost | None:
        """What it costs to do away with some of that, all at once; None where nobody can tell."""
        return (self.diff or _UNCOMPARED).cost_of(findings)


_UNCOMPARED = ObjectDiff(state=ObjectState.SUSPECT)


FIELD_MANAGER = "holdfast-gitops"
APPLICATION_LABEL = "holdfast.dev/application"


def make_declaration(
    declared: DeclaredObject, application: ApplicationId, key: bytes
) -> Declaration:
    """Return what is applied for one declared object.

    The digest stands in the cluster for all to see, so of a Secret it covers keyed marks instead
    of values.
    """
    item = declared.item
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    labels = metadata.get("labels")
    named = {**(labels if isinstance(labels, dict) else {}), APPLICATION_LABEL: application.label}
    item = {**item, "metadata": {**metadata, "labels": named}}
    return declare(item, FIELD_MANAGER, revision=digest(with_fingerprints(item, key)))


def with_fingerprints(item: Fields, key: bytes) -> Fields:
    """Return an object with the values of a Secret replaced by their keyed marks."""
    if item.get("kind") != "Secret":
        return item
    parts = ("data", "stringData")
    return {
        name: _fingerprints(value, key) if name in parts else value for name, value in item.items()
    }


def _fingerprints(values: Tree, key: bytes) -> Tree:
    if not isinstance(values, dict):
        return None
    return {name: Secret(str(value)).fingerprint(key) for name, value in values.items()}
