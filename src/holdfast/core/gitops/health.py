"""How an object does by its own account, read off its status.

Asked for each object of an application. Knows the built-in kinds and ours; any other kind is
read by the conventions that most custom resources keep: `observedGeneration`, and the conditions
`Ready`, `Available`, `Reconciling` and `Stalled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.core.gitops.pod_health import pod
from holdfast.core.gitops.reported import Reported
from holdfast.core.gitops.standing import Health
from holdfast.core.objects import ref_of
from holdfast.core.tree import Fields

Answer = tuple[Health, str]


def health_of(item: Fields) -> Answer:
    """Say how a live object does, and in a sentence why it does not do well.

    An object without any status is healthy: it has nothing to say.
    """
    found = Reported(item)
    if found.deleting:
        return Health.PROGRESSING, "It is being deleted."
    ref = ref_of(item)
    name = f"{ref.kind}.{ref.group}" if ref.group else ref.kind
    # A status that is about an older spec tells nothing about this one.
    if found.behind:
        return Health.PROGRESSING, "Its controller has not seen the last change yet."
    return _KINDS.get(name, _other)(found)


def _deployment(found: Reported) -> Answer:
    if found.spec.get("paused") is True:
        return Health.SUSPENDED, "Its rollout is paused."
    progressing = found.condition("Progressing")
    if progressing.reason == "ProgressDeadlineExceeded":
        return Health.DEGRADED, progressing.told("The rollout took too long")
    return _failing(found) or _replicas(
        found, updated=found.number("updatedReplicas"), up=found.number("availableReplicas")
    )


def _replica_set(found: Reported) -> Answer:
    there = found.number("replicas")
    return _failing(found) or _replicas(found, updated=there, up=found.number("availableReplicas"))


def _stateful_set(found: Reported) -> Answer:
    wanted, ready = found.wanted("replicas"), found.number("readyReplicas")
    if ready < wanted:
        return Health.PROGRESSING, f"{ready} of {wanted} pods are ready."
    strategy = found.inside("spec", "updateStrategy")
    if strategy.get("type") == "OnDelete":
        return Health.HEALTHY, ""
    partition = found.inside("spec", "updateStrategy", "rollingUpdate").get("partition")
    kept = partition if isinstance(partition, int) else 0
    updated = found.number("updatedReplicas")
    moving = found.status.get("updateRevision") != found.status.get("currentRevision")
    if moving and updated < wanted - kept:
        return Health.PROGRESSING, f"{updated} of {wanted - kept} pods are updated."
    return Health.HEALTHY, ""


def _daemon_set(found: Reported) -> Answer:
    if "desiredNumberScheduled" not in found.status:
        return Health.PROGRESSING, "Its controller has not seen it yet."
    wanted = found.number("desiredNumberScheduled")
    up, updated = found.number("numberAvailable"), found.number("updatedNumberScheduled")
    rolling = found.inside("spec", "updateStrategy").get("type") != "OnDelete"
    if rolling and updated < wanted:
        return Health.PROGRESSING, f"{updated} of {wanted} pods are updated."
    if up < wanted:
        return Health.PROGRESSING, f"{up} of {wanted} pods are available."
    return Health.HEALTHY, ""


def _job(found: Reported) -> Answer:
    failed, complete = found.condition("Failed"), found.condition("Complete")
    if failed.true:
        return Health.DEGRADED, failed.told("It failed")
    if complete.true or found.condition("SuccessCriteriaMet").true:
        return Health.HEALTHY, ""
    if found.spec.get("suspend") is True:
        return Health.SUSPENDED, "It is suspended."
    return Health.PROGRESSING, "It has not ended yet."


def _cron_job(found: Reported) -> Answer:
    if found.spec.get("suspend") is True:
        return Health.SUSPENDED, "It is suspended."
    return Health.HEALTHY, ""


def _claim(found: Reported) -> Answer:
    match found.status.get("phase"):
        case "Bound":
            return Health.HEALTHY, ""
        case "Lost":
            return Health.DEGRADED, "Its volume is lost."
    return Health.PROGRESSING, "No volume is bound to it yet."


def _volume(found: Reported) -> Answer:
    if found.status.get("phase") == "Failed":
        return Health.DEGRADED, str(found.status.get("message") or "It could not be reclaimed.")
    return Health.HEALTHY, ""


def _service(found: Reported) -> Answer:
    if found.spec.get("type") != "LoadBalancer" or found.addresses:
        return Health.HEALTHY, ""
    return Health.PROGRESSING, "It has no address yet."


def _ingress(found: Reported) -> Answer:
    # Many controllers never write an address, so to wait for one could be to wait for ever.
    return Health.HEALTHY, "" if found.addresses else "It shows no address."


def _autoscaler(found: Reported) -> Answer:
    if not found.conditions:
        return Health.PROGRESSING, "Its controller has not seen it yet."
    able, active = found.condition("AbleToScale"), found.condition("ScalingActive")
    if able.false:
        return Health.DEGRADED, able.told("It cannot scale")
    if active.reason == "ScalingDisabled":
        return Health.SUSPENDED, active.told("It is off")
    if active.false:
        return Health.DEGRADED, active.told("It does not scale")
    return Health.HEALTHY, ""


def _budget(found: Reported) -> Answer:
    allowed = found.condition("DisruptionAllowed")
    if allowed.reason == "SyncFailed":
        return Health.DEGRADED, allowed.told("It is not kept")
    return Health.HEALTHY, "No pod may be disrupted now." if allowed.false else ""


def _namespace(found: Reported) -> Answer:
    if found.status.get("phase") == "Terminating":
        return Health.PROGRESSING, "It is being deleted."
    return Health.HEALTHY, ""


def _definition(found: Reported) -> Answer:
    names, established = found.condition("NamesAccepted"), found.condition("Established")
    if names.false:
        return Health.DEGRADED, names.told("Its names are taken")
    if established.true:
        return Health.HEALTHY, ""
    return Health.PROGRESSING, established.told("It is not served yet")


def _api(found: Reported) -> Answer:
    available = found.condition("Available")
    if available.true:
        return Health.HEALTHY, ""
    if available.false:
        return Health.DEGRADED, available.told("It does not answer")
    return Health.PROGRESSING, "Its controller has not seen it yet."


def _inference_service(found: Reported) -> Answer:
    ready, degraded = found.condition("Ready"), found.condition("Degraded")
    if degraded.true:
        return Health.DEGRADED, degraded.told("It is degraded")
    if ready.true:
        return Health.HEALTHY, ""
    if ready.reason in ("InvalidSpec", "Drifted"):
        return Health.DEGRADED, ready.told("It is not served as declared")
    return Health.PROGRESSING, ready.told("It is not ready yet")


def _application(found: Reported) -> Answer:
    if found.spec.get("suspend") is True:
        return Health.SUSPENDED, "It is suspended."
    told = found.status.get("health")
    words = {each.value: each for each in Health}
    return words.get(str(told), Health.UNKNOWN), str(found.status.get("message") or "")


def _argo_application(found: Reported) -> Answer:
    told = found.inside("status", "health")
    words = {each.value.capitalize(): each for each in Health}
    return words.get(str(told.get("status")), Health.UNKNOWN), str(told.get("message") or "")


def _other(found: Reported) -> Answer:
    """A kind that is not known: by the conditions that are in use everywhere."""
    stalled, failed = found.condition("Stalled"), found.condition("Failed")
    for each, short in ((stalled, "It is stalled"), (failed, "It failed")):
        if each.true:
            return Health.DEGRADED, each.told(short)
    if found.spec.get("suspend") is True:
        return Health.SUSPENDED, "It is suspended."
    reconciling = found.condition("Reconciling")
    if reconciling.true:
        return Health.PROGRESSING, reconciling.told("It is being reconciled")
    for name in ("Ready", "Available"):
        each = found.condition(name)
        if each.true:
            return Health.HEALTHY, ""
        if each.given:
            return Health.PROGRESSING, each.told(f"It is not {name.lower()}")
    return Health.HEALTHY, ""


def _failing(found: Reported) -> Answer | None:
    failure = found.condition("ReplicaFailure")
    return (Health.DEGRADED, failure.told("Pods cannot be made")) if failure.true else None


def _replicas(found: Reported, *, updated: int, up: int) -> Answer:
    wanted, there = found.wanted("replicas"), found.number("replicas")
    if updated < wanted:
        return Health.PROGRESSING, f"{updated} of {wanted} pods are updated."
    if there > max(updated, wanted):
        return Health.PROGRESSING, f"{there - max(updated, wanted)} old pods are still there."
    if up < wanted:
        return Health.PROGRESSING, f"{up} of {wanted} pods are available."
    return Health.HEALTHY, ""


_KINDS: Mapping[str, Callable[[Reported], Answer]] = {
    "Deployment.apps": _deployment,
    "ReplicaSet.apps": _replica_set,
    "ReplicationController": _replica_set,
    "StatefulSet.apps": _stateful_set,
    "DaemonSet.apps": _daemon_set,
    "Pod": pod,
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
