"""Verdicts on objects of a real cluster: what was applied is in sync, what was edited is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.edits import DEPLOYMENT, EDITS, SERVER, Edit, make_edit
from tests.support.ownership import (
    KEY,
    MANAGER,
    NOW,
    ResourceBench,
    apply,
    corpus,
    declaration_of,
    diff_as_operator,
    run_on_cluster,
)

from holdfast.core.drift import Cause
from holdfast.core.ownership.delegated import FieldClass, OwnershipContext
from holdfast.core.ownership.managed_fields import read_ownership
from holdfast.core.ownership.object_diff import ObjectDiff, ObjectState, diff_object
from holdfast.core.tree import Fields, show_path

pytestmark = pytest.mark.cluster

NOT_NAMESPACED = {
    "ClusterRole", "ClusterRoleBinding", "PriorityClass", "StorageClass", "IngressClass",
    "ValidatingWebhookConfiguration", "CustomResourceDefinition",
}  # fmt: skip
GEAR = "widgets.corpus.holdfast.dev"


def describe_drifts(found: ObjectDiff) -> list[str]:
    return [f"{show_path(item.change.path)}: {item.evidence}" for item in found.field_drifts]


def resource(item: dict[str, Any]) -> str:
    return GEAR if item["kind"] == "Widget" else str(item["kind"])


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_an_edit_is_found_and_its_writer_named(
    cluster: Cluster, namespace: str, edit: Edit
) -> None:
    found = make_edit(edit, cluster, namespace)
    before = diff_as_operator(edit.item, found["live"])
    assert before.state is edit.state, describe_drifts(before)
    assert {
        (show_path(item.change.path), item.signal, item.cause, item.field_class)
        for item in before.field_drifts
    } == {(item.path, item.signal, item.cause, item.field_class) for item in edit.field_drifts}
    if found["dry_run"]:
        after = diff_as_operator(edit.item, found["live"], dry_run=found["dry_run"])
        assert after.state is (edit.after_dry_run or edit.state), describe_drifts(after)


@pytest.fixture
def leftovers(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Removes what a namespace does not take with it."""
    yield
    cluster.kubectl(
        *["patch", GEAR, "gear", "-n", namespace, "--type=merge"],
        *["-p", '{"metadata":{"finalizers":null}}'],
    )
    for item in corpus():
        if item["kind"] in NOT_NAMESPACED:
            gone = ("--ignore-not-found", "--wait=false")
            cluster.kubectl("delete", item["kind"], item["metadata"]["name"], *gone)


@pytest.mark.usefixtures("leftovers")
def test_nothing_of_the_corpus_drifts_after_its_apply(cluster: Cluster, namespace: str) -> None:
    """Neither at once, nor when controllers have written to it, nor by a dry run's answer."""
    items = corpus()
    assert len(items) >= 25
    wrong: dict[str, list[str]] = {}

    def look(when: str, item: dict[str, Any], live: Fields, dry_run: Fields | None = None) -> None:
        found = diff_object(
            declared=declaration_of(item), live=live, key=KEY, now=NOW, dry_run=dry_run
        )
        if found.state is not ObjectState.IN_SYNC:
            wrong[f"{item['kind']} {item['metadata']['name']} {when}"] = describe_drifts(found)

    for item in items:
        look("at once", item, apply(cluster, item, namespace))
        if item["kind"] == "CustomResourceDefinition":
            name = item["metadata"]["name"]
            cluster.kubectl("wait", "--for=condition=Established", "crd", name)
    cluster.wait(
        "deployment", "small", namespace, lambda live: live["status"].get("readyReplicas") == 1
    )
    for item in items:
        live = cluster.get(resource(item), item["metadata"]["name"], namespace)
        look("later", item, live)
        look("after a dry run", item, live, apply(cluster, item, namespace, dry_run=True))
    assert wrong == {}


