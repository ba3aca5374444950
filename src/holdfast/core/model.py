"""What a model reference names, and whether anything pins what it stands for.

Pure. Pods and local processes are started by it, `holdfast validate` says by it what may change
under a declaration that does not, and a download is checked against it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.backends import backend_profile

DEFAULT_HUB = "https://huggingface.co"
OCI = "oci://"
OCI_PATTERN = (
    r"^oci://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
    r"(#[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*)?$"
)
"""A host, a repository, a tag or a digest, and perhaps a path inside the image."""
REVISION_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$"
DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"
HUB_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})?$"
GGUF_PATTERN = HUB_PATTERN[:-1] + r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$"
"""With what is quantised how behind it, as llama.cpp takes it: `org/name:Q4_K_M`."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


class ModelSource(StrEnum):
    """Where a model comes from."""

    HUB = "hub"
    """A repository of the Hugging Face Hub, or of a server that speaks as it does."""
    PATH = "path"
    """Files that are in the image, on a volume or on the machine."""
    IMAGE = "image"
    """An OCI image that holds nothing but files."""
    REGISTRY = "registry"
    """The registry of an engine, which it pulls from by tag."""


class ModelPin(StrEnum):
    """What keeps a model from changing under a declaration that does not."""

    COMMIT = "commit"
    DIGEST = "digest"
    """Of the files, or of the image."""
    PATH = "path"
    """Nothing here can tell: what is at a path is for whoever put it there to say."""
    NONE = "none"


def is_path(source: str) -> bool:
    """True for files where the engine runs; anything else may be a name on a hub."""
    return source.startswith(("/", "./", "../", "~"))


def model_source(model: str, backend: str) -> ModelSource:
    """Say where a backend gets a model from."""
    if model.startswith(OCI):
        return ModelSource.IMAGE
    if is_path(model):
        return ModelSource.PATH
    return ModelSource.REGISTRY if backend_profile(backend).own_registry else ModelSource.HUB


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReference:
    """An image that holds a model, and where in it the model is."""

    reference: str
    """As a container runtime takes it."""
    path: str
    """Inside the image; empty for all of it."""

    @property
    def digest(self) -> str | None:
        """Of the image; None for a tag, which can be moved."""
        return self.reference.partition("@")[2] or None


def image_reference(model: str) -> ImageReference:
    """Read `oci://host/repository@sha256:…#path`."""
    reference, _, path = model.removeprefix(OCI).partition("#")
    return ImageReference(reference=reference, path=path)


def is_commit(revision: str | None) -> bool:
    """True for the full name of a commit; a branch or a tag can be moved."""
    return revision is not None and _COMMIT.fullmatch(revision) is not None


def model_pin(
    model: str, backend: str, revision: str | None = None, digest: str | None = None
) -> ModelPin:
    """Say what pins a model. A digest beside a tag is only compared with what was pulled."""
    source = model_source(model, backend)
    if digest is not None and source is not ModelSource.REGISTRY:
        return ModelPin.DIGEST
    match source:
        case ModelSource.IMAGE:
            return ModelPin.DIGEST if image_reference(model).digest else ModelPin.NONE
        case ModelSource.PATH:
            return ModelPin.PATH
        case _:
            return ModelPin.COMMIT if is_commit(revision) else ModelPin.NONE


def unpinned_reason(
    model: str, backend: str, revision: str | None = None, digest: str | None = None
) -> str:
    """Say why a model is not pinned and what would pin it; empty where it is, or is a path."""
    if model_pin(model, backend, revision, digest) is not ModelPin.NONE:
        return ""
    match model_source(model, backend):
        case ModelSource.IMAGE:
            return "it names no digest, and a tag can be moved. Add @sha256:… to it."
        case ModelSource.REGISTRY:
            known = "other weights than those of its digest are told as drift of what runs."
            compared = known if digest is not None else "a digest beside it has such a move told."
            engine = backend_profile(backend).title
            return f"{engine} pulls by tag, and a tag can be moved. Nothing can pin it; {compared}"
        case _ if revision is not None:
            return (
                f"revision {revision} is no commit, and a branch or a tag can be moved. "
                "Give the 40 digits of a commit."
            )
        case _:
            return "it has no revision, so each start takes the newest. Give the commit to serve."


def unpinned_adapter_reason(source: str) -> str:
    """Say why a LoRA adapter is not pinned and what to do; empty for files."""
    if is_path(source) or re.fullmatch(HUB_PATTERN, source) is None:
        return ""
    return (
        "an adapter of a hub takes no revision, so each start takes the newest. Give the absolute "
        "path of files in the image or a volume."
    )


NOT_HANDED_ON = "the command is your own, and nothing would hand the revision to it."
"""Why a revision beside a command would have no effect."""


def revision_refusal(model: str, backend: str, *, own_command: bool) -> tuple[str, str]:
    """Say why a process would ignore a revision, and what to do; empty where it does not."""
    source = model_source(model, backend)
    if source is ModelSource.IMAGE:
        return "an image is pinned by the digest in its reference.", "Leave it out."
    if source is ModelSource.PATH:
        return "a path has no revisions.", "Leave it out."
    if source is ModelSource.REGISTRY:
        engine = backend_profile(backend).title
        return f"{engine} pulls by tag and takes no revision.", "Leave it out."
    if own_command:
        return (
            NOT_HANDED_ON,
            "Write it into the command, or leave the command out.",
        )
    if backend_profile(backend).revision_flag is None:
        return (
            f"{backend} takes no revision when it downloads a model by itself.",
            "Leave it out, and download the model before.",
        )
    return "", ""


def files_digest(files: Mapping[str, str]) -> str:
    """Name files by what is in them: SHA-256 of `SHA-256  path` lines, in the order of the paths.

    What `find … | sort | xargs sha256sum | sha256sum` says of a directory.
    """
    lines = (f"{files[path]}  {path}\n" for path in sorted(files, key=str.encode))
    return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"
