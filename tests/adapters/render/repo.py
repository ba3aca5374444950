"""A commit's files on disk, and a renderer over them, for the tests of this folder."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path

from holdfast.adapters.render.renderer import FileRenderer
from holdfast.core.gitops.kustomize import LayerStack
from holdfast.core.gitops.source import DeclaredObject, RenderedSource, Renderer
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import SourceExport

KEY = b"a key for digests, of the tests"


class Repo:
    """Files that are as good as exported."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.left_out: dict[str, str] = {}
        root.mkdir(parents=True, exist_ok=True)

    def write(self, files: Mapping[str, str]) -> Repo:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip("\n"))
        return self

    @property
    def export(self) -> SourceExport:
        return SourceExport(commit="c" * 40, root=self.root, left_out=self.left_out)

    def render(
        self,
        path: str = ".",
        *,
        by: FileRenderer | None = None,
        renderer: Renderer = Renderer.AUTO,
        namespace: str = "team",
    ) -> RenderedSource:
        chosen = by or FileRenderer(key=KEY)
        return asyncio.run(chosen.render(self.export, path, renderer=renderer, namespace=namespace))

    def trail(self, path: str) -> LayerStack:
        found = FileRenderer(key=KEY).trail(self.export, path, renderer=Renderer.KUSTOMIZE)
        assert found is not None
        return found


def names(rendered: RenderedSource) -> list[str]:
    return [str(each.ref) for each in rendered.objects]


def items(rendered: RenderedSource) -> list[Fields]:
    """What was rendered, whatever its order."""
    return sorted(
        (each.item for each in rendered.objects), key=lambda item: json.dumps(item, sort_keys=True)
    )


def the(rendered: RenderedSource, kind: str) -> DeclaredObject:
    (found,) = [each for each in rendered.objects if each.ref.kind == kind]
    return found


def config_map(name: str, **data: str) -> str:
    pairs = "".join(f"  {key}: {value!r}\n" for key, value in data.items())
    head = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n"
    return head + (f"data:\n{pairs}" if pairs else "")
