"""How Prometheus finds the controllers, what it should wake someone for, and the board.

Objects of the Prometheus operator, and a ConfigMap as Grafana's sidecar looks for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast.core.tree import Fields, Tree
from holdfast.install.deployments import object_metadata
from holdfast.install.settings import GITOPS_NAME, OPERATOR_NAME, Installation

DASHBOARD_UID = "holdfast"
"""The board's own id, and so the end of its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One rule. Several may have the same name, for one runbook; `because` tells them apart."""

    name: str
    because: str = ""
    expression: str
    lasts: str
    severity: str
    summary: str
    description: str

    def written(self, controller: str, installation: Installation) -> Fields:
        """Give it in Prometheus's form, with links to its runbook and to the board."""
        labels: Fields = {"severity": self.severity, "controller": controller}
        if self.because:
            labels["because"] = self.because
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.lasts,
            "labels": labels,
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{installation.runbooks}/{self.name}.md",
                "dashboard_url": f"{installation.grafana}/d/{DASHBOARD_UID}",
            },
        }


def rule_group(name: str, alerts: Iterable[AlertRule], installation: Installation) -> Fields:
    """Give the rules about a controller as one group of a rule file."""
    return {"name": name, "rules": list[Tree](each.written(name, installation) for each in alerts)}


def operator_alerts() -> tuple[AlertRule, ...]:
    """The operator's, which looks after InferenceServices."""
    ours = f'job="{OPERATOR_NAME}"'
    depth = f"sum(workqueue_depth{{{ours}}})"
    errors = f"sum(rate(controller_runtime_reconcile_errors_total{{{ours}}}[10m]))"
    return (
        AlertRule(
            name="HoldfastDriftUnresolved",
            expression=f"max(holdfast_drift_active{{{ours}}}) > 0",
            lasts="30m",
            severity="warning",
            summary="Services have differed from what was declared for 30 minutes.",
            description="{{ $value }} InferenceServices differ. With onDrift warn or fail that "
            "stays until someone decides; with reconcile the operator cannot put it back.",
        ),
        AlertRule(
            name="HoldfastReconcileErrors",
            # One service that fails backs off, so it shows as a share of few looks.
            expression=f"{errors} > 0.05 or {errors} / sum(rate("
            f"controller_runtime_reconcile_total{{{ours}}}[10m])) > 0.2",
            lasts="15m",
            severity="warning",
            summary="More than 3 of the operator's looks a minute fail, or a fifth of them.",
            description="Its log names the services and the errors.",
        ),
        AlertRule(
            name="HoldfastReconcileStalled",
            expression=f"{depth} > 0 and (sum(increase("
            f"controller_runtime_reconcile_total{{{ours}}}[15m])) or vector(0)) == 0",
            lasts="10m",
            severity="critical",
            summary="The operator has work and does none of it.",
            description="It looked at nothing for 15 minutes, with {{ $value }} services in line. "
            "What serves goes on serving.",
        ),
        AlertRule(
            name="HoldfastQueueGrowing",
            expression=f"min_over_time({depth}[15m:1m]) > 10 and {depth} > "
            f"sum(workqueue_depth{{{ours}}} offset 15m)",
            lasts="15m",
            severity="warning",
            summary="Work arrives faster than the operator does it.",
            description="{{ $value }} services wait in line, and the line gets longer.",
        ),
        AlertRule(
            name="HoldfastControllerDown",
            expression=f"(sum(leader_election_master_status{{{ours}}}) or vector(0)) < 1",
            lasts="5m",
            severity="critical",
            summary="No replica of the operator is acting, so nothing is reconciled.",
            description="What serves goes on serving meanwhile; drift of it is neither seen nor "
            "put back.",
        ),
    )


_SETTLED = "held|pull-request|rejected|snoozed"
"""States in which a person has decided about a drift for now."""
_GRAVE = "image|resource|secret"
"""What an intruder would change, and what hurts most when it is a mistake."""
_APPLICATION = "{{ $labels.namespace }}/{{ $labels.name }}"


def _ours(figure: str, *matchers: str) -> str:
    every = ",".join((f'job="{GITOPS_NAME}"', *matchers))
    return f"{figure}{{{every}}}"


