"""Makes declared objects of what was read: checked, each once, as they can be applied.

What a server writes is dropped, as people commit what `kubectl get -o yaml` and code generators
print: the status, the server's own metadata, and kubectl's copy of what it applied last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from holdfast.adapters.render.limits import MAX_OBJECTS, MAX_PROBLEMS
from holdfast.adapters.render.paths import refused
from holdfast.adapters.render.pieces import Piece, Problems
from holdfast.adapters.render.scopes import Scopes
from holdfast.adapters.render.secrets import data_in_clear, is_secret
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.source import Declared, Origin
from holdfast.core.objects import ObjectRef, ref_of
from holdfast.core.redact import quoted
from holdfast.core.tree import Fields, Tree

SERVER_METADATA = (
    "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation",
    "managedFields", "resourceVersion", "selfLink", "uid",
)  # fmt: skip
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_API_VERSION = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[a-z0-9]+")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
_NAME = re.compile(r"(?!\.{1,2}$)[^/%\s\x00-\x1f\x7f]{1,253}")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def declare(
    pieces: Sequence[Piece], *, namespace: str, scopes: Callable[[Sequence[Fields]], Scopes]
) -> tuple[Declared, ...]:
    """Check every piece and give each its namespace.

    Raises ValidationError with everything that is wrong, by file and line.
    """
    if len(pieces) > MAX_OBJECTS:
        raise refused(
            pieces[MAX_OBJECTS].where(),
            f"with it there are over {MAX_OBJECTS:,} objects.",
            "Declare fewer objects in one Application.",
        )
    problems = Problems()
    good = [piece for piece in pieces if _named(piece, problems)]
    known = scopes([piece.value for piece in good])
    first: dict[tuple[str, str, str, str], Piece] = {}
    objects: list[Declared] = []
    for piece in good:
        item = _cleaned(piece, problems)
        _place(item, namespace, known)
        ref = ref_of(item)
        identity = (ref.group, ref.kind, ref.namespace, ref.name)
        if identity in first:
            problems.add(
                piece.where(),
                f"{ref} is declared already at {first[identity].where()}.",
                "Keep one of the two.",
            )
        first.setdefault(identity, piece)
        objects.append(_declared(ref, item, piece))
    if problems.found:
        count = len(problems.found)
        raise ValidationError(
            f"{count} {'problem' if count == 1 else 'problems'} found in the repository's files.",
            problems=problems.told(MAX_PROBLEMS),
        )
    return tuple(objects)


def _named(piece: Piece, problems: Problems) -> bool:
    """Check what makes a document an object: its API version, kind and name."""
    before = len(problems.found)
    value = piece.value
    for key, form in (("apiVersion", _API_VERSION), ("kind", _KIND)):
        text = value.get(key)
        if not isinstance(text, str) or not form.fullmatch(text):
            problems.add(
                piece.where(f"/{key}"),
                f"it has no usable {key}, so it is not a Kubernetes object.",
                "Set it, or keep other YAML out of this directory.",
            )
            return False
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        problems.add(piece.where(), f"this {value['kind']} has no metadata.", "Give it a name.")
        return False
    name = metadata.get("name")
    if metadata.get("generateName") is not None:
        problems.add(
            piece.where("/metadata/generateName"),
            f"this {value['kind']} gets another name each time it is created.",
            "Use metadata.name in place of generateName.",
        )
    elif not isinstance(name, str) or not _NAME.fullmatch(name):
        what = "has no name" if name is None else "has a name that cannot be used"
        problems.add(
            piece.where("/metadata/name"),
            f"this {value['kind']} {what}.",
            "Set metadata.name to a text without slashes, quoted if it looks like a number.",
        )
    place = metadata.get("namespace")
    if place is not None and not (isinstance(place, str) and _NAMESPACE.fullmatch(place)):
        problems.add(
            piece.where("/metadata/namespace"),
            f"the namespace of this {value['kind']} is none.",
            "Use lower-case letters, digits and dashes.",
        )
    for key in ("labels", "annotations"):
        _check_texts(piece, key, metadata.get(key), problems)
    return len(problems.found) == before


def _check_texts(piece: Piece, key: str, pairs: Tree, problems: Problems) -> None:
    at = f"/metadata/{key}"
    if pairs is None:
        return
    if not isinstance(pairs, dict):
        problems.add(piece.where(at), f"its {key} are not a mapping.", "Write name: value pairs.")
        return
    for name, text in pairs.items():
        if not isinstance(text, str):
            inner = name.replace("~", "~0").replace("/", "~1")
            problems.add(
                piece.where(f"{at}/{inner}"),
                f"the value of {quoted(name)} in its {key} is not text.",
                "Quote it.",
            )


def _cleaned(piece: Piece, problems: Problems) -> Fields:
    """Copy an object without what a server writes, Secrets in the one form that servers give."""
    item = {key: value for key, value in piece.value.items() if key not in ("status", "sops")}
    if "sops" in piece.value and not piece.encrypted:
        item["sops"] = piece.value["sops"]  # some kind's own field
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # checked by _named
    metadata = {key: value for key, value in metadata.items() if key not in SERVER_METADATA}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        metadata["annotations"] = {k: v for k, v in annotations.items() if k != LAST_APPLIED}
    for key in ("annotations", "labels"):
        if key in metadata and not metadata[key]:
            del metadata[key]
    item["metadata"] = metadata
    return data_in_clear(item, piece, problems) if is_secret(item) else item


def _place(item: Fields, namespace: str, scopes: Scopes) -> None:
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # checked by _named
    if not scopes.namespaced(ref_of(item)):
        metadata.pop("namespace", None)  # as API servers do
    elif not metadata.get("namespace") and namespace:
        metadata["namespace"] = namespace


def _declared(ref: ObjectRef, item: Fields, piece: Piece) -> Declared:
    lines, elsewhere = piece.lines, piece.elsewhere
    if is_secret(item):
        lines, elsewhere = dict(lines), dict(elsewhere)
        for pointer, line in piece.lines.items():
            if pointer.startswith("/stringData"):
                lines["/data" + pointer.removeprefix("/stringData")] = line
        for pointer, place in piece.elsewhere.items():
            if pointer.startswith("/stringData"):
                elsewhere["/data" + pointer.removeprefix("/stringData")] = place
    origin = Origin(file=piece.file, document=piece.document, lines=lines, elsewhere=elsewhere)
    return Declared(ref=ref, item=item, origin=origin, encrypted=piece.encrypted)
