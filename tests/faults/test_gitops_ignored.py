"""An ignore rule leaves its field as it is, whatever that is, and no other: not one that stands
beside it, around it or in the same list is emptied, dropped or kept from being put back."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies  # noqa: F401  # loads the profile of the suites
from tests.support.gitops_world import NAMESPACE, GitopsWorld, route

from holdfast.core.gitops.application import DriftSpec, IgnoreSpec, Remediation
from holdfast.core.object_ref import ObjectRef

Item = dict[str, Any]  # Any: a Deployment, as JSON
D = ObjectRef(api_version="apps/v1", kind="Deployment", namespace=NAMESPACE, name="d")
LEAVES: Mapping[str, tuple[str | int, ...]] = {
    "replicas": ("spec", "replicas"),
    "label": ("metadata", "labels", "team"),
    "other label": ("metadata", "labels", "tier"),
    "note": ("spec", "template", "metadata", "annotations", "note"),
    "other note": ("spec", "template", "metadata", "annotations", "other"),
    "image": ("spec", "template", "spec", "containers", 0, "image"),
    "variable": ("spec", "template", "spec", "containers", 0, "env", 0, "value"),
    "other variable": ("spec", "template", "spec", "containers", 0, "env", 1, "value"),
    "cpu": ("spec", "template", "spec", "containers", 0, "resources", "limits", "cpu"),
    "memory": ("spec", "template", "spec", "containers", 0, "resources", "limits", "memory"),
    "sidecar's variable": ("spec", "template", "spec", "containers", 1, "env", 0, "value"),
    "grace": ("spec", "template", "spec", "terminationGracePeriodSeconds"),
}
CHANGED: Mapping[str, object] = {
    "replicas": 7, "cpu": "3", "memory": "3Gi", "grace": 99, "image": "registry.example/other:2",
}  # fmt: skip
POD = "/spec/template/spec"
RULES: Mapping[str, tuple[dict[str, str], set[str]]] = {
    "replicas": ({"pointer": "/spec/replicas"}, {"replicas"}),
    "label": ({"pointer": "/metadata/labels/team"}, {"label"}),
    "labels": ({"path": "metadata.labels.*"}, {"label", "other label"}),
    "note": ({"path": "spec.template.metadata.annotations.note"}, {"note"}),
    "notes": ({"pointer": "/spec/template/metadata/annotations"}, {"note", "other note"}),
    "variable": (
        {"path": "spec.template.spec.containers[name=c].env[name=A].value"},
        {"variable"},
    ),
    "variables": ({"path": "**.env[name=*].value"}, {"variable", "other variable",
                                                     "sidecar's variable"}),
    "list": ({"pointer": f"{POD}/containers/0/env"}, {"variable", "other variable"}),
    "limits": ({"pointer": f"{POD}/containers/0/resources"}, {"cpu", "memory"}),
    "cpu": ({"pointer": f"{POD}/containers/0/resources/limits/cpu"}, {"cpu"}),
    "container": (
        {"pointer": f"{POD}/containers/0"},
        {"variable", "other variable", "cpu", "memory", "image"},
    ),
    "writer": ({"manager": "tuner"}, set()),
}  # fmt: skip


def deployment() -> Item:
    return {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": NAMESPACE, "labels": {"team": "a", "tier": "b"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}, "annotations": {"note": "n", "other": "o"}},
                "spec": {
                    "terminationGracePeriodSeconds": 20,
                    "containers": [
                        {
                            "name": "c", "image": "registry.example/c:1",
                            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                        },
                        {
                            "name": "side", "image": "registry.example/side:1",
                            "env": [{"name": "A", "value": "1"}],
                        },
                    ],
                },
            },
        },
    }  # fmt: skip


def leaf(item: Item, name: str) -> Any:
    """A declared value; None where it is not there any more."""
    found: Any = item
    for step in LEAVES[name]:
        if found is None or (isinstance(step, int) and len(found) <= step):
            return None
        found = found[step] if isinstance(step, int) else found.get(step)
    return found


def put(item: Item, name: str, value: object) -> None:
    *path, last = LEAVES[name]
    found: Any = item
    for step in path:
        found = found[step]
    found[last] = value


async def story(rule: str, edited: dict[str, str], declared: set[str]) -> None:
    """Somebody edits fields, then Git moves others, and everything that may be healed is."""
    given_rule, hidden = RULES[rule]
    spec = IgnoreSpec(name="r", owner="team", **given_rule)  # type: ignore[arg-type]
    world = GitopsWorld(route(Remediation.SELF_HEAL), drift=DriftSpec(ignore=(spec,)))
    first = deployment()
    world.git.commit({"d.yaml": json.dumps(first)})
    await world.reconcile()
    if rule == "writer":
        hidden = {name for name, manager in edited.items() if manager == "tuner"}
    for name, manager in edited.items():
        world.kube.edit(
            D, lambda item, name=name: put(item, name, CHANGED.get(name, "edited")),
            manager=manager,
        )  # fmt: skip
    live = await world.kube.get(D)
    assert live is not None
    before = copy.deepcopy(live)
    await world.reconcile()
    wanted = copy.deepcopy(first)
    for name in declared - edited.keys() - hidden:
        put(wanted, name, {"replicas": 4, "grace": 30, "cpu": "2", "memory": "2Gi"}.get(
            name, "declared"))  # fmt: skip
    world.git.commit({"d.yaml": json.dumps(wanted)})
    for _ in range(3):
        world.pass_time(61)
        await world.fetch_and_reconcile()
    after = await world.kube.get(D)
    assert after is not None
    for name in LEAVES:
        expected = leaf(before if name in hidden else wanted, name)
        assert leaf(after, name) == expected, name


ORDINARY = sorted(set(LEAVES) - {"replicas"})


@given(
    rule=st.sampled_from(sorted(RULES)),
    edited=st.dictionaries(
        st.sampled_from(sorted(LEAVES)), st.sampled_from(["kubectl-edit", "tuner"]), max_size=5
    ),
    declared=st.sets(st.sampled_from(ORDINARY), max_size=4),
)
def test_a_rule_leaves_its_own_field_as_it_is_and_no_other(
    rule: str, edited: dict[str, str], declared: set[str]
) -> None:
    asyncio.run(story(rule, edited, declared))


@pytest.mark.parametrize("rule", RULES)
async def test_with_every_field_edited_a_rule_keeps_its_own_alone(rule: str) -> None:
    await story(rule, dict.fromkeys(LEAVES, "tuner" if rule == "writer" else "kubectl-edit"), set())
