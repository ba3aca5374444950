"""`holdfast install --export`: the operator as manifests, for whoever applies them."""

from __future__ import annotations

import json
import re

import click

from holdfast.core.service.children import Gateway
from holdfast.doors.cli import options
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.session import Session, pass_session
from holdfast.install.settings import IMAGE, NAMESPACE, Installation

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?")


@click.command(
    "install",
    cls=Verb,
    examples=[
        "holdfast install --export | kubectl apply --server-side -f -",
        "holdfast install --export --image registry.example/holdfast:1 > holdfast.yaml",
        "holdfast install --export --watch-namespace chat --watch-namespace embed",
    ],
)
@click.option("--export", is_flag=True, help="Print the manifests.")
@click.option(
    "--namespace", "-n", default=NAMESPACE, show_default=True, help="Where the operator runs."
)
@click.option("--image", default=IMAGE, show_default=True, help="Image of the operator.")
@click.option(
    "--watch-namespace",
    "watched",
    multiple=True,
    metavar="NAMESPACE",
    help="Look after this namespace alone, with rights in it alone. May be repeated.",
)
@click.option("--gateway", metavar="NAMESPACE/NAME", help="Gateway that routes attach to.")
@click.option("--domain", help="Domain under which workloads get their hosts; with --gateway.")
@click.option("--prometheus", metavar="URL", help="Where the metrics of canaries are read.")
@click.option(
    "--replicas",
    type=click.IntRange(1, 9),
    default=2,
    show_default=True,
    help="Operators, of which one acts and the others stand by.",
)
@click.option(
    "--with-monitoring/--without-monitoring",
    "monitoring",
    default=False,
    help="Add a ServiceMonitor and alerts, for the Prometheus operator (default: without).",
)
@options.output("yaml", "json")
@pass_session
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    export: bool,
    namespace: str,
    image: str,
    watched: tuple[str, ...],
    gateway: str | None,
    domain: str | None,
    prometheus: str | None,
    replicas: int,
    monitoring: bool,
) -> None:
    """Print what the operator needs in a cluster, offline.

    Namespace, definitions, rights, operator, and on demand monitoring. It changes nothing by
    itself: read the result, keep it in Git if you like, and hand it to kubectl. The same choices
    print the same bytes.
    """
    if not export:
        ctx.fail("Nothing is installed from here. Give --export, and hand the result to kubectl.")
    from holdfast.install.objects import objects
    from holdfast.wire.yaml import write_document

    if image == IMAGE:
        session.screen.warn(
            f"No registry has {IMAGE}. Build deploy/Containerfile, push it, and give --image."
        )
    found = objects(
        Installation(
            namespace=_namespace(ctx, "--namespace", namespace),
            image=_image(ctx, image),
            replicas=replicas,
            watched=tuple(
                dict.fromkeys(_namespace(ctx, "--watch-namespace", each) for each in watched)
            ),
            gateway=gateway_of(ctx, gateway, domain),
            prometheus=_address(ctx, prometheus),
            monitoring=monitoring,
        )
    )
    if session.screen.output == "json":
        whole = {"apiVersion": "v1", "kind": "List", "items": list(found)}
        click.echo(json.dumps(whole, indent=2))
    else:
        click.echo("---\n".join(write_document(each) for each in found), nl=False)


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


def _namespace(ctx: click.Context, option: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        ctx.fail(f"{option} {name[:80]!a} is no name of a namespace.")
    return name


def _image(ctx: click.Context, image: str) -> str:
    if not re.fullmatch(r"[a-z0-9][!-~]{0,499}", image):
        ctx.fail(f"--image {image[:80]!a} is no name of an image.")
    return image


def _address(ctx: click.Context, url: str | None) -> str | None:
    if url is None:
        return None
    if not re.fullmatch(r"https?://[!-~]+", url) or "@" in url:
        ctx.fail("--prometheus is no http:// or https:// address without credentials.")
    return url
