"""Roles and their bindings, as objects. Said once, for both controllers."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.service.spec import API_VERSION
from holdfast.core.tree import Fields, Tree
from holdfast.install.settings import GITOPS_NAME, OPERATOR_NAME, GitopsInstallation, Installation

RBAC_GROUP = "rbac.authorization.k8s.io"
READ_VERBS = ("get", "list", "watch")
WRITE_VERBS = ("create", "patch", "delete")


def policy_rule(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> Fields:
    """What may be done with some kinds."""
    return {
        "apiGroups": [group],
        "resources": list[Tree](resources),
        "verbs": list[Tree](verbs),
    }


def make_cluster_role(name: str, given: list[Tree], labels: Fields) -> Fields:
    """Rights everywhere."""
    metadata: Fields = {"name": name, "labels": labels}
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": given,
    }


def make_cluster_binding(
    name: str, account: str, installation: Installation, labels: Fields
) -> Fields:
    """Gives an account the ClusterRole of that name, everywhere."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels},
        **_role_reference("ClusterRole", name, account, installation),
    }


def make_bound_role(
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
        {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "Role", "metadata": metadata, "rules": given},
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            **_role_reference("Role", name, account, installation),
        },
    ]


def _role_reference(kind: str, name: str, account: str, installation: Installation) -> Fields:
    subject: Fields = {
        "kind": "ServiceAccount",
        "name": account,
        "namespace": installation.namespace,
    }
    return {"roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": name}, "subjects": [subject]}


_GROUP = API_VERSION.partition("/")[0]
_MANAGE_VERBS = (*READ_VERBS, *WRITE_VERBS)
_USER_VERBS = ("create", "update", "patch", "delete", "deletecollection")


def operator_rules() -> list[Tree]:
    """The rights in every namespace that the operator looks after."""
    return [
        policy_rule(_GROUP, ("inferenceservices",), READ_VERBS),
        policy_rule(_GROUP, ("inferenceservices/status",), ("patch",)),
        # Where OwnerReferencesPermissionEnforcement is on, children that hold back the deletion
        # of their owner need this; the operator itself sets no finalizer.
        policy_rule(_GROUP, ("inferenceservices/finalizers",), ("update",)),
        policy_rule("apps", ("deployments",), _MANAGE_VERBS),
        policy_rule("", ("services",), _MANAGE_VERBS),
        policy_rule("autoscaling", ("horizontalpodautoscalers",), _MANAGE_VERBS),
        policy_rule("policy", ("poddisruptionbudgets",), _MANAGE_VERBS),
        policy_rule("gateway.networking.k8s.io", ("httproutes",), _MANAGE_VERBS),
        policy_rule("keda.sh", ("scaledobjects",), _MANAGE_VERBS),
        policy_rule("leaderworkerset.x-k8s.io", ("leaderworkersets",), _MANAGE_VERBS),
        # Caches of models: read by name, never watched.
        policy_rule("", ("persistentvolumeclaims",), ("get", *WRITE_VERBS)),
        policy_rule("batch", ("jobs",), ("get", "list", *WRITE_VERBS)),
        # Pods are asked what they serve; one that serves something else may have to be restarted.
        policy_rule("", ("pods",), ("list", "watch", "delete")),
        policy_rule("events.k8s.io", ("events",), ("create", "patch")),
        # What the kubelet says about pods that its probes find unhealthy.
        policy_rule("", ("events",), ("list",)),
    ]


def node_rules() -> list[Tree]:
    """Reading nodes, which have no namespace: by these a lost replica is explained, and the free
    devices counted that a change needs. Without them both are unknown, and all else works."""
    return [policy_rule("", ("nodes",), ("get", "list"))]


def node_event_rules() -> list[Tree]:
    """Reading Events, for those about nodes: by these an Xid of a GPU is known."""
    return [policy_rule("", ("events",), ("list",))]


def pod_list_rules() -> list[Tree]:
    """Listing pods: what those of all namespaces hold of a node's devices is not free."""
    return [policy_rule("", ("pods",), ("list",))]


