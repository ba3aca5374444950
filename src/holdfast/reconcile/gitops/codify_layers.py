"""Where in the layers of a Kustomize path a wish may be fulfilled, the likeliest place first.

From the overlay down to the base: what a layer sets itself (images, replicas, generators, patches),
then the file that declares the object, as long as it lies in the application's own path. What
comes from elsewhere is left alone, since others are made of it too: a patch in the overlay says it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast.core.gitops.codify import Wish, merged, partial
from holdfast.core.gitops.layers import (
    Generator,
    GeneratorKind,
    ImageChange,
    Layer,
    Patch,
    PatchForm,
    Trail,
)
from holdfast.core.gitops.source import Declared
from holdfast.core.normalize import Rules
from holdfast.core.ownership.objects import raw_at
from holdfast.core.tree import Fields, Tree, parse_pointer, pointer
from holdfast.reconcile.gitops.codify_work import (
    Files,
    Work,
    at_steps,
    edit_for,
    grant_in_file,
    place_of,
)
from holdfast.wire.yaml import read_documents, write_document
from holdfast.wire.yaml_edit import REMOVED, Edit, Steps, edit

_IMAGE = re.compile(r"(?P<name>[^@]*?)(?::(?P<tag>[^:/@]+))?(?:@(?P<digest>.+))?")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One way to fulfil a wish."""

    where: str
    make: Callable[[], Files]
    """Returns the edited files. Raises ValidationError when the place turns out not to fit."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The layers of one object, with the edits that were accepted so far."""

    work: Work
    trail: Trail
    declared: Declared
    item: Fields
    """The object as it is declared with those edits."""
    rules: Rules
    files: Files

    def attempts(self, wish: Wish) -> Iterator[Attempt]:
        """Yield the ways to fulfil a wish, the likeliest first."""
        for layer in self.trail.layers:
            if not self.work.own(layer.file):
                continue
            yield from self._transformers(layer, wish)
            for patch in reversed(layer.patches):
                if self._is_for(patch):
                    yield from self._in_patch(patch, wish)
            if any(each.path == self.declared.origin.file for each in layer.resources):
                yield in_own_file(self.work, self.files, self.declared, (wish,), self.rules)
        yield from self._anew(wish)

    def drops(self) -> Iterator[Attempt]:
        """Yield the ways to declare the object no more."""
        origin = self.declared.origin.file
        for layer in self.trail.layers:
            if not self.work.own(layer.file):
                continue
            for generator in layer.generators:
                if self._generated_by(generator):
                    yield self._without(layer, generator.place.pointer)
        entry = self.trail.entry
        body: Fields = {**self._named(), "$patch": "delete"}
        note = f"{origin} lies outside the application's path, so a patch leaves the object out."
        outside = bool(origin) and not self.work.own(origin)
        yield self._with_patch(entry, {"patch": write_document(body)}, note if outside else "")

    def _transformers(self, layer: Layer, wish: Wish) -> Iterator[Attempt]:
        path = wish.path
        if path[-1] == "image" and len(path) > 2 and path[-3] in _CONTAINERS:
            for image in layer.images:
                if isinstance(wish.value, str) and self._image_of(image, path):
                    yield self._attempt(layer.file, _image_edits(image, wish.value))
        if path == ("spec", "replicas") and not wish.gone:
            for replicas in layer.replicas:
                if replicas.name in self.declared.ref.name:
                    at = (*_steps(layer.body, replicas.place.pointer), "count")
                    yield self._attempt(layer.file, [Edit(path=at, value=wish.value)])
        if path[0] == "data" and len(path) == 2:
            for generator in layer.generators:
                if self._generated_by(generator) and generator.kind is GeneratorKind.CONFIG_MAP:
                    yield from self._generated(layer, generator, wish)

    def _generated(self, layer: Layer, generator: Generator, wish: Wish) -> Iterator[Attempt]:
        key = wish.path[1]
        here = _steps(layer.body, generator.place.pointer)
        written: Tree = f"{key}={_literal(wish.value)}"
        for literal in generator.literals:
            if literal.key == key:
                at = _steps(layer.body, literal.place.pointer)
                yield self._attempt(
                    layer.file, [Edit(path=at, value=REMOVED if wish.gone else written)]
                )
        for file in generator.files:
            if file.key == key and self.work.own(file.path) and isinstance(wish.value, str):
                yield _put(file.path, wish.value.encode())
        for variables in generator.envs:
            if self.work.own(variables.path):
                yield from self._in_variables(variables.path, key, wish)
        if generator.literals and not wish.gone:
            at = (*here, "literals", len(generator.literals))
            yield self._attempt(layer.file, [Edit(path=at, value=written)])

    def _in_variables(self, file: str, key: str, wish: Wish) -> Iterator[Attempt]:
        pattern = re.compile(rb"(?m)^%b=[^\r\n]*" % re.escape(key).encode())
        text = self.work.text(self.files, file)
        if not wish.gone and "\n" not in str(wish.value) and pattern.search(text):
            line = f"{key}={wish.value}".encode()
            yield _put(file, pattern.sub(lambda _: line, text))

    def _in_patch(self, patch: Patch, wish: Wish) -> Iterator[Attempt]:
        if patch.form is PatchForm.MERGE:
            if isinstance(patch.body, dict) and _says(patch.body, wish, self.rules):
                change = edit_for(patch.body, wish, self.rules)
                yield self._edit_patch(patch, [change])
            return
        target = pointer(tuple(map(str, edit_for(self.item, wish, self.rules).path)))
        for index, operation in enumerate(patch.body if isinstance(patch.body, list) else ()):
            if not isinstance(operation, dict) or operation.get("op") not in ("add", "replace"):
                continue
            at = str(operation.get("path"))
            if at.startswith(f"{target}/") and not wish.gone:
                # It sets a part of what is wished; whether that is all of it, rendering tells.
                inner = at_steps(wish.value, _steps(wish.value, at[len(target) :]))
                yield self._edit_patch(patch, [Edit(path=(index, "value"), value=inner)])
            elif target == at or target.startswith(f"{at}/"):
                rest = _steps(operation.get("value"), target[len(at) :])
                value = REMOVED if wish.gone else wish.value
                path = (index, *(("value", *rest) if rest or not wish.gone else ()))
                yield self._edit_patch(patch, [Edit(path=path, value=value)])

    def _anew(self, wish: Wish) -> Iterator[Attempt]:
        """Let a patch of the overlay say it: one that is there for the object, or a new one."""
        entry, origin = self.trail.entry, self.declared.origin.file
        part = partial(wish, self.item, self.rules)
        note = ""
        if origin and not self.work.own(origin):
            note = (
                f"{origin} declares it outside the application's path, where others may use it, "
                "so a patch sets it."
            )
        for patch in reversed(entry.patches):
            if patch.form is PatchForm.MERGE and self._is_for(patch):
                whole = merged(patch.body, part, self.rules)
                yield self._edit_patch(patch, [Edit(path=(), value=whole)], note)
        body = merged(self._named(), part, self.rules)
        yield self._with_patch(entry, {"patch": write_document(body)}, note)
        # Kinds that Kustomize has no schema of have their lists merged by nothing.
        yield self._with_patch(entry, self._operation(wish), note)

    def _operation(self, wish: Wish) -> Fields:
        change = edit_for(self.item, wish, self.rules)
        there = at_steps(self.item, change.path) is not None
        operation: Fields = {
            "op": "remove" if wish.gone else "replace" if there else "add",
            "path": pointer(tuple(map(str, change.path))),
        }
        if not wish.gone:
            operation["value"] = wish.value
        metadata = self._named()["metadata"]
        name = metadata["name"] if isinstance(metadata, dict) else self.declared.ref.name
        target: Fields = {"kind": self.declared.ref.kind, "name": name}
        return {"target": target, "patch": write_document([operation])}

    def _with_patch(self, entry: Layer, patch: Fields, note: str) -> Attempt:
        # Wishes that were fulfilled before may have added patches.
        known = read_documents(self.work.text(self.files, entry.file), source=entry.file)[0].value
        patches = known.get("patches") if isinstance(known, dict) else None
        index = len(patches) if isinstance(patches, list) else 0
        return self._attempt(entry.file, [Edit(path=("patches", index), value=patch)], note)

    def _without(self, layer: Layer, at: str) -> Attempt:
        steps = _steps(layer.body, at)
        siblings = at_steps(layer.body, steps[:-1])
        alone = isinstance(siblings, list) and len(siblings) == 1
        path = steps[:-1] if alone else steps
        return self._attempt(layer.file, [Edit(path=path, value=REMOVED)])

    def _edit_patch(self, patch: Patch, edits: list[Edit], note: str = "") -> Attempt:
        file = patch.place.file

        def make() -> Files:
            text = self.work.text(self.files, file)
            if not patch.inline:
                return {file: edit(text, edits, document=patch.place.document, source=file)}
            body = read_documents(text, source=file)[0].value
            at = _steps(body, patch.place.pointer)
            inner = str(at_steps(body, at)).encode()
            documents = [each.value for each in read_documents(inner, source=file)]
            which = documents.index(patch.body) if patch.body in documents else 0
            edited = edit(inner, edits, document=which, source=file).decode()
            return {file: edit(text, [Edit(path=at, value=edited)], document=0, source=file)}

        return Attempt(where=file, make=make, note=note)

    def _attempt(self, file: str, edits: list[Edit], note: str = "") -> Attempt:
        return Attempt(
            where=file,
            make=lambda: {
                file: edit(self.work.text(self.files, file), edits, document=0, source=file)
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
            within = place_of(text, origin.document, ref, origin.file)
            document = read_documents(text, source=origin.file)[origin.document]
            found = at_steps(document.value, within)
            source = found.get("metadata") if isinstance(found, dict) else None
            if isinstance(source, dict):
                metadata = {key: source[key] for key in ("name", "namespace") if key in source}
        return {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": metadata}

    def _is_for(self, patch: Patch) -> bool:
        """True when a patch may be for the object; rendering tells whether it is."""
        kind, name = self.declared.ref.kind, self.declared.ref.name
        if patch.target is not None:
            return kind in patch.target.kind or not patch.target.kind.isalnum()
        body = patch.body if isinstance(patch.body, dict) else {}
        metadata = body.get("metadata")
        named = str(metadata.get("name")) if isinstance(metadata, dict) else ""
        return body.get("kind") == kind and named in name

    def _generated_by(self, generator: Generator) -> bool:
        ref = self.declared.ref
        return generator.kind.value == ref.kind and generator.name in ref.name

    def _image_of(self, image: ImageChange, path: tuple[str, ...]) -> bool:
        now = raw_at(self.item, path, self.rules)
        found = _IMAGE.fullmatch(now) if isinstance(now, str) else None
        return found is not None and found["name"] in (image.new_name or image.name, image.name)


def in_own_file(
    work: Work, files: Files, declared: Declared, wished: tuple[Wish, ...], rules: Rules
) -> Attempt:
    """Fulfil wishes in the file that declares an object."""
    origin = declared.origin

    def make() -> Files:
        text = work.text(files, origin.file)
        within = place_of(text, origin.document, declared.ref, origin.file)
        edited = grant_in_file(text, origin.document, within, wished, rules, origin.file)
        return {origin.file: edited}

    return Attempt(where=origin.file, make=make)


def _image_edits(image: ImageChange, live: str) -> list[Edit]:
    found = _IMAGE.fullmatch(live)
    name, tag, digest = (found["name"], found["tag"], found["digest"]) if found else (live, "", "")
    at = _pointed(image.place.pointer)
    wanted = {
        "newName": "" if name == image.name else name, "newTag": tag or "", "digest": digest or "",
    }  # fmt: skip
    now = {"newName": image.new_name, "newTag": image.new_tag, "digest": image.digest}
    return [
        Edit(path=(*at, key), value=wanted[key] or REMOVED)
        for key in now
        if wanted[key] != now[key]
    ]


def _pointed(at: str) -> Steps:
    return tuple(int(part) if part.isdigit() else part for part in parse_pointer(at))


def _steps(tree: Tree, at: str) -> Steps:
    """Read a JSON pointer within a tree: what counts in a list is a number."""
    found: list[str | int] = []
    for part in parse_pointer(at):
        step: str | int = int(part) if isinstance(tree, list) and part.isdigit() else part
        found.append(step)
        tree = at_steps(tree, (step,))
    return tuple(found)


def _says(body: Fields, wish: Wish, rules: Rules) -> bool:
    """True when a patch sets the field, or something that holds it."""
    return raw_at(body, wish.path, rules) is not None


def _literal(value: Tree) -> str:
    text = str(value)
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return f'"{text}"' if quoted else text


def _put(file: str, text: bytes) -> Attempt:
    return Attempt(where=file, make=lambda: {file: text})
