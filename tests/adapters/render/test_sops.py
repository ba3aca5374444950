"""Encrypted documents: opened with the real SOPS, in memory alone, seals checked."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.adapters.render.repo import KEY, Repo, config_map, the
from tests.support.go_programs import IDENTITY, OTHER_IDENTITY, RECIPIENT, Sops

from holdfast.adapters.render import program
from holdfast.adapters.render.manifests import merge_decrypted
from holdfast.adapters.render.renderer import FileRenderer
from holdfast.adapters.render.sops import SopsDecryptor
from holdfast.core.errors import ConfigurationError, HoldfastError, ValidationError
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import SourceUnavailable

CANARY = "canary-5f2c71e09ab4-value"
DOCUMENT = f"""
apiVersion: v1
kind: Secret
metadata:
  name: token
  labels: {{app: web}}
stringData:
  token: {CANARY}
  empty: ""
data:
  more: {base64.b64encode(CANARY.encode()).decode()}
""".lstrip()
FORMS = (CANARY.encode(), base64.b64encode(CANARY.encode()), CANARY.encode().hex().encode())


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scratch place whose files are read whenever a program has just run in it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    real = program._reap
    found: list[str] = []

    async def looking(process: asyncio.subprocess.Process) -> None:
        await real(process)
        for path in scratch.rglob("*"):
            if path.is_file() and any(form in path.read_bytes() for form in FORMS):
                found.append(str(path))

    monkeypatch.setattr(program, "_reap", looking)
    yield scratch
    assert found == []
    assert list(scratch.iterdir()) == []


def renderer(
    decryptor: SopsDecryptor | None, kubectl: str | None = None, scratch: Path | None = None
) -> FileRenderer:
    return FileRenderer(key=KEY, kustomize=kubectl, decryptor=decryptor, scratch=scratch)


def key_for(sops: Sops, scratch: Path) -> SopsDecryptor:
    return SopsDecryptor(age_key=Secret(IDENTITY), program=sops.path, scratch=scratch)


@pytest.mark.parametrize("only", ["^(data|stringData)$", ""], ids=["data alone", "everything"])
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_an_encrypted_file_gives_its_object_in_clear(
    repo: Repo, sops: Sops, watched: Path, only: str, suffix: str
) -> None:
    text = DOCUMENT
    if suffix == "json":
        text = (
            '{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "labels": '
            f'{{"app": "web"}}}}, "stringData": {{"token": "{CANARY}", "empty": ""}}, "data": '
            f'{{"more": "{base64.b64encode(CANARY.encode()).decode()}"}}}}'
        )
    repo.write({f"s.{suffix}": sops.encrypt(text, suffix=suffix, only=only)})
    found = the(repo.render(by=renderer(key_for(sops, watched), scratch=watched)), "Secret")
    encoded = base64.b64encode(CANARY.encode()).decode()
    assert found.item == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "token", "namespace": "team", "labels": {"app": "web"}},
        "data": {"token": encoded, "empty": "", "more": encoded},
    }
    assert found.encrypted
    assert found.origin.file == f"s.{suffix}"
    if suffix == "yaml":
        assert found.origin.line("/data/token") == 8


def test_through_kustomize_it_is_the_same_object(
    repo: Repo, sops: Sops, kubectl: str, watched: Path
) -> None:
    repo.write(
        {
            "base/kustomization.yaml": "resources: [s.yaml]",
            "base/s.yaml": sops.encrypt(DOCUMENT),
            "over/kustomization.yaml": (
                "resources: [../base]\nnamespace: prod\nnamePrefix: p-\n"
                "labels: [{pairs: {team: ml}}]\n"
            ),
        }
    )
    by = renderer(key_for(sops, watched), kubectl, watched)
    found = the(repo.render("over", by=by), "Secret")
    assert found.item["data"] == {
        "token": base64.b64encode(CANARY.encode()).decode(),
        "empty": "",
        "more": base64.b64encode(CANARY.encode()).decode(),
    }
    assert found.item["metadata"] == {
        "name": "p-token",
        "namespace": "prod",
        "labels": {"app": "web", "team": "ml"},
    }
    assert "sops" not in found.item
    assert found.encrypted
    assert found.origin.file == "base/s.yaml"
    assert found.origin.where("/data/token") == ("base/s.yaml", 8)


@pytest.mark.parametrize("layered", [False, True])
def test_without_a_key_nothing_is_rendered(
    repo: Repo, sops: Sops, kubectl: str, layered: bool
) -> None:
    repo.write({"a/s.yaml": sops.encrypt(DOCUMENT), "a/c.yaml": config_map("c")})
    if layered:
        repo.write({"a/kustomization.yaml": "resources: [s.yaml, c.yaml]"})
    with pytest.raises(ValidationError, match=r"a/s\.yaml:\d+: it is encrypted with SOPS"):
        repo.render("a", by=renderer(None, kubectl))


@pytest.mark.parametrize("layered", [False, True])
def test_a_document_that_was_changed_after_sealing_is_refused(
    repo: Repo, sops: Sops, decryptor: SopsDecryptor, kubectl: str, layered: bool
) -> None:
    """Also a part that is not encrypted: the seal covers the whole of the file."""
    changed = sops.encrypt(DOCUMENT).replace("app: web", "app: evil")
    repo.write({"a/s.yaml": changed})
    if layered:
        repo.write({"a/kustomization.yaml": "resources: [s.yaml]"})
    with pytest.raises(ValidationError, match="seal is wrong"):
        repo.render("a", by=renderer(decryptor, kubectl))


def test_another_key_opens_nothing(repo: Repo, sops: Sops) -> None:
    other = SopsDecryptor(age_key=Secret(OTHER_IDENTITY), program=sops.path)
    repo.write({"s.yaml": sops.encrypt(DOCUMENT)})
    with pytest.raises(ValidationError, match="none of its keys"):
        repo.render(by=renderer(other))


def test_a_plain_patch_over_an_encrypted_value_is_refused(
    repo: Repo, sops: Sops, decryptor: SopsDecryptor, kubectl: str
) -> None:
    repo.write(
        {
            "s.yaml": sops.encrypt(DOCUMENT),
            "kustomization.yaml": "resources: [s.yaml]\npatches: [{path: p.yaml}]",
            "p.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\n"
            "stringData: {token: plaintext-value}\n",
        }
    )
    with pytest.raises(HoldfastError) as refusal:
        repo.render(by=renderer(decryptor, kubectl))
    assert "plaintext-value" not in str(refusal.value)


def test_a_patch_that_strips_the_block_does_not_get_sealed_text_applied(
    repo: Repo, sops: Sops, decryptor: SopsDecryptor, kubectl: str
) -> None:
    repo.write(
        {
            "s.yaml": sops.encrypt(DOCUMENT),
            "kustomization.yaml": "resources: [s.yaml]\npatches: [{path: p.yaml}]",
            "p.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\nsops: null\n",
        }
    )
    with pytest.raises(ValidationError, match="encrypted"):
        repo.render(by=renderer(decryptor, kubectl))


def test_a_generator_over_an_encrypted_file_is_refused(
    repo: Repo, sops: Sops, decryptor: SopsDecryptor, kubectl: str
) -> None:
    repo.write(
        {
            "s.json": sops.encrypt('{"token": "x"}', suffix="json", only=""),
            "kustomization.yaml": "secretGenerator: [{name: a, files: [s.json]}]",
        }
    )
    with pytest.raises(ValidationError, match="encrypted"):
        repo.render(by=renderer(decryptor, kubectl))


def test_an_encrypted_object_has_a_file_to_itself(
    repo: Repo, sops: Sops, decryptor: SopsDecryptor
) -> None:
    repo.write({"s.yaml": sops.encrypt(DOCUMENT) + "---\n" + config_map("c")})
    with pytest.raises(ValidationError, match="a file of its own"):
        repo.render(by=renderer(decryptor))


def test_what_is_not_sealed_stays_as_our_own_reader_read_it() -> None:
    """Parsers disagree on a bare `yes`. What is reviewed is what is applied."""
    sealed: Fields = {"flag": True, "list": ["ENC[AES256_GCM,data:x]"], "sops": {"mac": "m"}}
    assert merge_decrypted(sealed, {"flag": "yes", "list": ["clear"]}) == {
        "flag": True,
        "list": ["clear"],
    }
    others: list[Fields] = [
        {"flag": "yes"},
        {"flag": "yes", "list": []},
        {"flag": "yes", "list": "clear"},
        {"flag": "yes", "list": ["ENC[AES256_GCM,data:x]"]},
    ]
    for clear in others:
        with pytest.raises(KeyError):
            merge_decrypted(sealed, clear)


def test_no_error_and_no_argument_shows_a_secret(
    repo: Repo, sops: Sops, kubectl: str, watched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real = asyncio.create_subprocess_exec

    async def listening(*arguments: str, **more: object) -> asyncio.subprocess.Process:
        seen.extend(str(argument) for argument in arguments)
        return await real(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", listening)
    holder = key_for(sops, watched)
    sealed = sops.encrypt(DOCUMENT.replace("data:\n  more", "data:\n  bad: '***'\n  more"))
    repo.write(
        {"a/s.yaml": sealed, "b/s.yaml": sealed, "b/kustomization.yaml": "resources: [s.yaml]"}
    )
    for path in ("a", "b"):
        with pytest.raises(ValidationError, match="not base64") as refusal:
            repo.render(path, by=renderer(holder, kubectl, watched))
        seen += [str(refusal.value), repr(refusal.value)]
    changed = asyncio.run(
        holder.set_value(sops.encrypt(DOCUMENT).encode(), ["stringData", "token"], Secret(CANARY))
    )
    seen += [changed.decode(), repr(holder)]
    assert not [text for text in seen if any(form.decode() in text for form in FORMS)]
    assert not [text for text in seen if IDENTITY in text]


def test_a_value_is_replaced_for_the_same_recipients(sops: Sops, decryptor: SopsDecryptor) -> None:
    before = sops.encrypt(DOCUMENT)
    awkward = 'quotes " and \\ and\nlines, ü, and a long ' + "x" * 5000
    after = asyncio.run(
        decryptor.set_value(before.encode(), ["stringData", "token"], Secret(awkward))
    ).decode()
    assert awkward[:10] not in after
    assert [line for line in after.splitlines() if "recipient:" in line] == [
        line for line in before.splitlines() if "recipient:" in line
    ]
    clear = asyncio.run(decryptor.decrypt(after.encode(), source="s.yaml"))
    assert clear["stringData"] == {"token": awkward, "empty": ""}
    assert clear["metadata"] == {"name": "token", "labels": {"app": "web"}}
    listed = sops.encrypt('{"a": [{"b": "c"}]}', suffix="json", only="")
    changed = asyncio.run(decryptor.set_value(listed.encode(), ["a", 0, "b"], Secret("d")))
    assert asyncio.run(decryptor.decrypt(changed, source="s.json")) == {"a": [{"b": "d"}]}


def test_a_value_in_a_broken_file_is_not_replaced(sops: Sops, decryptor: SopsDecryptor) -> None:
    broken = sops.encrypt(DOCUMENT).replace("app: web", "app: evil").encode()
    with pytest.raises(ValidationError, match="seal is wrong"):
        asyncio.run(decryptor.set_value(broken, ["stringData", "token"], Secret("x")))


def test_the_key_is_asked_for_nowhere_else(
    sops: Sops, decryptor: SopsDecryptor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in the operator's own home is not used for a repository's documents."""
    home = tmp_path / "home" / "sops" / "age"
    home.mkdir(parents=True)
    (home / "keys.txt").write_text(IDENTITY)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SOPS_AGE_KEY", IDENTITY)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    other = SopsDecryptor(age_key=Secret(OTHER_IDENTITY), program=sops.path)
    with pytest.raises(ValidationError, match="none of its keys"):
        asyncio.run(other.decrypt(sops.encrypt(DOCUMENT).encode(), source="s.yaml"))


