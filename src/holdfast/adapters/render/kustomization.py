"""Reads one kustomization: what its keys say, checked, and the plugins that it may use.

Plugins may only be built-in ones that change what is there. Everything else runs programs,
containers or Helm, or reads files that were not checked. Kustomize matches keys by Unicode's case
folding (`fileſ` for `files`), so whatever is not known by its exact name is refused; and what
Kustomize gets to see is written again from what was read here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.adapters.render.files import PathParts, path_text, refusal, resolve_path
from holdfast.adapters.render.manifests import is_json
from holdfast.core.gitops.kustomize import (
    FileLocation,
    GeneratorFile,
    GeneratorKind,
    GeneratorLiteral,
    ImageChange,
    KustomizeGenerator,
    KustomizePatch,
    LabelChange,
    LayerSetting,
    PatchForm,
    PatchTarget,
    ReplicaChange,
)
from holdfast.core.redact import quote_text
from holdfast.core.tree import Fields, Tree
from holdfast.wire.yaml import Document, read_documents

AllowedKeys = Mapping[str, "AllowedKeys | None"]
"""The keys that a mapping may have, each with those of what is below it; None is anything, where
Kustomize itself looks at no names."""

_GVK_KEYS: AllowedKeys = dict.fromkeys(("group", "version", "kind"))
_SELECTOR_KEYS: AllowedKeys = {
    **_GVK_KEYS,
    **dict.fromkeys(("name", "namespace", "labelSelector", "annotationSelector")),
}
_FIELD_SPEC_KEYS: AllowedKeys = {**_GVK_KEYS, **dict.fromkeys(("path", "create"))}
_FIELD_OPTION_KEYS: AllowedKeys = dict.fromkeys(("delimiter", "index", "encoding", "create"))
GENERATOR_OPTION_KEYS: AllowedKeys = dict.fromkeys(
    ("labels", "annotations", "disableNameSuffixHash", "immutable")
)
_GENERATED_KEYS: AllowedKeys = {
    **dict.fromkeys(("name", "namespace", "behavior", "literals")),
    "options": GENERATOR_OPTION_KEYS,
}
IMAGE_KEYS: AllowedKeys = dict.fromkeys(("name", "newName", "newTag", "tagSuffix", "digest"))
REPLICA_KEYS: AllowedKeys = dict.fromkeys(("name", "count"))
LABEL_KEYS: AllowedKeys = {
    **dict.fromkeys(("pairs", "includeSelectors", "includeTemplates")),
    "fields": _FIELD_SPEC_KEYS,
}
REPLACEMENT_KEYS: AllowedKeys = {
    "source": {
        **_GVK_KEYS,
        **dict.fromkeys(("name", "namespace", "fieldPath")),
        "options": _FIELD_OPTION_KEYS,
    },
    "sourceValue": None,
    "targets": {
        "select": _SELECTOR_KEYS,
        "reject": _SELECTOR_KEYS,
        "fieldPaths": None,
        "options": _FIELD_OPTION_KEYS,
    },
}
_METADATA_KEYS: AllowedKeys = {
    "name": None,
    "namespace": None,
    "labels": None,
    "annotations": {"config.kubernetes.io/local-config": None},
}
BUILT_IN_PLUGINS: Mapping[str, AllowedKeys] = {
    "AnnotationsTransformer": {"annotations": None, "fieldSpecs": _FIELD_SPEC_KEYS},
    "ConfigMapGenerator": _GENERATED_KEYS,
    "HashTransformer": {},
    "ImageTagTransformer": {"imageTag": IMAGE_KEYS, "fieldSpecs": _FIELD_SPEC_KEYS},
    "LabelTransformer": {"labels": None, "fieldSpecs": _FIELD_SPEC_KEYS},
    "LegacyOrderTransformer": {},
    "NamespaceTransformer": {
        "fieldSpecs": _FIELD_SPEC_KEYS,
        **dict.fromkeys(("unsetOnly", "setRoleBindingSubjects")),
    },
    "PatchJson6902Transformer": {"target": _SELECTOR_KEYS, "jsonOp": None},
    "PatchStrategicMergeTransformer": {"patches": None},
    "PatchTransformer": {"patch": None, "target": _SELECTOR_KEYS, "options": None},
    "PrefixTransformer": {"prefix": None, "fieldSpecs": _FIELD_SPEC_KEYS},
    "ReplacementTransformer": {"replacements": REPLACEMENT_KEYS},
    "ReplicaCountTransformer": {"replica": REPLICA_KEYS, "fieldSpecs": _FIELD_SPEC_KEYS},
    "SecretGenerator": {**_GENERATED_KEYS, "type": None},
    "SortOrderTransformer": {
        "sortOptions": {
            "order": None,
            "legacySortOptions": dict.fromkeys(("orderFirst", "orderLast")),
        }
    },
    "SuffixTransformer": {"suffix": None, "fieldSpecs": _FIELD_SPEC_KEYS},
    "ValueAddTransformer": {
        "value": None,
        "targets": {"selector": _SELECTOR_KEYS, **dict.fromkeys(("fieldPath", "filePathPosition"))},
    },
}
"""Those that only change what is there. No key here leads to a file or an address."""


def check_plugin(data: bytes, location: FileLocation) -> bytes:
    """Refuse a plugin's configuration that is not one of the harmless ones; returns it anew."""
    where = f"{location.file}:{location.line}"
    checked = [
        _check_plugin_document(document.value, where)
        for document in read_documents(data, source=f"{location.file} (plugin)")
    ]
    return "\n---\n".join(json.dumps(value, ensure_ascii=False) for value in checked).encode()


