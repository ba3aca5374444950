"""Every alert fires when it should and not otherwise, by Prometheus's own account."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import pytest
from tests.deploy.alert_cases import CASES, WEB, AlertCase, constant, of_gitops, series_name
from tests.support.promql import metric_queries, unknown_metrics

from holdfast.core.drift import DriftKind
from holdfast.core.gitops.drift import DriftState, Resolution
from holdfast.install.monitoring import AlertRule, alert_rules
from holdfast.install.settings import GITOPS_NAME, OPERATOR_NAME

ROOT = Path(__file__).resolve().parents[2]
RULES = {
    name: ROOT / "deploy" / "monitoring" / f"{name}.rules.yaml" for name in ("operator", "gitops")
}
ALERTS = {"operator": alert_rules(OPERATOR_NAME), "gitops": alert_rules(GITOPS_NAME)}
EVERY = [(part, alert) for part, alerts in ALERTS.items() for alert in alerts]
WORDS: dict[str, type[StrEnum]] = {
    "state": DriftState,
    "type": DriftKind,
    "resolution": Resolution,
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_alert_fires_when_it_should_and_not_otherwise(
    case: AlertCase, promtool: str, tmp_path: Path
) -> None:
    chosen = {"alertname": case.alert, "alertstate": "firing"}
    if case.because:
        chosen["because"] = case.because
    asks = series_name("ALERTS", chosen)
    checks = [{"expr": asks, "eval_time": f"{minute}m"} for minute in case.quiet]
    if case.fires is not None:
        alert = the_alert(case)
        labels = {
            **chosen,
            **case.labels,
            "severity": alert.severity,
            "controller": f"holdfast-{case.part}",
        }
        sample = {"labels": series_name("ALERTS", labels), "value": 1}
        checks.append({"expr": asks, "eval_time": f"{case.fires}m", "exp_samples": [sample]})
    series = [{"series": name, "values": values} for name, values in case.figures.items()]
    run_tests(promtool, tmp_path, case.part, series, checks)


def test_every_alert_is_seen_to_fire_and_not_to_fire() -> None:
    every = {(part, alert.alert, alert.because) for part, alert in EVERY}
    firing = {(case.part, case.alert, case.because) for case in CASES if case.fires is not None}
    silent = {(case.part, case.alert, case.because) for case in CASES if case.fires is None}
    assert firing == every
    assert silent == every


@pytest.mark.parametrize("part", RULES)
def test_prometheus_takes_the_rules(part: str, promtool: str) -> None:
    """No two of them could be taken for each other, and every template can be filled in."""
    checked = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(RULES[part]))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(ALERTS[part])} rules found" in checked.stdout


def test_an_alert_tells_whom_it_is_about_in_words(promtool: str, tmp_path: Path) -> None:
    paused = of_gitops("holdfast_paused_until_timestamp_seconds", **WEB)
    alert = next(each for each in ALERTS["gitops"] if each.because == "past")
    expected = {
        "exp_labels": {
            **WEB,
            "severity": "warning",
            "controller": "holdfast-gitops",
            "because": "past",
        },
        "exp_annotations": {
            "summary": "A hold on shop/web is past its end.",
            "description": "It should have ended 40m 0s ago: the controller does not come to it.",
            "runbook_url": "docs/operations/runbooks/HoldfastPauseForgotten.md",
            "dashboard_url": "/d/holdfast",
        },
    }
    series = [{"series": paused, "values": constant(600)}]
    told = [{"eval_time": "50m", "alertname": alert.alert, "exp_alerts": [expected]}]
    run_tests(promtool, tmp_path, "gitops", series, [], told)


@pytest.mark.parametrize("alert", [each for _, each in EVERY], ids=lambda each: each.alert)
def test_an_alert_asks_only_for_what_the_controllers_report(alert: AlertRule) -> None:
    assert unknown_metrics(alert.expr) == []


@pytest.mark.parametrize("alert", [each for _, each in EVERY], ids=lambda each: each.alert)
def test_an_alert_uses_the_words_of_the_code(alert: AlertRule) -> None:
    for figure in metric_queries(alert.expr):
        for label, values in figure.matchers.items():
            if label in WORDS and figure.name.startswith("holdfast_drift"):
                assert set(values.split("|")) <= {each.value for each in WORDS[label]}


def the_alert(case: AlertCase) -> AlertRule:
    (found,) = [
        each
        for each in ALERTS[case.part]
        if (each.alert, each.because) == (case.alert, case.because)
    ]
    return found


def run_tests(
    promtool: str,
    folder: Path,
    part: str,
    series: Sequence[Mapping[str, str]],
    checks: Sequence[Mapping[str, object]],
    told: Sequence[Mapping[str, object]] = (),
) -> None:
    test = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": checks,
        "alert_rule_test": told,
    }
    file = folder / "rules.test.json"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(RULES[part])], "tests": [test]}))
    ran = run(promtool, "test", "rules", str(file))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
