"""Metrics for Prometheus, under the names that dashboards for controllers know already."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from holdfast.adapters.kubernetes.objects import Object, ObjectKey, object_key
from holdfast.apps.runtime.workers import PassResult
from holdfast.version import __version__

CONTROLLER_NAME = "inferenceservice"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class OperatorMetrics:
    """All metrics of one operator, in a registry of their own. A queue's meter too."""

    def __init__(self) -> None:
        self.registry = new = CollectorRegistry()
        queue = {"name": CONTROLLER_NAME}
        ours = {"controller": CONTROLLER_NAME}
        self._depth = Gauge(
            "workqueue_depth", "Keys that wait in the queue", [*queue], registry=new
        ).labels(**queue)
        self._adds = Counter(
            "workqueue_adds", "Keys put into the queue", [*queue], registry=new
        ).labels(**queue)
        self._waited = Histogram(
            "workqueue_queue_duration_seconds",
            "Time in the queue",
            [*queue],
            buckets=_SECONDS,
            registry=new,
        ).labels(**queue)
        self._worked = Histogram(
            "workqueue_work_duration_seconds",
            "Time of a pass",
            [*queue],
            buckets=_SECONDS,
            registry=new,
        ).labels(**queue)
        self._retries = Counter(
            "workqueue_retries", "Keys that came back after a failure", [*queue], registry=new
        ).labels(**queue)
        self._reconciled = Counter(
            "controller_runtime_reconcile", "Passes by outcome", [*ours, "result"], registry=new
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors", "Passes that failed", [*ours], registry=new
        ).labels(**ours)
        self._time = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Time of a pass",
            [*ours],
            buckets=_SECONDS,
            registry=new,
        ).labels(**ours)
        self.active = Gauge(
            "controller_runtime_active_workers", "Passes under way", [*ours], registry=new
        ).labels(**ours)
        self.leader = Gauge(
            "leader_election_master_status", "1 while this one acts", ["name"], registry=new
        )
        self.detected = Counter(
            "holdfast_drift_detected", "Drifts found", ["namespace"], registry=new
        )
        self.resolved = Counter(
            "holdfast_drift_resolved",
            "Drifts that ended",
            ["namespace", "resolution"],
            registry=new,
        )
        self._drifting: set[ObjectKey] = set()
        Gauge(
            "holdfast_drift_active", "Services that differ from what was declared", registry=new
        ).set_function(lambda: float(len(self._drifting)))
        self.notes = Counter(
            "holdfast_transitions", "Transitions of services", ["reason"], registry=new
        )
        self.events = Counter(
            "holdfast_events", "Events by what became of them", ["outcome"], registry=new
        )
        self.lag = Histogram(
            "holdfast_loop_lag_seconds",
            "How late the event loop was",
            buckets=_SECONDS,
            registry=new,
        )
        self._objects = Gauge(
            "holdfast_cached_objects", "Objects kept by informers", ["kind"], registry=new
        )
        info = Gauge("holdfast_build_info", "Always 1", ["version"], registry=new)
        info.labels(__version__).set(1)

    def added(self) -> None:
        """A key was put into the queue."""
        self._adds.inc()

    def taken(self, waited: float) -> None:
        """A worker took a key."""
        self._waited.observe(waited)

    def retried(self) -> None:
        """A key comes back after a failure."""
        self._retries.inc()

    def count_pass(self, result: PassResult, seconds: float) -> None:
        """Count one pass. A conflict is a `requeue` in the words of controller-runtime."""
        label = "requeue" if result is PassResult.CONFLICT else result.value
        self._reconciled.labels(CONTROLLER_NAME, label).inc()
        self._time.observe(seconds)
        self._worked.observe(seconds)
        if result is PassResult.ERROR:
            self._errors.inc()

    def count_note(self, namespace: str, reason: str) -> None:
        """Count a transition of a service, and the drift that it tells of."""
        self.notes.labels(reason).inc()
        if reason in ("DriftDetected", "DriftLeft", "DriftHealed", "AlteredByAdmission"):
            self.detected.labels(namespace).inc()
        if reason == "DriftHealed":
            self.resolved.labels(namespace, "self_heal").inc()

    def watch_depth(self, depth: Callable[[], float]) -> None:
        """Ask for the length of the queue whenever the metrics are read."""
        self._depth.set_function(depth)

    def watch_objects(self, kind: str, held: Sequence[Sized]) -> None:
        """Ask how many objects of a kind are kept whenever the metrics are read."""
        self._objects.labels(kind).set_function(lambda: float(sum(map(len, held))))

    def watch_drift(self, old: Object | None, new: Object | None) -> None:
        """Keep count of the services that differ. A handler of their informer."""
        conditions = ((new or {}).get("status") or {}).get("conditions") or ()
        drifting = any(
            each.get("type") == "DriftDetected" and each.get("status") == "True"
            for each in conditions
        )
        (self._drifting.add if drifting else self._drifting.discard)(object_key(new or old or {}))
