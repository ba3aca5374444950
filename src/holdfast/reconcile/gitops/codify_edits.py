"""The edits that codify tries: where a value may be changed, and where each is rendered.

An edit is accepted only when rendering the edited files gives the declared objects with the
requested fields changed, and nothing else. So a wrong guess about layers costs a rendering, never
a file. In a Kustomize path the layers are tried from the overlay down to the base: what a layer
sets itself (images, replicas, generators, patches), then the file that declares the object, as long
as it lies in the application's own path; otherwise a patch in the overlay sets it.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.core.diff import same_value
from holdfast.core.gitops.codify import FieldEdit, counted_path, merge_patch, merge_patch_for
from holdfast.core.gitops.kustomize import (
    GeneratorKind,
    ImageChange,
    KustomizeGenerator,
    KustomizeLayer,
    KustomizePatch,
    LayerStack,
    PatchForm,
)
from holdfast.core.gitops.source import DeclaredObject, RenderedSource, Renderer
from holdfast.core.normalize import Rules, normalize
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import raw_value_at
from holdfast.core.tree import Fields, Tree, digest, json_pointer, parse_pointer
from holdfast.reconcile.gitops.ports import SourceExport, SourceRenderer
from holdfast.wire.yaml import read_documents, write_document
from holdfast.wire.yaml_edit import REMOVED, Edit, YamlPath, apply_edit, apply_edits

FileEdits = Mapping[str, bytes | None]
"""Path from the root to the new content; None deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodifyWorkspace:
    """One application at one commit, to be edited."""

    export: SourceExport
    path: str
    renderer: Renderer
    namespace: str
    renders: SourceRenderer
    trail: LayerStack | None
    """The layers of a Kustomize path; None for plain YAML."""

    def own(self, file: str) -> bool:
        """True for a file within the application's own path, which no other one is made of."""
        path = posixpath.normpath(self.path)
        return path == "." or file == path or file.startswith(f"{path}/")

    def text(self, files: FileEdits, file: str) -> bytes:
        """Return a file as it is with the edits so far."""
        changed = files.get(file)
        return (self.export.root / file).read_bytes() if changed is None else changed

    def exists(self, files: FileEdits, file: str) -> bool:
        """True when there is such a file with the edits so far."""
        return files[file] is not None if file in files else (self.export.root / file).exists()

    async def render(self, files: FileEdits) -> RenderedSource:
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

    def _copy(self, to: Path, files: FileEdits) -> None:
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


def with_edit(tree: Tree, edit: FieldEdit, rules: Rules) -> Tree:
    """Return an object with one wish fulfilled. Raises ValidationError when it cannot be."""
    return apply_edit(tree, edit_for(tree, edit, rules))


def edit_for(tree: Tree, edit: FieldEdit, rules: Rules, *, within: YamlPath = ()) -> Edit:
    """Say a wish as an edit of a given tree that stands somewhere in a document."""
    path = (*within, *counted_path(tree, edit.path, rules))
    return Edit(path=path, value=REMOVED if edit.removed else edit.value)


def edit_document(
    text: bytes,
    document: int,
    within: YamlPath,
    edits: tuple[FieldEdit, ...],
    rules: Rules,
    file: str,
) -> bytes:
    """Make edits in the file that declares an object."""
    tree = at_steps(read_documents(text, source=file)[document].value, within)
    changes = []
    for edit in edits:
        change = edit_for(tree, edit, rules)
        tree = apply_edit(tree, change, source=file)
        changes.append(Edit(path=(*within, *change.path), value=change.value))
    return apply_edits(text, changes, document=document, source=file)


def object_steps(text: bytes, document: int, ref: ObjectRef, file: str) -> YamlPath:
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


def at_steps(tree: Tree, path: YamlPath) -> Tree:
    """Return what stands at a path that counts list items; None when nothing does."""
    for step in path:
        if isinstance(step, int):
            tree = tree[step] if isinstance(tree, list) and step < len(tree) else None
        else:
            tree = tree.get(step) if isinstance(tree, dict) else None
    return tree


