"""`holdfast import`: what runs in a cluster already, as a spec to declare from now on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.inputs import read_file_documents
from holdfast.apps.cli.render import resource_document
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.output import show_documents
from holdfast.core.errors import (
    NotFound,
    Problem,
    ValidationError,
    requires_extra,
)
from holdfast.core.tree import Fields, Tree
from holdfast.wire.spec_v1 import spec_from_document, spec_to_document

if TYPE_CHECKING:
    from holdfast.core.service.importer import ImportedDeployment
    from holdfast.core.service.spec import InferenceService
    from holdfast.core.workload import WorkloadSpec

DEPLOYMENT, SERVICE, AUTOSCALER = "Deployment", "InferenceService", "HorizontalPodAutoscaler"
_KINDS = dict.fromkeys(("deployment", "deployments", "deploy"), DEPLOYMENT)
_KINDS |= dict.fromkeys(("inferenceservice", "inferenceservices", "hold"), SERVICE)


@click.command(
    "import",
    cls=Verb,
    examples=[
        "holdfast import deployment/vllm -n chat > chat.yaml",
        "holdfast import inferenceservice/support-bot --context prod",
        "kubectl get deploy/vllm hpa/vllm -o yaml | holdfast import -f -",
    ],
)
@click.argument("what", required=False, metavar="[KIND/NAME]")
@click.option(
    "--file", "-f", "path", metavar="FILE|-", help="Read the objects from a file, or from stdin."
)
@click.option("--namespace", "-n", help="Namespace to look in (default: the context's own).")
@click.option("--context", help="Context of the kubeconfig (default: the current one).")
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="File to use instead of KUBECONFIG."
)
@click.option("--model", help="Model, where the command line does not tell it.")
@click.option("--backend", help="Backend, where neither command nor image tell it.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["workload", "inferenceservice"]),
    default="workload",
    show_default=True,
    help="What to print. Only an InferenceService can say on which nodes to run.",
)
@options.output("yaml", "json")
@pass_session
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    what: str | None,
    path: str | None,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    model: str | None,
    backend: str | None,
    form: str,
) -> None:
    """Write the spec of what runs in a cluster already.

    Reads a Deployment or an InferenceService and prints the spec that declares the same; nothing
    in the cluster is changed. What a spec cannot say is listed on stderr. Secrets are taken over
    as references, never as values.
    """
    if (what is None) == (path is None):
        ctx.fail("Give either KIND/NAME or -f.")
    if path is not None:
        found = [each.value for each in read_file_documents(path)]
        objects = [each for value in found for each in _objects_in(value)]
    else:
        kind, name = _parse_target(ctx, what or "")
        objects = _fetch(kind, name, namespace, context, kubeconfig)
    deployments = [each for each in objects if each.get("kind") == DEPLOYMENT]
    services = [each for each in objects if each.get("kind") == SERVICE]
    if not deployments and not services:
        problem = Problem(
            field=path or what or "",
            reason="there is no Deployment and no InferenceService in it.",
            fix="Give one of them.",
        )
        raise ValidationError(problems=[problem])
    if (model or backend) and len(deployments) != 1:
        ctx.fail("--model and --backend are for a single Deployment.")
    documents = [_service_document(session, each, form) for each in services]
    for each in deployments:
        documents.append(_deployment_document(session, each, objects, model, backend, form))
    show_documents(session.screen, documents)
    if deployments:
        session.screen.info(
            "Declared, this makes new objects beside the Deployment, which stays until you "
            "delete it."
        )


def _parse_target(ctx: click.Context, text: str) -> tuple[str, str]:
    kind, slash, name = text.partition("/")
    known = _KINDS.get(kind.lower().partition(".")[0])
    if not slash or not name or known is None:
        ctx.fail(f"{text[:80]!a} is neither deployment/NAME nor inferenceservice/NAME.")
    return known, name


def _objects_in(value: Tree) -> list[Fields]:
    """The objects of a document, which may be a list of them."""
    if not isinstance(value, dict):
        return []
    items = value.get("items")
    if isinstance(items, list):
        return [each for each in items if isinstance(each, dict)]
    return [value]


def _fetch(
    kind: str, name: str, namespace: str | None, context: str | None, kubeconfig: str | None
) -> list[Fields]:
    import asyncio
    import os

    from holdfast.adapters.clock import SystemClock
    from holdfast.core.service.spec import API_VERSION
    from holdfast.reconcile.kube import ObjectRef, Scope

    otherwise = ", or give the objects with -f."
    with requires_extra("kubernetes", "Reading from a cluster", otherwise=otherwise):
        from holdfast.adapters.kubernetes.api import KubeApi
        from holdfast.adapters.kubernetes.connection import KubeConnection
        from holdfast.adapters.kubernetes.kubeconfig import load_config

    environ = {**os.environ, "KUBECONFIG": kubeconfig} if kubeconfig else dict(os.environ)
    clock = SystemClock()
    config = load_config(context, namespace=namespace, clock=clock, environ=environ)
    within = namespace or config.namespace

    async def read() -> list[Fields]:
        api = KubeApi(KubeConnection(config, clock=clock))
        try:
            version = "apps/v1" if kind == DEPLOYMENT else API_VERSION
            ref = ObjectRef(api_version=version, kind=kind, namespace=within, name=name)
            item = await api.get(ref)
            if item is None:
                raise NotFound(
                    f"There is no {kind} {name} in namespace {within} of {config.source}.",
                    hint="Check the name, -n and --context.",
                )
            if kind != DEPLOYMENT:
                return [item]
            scalers = Scope(api_version="autoscaling/v2", kind=AUTOSCALER, namespace=within)
            return [item, *(await api.list(scalers)).items]
        finally:
            await api.aclose()

    return asyncio.run(read())


def _service_document(session: Session, document: Fields, form: str) -> Fields:
    from holdfast.wire.inference_service_v1alpha1 import service_from_json
    from holdfast.wire.service_mapping import spec_of

    service = service_from_json(document)
    if form == "inferenceservice":
        return resource_document(service)
    spec = service.spec
    for name, value in (("scheduling", spec.scheduling), ("onDrift", spec.on_drift)):
        if value is not None:
            _warn_left_out(
                session, service.name, name, "only an InferenceService says it; use --as."
            )
    return spec_to_document(spec_of(service))


def _deployment_document(
    session: Session,
    document: Fields,
    objects: Sequence[Fields],
    model: str | None,
    backend: str | None,
    form: str,
) -> Fields:
    from holdfast.core.service.importer import import_deployment

    owner = _owning_service(document)
    if owner:
        session.screen.warn(
            f"This Deployment is made from InferenceService {owner}: import that one instead."
        )
    found = import_deployment(
        document, autoscaler=_find_autoscaler(document, objects), model=model, backend=backend
    )
    for unsupported in found.unsupported:
        _warn_left_out(session, found.slug, unsupported.field, unsupported.reason)
    head: Fields = {"project": found.namespace} if found.namespace else {}
    spec = spec_from_document({**head, **found.fields})
    if form == "inferenceservice":
        return resource_document(_service_of(spec, found))
    for name in found.scheduling:
        _warn_left_out(session, found.slug, name, "only an InferenceService says it; use --as.")
    return spec_to_document(spec)


def _find_autoscaler(deployment: Fields, objects: Sequence[Fields]) -> Fields | None:
    """The one that scales this Deployment."""
    mine = _metadata(deployment)
    for each in objects:
        spec = each.get("spec")
        target = spec.get("scaleTargetRef") if isinstance(spec, dict) else None
        if each.get("kind") == AUTOSCALER and isinstance(target, dict):
            same_place = _metadata(each).get("namespace") == mine.get("namespace")
            same_name = target.get("name") == mine.get("name")
            if same_place and same_name and target.get("kind") == DEPLOYMENT:
                return each
    return None


def _owning_service(deployment: Fields) -> str | None:
    owners = _metadata(deployment).get("ownerReferences")
    for each in owners if isinstance(owners, list) else []:
        if isinstance(each, dict) and each.get("kind") == SERVICE:
            return str(each.get("name"))
    return None


def _metadata(document: Fields) -> Fields:
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


def _service_of(spec: WorkloadSpec, found: ImportedDeployment) -> InferenceService:
    from holdfast.wire.inference_service_v1alpha1 import service_from_json
    from holdfast.wire.service_mapping import service_of

    namespace = found.namespace or "default"
    scheduled: Fields = {
        "metadata": {"name": spec.slug, "namespace": namespace},
        "spec": {"modelRef": spec.model, "scheduling": found.scheduling},
    }
    return service_of(spec, namespace=namespace, base=service_from_json(scheduled))


def _warn_left_out(session: Session, slug: str, field: str, reason: str) -> None:
    session.screen.warn(f"{slug}: {field} was left out: {reason}")
