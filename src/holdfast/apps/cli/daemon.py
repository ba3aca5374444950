"""What the verbs that run until they are stopped share: `serve`, `gitops` and `operator`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.apps.cli.screen import Screen

F = TypeVar("F", bound=Callable[..., Any])  # Any: whatever a verb takes


def listen_options(function: F) -> F:
    """Which store to open and where to listen."""
    for option in (
        click.option(
            "--port",
            type=click.IntRange(0, 65_535),
            default=8400,
            show_default=True,
            help="Port to listen on; 0 lets the system choose.",
        ),
        click.option(
            "--host", default="127.0.0.1", show_default=True, help="Address to listen on."
        ),
        click.option(
            "--db",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Store file (default: the user's own).",
        ),
    ):
        function = option(function)
    return function


def accept_rollback_option(function: F) -> F:
    """Whether a store from a backup may be used."""
    return click.option(
        "--accept-rollback", is_flag=True, help="Start on a store file older than it was."
    )(function)


def logging_options(function: F) -> F:
    """How to log, and how much."""
    function = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="How much to log.",
    )(function)
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        help="How to log (default: text on a terminal, else json).",
    )(function)


def context_option(function: F) -> F:
    """Which cluster."""
    return click.option("--context", help="Context of the kubeconfig (default: the current one).")(
        function
    )


def lease_namespace_option(function: F) -> F:
    """Where the Lease is."""
    return click.option(
        "--lease-namespace",
        metavar="NS",
        help="Where the Lease is (default: where the pod is, or holdfast-system).",
    )(function)


def choose_log_format(chosen: str | None = None) -> str:
    """Text on a terminal, unless another format was chosen."""
    return chosen or ("text" if sys.stderr.isatty() else "json")


def store_path(chosen: Path | None) -> Path:
    """Return the store to open, and make its folder."""
    from holdfast.apps.sdk.settings import default_store_file

    path = chosen or default_store_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def show_how_to_connect(screen: Screen, db: Path, url: str, *, follow: str) -> None:
    """Say how to make a token, and what to do next."""
    screen.lines(
        [
            "",
            "Make a token, in another terminal:",
            f"  holdfast token create --name me --scope admin --db {db} -p PROJECT",
            "Then connect:",
            f"  export HOLDFAST_URL={url} HOLDFAST_PROJECT=PROJECT HOLDFAST_TOKEN=ik_sdk_…",
        ]
    )
    screen.next(follow)
