"""`holdfast render`: a spec as the document that Holdfast understood."""

from __future__ import annotations

import json

import click

from holdfast.core.normalize import normalize_workload
from holdfast.doors.cli import options
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.inputs import load
from holdfast.doors.cli.session import Session, pass_session
from holdfast.wire.spec_v1 import spec_to_document
from holdfast.wire.yaml import write_document


@click.command(
    "render",
    cls=Verb,
    examples=[
        "holdfast render -f deploy/workloads.py > workloads.yaml",
        "holdfast render -f chat.yaml --normalized",
    ],
)
@options.files()
@click.option(
    "--normalized", is_flag=True, help="Show the form that is compared: commands taken apart, …"
)
@options.output("yaml", "json")
@pass_session
def command(session: Session, paths: tuple[str, ...], recursive: bool, normalized: bool) -> None:
    """Print specs as documents, offline.

    The result is a file that the other commands read; a Python file becomes YAML this way.
    """
    documents = []
    for each in load(paths, recursive=recursive):
        document = spec_to_document(each.spec)
        documents.append(normalize_workload(document) if normalized else document)
    if session.screen.output == "json":
        for document in documents:
            click.echo(json.dumps(document, indent=2))
    else:
        click.echo("---\n".join(write_document(document) for document in documents), nl=False)