def find_unknown_key(value: Tree, keys: AllowedKeys | None) -> str | None:
    """Return the first key that is not in the list, however deep; None when there is none.

    Lists are looked into: what is said of a mapping is said of each in a list.
    """
    if keys is None:
        return None
    if isinstance(value, list):
        return next(
            (key for item in value if (key := find_unknown_key(item, keys)) is not None), None
        )
    if not isinstance(value, dict):
        return None
    for key, inner in value.items():
        if key not in keys:
            return key
        found = find_unknown_key(inner, keys[key])
        if found is not None:
            return found
    return None


def _check_plugin_document(value: Tree, where: str) -> Fields:
    if not isinstance(value, dict):
        raise refusal(where, "it is not a plugin.", "Remove it.")
    kind = value.get("kind")
    keys = BUILT_IN_PLUGINS.get(kind) if isinstance(kind, str) else None
    if value.get("apiVersion") != "builtin" or keys is None:
        raise refusal(
            where,
            f"the plugin {quote_text(str(kind))} runs something or is not known.",
            "Use patches, or a transformer that is built into Kustomize.",
        )
    unknown = find_unknown_key(
        value, {"apiVersion": None, "kind": None, "metadata": _METADATA_KEYS, **keys}
    )
    if unknown is not None:
        raise refusal(
            where,
            f"the plugin {quote_text(str(kind))} has the key {quote_text(unknown)}, which is not "
            "known, reads further files or names a function.",
            "Remove it, or write its configuration out in place.",
        )
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        # Kustomize would take a text without a name for a path.
        raise refusal(where, "the plugin has no metadata.name.", "Give it one.")
    return value