def test_a_sops_that_is_missing_hangs_or_babbles_is_told(tmp_path: Path, sops: Sops) -> None:
    def with_program(body: str) -> SopsDecryptor:
        path = tmp_path / "fake-sops"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return SopsDecryptor(
            age_key=Secret("k"), program=str(path), seconds=0.5 if "sleep" in body else 60
        )

    sealed = sops.encrypt(DOCUMENT).encode()
    for body, kind, said in (
        ("sleep 600", SourceUnavailable, "did not end"),
        ("kill -9 $$", SourceUnavailable, "signal 9"),
        (f'echo \'{{"a": "{CANARY}\'', ValidationError, "not one document"),
        ("true", ValidationError, "not one document"),
        (f"echo {CANARY} >&2; exit 1", ValidationError, "status 1"),
    ):
        with pytest.raises(kind, match=said) as failure:
            asyncio.run(with_program(body).decrypt(sealed, source="s.yaml"))
        assert CANARY not in str(failure.value)
    missing = SopsDecryptor(age_key=Secret("k"), program=str(tmp_path / "nothing"))
    with pytest.raises(ConfigurationError, match="nothing"):
        asyncio.run(missing.decrypt(sealed, source="s.yaml"))
    assert os.environ.get("SOPS_AGE_KEY") is None


