"""What the reconcilers ask of a Kubernetes cluster, and how it may refuse.

The docstrings are the contract: one suite in `tests/contracts/` holds the real client and the
in-memory one to them. Objects are plain trees, since their schemas belong to the cluster.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from holdfast.core.errors import (
    AuthError,
    Conflict,
    HoldfastError,
    NotFound,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.object_ref import ObjectRef as ObjectRef
from holdfast.core.object_ref import ref_of as ref_of
from holdfast.core.ownership.server_side_apply import FieldOwner as FieldOwner
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


class KubeConflict(Conflict):
    """A write that the API server refused with 409, or because of the uid it carried."""

    def __init__(
        self, happened: str, *, reason: ConflictReason, owners: tuple[FieldOwner, ...] = ()
    ) -> None:
        super().__init__(happened, hint="Observe again and decide again.")
        self.reason = reason
        self.owners = owners


def error_for_response(status: int, body: str, *, creating: bool = False) -> HoldfastError:
    """Return what a refusal of the API server means, for a client of one's own.

    The API server refuses with a Status object. A 404 without one is about the path: the kind is
    not served. What is no clear word about the request (429, 5xx, a page of some proxy) leaves the
    question open. `creating` tells a 409 to a create from one to an update.
    """
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict) or said.get("kind") != "Status":
        if status == 404:
            return KindNotServed("The API server does not serve this kind.")
        return TargetUnavailable(f"The API server answered {status}, and not in its own words.")
    message = str(said.get("message") or "")
    match status:
        case 401:
            return AuthError(message)
        case 403:
            return PermissionDenied(message)
        case 404:
            return NotFound(message)
        case 409:
            reason = ConflictReason.EXISTS if creating else ConflictReason.CHANGED
            return KubeConflict(message, reason=reason)
        case 400 | 422:
            return ValidationError(message)
    return TargetUnavailable(f"The API server answered {status}: {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which objects of one kind: an empty namespace is all of them, labels are a selector.

    `fields` are equalities, as in `involvedObject.uid=6f1c`, of the few fields by which the API
    server selects objects of the kind. A client that knows none may leave them out, so whoever
    gives some looks again at what comes.
    """

    api_version: str
    kind: str
    namespace: str = ""
    labels: str = ""
    fields: str = ""


def matches_selector(selector: str, labels: Mapping[str, str]) -> bool:
    """Say whether labels fit a selector of equalities, inequalities and bare names."""
    for term in filter(None, (part.strip() for part in selector.split(","))):
        name, unequal, value = term.partition("!=")
        if unequal:
            if labels.get(name.strip()) == value.strip():
                return False
            continue
        name, equal, value = term.partition("=")
        if equal:
            if labels.get(name.strip()) != value.removeprefix("=").strip():
                return False
        elif name.startswith("!"):
            if name[1:].strip() in labels:
                return False
        elif name not in labels:
            return False
    return True


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

    TargetUnavailable and its kinds mean that the question is open: nothing is known, so nothing is
    written and no verdict changes. PermissionDenied and AuthError mean that this account may not
    ask. ValidationError means that the server refuses the object whoever sends it. NotFound and
    KubeConflict mean that the world is another than the one that was seen: observe again. Objects
    that are returned belong to the caller.

    Verdicts are remembered by uid and `metadata.resourceVersion`: a change that does not move the
    version is not seen.

    Verdicts rest on `metadata.managedFields` of what is returned, in the API server's own form.
    Without any entry an object counts as one whose record was wiped, which is an alarm of its own,
    and every field is applied anew. `ApplyOverUpdate` makes the record for clients of whose
    server-side apply is not to be had.
    """

    async def get(self, ref: ObjectRef) -> Fields | None:
        """Return the object as it is now, or None when the cluster says that there is none.

        Raises KindNotServed for a kind that is not there: whether the object is, is unknown.
        """

    async def list(self, scope: Scope) -> ObjectList:
        """Return every object that matches, at one version: the whole list or an error."""

    def watch(self, scope: Scope, *, version: str) -> AsyncIterator[WatchEvent]:
        """Yield what happens after a version, in order; ends when the server ends it.

        Raises VersionExpired when events since that version are no longer kept.
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

        **Ownership.** The fields of the item become this manager's, in an entry of operation
        `Apply`. What it owned before and the item leaves out is removed, unless others own it too;
        what it never owned stays, whoever wrote it. Server defaults belong to nobody. Lists with
        keys are merged item by item.
        **Force.** Without it, fields that other managers own with other values raise KubeConflict
        `owned`, which names them, and nothing is written. With it, they are taken from them. The
        same value is shared and no conflict.
        **Guards.** `metadata.uid` and `metadata.resourceVersion` in the item hold for the object
        that was seen, so that one that is gone is not created again (KubeConflict `replaced`), one
        of another uid is not written (`replaced`) and one that moved is not either (`changed`).
        Empty guards are none. `absent` says that none was seen: raises KubeConflict `exists` when
        there is one, whatever it holds.
        **Dry run.** Answers as the write would, defaults and admission included, refuses alike,
        and writes nothing.
        **Repeating.** An apply that changes nothing leaves the version as it was. One that was
        not answered may have been done: the next one shows.
        **Subresource.** `status` writes nothing but the status, and the main resource never does.
        Raises NotFound when there is no object.
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
