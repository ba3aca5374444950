"""`holdfast serve`: run the control plane, and the workloads on this machine or in a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.apps.cli import daemon, options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.core.errors import requires_extra

if TYPE_CHECKING:
    from holdfast.apps.server.config import ClusterLocation, ServerConfig

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(
    "serve",
    cls=Verb,
    examples=[
        "holdfast serve",
        "holdfast serve --db /var/lib/holdfast/holdfast.db --port 8400",
        "holdfast serve --host 0.0.0.0 --no-run       # control plane alone, behind TLS",
        "holdfast serve --target kubernetes://prod/   # workloads are InferenceServices",
    ],
)
@daemon.listen_options
@click.option(
    "--run/--no-run",
    default=None,
    help="Start workloads as local processes (default: only when listening on loopback).",
)
@click.option(
    "--shared-runner",
    is_flag=True,
    help="Run workloads of several projects: a command of one can read the others' secrets.",
)
@click.option(
    "--target",
    metavar="kubernetes://CONTEXT/NAMESPACE",
    help="Keep workloads in a cluster; the store then has projects and tokens alone.",
)
@click.option(
    "--workload-url",
    metavar="TEMPLATE",
    help="Where a workload of the cluster answers (default: "
    "http://{name}-svc.{namespace}.svc:8000).",
)
@click.option("--home", type=_FOLDER, help="Where logs of workloads are kept.")
@click.option("--secrets-dir", type=_FOLDER, help="Where secrets are read from.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0.1),
    help="Requests a second for each token (default: no limit on loopback, 200 beyond).",
)
@daemon.accept_rollback_option
@click.option("--leave-running", is_flag=True, help="Leave processes alive when the server stops.")
@daemon.logging_options
@options.colour
@pass_session
def command(session: Session, /, **given: Any) -> None:  # Any: each is a field of ServerConfig
    """Run the control plane, and the workloads, on this machine.

    Stops in order on Ctrl-C: requests under way end, then the processes are stopped. It speaks
    plain HTTP, so put a proxy with TLS in front of it when it listens beyond loopback.

    With --target it runs none: workloads are InferenceService objects, and requests to them go
    to their Services. Each project has the namespace of its name unless the address names one.
    """
    with requires_extra("server", "Serving"):
        from holdfast.apps.server.config import ServerConfig, ServerLimits
        from holdfast.apps.server.main import serve

    given |= {
        "db": daemon.store_path(given["db"]),
        "cluster": _cluster_target(given.pop("target"), given.pop("workload_url"), given["run"]),
        "limits": ServerLimits(rate=given.pop("rate")),
        "log_format": daemon.choose_log_format(given["log_format"]),
    }
    config = ServerConfig(**given, on_ready=lambda url: _show_greeting(session, config, url))
    if config.shared_runner and not config.runs:
        raise click.UsageError("--shared-runner is for a server that runs workloads (--run).")
    serve(config)


def _cluster_target(
    target: str | None, workload_url: str | None, run: bool | None
) -> ClusterLocation | None:
    """Read the address of the cluster that is to keep the workloads."""
    from holdfast.apps.sdk.settings import resolve_connection
    from holdfast.apps.server.config import WORKLOAD_URL, ClusterLocation

    if target is None:
        if workload_url is not None:
            raise click.UsageError("--workload-url goes with --target.")
        return None
    if run:
        raise click.UsageError("--run starts workloads here; with --target the cluster does.")
    connection = resolve_connection(target, environ={})
    if connection.scheme != "kubernetes":
        raise click.UsageError("--target takes kubernetes://CONTEXT/NAMESPACE.")
    url = workload_url or WORKLOAD_URL
    try:
        filled = url.format(name="name", namespace="namespace")
    except (KeyError, IndexError, ValueError):
        filled = ""
    if not filled.startswith(("http://", "https://")):
        raise click.UsageError(
            "--workload-url is an http:// address with {name} and {namespace} to be filled in."
        )
    return ClusterLocation(
        context=connection.context, namespace=connection.namespace, workload_url=url.rstrip("/")
    )


def _show_greeting(session: Session, config: ServerConfig, url: str) -> None:
    """Say where it listens, how to make a token, and what to do next."""
    screen = session.screen
    screen.line(f"Holdfast listens on {url}")
    screen.line(f"  store      {config.db}")
    runs = "run here" if config.runs else "are kept, not run (--run)"
    screen.line(f"  workloads  {'are kept by the cluster' if config.cluster else runs}")
    daemon.show_how_to_connect(screen, config.db, url, follow="holdfast doctor")
