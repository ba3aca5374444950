"""Reads what Kustomize printed, and finds the file that set each field of each object.

Kustomize tells which file an object comes from; its fields are traced here: those of the base
file by laying it over the result, those of overlays by finding the patch, image, replica count,
label or generator whose value the result has. A field that cannot be traced stands where what is
around it does. Only for people and for the codifier, which renders again to check.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from holdfast.adapters.render.files import refusal
from holdfast.adapters.render.layers import LoadedLayers
from holdfast.adapters.render.manifests import Manifest, expand_list, is_encrypted, parse_manifests
from holdfast.adapters.render.objects import MAX_OBJECTS
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.kustomize import (
    GeneratorFile,
    GeneratorLiteral,
    KustomizeGenerator,
    KustomizeLayer,
    KustomizePatch,
    LayerStack,
    PatchForm,
    ResourceKind,
)
from holdfast.core.tree import Fields, Tree, json_pointer, parse_pointer
from holdfast.wire.yaml import read_documents

ORIGIN = "config.kubernetes.io/origin"
ORIGIN_ANNOTATIONS = "originAnnotations"
"""The entry of `buildMetadata` that asks Kustomize for the annotation above."""
_MERGE_KEYS = ("name", "containerPort", "mountPath", "devicePath", "key", "port", "ip", "type")
_IMAGE_LISTS = ("containers", "initContainers", "ephemeralContainers")


def parse_output(output: bytes, loaded: LoadedLayers) -> list[Manifest]:
    """Make manifests of what Kustomize printed, each with the place that declares it.

    Documents are read one by one, so that each has the limits of a file to itself.
    """
    origins = _OriginFinder(loaded)
    manifests: list[Manifest] = []
    for text in _split_documents(output):
        for document in read_documents(text, source=f"{loaded.stack.entry.file} (rendered)"):
            if not isinstance(document.value, dict):
                raise refusal(document.where(), "Kustomize gave no object.", "Fix it.")
            value, origin = _strip_origin(document.value, keep=origins.keep)
            for manifest in expand_list(Manifest(value=value, file="")):
                manifests.append(origins.find(manifest.value, origin))
        if len(manifests) > MAX_OBJECTS:
            break  # refused, with its place, where all are counted
    return manifests


class _OriginFinder:
    """Finds the place of each object from what Kustomize says about it."""

    def __init__(self, loaded: LoadedLayers) -> None:
        self._loaded = loaded
        self._stack = loaded.stack
        self._directory = PurePosixPath(loaded.stack.entry.file).parent
        self._sources: dict[str, SourceObjects] = {}
        asked = loaded.stack.entry.body.get("buildMetadata")
        self.keep = isinstance(asked, list) and ORIGIN_ANNOTATIONS in asked
        """True when the repository itself asks for the annotation."""

    def find(self, value: Fields, origin: str) -> Manifest:
        encrypted = is_encrypted(value)
        fields = _parse_origin(origin)
        configured = self._from_root(fields.get("configuredIn", ""))
        layer = next((each for each in self._stack.layers if each.file == configured), None)
        if layer is not None:
            return replace(trace_generated_fields(value, layer, self._stack), encrypted=encrypted)
        file = self._from_root(fields.get("path", ""))
        base = self._bases(file).of(value)
        if base is None:
            return Manifest(value=value, file=file, encrypted=encrypted)
        return replace(trace_fields(value, base, self._stack), encrypted=encrypted)

    def _from_root(self, path: str) -> str:
        if not path:
            return ""
        return os.path.normpath(str(self._directory / path))

    def _bases(self, file: str) -> SourceObjects:
        if file not in self._sources:
            # What Kustomize reads and our reader refuses is refused: one reading counts.
            data = self._loaded.contents.get(file)
            manifests = parse_manifests(data, file) if data is not None else []
            self._sources[file] = SourceObjects(manifests, file, self._stack)
        return self._sources[file]


@dataclass(slots=True, kw_only=True)
class _FieldSources:
    lines: dict[str, int] = field(default_factory=dict)
    elsewhere: dict[str, tuple[str, int]] = field(default_factory=dict)

    def set(self, pointer: str, file: str, line: int) -> None:
        """Note the last file that set a field, and forget who set its parts before."""
        for known in (self.lines, self.elsewhere):
            for other in [key for key in known if key == pointer or key.startswith(f"{pointer}/")]:
                del known[other]
        self.elsewhere[pointer] = (file, line)


def trace_fields(value: Fields, base: Manifest, stack: LayerStack) -> Manifest:
    """Return the manifest of a rendered object that a file declares."""
    traced = _FieldSources(lines={"": base.lines.get("", 1)})
    for mine, theirs, _ in align_trees(base.value, value):
        if mine in base.lines:
            traced.lines[theirs] = base.lines[mine]
    names = {_name(base.value), _name(value)}
    for layer in _inner_to_outer(stack, stack.bringing(base.file)):
        _trace_layer(traced, value, names, layer)
    return Manifest(
        value=value,
        file=base.file,
        document=base.document,
        lines=traced.lines,
        elsewhere=traced.elsewhere,
    )


def trace_generated_fields(value: Fields, layer: KustomizeLayer, stack: LayerStack) -> Manifest:
    """Return the manifest of an object that a generator of a layer made."""
    kind, name = str(value.get("kind")), _name(value)
    made = [each for each in layer.generators if each.kind.value == kind and each.name in name]
    generator = max(made, key=lambda each: len(each.name), default=None)
    traced = _FieldSources(lines={"": generator.location.line if generator else 1})
    if generator is not None:
        for pointer, _, line in _generated_fields(generator):
            traced.lines[pointer] = line
        names = {generator.name, name}
        for outer in _inner_to_outer(stack, layer):
            for other in outer.generators:
                merges = other.behavior in ("merge", "replace") and other.name == generator.name
                if merges and other.kind is generator.kind:
                    for pointer, file, line in _generated_fields(other):
                        traced.set(pointer, file, line)
            _trace_layer(traced, value, names, outer)
    return Manifest(value=value, file=layer.file, lines=traced.lines, elsewhere=traced.elsewhere)


class SourceObjects:
    """The objects of one file, to be found again among the rendered ones."""

    def __init__(self, manifests: Sequence[Manifest], file: str, stack: LayerStack) -> None:
        self._manifests = manifests
        self._by_name: dict[tuple[str, str], list[Manifest]] = {}
        for manifest in manifests:
            key = (str(manifest.value.get("kind")), _name(manifest.value))
            self._by_name.setdefault(key, []).append(manifest)
        layers = stack.chain(file)
        self._prefix = "".join(each.name_prefix.value for each in layers if each.name_prefix)
        self._suffix = "".join(
            each.name_suffix.value for each in reversed(layers) if each.name_suffix
        )

    def of(self, value: Fields) -> Manifest | None:
        """Return which of the file's objects a rendered one was, by its kind and name."""
        kind, name = str(value.get("kind")), _name(value)
        plain = name.removeprefix(self._prefix).removesuffix(self._suffix)
        same = self._by_name.get((kind, plain)) or self._by_name.get((kind, name))
        if same:
            place = _namespace(value)
            return next(
                (manifest for manifest in same if _namespace(manifest.value) == place), same[0]
            )
        alike = [manifest for manifest in self._manifests if manifest.value.get("kind") == kind]
        return alike[0] if len(alike) == 1 else None


