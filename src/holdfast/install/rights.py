"""What the operator may do: the verbs it uses on the kinds it uses, and nothing else.

It reads no Secret, sees pods only to say why they are not ready, and cannot change what users
declared: of an InferenceService it writes the status alone.
"""

from __future__ import annotations

from holdfast.core.service.spec import API_VERSION
from holdfast.core.tree import Fields, Tree
from holdfast.install.settings import NAME, Installation

RBAC = "rbac.authorization.k8s.io"
_GROUP = API_VERSION.partition("/")[0]
_READ = ("get", "list", "watch")
_KEEP = (*_READ, "create", "patch", "delete")


def rules() -> list[Tree]:
    """The rights in every namespace that the operator looks after."""
    return [
        _rule(_GROUP, ("inferenceservices",), _READ),
        _rule(_GROUP, ("inferenceservices/status",), ("patch",)),
        # Where OwnerReferencesPermissionEnforcement is on, children that hold back the deletion
        # of their owner need this; the operator itself sets no finalizer.
        _rule(_GROUP, ("inferenceservices/finalizers",), ("update",)),
        _rule("apps", ("deployments",), _KEEP),
        _rule("", ("services",), _KEEP),
        _rule("autoscaling", ("horizontalpodautoscalers",), _KEEP),
        _rule("policy", ("poddisruptionbudgets",), _KEEP),
        _rule("gateway.networking.k8s.io", ("httproutes",), _KEEP),
        _rule("", ("pods",), ("list",)),
        _rule("events.k8s.io", ("events",), ("create", "patch")),
    ]


def lease_rules() -> list[Tree]:
    """The rights in the operator's own namespace, where its replicas choose a leader."""
    return [_rule("coordination.k8s.io", ("leases",), ("get", "create", "patch"))]


def rights(installation: Installation, labels: Fields) -> list[Fields]:
    """Roles and bindings. Without cluster-wide rights when namespaces are named."""
    objects = []
    if installation.watched:
        for namespace in installation.watched:
            objects += _role(f"{NAME}-workloads", namespace, rules(), installation, labels)
    else:
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole"}
        binding = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding"}
        named: Fields = {"name": NAME, "labels": labels}
        objects += [
            {**role, "metadata": named, "rules": rules()},
            {**binding, "metadata": named, **_binds("ClusterRole", NAME, installation)},
        ]
    return objects + _role(
        f"{NAME}-leader", installation.namespace, lease_rules(), installation, labels
    )


def _role(
    name: str, namespace: str, given: list[Tree], installation: Installation, labels: Fields
) -> list[Fields]:
    metadata: Fields = {"name": name, "namespace": namespace, "labels": labels}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": given},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            **_binds("Role", name, installation),
        },
    ]


def _binds(kind: str, name: str, installation: Installation) -> Fields:
    account: Fields = {
        "kind": "ServiceAccount",
        "name": NAME,
        "namespace": installation.namespace,
    }
    return {"roleRef": {"apiGroup": RBAC, "kind": kind, "name": name}, "subjects": [account]}


def _rule(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> Fields:
    return {
        "apiGroups": [group],
        "resources": list[Tree](resources),
        "verbs": list[Tree](verbs),
    }
