"""Plain YAML and JSON: every manifest below a directory, or one file.

One rule says which files count: names that end in `.yaml`, `.yml` or `.json`, in lower case, in
the directory and all below it; names that begin with a dot are skipped, files and directories
alike. They are read in the order of their paths. Every document in them is an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from holdfast.adapters.render.limits import MAX_DEPTH, MAX_PROBLEMS
from holdfast.adapters.render.paths import Files, Found, Parts, refused, text_of
from holdfast.adapters.render.pieces import Piece, pieces_in
from holdfast.adapters.render.secrets import is_encrypted
from holdfast.core.errors import Problem, ValidationError

SUFFIXES = (".yaml", ".yml", ".json")
KUSTOMIZATION_NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")


def manifests(files: Files, parts: Parts) -> Iterator[Parts]:
    """Yield the files that count. Raises FileNotFoundError when nothing is at the path."""
    found = files.find(parts)
    if found is None:
        raise FileNotFoundError(text_of(parts))
    if found is Found.FILE:
        if not parts[-1].endswith(SUFFIXES):
            raise refused(
                text_of(parts),
                "it is not a .yaml, .yml or .json file.",
                "Name one, or a directory.",
            )
        yield parts
        return
    yield from sorted(_below(files, parts, depth=0))


def read_plain(
    files: Files, parts: Parts, read: Callable[[bytes, str], list[Piece]] = pieces_in
) -> tuple[list[Piece], dict[str, bytes]]:
    """Return the objects that a path declares, and the text of each file with encrypted ones.

    `read` reads the objects of one file.
    """
    pieces: list[Piece] = []
    sealed: dict[str, bytes] = {}
    problems: list[Problem] = []
    for manifest in manifests(files, parts):
        file = text_of(manifest)
        data = files.read(manifest)
        try:
            found = read(data, file)
        except ValidationError as error:
            problems.extend(error.problems)
            continue
        if any(is_encrypted(piece.value) for piece in found):
            _check_alone(found, file)
            sealed[file] = data
            found = [replace(piece, encrypted=True) for piece in found]
        pieces.extend(found)
    if problems:
        raise ValidationError(
            "The repository's files cannot be read.", problems=problems[:MAX_PROBLEMS]
        )
    return pieces, sealed


def _below(files: Files, parts: Parts, *, depth: int) -> Iterator[Parts]:
    if depth > MAX_DEPTH:
        raise refused(text_of(parts), f"it is over {MAX_DEPTH} folders deep.", "Flatten it.")
    for name, kind in files.names(parts):
        if kind is Found.DIRECTORY:
            yield from _below(files, (*parts, name), depth=depth + 1)
        elif name in KUSTOMIZATION_NAMES:
            raise refused(
                text_of((*parts, name)),
                "it is a kustomization, and these files are read as plain YAML.",
                "Point an Application at its directory, or choose the renderer kustomize.",
            )
        elif name.endswith(SUFFIXES):
            yield (*parts, name)


def _check_alone(found: list[Piece], file: str) -> None:
    """A seal covers a whole file, so an encrypted object has one to itself."""
    if len(found) > 1:
        raise refused(
            found[1].where(),
            "it shares a file with an encrypted document.",
            f"Give each encrypted object a file of its own; {file} has {len(found)} objects.",
        )
