"""Secrets that a controller makes of a declared object, and edits of them that it does not notice.

A SealedSecret or an ExternalSecret is declared; the Secret is its controller's work, and few of
them put it back when somebody edits it. So keyed marks of what was made are kept, and compared
by the survey.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.core.diff import Change
from holdfast.core.drift import Cause, DriftKind, cause_of
from holdfast.core.gitops.secrets import data_marks
from holdfast.core.live import Writer
from holdfast.core.objects import ObjectRef
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.objects import at
from holdfast.core.ownership.owned import read_ownership
from holdfast.core.ownership.signals import Finding, Signal
from holdfast.core.tree import Fields, Path

_NAMES: Mapping[tuple[str, str], tuple[Path, ...]] = {
    ("bitnami.com", "SealedSecret"): (("spec", "template", "metadata", "name"),),
    ("external-secrets.io", "ExternalSecret"): (
        ("spec", "target", "template", "metadata", "name"),
        ("spec", "target", "name"),
    ),
}
"""Kinds that make Secrets, and where they say how one is called, if not like themselves."""
_MADE_FOR = " made for"
"""The mark beside the others that says for which version of the declaration they were taken. The
space keeps it apart: no key of a Secret has one."""
_MAKERS = ("controller", "sealed-secrets", "externalsecrets", "external-secrets", "vault-secrets")
"""How the controllers that make Secrets call themselves as field managers, by their beginning."""


def made_secret(item: Fields, ref: ObjectRef) -> ObjectRef | None:
    """Name the Secret that is made of a declared object; None for kinds that make none."""
    paths = _NAMES.get((ref.group, ref.kind))
    if paths is None:
        return None
    named = next((str(name) for path in paths if (name := at(item, path))), ref.name)
    return ObjectRef(api_version="v1", kind="Secret", namespace=ref.namespace, name=named)


def learned(maker: Fields, secret: Fields, known: Mapping[str, str], key: bytes) -> dict[str, str]:
    """Return the marks to keep: those of what the controller itself made last."""
    generation = str(at(maker, ("metadata", "generation")) or "")
    if known and known.get(_MADE_FOR) == generation and not _by_maker(secret):
        return dict(known)
    return {**data_marks(secret, key), _MADE_FOR: generation}


def edited(secret: Fields, known: Mapping[str, str], key: bytes) -> Iterator[Finding]:
    """Tell of every key of a made Secret that somebody changed, added or removed."""
    marks = data_marks(secret, key)
    before = {name: mark for name, mark in known.items() if name != _MADE_FOR}
    for name in sorted({*marks, *before}):
        if marks.get(name) == before.get(name):
            continue
        writer = _writer(secret, name)
        yield Finding(
            change=Change(path=("data", name), desired=before.get(name), live=marks.get(name)),
            kind=DriftKind.SECRET,
            signal=Signal.RUNNING,
            field_class=FieldClass.OWNED,
            evidence="the Secret that was made of it is not as its controller made it",
            writer=writer,
            cause=cause_of(writer) if writer else Cause.UNKNOWN,
        )


def _by_maker(secret: Fields) -> bool:
    """True when every writer of the data is a controller that makes Secrets."""
    entries = read_ownership(at(secret, ("metadata", "managedFields"))).entries
    writers = [e.manager for e in entries if any(path[0] == "data" for path in e.paths)]
    return bool(writers) and all(name.startswith(_MAKERS) for name in writers)


def _writer(secret: Fields, name: str) -> Writer | None:
    entries = read_ownership(at(secret, ("metadata", "managedFields"))).entries
    found = [entry for entry in entries if entry.owns(("data", name))]
    strangers = [entry for entry in found if not entry.manager.startswith(_MAKERS)]
    return strangers[-1].writer if strangers else None