def unexpected_change(
    before: RenderedSource,
    after: RenderedSource,
    ref: ObjectRef,
    desired: Fields | None,
    rules: Rules,
) -> str:
    """Say what a rendering has that was not wished for; empty when it is exactly as wished."""
    old = {each.ref: each.item for each in before.objects if each.ref != ref}
    new = {each.ref: each.item for each in after.objects}
    found = new.pop(ref, None)
    if desired is None and found is not None:
        return f"{ref} would still be declared"
    if desired is not None:
        if found is None:
            return f"{ref} would not be declared any more"
        if not same_value(normalize(found, rules), normalize(desired, rules)):
            return f"{ref} would not be as wished"
    for other in sorted(old.keys() | new.keys()):
        if other not in new:
            return f"{other} would not be declared any more"
        if other not in old:
            return f"{other} would be declared too"
        if not same_value(old[other], new[other]):
            return f"{other} would change too"
    return ""


def changed_objects(before: RenderedSource, after: RenderedSource) -> tuple[ObjectRef, ...]:
    """Name the objects that both renderings have and that are not the same in them."""
    old = {each.ref: each.item for each in before.objects}
    return tuple(
        each.ref
        for each in after.objects
        if each.ref in old and not same_value(old[each.ref], each.item)
    )


def with_old_name(before: RenderedSource, after: RenderedSource, ref: ObjectRef) -> RenderedSource:
    """Give an object its old name back that is called by a hash of its content, for comparing."""
    known = {each.ref for each in before.objects}
    stem = ref.name.rpartition("-")[0]
    new = [
        each.ref
        for each in after.objects
        if each.ref not in known
        and each.ref.kind == ref.kind
        and stem
        and each.ref.name.rpartition("-")[0] == stem
    ]
    if len(new) != 1 or any(each.ref == ref for each in after.objects):
        return after
    objects = []
    for each in after.objects:
        item = _replace_name(each.item, new[0].name, ref.name)
        assert isinstance(item, dict)  # noqa: S101  # a mapping stays a mapping
        named = ref if each.ref == new[0] else each.ref
        objects.append(replace(each, ref=named, item=item))
    return replace(after, objects=tuple(objects))


def _replace_name(tree: Tree, name: str, to: str) -> Tree:
    if isinstance(tree, dict):
        return {key: _replace_name(value, name, to) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_replace_name(value, name, to) for value in tree]
    return to if tree == name else tree


_IMAGE = re.compile(r"(?P<name>[^@]*?)(?::(?P<tag>[^:/@]+))?(?:@(?P<digest>.+))?")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


