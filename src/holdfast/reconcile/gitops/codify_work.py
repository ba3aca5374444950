"""The private copy in which codify tries its edits, and the test that each has to pass.

An edit is accepted only when rendering the edited files gives the declared objects with the wished
fields changed, and nothing else. So a wrong guess about layers costs a rendering, never a file.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.core.diff import same
from holdfast.core.gitops.codify import Wish, steps
from holdfast.core.gitops.layers import Trail
from holdfast.core.gitops.source import Rendered, Renderer
from holdfast.core.normalize import Rules, normalize
from holdfast.core.objects import ObjectRef
from holdfast.core.tree import Fields, Tree, digest
from holdfast.reconcile.gitops.ports import Export, Renders
from holdfast.wire.yaml import read_documents
from holdfast.wire.yaml_edit import REMOVED, Edit, Steps, applied, edit

Files = Mapping[str, bytes | None]
"""Path from the root to the new content; None deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One application at one commit, to be edited."""

    export: Export
    path: str
    renderer: Renderer
    namespace: str
    renders: Renders
    trail: Trail | None
    """The layers of a Kustomize path; None for plain YAML."""

    def own(self, file: str) -> bool:
        """True for a file within the application's own path, which no other one is made of."""
        path = posixpath.normpath(self.path)
        return path == "." or file == path or file.startswith(f"{path}/")

    def text(self, files: Files, file: str) -> bytes:
        """Return a file as it is with the edits so far."""
        changed = files.get(file)
        return (self.export.root / file).read_bytes() if changed is None else changed

    def exists(self, files: Files, file: str) -> bool:
        """True when there is such a file with the edits so far."""
        return files[file] is not None if file in files else (self.export.root / file).exists()

    async def rendered(self, files: Files) -> Rendered:
        """Render a copy of the files with the edits. Raises as the renderer does."""
        marks: list[Tree] = [
            [file, None if text is None else text.hex()] for file, text in sorted(files.items())
        ]
        mark = digest(marks).removeprefix("sha256:")[:16]
        scratch = await asyncio.to_thread(tempfile.mkdtemp, prefix="holdfast-codify-")
        try:
            await asyncio.to_thread(self._copy, Path(scratch), files)
            # Renderers remember by commit, and this is another tree.
            copy = replace(self.export, commit=f"{self.export.commit}+{mark}", root=Path(scratch))
            return await self.renders.render(
                copy, self.path, renderer=self.renderer, namespace=self.namespace
            )
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    def _copy(self, to: Path, files: Files) -> None:
        for file in self._needed():
            if file not in files:
                target = to / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.export.root / file, target, follow_symlinks=False)
        for file, text in files.items():
            if text is not None:
                target = to / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(text)

    def _needed(self) -> Iterator[str]:
        if self.trail is not None:
            yield from self.trail.files
            return
        root = self.export.root
        start = root / self.path
        if start.is_file():
            yield posixpath.normpath(self.path)
        for directory, _, names in os.walk(start):
            for name in names:
                found = Path(directory) / name
                if found.is_file() and not found.is_symlink():
                    yield found.relative_to(root).as_posix()


def granted(tree: Tree, wish: Wish, rules: Rules) -> Tree:
    """Return an object with one wish fulfilled. Raises ValidationError when it cannot be."""
    return applied(tree, edit_for(tree, wish, rules))


def edit_for(tree: Tree, wish: Wish, rules: Rules, *, within: Steps = ()) -> Edit:
    """Say a wish as an edit of a given tree that stands somewhere in a document."""
    path = (*within, *steps(tree, wish.path, rules))
    return Edit(path=path, value=REMOVED if wish.gone else wish.value)


def grant_in_file(
    text: bytes, document: int, within: Steps, granting: tuple[Wish, ...], rules: Rules, file: str
) -> bytes:
    """Fulfil wishes in the file that declares an object."""
    tree = at_steps(read_documents(text, source=file)[document].value, within)
    edits = []
    for wish in granting:
        each = edit_for(tree, wish, rules)
        tree = applied(tree, each, source=file)
        edits.append(Edit(path=(*within, *each.path), value=each.value))
    return edit(text, edits, document=document, source=file)


def place_of(text: bytes, document: int, ref: ObjectRef, file: str) -> Steps:
    """Return where in a document an object stands: in a `List` it is one of the items."""
    documents = read_documents(text, source=file)
    value = documents[document].value if document < len(documents) else None
    if not isinstance(value, dict) or not str(value.get("kind", "")).endswith("List"):
        return ()
    items = value.get("items")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        metadata = item.get("metadata") if isinstance(item, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if isinstance(item, dict) and item.get("kind") == ref.kind and name == ref.name:
            return ("items", index)
    return ()


def at_steps(tree: Tree, path: Steps) -> Tree:
    """Return what stands at a path that counts list items; None when nothing does."""
    for step in path:
        if isinstance(step, int):
            tree = tree[step] if isinstance(tree, list) and step < len(tree) else None
        else:
            tree = tree.get(step) if isinstance(tree, dict) else None
    return tree


def unlike(
    before: Rendered, after: Rendered, ref: ObjectRef, wanted: Fields | None, rules: Rules
) -> str:
    """Say what a rendering has that was not wished for; empty when it is exactly as wished."""
    old = {each.ref: each.item for each in before.objects if each.ref != ref}
    new = {each.ref: each.item for each in after.objects}
    found = new.pop(ref, None)
    if wanted is None and found is not None:
        return f"{ref} would still be declared"
    if wanted is not None:
        if found is None:
            return f"{ref} would not be declared any more"
        if not same(normalize(found, rules), normalize(wanted, rules)):
            return f"{ref} would not be as wished"
    for other in sorted(old.keys() | new.keys()):
        if other not in new:
            return f"{other} would not be declared any more"
        if other not in old:
            return f"{other} would be declared too"
        if not same(old[other], new[other]):
            return f"{other} would change too"
    return ""


def changed_in_both(before: Rendered, after: Rendered) -> tuple[ObjectRef, ...]:
    """Name the objects that both renderings have and that are not the same in them."""
    old = {each.ref: each.item for each in before.objects}
    return tuple(
        each.ref for each in after.objects if each.ref in old and not same(old[each.ref], each.item)
    )


def under_old_name(before: Rendered, after: Rendered, ref: ObjectRef) -> Rendered:
    """Give an object its old name back that is called by a hash of its content, for comparing."""
    known = {each.ref for each in before.objects}
    stem = ref.name.rpartition("-")[0]
    new = [
        each.ref
        for each in after.objects
        if each.ref not in known and each.ref.kind == ref.kind and stem
        and each.ref.name.rpartition("-")[0] == stem
    ]  # fmt: skip
    if len(new) != 1 or any(each.ref == ref for each in after.objects):
        return after
    objects = []
    for each in after.objects:
        item = _renamed(each.item, new[0].name, ref.name)
        assert isinstance(item, dict)  # noqa: S101  # a mapping stays a mapping
        named = ref if each.ref == new[0] else each.ref
        objects.append(replace(each, ref=named, item=item))
    return replace(after, objects=tuple(objects))


def _renamed(tree: Tree, name: str, to: str) -> Tree:
    if isinstance(tree, dict):
        return {key: _renamed(value, name, to) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_renamed(value, name, to) for value in tree]
    return to if tree == name else tree
