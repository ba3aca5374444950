"""`holdfast help`: topics that belong to no single command, and the whole reference."""

from __future__ import annotations

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.exits import MEANINGS
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.text import columns

ENVIRONMENT = {
    "HOLDFAST_URL": "Control plane (https://…) or embedded store (sqlite:///PATH).",
    "HOLDFAST_PROJECT": "Project that workloads belong to.",
    "HOLDFAST_TOKEN": "Token for the control plane (ik_sdk_…).",
    "HOLDFAST_HOME": "Where the embedded store is kept (default: ~/.local/share/holdfast).",
    "HOLDFAST_ALLOW_INSECURE": "1 allows a token over http:// beyond this machine.",
    "INFERENCEKEY_BASE_URL": "Taken when HOLDFAST_URL and the settings files say nothing.",
    "INFERENCEKEY_PROJECT": "Likewise for HOLDFAST_PROJECT.",
    "INFERENCEKEY_SDK_TOKEN": "Likewise for HOLDFAST_TOKEN.",
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
        from holdfast.apps.cli.views.reference import reference

        click.echo(reference(ctx.find_root().command), nl=False)
    elif topic == ("exit-codes",):
        for line in columns(["CODE", "MEANING"], [[str(int(c)), t] for c, t in MEANINGS.items()]):
            screen.line(line)
    elif topic == ("environment",):
        for line in columns(["VARIABLE", "MEANING"], [list(each) for each in ENVIRONMENT.items()]):
            screen.line(line)
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
