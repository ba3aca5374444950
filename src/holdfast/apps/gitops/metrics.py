"""Metrics for Prometheus, served with the server's own.

What happened is counted from the facts that were committed, so nothing is counted that did not
last; how things stand is asked when the metrics are read. Labels name applications and fixed words,
never a repository, a field, a drift or a person.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.apps.runtime.metrics import ControllerMetrics
from holdfast.apps.runtime.workers import PassResult
from holdfast.apps.server.metrics import ServerMetrics
from holdfast.core.errors import HoldfastError
from holdfast.core.gitops import facts
from holdfast.core.gitops.application import ApplicationId, PullRequestKind
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.notification import Notice
from holdfast.core.gitops.pull_request_text import kind_of_branch
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_state import StateCommit
from holdfast.reconcile.gitops.ports import NotificationChannel

_APPLICATION_LABELS = ["namespace", "name"]
Contexts: TypeAlias = Iterable[ApplicationContext]
Samples: TypeAlias = Iterator[tuple[list[str], float]]
"""The values of the labels, each time with the value of the metric."""


class ApplicationCollector(Collector):
    """The metrics of every application of one controller."""

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
        of_application = _APPLICATION_LABELS
        return [
            _gauge(
                "holdfast_application_info",
                "Always 1",
                [*of_application, "project", "sync_status", "health_status"],
                _info(every),
            ),
            _gauge(
                "holdfast_drift_active",
                "Drifts that are open",
                [*of_application, "type", "state"],
                _active(every),
            ),
            _gauge(
                "holdfast_drift_first_detected_timestamp_seconds",
                "Since when the oldest drift is open",
                of_application,
                _first_detected(every),
            ),
            _gauge(
                "holdfast_drift_tolerated",
                "Fields that differ and are left alone",
                ["rule"],
                _tolerated(every),
            ),
            _gauge(
                "holdfast_paused_until_timestamp_seconds",
                "When the last hold ends",
                of_application,
                _paused(every),
            ),
            _gauge(
                "holdfast_approvals_pending",
                "Drifts and plans that wait for a person",
                of_application,
                _pending(every),
            ),
            _gauge(
                "holdfast_application_suspended",
                "1 while spec.suspend is set",
                of_application,
                (
                    (_label_values(each), float(bool(each.application.spec.suspend)))
                    for each in every
                ),
            ),
            _gauge(
                "holdfast_git_last_fetch_timestamp_seconds",
                "Last answer of a repository",
                ["repo"],
                self._fetched(every),
            ),
            _gauge(
                "holdfast_git_fetch_overdue_timestamp_seconds",
                "When a repository should be read again at the latest, or since when it cannot be",
                [*of_application, "repo"],
                self._overdue(every),
            ),
            _gauge(
                "holdfast_application_pass_due_timestamp_seconds",
                "When the next pass over an application is due",
                of_application,
                (([id.namespace, id.name], at.timestamp()) for id, at in self._due().items()),
            ),
            _gauge(
                "holdfast_cached_objects",
                "Objects kept by informers",
                ["kind"],
                (([kind], count) for kind, count in self._objects().items()),
            ),
        ]

    def _fetched(self, every: Contexts) -> Samples:
        last: dict[str, float] = {}
        for each in every:
            if (at := each.poller.last.fetched_at) is not None:
                name = self._repository(each)
                last[name] = max(last.get(name, 0.0), at.timestamp())
        for name, seconds in last.items():
            yield [name], seconds

    def _overdue(self, every: Contexts) -> Samples:
        """Each has an interval of its own, also where several follow one repository."""
        for each in every:
            at = each.poller.overdue(each.application)
            if at is not None and not each.application.spec.suspend:
                yield [*_label_values(each), self._repository(each)], at.timestamp()


def _gauge(name: str, about: str, labels: Sequence[str], samples: Samples) -> Metric:
    family = GaugeMetricFamily(name, about, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _label_values(context: ApplicationContext) -> list[str]:
    return [context.application.id.namespace, context.application.id.name]


def _info(every: Contexts) -> Samples:
    for each in every:
        status = each.application.status
        states = [status.sync, status.health] if status else ["unknown", "unknown"]
        yield [*_label_values(each), each.application.spec.project, *states], 1


def _active(every: Contexts) -> Samples:
    for each in every:
        drifts = each.state.drifts.values()
        counts = Tally((kind.value, it.state.value) for it in drifts for kind in it.kinds)
        for (kind, state), count in counts.items():
            yield [*_label_values(each), kind, state], count


def _first_detected(every: Contexts) -> Samples:
    for each in every:
        times = [drift.first_seen.timestamp() for drift in each.state.drifts.values()]
        if times:
            yield _label_values(each), min(times)


def _tolerated(every: Contexts) -> Samples:
    counts: Tally[str] = Tally()
    for each in every:
        spec = each.application.spec.drift
        named = {rule.name for rule in (spec.ignore if spec else None) or ()}
        for snapshot in each.object_states.values():
            for _, why in snapshot.tolerated:
                # The rest are names of objects, people or ids.
                unnamed = "temporary" if why in each.state.rules else "delegated"
                counts[why if why in named else unnamed] += 1
    for rule, count in counts.items():
        yield [rule], count


def _paused(every: Contexts) -> Samples:
    for each in every:
        times = [hold.until.timestamp() for hold in each.state.holds.values()]
        if times:
            yield _label_values(each), max(times)


def _pending(every: Contexts) -> Samples:
    for each in every:
        drifts = [d for d in each.state.drifts.values() if d.state is DriftState.AWAITING]
        plans = [plan for plan in each.state.plans.values() if not plan.decided]
        yield _label_values(each), len(drifts) + len(plans)


CONTROLLER_LABEL = "application"
_DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_RESOLVE_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86_400, 3 * 86_400, 7 * 86_400)


class GitopsMetrics(ControllerMetrics):
    """All metrics of one controller."""

    def __init__(
        self, server: ServerMetrics, provider: Callable[[ApplicationId], str] = lambda id: "unknown"
    ) -> None:
        """`provider` names the forge of an application."""
        new = server.registry
        # The server counts the drift of workloads under these names, and follows none here.
        new.unregister(server.detected)
        new.unregister(server.resolved)
        super().__init__(new, controller=CONTROLLER_LABEL, buckets=_DURATION_BUCKETS)
        self._provider = provider
        self._reconciled = Counter(
            "holdfast_reconcile", "Passes by outcome", ["controller", "result"], registry=new
        )
        self._time = self.duration("holdfast_reconcile_duration_seconds", "Time of a pass")
        self.plan_duration = self.duration(
            "holdfast_plan_duration_seconds", "Time to compare everything of an application"
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
        self._pulls = Counter(
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

    def count_pass(self, result: PassResult, seconds: float) -> None:
        """Count one pass."""
        self._reconciled.labels(CONTROLLER_LABEL, result.value).inc()
        self._time.observe(seconds)

    def count_commit(self, commit: StateCommit) -> None:
        """Count the facts of a commit."""
        for fact in commit.facts:
            self.count_fact(commit.application, fact)

    def count_fact(self, application: ApplicationId, fact: facts.ApplicationFact) -> None:
        """Count a fact that was committed, if it is one of those that are counted."""
        match fact:
            case facts.DriftDetected(drift=drift):
                cause = drift.causes[0].value if drift.causes else "unknown"
                for kind in drift.kinds:
                    self._detected.labels(application.namespace, kind.value, cause).inc()
            case facts.DriftCorrected(drift=drift) | facts.DriftAbandoned(drift=drift):
                self._count_resolved(drift)
            case facts.FightDetected():
                self._loops.labels(application.namespace).inc()
            case facts.PullRequestOpened(drift=drift):
                self._count_pull(application, drift.pull, "opened")
            case facts.PullRequestMerged(pull=pull):
                self._count_pull(application, kind_of_branch(pull.branch), "merged")
            case facts.PullRequestRejected(pull=pull):
                self._count_pull(application, kind_of_branch(pull.branch), "rejected")
            case facts.PullRequestClosed(pull=pull):
                self._count_pull(application, kind_of_branch(pull.branch), "closed")
            case facts.PullRequestLeftAlone(branch=branch):
                self._count_pull(application, kind_of_branch(branch), "left-alone")

    def _count_resolved(self, drift: ObjectDrift) -> None:
        namespace = drift.application.namespace
        for kind in drift.kinds:
            self._resolved.labels(namespace, kind.value, str(drift.resolution)).inc()
        if drift.resolved_at is not None:
            lasted = (drift.resolved_at - drift.first_seen).total_seconds()
            self._lasted.labels(namespace).observe(lasted)

    def _count_pull(self, application: ApplicationId, kind: PullRequestKind, result: str) -> None:
        self._pulls.labels(self._provider(application), kind.value, result).inc()

    def watch(
        self,
        contexts: Mapping[ApplicationId, ApplicationContext],
        repository: Callable[[ApplicationContext], str],
        objects: Callable[[], Mapping[str, int]],
        due: Callable[[], Mapping[ApplicationId, datetime]],
    ) -> None:
        """Ask for the state of the applications whenever the metrics are read.

        `repository` gives what stands for an application's repository; `due` says when the next
        pass over which application is due.
        """
        self.registry.register(ApplicationCollector(contexts, repository, objects, due))


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
