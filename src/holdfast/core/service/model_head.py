"""Whether the branch that a model was taken from has moved on since.

Pure. A pin, or a download, stands for one commit; the branch goes on without it. That is reported
and changes nothing: `reconcile/service/model_head.py` asks, and the status says it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from holdfast.core.backends import BACKENDS, DEFAULT_BACKEND
from holdfast.core.model import DEFAULT_HUB, HUB_PATTERN, ModelSource, is_commit, model_source
from holdfast.core.service.facts import ConditionReason
from holdfast.core.service.model_cache import DEFAULT_REVISION, cached_model
from holdfast.core.service.spec import InferenceService

_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_OTHER_HUBS = tuple(name for each in BACKENDS.values() for name in each.other_hub_variables)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadQuestion:
    """What a hub is asked about a model."""

    endpoint: str
    repo: str
    branch: str
    """Or a tag."""
    pin: str | None
    """A commit that is declared, of which it is asked whether the branch has it."""
    digest: bool
    """Asks for the digest of the files, too."""
    gguf: str | None
    """Which of them a backend loads, as in `CachedModel`."""
    token: bool
    """The service has a token. Nobody reads it here, but it says why a hub may refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubHead:
    """What a hub says of a branch."""

    commit: str
    has_pin: bool | None = None
    """Whether the pinned commit is one of its commits; None where that is not known."""
    digest: str | None = None
    """Of the files at that commit; None where the hub's list does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubProblem:
    """Why a hub did not say it."""

    message: str
    refused: bool = False
    """It answered, and will not tell; another time it may not answer otherwise."""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHead:
    """What is known of the branch of a service's model."""

    branch: str
    found: HubHead | None = None
    reason: ConditionReason | None = None
    """Why nothing is known; None where it is, or nobody has asked yet."""
    message: str = ""

    @property
    def asked(self) -> bool:
        return self.found is not None or self.reason is not None


def head_question(
    service: InferenceService, hubs: Collection[str]
) -> HeadQuestion | ModelHead | None:
    """Say what to ask about a service's model, or why that is not to be asked.

    None for a model of which no commit is declared or downloaded, or that is of no hub. Only
    `hubs` may be asked: where a service says its hub is, is for its owner to write, and the
    operator reaches more than they do.
    """
    spec, backend = service.spec, service.spec.backend or DEFAULT_BACKEND
    if spec.model_revision is None and spec.cache is None:
        return None
    repo = spec.model_ref.partition(":")[0]
    if model_source(spec.model_ref, backend) is not ModelSource.HUB:
        return None
    if re.fullmatch(HUB_PATTERN, repo) is None:
        return None
    env, secrets = spec.env or {}, spec.secrets or {}
    if spec.cache is None and any(name in env or name in secrets for name in _OTHER_HUBS):
        return None
    pin = spec.model_revision if is_commit(spec.model_revision) else None
    branch = DEFAULT_REVISION if pin is not None else spec.model_revision or DEFAULT_REVISION
    if "HF_ENDPOINT" in secrets:
        message = "HF_ENDPOINT is in a Secret, and the operator reads none."
        return ModelHead(branch=branch, reason=ConditionReason.HUB_NOT_ALLOWED, message=message)
    endpoint = env.get("HF_ENDPOINT", DEFAULT_HUB).rstrip("/")
    if endpoint not in hubs:
        message = (
            f"The operator was not told that it may ask {endpoint}. Start it with "
            "--model-hub and that address."
        )
        return ModelHead(branch=branch, reason=ConditionReason.HUB_NOT_ALLOWED, message=message)
    cached = cached_model(service, canary=False)
    return HeadQuestion(
        endpoint=endpoint,
        repo=repo,
        branch=branch,
        pin=pin,
        digest=cached is not None and spec.model_digest is not None,
        gguf=cached.gguf if cached is not None else None,
        token=any(name in env or name in secrets for name in _TOKENS),
    )
