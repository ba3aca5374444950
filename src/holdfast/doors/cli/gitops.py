"""`holdfast gitops`: run the GitOps controller."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from holdfast.core.errors import ConfigurationError
from holdfast.core.redact import Secret
from holdfast.doors.cli import options
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.session import Session, pass_session

_LEDGER = "HOLDFAST_LEDGER"


class _Days(options.Duration):
    """A duration that may be whole days: `12h`, `90d`."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it, or say how to write it."""
        text = str(value)
        if text.endswith("d") and text[:-1].isascii() and text[:-1].isdigit():
            value = f"{int(text[:-1]) * 24}h"
        return super().convert(value, param, ctx)


@click.command(
    "gitops",
    cls=Verb,
    examples=[
        "holdfast gitops                                   # Applications of the cluster",
        "holdfast gitops --namespace team-a --db /var/lib/holdfast/gitops.db",
        "holdfast gitops -f applications/ --credentials /etc/holdfast/credentials",
        "holdfast gitops --ledger postgresql://db/holdfast --key-file /etc/holdfast/key",
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
    "--ledger",
    metavar="postgresql://…",
    help=f"Keep the ledger in PostgreSQL (default: in the store; also ${_LEDGER}).",
)
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False),
    help="Holds the key that marks Secrets (default: one of its own beside the store).",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False),
    help="Where copies of repositories are kept (default: beside the store).",
)
@click.option("--context", help="Context of the kubeconfig (default: the current one).")
@click.option("--cluster-name", default="", help="How notices name the cluster.")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NS",
    help="Follow the Applications of this namespace only; may be given more than once.",
)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True),
    help="Follow the Applications of a file or folder, not those of the cluster.",
)
@click.option(
    "--credentials",
    type=click.Path(exists=True, file_okay=False),
    help="With -f: a folder for each credential, as Kubernetes mounts Secrets.",
)
@click.option("--kustomize", metavar="PROGRAM", help="The kustomize program (default: on PATH).")
@click.option("--kubectl", metavar="PROGRAM", help="Render Kustomize with this kubectl instead.")
@click.option("--sops", metavar="PROGRAM", help="The sops program (default: on PATH).")
@click.option(
    "--allow-local", is_flag=True, help="Let Applications name repositories on this machine."
)
@click.option(
    "--allow-private-notifications",
    "private",
    is_flag=True,
    help="Let notices go to addresses inside the network.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Applications looked at at the same time.",
)
@click.option(
    "--resync",
    type=options.Duration(),
    default="10m",
    show_default=True,
    help="Look at everything of an application once in this time, even if nothing was heard.",
)
@click.option(
    "--keep",
    type=_Days(),
    default="90d",
    show_default=True,
    help="How long closed drifts and the journal are kept.",
)
@click.option("--lease-namespace", metavar="NS", help="Where the Lease is (default: the pod's).")
@click.option(
    "--elect/--no-elect",
    default=True,
    help="Act only while holding the Lease holdfast-gitops (default: yes).",
)
@click.option("--accept-rollback", is_flag=True, help="Start on a store file older than it was.")
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
    ledger: str | None,
    key_file: str | None,
    cache: str | None,
    context: str | None,
    cluster_name: str,
    namespaces: tuple[str, ...],
    files: tuple[str, ...],
    credentials: str | None,
    kustomize: str | None,
    kubectl: str | None,
    sops: str | None,
    allow_local: bool,
    private: bool,
    workers: int,
    resync: float,
    keep: float,
    lease_namespace: str | None,
    elect: bool,
    accept_rollback: bool,
    log_format: str | None,
    log_level: str,
) -> None:
    """Run the GitOps controller.

    Compares what repositories declare with what runs in the cluster, all the time, and handles
    drift as each Application says. It answers the control plane's HTTP API, with tokens from its
    store, in plain HTTP: put a proxy with TLS in front of it when it listens beyond loopback.
    Ends in order on SIGTERM; losing the Lease ends it with an error, so let something restart it.

    An Application that is deleted is followed no longer; what it applied stays as it is.
    """
    from holdfast.doors.sdk.settings import default_file

    try:
        from holdfast.doors.gitops.main import run
        from holdfast.doors.gitops.settings import Settings
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The GitOps controller needs {error.name}, which is not installed.",
            todo="pip install 'holdfast[gitops]'",
        ) from error

    if kustomize and kubectl:
        raise click.UsageError("--kustomize and --kubectl are for the same: give one.")
    if credentials and not files:
        raise click.UsageError("--credentials goes with -f; in a cluster they are Secrets.")
    path = Path(db) if db else default_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    address = ledger or os.environ.get(_LEDGER)
    run(
        Settings(
            db=path,
            host=host,
            port=port,
            ledger=Secret(address) if address else None,
            key_file=Path(key_file) if key_file else None,
            cache=Path(cache) if cache else None,
            context=context,
            cluster=cluster_name,
            namespaces=namespaces,
            files=tuple(map(Path, files)),
            credentials=Path(credentials) if credentials else None,
            kustomize=kustomize or kubectl,
            sops=sops,
            local=allow_local,
            private=private,
            workers=workers,
            resync=resync,
            keep=keep,
            lease_namespace=lease_namespace,
            elect=elect,
            accept_rollback=accept_rollback,
            log_format=log_format or ("text" if sys.stderr.isatty() else "json"),
            log_level=log_level,
            on_ready=lambda url: _greet(session, path, url),
        )
    )


def _greet(session: Session, db: Path, url: str) -> None:
    """Say where it listens, and how to make a token."""
    screen = session.screen
    screen.line(f"Holdfast GitOps listens on {url}")
    screen.line(f"  store      {db}")
    screen.line()
    screen.line("Make a token, in another terminal:")
    screen.line(f"  holdfast token create --name me --scope admin --db {db} -p PROJECT")
    screen.line("Then connect:")
    screen.line(f"  export HOLDFAST_URL={url} HOLDFAST_PROJECT=PROJECT HOLDFAST_TOKEN=ik_sdk_…")
    screen.next("holdfast status")