_DRIFT = "holdfast_drift_active"
_PASSES = "holdfast_reconcile_total"
_PAUSED = _ours("holdfast_paused_until_timestamp_seconds")
_SUSPENDED = _ours("holdfast_application_suspended")
_DUE = _ours("holdfast_application_pass_due_timestamp_seconds")
_LATE = f"time() - max by (namespace, name) ({_DUE})"
"""Seconds by which a pass over an application is late; below zero while it is not."""


def gitops_alerts() -> tuple[AlertRule, ...]:
    """Give them: about drift, then about people, then about the controller itself."""
    return (*_about_drift(), *_about_people(), *_about_itself())


def _about_drift() -> tuple[AlertRule, ...]:
    left = _ours(_DRIFT, f'state!~"awaiting-approval|{_SETTLED}"')
    grave = _ours(_DRIFT, f'type=~"{_GRAVE}"', f'state!~"{_SETTLED}"')
    fought = _ours(_DRIFT, 'state="fighting"')
    grave_fought = _ours(_DRIFT, f'type=~"{_GRAVE}"', 'state="fighting"')
    loops = _ours("holdfast_selfheal_loop_total")
    return (
        AlertRule(
            name="HoldfastDriftUnresolved",
            expression=f"sum by (namespace) ({left}) > 0",
            lasts="30m",
            severity="warning",
            summary="There has been open drift in {{ $labels.namespace }} for 30 minutes.",
            description="{{ $value }} drifts of applications in {{ $labels.namespace }}, each "
            "counted once for each of its types, are neither put back nor with anybody who "
            "decides.",
        ),
        AlertRule(
            name="HoldfastHighSeverityDrift",
            expression=f"sum by (namespace, type) ({grave}) > 0",
            because="open",
            lasts="1h",
            severity="critical",
            summary="There has been open drift of the type {{ $labels.type }} in "
            "{{ $labels.namespace }} for an hour.",
            description="An image, a credential or a whole object differs from what was reviewed, "
            "in {{ $value }} places.",
        ),
        AlertRule(
            name="HoldfastHighSeverityDrift",
            expression=f"sum by (namespace, type) ({grave_fought}) > 0",
            because="fought",
            lasts="5m",
            severity="critical",
            summary="Drift of the type {{ $labels.type }} in {{ $labels.namespace }} comes back "
            "each time it is healed.",
            description="So it is left as it is. An image, a credential or a whole object differs "
            "from what was reviewed.",
        ),
        AlertRule(
            name="HoldfastSelfHealLoop",
            expression=f"sum by (namespace) (increase({loops}[1h])) > 0 "
            f"or sum by (namespace) ({fought}) > 0",
            lasts="1m",
            severity="warning",
            summary="What is healed in {{ $labels.namespace }} comes back.",
            description="Another writer holds the same field, or the API server stores it "
            "otherwise than it is declared. It is left alone for half an hour at a time; "
            "holdfast drift list --state fighting names the objects.",
        ),
    )


def _about_people() -> tuple[AlertRule, ...]:
    pending = _ours("holdfast_approvals_pending")
    return (
        AlertRule(
            name="HoldfastApprovalOverdue",
            expression=f"sum by (namespace, name) ({pending}) > 0",
            lasts="4h",
            severity="warning",
            summary=f"There has been something to approve in {_APPLICATION} for 4 hours.",
            description="{{ $value }} drifts or plans wait for somebody with the scope approve.",
        ),
        AlertRule(
            name="HoldfastPauseForgotten",
            expression=f"max by (namespace, name) ({_PAUSED}) > 0",
            because="held",
            lasts="24h",
            severity="warning",
            summary=f"{_APPLICATION} has been held for a day.",
            description="Nothing is written to it. The hold ends at "
            "{{ $value | humanizeTimestamp }}.",
        ),
        AlertRule(
            name="HoldfastPauseForgotten",
            expression=f"time() - max by (namespace, name) ({_PAUSED}) > 1800 "
            f"unless on (namespace, name) {_SUSPENDED} > 0",
            because="past",
            lasts="5m",
            severity="warning",
            summary=f"A hold on {_APPLICATION} is past its end.",
            description="It should have ended {{ $value | humanizeDuration }} ago: the controller "
            "does not come to it.",
        ),
        AlertRule(
            name="HoldfastPauseForgotten",
            expression=f"max by (namespace, name) ({_SUSPENDED} or "
            "kube_holdfast_application_suspended) > 0",
            because="suspended",
            lasts="24h",
            severity="warning",
            summary=f"{_APPLICATION} has been suspended for a day.",
            description="Nothing of it is looked at. A suspension has no end of its own.",
        ),
    )


