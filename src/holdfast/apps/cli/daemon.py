"""The verbs that run until they are stopped: `holdfast serve`, `operator` and `gitops`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.session import Session, pass_session
from holdfast.core.errors import requires_extra
from holdfast.core.gitops.application import AnnotationHolds
from holdfast.core.model import DEFAULT_HUB
from holdfast.core.redact import Secret

if TYPE_CHECKING:
    from holdfast.apps.server.config import ClusterLocation

F = TypeVar("F", bound=Callable[..., Any])  # Any: whatever a verb takes
_LEDGER_VARIABLE = "HOLDFAST_LEDGER"
_PEOPLE_VARIABLE = "HOLDFAST_PEOPLE"
BASE_URL_VARIABLE = "HOLDFAST_BASE_URL"
_FOLDER = click.Path(file_okay=False, path_type=Path)


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


def identity_options(function: F) -> F:
    """Who is let in without a token, and by which certificate this server is known."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    for option in (
        click.option(
            "--tls-key",
            type=file,
            help="Key of the certificate, PEM, without a password.",
        ),
        click.option(
            "--tls-cert",
            type=file,
            help="Speak TLS with this PEM certificate; both files are read anew when they change.",
        ),
        click.option(
            "--people",
            type=file,
            envvar=_PEOPLE_VARIABLE,
            help="People file: issuers of OpenID Connect, and what their people and CI jobs may "
            f"do (also ${_PEOPLE_VARIABLE}).",
        ),
    ):
        function = option(function)
    return function


def check_tls_options(given: dict[str, Any]) -> None:  # Any: options of a verb
    """Refuse one half of a certificate."""
    if bool(given["tls_cert"]) != bool(given["tls_key"]):
        raise click.UsageError("--tls-cert and --tls-key go together.")


def origin_options(function: F) -> F:
    """By which name browsers reach it, and which other pages may read its answers."""
    function = click.option(
        "--cors-origin",
        "cors_origins",
        multiple=True,
        metavar="ORIGIN",
        help="Let scripts of this origin read what the API and workloads answer, with a token; may "
        "be given more than once (default: none).",
    )(function)
    return click.option(
        "--base-url",
        envvar=BASE_URL_VARIABLE,
        default="",
        metavar="URL",
        help="Where browsers reach it, as https://holdfast.example.com: links in notices begin so, "
        f"and no other Host is answered (also ${BASE_URL_VARIABLE}).",
    )(function)


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


def show_greeting(screen: Screen, title: str, db: Path, url: str, *more: str, follow: str) -> None:
    """Say where it listens, how to make a token, and what to do next."""
    screen.lines(
        [
            f"{title} listens on {url}",
            f"  store      {db}",
            *more,
            "",
            "Make a token, in another terminal:",
            f"  holdfast token create --name me --scope admin --db {db} -p PROJECT",
            "Then connect:",
            f"  export HOLDFAST_URL={url} HOLDFAST_PROJECT=PROJECT HOLDFAST_TOKEN=ik_sdk_…",
        ]
    )
    screen.next(follow)


