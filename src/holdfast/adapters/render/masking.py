"""Hides secrets of a repository's own files in what a renderer complains about.

Kustomize quotes patches and documents when it cannot use them. What stands in clear in a
repository must still not reach a log or a status.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.adapters.render.layers import Reading
from holdfast.adapters.render.pieces import is_json
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.layers import GeneratorKind, Layer
from holdfast.core.redact import MASK, redact
from holdfast.core.tree import Tree
from holdfast.wire.yaml import read_documents

_SHOWN = 300
_SHORTEST = 3


@dataclass(frozen=True, slots=True)
class Masks:
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
        return ascii(shown)[1:-1][:_SHOWN]


def masks_of(reading: Reading) -> Masks:
    """Collect what Secrets, their patches and their generators say in clear."""
    found: set[str] = set()
    for layer in reading.trail.layers:
        found.update(_of_layer(layer, reading.contents))
    for file, data in reading.contents.items():
        try:
            documents = read_documents(data, source=file, json=is_json(file))
        except ValidationError:
            found.update(_words(data))
            continue
        for document in documents:
            found.update(_of_secrets(document.value))
    return Masks(frozenset(value for value in found if len(value) >= _SHORTEST))


def _of_layer(layer: Layer, contents: dict[str, bytes]) -> Iterator[str]:
    entries = layer.body.get("secretGenerator")
    for entry in entries if isinstance(entries, list) else []:
        literals = entry.get("literals") if isinstance(entry, dict) else None
        for literal in literals if isinstance(literals, list) else []:
            yield from _forms(str(literal).partition("=")[2])
    for generator in layer.generators:
        if generator.kind is GeneratorKind.SECRET:
            for each in (*generator.files, *generator.envs):
                yield from _words(contents.get(each.path, b""))
    for patch in layer.patches:
        # A patch with a target need not say what kind it is for.
        body = patch.body
        parts = [body.get("data"), body.get("stringData")] if isinstance(body, dict) else body
        for text in _leaves(parts):
            yield from _forms(text)


def _of_secrets(value: Tree) -> Iterator[str]:
    """Yield what stands under data and stringData of every Secret in a document."""
    if isinstance(value, dict):
        if value.get("kind") == "Secret":
            for key in ("data", "stringData"):
                for text in _leaves(value.get(key)):
                    yield from _forms(text)
        else:
            for inner in value.values():
                yield from _of_secrets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _of_secrets(inner)


def _leaves(value: Tree) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, str):
        yield value


def _forms(text: str) -> Iterator[str]:
    yield text
    yield base64.b64encode(text.encode()).decode()
    try:
        yield base64.b64decode(text, validate=True).decode()
    except ValueError:
        return


def _words(data: bytes) -> Iterator[str]:
    """Yield all that could be a value in a file of unknown form."""
    text = data.decode(errors="replace")
    yield text
    for line in text.splitlines():
        yield from _forms(line.partition("=")[2] or line)
        yield from re.split(r"[\s=:\"',]+", line)
