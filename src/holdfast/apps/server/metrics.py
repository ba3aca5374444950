"""Figures for Prometheus.

`/metrics` is open, so no label names a project, a workload or a credential: routes are shown
by their template, and everything else by a fixed set of words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from holdfast.version import __version__

CONTENT_TYPE = CONTENT_TYPE_LATEST
_DURATION_BUCKETS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    120,
)


class ServerMetrics:
    """All figures of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = new = CollectorRegistry()
        self.in_flight = 0
        self._answered: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, tuple[list[int], list[float]]] = {}
        """Answers of each route by duration, and the sum of their durations."""
        new.register(_RequestCollector(self))
        self.streams = Gauge("holdfast_streams_open", "Open event streams", registry=new)
        self.proxied = Counter(
            "holdfast_proxy_requests", "Requests passed to workloads", ["outcome"], registry=new
        )
        self.retries = Counter(
            "holdfast_proxy_retries", "Requests given to another replica", registry=new
        )
        self.endpoints_refused = Counter(
            "holdfast_proxy_endpoints_refused",
            "Namespaces whose EndpointSlices the server may not read",
            registry=new,
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

    def count_response(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request. Plain numbers: this is done for every one of them."""
        key = (method, route, status)
        self._answered[key] = self._answered.get(key, 0) + 1
        found = self._seconds.get(route)
        if found is None:
            found = self._seconds[route] = ([0] * (len(_DURATION_BUCKETS) + 1), [0.0])
        found[0][bisect_left(_DURATION_BUCKETS, seconds)] += 1
        found[1][0] += seconds

    def request_families(self) -> Iterable[Metric]:
        """Give the figures about requests in the form that is rendered."""
        requests = CounterMetricFamily(
            "holdfast_http_requests", "Requests answered", labels=["method", "route", "status"]
        )
        for (method, route, status), count in self._answered.items():
            requests.add_metric([method, route, str(status)], count)
        seconds = HistogramMetricFamily(
            "holdfast_http_request_duration_seconds",
            "Time to answer, streams included",
            labels=["route"],
        )
        for route, (counts, total) in self._seconds.items():
            bounds = [*map(str, _DURATION_BUCKETS), "+Inf"]
            steps = list(zip(bounds, accumulate(counts), strict=True))
            seconds.add_metric([route], steps, total[0])
        in_flight = GaugeMetricFamily("holdfast_http_requests_in_flight", "Requests under way")
        in_flight.add_metric([], self.in_flight)
        return [requests, seconds, in_flight]

    def watch_phases(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Ask for the number of workloads by phase whenever the figures are read."""
        self.registry.register(_PhaseCollector(count))

    def render(self) -> bytes:
        """Write the figures."""
        return generate_latest(self.registry)


class _RequestCollector(Collector):
    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.request_families()


class _PhaseCollector(Collector):
    def __init__(self, count: Callable[[], Mapping[str, int]]) -> None:
        self._count = count

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("holdfast_workloads", "Workloads by phase", labels=["phase"])
        for phase, number in self._count().items():
            family.add_metric([phase], number)
        return [family]
