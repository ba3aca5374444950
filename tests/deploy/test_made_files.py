"""The kustomize base and the Helm chart say what `holdfast install --export` says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import testbed
from tests.support.go_programs import HELM, NotBuilt

from holdfast.core.service.children import Gateway
from holdfast.core.tree import Fields
from holdfast.install.monitoring import alert_rules, dashboard_text
from holdfast.install.objects import installation_objects
from holdfast.install.settings import (
    OPERATOR_NAME,
    GitopsInstallation,
    Installation,
    PodSettings,
)

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart" / "holdfast"
KUSTOMIZE = ROOT / "deploy" / "kustomize"
GATEWAY = Gateway(namespace="infra", name="public", domain="models.example")
KEEP = {"helm.sh/resource-policy": "keep"}
DIGEST = "sha256:" + "0" * 64
POD_VALUES = {
    # Helm lays values over the chart's own, so each of those is given anew.
    "resources": {
        "requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"},
        "limits": {"memory": "4Gi"},
    },
    "nodeSelector": {"node-role.example/infra": "true"},
    "tolerations": [{"key": "infra", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"example.com/scrape": "true"},
    "podLabels": {"team": "ml"},
    "serviceAccount": {"name": "robot", "annotations": {"example.com/role": "arn:1"}},
}


def pod_settings(values: dict[str, Any]) -> PodSettings:
    return PodSettings(
        resources=values["resources"],
        node_selector=values["nodeSelector"],
        tolerations=values["tolerations"],
        affinity=values["affinity"],
        priority_class=values["priorityClassName"],
        annotations=values["podAnnotations"],
        labels=values["podLabels"],
        account=values["serviceAccount"]["name"],
        account_annotations=values["serviceAccount"]["annotations"],
    )


GITOPS_VALUES = {
    **POD_VALUES,
    "priorityClassName": "high",
    "podLabels": {"team": "platform"},
    "serviceAccount": {"name": "git-robot", "annotations": {"example.com/role": "arn:2"}},
}
REQUIRED = os.environ.get("HOLDFAST_REQUIRE_TESTBED") == "1"


def test_the_files_are_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "deploy.py", "--check"], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


def test_the_kustomize_base_is_the_export() -> None:
    assert documents(kustomize(KUSTOMIZE)) == list(installation_objects(Installation()))


@pytest.mark.parametrize(
    ("components", "installation"),
    [
        (["monitoring"], Installation(monitoring=True)),
        (["gitops"], Installation(gitops=GitopsInstallation())),
        (
            ["monitoring", "gitops", "gitops-writes", "gitops-monitoring"],
            Installation(monitoring=True, gitops=GitopsInstallation(writes=True)),
        ),
    ],
    ids=["monitoring", "gitops", "everything"],
)
def test_what_is_added_on_demand_is_components_of_the_base(
    components: list[str], installation: Installation, tmp_path: Path
) -> None:
    base = os.path.relpath(KUSTOMIZE, tmp_path)
    chosen = ", ".join(f"{base}/{each}" for each in components)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{base}]\ncomponents: [{chosen}]\n")
    assert by_name(documents(kustomize(tmp_path))) == by_name(installation_objects(installation))


@pytest.mark.parametrize(
    ("address", "port", "reached"),
    [
        ("169.254.169.254", 80, False),
        ("169.254.170.2", 80, False),
        ("100.100.100.200", 80, False),
        ("168.63.129.16", 80, False),
        ("fe80::1", 443, False),
        ("fd00:ec2::254", 80, False),
        ("169.254.20.10", 53, True),  # where a node keeps its cache of names
        ("10.96.0.1", 443, True),
        ("10.0.0.7", 6443, True),
        ("192.168.1.9", 3000, True),
        ("140.82.121.4", 22, True),
        ("2001:db8::1", 443, True),
    ],
)
def test_where_the_controller_may_go(address: str, port: int, reached: bool) -> None:
    """Anywhere that applications name, but not to where clouds keep a node's credentials."""
    (policy,) = [
        each
        for each in installation_objects(Installation(gitops=GitopsInstallation()))
        if each["kind"] == "NetworkPolicy"
    ]
    spec: Any = policy["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    place = ip_address(address)
    answers = []
    for rule in spec["egress"]:
        inside = not rule.get("to") or any(
            place in ip_network(to["ipBlock"]["cidr"])
            and not any(place in ip_network(out) for out in to["ipBlock"]["except"])
            for to in rule["to"]
        )
        on = any(
            each["protocol"] == "TCP" and each.get("port", port) == port for each in rule["ports"]
        )
        answers.append(inside and on)
    assert any(answers) is reached


@pytest.mark.timeout(900)  # Helm may have to be built
@pytest.mark.parametrize(
    ("values", "installation"),
    [
        ({}, Installation()),
        ({"monitoring": True, "replicas": 3}, Installation(monitoring=True, replicas=3)),
        (
            {
                "image": {"repository": "registry.example/holdfast", "digest": DIGEST},
                "watchNamespaces": ["chat", "embed"],
                "gateway": {"namespace": "infra", "name": "public", "domain": "models.example"},
                "prometheus": "http://prometheus.monitoring:9090",
                "pageUrl": "https://holdfast.example.com",
                "modelHubs": [],
            },
            Installation(
                image=f"registry.example/holdfast@{DIGEST}",
                watched=("chat", "embed"),
                gateway=GATEWAY,
                prometheus="http://prometheus.monitoring:9090",
                page_url="https://holdfast.example.com",
                model_hubs=(),
            ),
        ),
        (
            {"gitops": {"enabled": True}, "monitoring": True, "grafana": "https://g.example"},
            Installation(gitops=GitopsInstallation(), monitoring=True, grafana="https://g.example"),
        ),
        (
            {
                "gitops": {
                    "enabled": True,
                    "writes": True,
                    "secrets": True,
                    "storage": "20Gi",
                    "ledger": "holdfast-ledger",
                    "baseUrl": "https://holdfast.example.com:8443",
                    "people": "holdfast-people",
                    "corsOrigins": ["https://a.example", "http://[::1]:3000"],
                    "tls": "holdfast-tls",
                },
                "monitoring": True,
            },
            Installation(
                gitops=GitopsInstallation(
                    writes=True,
                    secrets=True,
                    storage="20Gi",
                    ledger="holdfast-ledger",
                    base_url="https://holdfast.example.com:8443",
                    people="holdfast-people",
                    cors_origins=("https://a.example", "http://[::1]:3000"),
                    tls="holdfast-tls",
                ),
                monitoring=True,
            ),
        ),
        (
            {"gitops": {"enabled": True, "people": "who", "baseUrl": "https://holdfast.example"}},
            Installation(
                gitops=GitopsInstallation(people="who", base_url="https://holdfast.example")
            ),
        ),
        (
            {"watchNamespaces": ["chat"], "nodeReads": True, "gitops": {"enabled": True}},
            Installation(watched=("chat",), node_reads=True, gitops=GitopsInstallation()),
        ),
        (
            {
                "watchNamespaces": ["chat", "default"],
                "nodeReads": True,
                "podReads": True,
                "gitops": {"enabled": True},
            },
            Installation(
                watched=("chat", "default"),
                node_reads=True,
                pod_reads=True,
                gitops=GitopsInstallation(),
            ),
        ),
        (
            {
                "gitops": {"enabled": True, "secrets": True},
                "watchNamespaces": ["chat", "embed"],
                "monitoring": True,
                "runbooks": "https://docs.example/runbooks",
            },
            Installation(
                gitops=GitopsInstallation(secrets=True),
                watched=("chat", "embed"),
                monitoring=True,
                runbooks="https://docs.example/runbooks",
            ),
        ),
        (
            {"gitops": {"enabled": True, "writes": True}, "watchNamespaces": ["chat"]},
            Installation(gitops=GitopsInstallation(writes=True), watched=("chat",)),
        ),
        (
            {
                **POD_VALUES,
                "image": {
                    "repository": "registry.example/holdfast",
                    "tag": "dev",
                    "pullPolicy": "Always",
                },
                "imagePullSecrets": [{"name": "registry"}, {"name": "mirror"}],
                "logLevel": "debug",
                "gitops": {"enabled": True, **GITOPS_VALUES},
                "watchNamespaces": ["chat"],
            },
            Installation(
                image="registry.example/holdfast:dev",
                pull_policy="Always",
                pull_secrets=("registry", "mirror"),
                log_level="debug",
                pod=pod_settings(POD_VALUES),
                gitops=GitopsInstallation(pod=pod_settings(GITOPS_VALUES)),
                watched=("chat",),
            ),
        ),
    ],
    ids=[
        "as it is",
        "watched over",
        "with every choice",
        "gitops that reports",
        "gitops with every choice",
        "gitops with people and a proxy before it",
        "nodes are read",
        "nodes and pods are read",
        "gitops of namespaces that reports",
        "gitops of a namespace that writes",
        "pods as a cluster wants them",
    ],
)
def test_the_chart_is_the_export(values: dict[str, Any], installation: Installation) -> None:
    """But for the namespace, which Helm makes, and the notes on what is to be kept."""
    made = template({**values, "crds": {"keep": False}})
    for each in made:
        if each["kind"] == "PersistentVolumeClaim":
            assert each["metadata"].pop("annotations") == KEEP
    expected = [each for each in installation_objects(installation) if each["kind"] != "Namespace"]
    assert by_name(made) == by_name(expected)


@pytest.mark.timeout(900)
def test_the_chart_keeps_the_definitions_when_it_is_removed() -> None:
    made = [each for each in template({}) if each["kind"] == "CustomResourceDefinition"]
    assert len(made) == 2
    for crd in made:
        assert crd["metadata"]["annotations"] == KEEP
    without = template({"crds": {"install": False}})
    assert [each for each in without if each["kind"] == "CustomResourceDefinition"] == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "values",
    [
        {"watchNamespace": ["chat"]},
        {"replicas": 0},
        {"gateway": {"name": "public"}},
        {"gitops": {"enabled": True, "storage": "much"}},
        {"image": "registry.example/holdfast:1"},
        {"image": {"digest": "latest"}},
        {"podLabels": {"app.kubernetes.io/component": "other"}},
        {"serviceAccount": {"create": False}},
        {"logLevel": "loud"},
        {"nodeReads": True},
        {"watchNamespaces": ["chat"], "podReads": True},
        {"gitops": {"enabled": True, "baseUrl": "https://holdfast.example/page"}},
        {"gitops": {"enabled": True, "corsOrigins": ["*"]}},
        {"gitops": {"enabled": True, "tls": "no name"}},
    ],
    ids=[
        "a name that does not exist",
        "no operator",
        "a gateway without a domain",
        "no size",
        "an image that is no mapping",
        "a digest that is none",
        "a label that selects the pods",
        "an account that is not there and has no name",
        "a level that is none",
        "reading nodes, which all of the cluster does anyway",
        "reading pods without nodes",
        "a base URL with a path",
        "any origin",
        "no name of a Secret",
    ],
)
def test_the_chart_refuses_what_means_nothing(values: dict[str, Any]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        template(values)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, True),
        ({"image": {"tag": "1"}}, True),
        ({"image": {"repository": "registry.example/holdfast"}}, False),
    ],
    ids=["as it is", "another tag", "a registry's"],
)
def test_the_notes_say_of_an_image_that_no_registry_has_it(
    values: dict[str, Any], expected: bool, tmp_path: Path
) -> None:
    shown = render_notes(values, tmp_path)
    assert ("no registry has the image holdfast:" in shown) is expected


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("gitops", "expected"),
    [
        ({"enabled": False}, False),
        ({"enabled": True}, True),
        ({"enabled": True, "baseUrl": "http://holdfast.example"}, True),
        ({"enabled": True, "baseUrl": "https://holdfast.example"}, False),
        ({"enabled": True, "tls": "holdfast-tls"}, False),
    ],
    ids=["no page", "neither", "no TLS before it", "behind a proxy", "with a certificate"],
)
def test_the_notes_say_when_nobody_can_sign_in(
    gitops: dict[str, Any], expected: bool, tmp_path: Path
) -> None:
    shown = render_notes({"gitops": gitops}, tmp_path)
    assert ("Nobody can sign in" in shown) is expected


