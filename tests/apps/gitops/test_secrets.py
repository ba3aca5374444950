"""Where credentials come from, what is made of them, and the key that marks Secrets."""

from __future__ import annotations

import base64
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.gitops_world import GitopsWorld

from holdfast.adapters.memory.kube import MemoryKube
from holdfast.apps.gitops.credentials import (
    ApplicationCredentials,
    FolderCredentialStore,
    SecretCredentialStore,
    load_or_create_key,
    read_key_file,
)
from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.application import Application, SecretKeyRef
from holdfast.reconcile.gitops.ports import NO_GIT_CREDENTIAL

VALUES = {
    "token": "t0ken\n",
    "username": "bot",
    "ca.crt": "-----BEGIN CERTIFICATE-----\n",
    "webhook": "signs",
}


def application(**source: str) -> Application:
    known = GitopsWorld().application
    spec = replace(known.spec, source=replace(known.spec.source, **source))  # type: ignore[arg-type]
    return replace(known, spec=spec)


HOST = "git.example.com"


def in_cluster(
    values: dict[str, str], name: str = "git", *, hosts: str | None = HOST, unbound: bool = False
) -> ApplicationCredentials:
    kube = MemoryKube()
    data = {key: base64.b64encode(text.encode()).decode() for key, text in values.items()}
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": "team",
                "annotations": {} if hosts is None else {"holdfast.dev/hosts": hosts},
            },
            "data": data,  # type: ignore[dict-item]  # a mapping of texts
        }
    )
    return ApplicationCredentials(SecretCredentialStore(kube, unbound=unbound))


def in_folder(root: Path, values: dict[str, str], name: str = "git") -> ApplicationCredentials:
    folder = root / name
    folder.mkdir(parents=True)
    for key, text in values.items():
        (folder / key).write_text(text)
    (folder / "..data").mkdir()
    return ApplicationCredentials(FolderCredentialStore(root))


@pytest.mark.parametrize("place", ["cluster", "folder"])
async def test_a_credential_has_the_parts_that_are_there(place: str, tmp_path: Path) -> None:
    held = in_cluster(VALUES) if place == "cluster" else in_folder(tmp_path, VALUES)
    found = await held.credential_of(application(credentials="git"))
    assert found.token is not None and found.token.reveal() == "t0ken"
    assert (found.user, found.authority) == ("bot", VALUES["ca.crt"])
    assert found.ssh_key is None
    assert {id.name: secret.reveal() for id, secret in held.webhooks.items()} == {"shop": "signs"}


async def test_without_a_name_there_is_no_credential() -> None:
    assert await in_cluster({}).credential_of(application()) == NO_GIT_CREDENTIAL


@pytest.mark.parametrize("name", ["missing", "..", ".hidden"])
async def test_a_missing_credential_is_said_and_not_passed_over(name: str, tmp_path: Path) -> None:
    (tmp_path / ".hidden").mkdir()
    for held in (
        in_cluster({}),
        in_folder(tmp_path / name, {}),
        ApplicationCredentials(FolderCredentialStore(None)),
    ):
        with pytest.raises(ConfigurationError):
            await held.credential_of(application(credentials=name))


async def test_every_value_of_a_decryption_secret_is_an_identity() -> None:
    held = in_cluster({"a.agekey": "KEY-A\n", "b.agekey": "KEY-B"}, "age")
    found = await held.identities(application(decryption="age"))
    assert found is not None and found.reveal() == "KEY-A\nKEY-B"


async def test_one_value_is_read_by_its_key() -> None:
    held = in_cluster({"slack": "https://hooks.example.com/x\n"}, "hooks")
    ref = SecretKeyRef(name="hooks", key="slack")
    assert (await held.value(application(), ref)).reveal() == "https://hooks.example.com/x"
    with pytest.raises(ConfigurationError):
        await held.value(application(), SecretKeyRef(name="hooks", key="other"))


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "gitops.db.key"
    made = load_or_create_key(path)
    assert len(made) == 32
    assert load_or_create_key(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [path.name]


def test_a_key_that_is_too_short_is_no_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"short")
    with pytest.raises(ConfigurationError):
        read_key_file(path)
    with pytest.raises(ConfigurationError):
        read_key_file(tmp_path / "missing")