def _about_itself() -> tuple[AlertRule, ...]:
    apart = "max by (namespace, name, repo)"
    overdue = f"{apart} ({_ours('holdfast_git_fetch_overdue_timestamp_seconds')})"
    leads = _ours("leader_election_master_status")
    info = "holdfast_application_info"
    unread = _ours(info, 'sync_status="unknown"', 'health_status="unknown"')
    passes = _ours(_PASSES)
    failed = _ours(_PASSES, 'result="error"')
    done = _ours(_PASSES, 'result="success"')
    return (
        AlertRule(
            name="HoldfastGitSourceStale",
            # Where no pass comes to an end, it is not the repository that is to blame.
            expression=f"count by (repo) (time() - {overdue} > 3600 "
            f"unless on (namespace, name) {_LATE} > 600)",
            because="unread",
            lasts="5m",
            severity="warning",
            summary="A repository should have been read an hour ago.",
            description="It cannot be read, or not rendered, for {{ $value }} applications: those "
            "that the board shows with {{ $labels.repo }}. The last good commit still counts.",
        ),
        AlertRule(
            name="HoldfastGitSourceStale",
            expression=f"max by (namespace, name) ({unread}) > 0 "
            f"unless on (namespace, name) {_SUSPENDED} > 0",
            because="unknown",
            lasts="30m",
            severity="warning",
            summary=f"Nothing is known of {_APPLICATION}.",
            description="Its repository could not be read since the controller started, its "
            "objects may not be read, or another application declares them: the condition Ready "
            "says which.",
        ),
        AlertRule(
            name="HoldfastReconcileErrors",
            # Over less time than it has to last, so that one failure among few passes is no alarm.
            expression=f"sum(rate({failed}[10m])) / sum(rate({passes}[10m])) > 0.2",
            because="many",
            lasts="15m",
            severity="warning",
            summary="{{ $value | humanizePercentage }} of the GitOps controller's passes fail.",
            description="Its log names the applications and the errors.",
        ),
        AlertRule(
            name="HoldfastReconcileErrors",
            expression=f"count by (namespace) ({_LATE} > 1800)",
            because="late",
            lasts="5m",
            severity="warning",
            summary="No pass over {{ $value }} applications in {{ $labels.namespace }} has ended "
            "well for half an hour.",
            description="Each pass over them fails, or their spec is wrong. The log of the "
            "controller and the condition Ready of the applications say why.",
        ),
        AlertRule(
            name="HoldfastReconcileStalled",
            # By what is late as well, as nothing need be due for long after a long --resync.
            expression=f"count({_ours(info)}) > 0 "
            f"and (sum(increase({done}[15m])) or vector(0)) == 0 and min({_LATE}) > 0",
            lasts="15m",
            severity="critical",
            summary="The GitOps controller has finished no pass for half an hour.",
            description="{{ $value }} applications are not looked at. What runs goes on running.",
        ),
        AlertRule(
            name="HoldfastControllerDown",
            expression=f"absent({_ours('up')} == 1)",
            because="silent",
            lasts="5m",
            severity="critical",
            summary="The GitOps controller does not answer.",
            description="Drift is not seen, commits are not applied, and decisions cannot be "
            "made. What runs goes on running.",
        ),
        AlertRule(
            name="HoldfastControllerDown",
            expression=f"max({leads}) < 1",
            because="idle",
            lasts="5m",
            severity="critical",
            summary="The GitOps controller answers, and nobody has its lease.",
            description="It waits for a turn that does not come. Drift is not seen, commits are "
            "not applied, and decisions cannot be made. What runs goes on running.",
        ),
    )


_APPS = f'job="{GITOPS_NAME}",namespace=~"$namespace"'
_GITOPS = f'job="{GITOPS_NAME}"'
_OPERATOR = f'job="{OPERATOR_NAME}"'
_BOTH = f'job=~"{OPERATOR_NAME}|{GITOPS_NAME}"'
_LASTED = f"rate(holdfast_drift_time_to_resolve_seconds_bucket{{{_APPS}}}[$__range])"
_PASS = f"rate(holdfast_reconcile_duration_seconds_bucket{{{_GITOPS}}}[$__rate_interval])"
_LOOK = f"rate(controller_runtime_reconcile_time_seconds_bucket{{{_OPERATOR}}}[$__rate_interval])"
_PAUSED_UNTIL = f"holdfast_paused_until_timestamp_seconds{{{_APPS}}}"
_OLDEST = f"holdfast_drift_first_detected_timestamp_seconds{{{_APPS}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture: what it asks, and how that is named."""

    title: str
    tells: str
    asks: tuple[tuple[str, str], ...]
    """Expressions, each with its legend."""
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8


