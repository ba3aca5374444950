"""A repository's files, what they declare, a live side that moved, and the edit that follows."""

from __future__ import annotations

import asyncio
import copy
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.adapters.render.renderer import FileRenderer
from holdfast.core.gitops.codify import CodifyResult
from holdfast.core.gitops.source import DeclaredObject, RenderedSource, Renderer
from holdfast.core.ownership.object_diff import diff_object
from holdfast.core.ownership.signals import Declaration, FieldDrift
from holdfast.core.tree import Fields, digest
from holdfast.reconcile.gitops.codify import codify
from holdfast.reconcile.gitops.codify_edits import CodifyWorkspace
from holdfast.reconcile.gitops.ports import Decryptor, SourceExport

KEY = b"a key of the tests"
NOW = datetime(2026, 11, 16, tzinfo=UTC)
EDITED = "kubectl-edit"

# Any: live objects of the Kubernetes API, which tests change at will.
Change = Callable[[dict[str, Any]], object]


@dataclass
class CodifyWorld:
    """One path of one repository."""

    root: Path
    path: str
    renders: FileRenderer
    namespace: str = "team"
    decryptor: Decryptor | None = None

    def write(self, files: Mapping[str, str | bytes]) -> CodifyWorld:
        for name, text in files.items():
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            data = text if isinstance(text, bytes) else textwrap.dedent(text).lstrip("\n").encode()
            file.write_bytes(data)
        return self

    @property
    def export(self) -> SourceExport:
        return SourceExport(commit="c" * 40, root=self.root)

    def render(self, export: SourceExport | None = None) -> RenderedSource:
        return asyncio.run(
            self.renders.render(
                export or self.export, self.path, renderer=Renderer.AUTO, namespace=self.namespace
            )
        )

    def declared(self, kind: str, name: str = "") -> DeclaredObject:
        found = [
            each
            for each in self.render().objects
            if each.ref.kind == kind and name in each.ref.name
        ]
        assert len(found) == 1, [str(each.ref) for each in self.render().objects]
        return found[0]

    def live(self, kind: str, change: Change, *, name: str = "", added: Any = None) -> Fields:
        """The declared object after somebody changed it; `added`: the fields that are theirs."""
        item: Any = copy.deepcopy(self.declared(kind, name).item)
        change(item)
        item["metadata"]["uid"] = "u-1"
        item["metadata"]["resourceVersion"] = "7"
        if added is not None:
            item["metadata"]["managedFields"] = [
                {
                    "manager": EDITED,
                    "operation": "Update",
                    "apiVersion": item["apiVersion"],
                    "time": "2026-11-16T00:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": added,
                }
            ]
        return dict(item)

    def codify(self, kind: str, live: Fields | None, *, name: str = "") -> CodifyResult:
        declared = self.declared(kind, name)
        return self._codify(declared, live, found(declared.item, live))

    def codify_running(self, kind: str, live: Fields, *findings: FieldDrift) -> CodifyResult:
        """Codify what pods run, which no verdict about the object finds."""
        return self._codify(self.declared(kind), live, findings)

    def adopt(self, live: Fields) -> CodifyResult:
        return self._codify(None, live, ())

    def _codify(
        self,
        declared: DeclaredObject | None,
        live: Fields | None,
        field_drifts: tuple[FieldDrift, ...],
    ) -> CodifyResult:
        trail = self.renders.trail(self.export, self.path, renderer=Renderer.AUTO)
        work = CodifyWorkspace(
            export=self.export,
            path=self.path,
            renderer=Renderer.AUTO,
            namespace=self.namespace,
            renders=self.renders,
            trail=trail,
        )
        return asyncio.run(
            codify(
                work,
                rendered=self.render(),
                declared=declared,
                live=live,
                field_drifts=field_drifts,
                decryptor=self.decryptor,
            )
        )

    def text(self, done: CodifyResult, file: str) -> str:
        data = done.files[file]
        assert data is not None
        return data.decode()


def found(item: Fields, live: Fields | None) -> tuple[FieldDrift, ...]:
    """What a verdict finds."""
    declaration = Declaration(
        item=item, digest=digest(item), managers=frozenset({"holdfast-gitops"}), applied=False
    )
    return diff_object(
        fast_path=False, declared=declaration, live=live, key=KEY, now=NOW
    ).field_drifts


def diff(before: str, after: str) -> list[str]:
    """The lines that differ, as a person would show them."""
    import difflib

    return [
        line
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
