"""Commands that are printed work as they stand: the same program, the same connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.apps.cli.conftest import Holdfast
from tests.support.server import RunningServer, running_server

from holdfast.apps.cli.main import cli
from holdfast.apps.cli.screen import CONNECTED_VERBS, Caller


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for each in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), each)
            assert found
            yield from commands(found, name or each)


def test_the_verbs_that_connect_are_known_as_such() -> None:
    found = {
        name
        for name, command in commands(cli)
        if name and any("--url" in param.opts for param in command.params)
    }
    assert found - {"config"} == CONNECTED_VERBS


@pytest.mark.parametrize(
    ("text", "as_typed"),
    [
        ("holdfast status", "holdfast --url https://x --project p status"),
        (
            "holdfast revert drf-1 puts it back",
            "holdfast --url https://x --project p revert drf-1 puts it back",
        ),
        (
            "Look at it: holdfast drift list a/b",
            "Look at it: holdfast --url https://x --project p drift list a/b",
        ),
        ("holdfast status -p other tells", "holdfast --url https://x status -p other tells"),
        ("holdfast serve, which runs them", "holdfast serve, which runs them"),
        ("Set it to where holdfast gitops answers.", "Set it to where holdfast gitops answers."),
        ("kubectl apply -f a.yaml", "kubectl apply -f a.yaml"),
        ("open /srv/holdfast status", "open /srv/holdfast status"),
    ],
)  # fmt: skip
def test_flags_that_were_given_are_given_again(text: str, as_typed: str) -> None:
    assert Caller("holdfast", {"--url": "https://x", "--project": "p"}).as_typed(text) == as_typed
    assert Caller().as_typed(text) == text


def test_kubectls_flags_are_given_again_and_quoted() -> None:
    caller = Caller("kubectl holdfast", {"--context": "a b", "--namespace": "chat"})
    assert caller.as_typed("holdfast diff x") == (
        "kubectl holdfast --context 'a b' --namespace chat diff x"
    )
    assert caller.as_typed("holdfast serve") == "kubectl holdfast serve"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path, run=False) as running:
        yield running


def test_what_is_printed_leads_to_the_same_place(
    holdfast: Holdfast, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", server.token("acme", ["admin"]))
    flags = ("--url", server.url, "--project", "acme")
    again = " ".join(flags)
    assert holdfast("status", *flags).err == f"Next: holdfast {again} ensure -f FILE\n"
    assert holdfast(*flags, "history").err == f"Next: holdfast {again} drift history\n"
    run = holdfast("wait", "nope", *flags)
    assert run.code == 1
    assert f"Next: holdfast --url {server.url} status -p acme lists the workloads" in run.err
    run = holdfast("drift", "show", "drf-0", *flags, "-o", "json")
    assert f'"next": "holdfast {again} drift history lists all of them."' in run.out


def test_what_comes_from_the_environment_is_not_repeated(
    holdfast: Holdfast, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", server.token("acme", ["admin"]))
    monkeypatch.setenv("HOLDFAST_URL", server.url)
    assert holdfast("status", "-p", "acme").err == (
        "Next: holdfast --project acme ensure -f FILE\n"
    )


@pytest.mark.parametrize("name", ["Not A Slug", "é", "../other", "a--b", "api", "", "x" * 64])
def test_a_project_that_is_no_slug_asks_nobody(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Port 1 answers to nobody, so an attempt would end otherwise."""
    monkeypatch.setenv("HOLDFAST_TOKEN", "ik_sdk_x")
    flags = ("--url", "http://127.0.0.1:1", "-p", name)
    for verb in (["status"], ["sync", "shop"], ["drift", "list"], ["wait", "shop"]):
        run = holdfast(*verb, *flags)
        assert run.code == 64, run.screen
        assert "is not a project slug" in run.err
        assert f"Next: holdfast {' '.join(verb).removesuffix(' shop')} --help" in run.err


def test_the_likely_project_is_named_and_a_credential_is_not(holdfast: Holdfast) -> None:
    assert "did you mean not-a-slug?" in holdfast("status", "-p", "Not A Slug").err
    secret = "ik_sdk_" + "a1" * 20
    assert "a1a1a1" not in holdfast("status", "-p", secret).screen


def test_a_project_of_a_file_that_is_no_slug_is_said_to_come_from_there(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("HOLDFAST_TOKEN", "ik_sdk_x")
    Path("holdfast.toml").write_text('project = "Not A Slug"\n')
    run = holdfast("status")
    assert run.code == 1
    assert "holdfast.toml names the project 'Not A Slug', which is not a slug." in run.err
    monkeypatch.setenv("HOLDFAST_PROJECT", "Not A Slug")
    run = holdfast("status")
    assert run.code == 1
    assert "HOLDFAST_PROJECT 'Not A Slug' is not a project slug." in run.err
