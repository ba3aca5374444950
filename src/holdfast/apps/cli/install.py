"""`holdfast install --export`: the controllers as manifests, for whoever applies them."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from typing import Any

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.output import show_documents
from holdfast.core.model import DEFAULT_HUB
from holdfast.core.page_links import parse_origin
from holdfast.core.service.children import Gateway
from holdfast.install.settings import (
    DEFAULT_IMAGE,
    DEFAULT_LOG_LEVEL,
    DEFAULT_NAMESPACE,
    DEFAULT_RUNBOOKS,
    STORAGE_PATTERN,
    GitopsInstallation,
    Installation,
)

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SECRET = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?")


@click.command(
    "install",
    cls=Verb,
    examples=[
        "holdfast install --export | kubectl apply --server-side -f -",
        "holdfast install --export --image registry.example/holdfast:1 > holdfast.yaml",
        "holdfast install --export --watch-namespace chat --watch-namespace embed",
        "holdfast install --export --gitops --gitops-writes --with-monitoring",
    ],
)
@click.option("--export", is_flag=True, help="Print the manifests.")
@click.option(
    "--namespace", "-n", default=DEFAULT_NAMESPACE, show_default=True, help="Where it is to run."
)
@click.option("--image", default=DEFAULT_IMAGE, show_default=True, help="Image to run.")
@click.option(
    "--image-pull-secret",
    "pull_secrets",
    multiple=True,
    metavar="SECRET",
    help="Pull the image with this Secret of the same namespace. May be repeated.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default=DEFAULT_LOG_LEVEL,
    show_default=True,
    help="How much the controllers log.",
)
@click.option(
    "--watch-namespace",
    "watched",
    multiple=True,
    metavar="NAMESPACE",
    help="Look after this namespace alone, with rights in it alone. May be repeated.",
)
@click.option(
    "--node-reads",
    is_flag=True,
    help="With --watch-namespace, let the operator read nodes and the Events about them, so that "
    "failing hardware is known for a cause.",
)
@click.option(
    "--pod-reads",
    is_flag=True,
    help="With --node-reads, let the controllers list the pods of all namespaces, so that free "
    "devices are counted. Pods show the variables of their containers.",
)
@click.option("--gateway", metavar="NAMESPACE/NAME", help="Gateway that routes attach to.")
@click.option("--domain", help="Domain under which workloads get their hosts; with --gateway.")
@click.option("--prometheus", metavar="URL", help="Where the metrics of canaries are read.")
@click.option(
    "--page-url",
    default="",
    metavar="URL",
    help="Where people reach the page of a holdfast serve over this cluster; the operator's Events "
    "link to it.",
)
@click.option(
    "--model-hub",
    "model_hubs",
    multiple=True,
    default=(DEFAULT_HUB,),
    show_default=True,
    metavar="URL",
    help="Hub that is asked whether the branches of pinned models moved on. May be repeated.",
)
@click.option(
    "--model-heads/--no-model-heads",
    default=True,
    help="Have hubs asked for that (default: yes).",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, 9),
    default=2,
    show_default=True,
    help="Operators, of which one acts and the others stand by.",
)
@click.option("--gitops", is_flag=True, help="Add the GitOps controller, which reads and reports.")
@click.option(
    "--gitops-writes",
    "writes",
    is_flag=True,
    help="Let it create, change and delete the usual kinds of objects where it looks.",
)
@click.option(
    "--gitops-secrets",
    "secrets",
    is_flag=True,
    help="Let it read Secrets there, and with --gitops-writes write them.",
)
@click.option(
    "--gitops-storage",
    "storage",
    default=GitopsInstallation().storage,
    show_default=True,
    help="Size of the volume that keeps its ledger, projects and tokens.",
)
@click.option(
    "--gitops-ledger",
    "ledger",
    metavar="SECRET",
    help="Keep the ledger in PostgreSQL: a Secret with its address as url, and a key.",
)
@click.option(
    "--gitops-base-url",
    "base_url",
    default="",
    metavar="URL",
    help="Where browsers reach it, as https://holdfast.example.com.",
)
@click.option(
    "--gitops-people",
    "people",
    metavar="SECRET",
    help="Let people and CI jobs sign in: a Secret with the people file as people.yaml.",
)
@click.option(
    "--gitops-cors-origin",
    "cors_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let scripts of this origin read what its API answers. May be repeated.",
)
@click.option(
    "--gitops-tls",
    "tls",
    metavar="SECRET",
    help="Speak TLS: a Secret of the type kubernetes.io/tls.",
)
@click.option(
    "--with-monitoring/--without-monitoring",
    "monitoring",
    default=False,
    help="Add ServiceMonitors, alerts and a Grafana board (default: without).",
)
@click.option(
    "--runbooks",
    metavar="URL",
    default=DEFAULT_RUNBOOKS,
    show_default=True,
    help="Where you serve the runbooks; alerts link to them.",
)
@click.option("--grafana", metavar="URL", default="", help="Your Grafana; alerts link to it.")
@options.output("yaml", "json")
@pass_session
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    /,
    export: bool,
    gateway: str | None,
    domain: str | None,
    **given: Any,  # Any: fields of Installation, and what --gitops-… said
) -> None:
    """Print what the operator, and the GitOps controller, need in a cluster, offline.

    Namespace, definitions, rights, operator, and on demand the GitOps controller and monitoring.
    It changes nothing by itself: read the result, keep it in Git if you like, and hand it to
    kubectl. The same choices print the same bytes.
    """
    if not export:
        ctx.fail("Nothing is installed from here. Give --export, and hand the result to kubectl.")
    from holdfast.install.objects import installation_objects

    if given["image"] == DEFAULT_IMAGE:
        session.screen.warn(
            f"No registry has {DEFAULT_IMAGE}. "
            "Build deploy/Containerfile, push it, and give --image."
        )
    for name in (namespace := given["namespace"], *given["watched"]):
        option = "--namespace" if name is namespace else "--watch-namespace"
        if not _NAME.fullmatch(name):
            ctx.fail(f"{option} {name[:80]!a} is no name of a namespace.")
    if not re.fullmatch(r"[a-z0-9][!-~]{0,499}", given["image"]):
        ctx.fail(f"--image {given['image'][:80]!a} is no name of an image.")
    for name in given["pull_secrets"]:
        if not _SECRET.fullmatch(name):
            ctx.fail(f"{name[:80]!a} is no name of a Secret.")
    for name, default in (("prometheus", None), ("runbooks", DEFAULT_RUNBOOKS), ("grafana", "")):
        url = given[name]
        if url != default:
            if not re.fullmatch(r"https?://[!-~]+", url) or "@" in url:
                ctx.fail(f"--{name} is no http:// or https:// address without credentials.")
            given[name] = url.rstrip("/")
    if given["page_url"]:
        given["page_url"] = origin_of(ctx, "--page-url", given["page_url"])
    given["watched"] = tuple(dict.fromkeys(given["watched"]))
    if given["node_reads"] and not given["watched"]:
        ctx.fail("--node-reads goes with --watch-namespace; one of the whole cluster may anyway.")
    if given["pod_reads"] and not given["node_reads"]:
        ctx.fail("--pod-reads goes with --node-reads.")
    given["model_hubs"] = tuple(url.rstrip("/") for url in given["model_hubs"])
    for url in given["model_hubs"]:
        if not re.fullmatch(r"https?://[!-~]+", url) or "@" in url:
            ctx.fail("--model-hub is no http:// or https:// address without credentials.")
    if not given.pop("model_heads"):
        given["model_hubs"] = ()
    gitops = _gitops_choices(ctx, given)
    chosen = Installation(gateway=gateway_of(ctx, gateway, domain), gitops=gitops, **given)
    objects = installation_objects(chosen)
    if session.screen.output == "json":
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        click.echo(json.dumps(whole, indent=2))
    else:
        show_documents(session.screen, objects)


def gateway_of(ctx: click.Context, gateway: str | None, domain: str | None) -> Gateway | None:
    """Read NAMESPACE/NAME and its domain, which go together."""
    if (gateway is None) != (domain is None):
        ctx.fail("--gateway and --domain go together.")
    if gateway is None or domain is None:
        return None
    namespace, _, name = gateway.partition("/")
    if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(name):
        ctx.fail(f"--gateway is {gateway[:80]!a}, and not NAMESPACE/NAME.")
    if not _DOMAIN.fullmatch(domain):
        ctx.fail(f"--domain {domain[:80]!a} is no domain such as models.example.")
    return Gateway(name=name, namespace=namespace, domain=domain)


def _gitops_choices(ctx: click.Context, given: dict[str, Any]) -> GitopsInstallation | None:
    """Take the choices about GitOps out of what was given."""  # Any: as above
    names = [each.name for each in fields(GitopsInstallation) if each.name in given]
    chosen = GitopsInstallation(**{name: given.pop(name) for name in names})
    if not given.pop("gitops"):
        if chosen != GitopsInstallation():
            ctx.fail("The options --gitops-… go with --gitops.")
        return None
    if not re.fullmatch(STORAGE_PATTERN, chosen.storage):
        ctx.fail(f"--gitops-storage {chosen.storage[:80]!a} is no size such as 10Gi.")
    if chosen.ledger is not None and not _SECRET.fullmatch(chosen.ledger):
        ctx.fail("--gitops-ledger is the name of a Secret, whose key url is the address.")
    if chosen.people is not None and not _SECRET.fullmatch(chosen.people):
        ctx.fail("--gitops-people is the name of a Secret, whose key people.yaml is the file.")
    if chosen.tls is not None and not _SECRET.fullmatch(chosen.tls):
        ctx.fail("--gitops-tls is the name of a Secret of the type kubernetes.io/tls.")
    base_url, origins = chosen.base_url, chosen.cors_origins
    return replace(
        chosen,
        base_url=origin_of(ctx, "--gitops-base-url", base_url) if base_url else "",
        cors_origins=tuple(origin_of(ctx, "--gitops-cors-origin", each) for each in origins),
    )


def origin_of(ctx: click.Context, option: str, text: str) -> str:
    origin = parse_origin(text)
    if origin is None:
        ctx.fail(f"{option} is a scheme, a host and, where needed, a port, and nothing else.")
    return origin
