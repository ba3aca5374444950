"""What the pods of an installation have alike: the strictest of the pod security standards.

And the address at which each is reached. For `operator` and `gitops`.
"""

from __future__ import annotations

from holdfast.core.tree import Fields, Tree
from holdfast.install.settings import Installation

PORT = 8080
USER = 65532


def metadata(name: str, installation: Installation, labels: Fields) -> Fields:
    """Name an object in the installation's own namespace."""
    return {"name": name, "namespace": installation.namespace, "labels": labels}


def identity() -> Fields:
    """Whom the processes of a pod run as."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def confinement() -> Fields:
    """What a container may not do."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def own_name() -> list[Tree]:
    """Tell a container which pod it is in: that is who holds the lease."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in (("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace"))
    ]


def ports() -> list[Tree]:
    """The one port on which everything is answered."""
    return [{"name": "http", "containerPort": PORT, "protocol": "TCP"}]


def service(
    name: str, port: str, installation: Installation, labels: Fields, selector: Fields
) -> Fields:
    """The address of that port."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name, installation, labels),
        "spec": {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [{"name": port, "port": PORT, "protocol": "TCP", "targetPort": "http"}],
        },
    }


def probes(*, starts_within: int) -> Fields:
    """Have a pod restarted when it stands still, and left alone until it is ready."""
    return {
        "startupProbe": _probe("/healthz", 2, starts_within // 2),
        "livenessProbe": _probe("/healthz", 10, 3),
        "readinessProbe": _probe("/readyz", 5, 2),
    }


def _probe(path: str, every: int, tries: int) -> Fields:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "periodSeconds": every,
        "timeoutSeconds": 5,
        "failureThreshold": tries,
    }
