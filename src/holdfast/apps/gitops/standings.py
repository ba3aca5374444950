"""Figures about how the applications stand, asked of them whenever Prometheus reads.

A time that lies ahead says until when all is well: what is past it is late, whatever interval an
application has. `metrics.py` registers the collector.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.core.gitops.application import AppId
from holdfast.core.gitops.drift import DriftState
from holdfast.reconcile.gitops.following import Following

_APP = ["namespace", "name"]


class Standings(Collector):
    """The figures about every application of one controller."""

    def __init__(
        self,
        followed: Mapping[AppId, Following],
        repository: Callable[[Following], str],
        objects: Callable[[], Mapping[str, int]],
        due: Callable[[], Mapping[AppId, datetime]],
    ) -> None:
        self._followed = followed
        self._repository = repository
        self._objects = objects
        self._due = due

    def describe(self) -> Iterable[Metric]:
        """See the base."""
        return ()  # what there is, is only known when it is asked for

    def collect(self) -> Iterable[Metric]:
        """See the base."""
        every = list(self._followed.values())
        return [
            _info(every),
            _active(every),
            _first(every),
            _tolerated(every),
            _paused(every),
            _pending(every),
            _suspended(every),
            self._fetched(every),
            self._overdue(every),
            self._passes(),
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

    def _overdue(self, every: Iterable[Following]) -> Metric:
        """Each has an interval of its own, also where several follow one repository."""
        family = GaugeMetricFamily(
            "holdfast_git_fetch_overdue_timestamp_seconds",
            "When a repository should be read again at the latest, or since when it cannot be",
            labels=[*_APP, "repo"],
        )
        for each in every:
            at = each.follower.overdue(each.application)
            if at is not None and not each.application.spec.suspend:
                family.add_metric([*_labels(each), self._repository(each)], at.timestamp())
        return family

    def _passes(self) -> Metric:
        family = GaugeMetricFamily(
            "holdfast_application_pass_due_timestamp_seconds",
            "When the next pass over an application is due",
            labels=_APP,
        )
        for id, at in self._due().items():
            family.add_metric([id.namespace, id.name], at.timestamp())
        return family

    def _cached(self) -> Metric:
        family = GaugeMetricFamily(
            "holdfast_cached_objects", "Objects kept by informers", labels=["kind"]
        )
        for kind, count in self._objects().items():
            family.add_metric([kind], count)
        return family


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


def _suspended(every: Iterable[Following]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_application_suspended", "1 while spec.suspend is set", labels=_APP
    )
    for each in every:
        family.add_metric(_labels(each), float(bool(each.application.spec.suspend)))
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
        plans = [plan for plan in each.shelf.plans.values() if not plan.decided]
        family.add_metric(_labels(each), len(drifts) + len(plans))
    return family
