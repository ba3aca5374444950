"""Secrets: which controller made one, keyed fingerprints of what is in it, and edits of made ones.

A SealedSecret or an ExternalSecret is declared; the Secret is its controller's work, and few
controllers revert an edit of it. So fingerprints of what was made are kept, and compared by the
observer. `owners` asks who made a Secret, so that it is no orphan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from holdfast.core.diff import Change
from holdfast.core.drift import Cause, DriftKind, cause_of
from holdfast.core.live import Writer
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import OBJECT_RULES, canonical_object, value_at
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.managed_fields import ownership_of
from holdfast.core.ownership.signals import FieldDrift, Signal
from holdfast.core.tree import Fields, Path, Tree


class SecretMaker(StrEnum):
    """What made a Secret."""

    SEALED_SECRETS = "sealed-secrets"
    EXTERNAL_SECRETS = "external-secrets"
    VAULT = "vault"
    CERT_MANAGER = "cert-manager"
    SERVICE_ACCOUNT = "service-account"
    HELM = "helm"
    """The record that Helm keeps of a release."""


_MAKER_OWNERS: Mapping[tuple[str, str], SecretMaker] = {
    ("bitnami.com", "SealedSecret"): SecretMaker.SEALED_SECRETS,
    ("external-secrets.io", "ExternalSecret"): SecretMaker.EXTERNAL_SECRETS,
    ("cert-manager.io", "Certificate"): SecretMaker.CERT_MANAGER,
    ("secrets.hashicorp.com", "VaultStaticSecret"): SecretMaker.VAULT,
    ("secrets.hashicorp.com", "VaultDynamicSecret"): SecretMaker.VAULT,
    ("secrets.hashicorp.com", "VaultPKISecret"): SecretMaker.VAULT,
}
_MAKER_LABELS: tuple[tuple[str, str, str, SecretMaker], ...] = (
    ("annotations", "sealedsecrets.bitnami.com/managed", "true", SecretMaker.SEALED_SECRETS),
    ("labels", "reconcile.external-secrets.io/managed", "true", SecretMaker.EXTERNAL_SECRETS),
    ("annotations", "reconcile.external-secrets.io/data-hash", "", SecretMaker.EXTERNAL_SECRETS),
    ("labels", "secrets.hashicorp.com/vso-ownerRefUID", "", SecretMaker.VAULT),
    ("annotations", "cert-manager.io/certificate-name", "", SecretMaker.CERT_MANAGER),
    ("annotations", "cert-manager.io/issuer-name", "", SecretMaker.CERT_MANAGER),
)
"""Where, name, value (any when empty): for Secrets without an owner reference."""
_MAKER_TYPES = {
    "kubernetes.io/service-account-token": SecretMaker.SERVICE_ACCOUNT,
    "bootstrap.kubernetes.io/token": SecretMaker.SERVICE_ACCOUNT,
    "helm.sh/release.v1": SecretMaker.HELM,
}


def made_by(item: Fields) -> SecretMaker | None:
    """Say what made a live Secret; None for one that somebody wrote, and for any other kind."""
    if item.get("kind") != "Secret":
        return None
    known = _MAKER_TYPES.get(str(item.get("type")))
    if known is not None:
        return known
    metadata = _mapping(item.get("metadata"))
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        group = str(_mapping(owner).get("apiVersion")).rpartition("/")[0]
        maker = _MAKER_OWNERS.get((group, str(_mapping(owner).get("kind"))))
        if maker is not None:
            return maker
    for part, name, wanted, maker in _MAKER_LABELS:
        value = _mapping(metadata.get(part)).get(name)
        if value is not None and wanted in ("", value):
            return maker
    return None


def data_fingerprints(item: Fields, key: bytes) -> Mapping[str, str]:
    """Return a keyed mark for each key of a Secret: equal for equal values, and useless without
    the key. They are the marks that a verdict compares and shows."""
    form = canonical_object(
        {"kind": "Secret", "data": item.get("data"), "stringData": item.get("stringData")},
        OBJECT_RULES,
        key=key,
    )
    return {name: str(mark) for name, mark in _mapping(form.get("data")).items()}


def _mapping(value: Tree) -> Mapping[str, Tree]:
    return value if isinstance(value, dict) else {}


_SECRET_NAME_PATHS: Mapping[tuple[str, str], tuple[Path, ...]] = {
    ("bitnami.com", "SealedSecret"): (("spec", "template", "metadata", "name"),),
    ("external-secrets.io", "ExternalSecret"): (
        ("spec", "target", "template", "metadata", "name"),
        ("spec", "target", "name"),
    ),
}
"""Kinds that make Secrets, and where they say how one is called, if not like themselves."""
_GENERATION_KEY = " made for"
"""The mark beside the others that says for which version of the declaration they were taken. The
space keeps it apart: no key of a Secret has one."""
_MAKER_PREFIXES = (
    "controller",
    "sealed-secrets",
    "externalsecrets",
    "external-secrets",
    "vault-secrets",
)
"""How the controllers that make Secrets call themselves as field managers, by their beginning."""


def made_secret(item: Fields, ref: ObjectRef) -> ObjectRef | None:
    """Name the Secret that is made of a declared object; None for kinds that make none."""
    paths = _SECRET_NAME_PATHS.get((ref.group, ref.kind))
    if paths is None:
        return None
    named = next((str(name) for path in paths if (name := value_at(item, path))), ref.name)
    return ObjectRef(api_version="v1", kind="Secret", namespace=ref.namespace, name=named)


def fingerprints_to_keep(
    maker: Fields, secret: Fields, known: Mapping[str, str], key: bytes
) -> dict[str, str]:
    """Return the marks to keep: those of what the controller itself made last."""
    generation = str(value_at(maker, ("metadata", "generation")) or "")
    if known and known.get(_GENERATION_KEY) == generation and not _is_by_maker(secret):
        return dict(known)
    return {**data_fingerprints(secret, key), _GENERATION_KEY: generation}


def find_secret_edits(secret: Fields, known: Mapping[str, str], key: bytes) -> Iterator[FieldDrift]:
    """Tell of every key of a made Secret that somebody changed, added or removed."""
    marks = data_fingerprints(secret, key)
    before = {name: mark for name, mark in known.items() if name != _GENERATION_KEY}
    for name in sorted({*marks, *before}):
        if marks.get(name) == before.get(name):
            continue
        writer = _foreign_writer(secret, name)
        yield FieldDrift(
            change=Change(path=("data", name), desired=before.get(name), live=marks.get(name)),
            kind=DriftKind.SECRET,
            signal=Signal.RUNNING,
            field_class=FieldClass.OWNED,
            evidence="the Secret that was made of it is not as its controller made it",
            writer=writer,
            cause=cause_of(writer) if writer else Cause.UNKNOWN,
        )


def _is_by_maker(secret: Fields) -> bool:
    """True when every writer of the data is a controller that makes Secrets."""
    entries = ownership_of(secret).entries
    writers = [e.manager for e in entries if any(path[0] == "data" for path in e.paths)]
    return bool(writers) and all(name.startswith(_MAKER_PREFIXES) for name in writers)


def _foreign_writer(secret: Fields, name: str) -> Writer | None:
    entries = ownership_of(secret).entries
    found = [entry for entry in entries if entry.owns(("data", name))]
    strangers = [entry for entry in found if not entry.manager.startswith(_MAKER_PREFIXES)]
    return strangers[-1].writer if strangers else None
