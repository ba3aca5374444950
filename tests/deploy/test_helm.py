"""The chart on a real API server: over what kubectl applied, and off again by the page's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.deploy.shell import Shell, uid
from tests.deploy.uninstall_page import WITH_HELM, uninstall_steps
from tests.support.cluster import Cluster
from tests.support.cluster_fixtures import skip_without
from tests.support.controllers import ControllerProcess
from tests.support.go_programs import HELM, NotBuilt
from tests.support.inference_services import document
from tests.support.processes import wait_until

from holdfast.wire.crd import crd_files

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

DEFINITIONS = ("inferenceservices.holdfast.dev", "applications.holdfast.dev")


@pytest.fixture
def shell(kubectl_shell: Shell, pytestconfig: pytest.Config) -> Shell:
    try:
        kubectl_shell.add("helm", HELM.find())
    except NotBuilt as missing:
        skip_without(pytestconfig, "Helm", missing)
    return kubectl_shell


# Any: an object of the Kubernetes API as it comes over the wire.
def is_ready(found: dict[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def may(shell: Shell, user: str, what: str) -> bool:
    asked = shell(f"kubectl auth can-i {what} -n chat --as={user} || true")
    return asked.strip() == "yes"


def test_from_kubectl_to_helm_to_nothing_and_no_model_is_lost(
    own: Cluster, shell: Shell, tmp_path: Path
) -> None:
    # Somebody applied the definitions with kubectl, once on each side, and services to them.
    service, application = crd_files().values()
    own.kubectl("apply", "-f", "-", stdin=_yaml(service))
    own.kubectl("apply", "--server-side", "-f", "-", stdin=_yaml(application))
    own.kubectl(
        *["wait", "--for=condition=Established", "crd", *DEFINITIONS, "--timeout=30s"],
    )
    own.kubectl("create", "namespace", "chat")
    small = {"resources": {"gpuMemory": None}}
    own.apply(document(small, namespace="chat"))
    before = {name: uid(own.get("crd", name)) for name in DEFINITIONS}
    command = ["operator", "--metrics-address=127.0.0.1:0", "--no-leader-election"]
    with ControllerProcess(own, tmp_path / "log", command).running():
        own.wait("hold", "my-llama", "chat", is_ready, timeout=60)
    made = {
        kind: uid(own.get(kind, name, "chat"))
        for kind, name in (("hold", "my-llama"), ("deployment", "my-llama-primary"),
                           ("service", "my-llama-svc"))
    }  # fmt: skip

    # The export takes them over as they are.
    whole = "---\n".join((_yaml(service), _yaml(application)))
    own.kubectl("apply", "--server-side", "-f", "-", stdin=whole)
    assert {name: uid(own.get("crd", name)) for name in DEFINITIONS} == before

    # Helm takes them over as they are, with what the page about installing says.
    notes = shell(
        "helm install holdfast deploy/chart/holdfast -n holdfast-system --create-namespace "
        "--take-ownership --set image.repository=registry.example/holdfast "
        "--set gitops.enabled=true"
    )
    assert "Nobody can sign in" in notes and "no registry" not in notes
    for name in DEFINITIONS:
        found = own.get("crd", name)
        assert uid(found) == before[name]
        assert found["metadata"]["annotations"]["meta.helm.sh/release-name"] == "holdfast"
    assert uid(own.get("hold", "my-llama", "chat")) == made["hold"]
    own.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=whole)
    shell("helm upgrade holdfast deploy/chart/holdfast -n holdfast-system --reuse-values")

    # People have rights by the roles that every cluster has.
    for role in ("view", "edit", "admin"):
        shell(f"kubectl create rolebinding {role} -n chat --clusterrole={role} --user={role}")
    wait_until(lambda: may(shell, "admin", "create inferenceservices.holdfast.dev"), 20)
    for role in ("view", "edit", "admin"):
        assert may(shell, role, "list applications.holdfast.dev")
        assert may(shell, role, "get inferenceservices.holdfast.dev")
        assert may(shell, role, "delete inferenceservices.holdfast.dev") is (role != "view")
        assert not may(shell, role, "update inferenceservices.holdfast.dev --subresource=status")
        assert not may(shell, role, "create applications.holdfast.dev")

    # Off again, by the page, word for word and in its order.
    kept: dict[str, Any] = {}
    for _, step in uninstall_steps(WITH_HELM):
        shown = shell(step)
        if "kubectl get deployments" in step:
            kept["shown"] = shown
        assert uid(own.get("deployment", "my-llama-primary", "chat")) == made["deployment"], step
        assert uid(own.get("service", "my-llama-svc", "chat")) == made["service"], step
    assert "deployment.apps/my-llama-primary" in kept["shown"]
    assert own.kubectl("get", "crd", "-o", "name", "--ignore-not-found", *DEFINITIONS) == ""
    assert own.kubectl("get", "clusterrole", "-l", "app.kubernetes.io/part-of=holdfast") == ""
    child = own.get("deployment", "my-llama-primary", "chat")
    assert "ownerReferences" not in child["metadata"]

    # And back: the operator takes over what was let go, and no pod restarts.
    own.install_definitions(service)
    own.apply(document(small, namespace="chat"))
    with ControllerProcess(own, tmp_path / "log2", command).running():
        own.wait("hold", "my-llama", "chat", is_ready, timeout=60)
        again = own.get("deployment", "my-llama-primary", "chat")
    assert uid(again) == made["deployment"]
    assert again["metadata"]["ownerReferences"][0]["kind"] == "InferenceService"
    assert again["spec"]["template"] == child["spec"]["template"]


@pytest.mark.long  # the garbage collector looks for new kinds only now and then
def test_without_orphan_the_definition_takes_the_models_along(own: Cluster, shell: Shell) -> None:
    """What the page warns of, `--cascade=orphan` on the definition included."""
    (service, _) = crd_files().values()
    own.install_definitions(service)
    own.kubectl("create", "namespace", "chat")
    for name in ("first", "second"):
        own.apply(document({}, namespace="chat", name=name))
        owner = own.get("hold", name, "chat")
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": name,
            "uid": uid(owner),
        }
        metadata = {"name": name, "namespace": "chat", "ownerReferences": [reference]}
        own.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    def gone(name: str) -> bool:
        shown = own.kubectl("get", "configmap", name, "-n", "chat", "--ignore-not-found")
        return not shown

    shell("kubectl delete hold first -n chat")
    wait_until(lambda: gone("first"), 120, "the collector to know the kind", every=1)
    shell(f"kubectl delete crd {DEFINITIONS[0]} --cascade=orphan")
    wait_until(lambda: gone("second"), 60, "the child to go with its service", every=1)


def _yaml(item: Any) -> str:
    from holdfast.wire.yaml import write_document

    return write_document(item)
