"""How Prometheus finds the operator, and what it should wake someone for.

Objects of the Prometheus operator. Each alert says what to look at first; the names of the
figures are the operator's own, and a test asks it for each of them.
"""

from __future__ import annotations

from holdfast.core.tree import Fields, Tree
from holdfast.install.settings import NAME, Installation

API = "monitoring.coreos.com/v1"
DRIFT = "holdfast_drift_active"
ERRORS = "controller_runtime_reconcile_errors_total"
LEADER = "leader_election_master_status"
QUEUE = "workqueue_depth"
FIGURES = (DRIFT, ERRORS, LEADER, QUEUE)


def monitor(installation: Installation, labels: Fields, selector: Fields) -> Fields:
    """Have the metrics of every replica read."""
    return {
        "apiVersion": API,
        "kind": "ServiceMonitor",
        "metadata": _metadata(installation, labels),
        "spec": {
            "selector": {"matchLabels": selector},
            "endpoints": [{"port": "metrics", "path": "/metrics", "interval": "30s"}],
        },
    }


def alerts(installation: Installation, labels: Fields) -> Fields:
    """The rules."""
    job = f'{{namespace="{installation.namespace}",job="{NAME}"}}'
    rules: list[Tree] = [
        _alert(
            "HoldfastDriftUnresolved",
            f"max({DRIFT}{job}) > 0",
            lasts="30m",
            severity="warning",
            summary="Workloads have differed from what was declared for 30 minutes.",
            runbook="kubectl get inferenceservices.holdfast.dev -A shows which; kubectl holdfast "
            "drift explain NAME -n NAMESPACE shows what, who and why. With onDrift warn or fail "
            "it stays until someone decides; with reconcile, look at the condition Synced.",
        ),
        _alert(
            "HoldfastReconcileErrors",
            f"sum(rate({ERRORS}{job}[10m])) > 0.05",
            lasts="15m",
            severity="warning",
            summary="The operator fails more than 3 times a minute.",
            runbook="kubectl logs -n NAMESPACE deployment/holdfast-operator names the objects and "
            "the errors. Permission denied: apply the roles of this version anew. Conflicts: "
            "another controller writes the same fields; the message names its field manager.",
        ),
        _alert(
            "HoldfastNoLeader",
            f"(sum({LEADER}{job}) or vector(0)) < 1",
            lasts="5m",
            severity="critical",
            summary="No replica of the operator is acting, so nothing is reconciled.",
            runbook="kubectl get lease -n NAMESPACE shows who leads and since when; kubectl get "
            "pods -n NAMESPACE shows whether any runs. What serves goes on serving meanwhile.",
        ),
        _alert(
            "HoldfastQueueGrowing",
            f"min_over_time(sum({QUEUE}{job})[15m:1m]) > 10 "
            f"and sum({QUEUE}{job}) > sum({QUEUE}{job} offset 15m)",
            lasts="15m",
            severity="warning",
            summary="Work arrives faster than the operator does it.",
            runbook="Look for errors first, since failed work comes back. A slow API server shows "
            "in apiserver_request_duration_seconds. Otherwise raise --workers and the CPU request.",
        ),
    ]
    return {
        "apiVersion": API,
        "kind": "PrometheusRule",
        "metadata": _metadata(installation, labels),
        "spec": {"groups": [{"name": NAME, "rules": rules}]},
    }


def _alert(
    name: str, expression: str, *, lasts: str, severity: str, summary: str, runbook: str
) -> Fields:
    return {
        "alert": name,
        "expr": expression,
        "for": lasts,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "runbook": runbook},
    }


def _metadata(installation: Installation, labels: Fields) -> Fields:
    return {"name": NAME, "namespace": installation.namespace, "labels": labels}
