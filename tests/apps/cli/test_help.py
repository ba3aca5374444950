"""Help is complete and true, and a command loads no more than it needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest
from tests.apps.cli.conftest import Holdfast
from tests.support.processes import HOLDFAST

from holdfast.apps.cli.exits import EXIT_MEANINGS, Exit
from holdfast.apps.cli.help import ENVIRONMENT_VARIABLES, reference_page
from holdfast.apps.cli.main import SECTIONS, cli
from holdfast.apps.gitops.settings import GitopsSettings
from holdfast.apps.operator.settings import OperatorSettings
from holdfast.apps.server.config import ServerConfig
from holdfast.install.settings import GitopsInstallation, Installation

ROOT = Path(__file__).resolve().parents[3]


def commands(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            child = context.command.get_command(context, name)
            assert child is not None
            yield from commands(click.Context(child, info_name=name, parent=context))


ALL = list(commands(click.Context(cli, info_name="holdfast", **cli.context_settings)))


@pytest.mark.parametrize("context", ALL, ids=lambda each: each.command_path)
def test_every_command_has_examples_before_its_options(context: click.Context) -> None:
    text = context.command.get_help(context)
    assert "Examples:\n" in text
    assert text.index("Examples:") < text.index("Options:")
    assert context.command.help


@pytest.mark.parametrize("context", ALL, ids=lambda each: each.command_path)
def test_every_option_is_explained(context: click.Context) -> None:
    for option in context.command.params:
        assert not isinstance(option, click.Option) or option.help, option.name


def test_every_option_of_a_program_that_stays_is_one_of_its_settings() -> None:
    """They are handed on by name, which no type checker follows."""
    by_hand = {
        "gitops": {"kubectl"},
        "operator": {"domain"},
        "serve": {"target", "workload_url", "rate"},
        "install": {"export", "domain", "model_heads"},
    }
    settings = {
        "gitops": (GitopsSettings,),
        "operator": (OperatorSettings,),
        "serve": (ServerConfig,),
        "install": (Installation, GitopsInstallation),
    }
    for name, forms in settings.items():
        command = cli.get_command(ALL[0], name)
        assert command is not None
        given = {each.name for each in command.params if each.expose_value} - by_hand[name]
        assert given <= {field.name for form in forms for field in fields(form)}


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    for verbs in SECTIONS.values():
        for name, (_, short) in verbs.items():
            command = cli.get_command(ALL[0], name)
            assert command is not None
            assert command.help is not None
            first = " ".join(command.help.split("\n\n")[0].split())
            assert first == short, name


def test_the_reference_page_is_up_to_date() -> None:
    """Write it anew with: holdfast help --markdown > docs/reference/cli.md"""
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert page == reference_page(cli)


def test_every_exit_code_is_explained(holdfast: Holdfast) -> None:
    assert set(EXIT_MEANINGS) == set(Exit)
    assert [line.split()[0] for line in holdfast("help", "exit-codes").out.splitlines()[1:]] == [
        "0", "1", "2", "3", "4", "5", "64", "124", "130",
    ]  # fmt: skip


def test_every_variable_that_is_read_is_explained(holdfast: Holdfast) -> None:
    text = holdfast("help", "environment").out
    for name in ENVIRONMENT_VARIABLES:
        assert name in text
    assert {"HOLDFAST_URL", "HOLDFAST_PROJECT", "HOLDFAST_TOKEN", "HOLDFAST_HOME"} <= set(
        ENVIRONMENT_VARIABLES
    )


def test_help_of_a_command_is_its_own_help(holdfast: Holdfast) -> None:
    assert holdfast("help", "drift", "list").out == holdfast("drift", "list", "--help").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete(holdfast: Holdfast, shell: str) -> None:
    run = holdfast("completion", shell)
    assert "_HOLDFAST_COMPLETE" in run.out
    assert run.err.startswith("Next: ")


def test_completion_knows_the_verbs() -> None:
    run = subprocess.run(
        HOLDFAST,
        env={"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "holdfast va", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "plain,validate\n"


SERVING = {"uvicorn", "uvloop", "aiohttp", "prometheus_client"}
FORBIDDEN = {
    "version": ({"httpx2", "apsw", "yaml", "asyncio", "msgspec", *SERVING}, []),
    "plan": ({"httpx2", *SERVING}, ["-f", "chat.yaml"]),
    "validate": ({"httpx2", "apsw", *SERVING}, ["-f", "chat.yaml"]),
}


@pytest.mark.parametrize("verb", FORBIDDEN)
def test_a_command_loads_only_what_it_needs(verb: str, chat: Path) -> None:
    forbidden, args = FORBIDDEN[verb]
    code = (
        "import sys\n"
        "from holdfast.apps.cli.main import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code\n"
        "print('LOADED', *{name.split('.')[0] for name in sys.modules})\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, verb, *args], capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.splitlines()[-1].split())
    assert loaded & forbidden == set()


def test_version_as_a_document(holdfast: Holdfast) -> None:
    from holdfast.version import __version__

    assert holdfast("version").out.startswith(f"holdfast {__version__} (Python ")
    assert f'"version": "{__version__}"' in holdfast("version", "-o", "json").out
