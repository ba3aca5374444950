"""`holdfast help`, with topics and the whole reference, and `holdfast completion`."""

from __future__ import annotations

from collections.abc import Iterator

import click
from click.shell_completion import get_completion_class

from holdfast.apps.cli import options
from holdfast.apps.cli.exits import EXIT_MEANINGS
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session

ENVIRONMENT_VARIABLES = {
    "HOLDFAST_URL": "Control plane (https://…) or embedded store (sqlite:///PATH).",
    "HOLDFAST_PROJECT": "Project that workloads belong to.",
    "HOLDFAST_TOKEN": "Token for the control plane (ik_sdk_…).",
    "HOLDFAST_HOME": "Where the embedded store is kept (default: ~/.local/share/holdfast).",
    "HOLDFAST_ALLOW_INSECURE": "1 allows a token over http:// beyond this machine.",
    "INFERENCEKEY_BASE_URL": "Taken when HOLDFAST_URL and the settings files say nothing.",
    "INFERENCEKEY_PROJECT": "Likewise for HOLDFAST_PROJECT.",
    "INFERENCEKEY_SDK_TOKEN": "Likewise for HOLDFAST_TOKEN.",
    "HF_ENDPOINT": "Where holdfast models downloads from (default: https://huggingface.co).",
    "HF_TOKEN": "Token for it; HUGGING_FACE_HUB_TOKEN is read too.",
    "XDG_CONFIG_HOME": "Where the user's settings file is: $XDG_CONFIG_HOME/holdfast/config.toml.",
    "XDG_DATA_HOME": "Where data is kept: $XDG_DATA_HOME/holdfast.",
    "NO_COLOR": "Any value turns colour off.",
    "CLICOLOR": "0 turns colour off.",
    "CLICOLOR_FORCE": "1 turns colour on, also when the output is not a terminal.",
    "FORCE_COLOR": "Like CLICOLOR_FORCE.",
    "TERM": "dumb turns colour and redrawing off.",
}


@click.command(
    "help",
    cls=Verb,
    examples=["holdfast help exit-codes", "holdfast help environment", "holdfast help plan"],
)
@click.argument("topic", nargs=-1)
@click.option("--markdown", is_flag=True, hidden=True, help="Print the whole reference.")
@options.colour
@pass_session
@click.pass_context
def command(ctx: click.Context, session: Session, topic: tuple[str, ...], markdown: bool) -> None:
    """Explain a topic (exit-codes, environment) or a command."""
    screen = session.screen
    if markdown:
        click.echo(reference_page(ctx.find_root().command), nl=False)
    elif topic == ("exit-codes",):
        rows = [[str(int(code)), text] for code, text in EXIT_MEANINGS.items()]
        screen.table(["CODE", "MEANING"], rows)
    elif topic == ("environment",):
        screen.table(["VARIABLE", "MEANING"], [*ENVIRONMENT_VARIABLES.items()])
        screen.next("holdfast config view --show-origin")
    else:
        screen.line(_help_of(ctx.find_root(), topic))


def _help_of(root: click.Context, names: tuple[str, ...]) -> str:
    context, command = root, root.command
    for name in names:
        if not isinstance(command, click.Group):
            break
        _, found, _ = command.resolve_command(context, [name])
        assert found is not None  # noqa: S101  # an unknown name has raised
        command = found
        context = click.Context(command, info_name=name, parent=context)
    return command.get_help(context)


def reference_page(command: click.Command) -> str:
    """Write every command with its help, then exit codes and environment."""
    parts = [
        "# Command reference",
        "",
        "Printed by `holdfast help --markdown`; a test keeps it up to date.",
        "",
    ]
    root = click.Context(command, info_name="holdfast", **command.context_settings)
    for context in _command_contexts(root):
        context.terminal_width = context.max_content_width = 90
        parts += [f"## {context.command_path}", "", "```text"]
        parts += [line.rstrip() for line in context.command.get_help(context).splitlines()]
        parts += ["```", ""]
    parts += ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    parts += [f"| {int(code)} | {text} |" for code, text in EXIT_MEANINGS.items()]
    parts += ["", "## Environment", "", "| variable | meaning |", "|---|---|"]
    parts += [f"| `{name}` | {text} |" for name, text in ENVIRONMENT_VARIABLES.items()]
    return "\n".join(parts) + "\n"


def _command_contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from _command_contexts(click.Context(child, info_name=name, parent=context))


_INSTALL_COMMANDS = {
    "bash": "holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast",
    "zsh": 'holdfast completion zsh > "${fpath[1]}/_holdfast"',
    "fish": "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
}


@click.command("completion", cls=Verb, examples=list(_INSTALL_COMMANDS.values()))
@click.argument("shell", type=click.Choice(list(_INSTALL_COMMANDS)))
@options.colour
@pass_session
@click.pass_context
def completion(ctx: click.Context, session: Session, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        ctx.fail(f"{shell} is not supported.")
    click.echo(kind(ctx.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
    session.screen.next(f"{_INSTALL_COMMANDS[shell]}, then open a new shell")
