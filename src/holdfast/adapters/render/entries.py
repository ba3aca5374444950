"""Reads the parts of one kustomization into the values of its layer.

Called by `layers.py`. Keys are matched exactly: Kustomize itself takes `HelmCharts` for
`helmCharts`, so whatever is not known by its exact name is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.adapters.render.paths import Parts, refused, resolve, text_of
from holdfast.adapters.render.pieces import is_json
from holdfast.core.gitops.layers import (
    Generator,
    GeneratorKind,
    ImageChange,
    KeyedFile,
    LabelChange,
    Literal,
    Patch,
    PatchForm,
    PatchTarget,
    Place,
    ReplicaChange,
    Setting,
)
from holdfast.core.redact import quoted
from holdfast.core.tree import Fields, Tree
from holdfast.wire.yaml import Document, read_documents

_REMOTE = re.compile(
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
_BLOCK = re.compile(r"[|>][-+0-9]*\s*(?:\#.*)?$")
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
class Source:
    """One kustomization as it was read."""

    directory: Parts
    document: Document
    text: Sequence[str]
    """The lines of the file."""

    @property
    def body(self) -> Fields:
        """What it says."""
        value = self.document.value
        assert isinstance(value, dict)  # noqa: S101  # checked where it was read
        return value

    def place(self, pointer: str) -> Place:
        """Say where a value of it stands."""
        where = self.document.where(pointer)
        line = int(where.rpartition(":")[2])
        return Place(file=self.document.source, pointer=pointer, line=line)

    def items(self, key: str) -> Iterator[tuple[str, Tree]]:
        """Yield pointer and value of each entry of a list."""
        values = self.body.get(key)
        if values is None:
            return
        if not isinstance(values, list):
            raise self.wrong(f"/{key}", f"{key} is not a list.")
        for at, value in enumerate(values):
            yield f"/{key}/{at}", value

    def mappings(self, key: str, known: set[str] | None = None) -> Iterator[tuple[str, Fields]]:
        """Yield pointer and value of each entry of a list of mappings."""
        for pointer, value in self.items(key):
            if not isinstance(value, dict):
                raise self.wrong(pointer, f"an entry of {key} is not a mapping.")
            strange = sorted(set(value) - known) if known is not None else []
            if strange:
                raise self.wrong(pointer, f"an entry of {key} has the key {quoted(strange[0])}.")
            yield pointer, value

    def text_at(self, pointer: str, value: Tree) -> str:
        """Return a value that has to be text."""
        if not isinstance(value, str):
            raise self.wrong(pointer, "it is not text.")
        return value

    def local(self, pointer: str, value: Tree) -> Parts:
        """Resolve a path; whatever Kustomize could take for a remote one is refused."""
        path = self.text_at(pointer, value)
        where = self.document.where(pointer)
        if not path.strip() or path != path.strip():
            raise refused(where, "the path is empty or has spaces around it.", "Fix it.")
        if _REMOTE.search(path):
            raise refused(
                where,
                f"{quoted(path)} names something remote, and nothing is fetched in rendering.",
                "Copy it into the repository, and name it by its path.",
            )
        return resolve(path, beneath=self.directory, where=where)

    def wrong(self, pointer: str, reason: str) -> Exception:
        """Build a refusal that says where."""
        return refused(self.document.where(pointer), reason, "Fix the kustomization.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchText:
    """A patch that is still text, and where it came from."""

    data: bytes
    inline: bool
    place: Place
    entry: Place
    target: PatchTarget | None


def images(source: Source) -> tuple[ImageChange, ...]:
    """Read `images`."""
    return tuple(
        ImageChange(
            name=_text(value, "name"),
            new_name=_text(value, "newName"),
            new_tag=_text(value, "newTag"),
            digest=_text(value, "digest"),
            place=source.place(pointer),
        )
        for pointer, value in source.mappings("images")
    )


def replicas(source: Source) -> tuple[ReplicaChange, ...]:
    """Read `replicas`."""
    found = []
    for pointer, value in source.mappings("replicas"):
        count = value.get("count")
        if not isinstance(count, int) or isinstance(count, bool):
            raise source.wrong(f"{pointer}/count", "the count is not a whole number.")
        found.append(
            ReplicaChange(name=_text(value, "name"), count=count, place=source.place(pointer))
        )
    return tuple(found)


def labels(source: Source) -> tuple[LabelChange, ...]:
    """Read `labels` and `commonLabels`."""
    found = [
        LabelChange(
            pairs=_pairs(source, f"{pointer}/pairs", value.get("pairs")),
            selectors=value.get("includeSelectors") is True,
            templates=value.get("includeTemplates") is True
            or value.get("includeSelectors") is True,
            place=source.place(pointer),
        )
        for pointer, value in source.mappings("labels")
    ]
    if source.body.get("commonLabels"):
        pairs = _pairs(source, "/commonLabels", source.body["commonLabels"])
        place = source.place("/commonLabels")
        found.append(LabelChange(pairs=pairs, selectors=True, templates=True, place=place))
    return tuple(found)


def common_annotations(source: Source) -> dict[str, str] | None:
    """Read `commonAnnotations`."""
    found = source.body.get("commonAnnotations")
    return _pairs(source, "/commonAnnotations", found) if found else None


def setting(source: Source, key: str) -> Setting | None:
    """Read one plain value."""
    value = source.body.get(key)
    if value is None or value == "":
        return None
    return Setting(value=source.text_at(f"/{key}", value), place=source.place(f"/{key}"))


def generators(source: Source) -> Iterator[Generator]:
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
            yield Generator(
                kind=kind,
                name=_text(value, "name"),
                namespace=_text(value, "namespace"),
                behavior=_text(value, "behavior") or "create",
                hashed=hashed,
                literals=tuple(_literals(source, pointer, value, kind)),
                files=tuple(_keyed(source, f"{pointer}/files", value.get("files"))),
                envs=tuple(_variables(source, pointer, value)),
                place=source.place(pointer),
            )


def inline_patches(source: Source) -> Iterator[PatchText | tuple[Parts, Place, PatchTarget | None]]:
    """Yield each patch: its text where it is inline, else the file with it."""
    for pointer, value in source.items("patchesStrategicMerge"):
        text = source.text_at(pointer, value)
        if is_inline(text):
            place = source.place(pointer)
            yield PatchText(data=text.encode(), inline=True, place=place, entry=place, target=None)
        else:
            yield source.local(pointer, text), source.place(pointer), None
    for key in ("patchesJson6902", "patches"):
        for pointer, value in source.mappings(key, _PATCH_KEYS):
            target = _target(source, f"{pointer}/target", value.get("target"))
            if value.get("patch"):
                yield PatchText(
                    data=source.text_at(f"{pointer}/patch", value["patch"]).encode(),
                    inline=True,
                    place=source.place(f"{pointer}/patch"),
                    entry=source.place(pointer),
                    target=target,
                )
            else:
                parts = source.local(f"{pointer}/path", value.get("path"))
                yield parts, source.place(pointer), target


def is_inline(text: str) -> bool:
    """True for an entry that is itself what another would name a file for."""
    return "\n" in text or text.lstrip().startswith("{")


def written_anew(entry: Tree) -> Tree:
    """Write an inline merge patch from what is read in it; paths stay.

    Kustomize takes a text that it cannot read for a path, so it gets one that it can.
    """
    if not isinstance(entry, str) or not is_inline(entry):
        return entry
    documents = read_documents(entry.encode(), source="an inline patch")
    return "\n---\n".join(json.dumps(each.value, ensure_ascii=False) for each in documents)


def read_patches(source: Source, text: PatchText) -> Iterator[Patch]:
    """Read the documents of one patch."""
    name = text.place.file if not text.inline else f"{text.place.file} (inline patch)"
    for at, document in enumerate(
        read_documents(text.data, source=name, json=not text.inline and is_json(name))
    ):
        body = document.value
        if not isinstance(body, dict | list):
            raise refused(
                f"{text.place.file}:{text.place.line}", "it is not a patch.", "Fix the patch."
            )
        lines = _inline_lines(source, text, document) if text.inline else document.lines
        yield Patch(
            form=PatchForm.OPERATIONS if isinstance(body, list) else PatchForm.MERGE,
            target=text.target,
            body=body,
            inline=text.inline,
            place=text.place
            if text.inline
            else Place(file=text.place.file, line=document.line, document=at),
            entry=text.entry,
            lines=lines,
        )


def _inline_lines(source: Source, text: PatchText, document: Document) -> dict[str, int]:
    """Count the lines of inline text within the file; only a block's lines are the file's."""
    start = text.place.line
    header = source.text[start - 1] if start <= len(source.text) else ""
    block = bool(_BLOCK.search(header.rstrip()))
    return {key: start + line if block else start for key, line in document.lines.items()}


def _target(source: Source, pointer: str, value: Tree) -> PatchTarget | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not set(value) <= set(_TARGET_KEYS):
        raise source.wrong(pointer, "the target of a patch has a key that is not known.")
    return PatchTarget(**{_TARGET_KEYS[key]: str(text) for key, text in value.items() if text})


def _literals(
    source: Source, pointer: str, value: Fields, kind: GeneratorKind
) -> Iterator[Literal]:
    for at, entry in _texts(source, f"{pointer}/literals", value.get("literals")):
        key, equals, text = entry.partition("=")
        if not equals:
            raise source.wrong(at, "a literal is not written as key=value.")
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            text = text[1:-1]
        shown = None if kind is GeneratorKind.SECRET else text
        yield Literal(key=key.strip(), value=shown, place=source.place(at))


def _keyed(source: Source, pointer: str, value: Tree) -> Iterator[KeyedFile]:
    for at, entry in _texts(source, pointer, value):
        key, equals, path = entry.partition("=")
        parts = source.local(at, path if equals else entry)
        named = key if equals else parts[-1] if parts else ""
        yield KeyedFile(key=named, path=text_of(parts), place=source.place(at))


def _variables(source: Source, pointer: str, value: Fields) -> Iterator[KeyedFile]:
    entries = list(_texts(source, f"{pointer}/envs", value.get("envs")))
    if value.get("env"):
        entries.append((f"{pointer}/env", source.text_at(f"{pointer}/env", value["env"])))
    for at, entry in entries:
        yield KeyedFile(key="", path=text_of(source.local(at, entry)), place=source.place(at))


def _texts(source: Source, pointer: str, value: Tree) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    if not isinstance(value, list):
        raise source.wrong(pointer, "it is not a list.")
    for at, entry in enumerate(value):
        yield f"{pointer}/{at}", source.text_at(f"{pointer}/{at}", entry)


def _pairs(source: Source, pointer: str, value: Tree) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise source.wrong(pointer, "it is not a mapping of names to quoted text.")
    return {key: str(text) for key, text in value.items()}


def _text(value: Fields, key: str) -> str:
    found = value.get(key)
    return "" if found is None else str(found)
