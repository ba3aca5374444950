"""Kustomize, run as a program on a private copy of exactly the files that were checked.

The copy is made because the export is not ours to change, and because nothing can then stand
between the check and the use. Kustomizations are written anew from what was read, so that
Kustomize cannot read something else; the entry is asked to say where each object comes from.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from holdfast.adapters.render.files import refusal
from holdfast.adapters.render.layers import LoadedLayers
from holdfast.adapters.render.manifests import (
    Manifest,
    expand_list,
    is_encrypted,
    is_json,
    parse_manifests,
)
from holdfast.adapters.render.objects import MAX_OBJECTS
from holdfast.adapters.render.origins import SourceObjects, trace_fields, trace_generated_fields
from holdfast.adapters.render.program import (
    LimitExceeded,
    Program,
    ProgramResult,
    find_program,
    run_program,
)
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.kustomize import GeneratorKind, KustomizeLayer, LayerStack
from holdfast.core.redact import MASK, redact
from holdfast.core.tree import Fields, Tree
from holdfast.reconcile.gitops.ports import SourceUnavailable
from holdfast.wire.yaml import read_documents

_MAX_SHOWN = 300
_MIN_LENGTH = 3


@dataclass(frozen=True, slots=True)
class SecretMask:
    """The values that must not be shown."""

    values: frozenset[str]

    def hide(self, text: str) -> str:
        """Return the last line of a complaint: one line of ASCII without any secret."""
        for value in sorted(self.values, key=len, reverse=True):
            text = text.replace(value, MASK)
            for escaped in (repr(value)[1:-1], value.replace("\n", "\\n")):
                text = text.replace(escaped, MASK)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        shown = redact(lines[-1]) if lines else ""
        return ascii(shown)[1:-1][:_MAX_SHOWN]


def make_secret_mask(reading: LoadedLayers) -> SecretMask:
    """Collect what Secrets, their patches and their generators say in clear."""
    found: set[str] = set()
    for layer in reading.trail.layers:
        found.update(_layer_secrets(layer, reading.contents))
    for file, data in reading.contents.items():
        try:
            documents = read_documents(data, source=file, json=is_json(file))
        except ValidationError:
            found.update(_possible_values(data))
            continue
        for document in documents:
            found.update(_document_secrets(document.value))
    return SecretMask(frozenset(value for value in found if len(value) >= _MIN_LENGTH))


def _layer_secrets(layer: KustomizeLayer, contents: dict[str, bytes]) -> Iterator[str]:
    entries = layer.body.get("secretGenerator")
    for entry in entries if isinstance(entries, list) else []:
        literals = entry.get("literals") if isinstance(entry, dict) else None
        for literal in literals if isinstance(literals, list) else []:
            yield from _encodings(str(literal).partition("=")[2])
    for generator in layer.generators:
        if generator.kind is GeneratorKind.SECRET:
            for each in (*generator.files, *generator.envs):
                yield from _possible_values(contents.get(each.path, b""))
    for patch in layer.patches:
        # A patch with a target need not say what kind it is for.
        body = patch.body
        parts = [body.get("data"), body.get("stringData")] if isinstance(body, dict) else body
        for text in _string_leaves(parts):
            yield from _encodings(text)


def _document_secrets(value: Tree) -> Iterator[str]:
    """Yield what stands under data and stringData of every Secret in a document."""
    if isinstance(value, dict):
        if value.get("kind") == "Secret":
            for key in ("data", "stringData"):
                for text in _string_leaves(value.get(key)):
                    yield from _encodings(text)
        else:
            for inner in value.values():
                yield from _document_secrets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _document_secrets(inner)


def _string_leaves(value: Tree) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _string_leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _string_leaves(inner)
    elif isinstance(value, str):
        yield value


def _encodings(text: str) -> Iterator[str]:
    yield text
    yield base64.b64encode(text.encode()).decode()
    try:
        yield base64.b64decode(text, validate=True).decode()
    except ValueError:
        return


def _possible_values(data: bytes) -> Iterator[str]:
    """Yield all that could be a value in a file of unknown form."""
    text = data.decode(errors="replace")
    yield text
    for line in text.splitlines():
        yield from _encodings(line.partition("=")[2] or line)
        yield from re.split(r"[\s=:\"',]+", line)


ORIGIN = "config.kubernetes.io/origin"
_ORIGIN_ANNOTATIONS = "originAnnotations"
_INSTALL_HINT = "Install kustomize, or kubectl, which has it inside; or give the path of one."
_RESTRICT = "--load-restrictor=LoadRestrictionsRootOnly"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kustomize:
    """The program, and what a run of it may take."""

    program: Program
    seconds: float
    scratch: Path | None = None
    """Where private copies are made; the system's own place when not given."""
    unconfined: bool = False
    """True lets it run where the network cannot be taken away from it."""

    async def build(self, reading: LoadedLayers) -> bytes:
        """Return what Kustomize prints. Raises SourceUnavailable when it fails."""
        with tempfile.TemporaryDirectory(prefix="holdfast-render-", dir=self.scratch) as scratch:
            root = Path(scratch) / "files"
            home = Path(scratch) / "home"
            home.mkdir()
            await asyncio.to_thread(_write_files, reading, root)
            entry = (root / reading.trail.entry.file).parent
            verb = "kustomize" if Path(self.program.path).name.startswith("kubectl") else "build"
            try:
                result = await run_program(
                    self.program,
                    [verb, _RESTRICT, "--", str(entry)],
                    directory=home,
                    seconds=self.seconds,
                    unconfined=self.unconfined,
                )
            except LimitExceeded as over:
                raise _build_error(reading.trail, f"{over}", "Make it smaller.") from None
            except OSError as error:
                raise _build_error(
                    reading.trail, f"could not be started: {error.strerror}", _INSTALL_HINT
                ) from None
        if result.code:
            said = await asyncio.to_thread(_describe_failure, result, scratch, reading)
            raise _build_error(reading.trail, said, "Fix it.")
        return result.output


