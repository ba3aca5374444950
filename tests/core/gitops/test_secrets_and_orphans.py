"""What made a Secret, the marks of its values, and what counts as left lying about."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.owners import ORPHAN_KINDS, is_orphan, object_keys
from holdfast.core.gitops.secrets import SecretMaker, data_fingerprints, made_by
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import OBJECT_RULES, canonical_object

SHOP = ApplicationId(namespace="gitops", name="shop")
KEY = b"a key of the tests"


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def item(kind: str = "ConfigMap", name: str = "x", **parts: Any) -> dict[str, Any]:
    more = {key: parts.pop(key) for key in ("type", "data", "stringData") if key in parts}
    kind, _, group = kind.partition(".")
    return {
        "apiVersion": f"{group}/v1" if group else "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop", **parts},
        **more,
    }


def owned(api_version: str, kind: str) -> dict[str, Any]:
    return {"ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": "x", "uid": "u"}]}


@pytest.mark.parametrize(
    ("parts", "maker"),
    [
        ({}, None),
        ({"type": "Opaque"}, None),
        (owned("bitnami.com/v1alpha1", "SealedSecret"), SecretMaker.SEALED_SECRETS),
        ({"annotations": {"sealedsecrets.bitnami.com/managed": "true"}},
         SecretMaker.SEALED_SECRETS),
        (owned("external-secrets.io/v1", "ExternalSecret"), SecretMaker.EXTERNAL_SECRETS),
        ({"labels": {"reconcile.external-secrets.io/managed": "true"}},
         SecretMaker.EXTERNAL_SECRETS),
        (owned("secrets.hashicorp.com/v1beta1", "VaultStaticSecret"), SecretMaker.VAULT),
        ({"annotations": {"cert-manager.io/certificate-name": "x"}}, SecretMaker.CERT_MANAGER),
        ({"type": "kubernetes.io/service-account-token"}, SecretMaker.SERVICE_ACCOUNT),
        ({"type": "helm.sh/release.v1"}, SecretMaker.HELM),
        (owned("apps/v1", "Deployment"), None),
        (owned("example.com/v1", "SealedSecret"), None),
    ],
)  # fmt: skip
def test_a_secret_was_made_by(parts: Any, maker: SecretMaker | None) -> None:
    assert made_by(item("Secret", **parts)) is maker
    assert made_by(item("ConfigMap", **{k: v for k, v in parts.items() if k != "type"})) is None


@given(values=st.dictionaries(st.text("abc", min_size=1), st.text(max_size=20), max_size=4))
def test_marks_are_those_of_a_verdict_and_show_nothing(values: dict[str, str]) -> None:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    marks = data_fingerprints(item("Secret", data=encoded), KEY)
    assert marks == canonical_object(
        item("Secret", data=encoded), OBJECT_RULES, key=KEY
    ).get("data", {})  # fmt: skip
    assert marks == data_fingerprints(item("Secret", stringData=values), KEY)
    assert set(marks) == set(values)
    for name, mark in marks.items():
        assert mark.startswith("hmac:")
        assert len(values[name]) < 4 or values[name] not in mark
        assert mark != data_fingerprints(item("Secret", data=encoded), b"another key")[name]


@pytest.mark.parametrize("kind", [kind for _, kind in ORPHAN_KINDS])
def test_what_nobody_declared_is_an_orphan(kind: str) -> None:
    assert is_orphan(item(kind), application=SHOP, known=())


@pytest.mark.parametrize(
    "found",
    [
        item(**owned("apps/v1", "Deployment")),
        item("ConfigMap", "kube-root-ca.crt"),
        item("ConfigMap", "istio-ca-root-cert"),
        item("ServiceAccount", "default"),
        item("Service", "kubernetes"),
        item("Event.events.k8s.io"),
        item("Lease.coordination.k8s.io"),
        item("EndpointSlice.discovery.k8s.io"),
        item("Endpoints"),
        item("ControllerRevision.apps"),
        item("ReplicaSet.apps", **owned("apps/v1", "Deployment")),
        item("Pod", **owned("apps/v1", "ReplicaSet")),
        item("Pod", annotations={"kubernetes.io/config.mirror": "x"}),
        item("Secret", type="helm.sh/release.v1"),
        item("Secret", type="kubernetes.io/service-account-token"),
        item("Secret", annotations={"sealedsecrets.bitnami.com/managed": "true"}),
        item("Secret", labels={"reconcile.external-secrets.io/managed": "true"}),
        item("Secret", annotations={"cert-manager.io/certificate-name": "x"}),
        item(labels={"holdfast.dev/application": "gitops.other"}),
        item(annotations={"argocd.argoproj.io/tracking-id": "a:/ConfigMap:shop/x"}),
        item(labels={"kustomize.toolkit.fluxcd.io/name": "apps"}),
        item(annotations={"meta.helm.sh/release-name": "shop"}),
        item(annotations={"argocd.argoproj.io/compare-options": "IgnoreExtraneous"}),
        item(annotations={"kustomize.toolkit.fluxcd.io/reconcile": "disabled"}),
        item(annotations={"control-plane.alpha.kubernetes.io/leader": "{}"}),
        item("PersistentVolumeClaim", "data-web-0"),
        item(deletionTimestamp="2026-11-16T10:00:00Z"),
    ],
    ids=lambda found: f"{found['kind']} {found['metadata']}"[:90],
)
def test_what_something_else_made_is_none(found: dict[str, Any]) -> None:
    assert not is_orphan(found, application=SHOP, known=())


def test_what_is_declared_is_none_whatever_the_version_of_its_api() -> None:
    ref = ObjectRef(api_version="apps/v1beta2", kind="Deployment", namespace="shop", name="x")
    assert not is_orphan(item("Deployment.apps"), application=SHOP, known=object_keys([ref]))
    assert is_orphan(item("Deployment.example.com"), application=SHOP, known=object_keys([ref]))


def test_our_own_label_does_not_make_it_declared() -> None:
    found = item(labels={"holdfast.dev/application": SHOP.label})
    assert is_orphan(found, application=SHOP, known=())
