"""The Grafana board shows figures that exist, by expressions that Prometheus understands."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.promql import metric_queries, unknown_metrics

from holdfast.core.gitops.drift import DriftState, Resolution
from holdfast.install.monitoring import DASHBOARD_UID, dashboard_text

# Any: the board as Grafana reads it.
SHOWN: Any = json.loads(dashboard_text())
PANELS = [each for each in SHOWN["panels"] if each["type"] != "row"]
EXPRESSIONS = [
    (f"{panel['title']} {target['refId']}", target["expr"])
    for panel in PANELS
    for target in panel["targets"]
]
KINDS = {"timeseries", "stat", "bargauge", "table"}


def test_every_panel_says_what_it_shows_and_is_drawn() -> None:
    assert SHOWN["uid"] == DASHBOARD_UID and SHOWN["title"] and SHOWN["schemaVersion"] >= 39
    assert len(PANELS) > 20
    for panel in PANELS:
        assert panel["title"] and panel["description"].endswith("."), panel["title"]
        assert panel["type"] in KINDS and panel["targets"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        ids = [target["refId"] for target in panel["targets"]]
        assert len(set(ids)) == len(ids)


def test_no_panel_lies_on_another_or_beyond_the_edge() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in SHOWN["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + across, place["y"] + down)
            for across in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in SHOWN["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_variable_that_is_used_is_asked_for() -> None:
    names = {each["name"] for each in SHOWN["templating"]["list"]}
    assert names == {"datasource", "namespace"}
    used = {word for _, asks in EXPRESSIONS for word in re.findall(r"\$(\w+)", asks)}
    assert used == {"namespace", "__range", "__rate_interval"}


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS, ids=[name for name, _ in EXPRESSIONS])
def test_a_panel_asks_only_for_what_the_controllers_report(name: str, expression: str) -> None:
    assert list(metric_queries(expression)) and unknown_metrics(expression) == []


def test_the_words_of_the_panels_are_those_of_the_code() -> None:
    for _, expression in EXPRESSIONS:
        for figure in metric_queries(expression):
            if figure.name.startswith("holdfast_drift"):
                assert figure.matchers.get("state", "fighting") in list(DriftState)
                assert figure.matchers.get("resolution", "self_heal") in list(Resolution)


def test_prometheus_understands_every_expression(promtool: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"board:number_{at}", "expr": filled(expression)}
        for at, (_, expression) in enumerate(EXPRESSIONS)
    ]
    file = tmp_path / "board.rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    checked = subprocess.run(
        [promtool, "check", "rules", file], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(EXPRESSIONS)} rules found" in checked.stdout


def filled(expression: str) -> str:
    """Put in what Grafana would."""
    for word, value in (("$__rate_interval", "5m"), ("$__range", "24h"), ("$namespace", ".*")):
        expression = expression.replace(word, value)
    return expression
