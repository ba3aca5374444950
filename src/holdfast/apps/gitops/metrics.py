"""Figures for Prometheus, served with the server's own.

What happened is counted from what the ledger committed, so nothing is counted that did not last;
how things stand is asked when the figures are read (`standings.py`). Labels name applications and
fixed words, never a repository, a field, a drift or a person.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.apps.runtime.workers import PassResult
from holdfast.apps.server.metrics import ServerMetrics as ServerMetrics
from holdfast.core.errors import HoldfastError, ValidationError
from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.notification import Notice
from holdfast.core.gitops.records import PullRequestRecord
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.ports import (
    JournalEntry,
    LedgerRecord,
    LedgerStore,
    LedgerWrite,
    NotificationChannel,
    RecordKind,
)
from holdfast.wire import gitops_v1

_APPLICATION_LABELS = ["namespace", "name"]


class ApplicationCollector(Collector):
    """The figures about every application of one controller."""

    def __init__(
        self,
        contexts: Mapping[ApplicationId, ApplicationContext],
        repository: Callable[[ApplicationContext], str],
        objects: Callable[[], Mapping[str, int]],
        due: Callable[[], Mapping[ApplicationId, datetime]],
    ) -> None:
        self._contexts = contexts
        self._repository = repository
        self._objects = objects
        self._due = due

    def describe(self) -> Iterable[Metric]:
        """See the base."""
        return ()  # what there is, is only known when it is asked for

    def collect(self) -> Iterable[Metric]:
        """See the base."""
        every = list(self._contexts.values())
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

    def _fetched(self, every: Iterable[ApplicationContext]) -> Metric:
        family = GaugeMetricFamily(
            "holdfast_git_last_fetch_timestamp_seconds",
            "Last answer of a repository",
            labels=["repo"],
        )
        last: dict[str, float] = {}
        for each in every:
            at = each.poller.last.fetched_at
            if at is not None:
                name = self._repository(each)
                last[name] = max(last.get(name, 0.0), at.timestamp())
        for name, at_seconds in last.items():
            family.add_metric([name], at_seconds)
        return family

    def _overdue(self, every: Iterable[ApplicationContext]) -> Metric:
        """Each has an interval of its own, also where several follow one repository."""
        family = GaugeMetricFamily(
            "holdfast_git_fetch_overdue_timestamp_seconds",
            "When a repository should be read again at the latest, or since when it cannot be",
            labels=[*_APPLICATION_LABELS, "repo"],
        )
        for each in every:
            at = each.poller.overdue(each.application)
            if at is not None and not each.application.spec.suspend:
                family.add_metric([*_label_values(each), self._repository(each)], at.timestamp())
        return family

    def _passes(self) -> Metric:
        family = GaugeMetricFamily(
            "holdfast_application_pass_due_timestamp_seconds",
            "When the next pass over an application is due",
            labels=_APPLICATION_LABELS,
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


def _label_values(context: ApplicationContext) -> list[str]:
    return [context.application.id.namespace, context.application.id.name]


def _info(every: Iterable[ApplicationContext]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_application_info",
        "Always 1",
        labels=[*_APPLICATION_LABELS, "project", "sync_status", "health_status"],
    )
    for each in every:
        status = each.application.status
        stands = [status.sync, status.health] if status else ["unknown", "unknown"]
        family.add_metric([*_label_values(each), each.application.spec.project, *stands], 1)
    return family


def _suspended(every: Iterable[ApplicationContext]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_application_suspended", "1 while spec.suspend is set", labels=_APPLICATION_LABELS
    )
    for each in every:
        family.add_metric(_label_values(each), float(bool(each.application.spec.suspend)))
    return family


def _active(every: Iterable[ApplicationContext]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_drift_active",
        "Drifts that are open",
        labels=[*_APPLICATION_LABELS, "type", "state"],
    )
    for each in every:
        drifts = each.state.drifts.values()
        found = Tally((kind.value, it.state.value) for it in drifts for kind in it.kinds)
        for (kind, state), count in found.items():
            family.add_metric([*_label_values(each), kind, state], count)
    return family


def _first(every: Iterable[ApplicationContext]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_drift_first_detected_timestamp_seconds",
        "Since when the oldest drift is open",
        labels=_APPLICATION_LABELS,
    )
    for each in every:
        times = [drift.first_seen.timestamp() for drift in each.state.drifts.values()]
        if times:
            family.add_metric(_label_values(each), min(times))
    return family


def _tolerated(every: Iterable[ApplicationContext]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_drift_tolerated", "Fields that differ and are left alone", labels=["rule"]
    )
    found: Tally[str] = Tally()
    for each in every:
        spec = each.application.spec.drift
        named = {rule.name for rule in (spec.ignore if spec else None) or ()}
        for glance in each.object_states.values():
            for _, why in glance.tolerated:
                # The rest are names of objects, people or ids.
                passing = "temporary" if why in each.state.rules else "delegated"
                found[why if why in named else passing] += 1
    for rule, count in found.items():
        family.add_metric([rule], count)
    return family


def _paused(every: Iterable[ApplicationContext]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_paused_until_timestamp_seconds",
        "When the last hold ends",
        labels=_APPLICATION_LABELS,
    )
    for each in every:
        times = [hold.until.timestamp() for hold in each.state.holds.values()]
        if times:
            family.add_metric(_label_values(each), max(times))
    return family


def _pending(every: Iterable[ApplicationContext]) -> Metric:
    family = GaugeMetricFamily(
        "holdfast_approvals_pending",
        "Drifts and plans that wait for a person",
        labels=_APPLICATION_LABELS,
    )
    for each in every:
        drifts = [d for d in each.state.drifts.values() if d.state is DriftState.AWAITING]
        plans = [plan for plan in each.state.plans.values() if not plan.decided]
        family.add_metric(_label_values(each), len(drifts) + len(plans))
    return family


CONTROLLER_LABEL = "application"
_DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_RESOLVE_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86_400, 3 * 86_400, 7 * 86_400)


class GitopsMetrics:
    """All figures of one controller. A queue's meter too."""

    def __init__(self, server: ServerMetrics) -> None:
        self.registry = new = server.registry
        # The server counts the drift of workloads under these names, and follows none here.
        new.unregister(server.detected)
        new.unregister(server.resolved)
        ours = {"controller": CONTROLLER_LABEL}
        self._reconciled = Counter(
            "holdfast_reconcile", "Passes by outcome", [*ours, "result"], registry=new
        )
        self._time = _duration_histogram(
            "holdfast_reconcile_duration_seconds", "Time of a pass", new
        )
        self.plan_duration = _duration_histogram(
            "holdfast_plan_duration_seconds", "Time to compare everything of an application", new
        )
        self._detected = Counter(
            "holdfast_drift_detected", "Drifts found", ["namespace", "type", "cause"], registry=new
        )
        self._resolved = Counter(
            "holdfast_drift_resolved",
            "Drifts that ended",
            ["namespace", "type", "resolution"],
            registry=new,
        )
        self._lasted = Histogram(
            "holdfast_drift_time_to_resolve_seconds",
            "From first seen to resolved",
            ["namespace"],
            buckets=_RESOLVE_BUCKETS,
            registry=new,
        )
        self.pulls = Counter(
            "holdfast_pull_requests",
            "What became of pull requests",
            ["provider", "kind", "result"],
            registry=new,
        )
        self.notifications = Counter(
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
        queue = {"name": CONTROLLER_LABEL}
        self._depth = Gauge(
            "workqueue_depth", "Applications that wait in line", [*queue], registry=new
        ).labels(**queue)
        self._adds = Counter(
            "workqueue_adds", "Applications put in line", [*queue], registry=new
        ).labels(**queue)
        self._retries = Counter(
            "workqueue_retries",
            "Applications that came back after a failure",
            [*queue],
            registry=new,
        ).labels(**queue)
        self._waited = Histogram(
            "workqueue_queue_duration_seconds",
            "Time in line",
            [*queue],
            buckets=_DURATION_BUCKETS,
            registry=new,
        ).labels(**queue)

    def added(self) -> None:
        """An application was put in line."""
        self._adds.inc()

    def taken(self, waited: float) -> None:
        """A worker took an application."""
        self._waited.observe(waited)

    def retried(self) -> None:
        """An application comes back after a failure."""
        self._retries.inc()

    def count_pass(self, result: PassResult, seconds: float) -> None:
        """Count one pass."""
        self._reconciled.labels(CONTROLLER_LABEL, result.value).inc()
        self._time.observe(seconds)

    def count_detected(self, drift: ObjectDrift) -> None:
        """Count a drift that was found, once for each of its kinds."""
        cause = drift.causes[0].value if drift.causes else "unknown"
        for kind in drift.kinds:
            self._detected.labels(drift.application.namespace, kind.value, cause).inc()

    def count_resolved(self, drift: ObjectDrift) -> None:
        """Count a drift that ended."""
        how = str(drift.resolution)
        for kind in drift.kinds:
            self._resolved.labels(drift.application.namespace, kind.value, how).inc()
        if drift.resolved_at is not None:
            lasted = (drift.resolved_at - drift.first_seen).total_seconds()
            self._lasted.labels(drift.application.namespace).observe(lasted)

    def count_fight(self, application: ApplicationId) -> None:
        """Count a fight."""
        self._loops.labels(application.namespace).inc()

    def watch_depth(self, depth: Callable[[], float]) -> None:
        """Ask for the length of the queue whenever the figures are read."""
        self._depth.set_function(depth)

    def watch(
        self,
        contexts: Mapping[ApplicationId, ApplicationContext],
        repository: Callable[[ApplicationContext], str],
        objects: Callable[[], Mapping[str, int]],
        due: Callable[[], Mapping[ApplicationId, datetime]] = dict,
    ) -> None:
        """Ask how the applications stand whenever the figures are read.

        `repository` gives what stands for an application's repository; `due` says when which
        application is to be looked at next.
        """
        self.registry.register(ApplicationCollector(contexts, repository, objects, due))


def _duration_histogram(name: str, about: str, registry: CollectorRegistry) -> Histogram:
    ours = {"controller": CONTROLLER_LABEL}
    return Histogram(name, about, [*ours], buckets=_DURATION_BUCKETS, registry=registry).labels(
        **ours
    )


_PULL_RESULTS = {
    "pull-opened": "opened",
    "pull-merged": "merged",
    "pull-rejected": "rejected",
    "pull-closed": "closed",
    "pull-left-alone": "left-alone",
}
ForgeProviderOf = Callable[[str], str]
"""Names the forge of an application, by its id as the ledger has it."""


class MeteredLedger:
    """A ledger whose commits are counted."""

    def __init__(
        self, ledger_store: LedgerStore, metrics: GitopsMetrics, provider: ForgeProviderOf
    ) -> None:
        self._ledger_store = ledger_store
        self._metrics = metrics
        self._provider = provider

    async def records(
        self,
        kind: RecordKind,
        *,
        application: str = "",
        key: str = "",
        state: str = "",
        limit: int = 0,
    ) -> Sequence[LedgerRecord]:
        """See the port."""
        return await self._ledger_store.records(
            kind, application=application, key=key, state=state, limit=limit
        )

    async def records_after(
        self, kind: RecordKind, *, application: str, after: str, limit: int
    ) -> Sequence[LedgerRecord]:
        """See the port."""
        return await self._ledger_store.records_after(
            kind, application=application, after=after, limit=limit
        )

    async def write(self, puts: Sequence[LedgerWrite], entries: Sequence[JournalEntry]) -> None:
        """See the port."""
        await self._ledger_store.write(puts, entries)
        try:
            self._count(puts, entries)
        except ValidationError:  # what was committed counts, whether it can be counted or not
            return

    async def entries(
        self,
        *,
        application: str = "",
        subject: str = "",
        since: datetime | None = None,
        before: int = 0,
        limit: int = 100,
    ) -> Sequence[JournalEntry]:
        """See the port."""
        return await self._ledger_store.entries(
            application=application, subject=subject, since=since, before=before, limit=limit
        )

    async def prune(self, before: datetime) -> int:
        """See the port."""
        return await self._ledger_store.prune(before)

    async def aclose(self) -> None:
        """See the port."""
        await self._ledger_store.aclose()

    def _count(self, puts: Sequence[LedgerWrite], entries: Sequence[JournalEntry]) -> None:
        bodies = {(put.kind, put.key): put for put in puts if put.body is not None}
        for entry in entries:
            drift = bodies.get((RecordKind.DRIFT, entry.subject))
            if entry.action in ("detected", "resolved") and drift and drift.body is not None:
                form = gitops_v1.decode_record(gitops_v1.ApplicationDriftForm, drift.body)
                count = self._metrics.count_detected
                if entry.action == "resolved":
                    count = self._metrics.count_resolved
                count(gitops_v1.drift_from_json(form))
            elif entry.action == "fight":
                self._metrics.count_fight(gitops_v1.parse_app_id(entry.application))
            elif entry.action in _PULL_RESULTS:
                result = _PULL_RESULTS[entry.action]
                provider = self._provider(entry.application)
                self._metrics.pulls.labels(provider, _pull_kind(puts, entry), result).inc()


def _pull_kind(puts: Sequence[LedgerWrite], entry: JournalEntry) -> str:
    """What a pull request proposed: its branch says so."""
    for put in puts:
        if put.kind is RecordKind.PULL and put.body is not None:
            pull = gitops_v1.decode_record(PullRequestRecord, put.body)
            if pull.drift == entry.subject:
                return "revert" if pull.branch.startswith("holdfast/revert/") else "codify"
    return "unknown"


class MeteredChannel:
    """A channel whose messages are counted."""

    def __init__(self, channel: NotificationChannel, kind: str, metrics: GitopsMetrics) -> None:
        self.name = channel.name
        self._channel = channel
        self._kind = kind
        self._metrics = metrics

    async def send(self, notices: Sequence[Notice]) -> None:
        """See the port."""
        try:
            await self._channel.send(notices)
        except HoldfastError as error:
            self._metrics.notifications.labels(self._kind, error.code).inc()
            raise
        self._metrics.notifications.labels(self._kind, "sent").inc()
