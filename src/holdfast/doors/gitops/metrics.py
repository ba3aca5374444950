"""Figures for Prometheus, served with the server's own.

What happened is counted from what the ledger committed, so nothing is counted that did not last;
how things stand is asked of the applications whenever the figures are read. Labels name
applications and fixed words, never a field, a drift or a person.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.core.gitops.application import AppId
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.doors.server.metrics import Metrics as ServerMetrics
from holdfast.reconcile.gitops.following import Following

CONTROLLER = "application"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LASTING = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86_400, 3 * 86_400, 7 * 86_400)
_APP = ["namespace", "name"]


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
    ) -> None:
        """Ask how the applications stand whenever the figures are read."""
        self.registry.register(_Standing(followed, repository, objects))


class _Standing(Collector):
    def __init__(
        self,
        followed: Mapping[AppId, Following],
        repository: Callable[[Following], str],
        objects: Callable[[], Mapping[str, int]],
    ) -> None:
        self._followed = followed
        self._repository = repository
        self._objects = objects

    def describe(self) -> Iterable[Metric]:
        return ()  # what there is, is only known when it is asked for

    def collect(self) -> Iterable[Metric]:
        every = list(self._followed.values())
        return [
            _info(every),
            _active(every),
            _first(every),
            _tolerated(every),
            _paused(every),
            _pending(every),
            self._fetched(every),
            self._cached(),
        ]

    def _fetched(self, every: Iterable[Following]) -> Metric:
        family = GaugeMetricFamily(
            "holdfast_git_last_fetch_timestamp_seconds", "Last answer of a repository",
            labels=["repo"],
        )  # fmt: skip
        last: dict[str, float] = {}
        for each in every:
            at = each.follower.last.fetched_at
            if at is not None:
                name = self._repository(each)
                last[name] = max(last.get(name, 0.0), at.timestamp())
        for name, at_seconds in last.items():
            family.add_metric([name], at_seconds)
        return family

    def _cached(self) -> Metric:
        family = GaugeMetricFamily(
            "holdfast_cached_objects", "Objects kept by informers", labels=["kind"]
        )
        for kind, count in self._objects().items():
            family.add_metric([kind], count)
        return family


def _seconds(name: str, about: str, registry: CollectorRegistry) -> Histogram:
    ours = {"controller": CONTROLLER}
    return Histogram(name, about, [*ours], buckets=_SECONDS, registry=registry).labels(**ours)


def _labels(following: Following) -> list[str]:
    return [following.application.id.namespace, following.application.id.name]


def _info(every: Iterable[Following]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_application_info", "Always 1",
        labels=[*_APP, "project", "sync_status", "health_status"],
    )  # fmt: skip
    for each in every:
        status = each.application.status
        stands = [status.sync, status.health] if status else ["unknown", "unknown"]
        family.add_metric([*_labels(each), each.application.spec.project, *stands], 1)
    return family


def _active(every: Iterable[Following]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_drift_active", "Drifts that are open", labels=[*_APP, "type", "state"]
    )
    for each in every:
        drifts = each.shelf.drifts.values()
        found = Tally((kind.value, it.state.value) for it in drifts for kind in it.kinds)
        for (kind, state), count in found.items():
            family.add_metric([*_labels(each), kind, state], count)
    return family


def _first(every: Iterable[Following]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_drift_first_detected_timestamp_seconds", "Since when the oldest drift is open",
        labels=_APP,
    )  # fmt: skip
    for each in every:
        times = [drift.first_seen.timestamp() for drift in each.shelf.drifts.values()]
        if times:
            family.add_metric(_labels(each), min(times))
    return family


def _tolerated(every: Iterable[Following]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_drift_tolerated", "Fields that differ and are left alone", labels=["rule"]
    )
    found: Tally[str] = Tally()
    for each in every:
        spec = each.application.spec.drift
        named = {rule.name for rule in (spec.ignore if spec else None) or ()}
        for glance in each.glances.values():
            for _, why in glance.tolerated:
                # The rest are names of objects, people or ids.
                passing = "temporary" if why in each.shelf.rules else "delegated"
                found[why if why in named else passing] += 1
    for rule, count in found.items():
        family.add_metric([rule], count)
    return family


def _paused(every: Iterable[Following]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_paused_until_timestamp_seconds", "When the last hold ends", labels=_APP
    )
    for each in every:
        times = [hold.until.timestamp() for hold in each.shelf.holds.values()]
        if times:
            family.add_metric(_labels(each), max(times))
    return family


def _pending(every: Iterable[Following]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_approvals_pending", "Drifts and plans that wait for a person", labels=_APP
    )
    for each in every:
        drifts = [d for d in each.shelf.drifts.values() if d.state is DriftState.AWAITING]
        plans = [plan for plan in each.shelf.plans.values() if not plan.approved_by]
        family.add_metric(_labels(each), len(drifts) + len(plans))
    return family
