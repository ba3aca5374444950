"""InferenceServices for tests: one that is right, and a table of everything that is wrong.

The same table is put to `validate()`, to the JSON reader and to a real API server, so that none
of them lets through what another refuses.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from holdfast.core.service.spec import API_VERSION, KIND


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def document(
    change: dict[str, Any] | None = None, *, name: str = "my-llama", namespace: str = "default"
) -> dict[str, Any]:
    """The service of the reference's own tests, with some fields changed; None removes one."""
    spec: dict[str, Any] = {
        "modelRef": "llama3-8b-q4",
        "replicas": 2,
        "resources": {"cpu": "4", "memory": "16Gi", "gpuMemory": "24Gi"},
        "healthCheck": {"path": "/healthz", "interval": "10s", "timeout": "5s"},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": merged(spec, change or {}),
    }


def merged(old: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    new = copy.deepcopy(old)
    for key, value in change.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict) and isinstance(new.get(key), dict):
            new[key] = merged(new[key], value)
        else:
            new[key] = value
    return new


@dataclass(frozen=True, kw_only=True)
class RefusedService:
    """A change of the right service that makes it wrong, and the field that is blamed."""

    why: str
    change: dict[str, Any]
    field: str


def canary(**given: Any) -> dict[str, Any]:
    return {"canary": {"modelRef": "llama3-8b-q8", "weight": 20, **given}}


REFUSED = [
    RefusedService(why="no model", change={"modelRef": ""}, field="modelRef"),
    RefusedService(why="a blank model", change={"modelRef": "  "}, field="modelRef"),
    RefusedService(why="no replicas", change={"replicas": 0}, field="replicas"),
    RefusedService(why="negative replicas", change={"replicas": -1}, field="replicas"),
    RefusedService(
        why="bounds the wrong way round",
        change={"minReplicas": 10, "maxReplicas": 5},
        field="minReplicas",
    ),
    RefusedService(why="only a lower bound", change={"minReplicas": 2}, field="minReplicas"),
    RefusedService(why="only an upper bound", change={"maxReplicas": 5}, field="minReplicas"),
    RefusedService(
        why="a bound of zero",
        change={"minReplicas": 0, "maxReplicas": 5},
        field="minReplicas",
    ),
    RefusedService(
        why="a negative bound",
        change={"minReplicas": -1, "maxReplicas": 5},
        field="minReplicas",
    ),
    RefusedService(
        why="replicas outside the bounds",
        change={"replicas": 2, "minReplicas": 3, "maxReplicas": 5},
        field="replicas",
    ),
    RefusedService(
        why="an autoscaler without bounds",
        change={"autoscaling": {"metric": "cpu"}},
        field="autoscaling",
    ),
    RefusedService(
        why="scaling by a cpu that is not requested",
        change={"minReplicas": 1, "maxReplicas": 5, "resources": {"cpu": None}},
        field="autoscaling.metric",
    ),
    RefusedService(
        why="a metric without a target",
        change={
            "minReplicas": 1,
            "maxReplicas": 5,
            "autoscaling": {"metric": "vllm:num_requests_waiting"},
        },
        field="autoscaling.target",
    ),
    RefusedService(
        why="a canary without a model",
        change={"canary": {"modelRef": "", "weight": 20}},
        field="canary.modelRef",
    ),
    RefusedService(
        why="a canary that differs in nothing", change={"canary": {"weight": 20}}, field="canary"
    ),
    RefusedService(
        why="a canary with the primary's model",
        change=canary(modelRef="llama3-8b-q4"),
        field="canary",
    ),
    RefusedService(why="a weight of 101", change=canary(weight=101), field="canary.weight"),
    RefusedService(why="a weight of -1", change=canary(weight=-1), field="canary.weight"),
    RefusedService(
        why="an analysis without a bound",
        change=canary(analysis={"metric": "error_rate"}),
        field="canary.analysis",
    ),
    RefusedService(
        why="an analysis without a break",
        change=canary(analysis={"metric": "error_rate", "max": 1, "interval": "0s"}),
        field="canary.analysis.interval",
    ),
    RefusedService(
        why="an empty path", change={"healthCheck": {"path": ""}}, field="healthCheck.path"
    ),
    RefusedService(
        why="a path without a slash",
        change={"healthCheck": {"path": "healthz"}},
        field="healthCheck.path",
    ),
    RefusedService(
        why="an interval of 0",
        change={"healthCheck": {"interval": "0s"}},
        field="healthCheck.interval",
    ),
    RefusedService(
        why="an interval of 0 nanoseconds",
        change={"healthCheck": {"interval": 0}},
        field="healthCheck.interval",
    ),
    RefusedService(
        why="a timeout of 0", change={"healthCheck": {"timeout": "0s"}}, field="healthCheck.timeout"
    ),
    RefusedService(
        why="a timeout that is no duration",
        change={"healthCheck": {"timeout": "soon"}},
        field="healthCheck.timeout",
    ),
    RefusedService(
        why="a timeout in parts of a second",
        change={"healthCheck": {"timeout": "500ms"}},
        field="healthCheck.timeout",
    ),
    RefusedService(
        why="a timeout longer than the interval",
        change={"healthCheck": {"timeout": "11s"}},
        field="healthCheck.timeout",
    ),
    RefusedService(
        why="a start-up budget of two days",
        change={"healthCheck": {"startup": "48h"}},
        field="healthCheck.startup",
    ),
    RefusedService(
        why="a memory that is no quantity",
        change={"resources": {"memory": "16 gigs"}},
        field="resources.memory",
    ),
    RefusedService(
        why="a memory of 0", change={"resources": {"memory": "0Gi"}}, field="resources.memory"
    ),
    RefusedService(
        why="gpu memory of 0",
        change={"resources": {"gpuMemory": "0"}},
        field="resources.gpuMemory",
    ),
    RefusedService(why="a cpu of 0", change={"resources": {"cpu": "0"}}, field="resources.cpu"),
    RefusedService(
        why="a negative cpu", change={"resources": {"cpu": "-1"}}, field="resources.cpu"
    ),
    RefusedService(
        why="gpu memory without a gpu",
        change={"resources": {"gpu": 0}},
        field="resources.gpuMemory",
    ),
    RefusedService(why="too many gpus", change={"resources": {"gpu": 65}}, field="resources.gpu"),
    RefusedService(why="a backend without an image", change={"backend": "tei"}, field="image"),
    RefusedService(
        why="a backend that is not a slug", change={"backend": "My Own"}, field="backend"
    ),
    RefusedService(
        why="a version of an image that is not used",
        change={"image": "registry.example/vllm:1", "vllmVersion": "0.31.0"},
        field="vllmVersion",
    ),
    RefusedService(why="an image with spaces", change={"image": "my image"}, field="image"),
    RefusedService(
        why="a variable said twice",
        change={"env": {"A": "1"}, "secrets": {"A": {"name": "s", "key": "k"}}},
        field="env",
    ),
    RefusedService(why="a variable that is taken", change={"env": {"PORT": "1"}}, field="env"),
    RefusedService(why="no variable name", change={"env": {"1A": "1"}}, field="env"),
    RefusedService(
        why="an unusable secret",
        change={"secrets": {"A": {"name": "Not Usable", "key": "k"}}},
        field="secrets.A",
    ),
    RefusedService(why="a port of its own", change={"args": ["--port", "9000"]}, field="args"),
    RefusedService(
        why="a port of its own, inline", change={"command": ["x", "--port=9"]}, field="args"
    ),
    RefusedService(
        why="a port of the canary's own", change=canary(args=["--port=9"]), field="args"
    ),
    RefusedService(why="an empty command", change={"command": []}, field="command"),
    RefusedService(why="an unknown policy", change={"onDrift": "panic"}, field="onDrift"),
    RefusedService(why="an unknown task", change={"taskType": "magic"}, field="taskType"),
    RefusedService(
        why="a drain of nothing",
        change={"rollout": {"drainTimeout": "0s"}},
        field="rollout.drainTimeout",
    ),
    RefusedService(
        why="a secret to pull with that no object can be called",
        change={"imagePullSecrets": ["Not Usable"]},
        field="imagePullSecrets[0]",
    ),
    RefusedService(
        why="an account that no object can be called",
        change={"serviceAccountName": "Not_usable"},
        field="serviceAccountName",
    ),
    RefusedService(
        why="a volume at the root",
        change={"modelVolume": {"claim": "weights", "path": "/"}},
        field="modelVolume.path",
    ),
    RefusedService(
        why="a volume over the shared memory",
        change={"modelVolume": {"claim": "weights", "path": "/dev/shm"}},
        field="modelVolume.path",
    ),
    RefusedService(
        why="a volume without a claim",
        change={"modelVolume": {"path": "/models"}},
        field="modelVolume.claim",
    ),
]

