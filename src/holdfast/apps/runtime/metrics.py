"""The metrics that both controllers report: of their queue, their lease and their events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class ControllerMetrics:
    """The metrics of one controller, which meter its queue too.

    The names are those that dashboards for controllers know already.
    """

    def __init__(
        self, registry: CollectorRegistry, *, controller: str, buckets: Sequence[float]
    ) -> None:
        """`buckets` are those of every duration, in seconds."""
        self.registry = registry
        self._controller = controller
        self._buckets = buckets
        self.leader = Gauge(
            "leader_election_master_status", "1 while this one acts", ["name"], registry=registry
        )
        self.events = Counter(
            "holdfast_events", "Events by what became of them", ["outcome"], registry=registry
        )
        self._depth = Gauge(
            "workqueue_depth", "Keys that wait in the queue", ["name"], registry=registry
        ).labels(controller)
        self._adds = Counter(
            "workqueue_adds", "Keys put into the queue", ["name"], registry=registry
        ).labels(controller)
        self._retries = Counter(
            "workqueue_retries", "Keys that came back after a failure", ["name"], registry=registry
        ).labels(controller)
        self._waited = self.duration(
            "workqueue_queue_duration_seconds", "Time in the queue", label="name"
        )

    def duration(self, name: str, about: str, *, label: str = "controller") -> Histogram:
        """Make a histogram of seconds, with the controller as its label."""
        return Histogram(
            name, about, [label], buckets=self._buckets, registry=self.registry
        ).labels(self._controller)

    def added(self) -> None:
        """A key was put into the queue."""
        self._adds.inc()

    def taken(self, waited: float) -> None:
        """A worker took a key."""
        self._waited.observe(waited)

    def retried(self) -> None:
        """A key comes back after a failure."""
        self._retries.inc()

    def watch_depth(self, depth: Callable[[], float]) -> None:
        """Ask for the length of the queue whenever the metrics are read."""
        self._depth.set_function(depth)
