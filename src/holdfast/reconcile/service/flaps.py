"""Remembers how often pods of a service stopped being ready, so that one that flaps is noticed.

A pass sees one moment, and a pod may have failed and be back between two of them. Fed by the
operator's watch of pods, and read by each pass. A restart of the operator forgets it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.core.ownership.canonical import value_at
from holdfast.core.service.pod_health import (
    FLAP_WINDOW,
    FLAPS,
    PodFlaps,
    has_stopped_being_ready,
)
from holdfast.core.tree import Fields
from holdfast.reconcile.ports import Clock

_MAX_COUNT = 20
"""Times that are kept for one pod."""


class FlapLog:
    """One per operator, used from its event loop only."""

    def __init__(self, clock: Clock, *, again: Callable[[str, str], None]) -> None:
        """`again` is called with the namespace and name of a service that has a flapping pod."""
        self._clock = clock
        self._again = again
        self._times: dict[tuple[str, str], dict[str, deque[datetime]]] = {}

    def pod_changed(
        self, namespace: str, service: str, old: Fields | None, new: Fields | None
    ) -> None:
        """Take note of what a pod was and is; a pod that is gone is forgotten."""
        key = (namespace, service)
        if new is None:
            name = str(value_at(old, ("metadata", "name")))
            pods = self._times.get(key, {})
            pods.pop(name, None)
            if not pods:
                self._times.pop(key, None)
        elif old is not None and has_stopped_being_ready(old, new):
            name = str(value_at(new, ("metadata", "name")))
            pods = self._times.setdefault(key, {})
            pods.setdefault(name, deque(maxlen=_MAX_COUNT)).append(self._clock.now())
            if self.find(namespace, service):
                self._again(namespace, service)

    def forget(self, namespace: str, service: str) -> None:
        """Forget a service that is gone."""
        self._times.pop((namespace, service), None)

    def find(self, namespace: str, service: str) -> tuple[PodFlaps, ...]:
        """Give the pods of a service that do not stay ready, by name."""
        since = self._clock.now() - timedelta(seconds=FLAP_WINDOW)
        found = []
        for pod, times in sorted(self._times.get((namespace, service), {}).items()):
            recent = [at for at in times if at > since]
            if len(recent) >= FLAPS:
                found.append(PodFlaps(pod=pod, count=len(recent), last=recent[-1]))
        return tuple(found)

    def next_end(self, namespace: str, service: str) -> float | None:
        """Give the seconds until one of them may have been quiet for long enough."""
        now = self._clock.now()
        waits = [
            FLAP_WINDOW - (now - times[-FLAPS]).total_seconds()
            for times in self._times.get((namespace, service), {}).values()
            if len(times) >= FLAPS
        ]
        return min((each for each in waits if each > 0), default=None)
