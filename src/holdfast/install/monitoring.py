"""How Prometheus finds the controllers, its alert rules, and the Grafana dashboard.

Rules and dashboard are files in `data/`, and are edited there. Here they become objects of the
Prometheus operator, and a ConfigMap as Grafana's sidecar looks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import yaml

from holdfast.core.tree import Fields, Tree
from holdfast.install.deployments import object_metadata
from holdfast.install.settings import GITOPS_NAME, OPERATOR_NAME, Installation

MONITORING_API = "monitoring.coreos.com/v1"
DASHBOARD_FILE = "holdfast-grafana.json"
DASHBOARD_UID = "holdfast"
"""The end of the dashboard's address."""
_RULE_FILES = {OPERATOR_NAME: "operator.rules.yaml", GITOPS_NAME: "gitops.rules.yaml"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert. Several may have the same name, for one runbook; `because` tells them apart."""

    alert: str
    because: str = ""
    expr: str
    duration: str
    """How long the expression has to hold: `for` in the file."""
    severity: str
    summary: str
    description: str

    def to_prometheus(self, controller: str, installation: Installation) -> Fields:
        """Return the rule as Prometheus reads it, with links to its runbook and the dashboard."""
        labels: Fields = {"severity": self.severity, "controller": controller}
        if self.because:
            labels["because"] = self.because
        return {
            "alert": self.alert,
            "expr": self.expr,
            "for": self.duration,
            "labels": labels,
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{installation.runbooks}/{self.alert}.md",
                "dashboard_url": f"{installation.grafana}/d/{DASHBOARD_UID}",
            },
        }


def alert_rules(controller: str) -> tuple[AlertRule, ...]:
    """Read the alerts about a controller."""
    found = yaml.safe_load(_data(_RULE_FILES[controller]))
    return tuple(AlertRule(duration=each.pop("for"), **each) for each in found)


def rule_group(controller: str, installation: Installation) -> Fields:
    """Return the alerts about a controller as one group of a rule file."""
    rules = [each.to_prometheus(controller, installation) for each in alert_rules(controller)]
    return {"name": controller, "rules": list[Tree](rules)}


def dashboard_text() -> str:
    """Return the dashboard as the file that people import."""
    return _data(DASHBOARD_FILE)


def service_monitor(
    name: str,
    port: str,
    installation: Installation,
    labels: Fields,
    selector: Fields,
    *,
    tls: bool = False,
) -> Fields:
    """Have the metrics of every replica read.

    A drift is in the namespace of its object, which must not give way to the controller's own.
    By TLS the certificate is not checked: Prometheus asks pods by their addresses, for which there
    is none, and sends no credentials.
    """
    endpoint: Fields = {"port": port, "path": "/metrics", "interval": "30s", "honorLabels": True}
    if tls:
        endpoint |= {"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}}
    return {
        "apiVersion": MONITORING_API,
        "kind": "ServiceMonitor",
        "metadata": object_metadata(name, installation, labels),
        "spec": {"selector": {"matchLabels": selector}, "endpoints": [endpoint]},
    }


def prometheus_rule(controller: str, installation: Installation, labels: Fields) -> Fields:
    """Have the alerts about a controller raised."""
    return {
        "apiVersion": MONITORING_API,
        "kind": "PrometheusRule",
        "metadata": object_metadata(controller, installation, labels),
        "spec": {"groups": [rule_group(controller, installation)]},
    }


def dashboard_config_map(installation: Installation, labels: Fields) -> Fields:
    """Have Grafana show the dashboard."""
    labels = {**labels, "grafana_dashboard": "1"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": object_metadata("holdfast-board", installation, labels),
        "data": {DASHBOARD_FILE: dashboard_text()},
    }


def _data(name: str) -> str:
    return files("holdfast.install").joinpath("data", name).read_text(encoding="utf-8")