def operator_lease_rules() -> list[Tree]:
    """The rights in the operator's own namespace, where its replicas choose a leader.

    It reads its own pod to know its own image, which is what downloads models.
    """
    return [
        policy_rule("coordination.k8s.io", ("leases",), ("get", "create", "patch")),
        policy_rule("", ("pods",), ("get",)),
    ]


def operator_rbac(installation: Installation, labels: Fields) -> list[Fields]:
    """Roles and bindings. Without cluster-wide rights when namespaces are named."""
    objects = []
    account = installation.pod.account or OPERATOR_NAME
    if installation.watched:
        for namespace in installation.watched:
            name = f"{OPERATOR_NAME}-workloads"
            objects += make_bound_role(
                name, namespace, operator_rules(), account, installation, labels
            )
        objects += _operator_node_rbac(account, installation, labels)
    else:
        rules = [*operator_rules(), *node_rules(), *node_event_rules()]
        objects += _cluster_rights(OPERATOR_NAME, rules, account, installation, labels)
    return objects + make_bound_role(
        f"{OPERATOR_NAME}-leader",
        installation.namespace,
        operator_lease_rules(),
        account,
        installation,
        labels,
    )


NODE_EVENTS_NAMESPACE = "default"
"""Where the Events of what has no namespace are."""


def _operator_node_rbac(account: str, installation: Installation, labels: Fields) -> list[Fields]:
    """What an operator of some namespaces may read of the cluster, where that was chosen."""
    objects: list[Fields] = []
    if installation.node_reads:
        name = f"{OPERATOR_NAME}-nodes-{installation.namespace}"
        objects += _cluster_rights(name, node_rules(), account, installation, labels)
        objects += make_bound_role(
            name, NODE_EVENTS_NAMESPACE, node_event_rules(), account, installation, labels
        )
    if installation.pod_reads:
        name = f"{OPERATOR_NAME}-pods-{installation.namespace}"
        objects += _cluster_rights(name, pod_list_rules(), account, installation, labels)
    return objects


def _cluster_rights(
    name: str, given: list[Tree], account: str, installation: Installation, labels: Fields
) -> list[Fields]:
    """Rights everywhere, given to an account."""
    return [
        make_cluster_role(name, given, labels),
        make_cluster_binding(name, account, installation, labels),
    ]


def user_roles(labels: Fields) -> list[Fields]:
    """What people may do with our kinds, by the roles that every cluster has.

    `view` reads both kinds. `edit`, and with it `admin`, writes InferenceServices: what one of
    them makes (pods in the same namespace, with the Secrets and accounts there) `edit` may make
    by itself, and pod security admission holds for either. No role of that kind writes
    Applications: the GitOps controller applies what they name with its own rights, which reach
    into every namespace that it looks after. `holdfast-application-editor` is for those who may
    deploy, and bound to nobody here.
    """
    kinds = ("applications", "inferenceservices")
    roles = {
        "holdfast-view": (("view",), [policy_rule(_GROUP, kinds, READ_VERBS)]),
        "holdfast-edit": (("edit",), [policy_rule(_GROUP, ("inferenceservices",), _USER_VERBS)]),
        "holdfast-application-editor": (
            (),
            [policy_rule(_GROUP, ("applications",), (*READ_VERBS, *_USER_VERBS))],
        ),
    }
    return [
        make_cluster_role(
            name, [*given], {**labels, **{f"{RBAC_GROUP}/aggregate-to-{to}": "true" for to in into}}
        )
        for name, (into, given) in roles.items()
    ]


