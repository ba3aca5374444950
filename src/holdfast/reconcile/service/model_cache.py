"""Has models downloaded into the claim of a service, and says which Deployments wait for one.

A Job is made once for each model and claim; it is not compared, since a run is no state. Until it
is complete, a Deployment that is to serve from it is left as it is, so that old pods go on serving.
Called by the pass, before it decides about the children.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from holdfast.core.errors import HoldfastError
from holdfast.core.model import is_commit
from holdfast.core.ownership.canonical import value_at
from holdfast.core.redact import redact
from holdfast.core.service.children import download_job
from holdfast.core.service.facts import ConditionReason
from holdfast.core.service.model_cache import (
    CACHE_ANNOTATION,
    DOWNLOAD_LABEL,
    CachedModel,
    cached_model,
    job_name,
)
from holdfast.core.service.spec import InferenceService, ModelStatus
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ConflictReason, KubeClient, KubeConflict, Scope, ref_of
from holdfast.reconcile.service.apply import PassState
from holdfast.reconcile.service.observe import (
    OPERATOR_MANAGER,
    CacheProgress,
    ChildRole,
    conditions_of,
    is_terminating,
    uid_of,
)

_ROLES = (ChildRole.PRIMARY, ChildRole.CANARY)
_DIRECTORY = ("spec", "template", "metadata", "annotations", CACHE_ANNOTATION)
DOWNLOAD_POLL = 5.0
"""Seconds between two looks at a download; nothing here watches Jobs."""
_FAILED_POLL = 60.0
"""Between two looks at one that failed: somebody may have deleted it to try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadReport:
    """What a download said at its end."""

    commit: str | None = None
    digest: str | None = None
    error: str | None = None

    @classmethod
    def parse(cls, message: str) -> DownloadReport | None:
        """Read what a container left as its last word; None for what is no report."""
        try:
            report = json.loads(message)
        except ValueError:
            return None
        if not isinstance(report, dict):
            return None
        given = {name: report.get(name) for name in cls.__slots__}
        if not all(value is None or isinstance(value, str) for value in given.values()):
            return None
        return cls(**given)


async def advance_cache(
    client: KubeClient, state: PassState, desired: Mapping[ChildRole, Fields], image: str | None
) -> CacheProgress | None:
    """Start the downloads that are missing, end those that are not wanted, and look at the rest.

    None without a cache. Raises what the cluster refuses or does not answer.
    """
    service = state.service
    if service.spec.cache is None:
        if ChildRole.MODEL_CLAIM in state.observed.refs and state.suspension is None:
            await delete_downloads(client, service)
        return None
    wanted = {role: _directory(desired[role]) for role in _ROLES if role in desired}
    unsettled = frozenset(
        role for role, directory in wanted.items() if _directory(state.live.get(role)) != directory
    )
    waits = CacheProgress(
        reason=ConditionReason.DOWNLOADING, message="", waiting=unsettled, poll=DOWNLOAD_POLL
    )
    claim = state.live.get(ChildRole.MODEL_CLAIM)
    if image is None:
        message = (
            "It is not known which image downloads models. Start the operator with "
            "--downloader-image, or in a pod whose account may read it."
        )
        missing = ConditionReason.NO_DOWNLOADER
        return replace(waits, reason=missing, message=message, poll=_FAILED_POLL)
    if claim is None or is_terminating(claim):
        return replace(waits, message="The claim of the cache is not there yet.", poll=1.0)
    models = [cached_model(service, canary=canary) for canary in (False, True)]
    by_directory = {each.directory: each for each in models if each is not None}
    chosen = {by_directory[directory] for directory in wanted.values() if directory in by_directory}
    jobs = await _list_downloads(client, service)
    names = {job_name(service, model, uid_of(claim)): model for model in chosen}
    if state.suspension is None:
        for name, job in jobs.items():
            if name not in names and not is_terminating(job):
                await client.delete(ref_of(job), uid=uid_of(job))
        for name, model in names.items():
            if name not in jobs:
                started = await _start(client, service, model, image, uid_of(claim))
                jobs |= {name: started} if started is not None else {}
    found = {
        model: await _look(client, service, name, model, jobs.get(name))
        for name, model in names.items()
    }
    return _join(service, found, wanted, unsettled, by_directory)


def _join(
    service: InferenceService,
    found: Mapping[CachedModel, CacheProgress],
    wanted: Mapping[ChildRole, str],
    unsettled: frozenset[ChildRole],
    by_directory: Mapping[str, CachedModel],
) -> CacheProgress:
    """Say of all downloads what the worst of them says."""
    order = (ConditionReason.DOWNLOAD_FAILED, ConditionReason.DOWNLOADING)
    open_ones = [each for reason in order for each in found.values() if each.reason is reason]
    waiting = frozenset(
        role for role in unsettled if not found[by_directory[wanted[role]]].complete
    )
    primary = found.get(by_directory[wanted[ChildRole.PRIMARY]])
    model = primary.model if primary else None
    if open_ones:
        worst = open_ones[0]
        return CacheProgress(
            reason=worst.reason,
            message=worst.message,
            waiting=waiting,
            model=model,
            poll=worst.poll,
        )
    return CacheProgress(
        reason=ConditionReason.MODEL_COMPLETE,
        message=" ".join(each.message for each in found.values()),
        model=model,
    )


