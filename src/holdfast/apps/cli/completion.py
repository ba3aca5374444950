"""`holdfast completion`: the script that makes a shell complete our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session

_PLACES = {
    "bash": "holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast",
    "zsh": 'holdfast completion zsh > "${fpath[1]}/_holdfast"',
    "fish": "holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
}


@click.command("completion", cls=Verb, examples=list(_PLACES.values()))
@click.argument("shell", type=click.Choice(list(_PLACES)))
@options.colour
@pass_session
@click.pass_context
def command(ctx: click.Context, session: Session, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        ctx.fail(f"{shell} is not supported.")
    click.echo(kind(ctx.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
    session.screen.next(f"{_PLACES[shell]}, then open a new shell")
