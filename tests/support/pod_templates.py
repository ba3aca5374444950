"""Overlays of pods for tests: what people set, each by itself, and what is refused.

Rendered to golden files, put beside the API server's own strategic merge, and applied by the
operator in memory and on a real cluster.
"""

from __future__ import annotations

from typing import Any

from tests.support.refused import RefusedSpec, refused


# Any: parts of objects of the Kubernetes API, here and below.
def server(**fields: Any) -> dict[str, Any]:
    """A change of the container that serves."""
    return {"spec": {"containers": [{"name": "server", **fields}]}}


OVERLAYS: dict[str, dict[str, Any]] = {
    "labels-and-annotations": {
        "metadata": {
            "labels": {"team": "chat", "app.kubernetes.io/version": "7"},
            "annotations": {"prometheus.io/scrape": "true", "sidecar.istio.io/inject": "false"},
        }
    },
    "volumes": {
        "spec": {
            "volumes": [
                {"name": "templates", "configMap": {"name": "chat-templates"}},
                {"name": "scratch", "emptyDir": {"sizeLimit": "20Gi"}},
            ],
            "containers": [
                {
                    "name": "server",
                    "volumeMounts": [
                        {"mountPath": "/templates", "name": "templates", "readOnly": True},
                        {"mountPath": "/scratch", "name": "scratch"},
                    ],
                }
            ],
        }
    },
    "shared-memory-of-a-size": {
        "spec": {
            "volumes": [
                {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
            ]
        }
    },
    "no-shared-memory": {
        "spec": {
            "volumes": [{"name": "shared-memory", "$patch": "delete"}],
            "containers": [
                {
                    "name": "server",
                    "volumeMounts": [{"mountPath": "/dev/shm", "$patch": "delete"}],
                }
            ],
        }
    },
    "init-container": {
        "spec": {
            "initContainers": [
                {
                    "name": "tune",
                    "image": "registry.example/tune:1",
                    "command": ["tune", "--nofile", "65536"],
                    "securityContext": {"allowPrivilegeEscalation": False},
                }
            ]
        }
    },
    "sidecar": {
        "spec": {
            "containers": [
                {
                    "name": "exporter",
                    "image": "registry.example/exporter:1",
                    "args": ["--target", "http://127.0.0.1:8000"],
                    "ports": [{"containerPort": 9400, "name": "metrics", "protocol": "TCP"}],
                    "env": [
                        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
                    ],
                    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                }
            ]
        }
    },
    "native-sidecar": {
        "spec": {
            "initContainers": [
                {
                    "name": "proxy",
                    "image": "registry.example/proxy:1",
                    "restartPolicy": "Always",
                    "ports": [{"containerPort": 9000, "name": "proxy", "protocol": "TCP"}],
                }
            ]
        }
    },
    "priority-runtime-and-spread": {
        "spec": {
            "priorityClassName": "serving",
            "runtimeClassName": "nvidia",
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"holdfast.dev/workload": "my-llama"}},
                }
            ],
        }
    },
    "security-contexts": {
        "spec": {
            "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001},
            "containers": [{"name": "server", "securityContext": {"readOnlyRootFilesystem": True}}],
        }
    },
    "variables": server(
        env=[
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "NCCL_DEBUG", "value": "WARN"},
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
        ],
        envFrom=[{"configMapRef": {"name": "settings"}}],
    ),
    "another-readiness-probe": server(
        readinessProbe={"exec": {"command": ["/bin/ready"]}, "periodSeconds": 3},
        livenessProbe=None,
        lifecycle={"preStop": {"sleep": {"seconds": 20}}},
    ),
    "ports-and-limits": server(
        ports=[{"containerPort": 8001, "name": "grpc", "protocol": "TCP"}],
        resources={"limits": {"cpu": "8", "ephemeral-storage": "10Gi"}},
        imagePullPolicy="Always",
    ),
    "replaced-lists-and-mappings": {
        "spec": {
            "securityContext": {"$patch": "replace", "runAsUser": 1000},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "enableServiceLinks": None,
            "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["hub.internal"]}],
            "imagePullSecrets": [{"name": "registry"}],
        }
    },
}
ONE_OF_SEVERAL = ("another-readiness-probe",)
"""Where we drop our handler for the given one; a plain strategic merge would leave two."""


def _refused(why: str, field: str, overlay: dict[str, Any]) -> RefusedSpec:
    return refused(why, field, {"podTemplate": overlay})