def _number(title: str, expression: str, tells: str) -> Panel:
    asks = ((f"({expression}) or vector(0)", ""),)
    return Panel(title=title, tells=tells, asks=asks, kind="stat", width=4, height=4)


_NOW_PANELS = (
    _number(
        "Applications",
        f"count(holdfast_application_info{{{_APPS}}})",
        "Applications that are followed.",
    ),
    _number(
        "Open drift",
        f"sum(holdfast_drift_active{{{_APPS}}})",
        "Drifts of applications that have not ended. One of several types counts for each.",
    ),
    _number(
        "Waiting for a person",
        f"sum(holdfast_approvals_pending{{{_APPS}}})",
        "Drifts and plans that nobody has approved or rejected yet.",
    ),
    _number(
        "Being fought over",
        f'sum(holdfast_drift_active{{{_APPS},state="fighting"}})',
        "Drifts that came back each time they were healed.",
    ),
    _number(
        "Applications on hold",
        f"count({_PAUSED_UNTIL} > time())",
        "Applications of which something is held.",
    ),
    _number(
        "Services that differ",
        f"max(holdfast_drift_active{{{_OPERATOR}}})",
        "InferenceServices that differ from what was declared.",
    ),
)
_DRIFT_PANELS = (
    Panel(
        title="Open drift by type",
        tells="A drift of several types counts once for each.",
        asks=((f"sum by (type) (holdfast_drift_active{{{_APPS}}})", "{{type}}"),),
    ),
    Panel(
        title="Open drift by state",
        tells="How far the handling of each is.",
        asks=((f"sum by (state) (holdfast_drift_active{{{_APPS}}})", "{{state}}"),),
    ),
    Panel(
        title="Time to resolve",
        tells="From first seen to resolved, over the chosen time.",
        asks=(
            (f"histogram_quantile(0.5, sum by (le) ({_LASTED}))", "half within"),
            (f"histogram_quantile(0.95, sum by (le) ({_LASTED}))", "95 % within"),
        ),
        unit="s",
    ),
    Panel(
        title="Top causes",
        tells="What sort of writer moved things, over the chosen time.",
        asks=(
            (
                f"topk(10, sum by (cause) (increase(holdfast_drift_detected_total{{{_APPS}}}"
                "[$__range])))",
                "{{cause}}",
            ),
        ),
        kind="bargauge",
    ),
    Panel(
        title="How drift ended",
        tells="Over the chosen time.",
        asks=(
            (
                f"sum by (resolution) (increase(holdfast_drift_resolved_total{{{_APPS}}}"
                "[$__range]))",
                "{{resolution}}",
            ),
        ),
        kind="bargauge",
    ),
    Panel(
        title="Self-heal",
        tells="Drifts put back each minute, and fights that were given up.",
        asks=(
            (
                f'60 * sum(rate(holdfast_drift_resolved_total{{{_APPS},resolution="self_heal"}}'
                "[$__rate_interval]))",
                "healed",
            ),
            (
                f"60 * sum(rate(holdfast_selfheal_loop_total{{{_APPS}}}[$__rate_interval]))",
                "fights",
            ),
        ),
    ),
    Panel(
        title="Tolerated by rule",
        tells="Fields that differ and are left alone, by the rule that says so.",
        asks=((f"sum by (rule) (holdfast_drift_tolerated{{{_GITOPS}}})", "{{rule}}"),),
    ),
    Panel(
        title="Oldest open drift",
        tells="For each application.",
        asks=((f"time() - {_OLDEST}", "{{namespace}}/{{name}}"),),
        unit="s",
    ),
    Panel(
        title="Services found drifted and put right",
        tells="By the operator, each minute.",
        asks=(
            (
                f"60 * sum(rate(holdfast_drift_detected_total{{{_OPERATOR}}}[$__rate_interval]))",
                "found",
            ),
            (
                f"60 * sum(rate(holdfast_drift_resolved_total{{{_OPERATOR}}}[$__rate_interval]))",
                "ended",
            ),
        ),
    ),
)
_PEOPLE_PANELS = (
    Panel(
        title="Approvals waiting",
        tells="Drifts and plans, for each application.",
        asks=((f"holdfast_approvals_pending{{{_APPS}}} > 0", "{{namespace}}/{{name}}"),),
    ),
    Panel(
        title="Age of what waits",
        tells="The oldest open drift of each application of which something waits.",
        asks=(
            (
                f"time() - {_OLDEST} and on (namespace, name) "
                f"holdfast_approvals_pending{{{_APPS}}} > 0",
                "{{namespace}}/{{name}}",
            ),
        ),
        unit="s",
    ),
    Panel(
        title="Holds, and when they end",
        tells="Time left. Below zero, the controller has not come to end it.",
        asks=((f"{_PAUSED_UNTIL} - time()", "{{namespace}}/{{name}}"),),
        kind="table",
        unit="s",
    ),
    Panel(
        title="Pull requests by result",
        tells="Over the chosen time.",
        asks=(
            (
                "sum by (kind, result) (increase(holdfast_pull_requests_total"
                f"{{{_GITOPS}}}[$__range]))",
                "{{kind}} {{result}}",
            ),
        ),
        kind="bargauge",
        width=12,
    ),
    Panel(
        title="Notifications that failed",
        tells="By channel and reason. A message that fails is tried again.",
        asks=(
            (
                f"sum by (channel, result) (increase(holdfast_notifications_total{{{_GITOPS},"
                'result!="sent"}[$__rate_interval]))',
                "{{channel}} {{result}}",
            ),
        ),
        width=12,
    ),
)
_GIT_PANELS = (
    Panel(
        title="Applications by sync",
        tells="Whether what runs is what Git declares.",
        asks=((f"sum by (sync_status) (holdfast_application_info{{{_APPS}}})", "{{sync_status}}"),),
    ),
    Panel(
        title="Applications by health",
        tells="The worst of the objects of each.",
        asks=(
            (f"sum by (health_status) (holdfast_application_info{{{_APPS}}})", "{{health_status}}"),
        ),
    ),
    Panel(
        title="Git lag",
        tells="Since each repository was last read with success, for any application. A mark "
        "stands for its address; the next panel shows whose it is.",
        asks=((f"time() - holdfast_git_last_fetch_timestamp_seconds{{{_GITOPS}}}", "{{repo}}"),),
        unit="s",
    ),
    Panel(
        title="Repositories overdue",
        tells="By how long each application's interval has passed without a good read.",
        asks=(
            (
                f"time() - holdfast_git_fetch_overdue_timestamp_seconds{{{_APPS}}} > 0",
                "{{namespace}}/{{name}} {{repo}}",
            ),
        ),
        unit="s",
        width=12,
    ),
    Panel(
        title="Passes overdue",
        tells="By how long each application has waited for a pass that ends well.",
        asks=(
            (
                f"time() - holdfast_application_pass_due_timestamp_seconds{{{_APPS}}} > 60",
                "{{namespace}}/{{name}}",
            ),
        ),
        unit="s",
        width=12,
    ),
)
_CONTROLLER_PANELS = (
    Panel(
        title="Passes by result",
        tells="Each minute.",
        asks=(
            (
                "60 * sum by (result) (rate(holdfast_reconcile_total"
                f"{{{_GITOPS}}}[$__rate_interval]))",
                "gitops {{result}}",
            ),
            (
                "60 * sum by (result) (rate(controller_runtime_reconcile_total"
                f"{{{_OPERATOR}}}[$__rate_interval]))",
                "operator {{result}}",
            ),
        ),
    ),
    Panel(
        title="Time of a pass",
        tells="95 of 100 took less.",
        asks=(
            (f"histogram_quantile(0.95, sum by (le) ({_PASS}))", "gitops"),
            (f"histogram_quantile(0.95, sum by (le) ({_LOOK}))", "operator"),
        ),
        unit="s",
    ),
    Panel(
        title="Work in line",
        tells="Applications and services that wait to be looked at.",
        asks=((f"sum by (name) (workqueue_depth{{{_BOTH}}})", "{{name}}"),),
    ),
    Panel(
        title="Who acts",
        tells="1 for the pod that holds the lease.",
        asks=((f"max by (pod, name) (leader_election_master_status{{{_BOTH}}})", "{{pod}}"),),
    ),
    Panel(
        title="Objects kept in memory",
        tells="By kind, in each controller.",
        asks=(
            (
                f"topk(15, sum by (job, kind) (holdfast_cached_objects{{{_BOTH}}}))",
                "{{job}} {{kind}}",
            ),
        ),
    ),
    Panel(
        title="Versions",
        tells="Of what runs.",
        asks=((f"sum by (job, version) (holdfast_build_info{{{_BOTH}}})", "{{job}} {{version}}"),),
        kind="table",
    ),
)
PANEL_ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    ("Now", _NOW_PANELS),
    ("Drift", _DRIFT_PANELS),
    ("People", _PEOPLE_PANELS),
    ("Applications and Git", _GIT_PANELS),
    ("Controllers", _CONTROLLER_PANELS),
)


