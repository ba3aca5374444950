"""Off again by the page's words: what was exported is gone, and every model is there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.deploy.shell import Shell, uid
from tests.deploy.uninstall_page import WITH_MANIFESTS, uninstall_steps
from tests.support.cluster import Cluster
from tests.support.cluster_fixtures import skip_without
from tests.support.controllers import ControllerProcess, small_service
from tests.support.gateway import gateway_definitions
from tests.support.go_modules import NoDefinitions
from tests.support.inference_services import document, scaled
from tests.support.processes import wait_until
from tests.support.scaling_kinds import KEDA, LEADER_WORKER_SETS

from holdfast.apps.cli.main import cli
from holdfast.core.service.children import Facts, manifests
from holdfast.core.service.idle import DATA_PLANE_ANNOTATION
from holdfast.core.tree import Fields
from holdfast.install.objects import installation_objects
from holdfast.install.settings import GITOPS_NAME, GitopsInstallation, Installation
from holdfast.wire.inference_service_v1alpha1 import service_from_json

SYSTEM = "holdfast-system"
KEPT = {"Namespace", "CustomResourceDefinition", "PersistentVolumeClaim"}
"""What the second step leaves, and the page says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A `kubectl delete` by labels."""

    kinds: tuple[str, ...]
    namespace: str
    everywhere: bool
    labels: dict[str, str]

    @classmethod
    def parse(cls, line: str) -> Deletion:
        words = shlex.split(line)
        return cls(
            kinds=tuple(
                kind.partition(".")[0] for kind in words[words.index("delete") + 1].split(",")
            ),
            namespace=words[words.index("-n") + 1] if "-n" in words else "",
            everywhere="--all-namespaces" in words,
            labels=dict(each.split("=") for each in words[words.index("-l") + 1].split(",")),
        )

    def takes(self, item: Any) -> bool:  # Any: an object of the Kubernetes API, here and below
        kind, metadata = item["kind"].lower(), item["metadata"]
        namespace = metadata.get("namespace", "")
        return (
            not {kind, f"{kind}s"}.isdisjoint(self.kinds)
            and (namespace == self.namespace or (bool(namespace) and self.everywhere))
            and self.labels.items() <= metadata.get("labels", {}).items()
        )


def deletions() -> Iterator[Deletion]:
    """Those of the page's second step."""
    for number, command in uninstall_steps(WITH_MANIFESTS):
        for line in command.splitlines() if number == 2 else ():
            if " delete " in line and " -l " in line:
                yield Deletion.parse(line)


def left_of(objects: Any) -> list[Any]:
    chosen = list(deletions())
    return [item for item in objects if not any(each.takes(item) for each in chosen)]


@pytest.mark.parametrize(
    "installation",
    [
        Installation(),
        Installation(gitops=GitopsInstallation(writes=True, secrets=True), monitoring=True),
        Installation(
            gitops=GitopsInstallation(tls="tls", people="people", ledger="ledger"),
            monitoring=True,
            watched=("chat", "default"),
            node_reads=True,
            pod_reads=True,
        ),
    ],
    ids=["as it is", "everything", "of some namespaces"],
)
def test_the_page_deletes_every_object_of_an_installation_but_what_it_says_stays(
    installation: Installation,
) -> None:
    objects = installation_objects(installation)
    expected = [each for each in objects if each["kind"] in KEPT]
    assert left_of(objects) == expected


def test_the_page_deletes_nothing_of_another_installation() -> None:
    other = Installation(
        namespace="ml",
        gitops=GitopsInstallation(),
        monitoring=True,
        watched=("chat",),
        node_reads=True,
        pod_reads=True,
    )
    objects = list(installation_objects(other))
    assert left_of(objects) == objects


def test_the_page_deletes_nothing_that_serves_in_the_namespace_of_the_controllers() -> None:
    service = service_from_json(document(scaled(), namespace=SYSTEM))
    objects: list[Fields] = list(manifests(service, Facts()))
    assert {"Deployment", "Service"} <= {str(each["kind"]) for each in objects}
    assert left_of(objects) == objects


@pytest.fixture
def crowded(own: Cluster, pytestconfig: pytest.Config) -> Cluster:
    """A cluster with every kind that an installation, or a service, may have objects of."""
    try:
        found = [
            *gateway_definitions(),
            *KEDA.definitions(),
            *LEADER_WORKER_SETS.definitions(),
        ]
    except NoDefinitions as missing:
        skip_without(pytestconfig, "the definitions of gateways and scalers", missing)
    own.install_definitions(
        *found,
        monitoring_definition("ServiceMonitor", "servicemonitors"),
        monitoring_definition("PrometheusRule", "prometheusrules"),
    )
    return own


def monitoring_definition(kind: str, plural: str) -> dict[str, Any]:
    """A kind of the Prometheus operator, without its schema."""
    group = "monitoring.coreos.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


