"""The Grafana board: what is open, how fast it goes, who waits, and how the controllers do.

Written in rows of panels, twelve columns of two units each; where a panel stands follows from
the order. `panels.py` has the panels.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.tree import Fields, Tree
from holdfast.install.alerts import BOARD
from holdfast.install.panels import ROWS, Panel

_WIDTH = 24
_SOURCE: Fields = {"type": "prometheus", "uid": "${datasource}"}


def board() -> Fields:
    """Give the board as Grafana imports it."""
    return {
        "uid": BOARD,
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
        "panels": list(_laid_out()),
    }


def _laid_out() -> Iterator[Tree]:
    number, top = 0, 0
    for title, panels in ROWS:
        number += 1
        place: Fields = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place,
               "panels": []}  # fmt: skip
        top += 1
        left = height = 0
        for panel in panels:
            if left + panel.width > _WIDTH:
                left, top, height = 0, top + height, 0
            number += 1
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            yield {"id": number, "gridPos": place, **_drawn(panel)}
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _drawn(panel: Panel) -> Fields:
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
