"""Objects of the Kubernetes API as they come over the wire, and where they live.

Everything in this package passes objects as plain dictionaries: their schemas belong to the
cluster, not to us. Nothing outside the adapter should see one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

from holdfast.reconcile.kube import ObjectRef, Scope
from holdfast.reconcile.kube import matches_selector as matches_selector

Object: TypeAlias = dict[str, Any]  # Any: the cluster's own schemas decide what is inside
_SERVER_METADATA = frozenset({"resourceVersion", "managedFields", "annotations"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKey:
    """What distinguishes objects of one kind. `namespace` is empty for those without one."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind as the cluster serves it."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str] = frozenset()
    subresources: frozenset[str] = frozenset()

    @property
    def api_version(self) -> str:
        """The `apiVersion` that objects of this kind carry."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def secret(self) -> bool:
        """True when a response about it may quote a secret, so that none may be shown."""
        return self.group == "" and self.plural == "secrets"

    def ref(self, name: str, namespace: str = "") -> ObjectRef:
        """Name one object of this kind."""
        return ObjectRef(
            api_version=self.api_version, kind=self.kind, namespace=namespace, name=name
        )

    def scope(self, namespace: str = "", labels: str = "") -> Scope:
        """Name the objects of this kind: an empty namespace is all of them."""
        return Scope(
            api_version=self.api_version, kind=self.kind, namespace=namespace, labels=labels
        )

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """Return the address of one object, or of all of them when no name is given."""
        parts = [group_path(self.group, self.version)]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=":"))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def group_path(group: str, version: str) -> str:
    """Return the address under which a group's version is served."""
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def object_key(item: Object) -> ObjectKey:
    """Return an object's namespace and name."""
    metadata = item["metadata"]
    return ObjectKey(namespace=metadata.get("namespace", ""), name=metadata["name"])


def uid_of(item: Object) -> str:
    """Return what an object has for its whole life and no other ever has."""
    uid: str = item["metadata"].get("uid", "")
    return uid


def version_of(item: Object) -> str:
    """Return the resourceVersion of an object, a list or a bookmark."""
    version: str = item.get("metadata", {}).get("resourceVersion", "")
    return version


def without_managed_fields(item: Object) -> Object:
    """Drop who wrote what, often half of an object, for a cache that never asks."""
    item["metadata"].pop("managedFields", None)
    return item


def compact_managed_fields(item: Object) -> Object:
    """Keep who wrote what as JSON text: a tenth of the memory of nested dictionaries."""
    for entry in item["metadata"].get("managedFields", ()):
        if isinstance(entry.get("fieldsV1"), dict):
            entry["fieldsV1"] = msgspec.json.encode(entry["fieldsV1"]).decode()
    return item


def equal_except_status(one: Object, other: Object) -> bool:
    """Say whether nothing moved but what controllers report by themselves: the status."""
    return _without_status(one) == _without_status(other)


def _without_status(item: Object) -> Object:
    metadata = item["metadata"]
    left = {name: value for name, value in metadata.items() if name not in _SERVER_METADATA}
    left["annotations"] = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if not name.startswith("deployment.kubernetes.io/")  # counted up along with the status
    }
    left["managedFields"] = [
        entry
        for entry in metadata.get("managedFields") or ()
        if entry.get("subresource") != "status"
    ]
    return {**item, "metadata": left, "status": None}
