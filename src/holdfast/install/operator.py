"""The operator's own Deployment and Service, under the strictest of the pod security standards."""

from __future__ import annotations

from holdfast.core.tree import Fields, Tree
from holdfast.install.settings import NAME, Installation

PORT = 8080
USER = 65532


def service(installation: Installation, labels: Fields, selector: Fields) -> Fields:
    """The address of the metrics."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(installation, labels),
        "spec": {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [{"name": "metrics", "port": PORT, "protocol": "TCP", "targetPort": "http"}],
        },
    }


def deployment(installation: Installation, labels: Fields, selector: Fields) -> Fields:
    """Several replicas, of which one acts and the others wait for its lease."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(installation, labels),
        "spec": {
            "replicas": installation.replicas,
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": labels}, "spec": _pod(installation, selector)},
        },
    }


def arguments(installation: Installation) -> list[Tree]:
    """The command line of the operator."""
    line: list[Tree] = ["operator", f"--metrics-address=:{PORT}"]
    line += [f"--namespace={name}" for name in installation.watched]
    if installation.gateway is not None:
        gateway = installation.gateway
        line += [f"--gateway={gateway.namespace}/{gateway.name}", f"--domain={gateway.domain}"]
    if installation.prometheus is not None:
        line.append(f"--prometheus={installation.prometheus}")
    return line


def _pod(installation: Installation, selector: Fields) -> Fields:
    return {
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector},
            }
        ],
        "terminationGracePeriodSeconds": 30,
        "containers": [_container(installation)],
    }


def _container(installation: Installation) -> Fields:
    return {
        "name": "operator",
        "image": installation.image,
        "args": arguments(installation),
        "env": [
            _of_the_pod("POD_NAME", "metadata.name"),
            _of_the_pod("POD_NAMESPACE", "metadata.namespace"),
        ],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "startupProbe": _probe("/healthz", 2, 30),
        "livenessProbe": _probe("/healthz", 10, 3),
        "readinessProbe": _probe("/readyz", 5, 2),
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def _of_the_pod(name: str, path: str) -> Tree:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _probe(path: str, every: int, tries: int) -> Fields:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "periodSeconds": every,
        "timeoutSeconds": 5,
        "failureThreshold": tries,
    }


def _metadata(installation: Installation, labels: Fields) -> Fields:
    return {"name": NAME, "namespace": installation.namespace, "labels": labels}
