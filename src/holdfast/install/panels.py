"""The panels of the Grafana board, row by row.

A test asks the controllers for every figure that is named here, and Prometheus's own parser for
every expression.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.install.settings import GITOPS, NAME

_APPS = f'job="{GITOPS}",namespace=~"$namespace"'
_GITOPS = f'job="{GITOPS}"'
_OPERATOR = f'job="{NAME}"'
_BOTH = f'job=~"{NAME}|{GITOPS}"'
_LASTED = f"rate(holdfast_drift_time_to_resolve_seconds_bucket{{{_APPS}}}[$__range])"
_PASS = f"rate(holdfast_reconcile_duration_seconds_bucket{{{_GITOPS}}}[$__rate_interval])"
_LOOK = f"rate(controller_runtime_reconcile_time_seconds_bucket{{{_OPERATOR}}}[$__rate_interval])"
_PAUSED = f"holdfast_paused_until_timestamp_seconds{{{_APPS}}}"
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


_NOW = (
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
        f"count({_PAUSED} > time())",
        "Applications of which something is held.",
    ),
    _number(
        "Services that differ",
        f"max(holdfast_drift_active{{{_OPERATOR}}})",
        "InferenceServices that differ from what was declared.",
    ),
)
_DRIFT = (
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
_PEOPLE = (
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
        asks=((f"{_PAUSED} - time()", "{{namespace}}/{{name}}"),),
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
_GIT = (
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
_CONTROLLERS = (
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
ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    ("Now", _NOW),
    ("Drift", _DRIFT),
    ("People", _PEOPLE),
    ("Applications and Git", _GIT),
    ("Controllers", _CONTROLLERS),
)