@pytest.mark.timeout(900)
def test_an_account_that_is_there_already_is_bound_and_not_made() -> None:
    made = template({"serviceAccount": {"create": False, "name": "given"}})
    assert [each for each in made if each["kind"] == "ServiceAccount"] == []
    bound = [subject for each in made for subject in each.get("subjects", ())]
    assert {subject["name"] for subject in bound} == {"given"}
    (pod,) = [each["spec"]["template"]["spec"] for each in made if each["kind"] == "Deployment"]
    assert pod["serviceAccountName"] == "given"


@pytest.mark.timeout(900)
def test_roles_for_people_can_be_left_out() -> None:
    roles = {each["metadata"]["name"] for each in template({}) if each["kind"] == "ClusterRole"}
    without = template({"userRoles": False})
    left = {each["metadata"]["name"] for each in without if each["kind"] == "ClusterRole"}
    assert roles - left == {"holdfast-view", "holdfast-edit", "holdfast-application-editor"}


def test_the_board_is_shipped_as_a_file_and_for_grafanas_sidecar() -> None:
    (shown,) = [
        each
        for each in installation_objects(Installation(monitoring=True))
        if each["kind"] == "ConfigMap"
    ]
    data: Any = shown["data"]
    file = ROOT / "deploy" / "monitoring" / "holdfast-grafana.json"
    assert data == {file.name: file.read_text()} and file.read_text() == dashboard_text()
    metadata: Any = shown["metadata"]
    assert metadata["labels"]["grafana_dashboard"] == "1"


