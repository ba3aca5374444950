"""`holdfast config`: what is set, where it came from, and how to set it."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb, VerbGroup
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.settings import NAMES, PROJECT_FILE, project_file, read_file, user_file
from holdfast.apps.sdk import settings
from holdfast.core.errors import ValidationError
from holdfast.core.names import require_slug
from holdfast.core.redact import redact


@click.group(
    "config",
    cls=VerbGroup,
    examples=[
        "holdfast config view --show-origin",
        "holdfast config set project acme",
        "holdfast config set url https://holdfast.acme.example --local",
    ],
)
def command() -> None:
    """Show and change settings.

    Nearest first: flags, HOLDFAST_* variables, holdfast.toml in this folder or above, the
    user's config.toml, INFERENCEKEY_* variables, defaults.
    """


@command.command("view", cls=Verb, examples=["holdfast config view --show-origin"])
@click.option("--show-origin", is_flag=True, help="Say where each value comes from.")
@options.connected("table", "json", "yaml")
def view(session: Session, show_origin: bool) -> None:
    """Show the settings in force. A token is never shown."""
    screen = session.screen
    rows, items = [], []
    for name in NAMES:
        setting = session.settings.found.get(name)
        value = _mask_token(name, setting.value) if setting else _default_value(name)
        origin = setting.origin if setting else "default"
        rows.append([name, value, *([origin] if show_origin else [])])
        items.append({"name": name, "value": value, "origin": origin})
    if screen.for_people:
        screen.table(["SETTING", "VALUE", *(["FROM"] if show_origin else [])], rows)
        following = "set NAME VALUE" if show_origin else "view --show-origin"
        screen.next(f"holdfast config {following}")
    else:
        screen.document("Config", {"settings": items})


@command.command(
    "set",
    cls=Verb,
    examples=[
        "holdfast config set project acme",
        "holdfast config set url http://127.0.0.1:8400 --local",
        "holdfast config set token - < token.txt",
    ],
)
@click.argument("name", type=click.Choice(NAMES))
@click.argument("value")
@click.option("--local", is_flag=True, help=f"Write {PROJECT_FILE} here instead of the user file.")
@options.colour
@pass_session
def set_value(session: Session, name: str, value: str, local: bool) -> None:
    """Write one setting. A value of - is read from stdin, which keeps a token off the screen."""
    if value == "-":
        value = sys.stdin.readline().strip()
    if not value or not value.isprintable():
        raise ValidationError(f"The value of {name} is empty or has control characters.")
    if name == "project":
        value = require_slug(value, field="project")
    if name == "url":
        settings.resolve_connection(value, environ={})  # raises for what no command could use
    if name == "token" and local:
        raise ValidationError(
            f"A token does not belong in {PROJECT_FILE}, which is shared.",
            hint="Leave --local out, or set HOLDFAST_TOKEN.",
        )
    path = Path(PROJECT_FILE) if local else user_file()
    values = read_file(path) if path.is_file() else {}
    _write_settings(path, values | {name: value})
    session.screen.line(f"{name} is now {_mask_token(name, value)} in {path}.")
    session.screen.next("holdfast doctor")


@command.command("path", cls=Verb, examples=["$EDITOR $(holdfast config path)"])
@options.colour
@pass_session
def path(session: Session) -> None:
    """Show which settings file is in use: the project's if there is one, else the user's."""
    session.screen.line(str(project_file(Path.cwd()) or user_file()))


def _write_settings(path: Path, values: dict[str, str]) -> None:
    """Replace the file in one step, readable by its owner alone when it holds a token."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items()
    ]
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    mode = 0o600 if "token" in values else mode
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _mask_token(name: str, value: str) -> str:
    masked = redact(value)
    return "(set)" if name == "token" and masked == value else masked


def _default_value(name: str) -> str:
    if name == "url":
        from holdfast.apps.cli.connect import default_url

        return default_url()
    return "(not set)"
