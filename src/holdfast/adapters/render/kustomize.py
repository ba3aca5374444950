"""Kustomize, run as a program on a private copy of exactly the files that were checked.

The copy is made because the export is not ours to change, and because nothing can then stand
between the check and the use. Kustomizations are written anew from what was read, so that
Kustomize cannot read something else; the entry is asked to say where each object comes from.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.render.layers import LoadedLayers
from holdfast.adapters.render.manifests import is_json
from holdfast.adapters.render.origins import ORIGIN_ANNOTATIONS
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
from holdfast.core.tree import Tree
from holdfast.reconcile.gitops.ports import SourceUnavailable
from holdfast.wire.yaml import read_documents

_MAX_SHOWN = 300
_MIN_LENGTH = 3


def _hide_secrets(text: str, loaded: LoadedLayers) -> str:
    """Return the last line of a complaint: one line of ASCII without any secret."""
    for value in sorted(_clear_secrets(loaded), key=len, reverse=True):
        for form in (value, repr(value)[1:-1], value.replace("\n", "\\n")):
            text = text.replace(form, MASK)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return ascii(redact(lines[-1]) if lines else "")[1:-1][:_MAX_SHOWN]


def _clear_secrets(loaded: LoadedLayers) -> set[str]:
    """Collect what Secrets, their patches and their generators say in clear."""
    found: set[str] = set()
    for layer in loaded.stack.layers:
        found.update(_layer_secrets(layer, loaded.contents))
    for file, data in loaded.contents.items():
        try:
            documents = read_documents(data, source=file, json=is_json(file))
        except ValidationError:
            found.update(_possible_values(data))
            continue
        for document in documents:
            found.update(_document_secrets(document.value))
    return {value for value in found if len(value) >= _MIN_LENGTH}


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

    async def build(self, loaded: LoadedLayers) -> bytes:
        """Return what Kustomize prints. Raises SourceUnavailable when it fails."""
        with tempfile.TemporaryDirectory(prefix="holdfast-render-", dir=self.scratch) as scratch:
            root = Path(scratch) / "files"
            home = Path(scratch) / "home"
            home.mkdir()
            await asyncio.to_thread(_write_files, loaded, root)
            entry = (root / loaded.stack.entry.file).parent
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
                raise _build_error(loaded.stack, f"{over}", "Make it smaller.") from None
            except OSError as error:
                raise _build_error(
                    loaded.stack, f"could not be started: {error.strerror}", _INSTALL_HINT
                ) from None
        if result.code:
            failure = await asyncio.to_thread(_describe_failure, result, scratch, loaded)
            raise _build_error(loaded.stack, failure, "Fix it.")
        return result.output


def find_kustomize(given: str | None) -> Program:
    """Find the given program, or Kustomize or kubectl on PATH."""
    return find_program(given, ("kustomize", "kubectl"), hint=_INSTALL_HINT)


def _write_files(loaded: LoadedLayers, root: Path) -> None:
    """Copy the files that were read. Kustomizations are written from what was read in them."""
    for file, data in {**loaded.contents, **loaded.rewritten}.items():
        _write_file(root / file, data)
    for layer in loaded.stack.layers:
        body = dict(layer.body)
        if layer is loaded.stack.entry:
            asked = body.get("buildMetadata")
            known = asked if isinstance(asked, list) else []
            body["buildMetadata"] = [
                *(each for each in known if each != ORIGIN_ANNOTATIONS),
                ORIGIN_ANNOTATIONS,
            ]
        _write_file(root / layer.file, json.dumps(body, ensure_ascii=False).encode())


def _write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _describe_failure(result: ProgramResult, scratch: str, loaded: LoadedLayers) -> str:
    if result.code < 0:
        return f"was ended by signal {-result.code}"
    text = result.stderr.replace(f"{scratch}/files/", "").replace(scratch, "")
    shown = _hide_secrets(text, loaded)
    return f"failed: {shown}" if shown else f"failed with status {result.code} and said nothing"


def _build_error(stack: LayerStack, how: str, hint: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"Kustomize {how.rstrip('. ')}, so what {stack.entry.file} declares is unknown.", hint=hint
    )