def align_trees(
    part: Tree, whole: Tree, mine: str = "", theirs: str = ""
) -> Iterator[tuple[str, str, bool]]:
    """Lay a part over a whole: yield the pointers that belong together, and if leaves are equal.

    Members of lists are matched by what Kubernetes tells them apart by.
    """
    if isinstance(part, dict) and isinstance(whole, dict):
        yield mine, theirs, False
        for key, value in part.items():
            if key in whole:
                step = json_pointer((key,))
                yield from align_trees(value, whole[key], mine + step, theirs + step)
    elif isinstance(part, list) and isinstance(whole, list):
        yield mine, theirs, part == whole
        for at, value in enumerate(part):
            other = _counterpart(at, value, part, whole)
            if other is not None:
                yield from align_trees(value, whole[other], f"{mine}/{at}", f"{theirs}/{other}")
    else:
        yield mine, theirs, part == whole


def _counterpart(at: int, value: Tree, part: list[Tree], whole: list[Tree]) -> int | None:
    if isinstance(value, dict):
        for key in _MERGE_KEYS:
            if key in value:
                found = [
                    place
                    for place, other in enumerate(whole)
                    if isinstance(other, dict) and other.get(key) == value[key]
                ]
                if len(found) == 1:
                    return found[0]
    elif value in whole:
        return whole.index(value)
    return at if len(part) == len(whole) else None


