"""`holdfast version`: what is installed. Imports nothing that is slow."""

from __future__ import annotations

import platform

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.version import __version__


@click.command(
    "version",
    cls=Verb,
    examples=["holdfast version", "holdfast version -o json"],
)
@options.output("table", "json", "yaml")
@pass_session
def command(session: Session) -> None:
    """Show the version."""
    screen = session.screen
    if screen.for_people:
        screen.line(f"holdfast {__version__} (Python {platform.python_version()})")
    else:
        screen.document("Version", {"version": __version__, "python": platform.python_version()})
