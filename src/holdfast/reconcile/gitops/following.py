"""What the controller holds in memory of one application between two looks.

All of it can be made anew from the ledger, the repository and the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.core.gitops.application import Application, ApplicationSpec
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.standing import Health, Owner, Seen, Standing
from holdfast.core.objects import ObjectRef
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.tree import show_path
from holdfast.reconcile.gitops.follow import Follower
from holdfast.reconcile.gitops.ledger import Shelf
from holdfast.reconcile.gitops.survey import Declarations

_SOON = 1.0
"""Seconds until what a pass approved, such as by a merged decision, is done by the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """As much of an object as a status needs."""

    standing: Standing
    health: Health
    message: str = ""
    owner: Owner | None = None
    tolerated: tuple[tuple[str, str], ...] = ()
    """Fields that differ and are left alone, each with the rule or the reason."""


FINE = Glance(standing=Standing.IN_SYNC, health=Health.HEALTHY)
"""Said of most objects, so they share it: who looks for the others asks `is not FINE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A person's wish that Git be applied now."""

    actor: str
    prune: bool = False
    force: bool = False
    """Also what a guard or a window holds back, and drift that waits for a review."""


@dataclass
class Following:
    """One application that is followed."""

    application: Application
    shelf: Shelf
    follower: Follower
    wanted: Declarations | None = None
    policy: str = ""
    """The digest of the spec that the last look was made under."""
    glances: dict[ObjectRef, Glance] = field(default_factory=dict)
    looked_at: datetime | None = None
    """When everything was looked at last."""
    request: SyncRequest | None = None
    forge_moved: bool = False
    """A webhook hinted at the forge: it is asked about pull requests before it is time to."""
    refused: str = ""
    """Why nothing of it is applied: another application declares the same object."""
    failed: dict[ObjectRef, str] = field(default_factory=dict)
    """Objects whose last write was refused, and why."""
    newest: Callable[[], ApplicationSpec | None] | None = None
    """Asks for the spec as it is now, which may be another than that of the pass under way; the
    answer None is for an application that is gone or wrong."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a pass, and while a person decides something."""

    def __post_init__(self) -> None:
        self.shelf.project = self.application.spec.project

    @property
    def overtaken(self) -> bool:
        """True when another spec counts by now than the one that a plan was made under."""
        return self.newest is not None and self.newest() != self.application.spec

    def remember(self, seen: Iterable[Seen]) -> None:
        """Take in what was just seen."""
        for each in seen:
            if each.standing is Standing.LEFT_OVER and each.live is None:
                self.glances.pop(each.ref, None)
                continue
            glance = Glance(
                standing=each.standing, health=each.health, message=each.message,
                owner=each.owner, tolerated=_tolerated(each),
            )  # fmt: skip
            self.glances[each.ref] = FINE if glance == FINE else glance

    def hold_of(self, ref: ObjectRef, now: datetime) -> Hold | None:
        """Return the hold on an object, the longest if there are several."""
        found = [hold for hold in self.shelf.holds.values() if hold.holds(ref, now)]
        return max(found, key=lambda hold: hold.until, default=None)

    def due(self, now: datetime) -> set[ObjectRef]:
        """Objects about which time alone may have decided something."""
        return {
            drift.object
            for drift in self.shelf.drifts.values()
            if (drift.until <= now if drift.until else drift.state is DriftState.APPROVED)
        }

    def next_due(self, now: datetime) -> float | None:
        """Seconds until time alone may decide something."""
        times = [drift.until for drift in self.shelf.drifts.values() if drift.until]
        times += [hold.until for hold in self.shelf.holds.values()]
        times += [rule.expires for rule in self.shelf.rules.values()]
        seconds = [(at - now).total_seconds() for at in times]
        if any(drift.state is DriftState.APPROVED for drift in self.shelf.drifts.values()):
            seconds.append(_SOON)
        return min((max(each, 0.0) for each in seconds), default=None)


def _tolerated(seen: Seen) -> tuple[tuple[str, str], ...]:
    if seen.verdict is None:
        return ()
    left = (FieldClass.DELEGATED, FieldClass.IGNORED)
    return tuple(
        (show_path(found.change.path), found.rule or found.evidence)
        for found in seen.verdict.findings
        if found.field_class in left
    )
