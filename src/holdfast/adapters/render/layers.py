"""Follows a kustomization through its bases and components, and reads every file it names.

What comes back is all that Kustomize gets to see: the renderer copies exactly these bytes to a
directory of its own. So whatever is not found and checked here does not exist there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.adapters.render import entries, plugins
from holdfast.adapters.render.entries import PatchText, Source
from holdfast.adapters.render.limits import MAX_DEPTH, MAX_LAYERS
from holdfast.adapters.render.paths import Files, Found, Parts, refused, resolve, text_of
from holdfast.adapters.render.plain import KUSTOMIZATION_NAMES
from holdfast.core.gitops.layers import (
    Generator,
    KeyedFile,
    Layer,
    Patch,
    Place,
    Resource,
    ResourceKind,
    Trail,
)
from holdfast.core.redact import quoted
from holdfast.core.tree import Fields, Tree
from holdfast.wire.yaml import read_documents

_MODELLED = {
    "apiVersion", "kind", "metadata", "resources", "bases", "components", "patches",
    "patchesStrategicMerge", "patchesJson6902", "images", "replicas", "configMapGenerator",
    "secretGenerator", "generatorOptions", "namespace", "namePrefix", "nameSuffix", "labels",
    "commonLabels", "commonAnnotations", "sortOptions", "buildMetadata",
}  # fmt: skip
_FURTHER = {
    "replacements", "vars", "crds", "configurations", "openapi", "transformers", "generators",
    "validators", "imageTags",
}  # fmt: skip
_INNER: plugins.Keys = {
    "images": plugins.IMAGE,
    "imageTags": plugins.IMAGE,
    "replicas": plugins.REPLICAS,
    "labels": plugins.LABELS,
    "generatorOptions": plugins.GENERATOR_OPTIONS,
    "replacements": {"path": None, **plugins.REPLACEMENT},
}
"""Keys below those, where no reader of theirs looks at each by its name."""
_REFUSED = {"helmCharts", "helmGlobals", "helmChartInflationGenerator"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A trail together with what its files hold."""

    trail: Trail
    contents: dict[str, bytes]
    """Every file but the kustomizations, from the root."""
    rewritten: Mapping[str, bytes] = field(default_factory=dict)
    """What Kustomize gets to see in place of some of these: written from what was read in them."""


def trail(root: Path, path: str, left_out: Mapping[str, str] | None = None) -> Trail:
    """Return the layers of a Kustomize path beneath a root, overlays before bases.

    Raises ValidationError, with file and line, for whatever a rendering would refuse, and
    FileNotFoundError when the path has no kustomization.
    """
    with Files(root, left_out) as files:
        return read_layers(files, resolve(path, where="the path of the Application")).trail


def read_layers(files: Files, entry: Parts) -> Reading:
    """Read a kustomization and everything below it."""
    walk = _Walk(files=files)
    walk.visit(entry, component=False, parent="", stack=())
    kustomizations = {layer.file for layer in walk.layers.values()}
    everything = tuple(sorted(kustomizations | set(walk.contents)))
    return Reading(
        trail=Trail(layers=tuple(walk.layers.values()), files=everything),
        contents=walk.contents,
        rewritten=walk.rewritten,
    )


def kustomization_in(files: Files, directory: Parts) -> Parts | None:
    """Return the kustomization file of a directory; None when it has none."""
    found = [
        (*directory, name)
        for name in KUSTOMIZATION_NAMES
        if files.find((*directory, name)) is Found.FILE
    ]
    if len(found) > 1:
        raise refused(text_of(found[1]), f"{found[0][-1]} is there too.", "Keep one of the two.")
    return found[0] if found else None