_WIDTH = 24
_SOURCE: Fields = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> Fields:
    """Give the board as Grafana imports it."""
    return {
        "uid": DASHBOARD_UID,
        "title": "Holdfast",
        "description": "Drift between what is declared and what runs, and how it is handled.",
        "tags": ["holdfast", "gitops", "kubernetes"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource(), _namespaces()]},
        "annotations": {"list": []},
        "panels": list(_lay_out()),
    }


def _lay_out() -> Iterator[Tree]:
    number, top = 0, 0
    for title, panels in PANEL_ROWS:
        number += 1
        place: Fields = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        top += 1
        left = height = 0
        for panel in panels:
            if left + panel.width > _WIDTH:
                left, top, height = 0, top + height, 0
            number += 1
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            yield {"id": number, "gridPos": place, **_panel_json(panel)}
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _panel_json(panel: Panel) -> Fields:
    now = panel.kind in ("stat", "bargauge", "table")
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.tells,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": _OPTIONS.get(panel.kind, {}),
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
                "instant": now,
                "range": not now,
                "format": "table" if panel.kind == "table" else "time_series",
            }
            for at, (expression, legend) in enumerate(panel.asks)
        ],
    }


_OPTIONS: dict[str, Fields] = {
    "timeseries": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}},
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"},
    "bargauge": {
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "orientation": "horizontal",
        "displayMode": "basic",
    },
}


