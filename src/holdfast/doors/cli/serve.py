"""`holdfast serve`: run the control plane, and the workloads, on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.core.errors import ConfigurationError
from holdfast.doors.cli import options
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.session import Session, pass_session

if TYPE_CHECKING:
    from holdfast.doors.server.config import ServerConfig


@click.command(
    "serve",
    cls=Verb,
    examples=[
        "holdfast serve",
        "holdfast serve --db /var/lib/holdfast/holdfast.db --port 8400",
        "holdfast serve --host 0.0.0.0 --no-run       # control plane alone, behind TLS",
    ],
)
@click.option("--db", type=click.Path(dir_okay=False), help="Store file (default: the user's own).")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8400,
    show_default=True,
    help="Port to listen on; 0 lets the system choose.",
)
@click.option(
    "--run/--no-run",
    default=None,
    help="Start workloads as local processes (default: only when listening on loopback).",
)
@click.option("--home", type=click.Path(file_okay=False), help="Where logs of workloads are kept.")
@click.option(
    "--secrets-dir", type=click.Path(file_okay=False), help="Where secrets are read from."
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0.1),
    help="Requests a second for each token (default: no limit on loopback, 200 beyond).",
)
@click.option("--accept-rollback", is_flag=True, help="Start on a store file older than it was.")
@click.option("--leave-running", is_flag=True, help="Leave processes alive when the server stops.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="How to log (default: text on a terminal, else json).",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much to log.",
)
@options.colour
@pass_session
def command(
    session: Session,
    db: str | None,
    host: str,
    port: int,
    run: bool | None,
    home: str | None,
    secrets_dir: str | None,
    rate: float | None,
    accept_rollback: bool,
    leave_running: bool,
    log_format: str | None,
    log_level: str,
) -> None:
    """Run the control plane, and the workloads, on this machine.

    Stops in order on Ctrl-C: requests under way end, then the processes are stopped. It speaks
    plain HTTP, so put a proxy with TLS in front of it when it listens beyond loopback.
    """
    from holdfast.doors.sdk.settings import default_file

    try:
        from holdfast.doors.server.config import Limits, ServerConfig
        from holdfast.doors.server.main import serve
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"Serving needs {error.name}, which is not installed.",
            todo="pip install 'holdfast[server]'",
        ) from error

    path = Path(db) if db else default_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    config = ServerConfig(
        db=path,
        host=host,
        port=port,
        run=run,
        home=Path(home) if home else None,
        secrets_dir=Path(secrets_dir) if secrets_dir else None,
        accept_rollback=accept_rollback,
        leave_running=leave_running,
        log_format=log_format or ("text" if sys.stderr.isatty() else "json"),
        log_level=log_level,
        limits=Limits(rate=rate),
        on_ready=lambda url: _greet(session, config, url),
    )
    serve(config)


def _greet(session: Session, config: ServerConfig, url: str) -> None:
    """Say where it listens, how to make a token, and what to do next."""
    screen = session.screen
    screen.line(f"Holdfast listens on {url}")
    screen.line(f"  store      {config.db}")
    screen.line(f"  workloads  {'run here' if config.runs else 'are kept, not run (--run)'}")
    screen.line()
    screen.line("Make a token, in another terminal:")
    screen.line(f"  holdfast token create --name me --scope admin --db {config.db} -p PROJECT")
    screen.line("Then connect:")
    screen.line(f"  export HOLDFAST_URL={url} HOLDFAST_PROJECT=PROJECT HOLDFAST_TOKEN=ik_sdk_…")
    screen.next("holdfast doctor")
