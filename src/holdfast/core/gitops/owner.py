"""Which other tool applies an object, and what that tool was told about it.

Two tools that both put an object right would undo each other for ever, so one that is applied by
another is observed and never written. What the other was told to leave alone is left alone here.
Asked by the survey of an application.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast.core.gitops.standing import Owner
from holdfast.core.objects import ref_of
from holdfast.core.tree import Fields

ARGO = "argocd.argoproj.io"
FLUX_KUSTOMIZE = "kustomize.toolkit.fluxcd.io"
FLUX_HELM = "helm.toolkit.fluxcd.io"
HELM_RELEASE = "meta.helm.sh/release-name"
_INSTANCE = "app.kubernetes.io/instance"
_ARGO_MANAGERS = frozenset({"argocd-controller", "argocd-application-controller"})


def owner_of(item: Fields) -> Owner | None:
    """Say which other tool applies an object, by the marks that it leaves on it.

    A mark that was copied from another object, as a Deployment's onto its pods, is none.
    """
    labels, annotations = _texts(item, "labels"), _texts(item, "annotations")
    if f"{ARGO}/instance" in labels or _tracked(item, annotations.get(f"{ARGO}/tracking-id")):
        return Owner.ARGO_CD
    # Its old way to track is a label that many charts set, so the writer has to be Argo CD too.
    if _INSTANCE in labels and not _ARGO_MANAGERS.isdisjoint(_managers(item)):
        return Owner.ARGO_CD
    if f"{FLUX_KUSTOMIZE}/name" in labels or f"{FLUX_HELM}/name" in labels:
        return Owner.FLUX
    # The label `managed-by: Helm` alone is in whatever `helm template` wrote, also into Git.
    return Owner.HELM if annotations.get(HELM_RELEASE) else None


def owned_by(item: Fields) -> tuple[str, str] | None:
    """Name the object of Argo CD or Flux that an object belongs to: its namespace and name.

    The namespace is empty where the mark does not say it.
    """
    labels, annotations = _texts(item, "labels"), _texts(item, "annotations")
    tracking = annotations.get(f"{ARGO}/tracking-id")
    if tracking and _tracked(item, tracking):
        namespace, _, name = tracking.partition(":")[0].rpartition("_")
        return namespace, name
    if owner_of(item) is Owner.ARGO_CD:
        return "", labels.get(f"{ARGO}/instance") or labels[_INSTANCE]
    for prefix in (FLUX_KUSTOMIZE, FLUX_HELM):
        if f"{prefix}/name" in labels:
            return labels.get(f"{prefix}/namespace", ""), labels[f"{prefix}/name"]
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
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


NO_TERMS = Terms()
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
_NAMED = frozenset(name for name, _ in _SETTINGS)


def terms_of(item: Fields) -> Terms:
    """Read the settings of Argo CD, Flux and Helm off an object.

    Give the declared object where there is one: on a live one alone, anybody who may edit it could
    take it out of sight. For an object that is pruned, both.
    """
    found = {**_texts(item, "labels"), **_texts(item, "annotations")}
    asked: dict[str, bool] = {}
    because: list[str] = []
    for name in sorted(_NAMED & found.keys()):
        for value in found[name].split(","):
            wish = _SETTINGS.get((name, value.strip().lower()))
            if wish is not None:
                asked[wish] = True
                because.append(f"{name}: {value.strip()}")
    return Terms(**asked, because=tuple(because)) if because else NO_TERMS


def _tracked(item: Fields, tracking: str | None) -> bool:
    """True when Argo CD's mark is about this very object: `app:group/Kind:namespace/name`."""
    parts = (tracking or "").split(":")
    if len(parts) != 3:
        return False
    ref = ref_of(item)
    group, _, kind = parts[1].rpartition("/")
    namespace, _, name = parts[2].rpartition("/")
    here = ref.namespace in ("", namespace)  # an object that has none gets the application's own
    return here and (group, kind, name) == (ref.group, ref.kind, ref.name)


def _texts(item: Fields, part: str) -> dict[str, str]:
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
