"""Every alert has a page that says what to do, with commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from holdfast.apps.cli.main import cli
from holdfast.install.monitoring import alert_rules
from holdfast.install.settings import DEFAULT_RUNBOOKS, GITOPS_NAME, OPERATOR_NAME, Installation

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ROOT / "docs" / "operations"
PAGES = sorted((ROOT / DEFAULT_RUNBOOKS).glob("*.md"))
EVERY = (*alert_rules(OPERATOR_NAME), *alert_rules(GITOPS_NAME))


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert {page.stem for page in PAGES} == {alert.alert for alert in EVERY}
    listed = (OPERATIONS / "README.md").read_text()
    assert [page.name for page in PAGES if f"(runbooks/{page.name})" not in listed] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_it_means_what_to_look_at_and_what_to_do(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    headings = re.findall(r"^## (.*)", text, flags=re.MULTILINE)
    assert headings == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
    severities = {alert.severity for alert in EVERY if alert.alert == page.stem}
    assert {re.findall(r"\*\*Severity\*\* (\w+)", text)[0]} == severities
    occasions = {alert.because for alert in EVERY if alert.alert == page.stem} - {""}
    assert [each for each in occasions if not re.search(f"`(because: )?{each}`", text)] == []


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted(OPERATIONS.glob("*.md"))], ids=lambda page: page.stem
)
def test_a_page_names_commands_and_options_that_exist(page: Path) -> None:
    text = page.read_text()
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    blocks += re.findall(r"`(holdfast [^`]*)`", text)
    for line in "\n".join(blocks).splitlines():
        for words in re.findall(r"\bholdfast ((?:[a-z]+ ?)+[^|#]*)", line):
            check(words.split(), line)


def check(words: list[str], line: str) -> None:
    context = click.Context(cli)
    command: click.Command | None = cli
    while isinstance(command, click.Group) and words and words[0].isalpha():
        command = command.get_command(context, words.pop(0))
    assert command is not None, line
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    used = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert used <= known | {"--help"}, line


def test_every_alert_links_to_its_page_and_to_the_board() -> None:
    here = Installation(runbooks="https://docs.example/r", grafana="https://g.example")
    for alert in EVERY:
        written = alert.to_prometheus("holdfast-operator", here)
        annotations = written["annotations"]
        assert isinstance(annotations, dict)
        assert set(annotations) == {"summary", "description", "runbook_url", "dashboard_url"}
        assert all(annotations.values())
        assert annotations["runbook_url"] == f"https://docs.example/r/{alert.alert}.md"
        assert annotations["dashboard_url"] == "https://g.example/d/holdfast"
        assert (ROOT / f"{Installation().runbooks}/{alert.alert}.md").exists()