AGGREGATION_LABELS: Fields = {"holdfast.dev/gitops-rights": "true"}
_HOLDFAST_GROUP = API_VERSION.partition("/")[0]
_MANAGED_KINDS = (
    ("", ("configmaps", "persistentvolumeclaims", "serviceaccounts", "services")),
    ("apps", ("daemonsets", "deployments", "statefulsets")),
    ("autoscaling", ("horizontalpodautoscalers",)),
    ("batch", ("cronjobs", "jobs")),
    ("gateway.networking.k8s.io", ("grpcroutes", "httproutes")),
    (_HOLDFAST_GROUP, ("inferenceservices",)),
    ("networking.k8s.io", ("ingresses", "networkpolicies")),
    ("policy", ("poddisruptionbudgets",)),
)
"""What applications are mostly made of."""
_READ_KINDS = (
    ("", ("limitranges", "pods", "resourcequotas")),
    ("apps", ("replicasets",)),
    # Their rules say that a difference is none.
    ("argoproj.io", ("applications",)),
    ("helm.toolkit.fluxcd.io", ("helmreleases",)),
    (_HOLDFAST_GROUP, ("applications",)),
    ("kustomize.toolkit.fluxcd.io", ("kustomizations",)),
    (RBAC_GROUP, ("rolebindings", "roles")),
)
"""What is looked at beside."""


def gitops_rules(gitops: GitopsInstallation) -> Iterator[tuple[str, list[Tree]]]:
    """Give the parts of the rights in the namespaces that are looked after, by name."""
    yield (
        "reads",
        [
            *(
                policy_rule(group, kinds, READ_VERBS)
                for group, kinds in (*_MANAGED_KINDS, *_READ_KINDS)
            ),
            policy_rule(_HOLDFAST_GROUP, ("applications/status",), ("patch",)),
            policy_rule("events.k8s.io", ("events",), ("create", "patch")),
        ],
    )
    if gitops.writes:
        yield "writes", [policy_rule(group, kinds, WRITE_VERBS) for group, kinds in _MANAGED_KINDS]
    if gitops.secrets:
        yield "secrets", [policy_rule("", ("secrets",), READ_VERBS)]
    if gitops.secrets and gitops.writes:
        yield "secret-writes", [policy_rule("", ("secrets",), WRITE_VERBS)]


def gitops_own_rules() -> list[Tree]:
    """The rights in the controller's own namespace: its lease, and credentials of Applications."""
    return [
        policy_rule("coordination.k8s.io", ("leases",), ("get", "create", "patch")),
        policy_rule("", ("secrets",), ("get",)),
    ]


def gitops_rbac(
    installation: Installation, gitops: GitopsInstallation, labels: Fields
) -> list[Fields]:
    """Roles and bindings. Without cluster-wide rights when namespaces are named."""
    objects: list[Fields] = []
    account = gitops.pod.account or GITOPS_NAME
    for namespace in installation.watched:
        for name, given in gitops_rules(gitops):
            objects += make_bound_role(
                f"{GITOPS_NAME}-{name}", namespace, given, account, installation, labels
            )
    if installation.watched and installation.pod_reads:
        # It counts free devices, and asks nodes nothing else.
        name = f"{GITOPS_NAME}-nodes-{installation.namespace}"
        rules = [*node_rules(), *pod_list_rules()]
        objects += _cluster_rights(name, rules, account, installation, labels)
    if not installation.watched:
        objects += [
            _aggregated_role(labels),
            make_cluster_binding(GITOPS_NAME, account, installation, labels),
        ]
        objects += [
            make_cluster_role(f"{GITOPS_NAME}-{name}", given, {**labels, **AGGREGATION_LABELS})
            for name, given in (*gitops_rules(gitops), ("cluster", _cluster_rules()))
        ]
    return objects + make_bound_role(
        f"{GITOPS_NAME}-own",
        installation.namespace,
        gitops_own_rules(),
        account,
        installation,
        labels,
    )


def _cluster_rules() -> list[Tree]:
    """What has no namespace: which kinds there are, and which namespaces."""
    return [
        policy_rule("", ("namespaces",), READ_VERBS),
        policy_rule("apiextensions.k8s.io", ("customresourcedefinitions",), READ_VERBS),
        *node_rules(),
    ]


def _aggregated_role(labels: Fields) -> Fields:
    """The sum of all grants. The cluster fills in its rules, so it has none here."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": GITOPS_NAME, "labels": labels},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": AGGREGATION_LABELS}]},
    }