TOKEN = {"token": "t0ken"}


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        (HOST, "https://git.example.com/acme/deploy.git"),
        (HOST, "git@git.example.com:acme/deploy.git"),
        ("other.example, git.example.com", "https://git.example.com/acme/deploy.git"),
        ("*.example.com", "https://git.example.com/acme/deploy.git"),
        ("*", "https://git.example.com/acme/deploy.git"),
        ("git.example.com:8443", "https://git.example.com:8443/acme/deploy.git"),
        ("git.example.com:*", "https://git.example.com:8443/acme/deploy.git"),
        ("git.example.com/acme", "https://git.example.com/acme/deploy.git"),
        ("git.example.com/acme/deploy.git", "https://git.example.com/acme/deploy"),
        ("GIT.example.com", "https://GIT.EXAMPLE.COM/acme/deploy.git"),
    ],
)
async def test_a_credential_goes_to_the_hosts_it_is_bound_to(hosts: str, url: str) -> None:
    named = application(url=url, credentials="git", decryption="git")
    held = in_cluster(TOKEN, hosts=hosts)
    assert (await held.credential_of(named)).token is not None
    assert await held.identities(named) is not None


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        (None, "https://git.example.com/acme/deploy.git"),
        ("", "https://git.example.com/acme/deploy.git"),
        (HOST, "https://thief.example/acme/deploy.git"),
        (HOST, "https://git.example.com.thief.example/x/y.git"),
        (HOST, "https://git.example.com:8443/acme/deploy.git"),
        ("*.example.com", "https://example.com/x/y.git"),
        ("*.example.com", "https://thiefexample.com/x/y.git"),
        ("git.example.com/acme", "https://git.example.com/acme-thief/deploy.git"),
        ("git.example.com/acme", "https://git.example.com/thief/acme/deploy.git"),
        (HOST, "git@thief.example:acme/deploy.git"),
    ],
)
async def test_a_credential_goes_nowhere_else(hosts: str | None, url: str) -> None:
    """Neither a token nor an age key: who may write an Application may not read the Secret."""
    named = application(url=url, credentials="git", decryption="git")
    held = in_cluster(TOKEN, hosts=hosts)
    for ask in (held.credential_of, held.identities):
        with pytest.raises(ConfigurationError) as caught:
            await ask(named)
        assert "t0ken" not in str(caught.value)
        assert "kubectl -n team annotate secret git --overwrite holdfast.dev/hosts=" in str(
            caught.value
        )


async def test_the_command_that_binds_a_credential_keeps_the_hosts_it_has() -> None:
    named = application(url="https://git.example.com:8443/a/b.git", credentials="git")
    with pytest.raises(ConfigurationError, match=r"hosts='forge\.example,git\.example\.com:8443'"):
        await in_cluster(TOKEN, hosts="forge.example").credential_of(named)


async def test_a_token_goes_to_no_other_forge_than_it_is_bound_to() -> None:
    held = in_cluster(TOKEN)
    named = application(credentials="git")
    await held.check_forge(named, "https://git.example.com/api/v1")
    for api in ("https://thief.example", "https://git.example.com:9999"):
        with pytest.raises(ConfigurationError, match="bound to other hosts"):
            await held.check_forge(named, api)


async def test_an_operator_may_let_unbound_credentials_go_anywhere_but_not_bound_ones() -> None:
    named = application(url="https://elsewhere.example/a/b.git", credentials="git")
    assert (
        await in_cluster(TOKEN, hosts=None, unbound=True).credential_of(named)
    ).token is not None
    with pytest.raises(ConfigurationError):
        await in_cluster(TOKEN, hosts=HOST, unbound=True).credential_of(named)


async def test_what_is_no_secret_needs_no_host() -> None:
    values = {"ca.crt": "-----BEGIN CERTIFICATE-----", "webhook": "signs"}
    found = await in_cluster(values, hosts=None).credential_of(application(credentials="git"))
    assert found.authority


async def test_hosts_that_cannot_be_read_are_said_and_bind_to_nothing() -> None:
    with pytest.raises(ConfigurationError, match="is not a host"):
        await in_cluster(TOKEN, hosts="https://git.example.com").credential_of(
            application(credentials="git")
        )


async def test_in_a_folder_a_file_names_the_hosts_and_none_is_needed(tmp_path: Path) -> None:
    named = application(url="https://elsewhere.example/a/b.git", credentials="git")
    assert (await in_folder(tmp_path / "a", TOKEN).credential_of(named)).token is not None
    bound = in_folder(tmp_path / "b", {**TOKEN, "hosts": "git.example.com\n"})
    with pytest.raises(ConfigurationError, match="hosts"):
        await bound.credential_of(named)
