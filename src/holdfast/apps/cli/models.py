"""`holdfast models`: have a model in a directory, whole and checked, and name what is in one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb, VerbGroup
from holdfast.apps.cli.session import Session, pass_session
from holdfast.core.errors import HoldfastError
from holdfast.core.model import DEFAULT_HUB
from holdfast.core.redact import Secret

MAX_REPORT = 4000
"""A kubelet keeps 4096 bytes."""


@click.group(
    "models",
    cls=VerbGroup,
    examples=[
        "holdfast models download Qwen/Qwen3-8B --revision main --to /models/qwen3",
        "holdfast models digest /models/qwen3",
    ],
)
def command() -> None:
    """Download models and name what is in them."""


@command.command(
    "download",
    cls=Verb,
    examples=[
        "holdfast models download Qwen/Qwen3-8B --to /models/qwen3",
        "holdfast models download ggml-org/gemma-3-1b-it-GGUF --gguf Q8_0 --to /models/gemma",
    ],
)
@click.argument("repo")
@click.option("--revision", default="main", show_default=True, help="Branch, tag or commit.")
@click.option("--to", "directory", required=True, help="Directory to have it in.")
@click.option("--gguf", metavar="KIND", help="One GGUF file of this quantisation; '' for Q4_K_M.")
@click.option("--digest", metavar="sha256:…", help="What the files have to be, or it is refused.")
@click.option("--report", metavar="FILE", help="Write the outcome there too, as JSON.")
@options.output("table", "json", "yaml")
@pass_session
def download(
    session: Session,
    repo: str,
    revision: str,
    directory: str,
    gguf: str | None,
    digest: str | None,
    report: str | None,
) -> None:
    """Download a model from the Hub, and check it.

    Every file is checked against the size and the hash that the Hub says it has. A directory is
    complete once .holdfast-complete is in it, which is written last. Run again, it goes on where
    it was cut off, and asks nobody when it is complete. HF_ENDPOINT and HF_TOKEN are read.
    """
    from holdfast.adapters.hub import Download, Hub

    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    hub = Hub(os.environ.get("HF_ENDPOINT") or DEFAULT_HUB, token=Secret(token) if token else None)
    wanted = Download(
        repo=repo, revision=revision, directory=Path(directory), gguf=gguf, digest=digest
    )
    try:
        model = wanted.run(hub, session.screen.info)
    except HoldfastError as error:
        _write_report(report, {"error": error.happened})
        raise
    found = {"commit": model.commit, "digest": model.digest, "bytes": model.size}
    _write_report(report, found)
    if session.screen.output == "table":
        session.screen.line(f"{repo} at {model.commit} is complete in {directory}: {model.digest}")
    else:
        body = {"repo": repo, "revision": revision, "files": len(model.files), **found}
        session.screen.document("Model", body)


def _write_report(path: str | None, body: dict[str, object]) -> None:
    if path is not None:
        text = {
            key: value[:3000] if isinstance(value, str) else value for key, value in body.items()
        }
        Path(path).write_text(json.dumps(text)[:MAX_REPORT])


@command.command("digest", cls=Verb, examples=["holdfast models digest /models/qwen3"])
@click.argument("directory")
@options.output("table", "json", "yaml")
@pass_session
def digest(session: Session, directory: str) -> None:
    """Name the files of a directory by what is in them.

    It is the SHA-256 of the lines that sha256sum writes about them, in the order of their paths,
    without files and directories whose names begin with a dot.
    """
    from holdfast.adapters.hub import directory_digest

    found = directory_digest(Path(directory))
    if session.screen.output == "table":
        session.screen.line(found)
    else:
        session.screen.document("ModelDigest", {"directory": directory, "digest": found})