REFUSED_OVERLAYS = [
    _refused("a selector label", "podTemplate.metadata.labels.holdfast.dev/workload",
             {"metadata": {"labels": {"holdfast.dev/workload": "other"}}}),
    _refused("the annotation of the model", "podTemplate.metadata.annotations.holdfast.dev/model",
             {"metadata": {"annotations": {"holdfast.dev/model": "other"}}}),
    _refused("the server deleted", "podTemplate.spec.containers[name=server]",
             server(**{"$patch": "delete"})),
    _refused("the server replaced", "podTemplate.spec.containers[name=server]",
             server(**{"$patch": "replace"}, image="x:1")),
    _refused("all containers replaced", "podTemplate.spec.containers",
             {"spec": {"containers": [{"$patch": "replace"}, {"name": "other", "image": "x:1"}]}}),
    _refused("all containers removed", "podTemplate.spec.containers",
             {"spec": {"containers": None}}),
    _refused("the whole pod replaced", "podTemplate.spec.containers",
             {"spec": {"$patch": "replace"}}),
    _refused("an image of the server", "podTemplate.spec.containers[name=server].image",
             server(image="x:1")),
    _refused("a command of the server", "podTemplate.spec.containers[name=server].command",
             server(command=["x"])),
    _refused("no readiness probe", "podTemplate.spec.containers[name=server].readinessProbe",
             server(readinessProbe=None)),
    _refused("the port deleted", "podTemplate.spec.containers[name=server].ports",
             server(ports=[{"containerPort": 8000, "$patch": "delete"}])),
    _refused("the port renamed", "podTemplate.spec.containers[name=server].ports",
             server(ports=[{"containerPort": 8000, "name": "web"}])),
    _refused("the name of the port taken", "podTemplate.spec.containers[name=server].ports",
             server(ports=[{"containerPort": 9000, "name": "http"}])),
    _refused("the name of the port taken by another container",
             "podTemplate.spec.containers[name=proxy].ports",
             {"spec": {"containers": [
                 {"name": "proxy", "ports": [{"containerPort": 9000, "name": "http"}]}]}}),
    _refused("a variable that is taken", "podTemplate.spec.containers[name=server].env[name=PORT]",
             server(env=[{"name": "PORT", "value": "1"}])),
    _refused("all variables replaced", "podTemplate.spec.containers[name=server].env",
             server(env=[{"$patch": "replace"}])),
    _refused("a secret in clear", "podTemplate.spec.containers[name=server].env[name=HF_TOKEN]",
             server(env=[{"name": "HF_TOKEN", "value": "do-not-tell"}])),
    _refused("a secret in a sidecar's line", "podTemplate.spec.containers[name=side].args",
             {"spec": {"containers": [
                 {"name": "side", "image": "x:1", "args": ["--api-key", "do-not-tell"]}]}}),
    _refused("a credential by its looks",
             "podTemplate.spec.initContainers[0].env[0].value",
             {"spec": {"initContainers": [{"name": "fetch", "image": "x:1", "env": [
                 {"name": "A", "value": "hf_abcdefghijklmnopqrstuvwxyz"}]}]}}),
    _refused("devices of a container", "podTemplate.spec.containers[name=server].resources",
             server(resources={"limits": {"amd.com/gpu": 1}})),
    _refused("claims of a pod", "podTemplate.spec.resourceClaims",
             {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]}}),
    _refused("an affinity", "podTemplate.spec.affinity", {"spec": {"affinity": {}}}),
    _refused("an account", "podTemplate.spec.serviceAccountName",
             {"spec": {"serviceAccountName": "models"}}),
    _refused("a grace period", "podTemplate.spec.terminationGracePeriodSeconds",
             {"spec": {"terminationGracePeriodSeconds": 1}}),
    _refused("a directive that there is not", "podTemplate.spec.$retainKeys",
             {"spec": {"$retainKeys": ["a"]}}),
    _refused("a directive of another value", "podTemplate.spec.volumes[0].$patch",
             {"spec": {"volumes": [{"name": "a", "$patch": "remove"}]}}),
    _refused("containers that are no list", "podTemplate.spec.containers",
             {"spec": {"containers": "server"}}),
    _refused("a volume without a name", "podTemplate.spec.volumes[0]",
             {"spec": {"volumes": [{"emptyDir": {}}]}}),
    _refused("too much of it", "podTemplate",
             {"spec": {"volumes": [
                 {"name": f"v{n}", "configMap": {"name": "x" * 60_000}} for n in range(2)]}}),
]  # fmt: skip
