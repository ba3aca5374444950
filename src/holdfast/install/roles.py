"""Roles and their bindings, as objects. Said once, for both controllers."""

from __future__ import annotations

from holdfast.core.tree import Fields, Tree
from holdfast.install.settings import Installation

RBAC = "rbac.authorization.k8s.io"
READ = ("get", "list", "watch")
WRITE = ("create", "patch", "delete")


def rule(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> Fields:
    """What may be done with some kinds."""
    return {
        "apiGroups": [group],
        "resources": list[Tree](resources),
        "verbs": list[Tree](verbs),
    }


def cluster_role(name: str, given: list[Tree], labels: Fields) -> Fields:
    """Rights everywhere."""
    metadata: Fields = {"name": name, "labels": labels}
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": given}


def cluster_binding(name: str, account: str, installation: Installation, labels: Fields) -> Fields:
    """Gives an account the ClusterRole of that name, everywhere."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels},
        **_binds("ClusterRole", name, account, installation),
    }


def bound_role(
    name: str,
    namespace: str,
    given: list[Tree],
    account: str,
    installation: Installation,
    labels: Fields,
) -> list[Fields]:
    """Rights in one namespace, given to an account."""
    metadata: Fields = {"name": name, "namespace": namespace, "labels": labels}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": given},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            **_binds("Role", name, account, installation),
        },
    ]


def _binds(kind: str, name: str, account: str, installation: Installation) -> Fields:
    subject: Fields = {
        "kind": "ServiceAccount",
        "name": account,
        "namespace": installation.namespace,
    }
    return {"roleRef": {"apiGroup": RBAC, "kind": kind, "name": name}, "subjects": [subject]}
