"""Follows a kustomization through its bases and components, and reads every file it names.

What comes back is all that Kustomize gets to see: the renderer copies exactly these bytes to a
directory of its own. So whatever is not found and checked here does not exist there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from holdfast.adapters.render.files import (
    MAX_DEPTH,
    PathKind,
    PathParts,
    RepositoryFiles,
    path_text,
    refusal,
)
from holdfast.adapters.render.kustomization import (
    GENERATOR_OPTION_KEYS,
    IMAGE_KEYS,
    LABEL_KEYS,
    REPLACEMENT_KEYS,
    REPLICA_KEYS,
    AllowedKeys,
    KustomizationFile,
    PatchSource,
    check_plugin,
    find_unknown_key,
    is_inline_patch,
    parse_patches,
    read_common_annotations,
    read_generators,
    read_images,
    read_labels,
    read_patch_entries,
    read_replicas,
    read_setting,
    rewrite_inline_patch,
)
from holdfast.adapters.render.manifests import KUSTOMIZATION_NAMES
from holdfast.core.gitops.kustomize import (
    FileLocation,
    GeneratorFile,
    KustomizeGenerator,
    KustomizeLayer,
    KustomizePatch,
    KustomizeResource,
    LayerStack,
    ResourceKind,
)
from holdfast.core.redact import quote_text
from holdfast.core.tree import Fields, Tree
from holdfast.wire.yaml import read_documents

MAX_LAYERS = 500
"""Kustomizations that take part in one path."""

_MODELLED_KEYS = {
    "apiVersion", "kind", "metadata", "resources", "bases", "components", "patches",
    "patchesStrategicMerge", "patchesJson6902", "images", "replicas", "configMapGenerator",
    "secretGenerator", "generatorOptions", "namespace", "namePrefix", "nameSuffix", "labels",
    "commonLabels", "commonAnnotations", "sortOptions", "buildMetadata",
}  # fmt: skip
_OTHER_KEYS = {
    "replacements", "vars", "crds", "configurations", "openapi", "transformers", "generators",
    "validators", "imageTags",
}  # fmt: skip
_INNER_KEYS: AllowedKeys = {
    "images": IMAGE_KEYS,
    "imageTags": IMAGE_KEYS,
    "replicas": REPLICA_KEYS,
    "labels": LABEL_KEYS,
    "generatorOptions": GENERATOR_OPTION_KEYS,
    "replacements": {"path": None, **REPLACEMENT_KEYS},
}
"""Keys below those, where no reader of theirs looks at each by its name."""
_REFUSED_KEYS = {"helmCharts", "helmGlobals", "helmChartInflationGenerator"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLayers:
    """The layers of a path, together with what their files hold."""

    stack: LayerStack
    contents: dict[str, bytes]
    """Every file but the kustomizations, from the root."""
    rewritten: Mapping[str, bytes] = field(default_factory=dict)
    """What Kustomize gets to see in place of some of these: written from what was read in them."""


def load_layers(files: RepositoryFiles, entry: PathParts) -> LoadedLayers:
    """Read a kustomization and everything below it."""
    loader = _LayerLoader(files=files)
    loader.visit(entry, component=False, parent="", above=())
    kustomizations = {layer.file for layer in loader.layers.values()}
    everything = tuple(sorted(kustomizations | set(loader.contents)))
    return LoadedLayers(
        stack=LayerStack(layers=tuple(loader.layers.values()), files=everything),
        contents=loader.contents,
        rewritten=loader.rewritten,
    )


def find_kustomization(files: RepositoryFiles, directory: PathParts) -> PathParts | None:
    """Return the kustomization file of a directory; None when it has none."""
    found = [
        (*directory, name)
        for name in KUSTOMIZATION_NAMES
        if files.find((*directory, name)) is PathKind.FILE
    ]
    if len(found) > 1:
        raise refusal(path_text(found[1]), f"{found[0][-1]} is there too.", "Keep one of the two.")
    return found[0] if found else None


@dataclass(slots=True, kw_only=True)
class _LayerLoader:
    files: RepositoryFiles
    layers: dict[str, KustomizeLayer] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    rewritten: dict[str, bytes] = field(default_factory=dict)

    def visit(
        self, directory: PathParts, *, component: bool, parent: str, above: tuple[PathParts, ...]
    ) -> str:
        """Read one layer and those below it; returns its file."""
        found = find_kustomization(self.files, directory)
        if found is None:
            raise FileNotFoundError(path_text(directory))
        file = path_text(found)
        if file in self.layers:
            layer = self.layers[file]
            self.layers[file] = replace(layer, parents=(*layer.parents, parent))
            return file
        if len(above) >= MAX_DEPTH or len(self.layers) >= MAX_LAYERS:
            raise refusal(
                file,
                f"there are over {MAX_LAYERS} layers, or over {MAX_DEPTH} on one another.",
                "Use fewer.",
            )
        source = self._source(found, directory)
        _check_keys(source)
        self.layers[file] = KustomizeLayer(
            file=file, body={}, lines={}
        )  # holds its place in the order
        anew = self._read_other_keys(source)
        layer = KustomizeLayer(
            file=file,
            component=component,
            parents=(parent,) if parent else (),
            resources=tuple(self._resources(source, file, (*above, directory))),
            patches=tuple(self._patches(source)),
            images=read_images(source),
            replicas=read_replicas(source),
            generators=tuple(self._generators(source)),
            namespace=read_setting(source, "namespace"),
            name_prefix=read_setting(source, "namePrefix"),
            name_suffix=read_setting(source, "nameSuffix"),
            labels=read_labels(source),
            annotations=read_common_annotations(source),
            others=tuple(
                sorted(_OTHER_KEYS & {key for key, value in source.body.items() if value})
            ),
            body={**source.body, **anew},
            lines=source.document.lines,
        )
        self.layers[file] = layer
        return file

    def _source(self, found: PathParts, directory: PathParts) -> KustomizationFile:
        data = self.files.read(found)
        file = path_text(found)
        documents = read_documents(data, source=file)
        if len(documents) != 1 or not isinstance(documents[0].value, dict):
            raise refusal(file, "it is not one kustomization.", "Keep one document in it.")
        text = data.decode().splitlines()
        return KustomizationFile(directory=directory, document=documents[0], text=text)

    def _resources(
        self, source: KustomizationFile, file: str, above: tuple[PathParts, ...]
    ) -> Iterator[KustomizeResource]:
        for key in ("resources", "bases", "components"):
            for pointer, value in source.items(key):
                parts = source.resolve(pointer, value)
                location = source.location(pointer)
                if key == "resources" and self.files.find(parts) is PathKind.FILE:
                    self._read_file(source, parts, location)
                    yield KustomizeResource(
                        kind=ResourceKind.FILE, path=path_text(parts), location=location
                    )
                    continue
                if self.files.find(parts) is not PathKind.DIRECTORY:
                    raise _missing_file(location, parts)
                if any(each[: len(parts)] == parts for each in above):
                    raise refusal(
                        f"{location.file}:{location.line}",
                        f"{quote_text(path_text(parts) or '.')} contains or is the kustomization "
                        "that includes it.",
                        "Break the cycle.",
                    )
                inner = key == "components"
                try:
                    below = self.visit(parts, component=inner, parent=file, above=above)
                except FileNotFoundError:
                    raise refusal(
                        f"{location.file}:{location.line}",
                        f"the directory {quote_text(path_text(parts))} has no kustomization.",
                        "Add one, or name its files.",
                    ) from None
                kind = ResourceKind.COMPONENT if inner else ResourceKind.LAYER
                yield KustomizeResource(kind=kind, path=below, location=location)

    def _patches(self, source: KustomizationFile) -> Iterator[KustomizePatch]:
        for found in read_patch_entries(source):
            if isinstance(found, PatchSource):
                yield from parse_patches(source, found)
                continue
            parts, entry, target = found
            data = self._read_file(source, parts, entry)
            text = PatchSource(
                data=data,
                inline=False,
                location=FileLocation(file=path_text(parts)),
                entry=entry,
                target=target,
            )
            yield from parse_patches(source, text)

    def _generators(self, source: KustomizationFile) -> Iterator[KustomizeGenerator]:
        for generator in read_generators(source):
            named: tuple[GeneratorFile, ...] = (*generator.files, *generator.envs)
            for each in named:
                self._read_file(source, tuple(each.path.split("/")), each.location)
            yield generator

    def _read_other_keys(self, source: KustomizationFile) -> Fields:
        """Read what the remaining keys name; plugins may only be the harmless built-in ones.

        Returns the keys whose values are written anew from what was read in them.
        """
        for key in ("crds", "configurations"):
            for pointer, value in source.items(key):
                self._read_file(source, source.resolve(pointer, value), source.location(pointer))
        for pointer, entry in source.mappings("replacements", {"path", *REPLACEMENT_KEYS}):
            if entry.get("path"):
                parts = source.resolve(f"{pointer}/path", entry["path"])
                self._read_file(source, parts, source.location(pointer))
        schema = source.body.get("openapi")
        if isinstance(schema, dict) and schema:
            if not set(schema) <= {"path", "version"}:
                raise source.error("/openapi", "openapi has a key that is not known.")
            if schema.get("path"):
                parts = source.resolve("/openapi/path", schema["path"])
                self._read_file(source, parts, source.location("/openapi/path"))
        anew: Fields = {
            key: [self._plugin(source, pointer, value) for pointer, value in source.items(key)]
            for key in ("transformers", "generators", "validators")
            if source.body.get(key)
        }
        merges = [rewrite_inline_patch(text) for _, text in source.items("patchesStrategicMerge")]
        return {**anew, "patchesStrategicMerge": merges} if merges else anew

    def _plugin(self, source: KustomizationFile, pointer: str, value: Tree) -> str:
        """Check one plugin; returns its entry as Kustomize gets to see it."""
        text, location = source.text_at(pointer, value), source.location(pointer)
        if is_inline_patch(text):
            return check_plugin(text.encode(), location).decode()
        parts = source.resolve(pointer, text)
        self.rewritten[path_text(parts)] = check_plugin(
            self._read_file(source, parts, location), location
        )
        return text

    def _read_file(
        self, source: KustomizationFile, parts: PathParts, location: FileLocation
    ) -> bytes:
        """Read a file that a kustomization names. Kustomize wants it in or below its directory."""
        where = f"{location.file}:{location.line}"
        if parts[: len(source.directory)] != source.directory:
            raise refusal(
                where,
                f"the file {quote_text(path_text(parts))} is not in or below the kustomization's "
                "directory.",
                "Move it there, or make a kustomization of its directory and name that.",
            )
        file = path_text(parts)
        if file not in self.contents:
            try:
                self.contents[file] = self.files.read(parts)
            except FileNotFoundError:
                raise _missing_file(location, parts) from None
        return self.contents[file]


def _check_keys(source: KustomizationFile) -> None:
    for key in source.body:
        if key in _REFUSED_KEYS:
            raise refusal(
                source.document.where(f"/{key}"),
                f"{key} runs Helm and fetches charts, which rendering does not do.",
                "Commit the rendered chart in its place.",
            )
        if key not in _MODELLED_KEYS | _OTHER_KEYS:
            raise source.error(f"/{key}", f"the key {quote_text(key)} is not known.")
        unknown = find_unknown_key(source.body[key], _INNER_KEYS.get(key))
        if unknown is not None:
            raise source.error(f"/{key}", f"the key {quote_text(unknown)} in {key} is not known.")


def _missing_file(location: FileLocation, parts: PathParts) -> Exception:
    return refusal(
        f"{location.file}:{location.line}",
        f"there is no {quote_text(path_text(parts) or '.')} in the repository.",
        "Commit it as a regular file, or remove the entry. Nothing remote is fetched.",
    )
