"""Whose an object is: another tool's, made by a controller, or an orphan that nobody declared.

Two tools that both correct an object would undo each other for ever, so an object that another
tool applies is observed and never written. An orphan may be deleted where the application says so,
so in doubt an object is none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.objects import APPLICATION_LABEL, ForeignOwner
from holdfast.core.gitops.secrets import made_by
from holdfast.core.object_ref import ObjectRef, ref_of
from holdfast.core.tree import Fields, Tree

ARGO = "argocd.argoproj.io"
FLUX_KUSTOMIZE = "kustomize.toolkit.fluxcd.io"
FLUX_HELM = "helm.toolkit.fluxcd.io"
HELM_RELEASE = "meta.helm.sh/release-name"
_INSTANCE_LABEL = "app.kubernetes.io/instance"
_ARGO_MANAGERS = frozenset({"argocd-controller", "argocd-application-controller"})


def owner_of(item: Fields) -> ForeignOwner | None:
    """Say which other tool applies an object, by the marks that it leaves on it.

    A mark that was copied from another object, as a Deployment's onto its pods, is none.
    """
    labels, annotations = _string_values(item, "labels"), _string_values(item, "annotations")
    if f"{ARGO}/instance" in labels or _is_tracked(item, annotations.get(f"{ARGO}/tracking-id")):
        return ForeignOwner.ARGO_CD
    # Its old way to track is a label that many charts set, so the writer has to be Argo CD too.
    if _INSTANCE_LABEL in labels and not _ARGO_MANAGERS.isdisjoint(_managers(item)):
        return ForeignOwner.ARGO_CD
    if f"{FLUX_KUSTOMIZE}/name" in labels or f"{FLUX_HELM}/name" in labels:
        return ForeignOwner.FLUX
    # The label `managed-by: Helm` alone is in whatever `helm template` wrote, also into Git.
    return ForeignOwner.HELM if annotations.get(HELM_RELEASE) else None


def owning_application(item: Fields) -> tuple[str, str] | None:
    """Name the object of Argo CD or Flux that an object belongs to: its namespace and name.

    The namespace is empty where the mark does not say it.
    """
    labels, annotations = _string_values(item, "labels"), _string_values(item, "annotations")
    tracking = annotations.get(f"{ARGO}/tracking-id")
    if tracking and _is_tracked(item, tracking):
        namespace, _, name = tracking.partition(":")[0].rpartition("_")
        return namespace, name
    if owner_of(item) is ForeignOwner.ARGO_CD:
        return "", labels.get(f"{ARGO}/instance") or labels[_INSTANCE_LABEL]
    for prefix in (FLUX_KUSTOMIZE, FLUX_HELM):
        if f"{prefix}/name" in labels:
            return labels.get(f"{prefix}/namespace", ""), labels[f"{prefix}/name"]
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSettings:
    """What the settings of other tools on an object say about it. All are False without any."""

    unmanaged: bool = False
    """Left out altogether: neither compared nor written."""
    create_only: bool = False
    """Written when it is not there, and never again."""
    keep: bool = False
    """Not deleted, also when it is no longer declared."""
    welcome: bool = False
    """No orphan, although it is not declared."""
    because: tuple[str, ...] = ()
    """The settings themselves, to be shown."""


NO_FOREIGN_SETTINGS = ForeignSettings()
_SETTINGS: Mapping[tuple[str, str], str] = {
    (f"{ARGO}/compare-options", "ignoreextraneous"): "welcome",
    (f"{ARGO}/sync-options", "prune=false"): "keep",
    (f"{ARGO}/sync-options", "prune=confirm"): "keep",
    (f"{ARGO}/skip-reconcile", "true"): "unmanaged",
    (f"{FLUX_KUSTOMIZE}/reconcile", "disabled"): "unmanaged",
    (f"{FLUX_KUSTOMIZE}/ssa", "ignore"): "unmanaged",
    (f"{FLUX_KUSTOMIZE}/ssa", "ifnotpresent"): "create_only",
    (f"{FLUX_KUSTOMIZE}/prune", "disabled"): "keep",
    (f"{FLUX_HELM}/driftDetection", "disabled"): "unmanaged",
    ("helm.sh/resource-policy", "keep"): "keep",
}
"""Annotation and one of its values to what it asks for. `ssa: Merge` and `ssa: Override` ask for
nothing: a field that nobody declared is left alone here as it is. Nor does `Delete=false`: what an
application applied always stays."""
_SETTING_NAMES = frozenset(name for name, _ in _SETTINGS)


def foreign_settings_of(item: Fields) -> ForeignSettings:
    """Read the settings of Argo CD, Flux and Helm off an object.

    Give the declared object where there is one: on a live one alone, anybody who may edit it could
    take it out of sight. For an object that is pruned, both.
    """
    found = {**_string_values(item, "labels"), **_string_values(item, "annotations")}
    asked: dict[str, bool] = {}
    because: list[str] = []
    for name in sorted(_SETTING_NAMES & found.keys()):
        for value in found[name].split(","):
            wish = _SETTINGS.get((name, value.strip().lower()))
            if wish is not None:
                asked[wish] = True
                because.append(f"{name}: {value.strip()}")
    return ForeignSettings(**asked, because=tuple(because)) if because else NO_FOREIGN_SETTINGS


def _is_tracked(item: Fields, tracking: str | None) -> bool:
    """True when Argo CD's mark is about this very object: `app:group/Kind:namespace/name`."""
    parts = (tracking or "").split(":")
    if len(parts) != 3:
        return False
    ref = ref_of(item)
    group, _, kind = parts[1].rpartition("/")
    namespace, _, name = parts[2].rpartition("/")
    here = ref.namespace in ("", namespace)  # an object that has none gets the application's own
    return here and (group, kind, name) == (ref.group, ref.kind, ref.name)


