"""Reads the manifests under tests/corpus/gitops, for whatever test wants realistic ones."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.core.ownership.objects import at, is_custom
from holdfast.core.tree import Fields
from holdfast.wire.yaml import Document, read_documents

ROOT = Path(__file__).parent.parent / "corpus" / "gitops"
GATEWAY = "gateway"
"""The topic whose kinds are not of this corpus: its definitions come from the Gateway API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One file of the corpus. Its documents are shared: copy what you change."""

    path: Path
    documents: tuple[Document, ...]

    @property
    def topic(self) -> str:
        return self.path.parent.name

    @property
    def items(self) -> list[Fields]:
        values = [document.value for document in self.documents]
        return [value for value in values if isinstance(value, dict)]


@cache
def manifests() -> tuple[Manifest, ...]:
    """Every file, in the order of their paths."""
    return tuple(
        Manifest(path=path, documents=tuple(read_documents(path.read_bytes(), source=path.name)))
        for path in sorted(ROOT.rglob("*.yaml"))
    )


def gitops_items(*, without: Container[str] = ()) -> list[Fields]:
    """Every object, save for those of some topics."""
    return [item for file in manifests() if file.topic not in without for item in file.items]


def moved(item: Fields, namespace: str) -> Fields:
    """Give the same object in another namespace.

    A claim asks for a storage class that nobody has: a volume that it took would be missed by
    the test that declares the volume, on a cluster that both use.
    """
    metadata: Any = item["metadata"]
    there: Fields = {**item, "metadata": {**metadata, "namespace": namespace}}
    if item["kind"] == "PersistentVolumeClaim":
        spec: Any = item["spec"]
        there["spec"] = {**spec, "storageClassName": f"none-{namespace}"}
    return there


def items_of_one_namespace(namespace: str) -> list[Fields]:
    """The objects of built-in kinds that can live in this namespace, each name once."""
    found: dict[tuple[object, object], Fields] = {}
    for item in gitops_items(without=(GATEWAY,)):
        metadata: Any = item["metadata"]
        alone = item["kind"] not in ("ResourceQuota", "LimitRange") and not _needs_another(item)
        if alone and metadata.get("namespace") and not is_custom(str(item["apiVersion"])):
            found.setdefault((item["kind"], metadata["name"]), moved(item, namespace))
    return list(found.values())


def _needs_another(item: Fields) -> bool:
    """True for what is refused or removed without an object that is not with it here."""
    names = ("priorityClassName", "runtimeClassName")
    token = item.get("type") == "kubernetes.io/service-account-token"
    return token or any(at(item, ("spec", name)) is not None for name in names)
