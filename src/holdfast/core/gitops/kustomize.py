"""The layers of a Kustomize path: which file says what about the objects that come out of it.

Read by the codifier, which looks for the place that a value is best changed in. A renderer's
adapter fills these in; nothing here knows how files are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.tree import Fields, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLocation:
    """A value in a file of the repository."""

    file: str
    """From the root of the repository."""
    pointer: str = ""
    """JSON pointer within the document; empty for the whole of it."""
    line: int = 1
    document: int = 0
    """Which document of the file, from 0."""


class ResourceKind(StrEnum):
    """What an entry of `resources`, `bases` or `components` leads to."""

    FILE = "file"
    LAYER = "layer"
    COMPONENT = "component"


@dataclass(frozen=True, slots=True, kw_only=True)
class KustomizeResource:
    """One entry of `resources`, `bases` or `components`."""

    kind: ResourceKind
    path: str
    """The file of objects, or the kustomization file of the layer, from the root."""
    location: FileLocation


class PatchForm(StrEnum):
    """How a patch is written."""

    MERGE = "merge"
    """Strategic merge: a part of an object."""
    OPERATIONS = "operations"
    """JSON 6902: a list of operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchTarget:
    """Which objects a patch is for. Kustomize reads each part as a whole-match expression."""

    group: str = ""
    version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    label_selector: str = ""
    annotation_selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KustomizePatch:
    """One patch of a layer. A file or text with several documents gives several."""

    form: PatchForm
    target: PatchTarget | None
    """None for a merge patch that names its object itself."""
    body: Tree
    """The part of an object, or the list of operations."""
    inline: bool
    """True when the patch is text within the kustomization file."""
    location: FileLocation
    """Where the text of the patch begins: in its own file, or as a value of the kustomization."""
    entry: FileLocation
    """The entry of the kustomization that brings it in."""
    lines: Mapping[str, int]
    """JSON pointer into the body to the line in `place.file`. Approximate for inline text that
    is not a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChange:
    """One entry of `images`. Unset parts are empty."""

    name: str
    new_name: str = ""
    new_tag: str = ""
    digest: str = ""
    location: FileLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChange:
    """One entry of `replicas`."""

    name: str
    count: int
    location: FileLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorLiteral:
    """One `key=value` of a generator."""

    key: str
    value: str | None
    """None in a secret generator: plaintext secrets are neither shown nor edited."""
    location: FileLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorFile:
    """One entry of `files` or `envs` of a generator."""

    key: str
    """The key in the object; empty for a file of variables, which gives several."""
    path: str
    location: FileLocation


class GeneratorKind(StrEnum):
    """What a generator makes."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class KustomizeGenerator:
    """One entry of `configMapGenerator` or `secretGenerator`."""

    kind: GeneratorKind
    name: str
    namespace: str = ""
    behavior: str = "create"
    """`create`, `merge` or `replace`."""
    hashed: bool = True
    """True when the name gets a suffix made of the content, so a change gives another object."""
    literals: tuple[GeneratorLiteral, ...] = ()
    files: tuple[GeneratorFile, ...] = ()
    envs: tuple[GeneratorFile, ...] = ()
    location: FileLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChange:
    """One entry of `labels`, or `commonLabels` as a whole."""

    pairs: Mapping[str, str]
    selectors: bool
    """True when selectors get them too."""
    templates: bool
    """True when pod templates get them too."""
    location: FileLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSetting:
    """One plain value that a layer gives to all of its objects."""

    value: str
    location: FileLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class KustomizeLayer:
    """One kustomization file."""

    file: str
    """From the root of the repository."""
    component: bool = False
    parents: tuple[str, ...] = ()
    """The kustomization files that bring it in; none for the entry."""
    resources: tuple[KustomizeResource, ...] = ()
    patches: tuple[KustomizePatch, ...] = ()
    images: tuple[ImageChange, ...] = ()
    replicas: tuple[ReplicaChange, ...] = ()
    generators: tuple[KustomizeGenerator, ...] = ()
    namespace: LayerSetting | None = None
    name_prefix: LayerSetting | None = None
    name_suffix: LayerSetting | None = None
    labels: tuple[LabelChange, ...] = ()
    annotations: Mapping[str, str] | None = None
    """`commonAnnotations`."""
    others: tuple[str, ...] = ()
    """Further keys that change objects and are not modelled here: `replacements`, `vars`, …"""
    body: Fields
    """The whole kustomization as it was read."""
    lines: Mapping[str, int]
    """JSON pointer into the body to its line."""

    def location(self, pointer: str) -> FileLocation:
        """Say where a value of this kustomization stands, or what is around it."""
        nearest = pointer
        while nearest and nearest not in self.lines:
            nearest = nearest.rpartition("/")[0]
        return FileLocation(file=self.file, pointer=pointer, line=self.lines.get(nearest, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStack:
    """All layers of one path, overlays before their bases; the first is the entry."""

    layers: tuple[KustomizeLayer, ...]
    files: tuple[str, ...]
    """Every file that takes part, from the root, sorted: kustomizations and what they name."""

    @property
    def entry(self) -> KustomizeLayer:
        """The layer that is rendered."""
        return self.layers[0]

    def layer(self, file: str) -> KustomizeLayer:
        """Return the layer of a kustomization file."""
        return next(layer for layer in self.layers if layer.file == file)

    def bringing(self, file: str) -> KustomizeLayer | None:
        """Return the layer that a kustomization file is, or that brings another file in."""
        for layer in self.layers:
            if layer.file == file:
                return layer
        for layer in self.layers:
            named = {each.path for each in layer.resources if each.kind is ResourceKind.FILE}
            named |= {patch.location.file for patch in layer.patches}
            if file in named:
                return layer
        return None

    def chain(self, file: str) -> tuple[KustomizeLayer, ...]:
        """Return the layers that a file passes on its way out, from the entry to its own.

        Where a layer is brought in by several, the first of them is followed.
        """
        layer = self.bringing(file)
        chain: list[KustomizeLayer] = []
        while layer is not None:
            chain.append(layer)
            layer = self.layer(layer.parents[0]) if layer.parents else None
        return tuple(reversed(chain))
