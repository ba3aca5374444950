"""What the controllers report, and what expressions ask for; shared by the tests of both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from holdfast.doors.gitops.metrics import Metrics as GitopsMetrics
from holdfast.doors.operator.metrics import Metrics as OperatorMetrics
from holdfast.doors.server.metrics import Metrics as ServerMetrics

ROOT = Path(__file__).resolve().parents[2]
STATE_METRICS = ROOT / "deploy" / "monitoring" / "kube-state-metrics.yaml"
SCRAPED = {"job", "namespace", "pod"}
"""Labels that Prometheus adds where a figure has none of that name."""
_NAMED = re.compile(
    r"\b((?:holdfast|kube_holdfast|controller_runtime|workqueue|leader_election)_\w+)"
    r"(?:\{([^}]*)\})?"
)
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')


@dataclass(frozen=True)
class Asked:
    """One figure in an expression, with its matchers."""

    name: str
    matchers: dict[str, str]


def asked(expression: str) -> Iterator[Asked]:
    for name, matchers in _NAMED.findall(expression):
        yield Asked(name, dict(_MATCHER.findall(matchers)))


def grouped_by(expression: str) -> set[str]:
    """The labels in `by (…)` and `on (…)`."""
    lists = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    return {label.strip() for each in lists for label in each.split(",")} - {"le"}


def reported() -> dict[str, dict[str, set[str]]]:
    """Job to figure to labels, as the controllers have them."""
    gitops = GitopsMetrics(ServerMetrics())
    gitops.watch({}, lambda following: "", dict)
    return {
        "holdfast-operator": _labels(OperatorMetrics().registry),
        "holdfast-gitops": _labels(gitops.registry),
        "": _state_metrics(),
    }


def _labels(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Read what the client library knows: figures without samples show no labels outside."""
    found: dict[str, set[str]] = {}
    for collector, names in registry._collector_to_names.items():
        for name in names:
            found[name] = set(getattr(collector, "_labelnames", ()))
    for family in registry.collect():
        found.setdefault(family.name, set()).update(getattr(family, "_labelnames", ()))
    return found


def _state_metrics() -> dict[str, set[str]]:
    config = yaml.safe_load(STATE_METRICS.read_text())
    return {
        f"{resource['metricNamePrefix']}_{metric['name']}": set(resource["labelsFromPath"])
        for resource in config["spec"]["resources"]
        for metric in resource["metrics"]
    }


def unknown(expression: str) -> list[str]:
    """What an expression asks for that nobody reports."""
    problems = []
    available: set[str] = set(SCRAPED)
    for each in asked(expression):
        jobs = each.matchers.get("job", "").split("|")
        for job in jobs:
            labels = reported().get(job, {}).get(each.name)
            if labels is None:
                problems.append(f"{job or 'kube-state-metrics'} reports no {each.name}")
                continue
            available |= labels
            problems += [
                f"{each.name} of {job} has no label {label}"
                for label in each.matchers
                if label not in labels | SCRAPED
            ]
    problems += [f"nothing has a label {each}" for each in grouped_by(expression) - available]
    return problems
