"""Secrets that a controller makes: what it makes itself is no drift, what others edit is."""

from __future__ import annotations

from typing import Any

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.secrets import find_secret_edits, fingerprints_to_keep, made_secret
from holdfast.core.object_ref import ObjectRef

KEY = b"k" * 32


def maker(generation: int = 1, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "bitnami.com/v1alpha1", "kind": "SealedSecret",
        "metadata": {"name": "db", "namespace": "chat", "generation": generation}, "spec": spec,
    }  # fmt: skip


def secret(value: str, *managers: str) -> dict[str, Any]:
    fields = {"f:data": {"f:password": {}}}
    return {
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": "db", "namespace": "chat",
            "managedFields": [
                {
                    "manager": name, "operation": "Update", "apiVersion": "v1",
                    "fieldsType": "FieldsV1", "fieldsV1": fields,
                    "time": "2026-11-16T10:00:00Z",
                }
                for name in managers
            ],
        },
        "data": {"password": value},
    }  # fmt: skip


def ref(group: str, kind: str) -> ObjectRef:
    return ObjectRef(api_version=f"{group}/v1", kind=kind, namespace="chat", name="db")


def test_the_made_secret_is_named_as_its_maker_says() -> None:
    sealed, external = (
        ref("bitnami.com", "SealedSecret"),
        ref("external-secrets.io", "ExternalSecret"),
    )
    assert made_secret(maker(), sealed).name == "db"  # type: ignore[union-attr]
    named = maker(template={"metadata": {"name": "db-login"}})
    assert made_secret(named, sealed).name == "db-login"  # type: ignore[union-attr]
    target = {"spec": {"target": {"name": "from-vault"}}}
    assert made_secret(target, external).name == "from-vault"  # type: ignore[union-attr,arg-type]
    assert made_secret({}, ref("apps", "Deployment")) is None


def test_what_the_controller_makes_is_learned_and_no_drift() -> None:
    marks = fingerprints_to_keep(maker(), secret("b25l", "controller"), {}, KEY)
    assert list(find_secret_edits(secret("b25l", "controller"), marks, KEY)) == []
    rotated = secret("dHdv", "controller")
    assert (
        list(find_secret_edits(rotated, fingerprints_to_keep(maker(), rotated, marks, KEY), KEY))
        == []
    )


def test_an_edit_by_hand_is_told_with_its_writer_and_without_its_value() -> None:
    marks = fingerprints_to_keep(maker(), secret("b25l", "controller"), {}, KEY)
    hacked = secret("dHdv", "kubectl-edit")
    (found,) = find_secret_edits(hacked, fingerprints_to_keep(maker(), hacked, marks, KEY), KEY)
    assert found.kind is DriftKind.SECRET
    assert found.cause is Cause.PERSON
    assert found.writer is not None
    assert found.writer.manager == "kubectl-edit"
    assert "dHdv" not in repr(found)


def test_a_new_declaration_is_learned_anew() -> None:
    marks = fingerprints_to_keep(maker(1), secret("b25l", "controller"), {}, KEY)
    renewed = secret("dHdv", "controller", "kubectl-edit")
    again = fingerprints_to_keep(maker(2), renewed, marks, KEY)
    assert again != marks
    assert list(find_secret_edits(renewed, again, KEY)) == []
