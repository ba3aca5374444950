"""`holdfast operator`: run the Kubernetes operator."""

from __future__ import annotations

import sys
from typing import Any

import click

from holdfast.apps.cli import daemon, options
from holdfast.apps.cli.group import Verb
from holdfast.core.errors import requires_extra


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
@daemon.context_option
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
    "--metrics-address",
    default=":8080",
    show_default=True,
    help="Where /metrics, /healthz and /readyz answer; empty for nowhere.",
)
@daemon.lease_namespace_option
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
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:  # Any: fields of OperatorSettings
    """Run the Kubernetes operator.

    Keeps the children of every InferenceService as declared. It reaches the cluster as kubectl
    does, or as the pod it runs in. Ends in order on SIGTERM; losing the Lease ends it with an
    error, so let something restart it.
    """
    from holdfast.apps.cli.install import gateway_of

    with requires_extra("kubernetes", "The operator"):
        from holdfast.apps.operator.main import run
        from holdfast.apps.operator.settings import OperatorSettings

    given["gateway"] = gateway_of(ctx, given["gateway"], given.pop("domain"))
    sys.exit(run(OperatorSettings(**given, log_format=daemon.choose_log_format())))
