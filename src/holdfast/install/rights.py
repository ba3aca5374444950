"""What the operator may do: the verbs it uses on the kinds it uses, and nothing else.

It reads no Secret, sees pods only to say why they are not ready, and cannot change what users
declared: of an InferenceService it writes the status alone.
"""

from __future__ import annotations

from holdfast.core.service.spec import API_VERSION
from holdfast.core.tree import Fields, Tree
from holdfast.install.roles import READ, WRITE, bound_role, cluster_binding, cluster_role, rule
from holdfast.install.settings import NAME, Installation

_GROUP = API_VERSION.partition("/")[0]
_KEEP = (*READ, *WRITE)


def rules() -> list[Tree]:
    """The rights in every namespace that the operator looks after."""
    return [
        rule(_GROUP, ("inferenceservices",), READ),
        rule(_GROUP, ("inferenceservices/status",), ("patch",)),
        # Where OwnerReferencesPermissionEnforcement is on, children that hold back the deletion
        # of their owner need this; the operator itself sets no finalizer.
        rule(_GROUP, ("inferenceservices/finalizers",), ("update",)),
        rule("apps", ("deployments",), _KEEP),
        rule("", ("services",), _KEEP),
        rule("autoscaling", ("horizontalpodautoscalers",), _KEEP),
        rule("policy", ("poddisruptionbudgets",), _KEEP),
        rule("gateway.networking.k8s.io", ("httproutes",), _KEEP),
        rule("", ("pods",), ("list",)),
        rule("events.k8s.io", ("events",), ("create", "patch")),
    ]


def lease_rules() -> list[Tree]:
    """The rights in the operator's own namespace, where its replicas choose a leader."""
    return [rule("coordination.k8s.io", ("leases",), ("get", "create", "patch"))]


def rights(installation: Installation, labels: Fields) -> list[Fields]:
    """Roles and bindings. Without cluster-wide rights when namespaces are named."""
    objects = []
    if installation.watched:
        for namespace in installation.watched:
            name = f"{NAME}-workloads"
            objects += bound_role(name, namespace, rules(), NAME, installation, labels)
    else:
        objects += [
            cluster_role(NAME, rules(), labels),
            cluster_binding(NAME, NAME, installation, labels),
        ]
    return objects + bound_role(
        f"{NAME}-leader", installation.namespace, lease_rules(), NAME, installation, labels
    )
