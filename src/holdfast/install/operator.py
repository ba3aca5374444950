"""The operator's own Deployment."""

from __future__ import annotations

from holdfast.core.tree import Fields, Tree
from holdfast.install.pod import (
    PORT,
    confinement,
    identity,
    metadata,
    own_name,
    ports,
    probes,
)
from holdfast.install.settings import NAME, Installation


def deployment(installation: Installation, labels: Fields, selector: Fields) -> Fields:
    """Several replicas, of which one acts and the others wait for its lease."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(NAME, installation, labels),
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
        "securityContext": identity(),
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
        "env": own_name(),
        "ports": ports(),
        **probes(starts_within=60),
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": confinement(),
    }
