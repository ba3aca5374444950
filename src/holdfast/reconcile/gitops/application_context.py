"""What the controller holds in memory of one application between two looks.

All of it can be made anew from the ledger, the repository and the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.core.gitops.application import Application, ApplicationSpec
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.ignore import ignore_rules_of
from holdfast.core.gitops.objects import (
    DuplicateDeclaration,
    ForeignOwner,
    ObjectHealth,
    ObservedObject,
    SyncStatus,
)
from holdfast.core.gitops.source import RenderedSource
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.tree import show_path
from holdfast.reconcile.gitops.application_state import ApplicationState
from holdfast.reconcile.gitops.object_observer import Declarations
from holdfast.reconcile.gitops.source_poller import NO_SOURCE_YET, SourcePoller, SourceState

_APPROVED_DELAY = 1.0
"""Seconds until what a pass approved, such as by a merged decision, is done by the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSnapshot:
    """As much of an object as a status needs."""

    sync_status: SyncStatus
    health: ObjectHealth
    message: str = ""
    owner: ForeignOwner | None = None
    tolerated: tuple[tuple[str, str], ...] = ()
    """Fields that differ and are left alone, each with the rule or the reason."""
    ignored: tuple[tuple[str, str], ...] = ()
    """Those of them that an ignore rule hides, each with the name of the rule."""


HEALTHY_AND_IN_SYNC = ObjectSnapshot(sync_status=SyncStatus.IN_SYNC, health=ObjectHealth.HEALTHY)
"""Said of most objects, so they share it: compare with `is`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A person's wish that Git be applied now."""

    actor: str
    prune: bool = False
    force: bool = False
    """Also what a guard or a window holds back, and drift that waits for a review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherClaim:
    """Why an object that an application does not declare any more may be another's."""

    message: str
    declares: bool
    """True when the other declares it for sure, False when that is not known now."""


@dataclass
class ApplicationContext:
    """One application that is followed."""

    application: Application
    state: ApplicationState
    poller: SourcePoller
    source: SourceState = NO_SOURCE_YET
    """What the last pass followed. Who asks for a diff may have read the repository since."""
    awaiting: bool = False
    """True while a pass only heals: somebody asked for a look at Git, which is not answered yet."""
    desired: Declarations | None = None
    policy: str = ""
    """The digest of the spec that the last look was made under."""
    object_states: dict[ObjectRef, ObjectSnapshot] = field(default_factory=dict)
    looked_at: datetime | None = None
    """When everything was looked at last."""
    compared: RenderedSource | None = None
    """What everything was compared with last. Another than `wanted` while a look is under way."""
    request: SyncRequest | None = None
    forge_failures: int = 0
    """How often in a row its forge, or its repository, gave no answer about pull requests."""
    forge_again: datetime | None = None
    """When such a forge is asked again."""
    forge_moved: bool = False
    """A webhook hinted at the forge: it is asked about pull requests before it is time to."""
    refused: DuplicateDeclaration | None = None
    """Set while nothing of it is applied: another application declares the same object."""
    postponed: set[ObjectRef] = field(default_factory=set)
    """Objects that a pass looked at without seeing to all that is due about them: the next one
    looks at them again."""
    failed: dict[ObjectRef, str] = field(default_factory=dict)
    """Objects whose last write was refused, and why."""
    newest: Callable[[], ApplicationSpec | None] | None = None
    """Asks for the spec as it is now, which may be another than that of the pass under way; the
    answer None is for an application that is gone or wrong."""
    other_claim: Callable[[ObjectRef], OtherClaim | None] | None = None
    """Asks whether another application declares an object; such a one is handed over to it."""
    kept_objects: dict[ObjectRef, str] = field(default_factory=dict)
    """Objects that are not declared any more and not deleted either, and why."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a pass, and while a person decides something."""

    def __post_init__(self) -> None:
        self.state.project = self.application.spec.project

    @property
    def current_request(self) -> SyncRequest | None:
        """What this pass was asked to do; None while Git has not answered who asked for it."""
        return None if self.awaiting else self.request

    @property
    def overtaken(self) -> bool:
        """True when another spec counts by now than the one that a plan was made under."""
        return self.newest is not None and self.newest() != self.application.spec

    def remember(self, observed: Iterable[ObservedObject]) -> None:
        """Take in what was just seen."""
        for each in observed:
            if each.sync_status is SyncStatus.PRUNABLE and each.live is None:
                self.object_states.pop(each.ref, None)
                continue
            snapshot = ObjectSnapshot(
                sync_status=each.sync_status,
                health=each.health,
                message=each.message,
                owner=each.owner,
                tolerated=_tolerated_fields(each),
                ignored=_ignored_fields(each),
            )
            self.object_states[each.ref] = (
                HEALTHY_AND_IN_SYNC if snapshot == HEALTHY_AND_IN_SYNC else snapshot
            )

    def hold_of(self, ref: ObjectRef, now: datetime) -> Hold | None:
        """Return the hold on an object, the longest if there are several."""
        found = [hold for hold in self.state.holds.values() if hold.holds(ref, now)]
        return max(found, key=lambda hold: hold.until, default=None)

    def due(self, now: datetime) -> set[ObjectRef]:
        """Objects about which time alone may have decided something."""
        return {
            drift.object
            for drift in self.state.drifts.values()
            if (drift.until <= now if drift.until else drift.state is DriftState.APPROVED)
        }

    def ended(self, now: datetime) -> bool:
        """True when a hold or an ignore rule ended since everything was looked at.

        Which objects it was about shows only when they are looked at without it.
        """
        return any(self.looked_at is None or self.looked_at < at <= now for at in self._ends())

    def _ends(self) -> Iterator[datetime]:
        """When holds and ignore rules end, those of the ledger and those of the Application."""
        yield from (hold.until for hold in self.state.holds.values())
        yield from (rule.expires for rule in self.state.rules.values())
        spec = self.application.spec.drift
        for rule in ignore_rules_of((spec.ignore if spec else None) or ()):
            if rule.expires is not None:
                yield rule.expires

    def next_due(self, now: datetime) -> float | None:
        """Seconds until time alone may decide something."""
        times = [drift.until for drift in self.state.drifts.values() if drift.until]
        # What is past brings nothing on while there is nothing to look at.
        since = now if self.refused else self.looked_at or now
        times += [at for at in self._ends() if at > since]
        if self.forge_again is not None and self.forge_again > now:
            times.append(self.forge_again)
        seconds = [(at - now).total_seconds() for at in times]
        if any(drift.state is DriftState.APPROVED for drift in self.state.drifts.values()):
            seconds.append(_APPROVED_DELAY)
        return min((max(each, 0.0) for each in seconds), default=None)


def _tolerated_fields(observed: ObservedObject) -> tuple[tuple[str, str], ...]:
    if observed.diff is None:
        return ()
    left = (FieldClass.DELEGATED, FieldClass.IGNORED)
    return tuple(
        (show_path(found.change.path), found.rule or found.evidence)
        for found in observed.diff.field_drifts
        if found.field_class in left
    )


def _ignored_fields(observed: ObservedObject) -> tuple[tuple[str, str], ...]:
    if observed.diff is None:
        return ()
    return tuple(
        (show_path(found.change.path), found.rule)
        for found in observed.diff.field_drifts
        if found.field_class is FieldClass.IGNORED and found.rule
    )