@click.command(
    "serve",
    cls=Verb,
    examples=[
        "holdfast serve",
        "holdfast serve --db /var/lib/holdfast/holdfast.db --port 8400",
        "holdfast serve --host 0.0.0.0 --no-run --tls-cert tls.crt --tls-key tls.key",
        "holdfast serve --target kubernetes://prod/   # workloads are InferenceServices",
    ],
)
@listen_options
@origin_options
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
    help="Where a workload of the cluster answers, as http://{name}-svc.{namespace}.svc:8000 "
    "(default: its pods).",
)
@click.option("--home", type=_FOLDER, help="Where logs of workloads are kept.")
@click.option("--secrets-dir", type=_FOLDER, help="Where secrets are read from.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0.1),
    help="Requests a second for each token (default: no limit on loopback, 200 beyond).",
)
@identity_options
@accept_rollback_option
@click.option("--leave-running", is_flag=True, help="Leave processes alive when the server stops.")
@logging_options
@options.colour
@pass_session
def serve(session: Session, /, **given: Any) -> None:  # Any: each is a field of ServerConfig
    """Run the control plane, and the workloads, on this machine.

    Stops in order on Ctrl-C: requests under way end, then the processes are stopped. It speaks
    plain HTTP unless it has a certificate (--tls-cert), so give it one, or put a proxy with TLS in
    front of it, when it listens beyond loopback.

    With --target it runs none: workloads are InferenceService objects, and requests to them go
    to their pods. Each project has the namespace of its name unless the address names one.
    """
    with requires_extra("server", "Serving"):
        from holdfast.apps.server.config import ServerConfig, ServerLimits
        from holdfast.apps.server.main import serve as run_server

    check_tls_options(given)
    given |= {
        "db": store_path(given["db"]),
        "cluster": _cluster_target(given.pop("target"), given.pop("workload_url"), given["run"]),
        "limits": ServerLimits(rate=given.pop("rate")),
        "log_format": choose_log_format(given["log_format"]),
    }

    def on_ready(url: str) -> None:
        runs = "run here" if config.runs else "are kept, not run (--run)"
        workloads = f"  workloads  {'are kept by the cluster' if config.cluster else runs}"
        show_greeting(
            session.screen, "Holdfast", config.db, url, workloads, follow="holdfast doctor"
        )

    config = ServerConfig(**given, on_ready=on_ready)
    if config.shared_runner and not config.runs:
        raise click.UsageError("--shared-runner is for a server that runs workloads (--run).")
    run_server(config)


def _cluster_target(
    target: str | None, workload_url: str | None, run: bool | None
) -> ClusterLocation | None:
    """Read the address of the cluster that is to keep the workloads."""
    from holdfast.apps.sdk.settings import resolve_connection
    from holdfast.apps.server.config import ClusterLocation

    if target is None:
        if workload_url is not None:
            raise click.UsageError("--workload-url goes with --target.")
        return None
    if run:
        raise click.UsageError("--run starts workloads here; with --target the cluster does.")
    connection = resolve_connection(target, environ={})
    if connection.scheme != "kubernetes":
        raise click.UsageError("--target takes kubernetes://CONTEXT/NAMESPACE.")
    try:
        filled = (workload_url or "").format(name="name", namespace="namespace")
    except (KeyError, IndexError, ValueError):
        filled = ""
    if workload_url is not None and not filled.startswith(("http://", "https://")):
        raise click.UsageError(
            "--workload-url is an http:// address with {name} and {namespace} to be filled in."
        )
    return ClusterLocation(
        context=connection.context,
        namespace=connection.namespace,
        workload_url=workload_url.rstrip("/") if workload_url else None,
    )


