"""What the GitOps controller may do.

As installed it reads the usual kinds and writes nothing but what it says: statuses and events.
The rights on the cluster are one ClusterRole that is put together from every ClusterRole with
the label `holdfast.dev/gitops-rights: "true"`, so an administrator adds kinds, or the right to
write them, with a ClusterRole of their own. Where namespaces are named these are Roles in them,
and nothing on the cluster as a whole.

Roles, RoleBindings and Applications are read and never written: whoever writes one of them in
Git would hand out rights that nobody gave them.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.service.spec import API_VERSION
from holdfast.core.tree import Fields, Tree
from holdfast.install.roles import (
    RBAC,
    READ,
    WRITE,
    bound_role,
    cluster_binding,
    cluster_role,
    rule,
)
from holdfast.install.settings import GITOPS, Gitops, Installation

GRANTS: Fields = {"holdfast.dev/gitops-rights": "true"}
_GROUP = API_VERSION.partition("/")[0]
_USUAL = (
    ("", ("configmaps", "persistentvolumeclaims", "serviceaccounts", "services")),
    ("apps", ("daemonsets", "deployments", "statefulsets")),
    ("autoscaling", ("horizontalpodautoscalers",)),
    ("batch", ("cronjobs", "jobs")),
    ("gateway.networking.k8s.io", ("grpcroutes", "httproutes")),
    (_GROUP, ("inferenceservices",)),
    ("networking.k8s.io", ("ingresses", "networkpolicies")),
    ("policy", ("poddisruptionbudgets",)),
)
"""What applications are mostly made of."""
_SEEN = (
    ("", ("limitranges", "pods", "resourcequotas")),
    ("apps", ("replicasets",)),
    # Their rules say that a difference is none.
    ("argoproj.io", ("applications",)),
    ("helm.toolkit.fluxcd.io", ("helmreleases",)),
    (_GROUP, ("applications",)),
    ("kustomize.toolkit.fluxcd.io", ("kustomizations",)),
    (RBAC, ("rolebindings", "roles")),
)
"""What is looked at beside."""


def pieces(gitops: Gitops) -> Iterator[tuple[str, list[Tree]]]:
    """Give the parts of the rights in the namespaces that are looked after, by name."""
    yield (
        "reads",
        [
            *(rule(group, kinds, READ) for group, kinds in (*_USUAL, *_SEEN)),
            rule(_GROUP, ("applications/status",), ("patch",)),
            rule("events.k8s.io", ("events",), ("create", "patch")),
        ],
    )
    if gitops.writes:
        yield "writes", [rule(group, kinds, WRITE) for group, kinds in _USUAL]
    if gitops.secrets:
        yield "secrets", [rule("", ("secrets",), READ)]
    if gitops.secrets and gitops.writes:
        yield "secret-writes", [rule("", ("secrets",), WRITE)]


def own_rules() -> list[Tree]:
    """The rights in the controller's own namespace: its lease, and credentials of Applications."""
    return [
        rule("coordination.k8s.io", ("leases",), ("get", "create", "patch")),
        rule("", ("secrets",), ("get",)),
    ]


def rights(installation: Installation, gitops: Gitops, labels: Fields) -> list[Fields]:
    """Roles and bindings. Without cluster-wide rights when namespaces are named."""
    objects: list[Fields] = []
    for namespace in installation.watched:
        for name, given in pieces(gitops):
            objects += bound_role(
                f"{GITOPS}-{name}", namespace, given, GITOPS, installation, labels
            )
    if not installation.watched:
        objects += [_together(labels), cluster_binding(GITOPS, GITOPS, installation, labels)]
        objects += [
            cluster_role(f"{GITOPS}-{name}", given, {**labels, **GRANTS})
            for name, given in (*pieces(gitops), ("cluster", _cluster_rules()))
        ]
    return objects + bound_role(
        f"{GITOPS}-own", installation.namespace, own_rules(), GITOPS, installation, labels
    )


def _cluster_rules() -> list[Tree]:
    """What has no namespace: which kinds there are, and which namespaces."""
    return [
        rule("", ("namespaces",), READ),
        rule("apiextensions.k8s.io", ("customresourcedefinitions",), READ),
    ]


def _together(labels: Fields) -> Fields:
    """The sum of all grants. The cluster fills in its rules, so it has none here."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": GITOPS, "labels": labels},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": GRANTS}]},
    }
