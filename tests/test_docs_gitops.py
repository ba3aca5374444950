"""The pages about GitOps show commands that exist, documents that are accepted, code that works."""

from __future__ import annotations

import re
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from holdfast.adapters.notify.channels import webhook_signature
from holdfast.apps.cli.main import cli
from holdfast.core.gitops.application import Application
from holdfast.core.redact import Secret
from holdfast.wire.application_v1alpha1 import application_from_json
from holdfast.wire.yaml import read_documents

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted([*DOCS.glob("how-to/gitops*.md"), DOCS / "explanation" / "gitops.md"])
BASE = (
    "apiVersion: holdfast.dev/v1alpha1\nkind: Application\nmetadata: {name: shop, namespace: a}\n"
)
SOURCE = "project: acme\nsource: {url: https://git.example.com/acme/shop.git}\n"


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", page.read_text(), flags=re.M | re.S)
    return [text for text in found if "DriftDecision" not in text]


def commands(page: Path) -> list[list[str]]:
    """Every `holdfast …` of the page's shell blocks and of its prose."""
    lines = "\n".join(blocks(page, "bash")).replace("\\\n", " ").split("\n")
    lines += re.findall(r"`(holdfast [a-z][^`]*)`", page.read_text())
    found = []
    for line in lines:
        for part in re.split(r" \| | && ", line):
            if part.strip().startswith("holdfast "):
                found.append(shlex.split(part, comments=True)[1:])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_option_exists(page: Path) -> None:
    for words in commands(page):
        command: click.Command = cli
        context = click.Context(cli)
        while isinstance(command, click.Group) and words:
            below = command.get_command(context, words[0])
            assert below is not None, words
            command, words = below, words[1:]
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        given = [word.partition("=")[0] for word in words if word.startswith("-")]
        assert [name for name in given if name not in known] == [], (command.name, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_application_that_is_shown_is_accepted(page: Path) -> None:
    for text in blocks(page, "yaml"):
        found = _application(text)
        if found is not None:
            found.validate()


def _application(text: str) -> Application | None:
    """Read a block: a whole Application, or a part of one put where it belongs."""
    value = read_documents(text.encode(), source="page")[0].value
    assert isinstance(value, dict)
    if value.get("kind") == "Application":
        return application_from_json(value)
    part = next(iter(value))
    if part == "metadata":
        return None  # of an object that an Application declares
    spec = value.get("spec", value)
    if "routes" in spec:
        spec = {"drift": spec}
    whole = read_documents(f"{BASE}spec:\n".encode() + _indented(SOURCE), source="page")[0].value
    assert isinstance(whole, dict)
    base = whole["spec"]
    assert isinstance(base, dict)
    assert isinstance(spec, dict)
    for name, given in spec.items():
        known = base.get(name)
        both = isinstance(known, dict) and isinstance(given, dict)
        base[name] = {**known, **given} if both else given  # type: ignore[dict-item]
    return application_from_json(whole)


def _indented(text: str) -> bytes:
    return "".join(f"  {line}\n" for line in text.splitlines()).encode()


def test_the_receiver_that_is_shown_knows_a_genuine_notice() -> None:
    (code,) = blocks(DOCS / "how-to" / "gitops-notifications.md", "python")
    shown: dict[str, object] = {}
    exec(code, shown)  # noqa: S102  # our own page
    genuine = shown["genuine"]
    assert callable(genuine)
    body, secret = b'{"id": "1"}', "correct horse"
    header = webhook_signature(Secret(secret), datetime.now(UTC), body)
    assert genuine(header, body, secret)
    assert not genuine(header, body + b" ", secret)
    assert not genuine(header, body, "another")
    assert not genuine("", body, secret)
    old = datetime.fromtimestamp(time.time() - 3600, UTC)
    assert not genuine(webhook_signature(Secret(secret), old, body), body, secret)
