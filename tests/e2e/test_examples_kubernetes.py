"""The services of examples: valid, rendered as they were, and taken by an API server.

Golden files pin the objects of each; write them anew with `HOLDFAST_GOLDEN=1`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.scaling_kinds import leader_worker_sets

from holdfast.core.custom_resource import GROUP, VERSION
from holdfast.core.service.children import Facts, download_job, manifests
from holdfast.core.service.model_cache import cached_model
from holdfast.core.service.spec import PLURAL
from holdfast.wire.crd import INFERENCE_SERVICE, make_crd
from holdfast.wire.inference_service_v1alpha1 import service_from_json
from holdfast.wire.yaml import read_documents

__all__ = ["leader_worker_sets"]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples" / "kubernetes" / "services").glob("*.yaml"))
GOLDEN = Path(__file__).parent / "examples_kubernetes"
PATHS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Service": "/api/v1/namespaces/{}/services",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "LeaderWorkerSet": "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}


# Any: objects of the Kubernetes API, here and below.
def load(file: Path, namespace: str = "models") -> dict[str, Any]:
    (found,) = read_documents(file.read_bytes(), source=file.name)
    document: Any = found.value
    document["metadata"]["namespace"] = namespace
    return document


SERVED = {
    "llamacpp-cpu": "llamacpp",
    "ollama": "ollama",
    "sglang-multi-node": "sglang",
    "tei": "tei",
    "tgi": "tgi",
    "triton": "triton",
    "vllm-70b": "vllm",
    "vllm-amd": "vllm",
    "vllm-lora": "vllm",
}


def test_each_way_of_serving_that_people_use_has_an_example() -> None:
    found = {file.stem: service_from_json(load(file)).spec for file in EXAMPLES}
    assert {name: spec.backend for name, spec in found.items()} == SERVED
    large = found["vllm-70b"]
    assert large.cache is not None and large.resources is not None
    assert (large.resources.gpus, [*(large.secrets or {})]) == (4, ["HF_TOKEN"])
    assert found["sglang-multi-node"].multi_node
    assert found["vllm-lora"].adapters and found["vllm-lora"].model_volume
    triton = found["triton"].service
    assert triton is not None and [port.name for port in triton.ports or ()] == ["grpc", "metrics"]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_rendered_as_it_was(file: Path) -> None:
    text = json.dumps(manifests(service_from_json(load(file)), Facts()), indent=1) + "\n"
    golden = GOLDEN / f"{file.stem}.json"
    if os.environ.get("HOLDFAST_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.cluster
def test_the_examples_and_what_is_made_of_them_are_taken(
    cluster: Cluster, leader_worker_sets: Cluster, namespace: str
) -> None:
    cluster.install_definitions(make_crd(INFERENCE_SERVICE))
    api = cluster.api()
    resources = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"
    strict = "?dryRun=All&fieldValidation=Strict"
    for file in EXAMPLES:
        example = load(file, namespace)
        assert api.request("POST", resources + strict, example)["spec"] == example["spec"]
        service = service_from_json(example)
        model = cached_model(service, canary=False)
        jobs = (
            [download_job(service, model, image="holdfast:1", claim_uid="uid-1")] if model else []
        )
        for item in (*manifests(service, Facts()), *jobs):
            made: Any = item
            path = PATHS[made["kind"]].format(namespace)
            assert api.request("POST", path + strict, made), file