def test_what_an_admission_policy_rewrites_is_told_from_an_edit(
    cluster: Cluster, namespace: str
) -> None:
    """The field is still listed as ours, and a dry run is rewritten in the same way."""
    cluster.kubectl("label", "namespace", namespace, f"rewritten={namespace}")
    policy, binding = rewriting(namespace)
    cluster.apply(policy, binding)
    try:

        def rewritten(live: dict[str, Any]) -> bool:
            # The server takes up a policy a moment later: write until it does.
            apply(cluster, DEPLOYMENT | {"metadata": {"name": "bot"}}, namespace)
            apply(cluster, DEPLOYMENT, namespace)
            label: str = live["metadata"].get("labels", {}).get("app", "")
            return label == "rewritten"

        apply(cluster, DEPLOYMENT, namespace)
        cluster.wait("deployment", "bot", namespace, rewritten)
        live = cluster.get("deployment", "bot", namespace)
        assert diff_as_operator(DEPLOYMENT, live).state is ObjectState.SUSPECT
        dry_run = apply(cluster, DEPLOYMENT, namespace, dry_run=True)
        [found] = diff_as_operator(DEPLOYMENT, live, dry_run=dry_run).drifted
        assert show_path(found.change.path) == "metadata.labels.app"
        assert (found.cause, found.writer) == (Cause.ADMISSION, None)

        async def heal(bench: ResourceBench) -> None:
            declared = bench.declared(DEPLOYMENT)
            bench.kubectl("set", "image", "deployment/bot", "server=registry.example/evil:1")
            written = await bench.write(declared)
            [altered] = written.altered
            assert show_path(altered.change.path) == "metadata.labels.app"
            assert altered.cause is Cause.ADMISSION

        run_on_cluster(cluster, namespace, heal)
    finally:
        for item in (binding, policy):
            cluster.kubectl("delete", item["kind"], item["metadata"]["name"])


def rewriting(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """An admission policy that gives the Deployments of one namespace another label."""
    version = "admissionregistration.k8s.io/v1"
    expression = 'Object{metadata: Object.metadata{labels: {"app": "rewritten"}}}'
    policy = {
        "apiVersion": version,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "reinvocationPolicy": "Never",
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"rewritten": name}},
                "resourceRules": [
                    {
                        "apiGroups": ["apps"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["deployments"],
                    }
                ],
            },
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": expression},
                }
            ],
        },
    }
    binding = {
        "apiVersion": version,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
    return policy, binding


def test_a_person_who_scales_under_an_autoscaler_is_left_to_the_autoscaler(
    cluster: Cluster, namespace: str
) -> None:
    apply(cluster, DEPLOYMENT, namespace)
    cluster.kubectl("scale", "deployment", "bot", "-n", namespace, "--replicas=4")
    live = cluster.get("deployment", "bot", namespace)
    context = OwnershipContext(autoscaler="HorizontalPodAutoscaler/bot")
    found = diff_as_operator(DEPLOYMENT, live, context=context)
    assert found.state is ObjectState.IN_SYNC
    assert [item.field_class for item in found.field_drifts] == [FieldClass.DELEGATED]


def test_our_entry_of_a_dry_run_is_what_we_are_expected_to_own(
    cluster: Cluster, namespace: str
) -> None:
    """The exact set and the one estimated from the declaration lead to the same verdict."""
    apply(cluster, DEPLOYMENT, namespace)
    answer = apply(cluster, DEPLOYMENT, namespace, dry_run=True)
    expected = read_ownership(answer["metadata"]["managedFields"]).ours(
        frozenset({MANAGER}), "apps/v1"
    )
    live = cluster.get("deployment", "bot", namespace)
    declared = declaration_of(DEPLOYMENT, expected=expected)
    assert diff_object(declared=declared, live=live, key=KEY, now=NOW).state is ObjectState.IN_SYNC
    cluster.kubectl("set", "env", "deployment/bot", "-n", namespace, "B=9")
    cluster.kubectl("set", "env", "deployment/bot", "-n", namespace, "B=2")
    live = cluster.get("deployment", "bot", namespace)
    found = diff_object(declared=declared, live=live, key=KEY, now=NOW)
    assert found.state is ObjectState.SUSPECT
    assert [show_path(item.change.path) for item in found.field_drifts] == [
        f"{SERVER}.env[name=B].value"
    ]


def test_a_field_that_is_no_longer_declared_is_left_to_the_next_apply(
    cluster: Cluster, namespace: str
) -> None:
    apply(cluster, DEPLOYMENT, namespace)
    live = cluster.get("deployment", "bot", namespace)
    shorter = json.loads(json.dumps(DEPLOYMENT))
    del shorter["spec"]["template"]["spec"]["tolerations"]
    assert diff_as_operator(shorter, live).state is ObjectState.SUSPECT
    dry_run = apply(cluster, shorter, namespace, dry_run=True)
    [found] = diff_as_operator(shorter, live, dry_run=dry_run).differing
    assert show_path(found.change.path) == "spec.template.spec.tolerations"
    assert found.change.desired is None
