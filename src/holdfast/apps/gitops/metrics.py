"""Figures for Prometheus, served with the server's own.

What happened is counted from what the ledger committed, so nothing is counted that did not last;
how things stand is asked when the figures are read (`standings.py`). Labels name applications and
fixed words, never a repository, a field, a drift or a person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from holdfast.apps.gitops.standings import Standings
from holdfast.apps.server.metrics import Metrics as ServerMetrics
from holdfast.core.gitops.application import AppId
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.reconcile.gitops.following import Following

CONTROLLER = "application"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LASTING = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86_400, 3 * 86_400, 7 * 86_400)


class Metrics:
    """All figures of one controller. A queue's meter too."""

    def __init__(self, server: ServerMetrics) -> None:
        self.registry = new = server.registry
        # The server counts the drift of workloads under these names, and follows none here.
        new.unregister(server.detected)
        new.unregister(server.resolved)
        ours = {"controller": CONTROLLER}
        self._reconciled = Counter(
            "holdfast_reconcile", "Passes by outcome", [*ours, "result"], registry=new
        )
        self._time = _seconds("holdfast_reconcile_duration_seconds", "Time of a pass", new)
        self.planned = _seconds(
            "holdfast_plan_duration_seconds", "Time to compare everything of an application", new
        )
        self._detected = Counter(
            "holdfast_drift_detected", "Drifts found", ["namespace", "type", "cause"], registry=new
        )
        self._resolved = Counter(
            "holdfast_drift_resolved", "Drifts that ended", ["namespace", "type", "resolution"],
            registry=new,
        )  # fmt: skip
        self._lasted = Histogram(
            "holdfast_drift_time_to_resolve_seconds", "From first seen to resolved",
            ["namespace"], buckets=_LASTING, registry=new,
        )  # fmt: skip
        self.pulls = Counter(
            "holdfast_pull_requests", "What became of pull requests",
            ["provider", "kind", "result"], registry=new,
        )  # fmt: skip
        self.notified = Counter(
            "holdfast_notifications", "Messages to channels", ["channel", "result"], registry=new
        )
        self._loops = Counter(
            "holdfast_selfheal_loop", "Fights over an object", ["namespace"], registry=new
        )
        self.hooks = Counter(
            "holdfast_webhooks", "Deliveries of forges", ["provider", "result"], registry=new
        )
        self.events = Counter(
            "holdfast_events", "Events by what became of them", ["outcome"], registry=new
        )
        self.leader = Gauge(
            "leader_election_master_status", "1 while this one acts", ["name"], registry=new
        )
        queue = {"name": CONTROLLER}
        self._depth = Gauge(
            "workqueue_depth", "Applications that wait in line", [*queue], registry=new
        ).labels(**queue)
        self._adds = Counter(
            "workqueue_adds", "Applications put in line", [*queue], registry=new
        ).labels(**queue)
        self._retries = Counter(
            "workqueue_retries", "Applications that came back after a failure", [*queue],
            registry=new,
        ).labels(**queue)  # fmt: skip
        self._waited = Histogram(
            "workqueue_queue_duration_seconds", "Time in line", [*queue], buckets=_SECONDS,
            registry=new,
        ).labels(**queue)  # fmt: skip

    def added(self) -> None:
        """An application was put in line."""
        self._adds.inc()

    def taken(self, waited: float) -> None:
        """A worker took an application."""
        self._waited.observe(waited)

    def retried(self) -> None:
        """An application comes back after a failure."""
        self._retries.inc()

    def looked(self, result: str, seconds: float) -> None:
        """Count one pass: success, conflict or error."""
        self._reconciled.labels(CONTROLLER, result).inc()
        self._time.observe(seconds)

    def detected(self, drift: ObjectDrift) -> None:
        """Count a drift that was found, once for each of its kinds."""
        cause = drift.causes[0].value if drift.causes else "unknown"
        for kind in drift.kinds:
            self._detected.labels(drift.application.namespace, kind.value, cause).inc()

    def resolved(self, drift: ObjectDrift) -> None:
        """Count a drift that ended."""
        how = str(drift.resolution)
        for kind in drift.kinds:
            self._resolved.labels(drift.application.namespace, kind.value, how).inc()
        if drift.resolved_at is not None:
            lasted = (drift.resolved_at - drift.first_seen).total_seconds()
            self._lasted.labels(drift.application.namespace).observe(lasted)

    def fought(self, application: AppId) -> None:
        """Count a fight."""
        self._loops.labels(application.namespace).inc()

    def watch_depth(self, depth: Callable[[], float]) -> None:
        """Ask for the length of the queue whenever the figures are read."""
        self._depth.set_function(depth)

    def watch(
        self,
        followed: Mapping[AppId, Following],
        repository: Callable[[Following], str],
        objects: Callable[[], Mapping[str, int]],
        due: Callable[[], Mapping[AppId, datetime]] = dict,
    ) -> None:
        """Ask how the applications stand whenever the figures are read.

        `repository` gives what stands for an application's repository; `due` says when which
        application is to be looked at next.
        """
        self.registry.register(Standings(followed, repository, objects, due))


def _seconds(name: str, about: str, registry: CollectorRegistry) -> Histogram:
    ours = {"controller": CONTROLLER}
    return Histogram(name, about, [*ours], buckets=_SECONDS, registry=registry).labels(**ours)
