"""Metrics for Prometheus, under the names that dashboards for controllers know already."""

from __future__ import annotations

from collections.abc import Sequence, Sized

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from holdfast.adapters.kubernetes.objects import Object, ObjectKey, object_key
from holdfast.apps.runtime.metrics import ControllerMetrics
from holdfast.apps.runtime.workers import PassResult
from holdfast.core.service.facts import DriftHealed, ServiceFact
from holdfast.version import __version__

CONTROLLER_NAME = "inferenceservice"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class OperatorMetrics(ControllerMetrics):
    """All metrics of one operator, in a registry of their own."""

    def __init__(self) -> None:
        new = CollectorRegistry()
        super().__init__(new, controller=CONTROLLER_NAME, buckets=_SECONDS)
        ours = {"controller": CONTROLLER_NAME}
        self._worked = self.duration(
            "workqueue_work_duration_seconds", "Time of a pass", label="name"
        )
        self._reconciled = Counter(
            "controller_runtime_reconcile", "Passes by outcome", [*ours, "result"], registry=new
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors", "Passes that failed", [*ours], registry=new
        ).labels(**ours)
        self._time = self.duration("controller_runtime_reconcile_time_seconds", "Time of a pass")
        self.active = Gauge(
            "controller_runtime_active_workers", "Passes under way", [*ours], registry=new
        ).labels(**ours)
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
        self.transitions = Counter(
            "holdfast_transitions", "Transitions of services", ["reason"], registry=new
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

    def count_pass(self, result: PassResult, seconds: float) -> None:
        """Count one pass. A conflict is a `requeue` in the words of controller-runtime."""
        label = "requeue" if result is PassResult.CONFLICT else result.value
        self._reconciled.labels(CONTROLLER_NAME, label).inc()
        self._time.observe(seconds)
        self._worked.observe(seconds)
        if result is PassResult.ERROR:
            self._errors.inc()

    def count_fact(self, namespace: str, fact: ServiceFact, reason: str) -> None:
        """Count a fact of a service by the reason of its Event, and the drift that it tells of."""
        self.transitions.labels(reason).inc()
        if fact.is_drift:
            self.detected.labels(namespace).inc()
        if isinstance(fact, DriftHealed):
            self.resolved.labels(namespace, "self_heal").inc()

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
