"""Chooses the replica that gets the next request.

The canary's share is exact rather than drawn: each request adds the weight to a credit, and
a full credit of 100 goes to the canary. Within a group the least busy replica wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class BalancedReplica(Protocol):
    """What is known of a replica when one is chosen: a local process or a pod."""

    @property
    def suspect(self) -> bool:
        """True while it is doubted, because it let a request down."""

    @property
    def in_flight(self) -> int:
        """How many requests it has."""

    @property
    def chosen_at(self) -> int:
        """When it was chosen last, in the order of requests."""


R = TypeVar("R", bound=BalancedReplica)


class Balancer:
    """One per workload; remembers the canary's credit."""

    def __init__(self) -> None:
        self._credit = 50
        """Half full: the first canary request comes in the middle of its interval."""

    def choose(self, primary: Sequence[R], canary: Sequence[R], weight: int) -> R | None:
        """Pick among ready replicas; a group without any gives its share to the other."""
        weight = effective_weight(bool(primary), bool(canary), weight)
        group = primary
        if weight == 100:
            group = canary
        elif weight:
            self._credit += weight
            if self._credit >= 100:
                self._credit -= 100
                group = canary
        return min(group, key=_burden) if group else None


def effective_weight(primary: bool, canary: bool, weight: int) -> int:
    """Return the canary's share in percent, given which groups can serve."""
    if not canary or weight == 0:
        return 0
    return weight if primary else 100


def _burden(replica: BalancedReplica) -> tuple[bool, int, int]:
    """Doubtful ones last, then the least busy, then the one that waited longest."""
    return replica.suspect, replica.in_flight, replica.chosen_at


class ReplicaLease:
    """One request's hold on a replica: it is not stopped before the release, within limits."""

    __slots__ = ("_failed", "_release", "group", "replica", "url")

    def __init__(
        self,
        *,
        url: str,
        group: str,
        replica: str,
        release: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        self.url = url
        self.group = group
        self.replica = replica
        self._release: Callable[[], None] | None = release
        self._failed = failed

    def release(self) -> None:
        """Say that the request has ended. Safe to repeat."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def failed(self) -> None:
        """Say that the replica let the request down: it is probed at once. Release it too."""
        self._failed()
