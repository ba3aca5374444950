"""What the reconcilers ask of a Kubernetes cluster, and how it may refuse.

The docstrings are the contract: one suite in `tests/contracts/` holds the real client and the
in-memory one to them. Objects are plain trees, since their schemas belong to the cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from holdfast.core.errors import Conflict, TargetUnavailable
from holdfast.core.object_ref import ObjectRef as ObjectRef
from holdfast.core.object_ref import ref_of as ref_of
from holdfast.core.tree import Fields


class VersionExpired(TargetUnavailable):
    """The version asked for is no longer kept; only a new list tells what is there."""


class KindNotServed(TargetUnavailable):
    """The cluster does not serve this kind now, so whether such objects exist is unknown."""


class ConflictReason(StrEnum):
    """Why another writer was first."""

    CHANGED = "changed"
    """The object is not at the version that the write was made for."""
    EXISTS = "exists"
    OWNED = "owned"
    """Other field managers own fields that an apply would change; `owners` names them."""
    REPLACED = "replaced"
    """The object with that uid is gone, or another one has its name. Never write without uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOwner:
    """A field that another manager owns, as the API server names both."""

    path: str
    manager: str
    api_version: str = ""
    """Empty for a manager that applied."""
    subresource: str = ""


class KubeConflict(Conflict):
    """A write that the API server refused with 409, or because of the uid it carried."""

    def __init__(
        self, happened: str, *, reason: ConflictReason, owners: tuple[FieldOwner, ...] = ()
    ) -> None:
        super().__init__(happened, hint="Observe again and decide again.")
        self.reason = reason
        self.owners = owners


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which objects of one kind: an empty namespace is all of them, labels are a selector."""

    api_version: str
    kind: str
    namespace: str = ""
    labels: str = ""


class WatchEventType(StrEnum):
    """What a watch event says of its object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """Only the version counts; the object is hollow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One thing that happened, and the object after it (before it, for a deletion)."""

    type: WatchEventType
    item: Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList:
    """A whole list at one version of the cluster. Items carry apiVersion and kind."""

    items: Sequence[Fields]
    version: str


class KubeClient(Protocol):
    """One cluster. Every answer is the cluster's own word: anything less raises.

    TargetUnavailable and its kinds mean that the question is open. PermissionDenied, AuthError
    and ValidationError mean what they say. Objects that are returned belong to the caller.
    """

    async def get(self, ref: ObjectRef) -> Fields | None:
        """Return the object as it is now, or None when the cluster says that there is none.

        Raises KindNotServed for a kind that is not there: whether the object is, is unknown.
        """

    async def list(self, scope: Scope) -> ObjectList:
        """Return every object that matches, at one version: the whole list or an error."""

    def watch(self, scope: Scope, *, version: str) -> AsyncIterator[WatchEvent]:
        """Yield what happens after a version, in order; ends when the server ends it.

        Raises Expired when events since that version are no longer kept.
        """

    async def apply(
        self,
        item: Fields,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
        absent: bool = False,
        subresource: str = "",
    ) -> Fields:
        """Apply an object under a field manager, on the server's side, and return the result.

        Guards: `metadata.uid` and `metadata.resourceVersion` in the item hold for the object
        that was seen, so that one that is gone is not created again (KubeConflict `replaced`)
        and one that moved is not written (`changed`). `absent` says that none was seen: raises
        KubeConflict `exists` when there is one. Without `force`, fields that other managers own
        with other values raise KubeConflict `owned`. What this manager owned before and the item
        leaves out is removed unless others own it too. A dry run answers alike and writes
        nothing. An apply that changes nothing leaves the version as it was.
        """

    async def patch(
        self, ref: ObjectRef, operations: Sequence[Fields], *, manager: str, subresource: str = ""
    ) -> Fields:
        """Change one object by a JSON patch; guard it with a `test` operation.

        Raises NotFound when it is gone, ValidationError when a test fails.
        """

    async def delete(self, ref: ObjectRef, *, uid: str = "", version: str = "") -> bool:
        """Delete one object and, in the background, what it owns. False when it was gone.

        With uid or version, only the object that was seen: raises KubeConflict otherwise.
        """
