"""A real cluster takes the export with the GitOps controller, and gives it what was chosen."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner
from tests.support.cluster import Cluster, KubectlFailed
from tests.support.processes import wait_until

from holdfast.apps.cli.main import cli

NAME = "holdfast-gitops"


def test_it_reads_and_reports_until_more_is_given(
    cluster: Cluster, place: str, namespace: str
) -> None:
    install(cluster, place)
    every = Account(cluster, place)
    every.until("list", "deployments.apps", namespace)
    for verb, kind in (
        ("watch", "configmaps"),
        ("list", "pods"),
        ("get", "roles.rbac.authorization.k8s.io"),
        ("list", "applications.holdfast.dev"),
        ("patch", "applications.holdfast.dev/status"),
        ("create", "events.events.k8s.io"),
        ("list", "namespaces"),
        ("list", "nodes"),
    ):
        assert every.may(verb, kind, namespace), (verb, kind)
    for verb, kind in (
        ("patch", "deployments.apps"),
        ("create", "configmaps"),
        ("delete", "configmaps"),
        ("get", "secrets"),
        ("create", "pods"),
        ("patch", "applications.holdfast.dev"),
        ("create", "rolebindings.rbac.authorization.k8s.io"),
        ("get", "pods/log"),
        ("patch", "nodes"),
        ("create", "serviceaccounts/token"),
        ("create", "pods/exec"),
    ):
        assert not every.may(verb, kind, namespace), (verb, kind)
    assert every.may("get", "secrets", place) and not every.may("list", "secrets", place)
    assert every.may("patch", "leases.coordination.k8s.io", place)


def test_writing_and_secrets_are_given_each_for_itself(
    cluster: Cluster, place: str, namespace: str
) -> None:
    install(cluster, place, "--gitops-writes")
    account = Account(cluster, place)
    account.until("patch", "deployments.apps", namespace)
    assert account.may("delete", "services", namespace)
    assert not account.may("get", "secrets", namespace)
    assert not account.may("create", "pods", namespace)
    assert not account.may("create", "rolebindings.rbac.authorization.k8s.io", namespace)
    assert not account.may("patch", "applications.holdfast.dev", namespace)
    assert not account.may("create", "namespaces", "")
    install(cluster, place, "--gitops-writes", "--gitops-secrets")
    account.until("watch", "secrets", namespace)
    assert account.may("patch", "secrets", namespace)


def test_an_administrator_adds_rights_with_a_labelled_role(
    cluster: Cluster, place: str, namespace: str
) -> None:
    """And an export that is applied again takes none of them away."""
    install(cluster, place)
    account = Account(cluster, place)
    account.until("list", "deployments.apps", namespace)
    added = f"added-{namespace}"
    cluster.kubectl("create", "clusterrole", added, "--verb=patch", "--resource=deployments.apps")
    try:
        cluster.kubectl("label", "clusterrole", added, "holdfast.dev/gitops-rights=true")
        account.until("patch", "deployments.apps", namespace)
        install(cluster, place)
        assert account.may("patch", "deployments.apps", namespace)
    finally:
        cluster.kubectl("delete", "clusterrole", added)


def test_a_controller_of_some_namespaces_has_no_rights_elsewhere(
    cluster: Cluster, place: str, namespace: str
) -> None:
    install(cluster, place, "--watch-namespace", namespace, "--gitops-writes", "--gitops-secrets")
    account = Account(cluster, place)
    account.until("patch", "deployments.apps", namespace)
    assert account.may("list", "applications.holdfast.dev", namespace)
    assert account.may("patch", "secrets", namespace)
    for verb, kind in (("list", "deployments.apps"), ("get", "secrets"), ("patch", "services")):
        assert not account.may(verb, kind, "default"), (verb, kind)
    assert not account.may("list", "namespaces", "")
    with pytest.raises(KubectlFailed):
        cluster.kubectl("get", "clusterrole", NAME)


def test_a_controller_of_some_namespaces_counts_devices_only_where_it_reads_pods(
    cluster: Cluster, place: str, namespace: str
) -> None:
    install(cluster, place, "--watch-namespace", namespace, "--node-reads")
    account = Account(cluster, place)
    account.until("list", "deployments.apps", namespace)
    assert not account.may("list", "nodes", "") and not account.may("list", "pods", "")
    install(cluster, place, "--watch-namespace", namespace, "--node-reads", "--pod-reads")
    account.until("list", "nodes", "")
    assert account.may("list", "pods", "")
    assert not account.may("watch", "pods", "default")
    assert not account.may("list", "events", "default")


@pytest.mark.parametrize(
    "chosen",
    [
        (),
        ("--gitops-ledger", "holdfast-ledger"),
        (
            *("--gitops-tls", "page-tls", "--gitops-people", "people"),
            *("--gitops-base-url", "https://holdfast.example"),
        ),
    ],
    ids=["own", "sql", "a page by TLS"],
)
def test_the_cluster_takes_the_controller_under_the_restricted_standard(
    cluster: Cluster, place: str, chosen: tuple[str, ...]
) -> None:
    """Applied twice it is the same, and no pod of it is refused."""
    install(cluster, place, *chosen)
    found = cluster.wait(
        "deployment", NAME, place, lambda it: it.get("status", {}).get("replicas") == 1, timeout=60
    )
    generation = found["metadata"]["generation"]
    install(cluster, place, *chosen)
    again = cluster.get("deployment", NAME, place)
    assert again["metadata"]["generation"] == generation
    failed = [each for each in again["status"]["conditions"] if each["type"] == "ReplicaFailure"]
    assert failed == []
    assert cluster.get("pvc", NAME, place)["spec"]["accessModes"] == ["ReadWriteOnce"]
    policy = cluster.get("networkpolicy", NAME, place)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]


class Account:
    """Asks the API server what the controller may do."""

    def __init__(self, cluster: Cluster, place: str) -> None:
        self._cluster = cluster
        self._user = f"system:serviceaccount:{place}:{NAME}"

    def may(self, verb: str, kind: str, namespace: str) -> bool:
        resource, _, sub = kind.partition("/")
        plural, _, group = resource.partition(".")
        asked = {"verb": verb, "group": group, "resource": plural, "subresource": sub}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": self._user,
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": {**asked, "namespace": namespace},
            },
        }
        answer = self._cluster.kubectl(
            *("create", "--validate=false", "-o", "json", "-f", "-"), stdin=json.dumps(review)
        )
        allowed: bool = json.loads(answer)["status"]["allowed"]
        return allowed

    def until(self, verb: str, kind: str, namespace: str) -> None:
        """Wait until roles that were just applied have been taken in."""
        wait_until(lambda: self.may(verb, kind, namespace), 30, f"the right to {verb} {kind}")


def install(cluster: Cluster, place: str, *more: str) -> None:
    made = CliRunner().invoke(cli, ["install", "--export", "--namespace", place, "--gitops", *more])
    assert made.exit_code == 0, made.stderr
    kinds = {(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(made.stdout)}
    assert ("Deployment", NAME) in kinds
    assert "Warning" not in cluster.kubectl("apply", "--server-side", "-f", "-", stdin=made.stdout)
