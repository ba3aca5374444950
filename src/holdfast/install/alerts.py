"""What Prometheus should wake someone for: how an alert is written, and those of the operator.

Each has a page under docs/operations/runbooks that says what to do. The names of the figures and
of their labels are the controllers' own; a test asks them for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.core.tree import Fields, Tree
from holdfast.install.settings import NAME, Installation

BOARD = "holdfast"
"""The board's own id, and so the end of its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
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
                "dashboard_url": f"{installation.grafana}/d/{BOARD}",
            },
        }


def group(name: str, alerts: Iterable[Alert], installation: Installation) -> Fields:
    """Give the rules about a controller as one group of a rule file."""
    return {"name": name, "rules": list[Tree](each.written(name, installation) for each in alerts)}


def operator_alerts() -> tuple[Alert, ...]:
    """The operator's, which looks after InferenceServices."""
    ours = f'job="{NAME}"'
    depth = f"sum(workqueue_depth{{{ours}}})"
    errors = f"sum(rate(controller_runtime_reconcile_errors_total{{{ours}}}[10m]))"
    return (
        Alert(
            name="HoldfastDriftUnresolved",
            expression=f"max(holdfast_drift_active{{{ours}}}) > 0",
            lasts="30m",
            severity="warning",
            summary="Services have differed from what was declared for 30 minutes.",
            description="{{ $value }} InferenceServices differ. With onDrift warn or fail that "
            "stays until someone decides; with reconcile the operator cannot put it back.",
        ),
        Alert(
            name="HoldfastReconcileErrors",
            # One service that fails backs off, so it shows as a share of few looks.
            expression=f"{errors} > 0.05 or {errors} / sum(rate("
            f"controller_runtime_reconcile_total{{{ours}}}[10m])) > 0.2",
            lasts="15m",
            severity="warning",
            summary="More than 3 of the operator's looks a minute fail, or a fifth of them.",
            description="Its log names the services and the errors.",
        ),
        Alert(
            name="HoldfastReconcileStalled",
            expression=f"{depth} > 0 and (sum(increase("
            f"controller_runtime_reconcile_total{{{ours}}}[15m])) or vector(0)) == 0",
            lasts="10m",
            severity="critical",
            summary="The operator has work and does none of it.",
            description="It looked at nothing for 15 minutes, with {{ $value }} services in line. "
            "What serves goes on serving.",
        ),
        Alert(
            name="HoldfastQueueGrowing",
            expression=f"min_over_time({depth}[15m:1m]) > 10 and {depth} > "
            f"sum(workqueue_depth{{{ours}}} offset 15m)",
            lasts="15m",
            severity="warning",
            summary="Work arrives faster than the operator does it.",
            description="{{ $value }} services wait in line, and the line gets longer.",
        ),
        Alert(
            name="HoldfastControllerDown",
            expression=f"(sum(leader_election_master_status{{{ours}}}) or vector(0)) < 1",
            lasts="5m",
            severity="critical",
            summary="No replica of the operator is acting, so nothing is reconciled.",
            description="What serves goes on serving meanwhile; drift of it is neither seen nor "
            "put back.",
        ),
    )
