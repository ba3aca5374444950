"""A model in the cache of a service: which one, where in the claim, and how a pod checks it.

Pure. A directory is named by all that decides what is in it, so another revision is another
directory beside the first, and pods of both can run at a time. Called by `pod` and `children`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

from holdfast.core.backends import DEFAULT_BACKEND, backend_profile
from holdfast.core.model import ModelSource, image_reference, is_commit, model_source
from holdfast.core.service.spec import InferenceService, ModelStatus
from holdfast.core.tree import Fields

MODELS = "/models"
"""Where a model is mounted that Holdfast brings into the pod."""
CACHE_ANNOTATION = "holdfast.dev/model-cache"
"""Of a pod: the directory that it serves from."""
DOWNLOAD_LABEL = "holdfast.dev/model-download"
VOLUME = "model-cache"
MARKER = ".holdfast-complete"
"""Written last, with the size and the SHA-256 of every file."""
GGUF_NAME = "model.gguf"
"""The name under which a backend finds its one file, whatever the repository calls it."""
DEFAULT_REVISION = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """What is downloaded once for all pods of a variant."""

    repo: str
    revision: str
    digest: str | None
    gguf: str | None
    """What is quantised how, for a backend that loads one file; None for all files."""

    @property
    def directory(self) -> str:
        """Inside the claim."""
        name = re.sub(r"[^a-z0-9]+", "-", self.repo.lower()).strip("-")[-40:].strip("-")
        return f"{name}-{self.key}"

    @property
    def key(self) -> str:
        kind = "all files" if self.gguf is None else f"gguf {self.gguf}"
        parts = (self.repo, self.revision, self.digest or "", kind)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]

    @property
    def path(self) -> str:
        """What a backend is told to load."""
        directory = f"{MODELS}/{self.directory}"
        return directory if self.gguf is None else f"{directory}/{GGUF_NAME}"


def cached_model(service: InferenceService, *, canary: bool) -> CachedModel | None:
    """Say what a variant serves from the cache; None without one."""
    spec = service.spec
    if spec.cache is None:
        return None
    own = spec.canary if canary else None
    repo, _, tag = ((own.model_ref if own else None) or spec.model_ref).partition(":")
    single_file = backend_profile(spec.backend or DEFAULT_BACKEND).single_file
    return CachedModel(
        repo=repo,
        revision=(spec.canary_revision if canary else spec.model_revision) or DEFAULT_REVISION,
        digest=spec.canary_model_digest if canary else spec.model_digest,
        gguf=tag if single_file else None,
    )


def resolved_model(service: InferenceService) -> ModelStatus:
    """Say what a model stands for as far as its declaration tells, or why that is not known."""
    spec, revision = service.spec, service.spec.model_revision
    found = ModelStatus(ref=spec.model_ref, revision=revision)
    if is_commit(revision):
        return replace(found, commit=revision)
    if spec.cache is not None:
        return replace(found, unknown="It is not downloaded yet.")
    match model_source(spec.model_ref, spec.backend or DEFAULT_BACKEND):
        case ModelSource.IMAGE:
            digest = image_reference(spec.model_ref).digest
            why = "Each node resolves the tag when it pulls the image, and is not asked for it."
            return replace(found, digest=digest, unknown=None if digest else why)
        case ModelSource.PATH:
            return replace(found, unknown="Nobody here looks at what is at a path.")
        case ModelSource.REGISTRY:
            return replace(found, unknown="Its pods have not said it.")
        case ModelSource.HUB:
            why = "Nothing pins it: each pod takes what it finds when it starts, and engines do not"
            return replace(found, unknown=f"{why} tell which commit that was.")


def claim_name(service: InferenceService) -> str:
    """Of the claim that the models of a service are downloaded into."""
    return f"{service.name}-models"


def job_name(service: InferenceService, model: CachedModel, claim_uid: str) -> str:
    """Of a download: of that model into that claim, so an empty new claim has another one."""
    key = hashlib.sha256(f"{model.key} {claim_uid}".encode()).hexdigest()[:8]
    return f"{service.name}-model-{key}"


def claim_spec(service: InferenceService) -> Fields:
    """What is asked for; without a class the cluster chooses, and nothing is compared."""
    cache = service.spec.cache
    assert cache is not None  # noqa: S101  # asked by the caller
    spec: Fields = {
        "accessModes": [str(cache.access_mode or "ReadWriteOnce")],
        "resources": {"requests": {"storage": str(cache.size)}},
    }
    if cache.storage_class is not None:
        spec["storageClassName"] = cache.storage_class
    return spec


def volume_of_cache(service: InferenceService) -> tuple[Fields, Fields]:
    """The claim and its mount, which only reads. The claim itself is not mounted read-only: that
    would keep a node from mounting it for a download at the same time."""
    claim: Fields = {"claimName": claim_name(service)}
    mount: Fields = {"mountPath": MODELS, "name": VOLUME, "readOnly": True}
    return {"name": VOLUME, "persistentVolumeClaim": claim}, mount


_CHECK = """\
cd {directory} 2>/dev/null && [ -f {marker} ] || {{
  echo "The download of the model was never completed: {directory}/{marker} is missing." >&2
  exit 1
}}
while read -r size sha path; do
  case "$size" in "#"*) continue ;; esac
  there=$(stat -c %s "$path" 2>/dev/null || echo 0)
  [ "$there" = "$size" ] || {{
    echo "$path has $there bytes, and $size were downloaded. The model is not served." >&2
    exit 1
  }}
done < {marker}
"""


def check_container(model: CachedModel, image: str, mount: Fields) -> Fields:
    """Keep a pod from serving a model that is not whole.

    It runs in the backend's own image, which the node has anyway: an image of ours would restart
    every model with each version of it.
    """
    script = _CHECK.format(directory=f"{MODELS}/{model.directory}", marker=MARKER)
    return {
        "name": "model-check",
        "image": image,
        "command": ["/bin/sh", "-c", script],
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"memory": "64Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        # So that its last words reach the status of the service.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [mount],
    }
