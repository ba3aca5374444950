"""Kustomize, run as a program on a private copy of exactly the files that were checked.

The copy is made because the export is not ours to change, and because nothing can then stand
between the check and the use. Kustomizations are written anew from what was read, so that
Kustomize cannot read something else; the entry is asked to say where each object comes from.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from holdfast.adapters.render.layers import Reading
from holdfast.adapters.render.limits import MAX_OBJECTS
from holdfast.adapters.render.masking import masks_of
from holdfast.adapters.render.paths import refused
from holdfast.adapters.render.pieces import Piece, expanded, pieces_in
from holdfast.adapters.render.program import Overran, Program, Ran, find_program, run
from holdfast.adapters.render.secrets import is_encrypted
from holdfast.adapters.render.trace import Bases, trace, trace_generated
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.layers import Layer, Trail
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import SourceUnavailable
from holdfast.wire.yaml import read_documents

ORIGIN = "config.kubernetes.io/origin"
_ASKED = "originAnnotations"
_INSTALL = "Install kustomize, or kubectl, which has it inside; or give the path of one."
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

    async def build(self, reading: Reading) -> bytes:
        """Return what Kustomize prints. Raises SourceUnavailable when it fails."""
        with tempfile.TemporaryDirectory(prefix="holdfast-render-", dir=self.scratch) as scratch:
            root = Path(scratch) / "files"
            home = Path(scratch) / "home"
            home.mkdir()
            await asyncio.to_thread(_write, reading, root)
            entry = (root / reading.trail.entry.file).parent
            verb = "kustomize" if Path(self.program.path).name.startswith("kubectl") else "build"
            try:
                ran = await run(
                    self.program,
                    [verb, _RESTRICT, "--", str(entry)],
                    directory=home,
                    seconds=self.seconds,
                    unconfined=self.unconfined,
                )
            except Overran as over:
                raise _failed(reading.trail, f"{over}", "Make it smaller.") from None
            except OSError as error:
                raise _failed(
                    reading.trail, f"could not be started: {error.strerror}", _INSTALL
                ) from None
        if ran.code:
            said = await asyncio.to_thread(_said, ran, scratch, reading)
            raise _failed(reading.trail, said, "Fix it.")
        return ran.output


def find_kustomize(given: str | None) -> Program:
    """Find the given program, or Kustomize or kubectl on PATH."""
    return find_program(given, ("kustomize", "kubectl"), todo=_INSTALL)


def read_output(output: bytes, reading: Reading) -> list[Piece]:
    """Make pieces of what Kustomize printed, each with the place that declares it.

    Documents are read one by one, so that each has the limits of a file to itself.
    """
    origins = _Origins(reading)
    pieces: list[Piece] = []
    for text in _documents(output):
        for document in read_documents(text, source=f"{reading.trail.entry.file} (rendered)"):
            if not isinstance(document.value, dict):
                raise refused(document.where(), "Kustomize gave no object.", "Fix it.")
            value, origin = _without_origin(document.value, keep=origins.keep)
            for piece in expanded(Piece(value=value, file="")):
                pieces.append(origins.placed(piece.value, origin))
        if len(pieces) > MAX_OBJECTS:
            break  # refused, with its place, where all are counted
    return pieces


class _Origins:
    """Finds the place of each object from what Kustomize says about it."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._trail = reading.trail
        self._directory = PurePosixPath(reading.trail.entry.file).parent
        self._held: dict[str, Bases] = {}
        asked = reading.trail.entry.body.get("buildMetadata")
        self.keep = isinstance(asked, list) and _ASKED in asked
        """True when the repository itself asks for the annotation."""

    def placed(self, value: Fields, origin: str) -> Piece:
        encrypted = is_encrypted(value)
        said = _fields(origin)
        layer = self._layer(said.get("configuredIn", ""))
        if layer is not None:
            return replace(trace_generated(value, layer, self._trail), encrypted=encrypted)
        file = self._from_root(said.get("path", ""))
        base = self._bases(file).of(value)
        if base is None:
            return Piece(value=value, file=file, encrypted=encrypted)
        return replace(trace(value, base, self._trail), encrypted=encrypted)

    def _layer(self, path: str) -> Layer | None:
        file = self._from_root(path)
        return next((layer for layer in self._trail.layers if layer.file == file), None)

    def _from_root(self, path: str) -> str:
        if not path:
            return ""
        return os.path.normpath(str(self._directory / path))

    def _bases(self, file: str) -> Bases:
        if file not in self._held:
            # What Kustomize reads and our reader refuses is refused: one reading counts.
            data = self._reading.contents.get(file)
            pieces = pieces_in(data, file) if data is not None else []
            self._held[file] = Bases(pieces, file, self._trail)
        return self._held[file]


def _write(reading: Reading, root: Path) -> None:
    """Copy the files that were read. Kustomizations are written from what was read in them."""
    for file, data in {**reading.contents, **reading.rewritten}.items():
        _put(root / file, data)
    for layer in reading.trail.layers:
        body = dict(layer.body)
        if layer is reading.trail.entry:
            asked = body.get("buildMetadata")
            known = asked if isinstance(asked, list) else []
            body["buildMetadata"] = [*(each for each in known if each != _ASKED), _ASKED]
        _put(root / layer.file, json.dumps(body, ensure_ascii=False).encode())


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _documents(output: bytes) -> Iterator[bytes]:
    """Split what Kustomize prints. A line of three dashes is never inside its documents."""
    held: list[bytes] = []
    for line in output.splitlines(keepends=True):
        if line.rstrip() == b"---":
            yield b"".join(held)
            held = []
        else:
            held.append(line)
    yield b"".join(held)


def _without_origin(value: Fields, *, keep: bool) -> tuple[Fields, str]:
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


def _fields(origin: str) -> dict[str, str]:
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


def _said(ran: Ran, scratch: str, reading: Reading) -> str:
    if ran.code < 0:
        return f"was ended by signal {-ran.code}"
    text = ran.complaint.replace(f"{scratch}/files/", "").replace(scratch, "")
    shown = masks_of(reading).hide(text)
    return f"failed: {shown}" if shown else f"failed with status {ran.code} and said nothing"


def _failed(trail: Trail, how: str, todo: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"Kustomize {how.rstrip('. ')}, so what {trail.entry.file} declares is unknown.",
        todo=todo,
    )
