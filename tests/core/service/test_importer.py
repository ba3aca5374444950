"""What runs already becomes a workload that renders the same, and nothing is lost unseen."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from holdfast.core.errors import ValidationError
from holdfast.core.service.children import Facts, manifests
from holdfast.core.service.importer import ImportedDeployment, import_deployment
from holdfast.core.tree import Fields
from holdfast.core.workload import WorkloadSpec
from holdfast.wire.service_mapping import service_of
from holdfast.wire.spec_v1 import spec_from_document

SPECS: dict[str, dict[str, Any]] = {
    "vllm": {"backend": "vllm", "model": "meta-llama/Llama-3.1-8B-Instruct"},
    "vllm with arguments": {
        "backend": "vllm",
        "model": "org/m",
        "args": ["--max-model-len", "8192", "--enable-prefix-caching"],
        "resources": {"cpu": "4", "memory": "16Gi", "gpu": 2, "gpu_memory": "24Gi"},
        "env": {"VLLM_LOGGING_LEVEL": "INFO"},
        "secrets": {"HF_TOKEN": {"name": "hub", "key": "token"}},
        "rollout": {"max_surge": 1, "drain_timeout": "90s"},
        "health": {"interval": "7s", "timeout": "3s", "startup": "20m"},
    },
    "vllm of another version": {"backend": "vllm", "model": "org/m", "vllm_version": "0.31.0"},
    "vllm of the default version": {"backend": "vllm", "model": "org/m", "vllm_version": "0.32.0"},
    "vllm by a command of its own": {
        "backend": "vllm",
        "model": "org/m",
        "command": "vllm serve ${MODEL} --port ${PORT} --max-model-len 4096",
    },
    "vllm from another image": {
        "backend": "vllm",
        "model": "org/m",
        "image": "registry.example/vllm:1",
        "args": ["--served-model-name", "one", "two"],
    },
    "vllm-omni": {"backend": "vllm-omni", "model": "org/o", "image": "registry.example/omni:1"},
    "sglang": {"backend": "sglang", "model": "org/m", "args": ["--mem-fraction-static", "0.8"]},
    "sglang over gpus": {"backend": "sglang", "model": "org/m", "resources": {"gpu": 4}},
    "llamacpp": {"backend": "llamacpp", "model": "org/m-GGUF:Q4_K_M", "args": ["-c", "4096"]},
    "llamacpp with a file": {"backend": "llamacpp", "model": "/models/m.gguf"},
    "ollama": {"backend": "ollama", "model": "qwen3:4b", "env": {"OLLAMA_KEEP_ALIVE": "-1"}},
    "ollama asked on a path": {
        "backend": "ollama",
        "model": "qwen3:4b",
        "health": {"path": "/api/tags"},
    },
    "a backend of one's own": {
        "backend": "tei",
        "model": "BAAI/bge-m3",
        "image": "ghcr.io/huggingface/text-embeddings-inference:1.8",
        "args": ["--model-id", "${MODEL}", "--port", "${PORT}"],
        "health": {"path": "/health", "startup": "5m"},
    },
    "autoscaled by cpu": {
        "backend": "vllm",
        "model": "org/m",
        "resources": {"cpu": "4"},
        "autoscaling": {"min": 1, "max": 5},
    },
    "autoscaled by a metric": {
        "backend": "vllm",
        "model": "org/m",
        "autoscaling": {"min": 2, "max": 8, "metric": "vllm:num_requests_waiting", "target": 2.5},
    },
}


@pytest.mark.parametrize("given", SPECS.values(), ids=list(SPECS))
def test_what_was_rendered_is_imported_as_what_renders_the_same(given: dict[str, Any]) -> None:
    spec = WorkloadSpec(name="support-bot", replicas=_replicas(given), **given)
    first = render(spec)
    found = read(first)
    assert found.unsupported == ()
    assert found.scheduling == {}
    again = spec_from_document({"project": found.namespace, **found.fields})
    assert render(again) == first
    assert read(render(again)).fields == found.fields


FOREIGN = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: llama
  namespace: chat
  labels: {app: llama, team: research}
spec:
  replicas: 3
  strategy: {type: Recreate}
  template:
    metadata:
      annotations: {prometheus.io/scrape: "true"}
    spec:
      serviceAccountName: puller
      nodeSelector: {pool: gpu}
      initContainers: [{name: fetch, image: curl}]
      volumes:
        - {name: cache, persistentVolumeClaim: {claimName: cache}}
        - {name: shm, emptyDir: {medium: Memory}}
      containers:
        - name: llm
          image: vllm/vllm-openai:v0.10.2
          command: [/bin/sh, -c]
          args: ["exec vllm serve meta-llama/Llama-3.1-8B --port 8080 --max-model-len 8192"]
          env:
            - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}
            - {name: OPENAI_API_KEY, value: sk-proj-abcdefghijklmnopqrstuvwxyz0123456789}
            - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
            - {name: LOG_LEVEL, value: info}
          envFrom: [{configMapRef: {name: settings}}]
          ports: [{containerPort: 8080}]
          resources:
            requests: {cpu: "4", memory: 16Gi}
            limits: {cpu: "8", memory: 32Gi, nvidia.com/gpu: "1", ephemeral-storage: 10Gi}
          readinessProbe:
            httpGet: {path: /health, port: 8080}
            periodSeconds: 5
            timeoutSeconds: 2
          livenessProbe: {tcpSocket: {port: 8080}, initialDelaySeconds: 120}
          volumeMounts:
            - {name: cache, mountPath: /root/.cache}
            - {name: shm, mountPath: /dev/shm}
        - {name: exporter, image: exporter}
"""


