"""How Prometheus finds the controllers, what it should wake someone for, and the board.

Objects of the Prometheus operator, and a ConfigMap as Grafana's sidecar looks for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from holdfast.core.tree import Fields
from holdfast.install.alerts import Alert, group
from holdfast.install.board import board
from holdfast.install.pod import metadata
from holdfast.install.settings import Installation

API = "monitoring.coreos.com/v1"
BOARD_FILE = "holdfast-grafana.json"


def monitor(
    name: str, port: str, installation: Installation, labels: Fields, selector: Fields
) -> Fields:
    """Have the metrics of every replica read.

    A drift is in the namespace of its object, which must not give way to the controller's own.
    """
    return {
        "apiVersion": API,
        "kind": "ServiceMonitor",
        "metadata": metadata(name, installation, labels),
        "spec": {
            "selector": {"matchLabels": selector},
            "endpoints": [
                {"port": port, "path": "/metrics", "interval": "30s", "honorLabels": True}
            ],
        },
    }


def rules(name: str, alerts: Iterable[Alert], installation: Installation, labels: Fields) -> Fields:
    """Have alerts raised."""
    return {
        "apiVersion": API,
        "kind": "PrometheusRule",
        "metadata": metadata(name, installation, labels),
        "spec": {"groups": [group(name, alerts, installation)]},
    }


def board_text() -> str:
    """Write the board as the file that people import, one line for each panel."""
    rest = board()
    panels = rest.pop("panels")
    assert isinstance(panels, list)  # noqa: S101  # as it is made
    lines = [f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in rest.items()]
    shown = ",\n".join(f"    {json.dumps(each)}" for each in panels)
    return "{\n" + "".join(lines) + '  "panels": [\n' + shown + "\n  ]\n}\n"


def board_map(installation: Installation, labels: Fields) -> Fields:
    """Have Grafana show the board."""
    marked: Fields = {**labels, "grafana_dashboard": "1"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata("holdfast-board", installation, marked),
        "data": {BOARD_FILE: board_text()},
    }