@dataclass(frozen=True, slots=True, kw_only=True)
class EditAttempt:
    """One way to fulfil a wish."""

    where: str
    make: Callable[[], FileEdits]
    """Returns the edited files. Raises ValidationError when the place turns out not to fit."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEdits:
    """The layers of one object, with the edits that were accepted so far."""

    work: CodifyWorkspace
    trail: LayerStack
    declared: DeclaredObject
    item: Fields
    """The object as it is declared with those edits."""
    rules: Rules
    files: FileEdits

    def attempts(self, edit: FieldEdit) -> Iterator[EditAttempt]:
        """Yield the ways to fulfil a wish, the likeliest first."""
        for layer in self.trail.layers:
            if not self.work.own(layer.file):
                continue
            yield from self._transformers(layer, edit)
            for patch in reversed(layer.patches):
                if self._is_for(patch):
                    yield from self._in_patch(patch, edit)
            if any(each.path == self.declared.origin.file for each in layer.resources):
                yield edit_own_file(self.work, self.files, self.declared, (edit,), self.rules)
        yield from self._anew(edit)

    def drops(self) -> Iterator[EditAttempt]:
        """Yield the ways to declare the object no more."""
        origin = self.declared.origin.file
        for layer in self.trail.layers:
            if not self.work.own(layer.file):
                continue
            for generator in layer.generators:
                if self._generated_by(generator):
                    yield self._without(layer, generator.location.pointer)
        entry = self.trail.entry
        body: Fields = {**self._named(), "$patch": "delete"}
        note = f"{origin} lies outside the application's path, so a patch leaves the object out."
        outside = bool(origin) and not self.work.own(origin)
        yield self._with_patch(entry, {"patch": write_document(body)}, note if outside else "")

    def _transformers(self, layer: KustomizeLayer, edit: FieldEdit) -> Iterator[EditAttempt]:
        path = edit.path
        if path[-1] == "image" and len(path) > 2 and path[-3] in _CONTAINERS:
            for image in layer.images:
                if isinstance(edit.value, str) and self._image_of(image, path):
                    yield self._attempt(layer.file, _image_edits(image, edit.value))
        if path == ("spec", "replicas") and not edit.removed:
            for replicas in layer.replicas:
                if replicas.name in self.declared.ref.name:
                    at = (*_steps_in(layer.body, replicas.location.pointer), "count")
                    yield self._attempt(layer.file, [Edit(path=at, value=edit.value)])
        if path[0] == "data" and len(path) == 2:
            for generator in layer.generators:
                if self._generated_by(generator) and generator.kind is GeneratorKind.CONFIG_MAP:
                    yield from self._generated(layer, generator, edit)

    def _generated(
        self, layer: KustomizeLayer, generator: KustomizeGenerator, edit: FieldEdit
    ) -> Iterator[EditAttempt]:
        key = edit.path[1]
        here = _steps_in(layer.body, generator.location.pointer)
        written: Tree = f"{key}={_quoted_literal(edit.value)}"
        for literal in generator.literals:
            if literal.key == key:
                at = _steps_in(layer.body, literal.location.pointer)
                yield self._attempt(
                    layer.file, [Edit(path=at, value=REMOVED if edit.removed else written)]
                )
        for file in generator.files:
            if file.key == key and self.work.own(file.path) and isinstance(edit.value, str):
                yield _replace_file(file.path, edit.value.encode())
        for variables in generator.envs:
            if self.work.own(variables.path):
                yield from self._in_variables(variables.path, key, edit)
        if generator.literals and not edit.removed:
            at = (*here, "literals", len(generator.literals))
            yield self._attempt(layer.file, [Edit(path=at, value=written)])

    def _in_variables(self, file: str, key: str, edit: FieldEdit) -> Iterator[EditAttempt]:
        pattern = re.compile(rb"(?m)^%b=[^\r\n]*" % re.escape(key).encode())
        text = self.work.text(self.files, file)
        if not edit.removed and "\n" not in str(edit.value) and pattern.search(text):
            line = f"{key}={edit.value}".encode()
            yield _replace_file(file, pattern.sub(lambda _: line, text))

    def _in_patch(self, patch: KustomizePatch, edit: FieldEdit) -> Iterator[EditAttempt]:
        if patch.form is PatchForm.MERGE:
            if isinstance(patch.body, dict) and _sets_field(patch.body, edit, self.rules):
                change = edit_for(patch.body, edit, self.rules)
                yield self._edit_patch(patch, [change])
            return
        target = json_pointer(tuple(map(str, edit_for(self.item, edit, self.rules).path)))
        for index, operation in enumerate(patch.body if isinstance(patch.body, list) else ()):
            if not isinstance(operation, dict) or operation.get("op") not in ("add", "replace"):
                continue
            at = str(operation.get("path"))
            if at.startswith(f"{target}/") and not edit.removed:
                # It sets a part of what is wished; whether that is all of it, rendering tells.
                inner = at_steps(edit.value, _steps_in(edit.value, at[len(target) :]))
                yield self._edit_patch(patch, [Edit(path=(index, "value"), value=inner)])
            elif target == at or target.startswith(f"{at}/"):
                rest = _steps_in(operation.get("value"), target[len(at) :])
                value = REMOVED if edit.removed else edit.value
                path = (index, *(("value", *rest) if rest or not edit.removed else ()))
                yield self._edit_patch(patch, [Edit(path=path, value=value)])

    def _anew(self, edit: FieldEdit) -> Iterator[EditAttempt]:
        """Let a patch of the overlay say it: one that is there for the object, or a new one."""
        entry, origin = self.trail.entry, self.declared.origin.file
        part = merge_patch_for(edit, self.item, self.rules)
        note = ""
        if origin and not self.work.own(origin):
            note = (
                f"{origin} declares it outside the application's path, where others may use it, "
                "so a patch sets it."
            )
        for patch in reversed(entry.patches):
            if patch.form is PatchForm.MERGE and self._is_for(patch):
                whole = merge_patch(patch.body, part, self.rules)
                yield self._edit_patch(patch, [Edit(path=(), value=whole)], note)
        body = merge_patch(self._named(), part, self.rules)
        yield self._with_patch(entry, {"patch": write_document(body)}, note)
        # Kinds that Kustomize has no schema of have their lists merged by nothing.
        yield self._with_patch(entry, self._operation(edit), note)

    def _operation(self, edit: FieldEdit) -> Fields:
        change = edit_for(self.item, edit, self.rules)
        there = at_steps(self.item, change.path) is not None
        operation: Fields = {
            "op": "remove" if edit.removed else "replace" if there else "add",
            "path": json_pointer(tuple(map(str, change.path))),
        }
        if not edit.removed:
            operation["value"] = edit.value
        metadata = self._named()["metadata"]
        name = metadata["name"] if isinstance(metadata, dict) else self.declared.ref.name
        target: Fields = {"kind": self.declared.ref.kind, "name": name}
        return {"target": target, "patch": write_document([operation])}

    def _with_patch(self, entry: KustomizeLayer, patch: Fields, note: str) -> EditAttempt:
        # Wishes that were fulfilled before may have added patches.
        known = read_documents(self.work.text(self.files, entry.file), source=entry.file)[0].value
        patches = known.get("patches") if isinstance(known, dict) else None
        index = len(patches) if isinstance(patches, list) else 0
        return self._attempt(entry.file, [Edit(path=("patches", index), value=patch)], note)

    def _without(self, layer: KustomizeLayer, at: str) -> EditAttempt:
        steps = _steps_in(layer.body, at)
        siblings = at_steps(layer.body, steps[:-1])
        alone = isinstance(siblings, list) and len(siblings) == 1
        path = steps[:-1] if alone else steps
        return self._attempt(layer.file, [Edit(path=path, value=REMOVED)])

    def _edit_patch(self, patch: KustomizePatch, edits: list[Edit], note: str = "") -> EditAttempt:
        file = patch.location.file

        def make() -> FileEdits:
            text = self.work.text(self.files, file)
            if not patch.inline:
                return {
                    file: apply_edits(text, edits, document=patch.location.document, source=file)
                }
            body = read_documents(text, source=file)[0].value
            at = _steps_in(body, patch.location.pointer)
            inner = str(at_steps(body, at)).encode()
            documents = [each.value for each in read_documents(inner, source=file)]
            which = documents.index(patch.body) if patch.body in documents else 0
            edited = apply_edits(inner, edits, document=which, source=file).decode()
            return {file: apply_edits(text, [Edit(path=at, value=edited)], document=0, source=file)}

        return EditAttempt(where=file, make=make, note=note)

    def _attempt(self, file: str, edits: list[Edit], note: str = "") -> EditAttempt:
        return EditAttempt(
            where=file,
            make=lambda: {
                file: apply_edits(self.work.text(self.files, file), edits, document=0, source=file)
            },
            note=note,
        )

    def _named(self) -> Fields:
        """Name the object as a patch has to: as its own file or generator does."""
        ref, origin = self.declared.ref, self.declared.origin
        metadata: Fields = {"name": ref.name}
        for generator in (each for layer in self.trail.layers for each in layer.generators):
            if self._generated_by(generator):
                metadata = {"name": generator.name}
        if any(each.path == origin.file for layer in self.trail.layers for each in layer.resources):
            text = self.work.text(self.files, origin.file)
            within = object_steps(text, origin.document, ref, origin.file)
            document = read_documents(text, source=origin.file)[origin.document]
            found = at_steps(document.value, within)
            source = found.get("metadata") if isinstance(found, dict) else None
            if isinstance(source, dict):
                metadata = {key: source[key] for key in ("name", "namespace") if key in source}
        return {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": metadata}

    def _is_for(self, patch: KustomizePatch) -> bool:
        """True when a patch may be for the object; rendering tells whether it is."""
        kind, name = self.declared.ref.kind, self.declared.ref.name
        if patch.target is not None:
            return kind in patch.target.kind or not patch.target.kind.isalnum()
        body = patch.body if isinstance(patch.body, dict) else {}
        metadata = body.get("metadata")
        named = str(metadata.get("name")) if isinstance(metadata, dict) else ""
        return body.get("kind") == kind and named in name

    def _generated_by(self, generator: KustomizeGenerator) -> bool:
        ref = self.declared.ref
        return generator.kind.value == ref.kind and generator.name in ref.name

    def _image_of(self, image: ImageChange, path: tuple[str, ...]) -> bool:
        now = raw_value_at(self.item, path, self.rules)
        found = _IMAGE.fullmatch(now) if isinstance(now, str) else None
        return found is not None and found["name"] in (image.new_name or image.name, image.name)


def edit_own_file(
    work: CodifyWorkspace,
    files: FileEdits,
    declared: DeclaredObject,
    wished: tuple[FieldEdit, ...],
    rules: Rules,
) -> EditAttempt:
    """Fulfil wishes in the file that declares an object."""
    origin = declared.origin

    def make() -> FileEdits:
        text = work.text(files, origin.file)
        within = object_steps(text, origin.document, declared.ref, origin.file)
        edited = edit_document(text, origin.document, within, wished, rules, origin.file)
        return {origin.file: edited}

    return EditAttempt(where=origin.file, make=make)


def _image_edits(image: ImageChange, live: str) -> list[Edit]:
    found = _IMAGE.fullmatch(live)
    name, tag, digest = (found["name"], found["tag"], found["digest"]) if found else (live, "", "")
    at = _steps_of_pointer(image.location.pointer)
    wanted = {
        "newName": "" if name == image.name else name,
        "newTag": tag or "",
        "digest": digest or "",
    }
    now = {"newName": image.new_name, "newTag": image.new_tag, "digest": image.digest}
    return [
        Edit(path=(*at, key), value=wanted[key] or REMOVED)
        for key in now
        if wanted[key] != now[key]
    ]


def _steps_of_pointer(at: str) -> YamlPath:
    return tuple(int(part) if part.isdigit() else part for part in parse_pointer(at))


def _steps_in(tree: Tree, at: str) -> YamlPath:
    """Read a JSON pointer within a tree: what counts in a list is a number."""
    found: list[str | int] = []
    for part in parse_pointer(at):
        step: str | int = int(part) if isinstance(tree, list) and part.isdigit() else part
        found.append(step)
        tree = at_steps(tree, (step,))
    return tuple(found)


def _sets_field(body: Fields, edit: FieldEdit, rules: Rules) -> bool:
    """True when a patch sets the field, or something that holds it."""
    return raw_value_at(body, edit.path, rules) is not None


def _quoted_literal(value: Tree) -> str:
    text = str(value)
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return f'"{text}"' if quoted else text


def _replace_file(file: str, text: bytes) -> EditAttempt:
    return EditAttempt(where=file, make=lambda: {file: text})