def test_a_deployment_of_somebody_else_is_read_as_far_as_a_workload_goes() -> None:
    found = import_deployment(yaml.safe_load(FOREIGN))
    spec = spec_from_document({"project": found.namespace, **found.fields})
    assert spec.slug == "llama" and spec.project == "chat"
    assert spec.backend == "vllm" and spec.model == "meta-llama/Llama-3.1-8B"
    assert spec.image == "vllm/vllm-openai:v0.10.2"
    assert spec.args == ("--max-model-len", "8192")
    assert spec.command is None and spec.config is None
    assert spec.env == {"LOG_LEVEL": "info"}
    assert spec.secrets is not None and spec.secrets["HF_TOKEN"].name == "hub"
    assert spec.resources is not None and spec.health is not None
    assert (spec.resources.cpu, spec.resources.memory, spec.resources.gpu) == ("4", "32Gi", 1)
    assert (spec.health.path, spec.health.interval) == (None, "5s")
    assert (spec.health.timeout, spec.health.startup) == ("2s", "150s")
    assert spec.replicas == 3
    assert found.scheduling == {"nodeSelector": {"pool": "gpu"}}


def test_accelerators_are_taken_over_by_their_names() -> None:
    deployment = yaml.safe_load(FOREIGN)
    (server, *_) = deployment["spec"]["template"]["spec"]["containers"]
    server["resources"] = {"limits": {"amd.com/gpu": "2", "rdma/hca": 1}}
    found = import_deployment(deployment)
    assert found.fields["resources"] == {"accelerators": {"amd.com/gpu": 2, "rdma/hca": 1}}
    assert not [each for each in found.unsupported if each.field.startswith("resources")]