def _datasource() -> Tree:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }


def _namespaces() -> Tree:
    asks = "label_values(holdfast_application_info, namespace)"
    return {
        "name": "namespace",
        "label": "Namespace",
        "type": "query",
        "datasource": _SOURCE,
        "definition": asks,
        "query": {"query": asks, "refId": "namespaces"},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
        "hide": 0,
    }


MONITORING_API = "monitoring.coreos.com/v1"
DASHBOARD_FILE = "holdfast-grafana.json"


def service_monitor(
    name: str, port: str, installation: Installation, labels: Fields, selector: Fields
) -> Fields:
    """Have the metrics of every replica read.

    A drift is in the namespace of its object, which must not give way to the controller's own.
    """
    return {
        "apiVersion": MONITORING_API,
        "kind": "ServiceMonitor",
        "metadata": object_metadata(name, installation, labels),
        "spec": {
            "selector": {"matchLabels": selector},
            "endpoints": [
                {"port": port, "path": "/metrics", "interval": "30s", "honorLabels": True}
            ],
        },
    }


def prometheus_rule(
    name: str, alerts: Iterable[AlertRule], installation: Installation, labels: Fields
) -> Fields:
    """Have alerts raised."""
    return {
        "apiVersion": MONITORING_API,
        "kind": "PrometheusRule",
        "metadata": object_metadata(name, installation, labels),
        "spec": {"groups": [rule_group(name, alerts, installation)]},
    }


def dashboard_text() -> str:
    """Write the board as the file that people import, one line for each panel."""
    rest = dashboard()
    panels = rest.pop("panels")
    assert isinstance(panels, list)  # noqa: S101  # as it is made
    lines = [f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in rest.items()]
    shown = ",\n".join(f"    {json.dumps(each)}" for each in panels)
    return "{\n" + "".join(lines) + '  "panels": [\n' + shown + "\n  ]\n}\n"


def dashboard_config_map(installation: Installation, labels: Fields) -> Fields:
    """Have Grafana show the board."""
    marked: Fields = {**labels, "grafana_dashboard": "1"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": object_metadata("holdfast-board", installation, marked),
        "data": {DASHBOARD_FILE: dashboard_text()},
    }
