"""Reads the manifests under tests/corpus/gitops, for whatever test wants realistic ones."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
