"""What the next pass over an application has to look at, and when it has to come."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from holdfast.core.objects import ObjectRef
from holdfast.reconcile.gitops.follow import Follower

HINTED = (5.0, 15.0, 30.0)
"""Seconds after which a repository is asked again whose webhook came before its commit."""


@dataclass(slots=True)
class Due:
    """One application's."""

    at: datetime
    """When it is to be looked at. Stays behind while nothing comes of it, so that this shows."""
    touched: set[ObjectRef] = field(default_factory=set)
    whole: bool = True
    """True when everything is to be looked at."""
    next_whole: float = 0.0
    broken: bool = False
    """True when a pass ended in the middle: memory may be ahead of the ledger."""
    finished: str = ""
    """The commit whose end was looked for already."""
    asked: str = ""
    """The last request by annotation that was followed."""
    _tries: int = -1
    """How often a hint was followed in vain; -1 when there is none."""
    _hinted: str = ""
    """The commit that was known when the hint came."""

    def hint(self, follower: Follower) -> None:
        """A forge says that the repository moved."""
        self._tries, self._hinted = 0, _commit(follower)
        follower.hasten()

    def follow_hint(self, follower: Follower) -> float | None:
        """Have a repository asked again whose hint came before its commit could be seen.

        Returns the seconds until then.
        """
        if self._tries < 0:
            return None
        if _commit(follower) != self._hinted or self._tries >= len(HINTED):
            self._tries = -1
            return None
        pause = HINTED[self._tries]
        self._tries += 1
        follower.hasten(within=pause)
        return pause

    def whole_at(self, now: float) -> bool:
        """True when everything is to be looked at."""
        return self.whole or now >= self.next_whole

    def take(self, now: float, *, awaiting: bool = False) -> tuple[set[ObjectRef], bool]:
        """Return what this pass looks at, and whether that is everything.

        While a look at Git is awaited, the look at everything waits for its answer.
        """
        whole = self.whole_at(now) and not awaiting
        touched, self.touched = self.touched, set()
        if whole:
            self.whole = False
        return touched, whole


def _commit(follower: Follower) -> str:
    commit = follower.last.commit
    return commit.sha if commit else ""
