"""How an object does by its own account, read off its status.

Asked for each object of an application. Knows the built-in kinds and ours; any other kind is
read by the conventions that most custom resources keep: `observedGeneration`, and the conditions
`Ready`, `Available`, `Reconciling` and `Stalled`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from holdfast.core.gitops.objects import ObjectHealth
from holdfast.core.object_ref import ref_of
from holdfast.core.tree import Fields, Tree

_MAX_MESSAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCondition:
    """One condition. Without a status it is not there."""

    status: str = ""
    reason: str = ""
    message: str = ""

    @property
    def is_given(self) -> bool:
        return bool(self.status)

    @property
    def true(self) -> bool:
        return self.status == "True"

    @property
    def false(self) -> bool:
        return self.status == "False"

    def sentence(self, short: str) -> str:
        """A sentence: what it means, and what the controller said."""
        said = self.message or self.reason
        return f"{short}: {said[:_MAX_MESSAGE].rstrip('.')}." if said else f"{short}."


class StatusReader:
    """The parts of an object that say how it does."""

    def __init__(self, item: Fields) -> None:
        self._item = item
        self.spec = self.inside("spec")
        self.status = self.inside("status")

    def inside(self, *path: str) -> Mapping[str, Tree]:
        """Return a mapping at a path; an empty one when there is none."""
        here: Tree = self._item
        for part in path:
            here = here.get(part) if isinstance(here, dict) else None
        return here if isinstance(here, dict) else {}

    @property
    def deleting(self) -> bool:
        return self.inside("metadata").get("deletionTimestamp") is not None

    @property
    def behind(self) -> bool:
        """True when the status is about an older spec."""
        seen, now = self.status.get("observedGeneration"), self.inside("metadata").get("generation")
        return isinstance(seen, int) and isinstance(now, int) and seen < now

    @property
    def conditions(self) -> tuple[Mapping[str, Tree], ...]:
        found = self.status.get("conditions")
        return (
            tuple(each for each in found if isinstance(each, dict))
            if isinstance(found, list)
            else ()
        )

    def condition(self, name: str) -> StatusCondition:
        for each in self.conditions:
            if each.get("type") == name:
                return StatusCondition(
                    status=str(each.get("status") or ""),
                    reason=str(each.get("reason") or ""),
                    message=str(each.get("message") or ""),
                )
        return StatusCondition()

    @property
    def addresses(self) -> bool:
        """True when a load balancer has an address."""
        return bool(self.inside("status", "loadBalancer").get("ingress"))

    def status_count(self, name: str) -> int:
        """A number of the status; 0 when it is not there, as the API server leaves out zeros."""
        return _int_or(self.status.get(name), 0)

    def spec_count(self, name: str) -> int:
        """A number of the spec; 1 when it is not there."""
        return _int_or(self.spec.get(name), 1)


def _int_or(value: Tree, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


_STUCK_REASONS = frozenset({
    "CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName",
    "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
})  # fmt: skip


def _pod(found: StatusReader) -> tuple[ObjectHealth, str]:
    """Say how it does. One that has ended well is healthy, as the pod of a job is."""
    match found.status.get("phase"):
        case "Succeeded":
            return ObjectHealth.HEALTHY, ""
        case "Failed":
            said = found.status.get("message") or found.status.get("reason")
            return ObjectHealth.DEGRADED, f"It failed: {said}." if said else "It failed."
    for name, reason in _waiting_containers(found):
        if reason in _STUCK_REASONS:
            return ObjectHealth.DEGRADED, f"Container {name} does not start: {reason}."
    if found.status.get("phase") != "Running":
        return ObjectHealth.PROGRESSING, found.condition("PodScheduled").sentence(
            "It does not run yet"
        )
    if found.spec.get("restartPolicy", "Always") != "Always":
        return ObjectHealth.PROGRESSING, "It has not ended yet."
    if found.condition("Ready").true:
        return ObjectHealth.HEALTHY, ""
    return ObjectHealth.PROGRESSING, found.condition("Ready").sentence("It is not ready")


def _waiting_containers(found: StatusReader) -> Iterator[tuple[str, str]]:
    """Containers that wait, and for what."""
    for group in ("initContainerStatuses", "containerStatuses"):
        held = found.status.get(group)
        for each in held if isinstance(held, list) else ():
            state = _as_mapping(_as_mapping(each).get("state")).get("waiting")
            if isinstance(state, dict):
                yield str(_as_mapping(each).get("name")), str(state.get("reason") or "")


def _as_mapping(value: Tree) -> Mapping[str, Tree]:
    return value if isinstance(value, dict) else {}


HealthResult = tuple[ObjectHealth, str]


def health_of(item: Fields) -> HealthResult:
    """Say how a live object does, and in a sentence why it does not do well.

    An object without any status is healthy: it has nothing to say.
    """
    found = StatusReader(item)
    if found.deleting:
        return ObjectHealth.PROGRESSING, "It is being deleted."
    ref = ref_of(item)
    name = f"{ref.kind}.{ref.group}" if ref.group else ref.kind
    # A status that is about an older spec tells nothing about this one.
    if found.behind:
        return ObjectHealth.PROGRESSING, "Its controller has not seen the last change yet."
    return _KINDS.get(name, _other)(found)


def _deployment(found: StatusReader) -> HealthResult:
    if found.spec.get("paused") is True:
        return ObjectHealth.SUSPENDED, "Its rollout is paused."
    progressing = found.condition("Progressing")
    if progressing.reason == "ProgressDeadlineExceeded":
        return ObjectHealth.DEGRADED, progressing.sentence("The rollout took too long")
    return _failing(found) or _replicas(
        found,
        updated=found.status_count("updatedReplicas"),
        up=found.status_count("availableReplicas"),
    )


def _replica_set(found: StatusReader) -> HealthResult:
    there = found.status_count("replicas")
    return _failing(found) or _replicas(
        found, updated=there, up=found.status_count("availableReplicas")
    )


def _stateful_set(found: StatusReader) -> HealthResult:
    wanted, ready = found.spec_count("replicas"), found.status_count("readyReplicas")
    if ready < wanted:
        return ObjectHealth.PROGRESSING, f"{ready} of {wanted} pods are ready."
    strategy = found.inside("spec", "updateStrategy")
    if strategy.get("type") == "OnDelete":
        return ObjectHealth.HEALTHY, ""
    partition = found.inside("spec", "updateStrategy", "rollingUpdate").get("partition")
    kept = partition if isinstance(partition, int) else 0
    updated = found.status_count("updatedReplicas")
    moving = found.status.get("updateRevision") != found.status.get("currentRevision")
    if moving and updated < wanted - kept:
        return ObjectHealth.PROGRESSING, f"{updated} of {wanted - kept} pods are updated."
    return ObjectHealth.HEALTHY, ""


def _daemon_set(found: StatusReader) -> HealthResult:
    if "desiredNumberScheduled" not in found.status:
        return ObjectHealth.PROGRESSING, "Its controller has not seen it yet."
    wanted = found.status_count("desiredNumberScheduled")
    up, updated = (
        found.status_count("numberAvailable"),
        found.status_count("updatedNumberScheduled"),
    )
    rolling = found.inside("spec", "updateStrategy").get("type") != "OnDelete"
    if rolling and updated < wanted:
        return ObjectHealth.PROGRESSING, f"{updated} of {wanted} pods are updated."
    if up < wanted:
        return ObjectHealth.PROGRESSING, f"{up} of {wanted} pods are available."
    return ObjectHealth.HEALTHY, ""


def _job(found: StatusReader) -> HealthResult:
    failed, complete = found.condition("Failed"), found.condition("Complete")
    if failed.true:
        return ObjectHealth.DEGRADED, failed.sentence("It failed")
    if complete.true or found.condition("SuccessCriteriaMet").true:
        return ObjectHealth.HEALTHY, ""
    if found.spec.get("suspend") is True:
        return ObjectHealth.SUSPENDED, "It is suspended."
    return ObjectHealth.PROGRESSING, "It has not ended yet."


def _cron_job(found: StatusReader) -> HealthResult:
    if found.spec.get("suspend") is True:
        return ObjectHealth.SUSPENDED, "It is suspended."
    return ObjectHealth.HEALTHY, ""


def _claim(found: StatusReader) -> HealthResult:
    match found.status.get("phase"):
        case "Bound":
            return ObjectHealth.HEALTHY, ""
        case "Lost":
            return ObjectHealth.DEGRADED, "Its volume is lost."
    return ObjectHealth.PROGRESSING, "No volume is bound to it yet."


def _volume(found: StatusReader) -> HealthResult:
    if found.status.get("phase") == "Failed":
        return ObjectHealth.DEGRADED, str(
            found.status.get("message") or "It could not be reclaimed."
        )
    return ObjectHealth.HEALTHY, ""


def _service(found: StatusReader) -> HealthResult:
    if found.spec.get("type") != "LoadBalancer" or found.addresses:
        return ObjectHealth.HEALTHY, ""
    return ObjectHealth.PROGRESSING, "It has no address yet."


def _ingress(found: StatusReader) -> HealthResult:
    # Many controllers never write an address, so to wait for one could be to wait for ever.
    return ObjectHealth.HEALTHY, "" if found.addresses else "It shows no address."


def _autoscaler(found: StatusReader) -> HealthResult:
    if not found.conditions:
        return ObjectHealth.PROGRESSING, "Its controller has not seen it yet."
    able, active = found.condition("AbleToScale"), found.condition("ScalingActive")
    if able.false:
        return ObjectHealth.DEGRADED, able.sentence("It cannot scale")
    if active.reason == "ScalingDisabled":
        return ObjectHealth.SUSPENDED, active.sentence("It is off")
    if active.false:
        return ObjectHealth.DEGRADED, active.sentence("It does not scale")
    return ObjectHealth.HEALTHY, ""


def _budget(found: StatusReader) -> HealthResult:
    allowed = found.condition("DisruptionAllowed")
    if allowed.reason == "SyncFailed":
        return ObjectHealth.DEGRADED, allowed.sentence("It is not kept")
    return ObjectHealth.HEALTHY, "No pod may be disrupted now." if allowed.false else ""


def _namespace(found: StatusReader) -> HealthResult:
    if found.status.get("phase") == "Terminating":
        return ObjectHealth.PROGRESSING, "It is being deleted."
    return ObjectHealth.HEALTHY, ""


def _definition(found: StatusReader) -> HealthResult:
    names, established = found.condition("NamesAccepted"), found.condition("Established")
    if names.false:
        return ObjectHealth.DEGRADED, names.sentence("Its names are taken")
    if established.true:
        return ObjectHealth.HEALTHY, ""
    return ObjectHealth.PROGRESSING, established.sentence("It is not served yet")


def _api(found: StatusReader) -> HealthResult:
    available = found.condition("Available")
    if available.true:
        return ObjectHealth.HEALTHY, ""
    if available.false:
        return ObjectHealth.DEGRADED, available.sentence("It does not answer")
    return ObjectHealth.PROGRESSING, "Its controller has not seen it yet."


def _inference_service(found: StatusReader) -> HealthResult:
    ready, degraded = found.condition("Ready"), found.condition("Degraded")
    if degraded.true:
        return ObjectHealth.DEGRADED, degraded.sentence("It is degraded")
    if ready.true:
        return ObjectHealth.HEALTHY, ""
    if ready.reason in ("InvalidSpec", "Drifted"):
        return ObjectHealth.DEGRADED, ready.sentence("It is not served as declared")
    return ObjectHealth.PROGRESSING, ready.sentence("It is not ready yet")


def _application(found: StatusReader) -> HealthResult:
    if found.spec.get("suspend") is True:
        return ObjectHealth.SUSPENDED, "It is suspended."
    told = found.status.get("health")
    words = {each.value: each for each in ObjectHealth}
    return words.get(str(told), ObjectHealth.UNKNOWN), str(found.status.get("message") or "")


def _argo_application(found: StatusReader) -> HealthResult:
    told = found.inside("status", "health")
    words = {each.value.capitalize(): each for each in ObjectHealth}
    return words.get(str(told.get("status")), ObjectHealth.UNKNOWN), str(told.get("message") or "")


def _other(found: StatusReader) -> HealthResult:
    """A kind that is not known: by the conditions that are in use everywhere."""
    stalled, failed = found.condition("Stalled"), found.condition("Failed")
    for each, short in ((stalled, "It is stalled"), (failed, "It failed")):
        if each.true:
            return ObjectHealth.DEGRADED, each.sentence(short)
    if found.spec.get("suspend") is True:
        return ObjectHealth.SUSPENDED, "It is suspended."
    reconciling = found.condition("Reconciling")
    if reconciling.true:
        return ObjectHealth.PROGRESSING, reconciling.sentence("It is being reconciled")
    for name in ("Ready", "Available"):
        each = found.condition(name)
        if each.true:
            return ObjectHealth.HEALTHY, ""
        if each.is_given:
            return ObjectHealth.PROGRESSING, each.sentence(f"It is not {name.lower()}")
    return ObjectHealth.HEALTHY, ""


def _failing(found: StatusReader) -> HealthResult | None:
    failure = found.condition("ReplicaFailure")
    return (
        (ObjectHealth.DEGRADED, failure.sentence("Pods cannot be made")) if failure.true else None
    )


def _replicas(found: StatusReader, *, updated: int, up: int) -> HealthResult:
    wanted, there = found.spec_count("replicas"), found.status_count("replicas")
    if updated < wanted:
        return ObjectHealth.PROGRESSING, f"{updated} of {wanted} pods are updated."
    if there > max(updated, wanted):
        return ObjectHealth.PROGRESSING, f"{there - max(updated, wanted)} old pods are still there."
    if up < wanted:
        return ObjectHealth.PROGRESSING, f"{up} of {wanted} pods are available."
    return ObjectHealth.HEALTHY, ""


_KINDS: Mapping[str, Callable[[StatusReader], HealthResult]] = {
    "Deployment.apps": _deployment,
    "ReplicaSet.apps": _replica_set,
    "ReplicationController": _replica_set,
    "StatefulSet.apps": _stateful_set,
    "DaemonSet.apps": _daemon_set,
    "Pod": _pod,
    "Job.batch": _job,
    "CronJob.batch": _cron_job,
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _volume,
    "Service": _service,
    "Ingress.networking.k8s.io": _ingress,
    "HorizontalPodAutoscaler.autoscaling": _autoscaler,
    "PodDisruptionBudget.policy": _budget,
    "Namespace": _namespace,
    "CustomResourceDefinition.apiextensions.k8s.io": _definition,
    "APIService.apiregistration.k8s.io": _api,
    "InferenceService.holdfast.dev": _inference_service,
    "Application.holdfast.dev": _application,
    "Application.argoproj.io": _argo_application,
}
