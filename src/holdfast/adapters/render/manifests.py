"""Manifests: the objects in YAML and JSON files, as they were read and where they stand.

One rule says which files of a directory count: names that end in `.yaml`, `.yml` or `.json`, in
lower case, in the directory and all below it; names that begin with a dot are skipped, files and
directories alike. They are read in the order of their paths. Every document in them is an object.
`objects` checks manifests and makes desired objects of them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from holdfast.adapters.render.files import (
    MAX_DEPTH,
    PathKind,
    PathParts,
    RepositoryFiles,
    path_text,
    refusal,
)
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.redact import quote_text
from holdfast.core.tree import Fields, Tree, json_pointer
from holdfast.wire.yaml import read_documents

MAX_PROBLEMS = 20
"""Problems that one error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One object as it was read, and where it stands."""

    value: Fields
    file: str
    """Empty when nobody can say."""
    document: int = 0
    lines: Mapping[str, int] = field(default_factory=dict)
    """JSON pointer into the value to its line."""
    elsewhere: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    encrypted: bool = False

    def where(self, pointer: str = "") -> str:
        """Say where a field stands, for people."""
        while pointer and pointer not in self.elsewhere and pointer not in self.lines:
            pointer = pointer.rpartition("/")[0]
        file, line = self.elsewhere.get(pointer) or (self.file, self.lines.get(pointer, 0))
        return f"{file}:{line}" if line else file or "the rendered objects"


def is_json(file: str) -> bool:
    """True for a file that is read as JSON."""
    return file.endswith(".json")


def parse_manifests(data: bytes, file: str) -> list[Manifest]:
    """Read every object of a file. Raises ValidationError with file and line."""
    manifests: list[Manifest] = []
    for at, document in enumerate(read_documents(data, source=file, json=is_json(file))):
        # Anything else is read as an empty object, so that the one check refuses it with its line.
        value = document.value if isinstance(document.value, dict) else {}
        manifests += expand_list(
            Manifest(value=value, file=file, document=at, lines=document.lines)
        )
    return manifests


def is_list(value: Fields) -> bool:
    """True for a `List`, or the list of one kind, that only holds other objects."""
    return str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list)


def lines_below(mapping: Mapping[str, int], pointer: str) -> dict[str, int]:
    """Return the part of a map of pointers that lies at or below one, counted from there."""
    return {
        key.removeprefix(pointer): line
        for key, line in mapping.items()
        if key == pointer or key.startswith(f"{pointer}/")
    }


def expand_list(manifest: Manifest) -> Iterator[Manifest]:
    """Take a list apart; anything else stays as it is."""
    if not is_list(manifest.value):
        yield manifest
        return
    items = manifest.value["items"]
    assert isinstance(items, list)  # noqa: S101  # is_list
    for place, item in enumerate(items):
        inner = Manifest(
            value=item if isinstance(item, dict) else {},
            file=manifest.file,
            document=manifest.document,
            lines=lines_below(manifest.lines, f"/items/{place}"),
            encrypted=manifest.encrypted,
        )
        yield from expand_list(inner)


@dataclass(slots=True)
class ProblemList:
    """Everything wrong with the objects of a path."""

    found: list[Problem] = field(default_factory=list)

    def add(self, where: str, reason: str, fix: str) -> None:
        """Note one problem."""
        self.found.append(Problem(field=where, reason=reason, fix=fix))


ENCRYPTED_VALUE = re.compile(r"ENC\[AES256_GCM,")
_ENCRYPTED_BYTES = b"ENC[AES256_GCM,"


def is_secret(item: Fields) -> bool:
    """True for a Secret of the core API."""
    return item.get("kind") == "Secret" and item.get("apiVersion") == "v1"


def is_encrypted(value: Tree) -> bool:
    """True for a document that SOPS encrypted: it has the block that says how."""
    block = value.get("sops") if isinstance(value, dict) else None
    return isinstance(block, dict) and "mac" in block


def merge_decrypted(sealed: Fields, clear: Fields) -> Fields:
    """Put what was decrypted in the place of each sealed value.

    Everything else stays as our own reader read it: parsers disagree on plain scalars, and what
    is reviewed must be what is applied. Raises KeyError when the two do not fit together.
    """
    merged = _merge_decrypted_value(
        {key: value for key, value in sealed.items() if key != "sops"}, clear
    )
    assert isinstance(merged, dict)  # noqa: S101  # a mapping went in
    return merged


def _merge_decrypted_value(sealed: Tree, clear: Tree) -> Tree:
    if isinstance(sealed, dict):
        if not isinstance(clear, dict):
            raise KeyError
        return {key: _merge_decrypted_value(value, clear[key]) for key, value in sealed.items()}
    if isinstance(sealed, list):
        if not isinstance(clear, list) or len(clear) != len(sealed):
            raise KeyError
        return [
            _merge_decrypted_value(one, other) for one, other in zip(sealed, clear, strict=True)
        ]
    if isinstance(sealed, str) and ENCRYPTED_VALUE.match(sealed):
        if isinstance(clear, str) and ENCRYPTED_VALUE.match(clear):
            raise KeyError
        return clear
    return sealed


def normalize_secret(item: Fields, manifest: Manifest, problems: ProblemList) -> Fields:
    """Write a Secret the way API servers give it: all of it under `data`, in plain base64."""
    item = dict(item)
    data: Fields = {}
    for part, read in (("data", _decode_base64), ("stringData", _encode_text)):
        values = item.pop(part, None)
        if values is None:
            continue
        if not isinstance(values, dict):
            problems.add(
                manifest.where(f"/{part}"), f"{part} is not a mapping.", "Write name: value."
            )
            continue
        for key, value in values.items():
            at = manifest.where(json_pointer((part, key)))
            try:
                raw = read(value)
            except ValueError as error:
                problems.add(at, f"the value of {quote_text(key)} in {part} {error}.", "Fix it.")
                continue
            if _ENCRYPTED_BYTES in raw:
                problems.add(
                    at,
                    f"the value of {quote_text(key)} is encrypted, and nothing here can open it.",
                    "Encrypt the whole document with SOPS; a generator cannot take encrypted "
                    "files.",
                )
                continue
            data[key] = base64.b64encode(raw).decode()
    if data:
        item["data"] = data
    return item


def _decode_base64(value: Tree) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise ValueError("is not text in base64")
    try:
        return base64.b64decode(re.sub(r"[\r\n]", "", value), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(
            "is encrypted, and its document has no sops block"
            if ENCRYPTED_VALUE.match(value)
            else "is not base64: use stringData for plain text"
        ) from None


def _encode_text(value: Tree) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise ValueError("is not text: quote it")
    return value.encode()


MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
KUSTOMIZATION_NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")


def manifest_paths(files: RepositoryFiles, parts: PathParts) -> Iterator[PathParts]:
    """Yield the files that count. Raises FileNotFoundError when nothing is at the path."""
    found = files.find(parts)
    if found is None:
        raise FileNotFoundError(path_text(parts))
    if found is PathKind.FILE:
        if not parts[-1].endswith(MANIFEST_SUFFIXES):
            raise refusal(
                path_text(parts),
                "it is not a .yaml, .yml or .json file.",
                "Name one, or a directory.",
            )
        yield parts
        return
    yield from sorted(_walk_directory(files, parts, depth=0))


def read_manifests(
    files: RepositoryFiles,
    parts: PathParts,
    read: Callable[[bytes, str], list[Manifest]] = parse_manifests,
) -> tuple[list[Manifest], dict[str, bytes]]:
    """Return the objects that a path declares, and the text of each file with encrypted ones.

    `read` reads the objects of one file.
    """
    manifests: list[Manifest] = []
    sealed: dict[str, bytes] = {}
    problems: list[Problem] = []
    for manifest in manifest_paths(files, parts):
        file = path_text(manifest)
        data = files.read(manifest)
        try:
            found = read(data, file)
        except ValidationError as error:
            problems.extend(error.problems)
            continue
        if any(is_encrypted(manifest.value) for manifest in found):
            _check_single_object(found, file)
            sealed[file] = data
            found = [replace(manifest, encrypted=True) for manifest in found]
        manifests.extend(found)
    if problems:
        raise ValidationError(
            "The repository's files cannot be read.", problems=problems[:MAX_PROBLEMS]
        )
    return manifests, sealed


def _walk_directory(files: RepositoryFiles, parts: PathParts, *, depth: int) -> Iterator[PathParts]:
    if depth > MAX_DEPTH:
        raise refusal(path_text(parts), f"it is over {MAX_DEPTH} folders deep.", "Flatten it.")
    for name, kind in files.names(parts):
        if kind is PathKind.DIRECTORY:
            yield from _walk_directory(files, (*parts, name), depth=depth + 1)
        elif name in KUSTOMIZATION_NAMES:
            raise refusal(
                path_text((*parts, name)),
                "it is a kustomization, and these files are read as plain YAML.",
                "Point an Application at its directory, or choose the renderer kustomize.",
            )
        elif name.endswith(MANIFEST_SUFFIXES):
            yield (*parts, name)


def _check_single_object(found: list[Manifest], file: str) -> None:
    """A seal covers a whole file, so an encrypted object has one to itself."""
    if len(found) > 1:
        raise refusal(
            found[1].where(),
            "it shares a file with an encrypted document.",
            f"Give each encrypted object a file of its own; {file} has {len(found)} objects.",
        )
