"""InferenceServices for tests: one that is right, and a table of everything that is wrong.

The same table is put to `validate()`, to the JSON reader and to a real API server, so that none
of them lets through what another refuses.
"""

from __future__ import annotations

import copy
from typing import Any

from tests.support.refused import refused

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


def canary(**given: Any) -> dict[str, Any]:
    return {"canary": {"modelRef": "llama3-8b-q8", "weight": 20, **given}}


COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL_IMAGE = "oci://registry.example/team/llama@sha256:" + "ab" * 32
DIGEST = "sha256:" + "cd" * 32
CACHE = {"size": "50Gi"}


def scaled(**autoscaling: Any) -> dict[str, Any]:
    return {"minReplicas": 1, "maxReplicas": 5, "autoscaling": autoscaling}


BEHAVIOR = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 600,
        "policies": [{"type": "Percent", "value": 50, "periodSeconds": 120}],
    },
}

REFUSED = [
    refused("no model", "modelRef", {"modelRef": ""}),
    refused("a blank model", "modelRef", {"modelRef": "  "}),
    refused("no replicas", "replicas", {"replicas": 0}),
    refused("negative replicas", "replicas", {"replicas": -1}),
    refused("bounds the wrong way round", "minReplicas", {"minReplicas": 10, "maxReplicas": 5}),
    refused("only a lower bound", "minReplicas", {"minReplicas": 2}),
    refused("only an upper bound", "minReplicas", {"maxReplicas": 5}),
    refused("several nodes that rest", "minReplicas",
            {"backend": "sglang", "nodes": 2, "minReplicas": 0, "maxReplicas": 2}),
    refused("a rest without a bound of zero", "autoscaling.idleAfter",
            {"minReplicas": 1, "maxReplicas": 5, "autoscaling": {"idleAfter": "1m"}}),
    refused("a negative bound", "minReplicas", {"minReplicas": -1, "maxReplicas": 5}),
    refused("replicas outside the bounds", "replicas",
            {"replicas": 2, "minReplicas": 3, "maxReplicas": 5}),
    refused("an autoscaler without bounds", "autoscaling", {"autoscaling": {"metric": "cpu"}}),
    refused("scaling by a cpu that is not requested", "autoscaling.metric",
            {"minReplicas": 1, "maxReplicas": 5, "resources": {"cpu": None}}),
    refused("a metric without a target", "autoscaling.target",
            {"minReplicas": 1, "maxReplicas": 5,
             "autoscaling": {"metric": "vllm:num_requests_waiting"}}),
    refused("metrics without a target", "autoscaling.metrics",
            scaled(metrics=[{"metric": "cpu"}, {"metric": "queued"}])),
    refused("metrics with a target of 0", "autoscaling.metrics",
            scaled(metrics=[{"metric": "queued", "target": 0}])),
    refused("no metrics", "autoscaling.metrics", scaled(metrics=[])),
    refused("one of several metrics that is not requested", "autoscaling.metric",
            {**scaled(metrics=[{"metric": "queued", "target": 1}, {"metric": "memory"}]),
             "resources": {"memory": None}}),
    refused("a metric beside several", "autoscaling",
            scaled(metric="cpu", metrics=[{"metric": "memory"}])),
    refused("a metric beside a preset", "autoscaling", scaled(metric="cpu", preset="queue")),
    refused("a target of none of several metrics", "autoscaling",
            scaled(target=5, metrics=[{"metric": "memory"}])),
    refused("a preset that is none", "autoscaling.preset", scaled(preset="latency")),
    refused("a preset that the backend has not", "autoscaling.preset",
            {"backend": "llamacpp", **scaled(preset="kv-cache")}),
    refused("a preset of an unknown backend", "autoscaling.preset",
            {"backend": "tei", "image": "x:1", **scaled(preset="queue")}),
    refused("a preset of a backend that reports no metrics", "autoscaling.preset",
            {"backend": "sglang", **scaled(preset="queue")}),
    refused("a command that reports no metrics", "autoscaling.preset",
            {"backend": "llamacpp", "command": ["llama-server"], **scaled(preset="queue")}),
    refused("a preset with a target of 0", "autoscaling.target", scaled(preset="queue", target=0)),
    refused("an unknown scaler", "autoscaling.scaler", scaled(scaler="cron")),
    refused("a metric that Prometheus cannot have", "autoscaling.scaler",
            scaled(scaler="keda", metric="queue-length", target=1)),
    refused("KEDA without a lower bound", "autoscaling.scaler",
            {"autoscaling": {"scaler": "keda"}}),
    refused("a policy without a period", "autoscaling.behavior.scaleUp.policies[0].periodSeconds",
            scaled(behavior={"scaleUp": {"policies": [{"type": "Pods", "value": 1}]}})),
    refused("a policy of nothing", "autoscaling.behavior.scaleUp.policies[0].value",
            scaled(behavior={"scaleUp": {
                "policies": [{"type": "Pods", "value": 0, "periodSeconds": 60}]}})),
    refused("a policy in other units", "autoscaling.behavior.scaleDown.policies[0].type",
            scaled(behavior={"scaleDown": {
                "policies": [{"type": "Nodes", "value": 1, "periodSeconds": 60}]}})),
    refused("a window of two hours", "autoscaling.behavior.scaleDown.stabilizationWindowSeconds",
            scaled(behavior={"scaleDown": {"stabilizationWindowSeconds": 7200}})),
    refused("a canary without a model", "canary.modelRef",
            {"canary": {"modelRef": "", "weight": 20}}),
    refused("a canary that differs in nothing", "canary", {"canary": {"weight": 20}}),
    refused("a canary with the primary's model", "canary", canary(modelRef="llama3-8b-q4")),
    refused("a weight of 101", "canary.weight", canary(weight=101)),
    refused("a weight of -1", "canary.weight", canary(weight=-1)),
    refused("an analysis without a bound", "canary.analysis",
            canary(analysis={"metric": "error_rate"})),
    refused("an analysis without a break", "canary.analysis.interval",
            canary(analysis={"metric": "error_rate", "max": 1, "interval": "0s"})),
    refused("an empty path", "healthCheck.path", {"healthCheck": {"path": ""}}),
    refused("a path without a slash", "healthCheck.path", {"healthCheck": {"path": "healthz"}}),
    refused("an interval of 0", "healthCheck.interval", {"healthCheck": {"interval": "0s"}}),
    refused("an interval of 0 nanoseconds", "healthCheck.interval",
            {"healthCheck": {"interval": 0}}),
    refused("a timeout of 0", "healthCheck.timeout", {"healthCheck": {"timeout": "0s"}}),
    refused("a timeout that is no duration", "healthCheck.timeout",
            {"healthCheck": {"timeout": "soon"}}),
    refused("a timeout in parts of a second", "healthCheck.timeout",
            {"healthCheck": {"timeout": "500ms"}}),
    refused("a timeout longer than the interval", "healthCheck.timeout",
            {"healthCheck": {"timeout": "11s"}}),
    refused("a start-up budget of two days", "healthCheck.startup",
            {"healthCheck": {"startup": "48h"}}),
    refused("a memory that is no quantity", "resources.memory",
            {"resources": {"memory": "16 gigs"}}),
    refused("a memory of 0", "resources.memory", {"resources": {"memory": "0Gi"}}),
    refused("gpu memory of 0", "resources.gpuMemory", {"resources": {"gpuMemory": "0"}}),
    refused("a cpu of 0", "resources.cpu", {"resources": {"cpu": "0"}}),
    refused("a negative cpu", "resources.cpu", {"resources": {"cpu": "-1"}}),
    refused("gpu memory without a gpu", "resources.gpuMemory", {"resources": {"gpu": 0}}),
    refused("too many gpus", "resources.gpu", {"resources": {"gpu": 65}}),
    refused("a backend without an image", "image", {"backend": "tei"}),
    refused("a backend that is not a slug", "backend", {"backend": "My Own"}),
    refused("a version of an image that is not used", "vllmVersion",
            {"image": "registry.example/vllm:1", "vllmVersion": "0.31.0"}),
    refused("an image with spaces", "image", {"image": "my image"}),
    refused("a variable said twice", "env",
            {"env": {"A": "1"}, "secrets": {"A": {"name": "s", "key": "k"}}}),
    refused("a variable that is taken", "env", {"env": {"PORT": "1"}}),
    refused("no variable name", "env", {"env": {"1A": "1"}}),
    refused("an unusable secret", "secrets.A",
            {"secrets": {"A": {"name": "Not Usable", "key": "k"}}}),
    refused("a port of its own", "args", {"args": ["--port", "9000"]}),
    refused("a port of its own, inline", "args", {"command": ["x", "--port=9"]}),
    refused("a port of the canary's own", "args", canary(args=["--port=9"])),
    refused("an empty command", "command", {"command": []}),
    refused("an unknown policy", "onDrift", {"onDrift": "panic"}),
    refused("an unknown task", "taskType", {"taskType": "magic"}),
    refused("a drain of nothing", "rollout.drainTimeout", {"rollout": {"drainTimeout": "0s"}}),
    refused("a suspension without a reason", "suspend.reason", {"suspend": {}}),
    refused("a suspension for no reason", "suspend.reason", {"suspend": {"reason": " "}}),
    refused("an end that is no time", "suspend.until",
            {"suspend": {"reason": "x", "until": "tomorrow"}}),
    refused("an end without an offset", "suspend.until",
            {"suspend": {"reason": "x", "until": "2026-11-20T18:00:00"}}),
    refused("an end on no day there is", "suspend.until",
            {"suspend": {"reason": "x", "until": "2026-02-31T18:00:00Z"}}),
    refused("no nodes", "nodes", {"nodes": 0}),
    refused("too many nodes", "nodes", {"nodes": 65}),
    refused("several nodes of a backend that cannot", "nodes",
            {"nodes": 2, "backend": "llamacpp"}),
    refused("several nodes of an unknown backend", "nodes",
            {"nodes": 2, "backend": "tei", "image": "x:1"}),
    refused("several nodes with a command", "command", {"nodes": 2, "command": ["vllm"]}),
    refused("several nodes with a canary", "canary", {"nodes": 2, **canary()}),
    refused("several nodes with a cache", "cache",
            {"nodes": 2, "modelRef": "org/m", "cache": {"size": "50Gi"}}),
    refused("several nodes by hand", "args", {"args": ["--nnodes", "2"]}),
    refused("several nodes by hand, inline", "args", {"args": ["--nnodes=2"]}),
    refused("a rank by hand", "args", {"nodes": 2, "args": ["--node-rank", "0"]}),
    refused("a secret to pull with that no object can be called", "imagePullSecrets[0]",
            {"imagePullSecrets": ["Not Usable"]}),
    refused("an account that no object can be called", "serviceAccountName",
            {"serviceAccountName": "Not_usable"}),
    refused("a volume at the root", "modelVolume.path",
            {"modelVolume": {"claim": "weights", "path": "/"}}),
    refused("a volume over the shared memory", "modelVolume.path",
            {"modelVolume": {"claim": "weights", "path": "/dev/shm"}}),
    refused("an image without a host", "modelRef", {"modelRef": "oci:///model@sha256:" + "0" * 64}),
    refused("half a digest", "modelRef", {"modelRef": "oci://registry.example/model@sha256:abc"}),
    refused("a canary with half a digest", "modelRef",
            canary(modelRef="oci://registry.example/model@sha256:abc")),
    refused("a path out of an image", "modelRef",
            {"modelRef": f"{MODEL_IMAGE}#../../etc/passwd"}),
    refused("an image for Ollama", "modelRef", {"backend": "ollama", "modelRef": MODEL_IMAGE}),
    refused("an image without a file for llama.cpp", "modelRef",
            {"backend": "llamacpp", "modelRef": MODEL_IMAGE}),
    refused("a revision with spaces", "modelRevision", {"modelRevision": "my branch"}),
    refused("a revision of a path", "modelRevision",
            {"modelRef": "/models/chat", "modelRevision": "main"}),
    refused("a revision of an image", "modelRevision",
            {"modelRef": MODEL_IMAGE, "modelRevision": "main"}),
    refused("a revision of a canary's image", "modelRevision",
            canary(modelRef=MODEL_IMAGE, modelRevision="main")),
    refused("a revision for Ollama", "modelRevision",
            {"backend": "ollama", "modelRevision": "main"}),
    refused("a revision that llama.cpp cannot take", "modelRevision",
            {"backend": "llamacpp", "modelRevision": "main"}),
    refused("a revision that a command of one's own does not get", "modelRevision",
            {"command": ["vllm", "serve", "${MODEL}"], "modelRevision": "main"}),
    refused("a revision said twice", "args",
            {"args": ["--revision=main"], "modelRevision": "main"}),
    refused("a cache of a path", "cache", {"modelRef": "/models/chat", "cache": CACHE}),
    refused("a cache of an image", "cache", {"modelRef": MODEL_IMAGE, "cache": CACHE}),
    refused("a cache for a canary's path", "cache", {"cache": CACHE, **canary(modelRef="/m")}),
    refused("a cache for Ollama", "cache", {"backend": "ollama", "cache": CACHE}),
    refused("a quantisation that vLLM does not know", "cache",
            {"modelRef": "org/name:Q8_0", "cache": CACHE}),
    refused("a cache without a size", "cache.size", {"cache": {"storageClass": "fast"}}),
    refused("an access mode of a claim that is none", "cache.accessMode",
            {"cache": {**CACHE, "accessMode": "ReadWriteNever"}}),
    refused("a digest that nothing checks", "modelDigest", {"modelDigest": DIGEST}),
    refused("a digest of a canary that nothing checks", "modelDigest",
            canary(modelDigest=DIGEST)),
    refused("a digest beside a path", "modelDigest",
            {"backend": "llamacpp", "modelRef": "/models/a.gguf", "modelDigest": DIGEST}),
    refused("half a digest of a canary's files", "canary.modelDigest",
            {"cache": CACHE, **canary(modelDigest="sha256:abc")}),
    refused("half a digest of files", "modelDigest",
            {"cache": CACHE, "modelDigest": "sha256:abc"}),
    refused("a volume over the cache", "modelVolume.path",
            {"cache": CACHE, "modelVolume": {"claim": "weights", "path": "/models"}}),
    refused("a canary with the primary's revision", "canary",
            {"modelRevision": "main", "canary": {"modelRevision": "main", "weight": 20}}),
    refused("a volume without a claim", "modelVolume.claim", {"modelVolume": {"path": "/models"}}),
    refused("adapters for an engine that takes none", "adapters",
            {"backend": "ollama", "adapters": [{"name": "sql", "source": "/sql"}]}),
    refused("two adapters of one name", "adapters",
            {"adapters": [{"name": "sql", "source": "/a"}, {"name": "sql", "source": "/b"}]}),
    refused("a scale for an engine that takes none", "adapters",
            {"adapters": [{"name": "sql", "source": "/a", "scale": 0.5}]}),
    refused("an adapter that llama.cpp would have to download", "adapters",
            {"backend": "llamacpp", "adapters": [{"name": "sql", "source": "org/sql"}]}),
    refused("adapters in the arguments too", "adapters",
            {"adapters": [], "args": ["--lora-modules=a=/b"]}),
    refused("adapters for a script", "adapters",
            {"adapters": [{"name": "sql", "source": "/a"}], "command": ["sh", "-c", "serve"]},
            server=False),
    refused("an adapter without a source", "adapters[0].source", {"adapters": [{"name": "sql"}]}),
    refused("an adapter whose name has spaces", "adapters[0].name",
            {"adapters": [{"name": "my sql", "source": "/a"}]}),
    refused("an accelerator without a domain", "resources.accelerators",
            {"resources": {"gpuMemory": None, "accelerators": {"gpu": 1}}}),
    refused("none of an accelerator", "resources.accelerators.amd.com/gpu",
            {"resources": {"gpuMemory": None, "accelerators": {"amd.com/gpu": 0}}}),
    refused("a GPU said twice", "resources.accelerators",
            {"resources": {"gpu": 1, "accelerators": {"nvidia.com/gpu": 1}}}),
    refused("memory of a GPU that is another's", "resources.gpuMemory",
            {"resources": {"accelerators": {"amd.com/gpu": 1}}}),
    refused("a claim of nothing", "resources.claims",
            {"resources": {"gpuMemory": None, "claims": [{"name": "gpu"}]}}),
    refused("a claim of both kinds", "resources.claims",
            {"resources": {"gpuMemory": None, "claims": [
                {"name": "gpu", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}]}}),
    refused("a variable of the canary that is taken", "env", canary(env={"PORT": "1"})),
    refused("a canary's variable said twice", "env",
            {"secrets": {"A": {"name": "s", "key": "k"}}, **canary(env={"A": "1"})}),
    refused("no variable name of a canary", "canary.env", canary(env={"1A": "1"})),
    refused("the port that is served", "service.ports",
            {"service": {"ports": [{"name": "more", "port": 8000}]}}),
    refused("the name of the port that is served", "service.ports",
            {"service": {"ports": [{"name": "http", "port": 80}]}}),
    refused("a port beyond all ports", "service.ports[0].port",
            {"service": {"ports": [{"name": "more", "port": 70_000}]}}),
    refused("an unknown type of Service", "service.type", {"service": {"type": "Headless"}}),
]  # fmt: skip

