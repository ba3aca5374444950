"""`holdfast gitops`: run the GitOps controller."""

from __future__ import annotations

import os
from pathlib import Path

import click

from holdfast.apps.cli import daemon, options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.core.errors import requires_extra
from holdfast.core.gitops.application import AnnotationHolds
from holdfast.core.redact import Secret

_LEDGER_VARIABLE = "HOLDFAST_LEDGER"


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
@daemon.listen_options
@click.option(
    "--ledger",
    metavar="postgresql://…",
    help=f"Keep the ledger in PostgreSQL (default: in the store; also ${_LEDGER_VARIABLE}).",
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
@daemon.context_option
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
    "--allow-unconfined-renderer",
    "unconfined",
    is_flag=True,
    help="Run kustomize and sops even where the network cannot be taken away from them.",
)
@click.option(
    "--allow-local",
    is_flag=True,
    help="Let Applications name repositories and forges on this machine: paths and loopback.",
)
@click.option(
    "--allow-unbound-credentials",
    "unbound",
    is_flag=True,
    help="Let Secrets without the annotation holdfast.dev/hosts be sent to any host.",
)
@click.option(
    "--allow-private-notifications",
    "private",
    is_flag=True,
    help="Let notices go to addresses inside the network.",
)
@click.option(
    "--annotation-holds",
    type=click.Choice([each.value for each in AnnotationHolds]),
    default=AnnotationHolds.LIMITED.value,
    show_default=True,
    help="Whether holdfast.dev/paused-until on an object holds it: 24 hours a week, or never.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="How many applications are looked at in parallel.",
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
    type=options.Days(),
    default="90d",
    show_default=True,
    help="How long closed drifts and the journal are kept.",
)
@daemon.lease_namespace_option
@click.option(
    "--elect/--no-elect",
    default=True,
    help="Act only while holding the Lease holdfast-gitops (default: yes). Without, it is not "
    "taken, and whoever holds it is still given way to.",
)
@daemon.accept_rollback_option
@daemon.logging_options
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
    unconfined: bool,
    allow_local: bool,
    unbound: bool,
    private: bool,
    annotation_holds: str,
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
    with requires_extra("gitops", "The GitOps controller"):
        from holdfast.apps.gitops.main import run_gitops
        from holdfast.apps.gitops.settings import GitopsSettings

    if kustomize and kubectl:
        raise click.UsageError("--kustomize and --kubectl do the same: give one of them.")
    if credentials and not files:
        raise click.UsageError("Without -f they are Secrets in the cluster: drop --credentials.")
    path = daemon.store_path(db)
    address = ledger or os.environ.get(_LEDGER_VARIABLE)
    run_gitops(
        GitopsSettings(
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
            unconfined=unconfined,
            local=allow_local,
            unbound=unbound,
            private=private,
            annotation_holds=AnnotationHolds(annotation_holds),
            workers=workers,
            resync=resync,
            keep=keep,
            lease_namespace=lease_namespace,
            elect=elect,
            accept_rollback=accept_rollback,
            log_format=daemon.choose_log_format(log_format),
            log_level=log_level,
            on_ready=lambda url: _show_greeting(session, path, url),
        )
    )


def _show_greeting(session: Session, db: Path, url: str) -> None:
    """Say where it listens, and how to make a token."""
    screen = session.screen
    screen.line(f"Holdfast GitOps listens on {url}")
    screen.line(f"  store      {db}")
    daemon.show_how_to_connect(screen, db, url, follow="holdfast status")
