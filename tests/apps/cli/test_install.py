"""`holdfast install --export` prints manifests, equal for equal choices, and changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from holdfast.apps.cli.daemon import gitops, operator


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}


def test_it_prints_what_the_operator_needs_in_the_order_of_application(holdfast: Any) -> None:
    run = holdfast("install", "--export")
    assert run.code == 0
    assert [each["kind"] for each in yaml.safe_load_all(run.out)] == [
        "Namespace", "CustomResourceDefinition", "CustomResourceDefinition", "ServiceAccount",
        "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
        "ClusterRole", "ClusterRole", "ClusterRole", "Service", "Deployment",
    ]  # fmt: skip
    assert holdfast("install", "--export").out == run.out


def test_json_holds_the_same_objects(holdfast: Any) -> None:
    whole = json.loads(holdfast("install", "--export", "-o", "json").out)
    assert whole["items"] == list(yaml.safe_load_all(holdfast("install", "--export").out))


def test_it_says_that_it_changes_nothing(holdfast: Any) -> None:
    assert "changes nothing by itself" in " ".join(holdfast("install", "--help").out.split())
    run = holdfast("install")
    assert run.code == 64 and "--export" in run.err and run.out == ""


def test_the_default_image_comes_with_a_warning_that_no_registry_has_it(holdfast: Any) -> None:
    assert "deploy/Containerfile" in holdfast("install", "--export").err
    run = holdfast("install", "--export", "--image", "registry.example/holdfast:1")
    assert run.err == ""
    pod = objects(run.out)["Deployment", "holdfast-operator"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry.example/holdfast:1"


def test_the_image_is_pulled_with_secrets_and_the_controllers_log_as_much_as_asked(
    holdfast: Any,
) -> None:
    chosen = ["--image-pull-secret", "registry", "--log-level", "debug", "--gitops"]
    found = objects(holdfast("install", "--export", *chosen).out)
    for name in ("holdfast-operator", "holdfast-gitops"):
        pod = found["Deployment", name]["spec"]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert "--log-level=debug" in pod["containers"][0]["args"]
    refused = holdfast("install", "--export", "--image-pull-secret", "Not_a_name")
    assert refused.code == 64 and "no name of a Secret" in refused.err


def test_named_namespaces_get_roles_of_their_own_and_the_cluster_none(holdfast: Any) -> None:
    run = holdfast("install", "--export", "--watch-namespace", "chat", "--watch-namespace", "embed")
    found = list(yaml.safe_load_all(run.out))
    assert not [each for each in found if each["kind"].startswith("ClusterRole")]
    places = [each["metadata"]["namespace"] for each in found if each["kind"] == "Role"]
    assert places == ["chat", "embed", "holdfast-system"]


def test_no_role_reads_secrets_or_writes_what_users_declared(holdfast: Any) -> None:
    run = holdfast("install", "--export", "--watch-namespace", "chat")
    rules = [
        (resource, verb)
        for each in yaml.safe_load_all(run.out)
        for rule in each.get("rules", [])
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert not [rule for rule in rules if rule[0] in ("secrets", "*") or rule[1] == "*"]
    assert {verb for resource, verb in rules if resource == "inferenceservices"} == {
        "get", "list", "watch",
    }  # fmt: skip


def test_the_operator_knows_every_flag_that_it_is_given(holdfast: Any) -> None:
    run = holdfast(
        *("install", "--export", "--watch-namespace", "chat", "--gateway", "infra/public"),
        *("--domain", "models.example", "--prometheus", "http://prometheus:9090"),
        *("--page-url", "https://holdfast.example.com/"),
    )
    pod = objects(run.out)["Deployment", "holdfast-operator"]["spec"]["template"]["spec"]
    args = pod["containers"][0]["args"]
    assert args[0] == "operator"
    known = {name for param in operator.params for name in (*param.opts, *param.secondary_opts)}
    assert {part.partition("=")[0] for part in args[1:]} <= known
    assert "--gateway=infra/public" in args and "--namespace=chat" in args
    assert "--page-url=https://holdfast.example.com" in args


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), ["--model-hub=https://huggingface.co"]),
        (("--model-hub", "http://hub.ml/"), ["--model-hub=http://hub.ml"]),
        (("--no-model-heads",), ["--no-model-heads"]),
    ],
    ids=["as it is", "a mirror", "nobody"],
)
def test_who_is_asked_about_models_is_chosen(
    holdfast: Any, given: tuple[str, ...], expected: list[str]
) -> None:
    run = holdfast("install", "--export", *given)
    pod = objects(run.out)["Deployment", "holdfast-operator"]["spec"]["template"]["spec"]
    assert [each for each in pod["containers"][0]["args"] if "--" in each and "model" in each] == (
        expected
    )


def test_monitoring_is_added_on_demand(holdfast: Any) -> None:
    run = holdfast("install", "--export", "--with-monitoring")
    kinds = [each["kind"] for each in yaml.safe_load_all(run.out)]
    assert kinds[-3:] == ["ServiceMonitor", "PrometheusRule", "ConfigMap"]


def test_the_gitops_controller_is_added_on_demand_and_writes_nothing(holdfast: Any) -> None:
    run = holdfast("install", "--export", "--gitops")
    assert holdfast("install", "--export", "--gitops").out == run.out
    plain = list(yaml.safe_load_all(holdfast("install", "--export").out))
    found = list(yaml.safe_load_all(run.out))
    assert found[: len(plain)] == plain
    rules = [
        (resource, verb)
        for each in found[len(plain) :]
        for rule in each.get("rules", [])
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    writing = {resource for resource, verb in rules if verb not in ("get", "list", "watch")}
    assert writing == {"applications/status", "events", "leases"}
    assert not [rule for rule in rules if "*" in rule]
    assert ("ClusterRole", "holdfast-gitops-writes") in objects(
        holdfast("install", "--export", "--gitops", "--gitops-writes").out
    )


def test_the_gitops_controller_has_one_pod_its_volume_and_nothing_else_to_write(
    holdfast: Any,
) -> None:
    found = objects(holdfast("install", "--export", "--gitops", "--gitops-storage", "5Gi").out)
    deployment = found["Deployment", "holdfast-gitops"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert mounts == {"/data": "data", "/cache": "cache", "/tmp": "tmp"}
    volumes = {each["name"]: set(each) - {"name"} for each in pod["volumes"]}
    assert volumes == {
        "data": {"persistentVolumeClaim"}, "cache": {"emptyDir"}, "tmp": {"emptyDir"},
    }  # fmt: skip
    claim = found["PersistentVolumeClaim", "holdfast-gitops"]["spec"]
    assert claim["resources"]["requests"]["storage"] == "5Gi"
    assert found["Service", "holdfast-gitops"]["spec"]["ports"][0]["port"] == 8080


def test_the_gitops_controller_knows_every_flag_that_it_is_given(holdfast: Any) -> None:
    run = holdfast(
        *("install", "--export", "--gitops", "--watch-namespace", "chat"),
        *("--gitops-ledger", "holdfast-ledger"),
    )
    pod = objects(run.out)["Deployment", "holdfast-gitops"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][0] == "gitops"
    known = {name for param in gitops.params for name in param.opts}
    assert {part.partition("=")[0] for part in container["args"][1:]} <= known
    assert "--namespace=chat" in container["args"]
    ledger = [each for each in container["env"] if each["name"] == "HOLDFAST_LEDGER"]
    secret = {"name": "holdfast-ledger", "key": "url"}
    assert [each["valueFrom"]["secretKeyRef"] for each in ledger] == [secret]
    assert "--key-file=/shared/key" in container["args"]


def test_the_page_of_the_gitops_controller_gets_a_name_people_and_tls(holdfast: Any) -> None:
    found = objects(
        holdfast(
            *("install", "--export", "--gitops", "--with-monitoring"),
            *("--gitops-base-url", "https://Holdfast.example:443/", "--gitops-tls", "page-tls"),
            *("--gitops-people", "who", "--gitops-cors-origin", "https://app.example"),
        ).out
    )
    pod = found["Deployment", "holdfast-gitops"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    known = {name for param in gitops.params for name in param.opts}
    assert {part.partition("=")[0] for part in container["args"][1:]} <= known
    assert container["args"][5:] == [
        "--base-url=https://holdfast.example",
        "--people=/etc/holdfast/people/people.yaml",
        "--cors-origin=https://app.example",
        "--tls-cert=/etc/holdfast/tls/tls.crt",
        "--tls-key=/etc/holdfast/tls/tls.key",
    ]
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    volumes = {each["name"]: each.get("secret") for each in pod["volumes"]}
    for name, secret in (("people", "who"), ("tls", "page-tls")):
        path = f"/etc/holdfast/{name}"
        assert mounts[name] == {"name": name, "mountPath": path, "readOnly": True}
        assert volumes[name] == {"secretName": secret}
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    assert {container[each]["httpGet"]["scheme"] for each in probes} == {"HTTPS"}
    (port,) = found["Service", "holdfast-gitops"]["spec"]["ports"]
    assert port["appProtocol"] == "https"
    (endpoint,) = found["ServiceMonitor", "holdfast-gitops"]["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    plain = objects(holdfast("install", "--export", "--gitops", "--with-monitoring").out)
    for key in (("Service", "holdfast-operator"), ("ServiceMonitor", "holdfast-operator")):
        assert found[key] == plain[key]
    (container,) = plain["Deployment", "holdfast-gitops"]["spec"]["template"]["spec"]["containers"]
    assert {container[each]["httpGet"]["scheme"] for each in probes} == {"HTTP"}


def test_nodes_and_pods_are_read_by_who_looks_after_some_namespaces_only_where_asked(
    holdfast: Any,
) -> None:
    watched = ("install", "--export", "--gitops", "--watch-namespace", "chat", "-n", "ml")
    found = objects(holdfast(*watched).out)
    assert not [kind for kind, _ in found if kind.startswith("ClusterRole")]

    def granted(*more: str) -> dict[tuple[str, str], set[tuple[str, str]]]:
        return {
            key: {
                (resource, verb)
                for rule in each["rules"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
            for key, each in objects(holdfast(*watched, *more).out).items()
            if key not in found and each["kind"] in ("ClusterRole", "Role")
        }

    nodes, pods = {("nodes", "get"), ("nodes", "list")}, {("pods", "list")}
    operator_reads = {
        ("ClusterRole", "holdfast-operator-nodes-ml"): nodes,
        ("Role", "holdfast-operator-nodes-ml"): {("events", "list")},
    }
    assert granted("--node-reads") == operator_reads
    assert granted("--node-reads", "--pod-reads") == {
        **operator_reads,
        ("ClusterRole", "holdfast-operator-pods-ml"): pods,
        ("ClusterRole", "holdfast-gitops-nodes-ml"): nodes | pods,
    }
    made = objects(holdfast(*watched, "--node-reads").out)
    binding = made["RoleBinding", "holdfast-operator-nodes-ml"]
    assert binding["metadata"]["namespace"] == "default"
    account = {"kind": "ServiceAccount", "name": "holdfast-operator", "namespace": "ml"}
    assert binding["subjects"] == [account]
    assert made["ClusterRoleBinding", "holdfast-operator-nodes-ml"]["subjects"] == [account]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--gateway", "infra/public"),
        ("--domain", "models.example"),
        ("--gateway", "public", "--domain", "models.example"),
        ("--namespace", "Not A Name"),
        ("--watch-namespace", ""),
        ("--image", "a b"),
        ("--prometheus", "http://user:secret@prometheus"),
        ("--model-hub", "http://user:secret@hub"),
        ("--model-hub", "hub"),
        ("--page-url", "https://me:secret@holdfast.example"),
        ("--replicas", "0"),
        ("--gitops-writes",),
        ("--gitops", "--gitops-storage", "much"),
        ("--gitops", "--gitops-ledger", "postgresql://me:secret@db/ledger"),
        ("--gitops", "--gitops-base-url", "https://me:secret@holdfast.example"),
        ("--gitops", "--gitops-base-url", "https://holdfast.example/page"),
        ("--gitops", "--gitops-cors-origin", "*"),
        ("--gitops", "--gitops-people", "/etc/secret.yaml"),
        ("--gitops", "--gitops-tls", "Page"),
        ("--gitops-tls", "page"),
        ("--node-reads",),
        ("--watch-namespace", "chat", "--pod-reads"),
        ("--grafana", "grafana"),
    ],
    ids=lambda wrong: " ".join(wrong),
)
def test_choices_that_mean_nothing_are_usage_errors(holdfast: Any, wrong: tuple[str, ...]) -> None:
    run = holdfast("install", "--export", *wrong)
    assert run.code == 64 and run.out == ""
    assert "secret" not in run.err


@pytest.mark.parametrize(
    "wrong",
    [
        ("--gateway", "infra/public"),
        ("--domain", "models.example"),
        ("--gateway", "public", "--domain", "models.example"),
    ],
    ids=lambda wrong: " ".join(wrong),
)
def test_the_operator_refuses_the_gateways_that_install_refuses(
    holdfast: Any, wrong: tuple[str, ...]
) -> None:
    assert holdfast("operator", "--once", *wrong).code == 64
