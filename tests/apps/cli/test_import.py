"""`holdfast import` writes a spec, and says what it could not write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.inference_services import ACCEPTED, document

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "vllm", "namespace": "chat"},
    "spec": {
        "replicas": 2,
        "template": {
            "spec": {
                "nodeSelector": {"pool": "gpu"},
                "containers": [
                    {
                        "name": "main",
                        "image": "vllm/vllm-openai:v0.10.2",
                        "args": ["--model", "org/m", "--max-model-len", "8192"],
                    }
                ],
            }
        },
    },
}
AUTOSCALER = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "vllm", "namespace": "chat"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "vllm"},
        "minReplicas": 1,
        "maxReplicas": 4,
    },
}


def test_a_deployment_on_stdin_becomes_a_spec_that_validates(holdfast: Any) -> None:
    run = holdfast("import", "-f", "-", stdin=json.dumps(DEPLOYMENT))
    assert run.code == 0
    assert yaml.safe_load(run.out) == {
        "apiVersion": "holdfast.dev/v1",
        "kind": "Workload",
        "slug": "vllm",
        "project": "chat",
        "name": "vllm",
        "model": "org/m",
        "backend": "vllm",
        "image": "vllm/vllm-openai:v0.10.2",
        "args": ["--max-model-len", "8192"],
        "replicas": 2,
    }
    assert "nodeSelector was left out" in run.err
    assert "stays until you" in run.err
    Path("vllm.yaml").write_text(run.out)
    assert holdfast("validate", "-f", "vllm.yaml").code == 0


def test_an_inference_service_carries_the_nodes_too(holdfast: Any) -> None:
    run = holdfast("import", "-f", "-", "--as", "inferenceservice", stdin=json.dumps(DEPLOYMENT))
    service = yaml.safe_load(run.out)
    assert service["spec"]["scheduling"] == {"nodeSelector": {"pool": "gpu"}}
    assert service["metadata"] == {"name": "vllm", "namespace": "chat"}
    assert "nodeSelector" not in run.err


def test_the_autoscaler_beside_it_gives_the_bounds(holdfast: Any) -> None:
    whole = {"kind": "List", "apiVersion": "v1", "items": [AUTOSCALER, DEPLOYMENT]}
    run = holdfast("import", "-f", "-", stdin=json.dumps(whole))
    spec = yaml.safe_load(run.out)
    assert spec["autoscaling"] == {"min": 1, "max": 4} and "replicas" not in spec


def test_an_autoscaler_of_something_else_does_not(holdfast: Any) -> None:
    other = json.loads(json.dumps(AUTOSCALER).replace('"name": "vllm"}', '"name": "other"}'))
    whole = {"kind": "List", "apiVersion": "v1", "items": [other, DEPLOYMENT]}
    assert yaml.safe_load(holdfast("import", "-f", "-", stdin=json.dumps(whole)).out)["replicas"]


@pytest.mark.parametrize("change", ACCEPTED.values(), ids=list(ACCEPTED))
def test_an_inference_service_becomes_a_spec(holdfast: Any, change: dict[str, Any]) -> None:
    run = holdfast("import", "-f", "-", stdin=json.dumps(document(change)))
    assert run.code == 0, run.err
    assert yaml.safe_load(run.out)["slug"] == "my-llama"
    left = [name for name in ("scheduling", "onDrift") if f"{name} was left out" in run.err]
    assert left == [name for name in ("scheduling", "onDrift") if name in change]


def test_a_child_of_an_inference_service_is_imported_with_a_warning(
    holdfast: Any, chat: Path
) -> None:
    made = holdfast("render", "-f", str(chat), "--as", "objects").out
    child = next(each for each in yaml.safe_load_all(made) if each["kind"] == "Deployment")
    child["metadata"]["ownerReferences"] = [{"kind": "InferenceService", "name": "support-bot"}]
    run = holdfast("import", "-f", "-", stdin=json.dumps(child))
    assert run.code == 0 and "InferenceService support-bot" in run.err


@pytest.mark.parametrize(
    "args",
    [(), ("deployment/vllm", "-f", "-"), ("vllm",), ("pod/vllm",), ("deployment/",)],
    ids=["nothing", "both", "no kind", "another kind", "no name"],
)
def test_what_cannot_be_meant_is_a_usage_error(holdfast: Any, args: tuple[str, ...]) -> None:
    assert holdfast("import", *args, stdin="").code == 64


def test_a_file_without_a_workload_is_refused(holdfast: Any) -> None:
    run = holdfast("import", "-f", "-", stdin="kind: ConfigMap\nmetadata: {name: a}\n")
    assert run.code == 1 and "no Deployment" in run.err


def test_a_context_that_is_not_there_is_named(holdfast: Any, home: Path) -> None:
    run = holdfast("import", "deployment/vllm", "--kubeconfig", str(home / "none"))
    assert run.code == 1 and "no kubeconfig" in run.err
