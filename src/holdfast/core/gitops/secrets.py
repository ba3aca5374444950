"""Who made a Secret that nobody declared as such, and keyed marks of what is in it.

`orphans` asks the one, so that what a controller made is no orphan; `generated` compares the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from holdfast.core.ownership.objects import OBJECT_RULES, canonical_object
from holdfast.core.tree import Fields, Tree


class SecretMaker(StrEnum):
    """What made a Secret."""

    SEALED_SECRETS = "sealed-secrets"
    EXTERNAL_SECRETS = "external-secrets"
    VAULT = "vault"
    CERT_MANAGER = "cert-manager"
    SERVICE_ACCOUNT = "service-account"
    HELM = "helm"
    """The record that Helm keeps of a release."""


_OWNERS: Mapping[tuple[str, str], SecretMaker] = {
    ("bitnami.com", "SealedSecret"): SecretMaker.SEALED_SECRETS,
    ("external-secrets.io", "ExternalSecret"): SecretMaker.EXTERNAL_SECRETS,
    ("cert-manager.io", "Certificate"): SecretMaker.CERT_MANAGER,
    ("secrets.hashicorp.com", "VaultStaticSecret"): SecretMaker.VAULT,
    ("secrets.hashicorp.com", "VaultDynamicSecret"): SecretMaker.VAULT,
    ("secrets.hashicorp.com", "VaultPKISecret"): SecretMaker.VAULT,
}
_MARKS: tuple[tuple[str, str, str, SecretMaker], ...] = (
    ("annotations", "sealedsecrets.bitnami.com/managed", "true", SecretMaker.SEALED_SECRETS),
    ("labels", "reconcile.external-secrets.io/managed", "true", SecretMaker.EXTERNAL_SECRETS),
    ("annotations", "reconcile.external-secrets.io/data-hash", "", SecretMaker.EXTERNAL_SECRETS),
    ("labels", "secrets.hashicorp.com/vso-ownerRefUID", "", SecretMaker.VAULT),
    ("annotations", "cert-manager.io/certificate-name", "", SecretMaker.CERT_MANAGER),
    ("annotations", "cert-manager.io/issuer-name", "", SecretMaker.CERT_MANAGER),
)
"""Where, name, value (any when empty): for Secrets without an owner reference."""
_TYPES = {
    "kubernetes.io/service-account-token": SecretMaker.SERVICE_ACCOUNT,
    "bootstrap.kubernetes.io/token": SecretMaker.SERVICE_ACCOUNT,
    "helm.sh/release.v1": SecretMaker.HELM,
}


def made_by(item: Fields) -> SecretMaker | None:
    """Say what made a live Secret; None for one that somebody wrote, and for any other kind."""
    if item.get("kind") != "Secret":
        return None
    known = _TYPES.get(str(item.get("type")))
    if known is not None:
        return known
    metadata = _mapping(item.get("metadata"))
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        group = str(_mapping(owner).get("apiVersion")).rpartition("/")[0]
        maker = _OWNERS.get((group, str(_mapping(owner).get("kind"))))
        if maker is not None:
            return maker
    for part, name, wanted, maker in _MARKS:
        value = _mapping(metadata.get(part)).get(name)
        if value is not None and wanted in ("", value):
            return maker
    return None


def data_marks(item: Fields, key: bytes) -> Mapping[str, str]:
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
