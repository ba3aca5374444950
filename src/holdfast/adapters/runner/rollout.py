"""Decides what to start and what to retire next, from what is there. Pure.

Called after every change, so it needs no memory of a rollout under way: the replicas are
the state. A ready replica of the old revision goes only when a ready one of the new
revision stands in its place, so a revision that never gets ready replaces nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Standing(Protocol):
    """What the decision looks at."""

    @property
    def revision(self) -> str: ...
    @property
    def ready(self) -> bool: ...
    @property
    def was_ready(self) -> bool: ...


S = TypeVar("S", bound=Standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves(Generic[S]):
    """What to do now; more follows once these have taken effect."""

    start: int
    retire: tuple[S, ...]


def next_moves(replicas: Sequence[S], *, wanted: int, revision: str, surge: int) -> Moves[S]:
    """Bring one group closer to `wanted` replicas of `revision`.

    `replicas` are those not yet retiring, oldest first. At most `surge` more than wanted run
    at once while an old revision is being replaced.
    """
    current = [replica for replica in replicas if replica.revision == revision]
    old = [replica for replica in replicas if replica.revision != revision]
    ready = sum(replica.ready for replica in current)
    # The newest go first when there are too many, and those that do not serve before them.
    newest = current[::-1]
    surplus = [r for r in newest if not r.ready] + [r for r in newest if r.ready]
    retire = surplus[: max(0, len(current) - wanted)]
    # Old ones fill up what the new revision lacks; one that never served is of no use.
    useful = sorted((r for r in old if r.was_ready), key=lambda replica: not replica.ready)
    kept = useful[: max(0, wanted - ready)]
    retire += [replica for replica in old if not any(replica is one for one in kept)]
    missing = wanted - len(current)
    room = wanted + surge - len(current) - len(kept) if kept else missing
    return Moves(start=max(0, min(missing, room)), retire=tuple(retire))
