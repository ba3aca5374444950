"""What the controllers report, and what expressions ask for; shared by the tests of both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from holdfast.apps.gitops.metrics import GitopsMetrics
from holdfast.apps.operator.metrics import OperatorMetrics
from holdfast.apps.server.metrics import ServerMetrics
from holdfast.install.monitoring import alert_rules, dashboard_text
from holdfast.install.settings import GITOPS_NAME, OPERATOR_NAME

ROOT = Path(__file__).resolve().parents[2]
STATE_METRICS = ROOT / "deploy" / "monitoring" / "kube-state-metrics.yaml"
SCRAPED = {"job", "namespace", "pod"}
"""Labels that Prometheus adds where a figure has none of that name."""
_NAMED = re.compile(
    r"\b((?:holdfast|kube_holdfast|controller_runtime|workqueue|leader_election)_\w+)"
    r"(?:\{([^}]*)\})?"
)
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


@dataclass(frozen=True)
class MetricQuery:
    """One figure in an expression, with its matchers."""

    name: str
    matchers: dict[str, str]
    operators: dict[str, str]

    def takes(self, labels: Mapping[str, str]) -> bool:
        """True for a sample with these labels, as Prometheus chooses; whose job it is aside."""
        return all(
            (re.fullmatch(value, labels.get(label, "")) is not None)
            is not self.operators[label].startswith("!")
            for label, value in self.matchers.items()
            if label != "job"
        )


def metric_queries(expression: str) -> Iterator[MetricQuery]:
    for name, matchers in _NAMED.findall(expression):
        found = _MATCHER.findall(matchers)
        yield MetricQuery(
            name,
            {label: value for label, _, value in found},
            {label: operator for label, operator, _ in found},
        )


def grouping_labels(expression: str) -> set[str]:
    """The labels in `by (…)` and `on (…)`."""
    lists = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    return {label.strip() for each in lists for label in each.split(",")} - {"le"}


def reported_metrics() -> dict[str, dict[str, set[str]]]:
    """Job to figure to labels, as the controllers have them."""
    gitops = GitopsMetrics(ServerMetrics())
    gitops.watch({}, lambda context: "", dict, dict)
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


def unknown_metrics(expression: str) -> list[str]:
    """What an expression asks for that nobody reports."""
    problems = []
    available: set[str] = set(SCRAPED)
    for each in metric_queries(expression):
        jobs = each.matchers.get("job", "").split("|")
        for job in jobs:
            labels = reported_metrics().get(job, {}).get(each.name)
            if labels is None:
                problems.append(f"{job or 'kube-state-metrics'} reports no {each.name}")
                continue
            available |= labels
            problems += [
                f"{each.name} of {job} has no label {label}"
                for label in each.matchers
                if label not in labels | SCRAPED
            ]
    problems += [f"nothing has a label {each}" for each in grouping_labels(expression) - available]
    return problems


def unanswered_queries(job: str, scrape: str) -> list[str]:
    """What rules and board ask of a controller, and its answer to Prometheus does not have.

    For one to which everything happened that they are about: figures without samples are absent.
    """
    samples: dict[str, list[Mapping[str, str]]] = {}
    for family in text_string_to_metric_families(scrape):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample.labels)
    problems = []
    for about, expression in _expressions():
        every = list(metric_queries(expression))
        ours = [each for each in every if job in each.matchers.get("job", "").split("|")]
        known = set(SCRAPED)
        for each in ours:
            found = [labels for labels in samples.get(each.name, ()) if each.takes(labels)]
            known |= {label for labels in found for label in labels}
            if not found:
                problems.append(f"{about}: no {each.name} with {each.matchers}")
        if len(ours) == len(every):
            problems += [
                f"{about}: no label {each}" for each in grouping_labels(expression) - known
            ]
    return problems


def _expressions() -> Iterator[tuple[str, str]]:
    for alert in (*alert_rules(OPERATOR_NAME), *alert_rules(GITOPS_NAME)):
        yield alert.alert, alert.expr
    for panel in json.loads(dashboard_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$namespace", ".*")
