"""A real cluster takes the export, and gives the operator what it needs and nothing more."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.support.cluster import Cluster, KubectlFailed

from holdfast.apps.cli.main import cli

READ = {"get", "list", "watch"}
KEEP = READ | {"create", "patch", "delete"}
WORKLOADS = {
    ("holdfast.dev", "inferenceservices"): READ,
    ("holdfast.dev", "inferenceservices/status"): {"patch"},
    ("holdfast.dev", "inferenceservices/finalizers"): {"update"},
    ("apps", "deployments"): KEEP,
    ("", "services"): KEEP,
    ("autoscaling", "horizontalpodautoscalers"): KEEP,
    ("policy", "poddisruptionbudgets"): KEEP,
    ("gateway.networking.k8s.io", "httproutes"): KEEP,
    ("leaderworkerset.x-k8s.io", "leaderworkersets"): KEEP,
    ("keda.sh", "scaledobjects"): KEEP,
    ("", "persistentvolumeclaims"): KEEP - {"list", "watch"},
    ("batch", "jobs"): KEEP - {"watch"},
    ("", "pods"): {"list", "watch", "delete"},
    ("", "events"): {"list"},
    ("events.k8s.io", "events"): {"create", "patch"},
}
NODES = {("", "nodes"): {"get", "list"}, ("", "events"): {"list"}}
"""Only for who looks after the whole cluster: nodes have no namespace."""
LEASES = {("coordination.k8s.io", "leases"): {"get", "create", "patch"}}
NAME = "holdfast-operator"


def test_an_operator_of_the_whole_cluster_may_do_its_work_and_nothing_else(
    cluster: Cluster, place: str, namespace: str
) -> None:
    install(cluster, place)
    token = cluster.kubeconfig_for_service_account(NAME, place)
    every = WORKLOADS | NODES
    assert settled(cluster, token, namespace, every) == every
    at_home = every | LEASES | {("", "pods"): WORKLOADS["", "pods"] | {"get"}}
    assert settled(cluster, token, place, at_home) == at_home
    cluster.kubectl("get", "inferenceservices.holdfast.dev", "-A", kubeconfig=token)
    cluster.kubectl("get", "nodes", kubeconfig=token)
    for refused in (
        ("get", "secrets", "-n", namespace),
        ("get", "configmaps", "-n", namespace),
        ("annotate", "namespace", namespace, "a=b"),
        ("annotate", "nodes", "--all", "a=b"),
    ):
        with pytest.raises(KubectlFailed, match="orbidden"):
            cluster.kubectl(*refused, kubeconfig=token)


def test_an_operator_of_some_namespaces_has_no_rights_elsewhere(
    cluster: Cluster, place: str, namespace: str
) -> None:
    other = cluster.create_namespace()
    try:
        install(cluster, place, "--watch-namespace", namespace)
        token = cluster.kubeconfig_for_service_account(NAME, place)
        assert settled(cluster, token, namespace, WORKLOADS) == WORKLOADS
        at_home = LEASES | {("", "pods"): {"get"}}  # its own pod, to know its own image
        assert settled(cluster, token, place, at_home) == at_home
        assert settled(cluster, token, other, {}) == {}
        cluster.kubectl("get", "inferenceservices.holdfast.dev", "-n", namespace, kubeconfig=token)
        with pytest.raises(KubectlFailed, match="orbidden"):
            cluster.kubectl("get", "nodes", kubeconfig=token)
        with pytest.raises(KubectlFailed, match="orbidden"):
            cluster.kubectl("get", "inferenceservices.holdfast.dev", "-A", kubeconfig=token)
    finally:
        cluster.delete_namespace(other)


def test_an_operator_of_some_namespaces_reads_nodes_and_pods_where_that_was_chosen(
    cluster: Cluster, place: str, namespace: str
) -> None:
    other = cluster.create_namespace()
    try:
        install(cluster, place, "--watch-namespace", namespace, "--node-reads", "--pod-reads")
        token = cluster.kubeconfig_for_service_account(NAME, place)
        nodes = {("", "nodes"): {"get", "list"}}
        everywhere = nodes | {("", "pods"): {"list"}}
        assert settled(cluster, token, namespace, WORKLOADS | nodes) == WORKLOADS | nodes
        assert settled(cluster, token, other, everywhere) == everywhere
        at_default = everywhere | {("", "events"): {"list"}}
        assert settled(cluster, token, "default", at_default) == at_default
        cluster.kubectl("get", "nodes", kubeconfig=token)
        cluster.kubectl("get", "pods", "-A", kubeconfig=token)
    finally:
        cluster.delete_namespace(other)


def test_the_operator_starts_under_the_restricted_standard_and_applies_twice_alike(
    cluster: Cluster, place: str
) -> None:
    install(cluster, place)
    before = cluster.wait(
        "deployment",
        NAME,
        place,
        lambda found: found.get("status", {}).get("availableReplicas") == 2,
        timeout=60,
    )
    install(cluster, place)
    after = cluster.get("deployment", NAME, place)
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    enforced = cluster.get("namespace", place)["metadata"]["labels"]
    assert enforced["pod-security.kubernetes.io/enforce"] == "restricted"


def install(cluster: Cluster, place: str, *more: str) -> None:
    made = CliRunner().invoke(cli, ["install", "--export", "--namespace", place, *more])
    assert made.exit_code == 0, made.stderr
    assert place in {each["metadata"]["name"] for each in yaml.safe_load_all(made.stdout)}
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=made.stdout)


def settled(
    cluster: Cluster, token: Path, namespace: str, expected: dict[tuple[str, str], set[str]]
) -> dict[tuple[str, str], set[str]]:
    """The rights, once the API server has taken in the roles that were just applied."""
    deadline = time.monotonic() + 20
    while (found := rights(cluster, token, namespace)) != expected:
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return found


def rights(cluster: Cluster, token: Path, namespace: str) -> dict[tuple[str, str], set[str]]:
    """Everything that the API server says this account may do, but for what everyone may."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer: Any = json.loads(
        cluster.kubectl(
            *("create", "--validate=false", "-o", "json", "-f", "-"),
            stdin=json.dumps(review),
            kubeconfig=token,
        )
    )
    assert not answer["status"]["incomplete"]
    found: dict[tuple[str, str], set[str]] = {}
    for rule in answer["status"]["resourceRules"]:
        for group in rule.get("apiGroups", []):
            for resource in rule.get("resources", []):
                if group not in ("authorization.k8s.io", "authentication.k8s.io"):
                    found.setdefault((group, resource), set()).update(rule["verbs"])
    return found
