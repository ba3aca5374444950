"""Puts the reconciler and the desk together from what a process has. `assembly` calls it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from holdfast.apps.gitops.metrics import Metrics
from holdfast.apps.gitops.surroundings import around, pods_of
from holdfast.apps.gitops.watching import Watching
from holdfast.core.gitops.application import AnnotationHolds, AppId
from holdfast.core.gitops.standing import Seen
from holdfast.core.objects import ObjectRef
from holdfast.reconcile.gitops.apply import Applier
from holdfast.reconcile.gitops.desk import Desk
from holdfast.reconcile.gitops.follow import Sources
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.heal import Healer, StillAllowed
from holdfast.reconcile.gitops.ledger import CONTROLLER
from holdfast.reconcile.gitops.looking import Looking
from holdfast.reconcile.gitops.orphans import Orphans
from holdfast.reconcile.gitops.propose import codifier
from holdfast.reconcile.gitops.pulls import Aside, Pulls
from holdfast.reconcile.gitops.reconciler import Claim, Parts, Poll, Reconciler
from holdfast.reconcile.gitops.result import Tell
from holdfast.reconcile.gitops.survey import Surveyor
from holdfast.reconcile.gitops.sync import Sync
from holdfast.reconcile.gitops.theirs import Theirs
from holdfast.reconcile.keeper import Keeper
from holdfast.reconcile.ports import Clock


class TimedLooking(Looking):
    """Looks whose time is taken when they are at everything."""

    timing: tuple[Clock, Metrics]

    async def at(
        self, following: Following, only: Collection[ObjectRef] | None
    ) -> tuple[Seen, ...]:
        """See the base."""
        if only is not None:
            return await super().at(following, only)
        clock, metrics = self.timing
        began = clock.monotonic()
        try:
            return await super().at(following, only)
        finally:
            metrics.planned.observe(clock.monotonic() - began)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """What passes and people work with."""

    desk: Desk
    reconciler: Callable[[Claim, Poll, Aside], Reconciler]
    """Makes the reconciler once it is known who says whose an object is, and who asks Git."""


def assemble(
    watching: Watching,
    sources: Sources,
    followed: Mapping[AppId, Following],
    clock: Clock,
    metrics: Metrics,
    *,
    key: bytes,
    cluster: str,
    tell: Tell,
    wake: Callable[[AppId], None],
    still_allowed: StillAllowed,
    annotation_holds: AnnotationHolds,
) -> Assembled:
    """Wire the parts of a pass."""
    client = watching.client
    keeper = Keeper(client, manager=CONTROLLER, key=key, clock=clock)
    surveyor = Surveyor(
        client, keeper, around=around(watching), pods=pods_of(watching),
        theirs=Theirs(client, clock), key=key,
    )  # fmt: skip
    looking = TimedLooking(surveyor, Orphans(client), clock)
    looking.timing = (clock, metrics)
    applier = Applier(client, keeper, clock)
    sync = Sync(looking, applier, clock, still_allowed)

    def reconciler(claim: Claim, poll: Poll, aside: Aside) -> Reconciler:
        return Reconciler(
            Parts(
                looking=looking,
                healer=Healer(looking, applier, clock, still_allowed),
                sync=sync,
                pulls=Pulls(sources, codifier(sources), aside),
                clock=clock,
                tell=tell,
                key=key,
                cluster=cluster,
                claim=claim,
                poll=poll,
                annotation_holds=annotation_holds,
            )
        )

    desk = Desk(followed, looking, sync, clock, wake=wake, tell=tell)
    return Assembled(desk=desk, reconciler=reconciler)
