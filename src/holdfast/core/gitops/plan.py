"""What will be done to the objects of an application; the only input of a sync or a heal.

A plan carries what it was computed from. It is kept by its digest alone: to carry it out it is
made anew, and when the digests differ the world has moved and it is refused as stale. So no
value of a Secret is ever stored with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.source import DeclaredObject
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef
from holdfast.core.plan import Action, StepPlan
from holdfast.core.tree import Path, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStep:
    """One action on one object. `uid` and `version` are what was seen; None for an absent one."""

    ref: ObjectRef
    action: Action
    reason: str
    entries: tuple[DriftEntry, ...] = ()
    """What will change, redacted: `live` becomes `desired`."""
    uid: str | None
    version: str | None
    state: str | None = None
    """What a reviewer's word depends on: the generation of the object where the server counts one,
    since its status moves by itself; otherwise the version."""
    leave: frozenset[Path] = frozenset()
    """Fields that keep their live value: drift that is on hold, or handled otherwise."""
    declared: DeclaredObject | None = None
    """What is applied; None for a deletion. Not part of the digest: its own digest is."""
    declaration: str = ""
    """The digest of what is applied. Secrets enter by their keyed mark."""
    claimed_by: str = ""
    """Who else lays claim to an object that is to be deleted, by a mark on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan(StepPlan[ObjectStep]):
    """What will be done to the objects of an application, in order."""

    application: ApplicationId
    commit: str
    policy: str = ""
    """The digest of the application's spec: an approval under one policy is none under another."""

    @property
    def basis(self) -> Tree:
        steps = [_digest_basis(step) for step in self.steps]
        return [str(self.application), self.commit, self.policy, steps]


def _digest_basis(step: ObjectStep) -> Tree:
    return [
        step.ref.api_version, str(step.ref), step.action.value, step.uid, step.state,
        step.declaration, [".".join(path) for path in sorted(step.leave)],
        [[entry.path, entry.kind.value, entry.desired, entry.live] for entry in step.entries],
    ]  # fmt: skip
