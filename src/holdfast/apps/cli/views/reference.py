"""The command reference as Markdown, from the commands themselves, so that it stays true."""

from __future__ import annotations

from collections.abc import Iterator

import click

from holdfast.apps.cli.exits import MEANINGS
from holdfast.apps.cli.help import ENVIRONMENT


def reference(command: click.Command) -> str:
    """Write every command with its help, then exit codes and environment."""
    parts = [
        "# Command reference",
        "",
        "Printed by `holdfast help --markdown`; a test keeps it up to date.",
        "",
    ]
    root = click.Context(command, info_name="holdfast", **command.context_settings)
    for context in _contexts(root):
        context.terminal_width = context.max_content_width = 90
        parts += [f"## {context.command_path}", "", "```text"]
        parts += [line.rstrip() for line in context.command.get_help(context).splitlines()]
        parts += ["```", ""]
    parts += ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    parts += [f"| {int(code)} | {text} |" for code, text in MEANINGS.items()]
    parts += ["", "## Environment", "", "| variable | meaning |", "|---|---|"]
    parts += [f"| `{name}` | {text} |" for name, text in ENVIRONMENT.items()]
    return "\n".join(parts) + "\n"


def _contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from _contexts(click.Context(child, info_name=name, parent=context))