VAULT = {"vault_address": "http://192.0.2.1:8200", "engine_path": "t", "key_name": "k", "enc": "x"}


def fake_sops(folder: Path) -> SopsDecryptor:
    """A program that gives back what it got, to see what that was."""
    path = folder / "sops"
    path.write_text(
        f"#!{sys.executable} -IS\nimport json, sys\n"
        "print(json.dumps({'got': sys.stdin.read()}))\n"
    )
    path.chmod(0o755)
    return SopsDecryptor(age_key=Secret(IDENTITY), program=str(path), scratch=folder)


def sealed(**block: object) -> Fields:
    age = [{"recipient": RECIPIENT, "enc": "one\ntwo\n"}]
    return {"kind": "Secret", "sops": {"age": age, "mac": "ENC[x]", "version": "3.9.0", **block}}  # type: ignore[dict-item]


@pytest.mark.parametrize("suffix", ["yaml", "json"])
@pytest.mark.parametrize(
    "block",
    [
        *({name: [VAULT]} for name in ("hc_vault", "kms", "gcp_kms", "azure_kv", "hckms", "pgp")),
        {"HC_VAULT": [VAULT]},
        {"\u212ams": [VAULT]},  # the sign of Kelvin, which Go takes for a k
        {"key_groups": [{"hc_vault": [VAULT]}]},
        {"key_groups": [{"age": []}, {"HC_vault": [VAULT]}]},
        {"key_groups": {"hc_vault": [VAULT]}},
        {"unheard_of": "x"},
        {"age": [{"recipient": "x", "enc": "y", "url": "http://192.0.2.1"}]},
    ],
    ids=lambda block: "-".join(block),
)
def test_a_block_that_asks_somebody_else_is_refused_before_sops_starts(
    tmp_path: Path, suffix: str, block: dict[str, object]
) -> None:
    decryptor = fake_sops(tmp_path)
    text = json.dumps(sealed(**block), ensure_ascii=False).encode()
    with pytest.raises(ValidationError, match="cannot be opened"):
        asyncio.run(decryptor.decrypt(text, source=f"s.{suffix}"))
    with pytest.raises(ValidationError, match="cannot be opened"):
        asyncio.run(decryptor.set_value(text, ["a"], Secret("x")))


