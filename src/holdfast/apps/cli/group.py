"""Click, bent to our rules: verbs load on use, examples come first, usage errors exit 64."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from holdfast.apps.cli.exits import Exit, exit_code_of, show_crash, show_error, show_usage_error
from holdfast.apps.cli.screen import Caller
from holdfast.apps.cli.session import Session
from holdfast.core.errors import HoldfastError


class Verb(click.Command):
    """A command whose help begins with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **more: Any) -> None:
        # Any: passed on to click as it came
        super().__init__(*args, **more)
        self.examples = tuple(examples)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Usage, what it does, examples, options."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        _write_examples(self.examples, ctx, formatter)
        self.format_options(ctx, formatter)


class VerbGroup(click.Group):
    """A group whose commands are imported when they are used.

    `lazy` maps a name to where it is under `apps/cli`, `module` or `module:function`, and to its
    one-line help; the help of the whole group is shown without importing any of them.
    """

    def __init__(
        self,
        *args: Any,
        lazy: dict[str, tuple[str, str]] | None = None,
        sections: dict[str, Sequence[str]] | None = None,
        aliases: dict[str, str] | None = None,
        examples: Sequence[str] = (),
        **more: Any,
    ) -> None:  # Any: passed on to click as it came
        super().__init__(*args, **more)
        self.lazy = lazy or {}
        self.sections = sections or {}
        self.aliases = aliases or {}
        self.examples = tuple(examples)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name every command, in the order they are shown."""
        return [*self.lazy, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, by its name or its alias."""
        name = self.aliases.get(cmd_name, cmd_name)
        if name in self.lazy:
            home, _, attribute = self.lazy[name][0].partition(":")
            module = importlib.import_module(f"holdfast.apps.cli.{home}")
            command: click.Command = getattr(module, attribute or "command")
            return command
        return super().get_command(ctx, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was probably meant."""
        name = args[0]
        known = [*self.list_commands(ctx), *self.aliases]
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            ctx.fail(f"There is no command {name[:40]!a}.{hint}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Usage, what it does, examples, commands, options."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        _write_examples(self.examples, ctx, formatter)
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options alone; `format_help` writes the commands."""
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section."""
        names = self.list_commands(ctx)
        for title, members in (self.sections or {"Commands": names}).items():
            with formatter.section(title):
                formatter.write_dl([(name, self._short(ctx, name)) for name in members])

    def _short(self, ctx: click.Context, name: str) -> str:
        also = "".join(f" (also: {alias})" for alias, real in self.aliases.items() if real == name)
        if name in self.lazy:
            return self.lazy[name][1] + also
        command = self.get_command(ctx, name)
        return (command.get_short_help_str(80) if command else "") + also


class RootGroup(VerbGroup):
    """The whole program: turns every ending into an exit code and a message."""

    def invoke(self, ctx: click.Context) -> Any:  # Any: click's own signature
        """Let Ctrl-C end a command quietly."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(Exit.INTERRUPTED) from None

    def main(self, *args: Any, **more: Any) -> NoReturn:  # Any: click's own signature
        """Run a command line and leave the process."""
        session = more.pop("obj", None) or Session()
        more |= {"standalone_mode": False, "obj": session}
        sys.exit(_run(super().main, session, args, more))


def _run(main: Any, session: Session, args: Any, more: Any) -> int:  # Any: click's own signature
    try:
        code = main(*args, **more)
    except HoldfastError as error:
        show_error(session, error)
        return exit_code_of(error)
    except click.exceptions.NoArgsIsHelpError as error:
        bare = error.ctx.parent is None
        click.echo(error.format_message(), err=not bare)
        return Exit.OK if bare else Exit.USAGE
    except click.ClickException as error:
        show_usage_error(session, error)
        return Exit.USAGE if isinstance(error, click.UsageError) else Exit.ERROR
    except click.Abort:
        return Exit.INTERRUPTED
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        session.screen.error("io", f"{what}.", ["Next: check the path, its owner and the disk."])
        return Exit.ERROR
    except Exception as error:
        show_crash(session, error)
        return Exit.ERROR
    return code if isinstance(code, int) else Exit.OK


def _write_examples(
    examples: Sequence[str], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    caller = Caller(ctx.find_root().info_name or "holdfast")
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                indent = " " * formatter.current_indent
                formatter.write(f"{indent}{caller.in_program(example)}\n")
