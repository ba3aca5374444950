"""`holdfast gitops`: run the GitOps controller."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

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
    type=click.Path(dir_okay=False, path_type=Path),
    help="Holds the key that marks Secrets (default: one of its own beside the store).",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where copies of repositories are kept (default: beside the store).",
)
@daemon.context_option
@click.option("--cluster-name", "cluster", default="", help="How notices name the cluster.")
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
    type=click.Path(exists=True, path_type=Path),
    help="Follow the Applications of a file or folder, not those of the cluster.",
)
@click.option(
    "--credentials",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
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
    "local",
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
def command(session: Session, /, **given: Any) -> None:  # Any: each is a field of GitopsSettings
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

    kubectl = given.pop("kubectl")
    if given["kustomize"] and kubectl:
        raise click.UsageError("--kustomize and --kubectl do the same: give one of them.")
    if given["credentials"] and not given["files"]:
        raise click.UsageError("Without -f they are Secrets in the cluster: drop --credentials.")
    ledger = given["ledger"] or os.environ.get(_LEDGER_VARIABLE)
    db = daemon.store_path(given["db"])
    given |= {
        "db": db,
        "ledger": Secret(ledger) if ledger else None,
        "kustomize": given["kustomize"] or kubectl,
        "annotation_holds": AnnotationHolds(given["annotation_holds"]),
        "log_format": daemon.choose_log_format(given["log_format"]),
    }
    run_gitops(GitopsSettings(**given, on_ready=lambda url: _show_greeting(session, db, url)))


def _show_greeting(session: Session, db: Path, url: str) -> None:
    """Say where it listens, and how to make a token."""
    screen = session.screen
    screen.line(f"Holdfast GitOps listens on {url}")
    screen.line(f"  store      {db}")
    daemon.show_how_to_connect(screen, db, url, follow="holdfast status")
