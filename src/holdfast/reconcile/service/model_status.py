"""What the model of a service was resolved to, and what is said of its cache and branch. Pure."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.backends import DEFAULT_BACKEND, backend_profile
from holdfast.core.service.facts import ConditionReason, ConditionReport
from holdfast.core.service.model_cache import resolved_model
from holdfast.core.service.spec import ModelStatus
from holdfast.reconcile.service.messages import describe_not_asked, truncate
from holdfast.reconcile.service.observe import CacheProgress
from holdfast.reconcile.service.status_inputs import (
    FALSE,
    TRUE,
    UNKNOWN,
    StatusInputs,
    clean_text,
    condition_of,
    make_report,
)


def make_model_status(inputs: StatusInputs) -> ModelStatus:
    """What the model was resolved to: what was known before stays while it is downloaded anew."""
    resolved = resolved_model(inputs.service)
    old = inputs.service.status.model if inputs.service.status else None
    if old is not None and (old.ref, old.revision) != (resolved.ref, resolved.revision):
        old = None
    found = _add_weights(inputs, resolved)
    if inputs.cache is not None:
        kept = old if old is not None and (old.commit or old.digest) else resolved
        found = inputs.cache.model or kept
    head = inputs.head
    if head is None:
        return replace(found, branch=None, head=None, head_digest=None)
    if head.found is None and old is not None and old.branch == head.branch:
        # What the hub told last stays to be read while it tells nothing.
        return replace(found, branch=old.branch, head=old.head, head_digest=old.head_digest)
    commit, digest = (head.found.commit, head.found.digest) if head.found else (None, None)
    branch = head.branch if head.asked else None
    return replace(found, branch=branch, head=commit, head_digest=digest)


def _add_weights(inputs: StatusInputs, resolved: ModelStatus) -> ModelStatus:
    """Add the digest of the weights that pods serve, where their engine is one that tells it."""
    profile = backend_profile(inputs.service.spec.backend or DEFAULT_BACKEND)
    runtime = inputs.runtime
    if not profile.tells_digest or runtime is None:
        return resolved
    digests = [each for each in runtime.weights if each is not None]
    if runtime.not_asked is not None:
        return replace(resolved, unknown=describe_not_asked(runtime.not_asked))
    if len(digests) > 1:
        return replace(resolved, unknown=f"Its pods have different weights: {', '.join(digests)}.")
    if None in runtime.weights or not digests:
        return replace(resolved, unknown="Not every pod that is ready has said it.")
    return replace(resolved, digest=digests[0], unknown=None)


def model_cached_condition(cache: CacheProgress) -> ConditionReport:
    """Say how far its downloads are."""
    status = TRUE if cache.complete else FALSE
    return make_report("ModelCached", status, cache.reason, truncate(cache.message))


def model_moved_conditions(inputs: StatusInputs) -> list[ConditionReport]:
    """Say whether the branch of the model went on without it. Nothing is done about that."""
    head, model = inputs.head, make_model_status(inputs)
    if head is None or model is None:
        return []
    if not head.asked:
        old = inputs.service.status.model if inputs.service.status else None
        before = condition_of(inputs.service.status, "ModelMoved")
        same = old is not None and old == model
        # What was said before a restart holds until the hub was asked again.
        kept = before if same else None
        return [make_report(kept.type, kept.status, kept.reason, kept.message)] if kept else []
    if head.found is None:
        message = truncate(clean_text(f"Whether {head.branch} moved is not known: {head.message}"))
        return [make_report("ModelMoved", UNKNOWN, head.reason or "", message)]
    commit, now = model.commit, head.found.commit
    repo = model.ref.partition(":")[0]
    details = (commit, now)
    if commit is None:
        why = f"{model.revision} is no commit, and without a cache each start takes the newest."
        if inputs.service.spec.cache is not None:
            why = "nothing says which commit the cache holds."
        message = f"{head.branch} of {repo} is at {now}, and what is served is not known: {why}"
        return [make_report("ModelMoved", UNKNOWN, ConditionReason.NOT_RESOLVED, message, details)]
    if commit == now:
        message = f"{commit} is the head of {head.branch} of {repo}."
        return [make_report("ModelMoved", FALSE, ConditionReason.AT_HEAD, message, details)]
    pinned = model.revision == commit
    if pinned and not head.found.has_pin:
        message = (
            f"{head.branch} of {repo} is at {now}, and {commit} is pinned, which is not among the "
            "commits that the hub lists for it: whether one follows from the other is not known."
        )
        return [make_report("ModelMoved", UNKNOWN, ConditionReason.NOT_ON_BRANCH, message, details)]
    message = (
        f"{head.branch} of {repo} is at {now} now, and {commit} is "
        f"{'pinned' if pinned else 'downloaded'}. Nothing is restarted or downloaded for that. "
        "To serve it, give that commit as modelRevision."
    )
    return [make_report("ModelMoved", TRUE, ConditionReason.HEAD_MOVED, message, details)]