SERVED = {
    "deployment": ("bot-primary", "queued-primary", "idle-primary"),
    "service": ("bot-svc", "many-svc"),
    "hpa": ("bot-hpa",),
    "leaderworkerset.leaderworkerset.x-k8s.io": ("many-primary",),
    "scaledobject.keda.sh": ("queued-scaler",),
    "httproute.gateway.networking.k8s.io": ("bot",),
}
"""Of the services in the namespace `chat`, by kind."""


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_what_was_exported_is_gone_and_every_model_is_there(
    crowded: Cluster, kubectl_shell: Shell, tmp_path: Path
) -> None:
    cluster = crowded
    flags = ("--gitops", "--gitops-writes", "--with-monitoring")
    exported = CliRunner().invoke(cli, ["install", "--export", *flags]).stdout
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=exported)
    cluster.kubectl("create", "namespace", "chat")
    cluster.kubectl(
        *("wait", "--for=condition=Established", "--timeout=30s"),
        "crd/inferenceservices.holdfast.dev",
    )
    resting = {
        **{"replicas": 1, "minReplicas": 0, "maxReplicas": 1},
        "autoscaling": {"idleAfter": "5s"},
        # No gateway accepts its route, so it is never ready: it rests after this.
        "healthCheck": {"startup": "5s"},
    }
    restricted = {"securityContext": {"runAsNonRoot": True, "runAsUser": 1000}}
    by_keda = scaled(scaler="keda", metric="queue_length", target=1)
    cluster.apply(
        small_service("chat", {"minReplicas": 1, "maxReplicas": 2}),
        small_service("chat", {"backend": "vllm", "nodes": 2}, name="many"),
        small_service("chat", by_keda, name="queued"),
        small_service("chat", resting, name="idle"),
        small_service(SYSTEM, {"replicas": 1, "podTemplate": {"spec": restricted}}, name="inside"),
    )
    command = ["operator", "--metrics-address=127.0.0.1:0", "--gateway=infra/public"]
    command += ["--domain=models.example", "--prometheus=http://127.0.0.1:9"]
    with ControllerProcess(cluster, tmp_path / "log", command).running() as operator:
        operator.wait_until(lambda: all_there(cluster), "the services' objects")
        cluster.wait("deployment", "inside-primary", SYSTEM, is_available, timeout=60)
        operator.wait_until(lambda: is_put_to_rest(cluster, "idle"), "a service at rest", 90)
    made = served(cluster)
    inside = uid(cluster.get("deployment", "inside-primary", SYSTEM))
    assert cluster.get("lease", "holdfast-operator", SYSTEM)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    cluster.apply({**lease, "metadata": {"name": GITOPS_NAME, "namespace": SYSTEM}})

    shown: dict[int, str] = {}
    for number, step in uninstall_steps(WITH_MANIFESTS):
        if number == 3:
            wait_until(lambda: not leftovers(cluster, exported), 60, "all of it to be gone")
            assert number_of(cluster, "idle") == 0
        shown[number] = shown.get(number, "") + kubectl_shell(step)
        assert served(cluster) == made, step
        if number < 5:
            assert uid(cluster.get("deployment", "inside-primary", SYSTEM)) == inside, step
    assert number_of(cluster, "idle") == 1
    for names in SERVED.values():
        assert all(name in shown[4] for name in names), shown[4]
    assert "inside-primary" in shown[4]
    assert cluster.kubectl("get", "crd", "-o", "name").count("holdfast.dev") == 0
    for kind, names in SERVED.items():
        for name in names:
            assert "ownerReferences" not in cluster.get(kind, name, "chat")["metadata"]


def is_available(deployment: dict[str, Any]) -> bool:
    return deployment.get("status", {}).get("availableReplicas") == 1


def served(cluster: Cluster) -> dict[tuple[str, str], str]:
    return {
        (kind, name): uid(cluster.get(kind, name, "chat"))
        for kind, names in SERVED.items()
        for name in names
    }


def all_there(cluster: Cluster) -> bool:
    return all(
        cluster.kubectl("get", kind, name, "-n", "chat", "--ignore-not-found")
        for kind, names in SERVED.items()
        for name in names
    )


def number_of(cluster: Cluster, name: str) -> int:
    number: int = cluster.get("deployment", f"{name}-primary", "chat")["spec"]["replicas"]
    return number


def is_put_to_rest(cluster: Cluster, name: str) -> bool:
    """Give the sign of life of a data plane, and look whether that was enough."""
    sign = f"{DATA_PLANE_ANNOTATION}={datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    cluster.kubectl("annotate", "hold", name, "-n", "chat", "--overwrite", sign)
    return number_of(cluster, name) == 0


def leftovers(cluster: Cluster, exported: str) -> list[str]:
    """What is there of what was exported, of whatever has its labels, and of what was made."""
    kinds = cluster.kubectl("api-resources", "--verbs=list,delete", "-o", "name").split()
    labels = f"app.kubernetes.io/name=holdfast,app.kubernetes.io/instance={SYSTEM}"
    answers = (
        cluster.kubectl("get", ",".join(kinds), "-A", "-l", labels, "-o", "json"),
        cluster.kubectl("get", "-f", "-", "--ignore-not-found", "-o", "json", stdin=exported),
        cluster.kubectl("get", "leases", "-n", SYSTEM, "-o", "json"),
    )
    found = [each for answer in answers for each in json.loads(answer)["items"]]
    return [each["metadata"]["name"] for each in found if each["kind"] not in KEPT]
