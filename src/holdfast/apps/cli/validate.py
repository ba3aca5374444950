"""`holdfast validate`: check specs and Applications without asking anyone."""

from __future__ import annotations

from collections.abc import Iterator

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.inputs import (
    DeclaredApplication,
    DeclaredWorkload,
    load_specs_and_applications,
)
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.text import count
from holdfast.core.model import (
    ModelPin,
    model_pin,
    unpinned_adapter_reason,
    unpinned_reason,
)
from holdfast.core.workload import WorkloadSpec


@click.command(
    "validate",
    cls=Verb,
    examples=[
        "holdfast validate -f deploy/",
        "holdfast validate -f chat.yaml -f rerank.py",
        "cat chat.yaml | holdfast validate -f -",
    ],
)
@options.files()
@options.output("table", "json", "yaml", "jsonl", "name")
@pass_session
def command(session: Session, paths: tuple[str, ...], recursive: bool) -> None:
    """Check specs and Applications, offline.

    Every problem of every file is shown at once, with its line, its reason and its fix. A model
    or an adapter that nothing pins is a warning: what is served may then change although no file
    does.
    """
    screen = session.screen
    declared, applications = load_specs_and_applications(paths, recursive=recursive)
    workloads = [_workload(each) for each in declared]
    for each in declared:
        for part, reason in _unpinned(each.spec):
            screen.warn(f"{each.source}: workload {each.spec.slug}: {part}: {reason}")
    found = [{"id": _name(each), "source": each.source} for each in applications]
    match screen.output:
        case "name":
            screen.lines([*(each.spec.slug for each in declared), *map(_name, applications)])
        case "jsonl":
            screen.records("Validation", [*workloads, *found])
        case "table":
            if declared:
                rows = [
                    [each.spec.slug, str(each.spec.backend), str(_pin(each.spec)), each.source]
                    for each in declared
                ]
                screen.table(["WORKLOAD", "BACKEND", "MODEL PINNED BY", "DECLARED IN"], rows)
                screen.line(f"{count(len(declared), 'workload')}, no problem.")
            if applications:
                rows = [_row(each) for each in applications]
                screen.table(["APPLICATION", "PROJECT", "SOURCE", "DECLARED IN"], rows)
                screen.line(f"{count(len(applications), 'application')}, no problem.")
            given = options.repeat_files(paths, recursive=recursive)
            screen.next(
                f"holdfast plan {given}"
                if declared
                else f"kubectl apply --server-side {given}, or from files: holdfast gitops {given}"
            )
        case _:
            body = {"valid": True, "workloads": workloads, "applications": found}
            screen.document("Validation", body)


def _workload(each: DeclaredWorkload) -> dict[str, object]:
    found: dict[str, object] = {"slug": each.spec.slug, "source": each.source}
    found["pinned_by"] = str(_pin(each.spec))
    unpinned = [f"{part}: {reason}" for part, reason in _unpinned(each.spec)]
    return found | ({"warnings": unpinned} if unpinned else {})


def _pin(spec: WorkloadSpec) -> ModelPin:
    return model_pin(spec.model, str(spec.backend), spec.model_revision, spec.model_digest)


def _unpinned(spec: WorkloadSpec) -> Iterator[tuple[str, str]]:
    """Each model and adapter of a workload that nothing pins, and why."""
    models = [(spec.model, spec.model_revision, spec.model_digest)]
    own = spec.canary
    if own is not None and (own.model or own.model_revision):
        shared = spec.model_revision if own.model in (None, spec.model) else None
        models.append((own.model or spec.model, own.model_revision or shared, own.model_digest))
    for model, revision, digest in models:
        reason = unpinned_reason(model, str(spec.backend), revision, digest)
        if reason:
            yield f"model {model}", reason
    for adapter in spec.adapters or ():
        if reason := unpinned_adapter_reason(adapter.source):
            yield f"adapter {adapter.name} from {adapter.source}", reason


def _name(each: DeclaredApplication) -> str:
    return str(each.application.id).removeprefix("/")


def _row(each: DeclaredApplication) -> list[str]:
    spec = each.application.spec
    source = f"{spec.source.url} {spec.source.revision or 'main'} {spec.source.path or ''}"
    return [_name(each), spec.project, source.rstrip(), each.source]