ACCEPTED: dict[str, dict[str, Any]] = {
    "as it is": {},
    "with a canary": canary(weight=50),
    "with bounds": {"minReplicas": 2, "maxReplicas": 10},
    "with adapters": {"adapters": [{"name": "sql", "source": "org/sql", "scale": 1}]},
    "with no adapters": {"adapters": []},
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
    "with several metrics": scaled(
        metrics=[{"metric": "cpu"}, {"metric": "vllm:num_requests_waiting", "target": 4}],
        behavior=BEHAVIOR,
    ),
    "with a preset": scaled(preset="kv-cache"),
    "with a preset of one's own target": {
        "backend": "sglang",
        "args": ["--enable-metrics"],
        **scaled(preset="queue", target=2.5),
    },
    "with a preset beside metrics, by KEDA": {
        "backend": "llamacpp",
        **scaled(preset="queue", metrics=[{"metric": "memory", "target": 70}], scaler="keda"),
    },
    "with several nodes": {"nodes": 2, "resources": {"gpu": 8}},
    "with a suspension": {"suspend": {"reason": "INC-1432", "until": "2020-11-20T18:00:00+02:00"}},
    "with a model from an image": {"modelRef": f"{MODEL_IMAGE}#models/llama"},
    "with a pinned model and a canary of its next revision": {
        "modelRevision": COMMIT,
        "canary": {"modelRevision": "v2", "weight": 20},
    },
    "with a pod template": {
        "podTemplate": {
            "metadata": {"labels": {"team": "chat"}},
            "spec": {"priorityClassName": "serving", "enableServiceLinks": None},
        }
    },
    "with further ports": {
        "service": {
            "type": "LoadBalancer",
            "annotations": {"example.com/scheme": "internal"},
            "ports": [
                {"name": "grpc", "port": 8001},
                {"name": "web", "port": 80, "targetPort": "http"},
                {"name": "metrics", "port": 9090, "targetPort": 8002, "protocol": "TCP"},
            ],
        }
    },
    "with accelerators": {
        "resources": {
            "gpuMemory": None,
            "accelerators": {"amd.com/gpu": 2, "rdma/hca": 1},
        }
    },
    "with claims": {
        "resources": {
            "gpuMemory": None,
            "claims": [
                {"name": "gpu", "resourceClaimTemplateName": "one-gpu", "request": "gpu"},
                {"name": "shared", "resourceClaimName": "fabric"},
            ],
        }
    },
    "with a canary of other variables and resources": {
        "env": {"A": "1", "B": "2"},
        "canary": {"weight": 20, "env": {"B": "3"}, "resources": {"memory": "32Gi"}},
    },
    "with a cache": {
        "modelRevision": COMMIT,
        "modelDigest": DIGEST,
        "cache": {"size": "50Gi", "storageClass": "fast", "accessMode": "ReadWriteMany"},
        "env": {"HF_ENDPOINT": "https://hub.example", "OTHER": "1"},
        "secrets": {"HF_TOKEN": {"name": "hub", "key": "token"}},
    },
    "with a cached file for llama.cpp": {
        "backend": "llamacpp",
        "modelRef": "org/name-GGUF:Q8_0",
        "modelRevision": "main",
        "cache": CACHE,
        **canary(modelRef="org/next-GGUF"),
    },
    "with a digest that Ollama is compared with": {
        "backend": "ollama",
        "modelRef": "llama3:8b",
        "modelDigest": DIGEST,
        "resources": None,
    },
    "with a digest of a canary's files": {
        "modelRef": "org/chat",
        "cache": CACHE,
        "canary": {"modelRevision": COMMIT, "modelDigest": DIGEST, "weight": 20},
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
