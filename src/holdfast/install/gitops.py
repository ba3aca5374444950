"""The GitOps controller's own Deployment, its volume and who may reach it."""

from __future__ import annotations

from holdfast.core.tree import Fields, Tree
from holdfast.install.pod import (
    PORT,
    USER,
    confinement,
    identity,
    metadata,
    own_name,
    ports,
    probes,
)
from holdfast.install.settings import GITOPS, Gitops, Installation

STORE = "/data/holdfast.db"
CACHE = "/cache"
SHARED = "/shared"
"""Where the key is that goes with a ledger outside."""
ELSEWHERE = {
    "0.0.0.0/0": (
        "169.254.0.0/16",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
    ),
    "::/0": ("fe80::/10", "fd00:ec2::254/128"),
}
"""Everywhere, but for link-local addresses and where clouds keep a machine's credentials."""


def volume(installation: Installation, gitops: Gitops, labels: Fields) -> Fields:
    """What must outlive the pod: projects, tokens, and the ledger unless a database keeps it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(GITOPS, installation, labels),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": gitops.storage}},
        },
    }


def policy(installation: Installation, labels: Fields, selector: Fields) -> Fields:
    """Nothing but the one port can be reached, and nothing local to the machine is.

    The controller goes to the API server, and to the repositories, forges and channels that
    applications name, which may be anywhere and on any port. It has no business with what a
    machine keeps at link-local addresses, or a cloud at its own: the identity of the node.
    """
    port: Fields = {"port": "http", "protocol": "TCP"}
    names: list[Tree] = [{"port": 53, "protocol": kind} for kind in ("UDP", "TCP")]
    places: list[Tree] = [
        {"ipBlock": {"cidr": cidr, "except": [*kept_out]}} for cidr, kept_out in ELSEWHERE.items()
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(GITOPS, installation, labels),
        "spec": {
            "podSelector": {"matchLabels": selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [port]}],
            # Names may be asked for at a link-local address: there a node keeps its cache.
            "egress": [{"ports": names}, {"to": places, "ports": [{"protocol": "TCP"}]}],
        },
    }


def deployment(
    installation: Installation, gitops: Gitops, labels: Fields, selector: Fields
) -> Fields:
    """One replica, which ends before its successor starts: the volume has one owner at a time."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(GITOPS, installation, labels),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": labels}, "spec": _pod(installation, gitops)},
        },
    }


def arguments(installation: Installation, gitops: Gitops) -> list[Tree]:
    """The command line of the controller."""
    line: list[Tree] = ["gitops", "--host=0.0.0.0", f"--port={PORT}", f"--db={STORE}"]
    line.append(f"--cache={CACHE}")
    line += [f"--namespace={name}" for name in installation.watched]
    if gitops.ledger is not None:
        line.append(f"--key-file={SHARED}/key")
    return line


def _pod(installation: Installation, gitops: Gitops) -> Fields:
    return {
        "serviceAccountName": GITOPS,
        "securityContext": {
            **identity(),
            "fsGroup": USER,
            # A ledger may be large, and it is the controller's own from the first day on.
            "fsGroupChangePolicy": "OnRootMismatch",
        },
        "terminationGracePeriodSeconds": 60,
        "containers": [_container(installation, gitops)],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": GITOPS}},
            {"name": "cache", "emptyDir": {"sizeLimit": "4Gi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            *_shared(gitops),
        ],
    }


def _container(installation: Installation, gitops: Gitops) -> Fields:
    return {
        "name": "gitops",
        "image": installation.image,
        "args": arguments(installation, gitops),
        "env": [*own_name(), *_ledger(gitops)],
        "ports": ports(),
        # The first start may have a long ledger to bring up to date.
        **probes(starts_within=300),
        "resources": {
            "requests": {"cpu": "200m", "memory": "512Mi", "ephemeral-storage": "1Gi"},
            "limits": {"memory": "2Gi"},
        },
        "securityContext": confinement(),
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "cache", "mountPath": CACHE},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  # of the container, and its own
            *_mounted(gitops),
        ],
    }


def _ledger(gitops: Gitops) -> list[Tree]:
    """The address has a password in it, so it comes from a Secret and is no argument."""
    if gitops.ledger is None:
        return []
    source: Fields = {"secretKeyRef": {"name": gitops.ledger, "key": "url"}}
    return [{"name": "HOLDFAST_LEDGER", "valueFrom": source}]


def _shared(gitops: Gitops) -> list[Tree]:
    """The key that marks Secrets in such a ledger goes with it, not with the pod's own volume."""
    if gitops.ledger is None:
        return []
    key: Fields = {"key": "key", "path": "key"}
    return [{"name": "shared", "secret": {"secretName": gitops.ledger, "items": [key]}}]


def _mounted(gitops: Gitops) -> list[Tree]:
    if gitops.ledger is None:
        return []
    return [{"name": "shared", "mountPath": SHARED, "readOnly": True}]
