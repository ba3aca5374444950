"""What kube-state-metrics is told to read exists in our custom resources."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.support.promql import STATE_METRICS

from holdfast.wire.crd import crd_files

# Any: a configuration and schemas as they are read from YAML, here and below.
RESOURCES: list[Any] = yaml.safe_load(STATE_METRICS.read_text())["spec"]["resources"]


def schema_of(resource: Any) -> Any:
    kind = resource["groupVersionKind"]
    for definition in crd_files().values():
        spec: Any = definition["spec"]
        if (spec["group"], spec["names"]["kind"]) == (kind["group"], kind["kind"]):
            (version,) = [each for each in spec["versions"] if each["name"] == kind["version"]]
            return version["schema"]["openAPIV3Schema"]
    raise AssertionError(kind)


def at(schema: Any, path: list[str]) -> Any:
    for name in path:
        schema = schema.get("items", schema)["properties"][name]
    return schema


def paths(resource: Any) -> list[tuple[list[str], str]]:
    """Every path that is read, and what for."""
    found = []
    for metric in resource["metrics"]:
        ((sort, each),) = [
            (key, value) for key, value in metric["each"].items() if key in ("gauge", "info")
        ]
        base = each.get("path", [])
        for label in each.get("labelsFromPath", {}).values():
            found.append(([*base, *label], "label"))
        if sort == "gauge":
            found.append(([*base, *each.get("valueFrom", [])], "value"))
    return found


@pytest.mark.parametrize(
    "resource", RESOURCES, ids=[each["groupVersionKind"]["kind"] for each in RESOURCES]
)
def test_every_path_exists_and_can_be_a_value(resource: Any) -> None:
    schema = schema_of(resource)
    assert resource["labelsFromPath"] == {
        "namespace": ["metadata", "namespace"],
        "name": ["metadata", "name"],
    }
    assert len(paths(resource)) > 5
    for path, use in paths(resource):
        type = at(schema, path)["type"]
        # A status of True or False, and a time, are numbers to kube-state-metrics.
        numbers = type in ("integer", "boolean") or path[-1] in ("status", "fetchedAt")
        assert numbers if use == "value" else type in ("string", "integer"), path


def test_both_resources_are_covered_and_no_name_is_there_twice() -> None:
    kinds = [each["groupVersionKind"]["kind"] for each in RESOURCES]
    assert kinds == ["Application", "InferenceService"]
    names = [
        f"{resource['metricNamePrefix']}_{metric['name']}"
        for resource in RESOURCES
        for metric in resource["metrics"]
    ]
    assert len(set(names)) == len(names)
