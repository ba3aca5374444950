"""`holdfast render`: a spec as the document that Holdfast understood, or as Kubernetes gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.inputs import DeclaredWorkload, load_specs
from holdfast.apps.cli.install import gateway_of
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.output import show_documents
from holdfast.core.normalize import normalize_workload
from holdfast.core.tree import Fields
from holdfast.wire.spec_v1 import spec_to_document

if TYPE_CHECKING:
    from holdfast.core.service.children import Gateway
    from holdfast.core.service.spec import InferenceService

WORKLOAD, SERVICE, OBJECTS = "workload", "inferenceservice", "objects"


@click.command(
    "render",
    cls=Verb,
    examples=[
        "holdfast render -f deploy/workloads.py > workloads.yaml",
        "holdfast render -f chat.yaml --normalized",
        "holdfast render -f chat.yaml --as inferenceservice | kubectl apply -f -",
        "holdfast render -f chat.yaml --as objects -n chat    what the operator would make of it",
    ],
)
@options.files()
@click.option(
    "--normalized", is_flag=True, help="Show the form that is compared: commands taken apart, …"
)
@click.option(
    "--as",
    "form",
    type=click.Choice([WORKLOAD, SERVICE, OBJECTS]),
    help="What to print: the workload, its custom resource, or the Deployments, Services and so "
    "on that the operator makes of it (default: workload; objects for an InferenceService).",
)
@click.option("--namespace", "-n", help="Namespace of what is printed for Kubernetes.")
@click.option(
    "--gateway", metavar="NAMESPACE/NAME", help="Print the route through this Gateway, too."
)
@click.option("--domain", help="Domain of the route's host; with --gateway.")
@options.output("yaml", "json")
@pass_session
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    paths: tuple[str, ...],
    recursive: bool,
    normalized: bool,
    form: str | None,
    namespace: str | None,
    gateway: str | None,
    domain: str | None,
) -> None:
    """Print specs as documents or Kubernetes objects, offline.

    A workload printed as a workload is a file that the other commands read; a Python file becomes
    YAML this way. The files may also hold InferenceServices.
    """
    if normalized and form not in (None, WORKLOAD):
        ctx.fail("--normalized is for workloads.")
    route = gateway_of(ctx, gateway, domain)
    documents: list[Fields] = []
    for each in load_specs(paths, recursive=recursive, services=True):
        printed_as = form or (OBJECTS if each.service and not normalized else WORKLOAD)
        if printed_as == WORKLOAD:
            document = spec_to_document(each.spec)
            documents.append(normalize_workload(document) if normalized else document)
            continue
        service = _as_service(each, namespace)
        if printed_as == SERVICE:
            documents.append(resource_document(service))
        else:
            documents += _child_objects(session, service, route)
    show_documents(session.screen, documents)


def _as_service(declared: DeclaredWorkload, namespace: str | None) -> InferenceService:
    from dataclasses import replace

    if declared.service is not None:
        own = declared.service
        return replace(own, namespace=namespace) if namespace else own
    from holdfast.wire.service_mapping import service_of

    return service_of(declared.spec, namespace=namespace or declared.spec.project or "default")


def resource_document(service: InferenceService) -> Fields:
    """What a user would write: without what the cluster adds to an object."""
    from dataclasses import replace

    from holdfast.wire.inference_service_v1alpha1 import service_to_json

    return service_to_json(replace(service, uid="", resource_version="", generation=0, status=None))


def _child_objects(
    session: Session, service: InferenceService, gateway: Gateway | None
) -> list[Fields]:
    from holdfast.core.service.children import Facts, manifests

    if service.spec.canary is not None:
        session.screen.info(
            f"{service.name}: the canary is shown before it is ready, when it gets no requests."
        )
    return list(manifests(service, Facts(gateway=gateway)))