def _inner_to_outer(stack: LayerStack, layer: KustomizeLayer | None) -> Iterator[KustomizeLayer]:
    """Yield the layers that an object passes, innermost first, components before their user."""
    for outer in reversed(stack.chain(layer.file) if layer else ()):
        for resource in outer.resources:
            if resource.kind is ResourceKind.COMPONENT:
                yield stack.layer(resource.path)
        yield outer


def _trace_layer(
    traced: _FieldSources, value: Fields, names: set[str], layer: KustomizeLayer
) -> None:
    for patch in layer.patches:
        if _patch_applies(patch, value, names):
            _trace_patch(traced, value, patch)
    for pointer, image in _image_fields(value):
        bare = re.sub(r"(?::[^/]*)?(?:@.*)?$", "", image)
        for change in layer.images:
            if bare == (change.new_name or change.name):
                traced.set(pointer, layer.file, change.location.line)
    spec = value.get("spec")
    for count in layer.replicas:
        if count.name in names and isinstance(spec, dict) and spec.get("replicas") == count.count:
            traced.set("/spec/replicas", layer.file, count.location.line)
    if layer.namespace and _namespace(value) == layer.namespace.value:
        traced.set("/metadata/namespace", layer.file, layer.namespace.location.line)
    for affix in (layer.name_prefix, layer.name_suffix):
        if affix and affix.value in _name(value):
            traced.set("/metadata/name", layer.file, affix.location.line)
    for labels in layer.labels:
        _trace_pairs(traced, value, "labels", labels.pairs, layer, labels.location.line)
    if layer.annotations:
        line = layer.location("/commonAnnotations").line
        _trace_pairs(traced, value, "annotations", layer.annotations, layer, line)


def _trace_patch(traced: _FieldSources, value: Fields, patch: KustomizePatch) -> None:
    file = patch.location.file
    if patch.form is PatchForm.MERGE:
        for mine, theirs, equal in align_trees(patch.body, value):
            naming = mine in ("/apiVersion", "/kind", "/metadata/name", "/metadata/namespace")
            if equal and not naming and not mine.endswith("/name"):
                traced.set(theirs, file, patch.lines.get(mine, patch.location.line))
        return
    for at, operation in enumerate(patch.body if isinstance(patch.body, list) else []):
        if isinstance(operation, dict) and operation.get("op") in ("add", "replace"):
            pointer = _resolve_append(value, str(operation.get("path", "")), operation.get("value"))
            if _value_at(value, pointer) == (True, operation.get("value")):
                line = patch.lines.get(
                    f"/{at}/value", patch.lines.get(f"/{at}", patch.location.line)
                )
                traced.set(pointer, file, line)