ACCEPTED: dict[str, dict[str, Any]] = {
    "as it is": {},
    "with a canary": canary(weight=50),
    "with bounds": {"minReplicas": 2, "maxReplicas": 10},
    "with bounds of zero": {"minReplicas": 0, "maxReplicas": 0},
    "with durations in nanoseconds": {
        "healthCheck": {"interval": 10_000_000_000, "timeout": 5_000_000_000}
    },
    "with quantities as numbers": {"resources": {"cpu": 4}},
    "with the model alone": {"replicas": None, "resources": None, "healthCheck": None},
    "with the port that is given": {"args": ["--port", "${PORT}"]},
    "with a private image and a volume": {
        "image": "registry.example/vllm:1",
        "imagePullSecrets": ["registry", "mirror.example"],
        "serviceAccountName": "models",
        "modelVolume": {"claim": "weights", "path": "/models", "readOnly": True},
    },
    "with a weight of 0": canary(weight=0),
    "with a weight of 100": canary(weight=100),
    "with everything": {
        "backend": "vllm",
        "displayName": "My Llama",
        "description": "A bot.",
        "taskType": "text2text",
        "image": "registry.example/vllm:1",
        "command": ["vllm", "serve", "${MODEL}"],
        "args": ["--max-model-len", "8192"],
        "env": {"A": "1"},
        "secrets": {"HF_TOKEN": {"name": "hub", "key": "token"}},
        "minReplicas": 2,
        "maxReplicas": 10,
        "autoscaling": {"metric": "vllm:num_requests_waiting", "target": 2.5},
        "resources": {"gpu": 2},
        "canary": {
            "modelRef": "llama3-8b-q8",
            "weight": 20,
            "image": "registry.example/vllm:2",
            "args": ["--max-model-len", "4096"],
            "replicas": 1,
            "analysis": {"metric": "error_rate", "max": 0.1, "interval": "30s", "rounds": 3},
        },
        "healthCheck": {"startup": "20m"},
        "rollout": {"maxSurge": 1, "drainTimeout": "90s"},
        "scheduling": {
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {"podAntiAffinity": {}},
        },
        "onDrift": "warn",
    },
}