@dataclass(slots=True, kw_only=True)
class _Walk:
    files: Files
    layers: dict[str, Layer] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    rewritten: dict[str, bytes] = field(default_factory=dict)

    def visit(
        self, directory: Parts, *, component: bool, parent: str, stack: tuple[Parts, ...]
    ) -> str:
        """Read one layer and those below it; returns its file."""
        found = kustomization_in(self.files, directory)
        if found is None:
            raise FileNotFoundError(text_of(directory))
        file = text_of(found)
        if file in self.layers:
            layer = self.layers[file]
            self.layers[file] = replace(layer, parents=(*layer.parents, parent))
            return file
        if len(stack) >= MAX_DEPTH or len(self.layers) >= MAX_LAYERS:
            raise refused(
                file, f"there are over {MAX_LAYERS} layers, or over {MAX_DEPTH} on one another.",
                "Use fewer.",
            )  # fmt: skip
        source = self._source(found, directory)
        _check_keys(source)
        self.layers[file] = Layer(file=file, body={}, lines={})  # holds the place in the order
        anew = self._read_further(source)
        layer = Layer(
            file=file,
            component=component,
            parents=(parent,) if parent else (),
            resources=tuple(self._resources(source, file, (*stack, directory))),
            patches=tuple(self._patches(source)),
            images=entries.images(source),
            replicas=entries.replicas(source),
            generators=tuple(self._generators(source)),
            namespace=entries.setting(source, "namespace"),
            name_prefix=entries.setting(source, "namePrefix"),
            name_suffix=entries.setting(source, "nameSuffix"),
            labels=entries.labels(source),
            annotations=entries.common_annotations(source),
            others=tuple(sorted(_FURTHER & {key for key, value in source.body.items() if value})),
            body={**source.body, **anew},
            lines=source.document.lines,
        )
        self.layers[file] = layer
        return file

    def _source(self, found: Parts, directory: Parts) -> Source:
        data = self.files.read(found)
        file = text_of(found)
        documents = read_documents(data, source=file)
        if len(documents) != 1 or not isinstance(documents[0].value, dict):
            raise refused(file, "it is not one kustomization.", "Keep one document in it.")
        text = data.decode().splitlines()
        return Source(directory=directory, document=documents[0], text=text)

    def _resources(self, source: Source, file: str, stack: tuple[Parts, ...]) -> Iterator[Resource]:
        for key in ("resources", "bases", "components"):
            for pointer, value in source.items(key):
                parts = source.local(pointer, value)
                place = source.place(pointer)
                if key == "resources" and self.files.find(parts) is Found.FILE:
                    self._take(source, parts, place)
                    yield Resource(kind=ResourceKind.FILE, path=text_of(parts), place=place)
                    continue
                if self.files.find(parts) is not Found.DIRECTORY:
                    raise _missing(place, parts)
                if any(above[: len(parts)] == parts for above in stack):
                    raise refused(
                        f"{place.file}:{place.line}",
                        f"{quoted(text_of(parts) or '.')} contains or is the kustomization that "
                        "includes it.",
                        "Break the cycle.",
                    )
                inner = key == "components"
                try:
                    below = self.visit(parts, component=inner, parent=file, stack=stack)
                except FileNotFoundError:
                    raise refused(
                        f"{place.file}:{place.line}",
                        f"the directory {quoted(text_of(parts))} has no kustomization.",
                        "Add one, or name its files.",
                    ) from None
                kind = ResourceKind.COMPONENT if inner else ResourceKind.LAYER
                yield Resource(kind=kind, path=below, place=place)

    def _patches(self, source: Source) -> Iterator[Patch]:
        for found in entries.inline_patches(source):
            if isinstance(found, PatchText):
                yield from entries.read_patches(source, found)
                continue
            parts, entry, target = found
            data = self._take(source, parts, entry)
            text = PatchText(
                data=data, inline=False, place=Place(file=text_of(parts)), entry=entry,
                target=target,
            )  # fmt: skip
            yield from entries.read_patches(source, text)

    def _generators(self, source: Source) -> Iterator[Generator]:
        for generator in entries.generators(source):
            named: tuple[KeyedFile, ...] = (*generator.files, *generator.envs)
            for each in named:
                self._take(source, tuple(each.path.split("/")), each.place)
            yield generator

    def _read_further(self, source: Source) -> Fields:
        """Read what the remaining keys name; plugins may only be the harmless built-in ones.

        Returns the keys whose values are written anew from what was read in them.
        """
        for key in ("crds", "configurations"):
            for pointer, value in source.items(key):
                self._take(source, source.local(pointer, value), source.place(pointer))
        for pointer, entry in source.mappings("replacements", {"path", *plugins.REPLACEMENT}):
            if entry.get("path"):
                parts = source.local(f"{pointer}/path", entry["path"])
                self._take(source, parts, source.place(pointer))
        schema = source.body.get("openapi")
        if isinstance(schema, dict) and schema:
            if not set(schema) <= {"path", "version"}:
                raise source.wrong("/openapi", "openapi has a key that is not known.")
            if schema.get("path"):
                parts = source.local("/openapi/path", schema["path"])
                self._take(source, parts, source.place("/openapi/path"))
        anew: Fields = {
            key: [self._plugin(source, pointer, value) for pointer, value in source.items(key)]
            for key in ("transformers", "generators", "validators")
            if source.body.get(key)
        }
        merges = [entries.written_anew(text) for _, text in source.items("patchesStrategicMerge")]
        return {**anew, "patchesStrategicMerge": merges} if merges else anew

    def _plugin(self, source: Source, pointer: str, value: Tree) -> str:
        """Check one plugin; returns its entry as Kustomize gets to see it."""
        text, place = source.text_at(pointer, value), source.place(pointer)
        if entries.is_inline(text):
            return plugins.check(text.encode(), place).decode()
        parts = source.local(pointer, text)
        self.rewritten[text_of(parts)] = plugins.check(self._take(source, parts, place), place)
        return text

    def _take(self, source: Source, parts: Parts, place: Place) -> bytes:
        """Read a file that a kustomization names. Kustomize wants it in or below its directory."""
        where = f"{place.file}:{place.line}"
        if parts[: len(source.directory)] != source.directory:
            raise refused(
                where,
                f"the file {quoted(text_of(parts))} is not in or below the kustomization's "
                "directory.",
                "Move it there, or make a kustomization of its directory and name that.",
            )
        file = text_of(parts)
        if file not in self.contents:
            try:
                self.contents[file] = self.files.read(parts)
            except FileNotFoundError:
                raise _missing(place, parts) from None
        return self.contents[file]


def _check_keys(source: Source) -> None:
    for key in source.body:
        if key in _REFUSED:
            raise refused(
                source.document.where(f"/{key}"),
                f"{key} runs Helm and fetches charts, which rendering does not do.",
                "Commit the rendered chart in its place.",
            )
        if key not in _MODELLED | _FURTHER:
            raise source.wrong(f"/{key}", f"the key {quoted(key)} is not known.")
        strange = plugins.strange_key(source.body[key], _INNER.get(key))
        if strange is not None:
            raise source.wrong(f"/{key}", f"the key {quoted(strange)} in {key} is not known.")


def _missing(place: Place, parts: Parts) -> Exception:
    return refused(
        f"{place.file}:{place.line}",
        f"there is no {quoted(text_of(parts) or '.')} in the repository.",
        "Commit it as a regular file, or remove the entry. Nothing remote is fetched.",
    )