@click.command(
    "operator",
    cls=Verb,
    examples=[
        "holdfast operator                                 # in a pod, or by the kubeconfig",
        "holdfast operator --namespace team-a --namespace team-b",
        "holdfast operator --gateway infra/inference --domain models.example.com",
        "holdfast operator --once                          # one look at everything",
    ],
)
@context_option
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NS",
    help="Look after this namespace only; may be given more than once (default: all).",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=16,
    show_default=True,
    help="How many services are looked at in parallel.",
)
@click.option(
    "--resync",
    type=options.Duration(),
    default="10m",
    show_default=True,
    help="Look at every service once in this time, even if nothing was heard of it.",
)
@click.option("--gateway", metavar="NS/NAME", help="Gateway that routes attach to.")
@click.option("--domain", help="Domain under which the hosts of services are; needs --gateway.")
@click.option("--prometheus", metavar="URL", help="Where the analysis of canaries asks.")
@click.option(
    "--page-url",
    default="",
    metavar="URL",
    help="Where people reach the page of a holdfast serve over this cluster, such as "
    "https://holdfast.example.com. Events of services link to it.",
)
@click.option(
    "--downloader-image",
    metavar="IMAGE",
    help="Image with this program, for the Jobs that download models into caches (default: the "
    "image of the pod that it runs in).",
)
@click.option(
    "--model-heads/--no-model-heads",
    default=True,
    help="Ask hubs every ten minutes whether the branches of pinned models moved on (default: "
    "yes). Without, no service has the condition ModelMoved.",
)
@click.option(
    "--model-hub",
    "model_hubs",
    multiple=True,
    default=(DEFAULT_HUB,),
    show_default=True,
    metavar="URL",
    help="Hub that may be asked for that; may be given more than once. A service whose HF_ENDPOINT "
    "is another one is not asked about.",
)
@click.option(
    "--metrics-address",
    default=":8080",
    show_default=True,
    help="Where /metrics, /healthz and /readyz answer; empty for nowhere.",
)
@lease_namespace_option
@click.option(
    "--leader-election/--no-leader-election",
    "elect",
    default=True,
    help="Act only while holding the Lease holdfast-operator (default: yes). Without, it is not "
    "taken, and whoever holds it is still given way to.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Look at everything once, then end; refused while another operator is at work.",
)
@logging_options
@click.pass_context
def operator(ctx: click.Context, /, **given: Any) -> None:  # Any: fields of OperatorSettings
    """Run the Kubernetes operator.

    Keeps the children of every InferenceService as declared. It reaches the cluster as kubectl
    does, or as the pod it runs in. Ends in order on SIGTERM; losing the Lease ends it with an
    error, so let something restart it.
    """
    from holdfast.apps.cli.install import gateway_of, origin_of

    with requires_extra("kubernetes", "The operator"):
        from holdfast.apps.operator.main import run as run_operator
        from holdfast.apps.operator.settings import OperatorSettings

    given["gateway"] = gateway_of(ctx, given["gateway"], given.pop("domain"))
    given["log_format"] = choose_log_format(given["log_format"])
    if given["page_url"]:
        given["page_url"] = origin_of(ctx, "--page-url", given["page_url"])
    for url in given["model_hubs"]:
        if not re.fullmatch(r"https?://[!-~]+", url) or "@" in url:
            raise click.UsageError(
                "--model-hub is no http:// or https:// address without credentials."
            )
    sys.exit(run_operator(OperatorSettings(**given)))


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
@listen_options
@origin_options
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
@context_option
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
@identity_options
@lease_namespace_option
@click.option(
    "--elect/--no-elect",
    default=True,
    help="Act only while holding the Lease holdfast-gitops (default: yes). Without, it is not "
    "taken, and whoever holds it is still given way to.",
)
@accept_rollback_option
@logging_options
@options.colour
@pass_session
def gitops(session: Session, /, **given: Any) -> None:  # Any: each is a field of GitopsSettings
    """Run the GitOps controller.

    Compares what repositories declare with what runs in the cluster, all the time, and handles
    drift as each Application says. It answers the control plane's HTTP API, with tokens from its
    store and with the people of a people file. Give it a certificate (--tls-cert), or put a proxy
    with TLS in front of it, when it listens beyond loopback.
    Ends in order on SIGTERM; losing the Lease ends it with an error, so let something restart it.

    An Application that is deleted is followed no longer; what it applied stays as it is.
    """
    with requires_extra("gitops", "The GitOps controller"):
        from holdfast.apps.gitops.main import run_gitops
        from holdfast.apps.gitops.settings import GitopsSettings

    check_tls_options(given)
    kubectl = given.pop("kubectl")
    if given["kustomize"] and kubectl:
        raise click.UsageError("--kustomize and --kubectl do the same: give one of them.")
    if given["credentials"] and not given["files"]:
        raise click.UsageError("Without -f they are Secrets in the cluster: drop --credentials.")
    ledger = given["ledger"] or os.environ.get(_LEDGER_VARIABLE)
    db = store_path(given["db"])
    given |= {
        "db": db,
        "ledger": Secret(ledger) if ledger else None,
        "kustomize": given["kustomize"] or kubectl,
        "annotation_holds": AnnotationHolds(given["annotation_holds"]),
        "log_format": choose_log_format(given["log_format"]),
    }

    def on_ready(url: str) -> None:
        show_greeting(session.screen, "Holdfast GitOps", db, url, follow="holdfast status")

    run_gitops(GitopsSettings(**given, on_ready=on_ready))