async def delete_downloads(client: KubeClient, service: InferenceService) -> None:
    """Delete every download of a service, run or not."""
    for job in (await _list_downloads(client, service)).values():
        if not is_terminating(job):
            await client.delete(ref_of(job), uid=uid_of(job))


async def _list_downloads(client: KubeClient, service: InferenceService) -> dict[str, Fields]:
    """The Jobs of a service by name: those that it controls, whatever they are called."""
    labels = f"{DOWNLOAD_LABEL}={service.name}"
    scope = Scope(api_version="batch/v1", kind="Job", namespace=service.namespace, labels=labels)
    found = {}
    for job in (await client.list(scope)).items:
        owners = value_at(job, ("metadata", "ownerReferences"))
        held = owners if isinstance(owners, list) else []
        uids = [each.get("uid") for each in held if isinstance(each, dict)]
        if not service.uid or service.uid in uids:
            found[str(value_at(job, ("metadata", "name")))] = job
    return found


async def _start(
    client: KubeClient, service: InferenceService, model: CachedModel, image: str, claim_uid: str
) -> Fields | None:
    item = download_job(service, model, image=image, claim_uid=claim_uid)
    try:
        return await client.apply(item, manager=OPERATOR_MANAGER, absent=True)
    except KubeConflict as conflict:
        if conflict.reason is not ConflictReason.EXISTS:
            raise
        return await client.get(ref_of(item))


async def _look(
    client: KubeClient,
    service: InferenceService,
    name: str,
    model: CachedModel,
    job: Fields | None,
) -> CacheProgress:
    what = f"{model.repo} at {model.revision}"
    conditions = conditions_of(job) if job is not None else {}
    done = {kind for kind, each in conditions.items() if each.get("status") == "True"}
    if "Complete" in done:
        return await _look_at_complete(client, service, name, model)
    tries = value_at(job, ("status", "failed")) if job is not None else None
    failed = tries if isinstance(tries, int) else 0
    why = (await _read_report(client, service, name)).error if failed or "Failed" in done else None
    said = f": {redact(why)}" if why else "."
    if "Failed" in done:
        message = (
            f"The download of {what} failed{said} Nothing that runs was changed. Delete Job "
            f"{name} to try again."
        )
        return CacheProgress(
            reason=ConditionReason.DOWNLOAD_FAILED, message=message, poll=_FAILED_POLL
        )
    tried = f" {failed} attempts failed{said}" if failed else ""
    message = f"{what} is being downloaded by Job {name}.{tried}"
    return CacheProgress(reason=ConditionReason.DOWNLOADING, message=message, poll=DOWNLOAD_POLL)


async def _look_at_complete(
    client: KubeClient, service: InferenceService, name: str, model: CachedModel
) -> CacheProgress:
    spec, old = service.spec, service.status.model if service.status else None
    known = ModelStatus(ref=spec.model_ref, revision=spec.model_revision)
    same = old is not None and (old.ref, old.revision) == (known.ref, known.revision)
    if not same or old is None or old.digest is None or spec.model_digest not in (None, old.digest):
        report = await _read_report(client, service, name)
        commit = report.commit or (model.revision if is_commit(model.revision) else None)
        unsaid = "It was downloaded, and no pod of the download says what it got."
        unknown = None if commit or report.digest else unsaid
        old = replace(known, commit=commit, digest=report.digest, unknown=unknown)
    message = f"{model.repo} at {model.revision} is complete in the cache."
    return CacheProgress(reason=ConditionReason.MODEL_COMPLETE, message=message, model=old)


async def _read_report(client: KubeClient, service: InferenceService, name: str) -> DownloadReport:
    """Read what the last pod of a download said; nothing where no pod is left to ask."""
    scope = Scope(
        api_version="v1",
        kind="Pod",
        namespace=service.namespace,
        labels=f"{DOWNLOAD_LABEL}={service.name},batch.kubernetes.io/job-name={name}",
    )
    try:
        pods = (await client.list(scope)).items
    except HoldfastError:
        return DownloadReport()  # it costs words, and nothing else
    said = []
    for pod in pods:
        statuses = value_at(pod, ("status", "containerStatuses"))
        for each in statuses if isinstance(statuses, list) else ():
            ended = value_at(each, ("state", "terminated")) if isinstance(each, dict) else None
            if isinstance(ended, dict):
                said.append((str(ended.get("finishedAt")), str(ended.get("message") or "")))
    for _, message in sorted(said, reverse=True):
        if report := DownloadReport.parse(message):
            return report
    return DownloadReport()


def _directory(deployment: Fields | None) -> str:
    """The directory that a Deployment's pods serve from; empty for none."""
    found = value_at(deployment, _DIRECTORY) if deployment is not None else None
    return found if isinstance(found, str) else ""