def test_everything_that_is_not_taken_over_is_named() -> None:
    unsupported = import_deployment(yaml.safe_load(FOREIGN)).unsupported
    assert {each.field for each in unsupported} == {
        "args", "labels", "annotations", "strategy", "serviceAccountName", "initContainers",
        "volumes[name=cache]", "containers[name=exporter]", "env.OPENAI_API_KEY", "env.NODE",
        "envFrom", "resources.limits.cpu", "resources.memory", "resources.ephemeral-storage",
        "livenessProbe", "probes",
    }  # fmt: skip
    assert "sk-proj" not in str(unsupported)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (
            {"image": "vllm/vllm-openai:v0.10.2", "args": ["--model", "org/m", "--tp", "2"]},
            {"backend": "vllm", "model": "org/m", "args": ["--tp", "2"]},
        ),
        (
            {"image": "vllm/vllm-openai:v0.10.2", "args": ["org/m"]},
            {"backend": "vllm", "model": "org/m"},
        ),
        (
            {
                "image": "x/y:1",
                "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
                "args": ["--model=org/m", "--seed", "1"],
            },
            {
                "backend": "vllm",
                "model": "org/m",
                "config": {"entrypoint": ["python3", "-m", "vllm.entrypoints.openai.api_server"]},
                "args": ["--model=org/m", "--seed", "1"],
            },
        ),
        (
            {
                "image": "x/y:1",
                "command": ["python3", "-m", "sglang.launch_server", "--model-path", "org/m"],
            },
            {"backend": "sglang", "model": "org/m"},
        ),
        (
            {"image": "ghcr.io/ggml-org/llama.cpp:server", "args": ["-m", "/m.gguf", "-c", "9"]},
            {"backend": "llamacpp", "model": "/m.gguf", "args": ["-c", "9"]},
        ),
        (
            {"image": "ghcr.io/ggml-org/llama.cpp:server", "args": ["-hf", "org/m", "--port=80"]},
            {"backend": "llamacpp", "model": "org/m"},
        ),
        (
            {"image": "x:1", "command": ["/opt/llama-server", "-m", "m.gguf"]},
            {
                "backend": "llamacpp",
                "model": "m.gguf",
                "config": {"entrypoint": ["/opt/llama-server", "-m", "${MODEL}"]},
            },
        ),
        (
            {"image": "ollama/ollama:0.9", "env": [{"name": "OLLAMA_MODEL", "value": "q:4b"}]},
            {"backend": "ollama", "model": "q:4b"},
        ),
        (
            {
                "image": "x:1",
                "command": ["sh", "-c", "vllm serve $THE_MODEL --model org/m && true"],
            },
            {
                "backend": "vllm",
                "model": "org/m",
                "config": {
                    "entrypoint": ["sh", "-c", "vllm serve $THE_MODEL --model org/m && true"]
                },
            },
        ),
        (
            {"image": "quay.io/acme/my-server:2", "args": ["--model-id", "org/m", "--port", "80"]},
            {
                "backend": "my-server",
                "model": "org/m",
                "args": ["--model-id", "${MODEL}", "--port", "${PORT}"],
            },
        ),
    ],
    ids=lambda value: str(value.get("image", "")),
)
def test_the_engine_and_its_model_are_told_from_how_it_is_started(
    container: Fields, expected: Fields
) -> None:
    found = import_deployment(deployment(container)).fields
    own = ("backend", "model", "args", "config")
    assert {name: value for name, value in found.items() if name in own} == expected
    spec_from_document(found)


def test_a_model_that_nothing_names_is_asked_for() -> None:
    server = deployment({"image": "registry.example/server:1"})
    with pytest.raises(ValidationError, match="--model") as raised:
        import_deployment(server)
    assert raised.value.problems[0].field == "model"
    given = import_deployment(server, model="org/m", backend="vllm").fields
    assert (given["model"], given["backend"]) == ("org/m", "vllm")


def test_credentials_in_arguments_are_left_out_by_name() -> None:
    found = import_deployment(
        deployment(
            {"image": "vllm/vllm-openai:v1", "args": ["org/m", "--api-key", "abc12345", "--seed=1"]}
        )
    )
    assert found.fields["args"] == ["--seed=1"]
    assert any("--api-key" in each.reason for each in found.unsupported)
    assert "abc12345" not in str(found)


def deployment(container: Fields) -> Fields:
    pod: Fields = {"containers": [{"name": "main", **container}]}
    return {
        "kind": "Deployment",
        "metadata": {"name": "server"},
        "spec": {"template": {"spec": pod}},
    }


def render(spec: WorkloadSpec) -> list[Fields]:
    return list(manifests(service_of(spec, namespace="chat"), Facts()))


def read(objects: list[Fields]) -> ImportedDeployment:
    kinds: dict[Any, Fields] = {each["kind"]: each for each in objects}
    return import_deployment(kinds["Deployment"], autoscaler=kinds.get("HorizontalPodAutoscaler"))


def _replicas(given: dict[str, Any]) -> int | None:
    return None if "autoscaling" in given else 2