def find_kustomize(given: str | None) -> Program:
    """Find the given program, or Kustomize or kubectl on PATH."""
    return find_program(given, ("kustomize", "kubectl"), hint=_INSTALL_HINT)


def parse_output(output: bytes, reading: LoadedLayers) -> list[Manifest]:
    """Make manifests of what Kustomize printed, each with the place that declares it.

    Documents are read one by one, so that each has the limits of a file to itself.
    """
    origins = _OriginFinder(reading)
    manifests: list[Manifest] = []
    for text in _split_documents(output):
        for document in read_documents(text, source=f"{reading.trail.entry.file} (rendered)"):
            if not isinstance(document.value, dict):
                raise refusal(document.where(), "Kustomize gave no object.", "Fix it.")
            value, origin = _strip_origin(document.value, keep=origins.keep)
            for manifest in expand_list(Manifest(value=value, file="")):
                manifests.append(origins.placed(manifest.value, origin))
        if len(manifests) > MAX_OBJECTS:
            break  # refused, with its place, where all are counted
    return manifests


class _OriginFinder:
    """Finds the place of each object from what Kustomize says about it."""

    def __init__(self, reading: LoadedLayers) -> None:
        self._reading = reading
        self._trail = reading.trail
        self._directory = PurePosixPath(reading.trail.entry.file).parent
        self._held: dict[str, SourceObjects] = {}
        asked = reading.trail.entry.body.get("buildMetadata")
        self.keep = isinstance(asked, list) and _ORIGIN_ANNOTATIONS in asked
        """True when the repository itself asks for the annotation."""

    def placed(self, value: Fields, origin: str) -> Manifest:
        encrypted = is_encrypted(value)
        said = _parse_origin(origin)
        layer = self._layer(said.get("configuredIn", ""))
        if layer is not None:
            return replace(trace_generated_fields(value, layer, self._trail), encrypted=encrypted)
        file = self._from_root(said.get("path", ""))
        base = self._bases(file).of(value)
        if base is None:
            return Manifest(value=value, file=file, encrypted=encrypted)
        return replace(trace_fields(value, base, self._trail), encrypted=encrypted)

    def _layer(self, path: str) -> KustomizeLayer | None:
        file = self._from_root(path)
        return next((layer for layer in self._trail.layers if layer.file == file), None)

    def _from_root(self, path: str) -> str:
        if not path:
            return ""
        return os.path.normpath(str(self._directory / path))

    def _bases(self, file: str) -> SourceObjects:
        if file not in self._held:
            # What Kustomize reads and our reader refuses is refused: one reading counts.
            data = self._reading.contents.get(file)
            manifests = parse_manifests(data, file) if data is not None else []
            self._held[file] = SourceObjects(manifests, file, self._trail)
        return self._held[file]


def _write_files(reading: LoadedLayers, root: Path) -> None:
    """Copy the files that were read. Kustomizations are written from what was read in them."""
    for file, data in {**reading.contents, **reading.rewritten}.items():
        _write_file(root / file, data)
    for layer in reading.trail.layers:
        body = dict(layer.body)
        if layer is reading.trail.entry:
            asked = body.get("buildMetadata")
            known = asked if isinstance(asked, list) else []
            body["buildMetadata"] = [
                *(each for each in known if each != _ORIGIN_ANNOTATIONS),
                _ORIGIN_ANNOTATIONS,
            ]
        _write_file(root / layer.file, json.dumps(body, ensure_ascii=False).encode())


def _write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _split_documents(output: bytes) -> Iterator[bytes]:
    """Split what Kustomize prints. A line of three dashes is never inside its documents."""
    held: list[bytes] = []
    for line in output.splitlines(keepends=True):
        if line.rstrip() == b"---":
            yield b"".join(held)
            held = []
        else:
            held.append(line)
    yield b"".join(held)


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


def _describe_failure(result: ProgramResult, scratch: str, reading: LoadedLayers) -> str:
    if result.code < 0:
        return f"was ended by signal {-result.code}"
    text = result.stderr.replace(f"{scratch}/files/", "").replace(scratch, "")
    shown = make_secret_mask(reading).hide(text)
    return f"failed: {shown}" if shown else f"failed with status {result.code} and said nothing"


def _build_error(trail: LayerStack, how: str, hint: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"Kustomize {how.rstrip('. ')}, so what {trail.entry.file} declares is unknown.",
        hint=hint,
    )
