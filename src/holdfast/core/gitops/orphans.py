"""Which objects in an application's own namespaces are there without having been declared.

Nearly everything in a namespace was made by something else: by a controller, by the cluster
itself, by another tool. Only what is left of that was put there by hand. An orphan may be deleted
where the application says so, so in doubt an object is none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from holdfast.core.gitops.application import AppId
from holdfast.core.gitops.declare import LABEL
from holdfast.core.gitops.owner import owner_of, terms_of
from holdfast.core.gitops.secrets import made_by
from holdfast.core.objects import ObjectRef, ref_of
from holdfast.core.tree import Fields, Tree

KINDS: tuple[tuple[str, str], ...] = (
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Pod"),
    ("v1", "ResourceQuota"),
    ("v1", "LimitRange"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "Ingress"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("holdfast.dev/v1alpha1", "InferenceService"),
)
"""API version and kind of what is looked at, beside the kinds that the application declares."""
_PASSING = frozenset({
    "Event", "Lease", "Endpoints", "EndpointSlice", "ControllerRevision", "PodMetrics",
    "Binding", "LocalSubjectAccessReview", "CertificateRequest",
})  # fmt: skip
_CLUSTERS_OWN = frozenset(
    {
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", "istio-ca-root-cert"),
        ("ConfigMap", "openshift-service-ca.crt"),
        ("ServiceAccount", "default"),
        ("ServiceAccount", "builder"),
        ("ServiceAccount", "deployer"),
        ("Service", "kubernetes"),
    }
)
_LEADER = "control-plane.alpha.kubernetes.io/leader"
_GENERATED = "kubernetes.io/config.mirror"
_OF_STATEFUL_SET = re.compile(r".+-\d+")


Name: TypeAlias = tuple[str, str, str, str]


def names_of(refs: Iterable[ObjectRef]) -> frozenset[Name]:
    """Name what an application declares or has applied; the version of an API does not count."""
    return frozenset(map(_named, refs))


def is_orphan(item: Fields, *, application: AppId, known: Collection[Name]) -> bool:
    """True for an object that somebody made by hand, as far as can be told."""
    ref = ref_of(item)
    if ref.kind in _PASSING or (ref.kind, ref.name) in _CLUSTERS_OWN:
        return False
    if _named(ref) in known:
        return False
    metadata = _mapping(item.get("metadata"))
    if metadata.get("ownerReferences") or metadata.get("deletionTimestamp") is not None:
        return False
    if _mapping(metadata.get("labels")).get(LABEL) not in (None, application.label):
        return False
    if not {_LEADER, _GENERATED}.isdisjoint(_mapping(metadata.get("annotations"))):
        return False
    # The claims of a StatefulSet have no owner, and hold its data.
    if ref.kind == "PersistentVolumeClaim" and _OF_STATEFUL_SET.fullmatch(ref.name):
        return False
    if made_by(item) is not None or owner_of(item) is not None:
        return False
    terms = terms_of(item)
    return not (terms.welcome or terms.unmanaged)


def _named(ref: ObjectRef) -> Name:
    return ref.group, ref.kind, ref.namespace, ref.name


def _mapping(value: Tree) -> Mapping[str, Tree]:
    return value if isinstance(value, dict) else {}
