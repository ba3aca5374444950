"""Figures for Prometheus.

`/metrics` is open, so no label names a project, a workload or a credential: routes are shown
by their template, and everything else by a fixed set of words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from holdfast.version import __version__

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)


class Metrics:
    """All figures of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = new = CollectorRegistry()
        self._requests = Counter(
            "holdfast_http_requests",
            "Requests answered",
            ["method", "route", "status"],
            registry=new,
        )
        self._seconds = Histogram(
            "holdfast_http_request_duration_seconds",
            "Time to answer, streams included",
            ["route"],
            buckets=_SECONDS,
            registry=new,
        )
        self.in_flight = Gauge(
            "holdfast_http_requests_in_flight", "Requests under way", registry=new
        )
        self.streams = Gauge("holdfast_streams_open", "Open event streams", registry=new)
        self.proxied = Counter(
            "holdfast_proxy_requests", "Requests passed to workloads", ["outcome"], registry=new
        )
        self.retries = Counter(
            "holdfast_proxy_retries", "Requests given to another replica", registry=new
        )
        self.commits = Counter(
            "holdfast_store_commits", "Commits that changed workloads", registry=new
        )
        self.detected = Counter(
            "holdfast_drift_detected", "Drifts found", ["type", "cause"], registry=new
        )
        self.resolved = Counter(
            "holdfast_drift_resolved", "Drifts that ended", ["type", "resolution"], registry=new
        )
        self.runs = Counter(
            "holdfast_runner_events", "What happened to replicas", ["kind"], registry=new
        )
        info = Gauge("holdfast_build_info", "Always 1", ["version"], registry=new)
        info.labels(__version__).set(1)
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        key = (method, route, status)
        found = self._children.get(key)
        if found is None:
            found = (
                self._requests.labels(method, route, str(status)),
                self._seconds.labels(route),
            )
            self._children[key] = found
        found[0].inc()
        found[1].observe(seconds)

    def watch_phases(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Ask for the number of workloads by phase whenever the figures are read."""
        self.registry.register(_Phases(count))

    def render(self) -> bytes:
        """Write the figures."""
        return generate_latest(self.registry)


class _Phases(Collector):
    def __init__(self, count: Callable[[], Mapping[str, int]]) -> None:
        self._count = count

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily("holdfast_workloads", "Workloads by phase", labels=["phase"])
        for phase, number in self._count().items():
            family.add_metric([phase], number)
        return [family]
