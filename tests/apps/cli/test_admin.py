"""project, token and doctor on a store file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.apps.cli.conftest import Holdfast

from holdfast.adapters.store import OpenMode, Store, TokenScope
from holdfast.core import tokens


def test_a_token_is_shown_once_and_never_again(holdfast: Holdfast) -> None:
    run = holdfast(
        "token", "create", "--name", "ci", "--scope", "write", "-p", "acme", "--db", "s.db"
    )
    (secret,) = re.findall(r"ik_sdk_\w+", run.out)
    parsed = tokens.parse(secret)
    assert parsed
    assert run.screen == (
        f"Token {parsed.id} for ci, project acme: write.\n"
        "\n"
        f"  export HOLDFAST_TOKEN={secret}\n"
        "\n"
        "Keep it now: only a hash is stored, so it cannot be shown again.\n"
        "Next: holdfast --url sqlite:///HOME/work/s.db token list -p acme\n"
    )
    assert secret.encode() not in Path("s.db").read_bytes()
    listed = holdfast("token", "list", "-p", "acme", "--db", "s.db")
    assert listed.screen == (
        "ID        NAME  FOR    AGE  STATE\n"
        f"{parsed.id}  ci    write  0s   valid\n"
        "1 token in project acme.\n"
        "Next: holdfast --project acme --url sqlite:///HOME/work/s.db token create"
        " --name NAME --scope read\n"
    )
    for form in ("json", "yaml", "jsonl", "name"):
        again = holdfast("token", "list", "-p", "acme", "--db", "s.db", "-o", form)
        assert secret[20:] not in again.screen


def test_a_token_for_a_script(holdfast: Holdfast) -> None:
    text = holdfast(
        "token", "create", "--name", "x", "--scope", "read", "--db", "s.db", "-o", "name"
    ).out
    assert tokens.parse(text.strip())
    with Store.open("s.db", mode=OpenMode.ADMIN) as store:
        (token,) = store.tokens("default")
    assert token.scopes == {TokenScope.READ}
    assert tokens.verify(text.strip(), token.secret_hash)


def test_a_token_is_revoked_and_twice_is_no_error(holdfast: Holdfast) -> None:
    made = json.loads(
        holdfast(
            "token",
            "create",
            "--name",
            "x",
            "--scope",
            "read",
            "--expires",
            "24h",
            "--db",
            "s.db",
            "-o",
            "json",
        ).out
    )
    assert made["expiresAt"]
    assert holdfast("token", "revoke", made["id"], "--db", "s.db").out == (
        f"Token {made['id']} is revoked.\n"
    )
    assert holdfast("token", "revoke", made["id"], "--db", "s.db").out.endswith(
        "was not valid any more.\n"
    )
    assert "revoked" in holdfast("token", "list", "--db", "s.db").out
    assert holdfast("token", "revoke", "00000000", "--db", "s.db").code == 1
    assert holdfast("token", "revoke", made["id"], "--db", "s.db", "-p", "other").code == 1


def test_a_data_key_belongs_to_a_workload_that_is_there(holdfast: Holdfast, chat: Path) -> None:
    order = ["token", "create", "--name", "app", "--workload", "support-bot"]
    assert holdfast(*order).err.startswith("error[not-found]: ")
    holdfast("ensure", "-f", "chat.yaml")
    run = holdfast(*order)
    assert "export HOLDFAST_API_KEY=ik_live_" in run.out


def test_a_data_key_may_open_every_workload_of_a_project(holdfast: Holdfast) -> None:
    run = holdfast("token", "create", "--name", "gateway", "--kind", "live", "--db", "s.db")
    assert "export HOLDFAST_API_KEY=ik_live_" in run.out
    assert "every workload" in holdfast("token", "list", "--db", "s.db").out
    for wrong in (
        ("--kind", "live", "--scope", "read"),
        ("--kind", "sdk"),
        ("--kind", "sdk", "--workload", "bot"),
        ("--scope", "read", "--workload", "bot"),
        (),
    ):
        run = holdfast("token", "create", "--name", "x", "--db", "s.db", *wrong)
        assert (run.code, "ik_" in run.out) == (64, False), wrong


@pytest.mark.parametrize("verb", ["serve", "gitops"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--base-url", "holdfast.example.com"),
        ("--base-url", "https://holdfast.example.com/below"),
        ("--cors-origin", "*"),
    ],
)
def test_a_server_does_not_start_with_a_name_that_is_no_origin(
    holdfast: Holdfast, verb: str, option: str, value: str
) -> None:
    run = holdfast(verb, "--db", "s.db", option, value)
    assert run.code == 1
    assert "origin" in run.err and option in run.err


def test_projects_are_created_and_listed(holdfast: Holdfast) -> None:
    run = holdfast("project", "create", "acme", "--db", "s.db")
    assert run.screen == (
        "Project acme is created.\n"
        "Next: holdfast --url sqlite:///HOME/work/s.db token create --name me --scope admin"
        " -p acme\n"
    )
    assert holdfast("project", "create", "acme", "--db", "s.db").code == 5
    assert holdfast("project", "create", "A b", "--db", "s.db").code == 1
    assert holdfast("project", "list", "--db", "s.db").screen == (
        "PROJECT  WORKLOADS  AGE\nacme     0          0s\n"
        "Next: holdfast --url sqlite:///HOME/work/s.db project create SLUG\n"
    )
    assert holdfast("project", "list", "--db", "s.db", "-o", "name").out == "acme\n"


def test_projects_are_not_made_over_the_network(holdfast: Holdfast) -> None:
    run = holdfast("project", "list", "--url", "https://holdfast.invalid")
    assert run.code == 1
    assert "--db FILE" in run.err


def test_doctor_finds_all_well_on_a_new_machine(holdfast: Holdfast) -> None:
    run = holdfast("doctor")
    assert run.code == 0
    assert [line.split()[:2] for line in run.out.splitlines()] == [
        ["ok", "python"], ["ok", "sqlite"],
        ["ok", "server"], ["ok", "kubernetes"], ["ok", "gitops"], ["ok", "postgres"],
        ["ok", "settings"], ["ok", "store"],
    ]  # fmt: skip
    assert run.err == "Next: holdfast status\n"


def test_doctor_finds_a_damaged_store(holdfast: Holdfast, chat: Path, home: Path) -> None:
    holdfast("ensure", "-f", "chat.yaml")
    path = home / ".local" / "share" / "holdfast" / "holdfast.db"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = b"\xa5" * (len(data) - len(data) // 2)
    path.write_bytes(bytes(data))
    for rest in ("-wal", "-shm"):
        path.with_name(path.name + rest).unlink(missing_ok=True)
    run = holdfast("doctor")
    assert run.code == 1
    assert "fail  store" in run.out
    assert "Fix: " in run.out


def test_doctor_says_what_is_wrong_with_the_connection(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", "ik_sdk_x")
    run = holdfast("doctor", "--url", "http://127.0.0.1:9", "-o", "json")
    assert run.code == 1
    document = json.loads(run.out)
    assert document["healthy"] is False
    assert [each["name"] for each in document["checks"] if each["verdict"] == "fail"] == ["reach"]
    assert holdfast("doctor", "--url", "gopher://x").code == 1
