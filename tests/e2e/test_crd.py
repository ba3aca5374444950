"""A real API server takes the definition, refuses what is wrong, and leaves the rest alone."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.control_plane import MERGE_PATCH, ApiRequestFailed
from tests.support.inference_services import (
    ACCEPTED,
    DIGEST,
    MODEL_IMAGE,
    REFUSED,
    canary,
    document,
)
from tests.support.refused import RefusedSpec

from holdfast.core.custom_resource import GROUP, VERSION
from holdfast.core.errors import InvalidSpec
from holdfast.core.service.children import Facts, download_job, manifests
from holdfast.core.service.model_cache import cached_model
from holdfast.core.service.spec import PLURAL
from holdfast.wire.crd import INFERENCE_SERVICE, make_crd
from holdfast.wire.inference_service_v1alpha1 import service_from_json

pytestmark = pytest.mark.cluster
NAME = f"{PLURAL}.{GROUP}"


@pytest.fixture(scope="module", autouse=True)
def definition(cluster: Cluster) -> None:
    cluster.install_definitions(make_crd(INFERENCE_SERVICE))


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def put(cluster: Cluster, found: dict[str, Any], *, dry: bool = False) -> dict[str, Any]:
    """Create an object as a strict client does."""
    namespace = found["metadata"]["namespace"]
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}?fieldValidation=Strict"
    return cluster.api().request("POST", path + ("&dryRun=All" if dry else ""), found)


def change(cluster: Cluster, namespace: str, patch: dict[str, Any]) -> dict[str, Any]:
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/my-llama"
    return cluster.api().request("PATCH", path, patch, content_type=MERGE_PATCH)


def test_the_definition_is_served_under_its_short_name(cluster: Cluster, namespace: str) -> None:
    found = cluster.get("crd", NAME)
    assert not [
        each
        for each in found["status"]["conditions"]
        if each["type"] == "NonStructuralSchema" and each["status"] == "True"
    ]
    put(cluster, document(namespace=namespace))
    for word in ("hold", "holdfast", f"{PLURAL}.{GROUP}"):
        assert "my-llama" in cluster.kubectl("get", word, "-n", namespace)


@pytest.mark.parametrize(
    "case", [case for case in REFUSED if case.server], ids=lambda case: case.why
)
def test_what_is_wrong_is_refused_before_it_is_stored(cluster: Cluster, case: RefusedSpec) -> None:
    """The sentence is ours where several fields are joined, and names the field elsewhere."""
    wrong = document(case.change)
    with pytest.raises(InvalidSpec) as ours:
        service_from_json(wrong)
    with pytest.raises(ApiRequestFailed) as refusal:
        put(cluster, wrong, dry=True)
    assert refusal.value.status == 422
    said = json.loads(str(refusal.value).partition(": ")[2])["message"]
    sentences = [str(problem) for problem in ours.value.problems]
    assert f"spec.{case.field}" in said or any(sentence in said for sentence in sentences), said


@pytest.mark.parametrize("why", ACCEPTED)
def test_what_is_right_is_stored_as_it_was_written(
    cluster: Cluster, namespace: str, why: str
) -> None:
    """No default is written into what the user left unset: that would be drift in Git."""
    right = document(ACCEPTED[why], namespace=namespace)
    stored = put(cluster, right)
    assert stored["spec"] == right["spec"]
    assert service_from_json(stored).spec == service_from_json(right).spec


def test_an_unknown_field_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ApiRequestFailed, match="unknown field"):
        put(cluster, document({"modelReference": "x"}), dry=True)


@pytest.mark.parametrize("name", ["a" * 41, "4-first", "dots.in"])
def test_a_name_that_pods_could_not_carry_is_refused(cluster: Cluster, name: str) -> None:
    with pytest.raises(ApiRequestFailed, match=r"metadata\.name: it is not 1 to 40"):
        put(cluster, document(name=name), dry=True)


def test_the_task_cannot_be_changed_nor_taken_away(cluster: Cluster, namespace: str) -> None:
    put(cluster, document({"taskType": "embedding"}, namespace=namespace))
    for task in ("text2text", None):
        with pytest.raises(ApiRequestFailed, match="taskType: it cannot be changed"):
            change(cluster, namespace, {"spec": {"taskType": task}})
    assert change(cluster, namespace, {"spec": {"replicas": 3}})["spec"]["replicas"] == 3


def test_the_columns_show_what_matters(cluster: Cluster, namespace: str) -> None:
    put(cluster, document({"backend": "sglang"}, namespace=namespace))
    condition = {"status": "True", "reason": "Succeeded", "message": ""}
    status = {
        "ready": True,
        "replicas": 2,
        "drift": "none",
        "conditions": [{"type": "Ready", **condition}, {"type": "UpToDate", **condition}],
    }
    cluster.kubectl(
        "patch", "hold", "my-llama", "-n", namespace, "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": status}),
    )  # fmt: skip
    head, row = cluster.kubectl("get", "hold", "-n", namespace).splitlines()
    assert head.split() == ["NAME", "BACKEND", "MODEL", "READY", "SYNCED", "DRIFT", "AGE"]
    assert row.split()[:-1] == ["my-llama", "sglang", "llama3-8b-q4", "True", "True", "none"]


def test_the_number_can_be_scaled_within_the_rules(cluster: Cluster, namespace: str) -> None:
    put(cluster, document({"minReplicas": 1, "maxReplicas": 5}, namespace=namespace))
    cluster.kubectl("scale", "hold/my-llama", "--replicas=4", "-n", namespace)
    assert cluster.get("hold", "my-llama", namespace)["spec"]["replicas"] == 4
    with pytest.raises(Exception, match="outside minReplicas and maxReplicas"):
        cluster.kubectl("scale", "hold/my-llama", "--replicas=6", "-n", namespace)


@pytest.mark.parametrize("backend", ["vllm", "sglang", "llamacpp", "ollama"])
@pytest.mark.parametrize("ready", [False, True])
def test_the_children_are_what_the_api_server_expects(
    cluster: Cluster, namespace: str, backend: str, ready: bool
) -> None:
    bounds = {"minReplicas": 2, "maxReplicas": 10}
    stored = put(cluster, document({"backend": backend, **bounds, **canary()}, namespace=namespace))
    children = manifests(service_from_json(stored), Facts(canary_ready=ready, primary_replicas=4))
    listed = {"apiVersion": "v1", "kind": "List", "items": list(children)}
    said = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict",
        "--field-manager=holdfast-operator", "-f", "-", stdin=json.dumps(listed),
    )  # fmt: skip
    assert len(re.findall("serverside-applied", said)) == len(children) == 7


@pytest.mark.parametrize("backend", ["vllm", "llamacpp"])
def test_a_model_from_an_image_is_stored_as_an_image_volume(
    cluster: Cluster, namespace: str, backend: str
) -> None:
    model = {"backend": backend, "modelRef": f"{MODEL_IMAGE}#chat.gguf"}
    stored = put(cluster, document(model, namespace=namespace))
    cluster.apply(*manifests(service_from_json(stored), Facts()))
    pod = cluster.get("deployment", "my-llama-primary", namespace)["spec"]["template"]["spec"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "model-image"]
    reference = MODEL_IMAGE.removeprefix("oci://")
    assert volume["image"] == {"reference": reference, "pullPolicy": "IfNotPresent"}
    (server,) = pod["containers"]
    assert "/models/chat.gguf" in [*server["command"], *server["args"]]
    assert {"mountPath": "/models", "name": "model-image", "readOnly": True} in server[
        "volumeMounts"
    ]


def test_a_cache_and_its_download_are_what_the_api_server_expects(
    cluster: Cluster, namespace: str
) -> None:
    stored = put(cluster, document(ACCEPTED["with a cache"], namespace=namespace))
    service = service_from_json(stored)
    model = cached_model(service, canary=False)
    assert model is not None
    job = download_job(service, model, image="holdfast:1", claim_uid="uid-1")
    listed = {"apiVersion": "v1", "kind": "List", "items": [*manifests(service, Facts()), job]}
    said = cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict",
        "--field-manager=holdfast-operator", "-f", "-", stdin=json.dumps(listed),
    )  # fmt: skip
    assert len(re.findall("serverside-applied", said)) == len(listed["items"]) == 6
    with pytest.raises(ApiRequestFailed, match="the class and the access mode"):
        change(cluster, namespace, {"spec": {"cache": {"storageClass": "slow"}}})


def test_class_and_mode_of_a_cache_stay_until_it_is_taken_out(
    cluster: Cluster, namespace: str
) -> None:
    cache = {"size": "50Gi", "storageClass": "fast"}
    put(cluster, document({"modelRef": "org/chat", "cache": cache}, namespace=namespace))
    for wrong in (
        {"storageClass": "slow"},
        {"storageClass": None},
        {"accessMode": "ReadWriteMany"},
    ):
        with pytest.raises(ApiRequestFailed, match="the class and the access mode"):
            change(cluster, namespace, {"spec": {"cache": wrong}})
    change(cluster, namespace, {"spec": {"cache": {"size": "80Gi"}}})
    change(cluster, namespace, {"spec": {"cache": None}})
    other = {"cache": {"size": "80Gi", "accessMode": "ReadWriteMany"}}
    assert change(cluster, namespace, {"spec": other})["spec"]["cache"] == other["cache"]


def test_a_digest_can_neither_lose_its_cache_nor_come_without_one(
    cluster: Cluster, namespace: str
) -> None:
    cached = {"modelRef": "org/chat", "cache": {"size": "50Gi"}, "modelDigest": DIGEST}
    put(cluster, document(cached, namespace=namespace))
    for wrong in ({"cache": None}, {"modelDigest": "sha256:abc"}):
        with pytest.raises(ApiRequestFailed, match="modelDigest"):
            change(cluster, namespace, {"spec": wrong})
    change(cluster, namespace, {"spec": {"cache": None, "modelDigest": None}})
    for wrong in ({"modelDigest": DIGEST}, canary(modelDigest=DIGEST)):
        with pytest.raises(ApiRequestFailed, match="nothing would check it"):
            change(cluster, namespace, {"spec": wrong})


def test_a_rendered_deployment_becomes_ready(cluster: Cluster, namespace: str) -> None:
    small = {"cpu": "100m", "memory": "64Mi", "gpuMemory": None, "gpu": 1}
    stored = put(cluster, document({"resources": small}, namespace=namespace))
    cluster.apply(*manifests(service_from_json(stored), Facts()))
    cluster.wait(
        "deployment",
        "my-llama-primary",
        namespace,
        lambda found: found["status"].get("readyReplicas") == 2,
        timeout=60,
    )
    cluster.kubectl("delete", "hold", "my-llama", "-n", namespace)
    cluster.kubectl(
        "wait", "--for=delete", "deployment/my-llama-primary", "-n", namespace, "--timeout=60s"
    )