def _resolve_append(value: Fields, pointer: str, added: Tree) -> str:
    """Count the item that an operation put at the end of a list, which it calls `-`."""
    if not pointer.endswith("/-"):
        return pointer
    around = pointer.removesuffix("/-")
    items = _value_at(value, around)[1]
    listed = items if isinstance(items, list) else []
    found = [at for at, item in enumerate(listed) if item == added]
    return f"{around}/{found[-1]}" if found else pointer


def _patch_applies(patch: KustomizePatch, value: Fields, names: set[str]) -> bool:
    """Say if a patch may be for an object. Selectors are not read: the values have to fit too."""
    if patch.target is None:
        body = patch.body
        return isinstance(body, dict) and (body.get("kind"), _name(body) in names) == (
            value.get("kind"),
            True,
        )
    return _matches(patch.target.kind, {str(value.get("kind"))}) and _matches(
        patch.target.name, names
    )


def _matches(pattern: str, texts: set[str]) -> bool:
    try:
        return not pattern or any(re.fullmatch(pattern, text) for text in texts)
    except re.error:  # Go's expressions are not quite Python's
        return False


def _generated_fields(generator: KustomizeGenerator) -> Iterator[tuple[str, str, int]]:
    """Yield pointer, file and line of what a generator puts into its object."""
    named: tuple[GeneratorLiteral | GeneratorFile, ...] = (*generator.literals, *generator.files)
    for each in named:
        if each.key:
            yield json_pointer(("data", each.key)), each.location.file, each.location.line


def _image_fields(value: Tree, pointer: str = "") -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        at = pointer + json_pointer((key,))
        if key in _IMAGE_LISTS and isinstance(inner, list):
            for place, container in enumerate(inner):
                image = container.get("image") if isinstance(container, dict) else None
                if isinstance(image, str):
                    yield f"{at}/{place}/image", image
        else:
            yield from _image_fields(inner, at)


def _trace_pairs(
    traced: _FieldSources,
    value: Fields,
    key: str,
    pairs: Mapping[str, str],
    layer: KustomizeLayer,
    line: int,
) -> None:
    metadata = value.get("metadata")
    held = metadata.get(key) if isinstance(metadata, dict) else None
    for name, text in pairs.items():
        if isinstance(held, dict) and held.get(name) == text:
            traced.set(json_pointer(("metadata", key, name)), layer.file, line)


def _value_at(value: Tree, pointer: str) -> tuple[bool, Tree]:
    for step in parse_pointer(pointer):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return False, None
    return True, value


def _name(value: Tree) -> str:
    return _metadata(value, "name")


def _namespace(value: Tree) -> str:
    return _metadata(value, "namespace")


def _metadata(value: Tree, key: str) -> str:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    found = metadata.get(key) if isinstance(metadata, dict) else None
    return str(found or "")


def _split_documents(output: bytes) -> Iterator[bytes]:
    """Split what Kustomize prints. A line of three dashes is never inside its documents."""
    lines: list[bytes] = []
    for line in output.splitlines(keepends=True):
        if line.rstrip() == b"---":
            yield b"".join(lines)
            lines = []
        else:
            lines.append(line)
    yield b"".join(lines)


def _strip_origin(value: Fields, *, keep: bool) -> tuple[Fields, str]:
    metadata = value.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(annotations, dict):
        return value, ""
    origin = str(annotations.get(ORIGIN, ""))
    if keep:
        return value, origin
    rest = {key: text for key, text in annotations.items() if key != ORIGIN}
    bare = {key: part for key, part in metadata.items() if key != "annotations"}
    return {**value, "metadata": {**bare, "annotations": rest} if rest else bare}, origin


def _parse_origin(origin: str) -> dict[str, str]:
    """Read the annotation's own few lines."""
    try:
        documents = read_documents(origin.encode(), source=ORIGIN)
    except ValidationError:
        return {}
    value = documents[0].value if documents else None
    return (
        {key: text for key, text in value.items() if isinstance(text, str)}
        if isinstance(value, dict)
        else {}
    )
