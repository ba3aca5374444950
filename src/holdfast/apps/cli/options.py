"""Options that several verbs take, so that they are spelt and explained alike."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from holdfast.apps.cli.session import Session, pass_session

F = TypeVar("F", bound=Callable[..., Any])  # Any: whatever a verb takes
P = ParamSpec("P")
R = TypeVar("R")

MAX_DAYS = 30
"""A decision for a while lasts no longer."""
SINGLE_FORMATS = ("table", "json", "yaml", "name")
"""Formats of a verb whose result is one thing."""
CONNECTION_OPTIONS = ("url", "project")
"""Options that say where to connect, and that the next command needs again."""
LIST_FORMATS = ("table", "wide", "json", "yaml", "jsonl", "markdown", "name")


def connection(function: F) -> F:
    """Where to connect."""
    project = _session_option(
        "--project", "-p", type=ProjectSlug(), help="Project that workloads belong to."
    )
    url = "Control plane (https://…) or embedded store (sqlite:///PATH)."
    return _session_option("--url", help=url)(project(function))


def connected(
    *formats: str,
) -> Callable[[Callable[Concatenate[Session, P], R]], Callable[P, R]]:
    """Where to connect, and how to write the result; the verb is given the session."""
    return lambda function: connection(output(*formats)(pass_session(function)))


def output(*formats: str) -> Callable[[F], F]:
    """How to write the result; the first format is the default."""
    return lambda function: _session_option(
        "--output",
        "-o",
        type=click.Choice(formats),
        help=f"How to write the result (default: {formats[0]}).",
    )(colour(function))


def colour(function: F) -> F:
    """When to colour."""
    return _session_option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        help="When to colour (default: auto; NO_COLOR and CLICOLOR_FORCE count).",
    )(function)


def files(*, required: bool = True) -> Callable[[F], F]:
    """Where specs are read from."""

    def decorate(function: F) -> F:
        function = click.option(
            "--recursive", "-R", is_flag=True, help="Look into subfolders too."
        )(function)
        return click.option(
            "--file",
            "-f",
            "paths",
            multiple=True,
            required=required,
            metavar="FILE|DIR|-",
            help="Specs: YAML, JSON, a Python file, a folder of YAML and JSON, or - for stdin. "
            "May be repeated.",
        )(function)

    return decorate


def repeat_files(paths: Sequence[str], *, recursive: bool = False) -> str:
    """Write the same files again, for the next command."""
    files = " ".join(f"-f {'FILE' if path == '-' else shlex.quote(path)}" for path in paths)
    return f"{files} -R" if recursive else files


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of applications, or else of live workloads.

    A shell must neither hang nor see an error.
    """
    from holdfast.apps.cli.connect import connect, find_controller
    from holdfast.apps.cli.settings import resolve_settings
    from holdfast.core.errors import HoldfastError

    session = ctx.ensure_object(Session)
    try:
        # Without its warnings, which the shell would show.
        session.settings = resolve_settings(session.flags)
        with find_controller(session, once_within=2.0) as controller:
            if controller is not None:
                names = [each.id for each in controller.applications]
                short = [each.rpartition("/")[2] for each in names]
                return [name for name in (*short, *names) if name.startswith(incomplete)]
        with connect(session.settings, project=session.project, once_within=2.0) as client:
            names = [live.id.slug for live in client.list()]
    except HoldfastError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def db(function: F) -> F:
    """Which store file to administer."""

    def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if value is not None:  # only some verbs have a --db, and every one has this
            ctx.ensure_object(Session).caller.given["--url"] = f"sqlite:///{Path(value).absolute()}"
        return value

    return click.option(
        "--db",
        type=click.Path(dir_okay=False),
        callback=keep,
        help="Store file to work on, also beside a running server.",
    )(function)


def exit_code(function: F) -> F:
    """Let changes be seen in the exit code."""
    return click.option(
        "--exit-code",
        "--detailed-exitcode",
        "exit_code",
        is_flag=True,
        help="Exit 2 when something differs.",
    )(function)


class PolicyChoice(click.Choice[str]):
    """One of some words, which Python code spells `dry_run` or `DRY_RUN`."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Take either spelling."""
        return super().convert(str(value).lower().replace("_", "-"), param, ctx)


class ProjectSlug(click.ParamType[str]):
    """A name as projects have it. Checked here, so that nobody is asked about one that is none."""

    name = "slug"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Read it, or say how it is written."""
        from holdfast.core.names import canonical_slug, is_slug
        from holdfast.core.redact import credential_in, quote_text

        text = str(value)
        if not is_slug(text):
            like = canonical_slug(text) if text.isascii() and not credential_in(text) else ""
            hint = f"did you mean {like}?" if is_slug(like) else "such as ml-platform."
            self.fail(f"{quote_text(text)} is not a project slug; {hint}", param, ctx)
        return text


class Duration(click.ParamType[float]):
    """`90`, `30s`, `15m`: seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it, or say how to write it."""
        from holdfast.core.quantity import parse_duration

        if isinstance(value, float):
            return value
        seconds = parse_duration(str(value))
        if seconds is None or seconds <= 0:
            self.fail(
                f"{str(value)[:40]!a} is not a duration above 0, such as 90s or 15m", param, ctx
            )
        return float(seconds)


class Days(Duration):
    """A duration that may be whole days: `12h`, `90d`."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it, or say how to write it."""
        text = str(value)
        if text.endswith("d") and text[:-1].isascii() and text[:-1].isdigit():
            value = f"{int(text[:-1]) * 24}h"
        return super().convert(value, param, ctx)


class DecisionPeriod(Days):
    """How long what a person decides may count: `2h`, `7d`."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it, or say how to write it."""
        seconds = super().convert(value, param, ctx)
        if not 1 <= seconds <= MAX_DAYS * 86_400:
            self.fail(
                f"{str(value)[:40]!a} is not between a second and {MAX_DAYS} days", param, ctx
            )
        return seconds


def for_duration(default: str | None = None) -> Callable[[F], F]:
    """For how long something counts. Nothing is for ever: that belongs in Git."""
    return click.option(
        "--for",
        "seconds",
        type=DecisionPeriod(),
        required=default is None,
        show_default=default is not None,
        callback=lambda ctx, param, value: value and int(value),
        metavar="TIME",
        help=f"How long, such as 2h or 7d; {MAX_DAYS} days at most.",
        **_default_keyword(default),
    )


def comment(*, required: bool = False) -> Callable[[F], F]:
    """Why, for the record."""
    return click.option(
        "--comment",
        required=required,
        metavar="TEXT",
        help="Why; kept in the history.",
        **_default_keyword(None if required else ""),
    )


def _default_keyword(value: str | None) -> dict[str, Any]:  # Any: click's own keywords
    """Give a default, or none at all: click takes None for a value that was given."""
    return {} if value is None else {"default": value}


def timeout(default: str) -> Callable[[F], F]:
    """How long to wait."""
    return click.option(
        "--timeout",
        type=Duration(),
        default=default,
        show_default=True,
        help="How long to wait, such as 90s or 15m. Ends with exit code 124.",
    )


def _session_option(*names: str, **more: Any) -> Callable[[F], F]:  # Any: click's own keywords
    """An option whose value goes to the session, not to the verb."""

    def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None and param.name:
            session = ctx.ensure_object(Session)
            session.flags[param.name] = value
            if param.name in CONNECTION_OPTIONS:
                session.caller.given[f"--{param.name}"] = value

    # Eager, so that an error in another option is already shown as asked.
    return click.option(*names, callback=keep, expose_value=False, is_eager=True, **more)