def test_a_second_block_that_sops_would_read_is_refused(tmp_path: Path) -> None:
    text = json.dumps({**sealed(), "\u017fops": {"hc_vault": [VAULT]}}, ensure_ascii=False)
    with pytest.raises(ValidationError, match="beside sops"):
        asyncio.run(fake_sops(tmp_path).decrypt(text.encode(), source="s.json"))


def test_sops_gets_a_block_that_was_written_anew_and_all_else_to_the_letter(
    tmp_path: Path,
) -> None:
    """The seal is over values as SOPS reads them, so those stay as they were written."""
    text = (
        "# a comment\n"
        "kind: Secret\n"
        "plain: 0x1F\n"
        "sops: # its block\n"
        "    hc_vault: []\n"
        "    pgp: null\n"
        "    age:\n"
        "        - recipient: age1\n"
        "          enc: |\n"
        "            one\n"
        "\n"
        "            two\n"
        "    mac: ENC[x]\n"
        "after: 'x'\n"
    )
    clear = asyncio.run(fake_sops(tmp_path).decrypt(text.encode(), source="s.yaml"))
    block = {"age": [{"recipient": "age1", "enc": "one\n\ntwo\n"}], "mac": "ENC[x]"}
    assert str(clear["got"]).rstrip("\n") == (
        f"# a comment\nkind: Secret\nplain: 0x1F\nsops: {json.dumps(block)}\nafter: 'x'"
    )