def test_without_a_gitops_controller_nobody_is_woken_for_it() -> None:
    found: Any = installation_objects(Installation(monitoring=True))
    (rule,) = [each for each in found if each["kind"] == "PrometheusRule"]
    assert len(rule["spec"]["groups"][0]["rules"]) == len(alert_rules(OPERATOR_NAME))
    assert "holdfast-gitops" not in json.dumps(rule)


def kustomize(folder: Path) -> str:
    try:
        kubectl = testbed.find_testbed().path("kubectl")
    except testbed.NoTestbed as missing:
        if REQUIRED:
            raise
        pytest.skip(str(missing))
    ran = subprocess.run(
        [kubectl, "kustomize", folder], capture_output=True, text=True, check=True, timeout=60
    )
    return ran.stdout


def template(values: dict[str, Any]) -> list[dict[str, Any]]:
    return documents(render(CHART, values))


def render_notes(values: dict[str, Any], folder: Path) -> str:
    """What Helm says once the chart is installed, which it renders only with a cluster."""
    chart = shutil.copytree(CHART, folder / "holdfast")
    (chart / "templates" / "NOTES.txt").rename(chart / "NOTES.txt")
    asked = 'notes: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}\n'
    (chart / "templates" / "notes.yaml").write_text(asked)
    (shown,) = documents(render(chart, values, "--show-only=templates/notes.yaml"))
    text: str = shown["notes"]
    return text


def render(chart: Path, values: dict[str, Any], *more: str) -> str:
    try:
        program = HELM.find_or_build(lambda _: None) if REQUIRED else HELM.find()
    except NotBuilt as missing:
        if REQUIRED:
            raise
        pytest.skip(str(missing))
    ran = subprocess.run(
        [program, "template", "holdfast", chart, "-n", "holdfast-system", "-f", "-", *more],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ran.stdout


# Any: objects of the Kubernetes API as they come over the wire.
def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def by_name(found: Any) -> dict[tuple[str, str, str], Fields]:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in found
    }
