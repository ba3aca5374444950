"""Which kinds of objects have no namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from holdfast.core.objects import ObjectRef
from holdfast.core.tree import Fields

Scoped: TypeAlias = Callable[[ObjectRef], bool | None]
"""Says of an object whether its kind has namespaces; None when nobody knows the kind."""

_TABLE = {
    "": "Namespace Node PersistentVolume ComponentStatus",
    "admissionregistration.k8s.io": (
        "MutatingWebhookConfiguration ValidatingWebhookConfiguration ValidatingAdmissionPolicy "
        "ValidatingAdmissionPolicyBinding MutatingAdmissionPolicy MutatingAdmissionPolicyBinding"
    ),
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "apiregistration.k8s.io": "APIService",
    "authentication.k8s.io": "TokenReview SelfSubjectReview",
    "authorization.k8s.io": "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
    "certificates.k8s.io": "CertificateSigningRequest ClusterTrustBundle",
    "flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
    "internal.apiserver.k8s.io": "StorageVersion",
    "networking.k8s.io": "IngressClass IPAddress ServiceCIDR",
    "node.k8s.io": "RuntimeClass",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding",
    "resource.k8s.io": "DeviceClass ResourceSlice DeviceTaintRule",
    "scheduling.k8s.io": "PriorityClass",
    "storage.k8s.io": "StorageClass CSIDriver CSINode VolumeAttachment VolumeAttributesClass",
    "storagemigration.k8s.io": "StorageVersionMigration",
    # Of widespread extensions, for when the cluster is not asked.
    "cert-manager.io": "ClusterIssuer",
    "external-secrets.io": "ClusterSecretStore ClusterExternalSecret ClusterPushSecret",
    "gateway.networking.k8s.io": "GatewayClass",
    "kyverno.io": "ClusterPolicy ClusterCleanupPolicy",
}
CLUSTER_SCOPED = frozenset(
    (group, kind) for group, kinds in _TABLE.items() for kind in kinds.split()
)


class Scopes:
    """Decides by the built-in kinds, the definitions among the objects, and the cluster."""

    def __init__(self, items: Iterable[Fields], ask: Scoped | None) -> None:
        self._defined = dict(_definitions(items))
        self._ask = ask
        self.asked: dict[ObjectRef, bool | None] = {}
        """What the cluster was asked and answered: the rendering depends on it."""

    def namespaced(self, ref: ObjectRef) -> bool:
        """True when objects of this kind live in a namespace. Unknown kinds do."""
        kind = (ref.group, ref.kind)
        if kind in CLUSTER_SCOPED:
            return False
        if kind in self._defined:
            return self._defined[kind]
        if self._ask is None or "." not in ref.group or ref.group.endswith(".k8s.io"):
            return True
        answer = self._ask(ref)
        self.asked[ref] = answer
        return answer is not False


def _definitions(items: Iterable[Fields]) -> Iterable[tuple[tuple[str, str], bool]]:
    for item in items:
        spec = item.get("spec")
        if item.get("kind") != "CustomResourceDefinition" or not isinstance(spec, dict):
            continue
        names = spec.get("names")
        if isinstance(names, dict):
            kind = (str(spec.get("group")), str(names.get("kind")))
            yield kind, spec.get("scope") != "Cluster"
