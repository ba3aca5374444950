"""Makes desired objects of manifests: checked, each once, ready to be applied.

What a server writes is dropped, as people commit what `kubectl get -o yaml` and code generators
print: the status, the server's own metadata, and kubectl's copy of what it applied last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from holdfast.adapters.render.files import refusal
from holdfast.adapters.render.manifests import (
    MAX_PROBLEMS,
    Manifest,
    ProblemList,
    is_secret,
    normalize_secret,
)
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.source import DeclaredObject, Origin
from holdfast.core.object_ref import ObjectRef, ref_of
from holdfast.core.redact import quote_text
from holdfast.core.tree import Fields, Tree, json_pointer

MAX_OBJECTS = 20_000
T = TypeVar("T")

NamespacedLookup: TypeAlias = Callable[[ObjectRef], bool | None]
"""Says of an object whether its kind has namespaces; None when nobody knows the kind."""

_CLUSTER_SCOPED_KINDS = {
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
    (group, kind) for group, kinds in _CLUSTER_SCOPED_KINDS.items() for kind in kinds.split()
)


class ScopeResolver:
    """Decides by the built-in kinds, the definitions among the objects, and the cluster."""

    def __init__(self, items: Iterable[Fields], ask: NamespacedLookup | None) -> None:
        self._defined = dict(_crd_scopes(items))
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


def _crd_scopes(items: Iterable[Fields]) -> Iterable[tuple[tuple[str, str], bool]]:
    for item in items:
        spec = item.get("spec")
        if item.get("kind") != "CustomResourceDefinition" or not isinstance(spec, dict):
            continue
        names = spec.get("names")
        if isinstance(names, dict):
            kind = (str(spec.get("group")), str(names.get("kind")))
            yield kind, spec.get("scope") != "Cluster"


SERVER_METADATA = (
    "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation",
    "managedFields", "resourceVersion", "selfLink", "uid",
)  # fmt: skip
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_API_VERSION = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[a-z0-9]+")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
_NAME = re.compile(r"(?!\.{1,2}$)[^/%\s\x00-\x1f\x7f]{1,253}")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def make_desired_objects(
    manifests: Sequence[Manifest],
    *,
    namespace: str,
    scopes: Callable[[Sequence[Fields]], ScopeResolver],
) -> tuple[DeclaredObject, ...]:
    """Check every manifest and give each its namespace.

    Raises ValidationError with everything that is wrong, by file and line.
    """
    if len(manifests) > MAX_OBJECTS:
        raise refusal(
            manifests[MAX_OBJECTS].where(),
            f"with it there are over {MAX_OBJECTS:,} objects.",
            "Declare fewer objects in one Application.",
        )
    problems = ProblemList()
    good = [manifest for manifest in manifests if _check_identity(manifest, problems)]
    known = scopes([manifest.value for manifest in good])
    first: dict[tuple[str, str, str, str], Manifest] = {}
    objects: list[DeclaredObject] = []
    for manifest in good:
        item = _clean_object(manifest, problems)
        _set_namespace(item, namespace, known)
        ref = ref_of(item)
        identity = (ref.group, ref.kind, ref.namespace, ref.name)
        if identity in first:
            problems.add(
                manifest.where(),
                f"{ref} is declared already at {first[identity].where()}.",
                "Keep one of the two.",
            )
        first.setdefault(identity, manifest)
        objects.append(_desired_object(ref, item, manifest))
    if problems.found:
        count = len(problems.found)
        raise ValidationError(
            f"{count} {'problem' if count == 1 else 'problems'} found in the repository's files.",
            problems=problems.found[:MAX_PROBLEMS],
        )
    return tuple(objects)


def _check_identity(manifest: Manifest, problems: ProblemList) -> bool:
    """Check what makes a document an object: its API version, kind and name."""
    before = len(problems.found)
    value = manifest.value
    for key, form in (("apiVersion", _API_VERSION), ("kind", _KIND)):
        text = value.get(key)
        if not isinstance(text, str) or not form.fullmatch(text):
            problems.add(
                manifest.where(f"/{key}"),
                f"it has no usable {key}, so it is not a Kubernetes object.",
                "Set it, or keep other YAML out of this directory.",
            )
            return False
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        problems.add(manifest.where(), f"this {value['kind']} has no metadata.", "Give it a name.")
        return False
    name = metadata.get("name")
    if metadata.get("generateName") is not None:
        problems.add(
            manifest.where("/metadata/generateName"),
            f"this {value['kind']} gets another name each time it is created.",
            "Use metadata.name in place of generateName.",
        )
    elif not isinstance(name, str) or not _NAME.fullmatch(name):
        what = "has no name" if name is None else "has a name that cannot be used"
        problems.add(
            manifest.where("/metadata/name"),
            f"this {value['kind']} {what}.",
            "Set metadata.name to a text without slashes, quoted if it looks like a number.",
        )
    place = metadata.get("namespace")
    if place is not None and not (isinstance(place, str) and _NAMESPACE.fullmatch(place)):
        problems.add(
            manifest.where("/metadata/namespace"),
            f"the namespace of this {value['kind']} is none.",
            "Use lower-case letters, digits and dashes.",
        )
    for key in ("labels", "annotations"):
        _check_string_map(manifest, key, metadata.get(key), problems)
    return len(problems.found) == before


def _check_string_map(manifest: Manifest, key: str, pairs: Tree, problems: ProblemList) -> None:
    if pairs is None:
        return
    if not isinstance(pairs, dict):
        problems.add(
            manifest.where(f"/metadata/{key}"),
            f"its {key} are not a mapping.",
            "Write name: value pairs.",
        )
        return
    for name, text in pairs.items():
        if not isinstance(text, str):
            problems.add(
                manifest.where(json_pointer(("metadata", key, name))),
                f"the value of {quote_text(name)} in its {key} is not text.",
                "Quote it.",
            )


def _clean_object(manifest: Manifest, problems: ProblemList) -> Fields:
    """Copy an object without what a server writes, Secrets in the one form that servers give."""
    item = {key: value for key, value in manifest.value.items() if key not in ("status", "sops")}
    if "sops" in manifest.value and not manifest.encrypted:
        item["sops"] = manifest.value["sops"]  # some kind's own field
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # checked by _check_identity
    metadata = {key: value for key, value in metadata.items() if key not in SERVER_METADATA}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        metadata["annotations"] = {k: v for k, v in annotations.items() if k != LAST_APPLIED}
    for key in ("annotations", "labels"):
        if key in metadata and not metadata[key]:
            del metadata[key]
    item["metadata"] = metadata
    return normalize_secret(item, manifest, problems) if is_secret(item) else item


def _set_namespace(item: Fields, namespace: str, scopes: ScopeResolver) -> None:
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # checked by _check_identity
    if not scopes.namespaced(ref_of(item)):
        metadata.pop("namespace", None)  # as API servers do
    elif not metadata.get("namespace") and namespace:
        metadata["namespace"] = namespace


def _desired_object(ref: ObjectRef, item: Fields, manifest: Manifest) -> DeclaredObject:
    lines, elsewhere = manifest.lines, manifest.elsewhere
    if is_secret(item):
        lines, elsewhere = _as_data(lines), _as_data(elsewhere)
    origin = Origin(
        file=manifest.file, document=manifest.document, lines=lines, elsewhere=elsewhere
    )
    return DeclaredObject(ref=ref, item=item, origin=origin, encrypted=manifest.encrypted)


def _as_data(known: Mapping[str, T]) -> dict[str, T]:
    """Know what stands under `stringData` under `data` too, where it is applied."""
    prefix = "/stringData"
    return {
        **known,
        **{
            "/data" + pointer.removeprefix(prefix): where
            for pointer, where in known.items()
            if pointer.startswith(prefix)
        },
    }
