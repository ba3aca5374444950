"""A model that Git pins to a commit, while its branch has moved on to another.

Nothing live differs from Git by that. It counts as drift, which a pull request can bump the pin
for, only where an Application asks for it. The operator's own status is what says so: it asked the
hub, and this controller asks nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.core.diff import Change
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.model import DIGEST_PATTERN, is_commit
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.signals import FieldDrift, Signal
from holdfast.core.service.spec import API_VERSION, KIND
from holdfast.core.tree import Fields, Path, Tree

REVISION: Path = ("spec", "modelRevision")
DIGEST: Path = ("spec", "modelDigest")


def model_pins(item: Fields) -> dict[Path, str]:
    """Return what an InferenceService pins its model by, by the path that a finding has."""
    if not is_inference_service(item):
        return {}
    found = {path: value_at(item, path) for path in (REVISION, DIGEST)}
    return {path: value for path, value in found.items() if isinstance(value, str)}


def is_inference_service(item: Fields) -> bool:
    """True for an object of the operator's."""
    group = str(item.get("apiVersion")).partition("/")[0]
    return item.get("kind") == KIND and group == API_VERSION.partition("/")[0]


def model_head(live: Fields) -> tuple[str, str | None] | None:
    """Return the commit that the branch of a service's model is at, and the digest of its files.

    None unless the operator says that it moved on from what is served.
    """
    if not is_inference_service(live):
        return None
    conditions = value_at(live, ("status", "conditions"))
    if not any(
        isinstance(each, dict) and each.get("type") == "ModelMoved" and each.get("status") == "True"
        for each in (conditions if isinstance(conditions, list) else ())
    ):
        return None
    head = value_at(live, ("status", "model", "head"))
    if not isinstance(head, str) or not is_commit(head):
        return None
    digest = value_at(live, ("status", "model", "headDigest"))
    known = isinstance(digest, str) and re.fullmatch(DIGEST_PATTERN, digest) is not None
    return head, str(digest) if known else None


def model_findings(declared: Fields, live: Fields) -> Iterator[FieldDrift]:
    """Tell of a pinned model whose branch moved on. The status has to be about that very pin."""
    pins, moved = model_pins(declared), model_head(live)
    pin = pins.get(REVISION)
    model = value_at(live, ("status", "model"))
    if moved is None or pin is None or not is_commit(pin) or not isinstance(model, dict):
        return
    said = (model.get("ref"), model.get("revision"))
    if said != (value_at(declared, ("spec", "modelRef")), pin) or moved[0] == pin:
        return
    head, digest = moved
    evidence = f"{model.get('branch')} is at it, as the operator found; nothing that runs has it"
    yield _behind(REVISION, pin, head, evidence)
    if DIGEST in pins and digest is not None and digest != pins[DIGEST]:
        yield _behind(DIGEST, pins[DIGEST], digest, "of the files at that commit, as its hub lists")


def unknown_digest(declared: Fields, live: Fields) -> tuple[str, str]:
    """Say why the pin of a model cannot be bumped, and what to do; empty where it can be."""
    moved = model_head(live)
    if moved is None or moved[1] is not None or DIGEST not in model_pins(declared):
        return "", ""
    return (
        "modelDigest is pinned beside modelRevision, and the digest of the new files is not known "
        "before they are downloaded: a hub lists the SHA-256 of large files alone.",
        f"Run holdfast models download {value_at(declared, ('spec', 'modelRef'))} --revision "
        f"{moved[0]} --to a directory, and put that commit and the digest that it tells into the "
        "repository by hand.",
    )


def _behind(path: Path, pin: Tree, head: Tree, evidence: str) -> FieldDrift:
    return FieldDrift(
        change=Change(path=path, desired=pin, live=head),
        kind=DriftKind.MODEL,
        signal=Signal.RUNNING,
        field_class=FieldClass.OWNED,
        evidence=evidence,
        cause=Cause.UNKNOWN,
    )