def _string_values(item: Fields, part: str) -> dict[str, str]:
    metadata = item.get("metadata")
    found = metadata.get(part) if isinstance(metadata, dict) else None
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _managers(item: Fields) -> Iterator[str]:
    metadata = item.get("metadata")
    found = metadata.get("managedFields") if isinstance(metadata, dict) else None
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict):
            yield str(entry.get("manager"))


ORPHAN_KINDS: tuple[tuple[str, str], ...] = (
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
_TRANSIENT_KINDS = frozenset({
    "Event", "Lease", "Endpoints", "EndpointSlice", "ControllerRevision", "PodMetrics",
    "Binding", "LocalSubjectAccessReview", "CertificateRequest",
})  # fmt: skip
_CLUSTER_OBJECTS = frozenset(
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
_LEADER_ANNOTATION = "control-plane.alpha.kubernetes.io/leader"
_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_STATEFUL_SET_CLAIM = re.compile(r".+-\d+")


ObjectKey: TypeAlias = tuple[str, str, str, str]


def object_keys(refs: Iterable[ObjectRef]) -> frozenset[ObjectKey]:
    """Name what an application declares or has applied; the version of an API does not count."""
    return frozenset(map(_object_key, refs))


def is_orphan(item: Fields, *, application: ApplicationId, known: Collection[ObjectKey]) -> bool:
    """True for an object that somebody made by hand, as far as can be told."""
    ref = ref_of(item)
    if ref.kind in _TRANSIENT_KINDS or (ref.kind, ref.name) in _CLUSTER_OBJECTS:
        return False
    if _object_key(ref) in known:
        return False
    metadata = _mapping(item.get("metadata"))
    if metadata.get("ownerReferences") or metadata.get("deletionTimestamp") is not None:
        return False
    if _mapping(metadata.get("labels")).get(APPLICATION_LABEL) not in (None, application.label):
        return False
    if not {_LEADER_ANNOTATION, _MIRROR_ANNOTATION}.isdisjoint(
        _mapping(metadata.get("annotations"))
    ):
        return False
    # The claims of a StatefulSet have no owner, and hold its data.
    if ref.kind == "PersistentVolumeClaim" and _STATEFUL_SET_CLAIM.fullmatch(ref.name):
        return False
    if made_by(item) is not None or owner_of(item) is not None:
        return False
    terms = foreign_settings_of(item)
    return not (terms.welcome or terms.unmanaged)


def _object_key(ref: ObjectRef) -> ObjectKey:
    return ref.group, ref.kind, ref.namespace, ref.name


def _mapping(value: Tree) -> Mapping[str, Tree]:
    return value if isinstance(value, dict) else {}
