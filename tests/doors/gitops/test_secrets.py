"""Where credentials come from, what is made of them, and the key that marks Secrets."""

from __future__ import annotations

import base64
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.gitops_world import World

from holdfast.adapters.memory.kube import MemoryKube
from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.application import Application, KeyRef
from holdfast.doors.gitops.credentials import Credentials, FolderVault, SecretVault
from holdfast.doors.gitops.key import key_of, own_key
from holdfast.reconcile.gitops.ports import NO_CREDENTIAL

VALUES = {
    "token": "t0ken\n",
    "username": "bot",
    "ca.crt": "-----BEGIN CERTIFICATE-----\n",
    "webhook": "signs",
}


def application(**source: str) -> Application:
    known = World().application
    spec = replace(known.spec, source=replace(known.spec.source, **source))  # type: ignore[arg-type]
    return replace(known, spec=spec)


def in_cluster(values: dict[str, str], name: str = "git") -> Credentials:
    kube = MemoryKube()
    data = {key: base64.b64encode(text.encode()).decode() for key, text in values.items()}
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "team"},
            "data": data,  # type: ignore[dict-item]  # a mapping of texts
        }
    )
    return Credentials(SecretVault(kube))


def in_folder(root: Path, values: dict[str, str], name: str = "git") -> Credentials:
    folder = root / name
    folder.mkdir(parents=True)
    for key, text in values.items():
        (folder / key).write_text(text)
    (folder / "..data").mkdir()
    return Credentials(FolderVault(root))


@pytest.mark.parametrize("place", ["cluster", "folder"])
async def test_a_credential_has_the_parts_that_are_there(place: str, tmp_path: Path) -> None:
    held = in_cluster(VALUES) if place == "cluster" else in_folder(tmp_path, VALUES)
    found = await held.of(application(credentials="git"))
    assert found.token is not None and found.token.reveal() == "t0ken"
    assert (found.user, found.authority) == ("bot", VALUES["ca.crt"])
    assert found.ssh_key is None
    assert {id.name: secret.reveal() for id, secret in held.webhooks.items()} == {"shop": "signs"}


async def test_without_a_name_there_is_no_credential() -> None:
    assert await in_cluster({}).of(application()) == NO_CREDENTIAL


@pytest.mark.parametrize("name", ["missing", "..", ".hidden"])
async def test_a_missing_credential_is_said_and_not_passed_over(name: str, tmp_path: Path) -> None:
    (tmp_path / ".hidden").mkdir()
    for held in (in_cluster({}), in_folder(tmp_path / name, {}), Credentials(FolderVault(None))):
        with pytest.raises(ConfigurationError):
            await held.of(application(credentials=name))


async def test_every_value_of_a_decryption_secret_is_an_identity() -> None:
    held = in_cluster({"a.agekey": "KEY-A\n", "b.agekey": "KEY-B"}, "age")
    found = await held.identities(application(decryption="age"))
    assert found is not None and found.reveal() == "KEY-A\nKEY-B"


async def test_one_value_is_read_by_its_key() -> None:
    held = in_cluster({"slack": "https://hooks.example.com/x\n"}, "hooks")
    ref = KeyRef(name="hooks", key="slack")
    assert (await held.value(application(), ref)).reveal() == "https://hooks.example.com/x"
    with pytest.raises(ConfigurationError):
        await held.value(application(), KeyRef(name="hooks", key="other"))


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "gitops.db.key"
    made = own_key(path)
    assert len(made) == 32
    assert own_key(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [path.name]


def test_a_key_that_is_too_short_is_no_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"short")
    with pytest.raises(ConfigurationError):
        key_of(path)
    with pytest.raises(ConfigurationError):
        key_of(tmp_path / "missing")