_REMOTE_PATH = re.compile(
    r"""(?xi)
      :            # a scheme, a host with a path, or both
    | \?           # ?ref=
    | //           # a repository and a path within
    | ^[a-z][a-z0-9-]*@
    | ^(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org)(?:/|$)
    | \.git(?:/|$)
    | (?:^|/)_git/
    """
)
_BLOCK_HEADER = re.compile(r"[|>][-+0-9]*\s*(?:\#.*)?$")
_TARGET_KEYS = {
    "group": "group",
    "version": "version",
    "kind": "kind",
    "name": "name",
    "namespace": "namespace",
    "labelSelector": "label_selector",
    "annotationSelector": "annotation_selector",
}
_PATCH_KEYS = {"path", "patch", "target", "options"}
_GENERATOR_KEYS = {
    "name", "namespace", "behavior", "literals", "files", "envs", "env", "options", "type",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class KustomizationFile:
    """One kustomization as it was read."""

    directory: PathParts
    document: Document
    text: Sequence[str]
    """The lines of the file."""

    @property
    def body(self) -> Fields:
        """What it says."""
        value = self.document.value
        assert isinstance(value, dict)  # noqa: S101  # checked where it was read
        return value

    def location(self, pointer: str) -> FileLocation:
        """Say where a value of it stands."""
        where = self.document.where(pointer)
        line = int(where.rpartition(":")[2])
        return FileLocation(file=self.document.source, pointer=pointer, line=line)

    def items(self, key: str) -> Iterator[tuple[str, Tree]]:
        """Yield pointer and value of each entry of a list."""
        values = self.body.get(key)
        if values is None:
            return
        if not isinstance(values, list):
            raise self.error(f"/{key}", f"{key} is not a list.")
        for at, value in enumerate(values):
            yield f"/{key}/{at}", value

    def mappings(self, key: str, known: set[str] | None = None) -> Iterator[tuple[str, Fields]]:
        """Yield pointer and value of each entry of a list of mappings."""
        for pointer, value in self.items(key):
            if not isinstance(value, dict):
                raise self.error(pointer, f"an entry of {key} is not a mapping.")
            unknown = sorted(set(value) - known) if known is not None else []
            if unknown:
                raise self.error(
                    pointer, f"an entry of {key} has the key {quote_text(unknown[0])}."
                )
            yield pointer, value

    def text_at(self, pointer: str, value: Tree) -> str:
        """Return a value that has to be text."""
        if not isinstance(value, str):
            raise self.error(pointer, "it is not text.")
        return value

    def resolve(self, pointer: str, value: Tree) -> PathParts:
        """Resolve a path; whatever Kustomize could take for a remote one is refused."""
        path = self.text_at(pointer, value)
        where = self.document.where(pointer)
        if not path.strip() or path != path.strip():
            raise refusal(where, "the path is empty or has spaces around it.", "Fix it.")
        if _REMOTE_PATH.search(path):
            raise refusal(
                where,
                f"{quote_text(path)} names something remote, and nothing is fetched in rendering.",
                "Copy it into the repository, and name it by its path.",
            )
        return resolve_path(path, beneath=self.directory, where=where)

    def error(self, pointer: str, reason: str) -> Exception:
        """Build a refusal that says where."""
        return refusal(self.document.where(pointer), reason, "Fix the kustomization.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSource:
    """A patch that is still text, and where it came from."""

    data: bytes
    inline: bool
    location: FileLocation
    entry: FileLocation
    target: PatchTarget | None


def read_images(source: KustomizationFile) -> tuple[ImageChange, ...]:
    """Read `images`."""
    return tuple(
        ImageChange(
            name=_string_value(value, "name"),
            new_name=_string_value(value, "newName"),
            new_tag=_string_value(value, "newTag"),
            digest=_string_value(value, "digest"),
            location=source.location(pointer),
        )
        for pointer, value in source.mappings("images")
    )


def read_replicas(source: KustomizationFile) -> tuple[ReplicaChange, ...]:
    """Read `replicas`."""
    found = []
    for pointer, value in source.mappings("replicas"):
        count = value.get("count")
        if not isinstance(count, int) or isinstance(count, bool):
            raise source.error(f"{pointer}/count", "the count is not a whole number.")
        found.append(
            ReplicaChange(
                name=_string_value(value, "name"), count=count, location=source.location(pointer)
            )
        )
    return tuple(found)


def read_labels(source: KustomizationFile) -> tuple[LabelChange, ...]:
    """Read `labels` and `commonLabels`."""
    found = [
        LabelChange(
            pairs=_string_map(source, f"{pointer}/pairs", value.get("pairs")),
            selectors=value.get("includeSelectors") is True,
            templates=value.get("includeTemplates") is True
            or value.get("includeSelectors") is True,
            location=source.location(pointer),
        )
        for pointer, value in source.mappings("labels")
    ]
    if source.body.get("commonLabels"):
        pairs = _string_map(source, "/commonLabels", source.body["commonLabels"])
        place = source.location("/commonLabels")
        found.append(LabelChange(pairs=pairs, selectors=True, templates=True, location=place))
    return tuple(found)


def read_common_annotations(source: KustomizationFile) -> dict[str, str] | None:
    """Read `commonAnnotations`."""
    found = source.body.get("commonAnnotations")
    return _string_map(source, "/commonAnnotations", found) if found else None


def read_setting(source: KustomizationFile, key: str) -> LayerSetting | None:
    """Read one plain value."""
    value = source.body.get(key)
    if value is None or value == "":
        return None
    return LayerSetting(value=source.text_at(f"/{key}", value), location=source.location(f"/{key}"))


def read_generators(source: KustomizationFile) -> Iterator[KustomizeGenerator]:
    """Read `configMapGenerator` and `secretGenerator`."""
    options = source.body.get("generatorOptions")
    unhashed = isinstance(options, dict) and options.get("disableNameSuffixHash") is True
    for key, kind in (
        ("configMapGenerator", GeneratorKind.CONFIG_MAP),
        ("secretGenerator", GeneratorKind.SECRET),
    ):
        for pointer, value in source.mappings(key, _GENERATOR_KEYS):
            own = value.get("options")
            hashed = not unhashed and not (
                isinstance(own, dict) and own.get("disableNameSuffixHash") is True
            )
            yield KustomizeGenerator(
                kind=kind,
                name=_string_value(value, "name"),
                namespace=_string_value(value, "namespace"),
                behavior=_string_value(value, "behavior") or "create",
                hashed=hashed,
                literals=tuple(_read_literals(source, pointer, value, kind)),
                files=tuple(_read_keyed_files(source, f"{pointer}/files", value.get("files"))),
                envs=tuple(_read_env_files(source, pointer, value)),
                location=source.location(pointer),
            )


def read_patch_entries(
    source: KustomizationFile,
) -> Iterator[PatchSource | tuple[PathParts, FileLocation, PatchTarget | None]]:
    """Yield each patch: its text where it is inline, else the file with it."""
    for pointer, value in source.items("patchesStrategicMerge"):
        text = source.text_at(pointer, value)
        if is_inline_patch(text):
            place = source.location(pointer)
            yield PatchSource(
                data=text.encode(), inline=True, location=place, entry=place, target=None
            )
        else:
            yield source.resolve(pointer, text), source.location(pointer), None
    for key in ("patchesJson6902", "patches"):
        for pointer, value in source.mappings(key, _PATCH_KEYS):
            target = _read_target(source, f"{pointer}/target", value.get("target"))
            if value.get("patch"):
                yield PatchSource(
                    data=source.text_at(f"{pointer}/patch", value["patch"]).encode(),
                    inline=True,
                    location=source.location(f"{pointer}/patch"),
                    entry=source.location(pointer),
                    target=target,
                )
            else:
                parts = source.resolve(f"{pointer}/path", value.get("path"))
                yield parts, source.location(pointer), target


def is_inline_patch(text: str) -> bool:
    """True for an entry that is itself what another would name a file for."""
    return "\n" in text or text.lstrip().startswith("{")


def rewrite_inline_patch(entry: Tree) -> Tree:
    """Write an inline merge patch from what is read in it; paths stay.

    Kustomize takes a text that it cannot read for a path, so it gets one that it can.
    """
    if not isinstance(entry, str) or not is_inline_patch(entry):
        return entry
    documents = read_documents(entry.encode(), source="an inline patch")
    return "\n---\n".join(json.dumps(each.value, ensure_ascii=False) for each in documents)


def parse_patches(source: KustomizationFile, text: PatchSource) -> Iterator[KustomizePatch]:
    """Read the documents of one patch."""
    name = text.location.file if not text.inline else f"{text.location.file} (inline patch)"
    for at, document in enumerate(
        read_documents(text.data, source=name, json=not text.inline and is_json(name))
    ):
        body = document.value
        if not isinstance(body, dict | list):
            raise refusal(
                f"{text.location.file}:{text.location.line}", "it is not a patch.", "Fix the patch."
            )
        lines = _inline_lines(source, text, document) if text.inline else document.lines
        yield KustomizePatch(
            form=PatchForm.OPERATIONS if isinstance(body, list) else PatchForm.MERGE,
            target=text.target,
            body=body,
            inline=text.inline,
            location=text.location
            if text.inline
            else FileLocation(file=text.location.file, line=document.line, document=at),
            entry=text.entry,
            lines=lines,
        )


def _inline_lines(
    source: KustomizationFile, text: PatchSource, document: Document
) -> dict[str, int]:
    """Count the lines of inline text within the file; only a block's lines are the file's."""
    start = text.location.line
    header = source.text[start - 1] if start <= len(source.text) else ""
    block = bool(_BLOCK_HEADER.search(header.rstrip()))
    return {key: start + line if block else start for key, line in document.lines.items()}


def _read_target(source: KustomizationFile, pointer: str, value: Tree) -> PatchTarget | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not set(value) <= set(_TARGET_KEYS):
        raise source.error(pointer, "the target of a patch has a key that is not known.")
    return PatchTarget(**{_TARGET_KEYS[key]: str(text) for key, text in value.items() if text})


def _read_literals(
    source: KustomizationFile, pointer: str, value: Fields, kind: GeneratorKind
) -> Iterator[GeneratorLiteral]:
    for at, entry in _string_items(source, f"{pointer}/literals", value.get("literals")):
        key, equals, text = entry.partition("=")
        if not equals:
            raise source.error(at, "a literal is not written as key=value.")
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            text = text[1:-1]
        shown = None if kind is GeneratorKind.SECRET else text
        yield GeneratorLiteral(key=key.strip(), value=shown, location=source.location(at))


def _read_keyed_files(
    source: KustomizationFile, pointer: str, value: Tree
) -> Iterator[GeneratorFile]:
    for at, entry in _string_items(source, pointer, value):
        key, equals, path = entry.partition("=")
        parts = source.resolve(at, path if equals else entry)
        named = key if equals else parts[-1] if parts else ""
        yield GeneratorFile(key=named, path=path_text(parts), location=source.location(at))


def _read_env_files(
    source: KustomizationFile, pointer: str, value: Fields
) -> Iterator[GeneratorFile]:
    entries = list(_string_items(source, f"{pointer}/envs", value.get("envs")))
    if value.get("env"):
        entries.append((f"{pointer}/env", source.text_at(f"{pointer}/env", value["env"])))
    for at, entry in entries:
        yield GeneratorFile(
            key="", path=path_text(source.resolve(at, entry)), location=source.location(at)
        )


def _string_items(
    source: KustomizationFile, pointer: str, value: Tree
) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    if not isinstance(value, list):
        raise source.error(pointer, "it is not a list.")
    for at, entry in enumerate(value):
        yield f"{pointer}/{at}", source.text_at(f"{pointer}/{at}", entry)


def _string_map(source: KustomizationFile, pointer: str, value: Tree) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise source.error(pointer, "it is not a mapping of names to quoted text.")
    return {key: str(text) for key, text in value.items()}


def _string_value(value: Fields, key: str) -> str:
    found = value.get(key)
    return "" if found is None else str(found)
