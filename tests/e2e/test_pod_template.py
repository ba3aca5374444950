"""A podTemplate on a real API server: merged as it would merge, stored, owned and quiet.

And in a namespace that enforces the Pod Security Standard `restricted`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.inference_services import document, merged
from tests.support.operator_world import NAME, OperatorWorld, OperatorWorlds
from tests.support.pod_templates import ONE_OF_SEVERAL, OVERLAYS

from holdfast.core.errors import ValidationError
from holdfast.core.service.children import Facts, manifests
from holdfast.wire.crd import INFERENCE_SERVICE, make_crd
from holdfast.wire.inference_service_v1alpha1 import service_from_json

pytestmark = pytest.mark.cluster
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture(scope="module", autouse=True)
def definition(cluster: Cluster) -> None:
    cluster.install_definitions(make_crd(INFERENCE_SERVICE))


@pytest.fixture
def world(cluster: Cluster, namespace: str) -> Iterator[OperatorWorld]:
    with OperatorWorlds() as worlds:
        yield worlds.real(cluster.kubeconfig, namespace)


# Any: objects of the Kubernetes API, here and below.
def deployment(namespace: str, **change: Any) -> Any:
    service = service_from_json(document(change, namespace=namespace))
    return copy.deepcopy(manifests(service, Facts())[0])


def sorted_lists(value: Any) -> Any:
    """Without the order of keyed lists, in which two mergers may differ."""
    if isinstance(value, dict):
        return {key: sorted_lists(item) for key, item in value.items()}
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return sorted((sorted_lists(item) for item in value), key=str)
    return value


def test_an_overlay_is_merged_as_the_api_server_merges_a_patch(
    cluster: Cluster, namespace: str
) -> None:
    """Both are sent as dry runs, so that what is compared has the same defaults."""
    api = cluster.api()
    base = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    api.request("POST", base, deployment(namespace, replicas=1))
    for name, overlay in OVERLAYS.items():
        if name in ONE_OF_SEVERAL:
            continue
        patch = {"spec": {"template": overlay}}
        url = f"{base}/{NAME}-primary?dryRun=All"
        theirs = api.request("PATCH", url, patch, content_type=STRATEGIC)
        mine = deployment(namespace, podTemplate=overlay, replicas=1)
        mine["metadata"]["name"] = "compared"
        ours = api.request("POST", f"{base}?dryRun=All&fieldValidation=Strict", mine)
        assert sorted_lists(ours["spec"]["template"]) == sorted_lists(theirs["spec"]["template"]), (
            name
        )


def everything() -> dict[str, Any]:
    """All overlays that go together, as one."""
    whole: dict[str, Any] = {}
    for name, overlay in OVERLAYS.items():
        if name in ("no-shared-memory", "replaced-lists-and-mappings", "volumes"):
            continue
        for part, fields in overlay.items():
            held = whole.setdefault(part, {})
            for key, value in fields.items():
                if isinstance(value, list):
                    held[key] = [*held.get(key, []), *value]
                else:
                    held[key] = (
                        merged(held.get(key, {}), value) if isinstance(value, dict) else value
                    )
    return whole


def test_an_overlay_is_stored_owned_and_quiet(world: OperatorWorld) -> None:
    whole = everything()
    del whole["spec"]["priorityClassName"], whole["spec"]["runtimeClassName"]
    by_name: dict[str, Any] = {}
    for item in whole["spec"]["containers"]:
        by_name[item["name"]] = merged(by_name.get(item["name"], {}), item)
    server = by_name["server"]
    server["livenessProbe"] = None  # a null has to survive being stored
    whole["spec"]["containers"] = list(by_name.values())
    world.declare({"podTemplate": whole, "replicas": 1})
    stored = world.get("InferenceService", NAME)["spec"]["podTemplate"]
    assert stored == whole
    world.reconcile()
    pod = world.primary()["spec"]["template"]["spec"]
    assert "livenessProbe" not in pod["containers"][0]
    assert {each["name"] for each in pod["containers"]} == {"server", "exporter"}
    world.reconcile()
    assert not world.client.of("Deployment")
    assert world.condition("DriftDetected")[0] == "False"
    path = "/spec/template/spec/volumes/0/emptyDir/sizeLimit"
    world.edit("Deployment", f"{NAME}-primary", {"op": "replace", "path": path, "value": "1Mi"})
    world.reconcile()
    assert world.primary()["spec"]["template"]["spec"]["volumes"][0]["emptyDir"] == {
        "medium": "Memory",
        "sizeLimit": "16Gi",
    }
    assert "sizeLimit" in world.says("DriftDetected")


def test_a_field_that_pods_do_not_have_is_told_in_the_words_of_the_server(
    world: OperatorWorld,
) -> None:
    world.declare({"podTemplate": {"spec": {"prioritClassName": "typo"}}})
    with pytest.raises(ValidationError):
        world.reconcile()
    assert world.condition("UpToDate") == ("False", "WriteRefused")
    assert "prioritClassName: field not declared in schema" in world.says("UpToDate")


RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def test_a_restricted_namespace_says_what_to_set_and_then_takes_the_pods(
    cluster: Cluster, namespace: str, world: OperatorWorld
) -> None:
    labels = [f"{name}={value}" for name, value in RESTRICTED.items()]
    cluster.kubectl("label", "namespace", namespace, *labels)
    world.declare({"replicas": 1, "healthCheck": None})
    world.reconcile()

    def refused() -> bool:
        world.reconcile()
        return world.condition("Degraded") == ("True", "PodsRefused")

    world.eventually(refused, "the refusal of the pods to be told")
    said = world.says("Degraded")
    assert "violates PodSecurity" in said
    assert "podTemplate.spec.securityContext.runAsNonRoot: true" in said
    assert world.condition("Ready") == ("False", "PodsRefused")
    account = {"runAsNonRoot": True, "runAsUser": 10001}
    world.declare({"replicas": 1, "podTemplate": {"spec": {"securityContext": account}}})
    world.reconcile()
    world.wait(f"{NAME}-primary")

    def taken() -> bool:
        world.reconcile()
        return world.condition("Degraded") == ("False", "Healthy")

    world.eventually(taken, "the Deployment to take its refusal back")
