"""Health, kind by kind: what each status means, and that none can break the reader."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.gitops.health import _KINDS, health_of
from holdfast.core.gitops.objects import ObjectHealth

H, P, D, S, U = (
    ObjectHealth.HEALTHY,
    ObjectHealth.PROGRESSING,
    ObjectHealth.DEGRADED,
    ObjectHealth.SUSPENDED,
    ObjectHealth.UNKNOWN,
)
UP = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2}


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def item(kind: str, spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    kind, _, group = kind.partition(".")
    return {
        "apiVersion": f"{group}/v1" if group else "v1",
        "kind": kind,
        "metadata": {"name": "x", "namespace": "n", **metadata},
        **({"spec": spec} if spec is not None else {}),
        **({"status": status} if status is not None else {}),
    }


def conditions(**given: Any) -> dict[str, Any]:
    """`Ready=True`, or `Ready=("False", "Reason", "message")`."""
    found = []
    for name, value in given.items():
        status, reason, message = value if isinstance(value, tuple) else (str(value), "", "")
        found.append({"type": name, "status": status, "reason": reason, "message": message})
    return {"conditions": found}


def waiting(reason: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason}}
    return {"phase": "Pending", "containerStatuses": [{"name": "main", "state": state}]}


LATE = ("False", "ProgressDeadlineExceeded", "ReplicaSet x has timed out.")
TABLE = [
    ("Deployment.apps", {"replicas": 2}, UP, H),
    ("Deployment.apps", {"replicas": 2}, None, P),
    ("Deployment.apps", {"replicas": 2}, {**UP, "updatedReplicas": 1}, P),
    ("Deployment.apps", {"replicas": 2}, {**UP, "replicas": 3}, P),
    ("Deployment.apps", {"replicas": 2}, {**UP, "availableReplicas": 1}, P),
    ("Deployment.apps", {"replicas": 2}, {**UP, **conditions(Progressing=LATE)}, D),
    ("Deployment.apps", {"replicas": 2}, {**UP, **conditions(ReplicaFailure=True)}, D),
    ("Deployment.apps", {"replicas": 0}, {}, H),
    ("Deployment.apps", {"paused": True}, UP, S),
    ("ReplicaSet.apps", {"replicas": 2}, UP, H),
    ("ReplicaSet.apps", {"replicas": 2}, {"replicas": 1}, P),
    ("ReplicationController", {"replicas": 2}, UP, H),
    ("StatefulSet.apps", {"replicas": 2}, UP, H),
    ("StatefulSet.apps", {"replicas": 3}, UP, P),
    ("StatefulSet.apps", {"replicas": 2},
     {**UP, "updatedReplicas": 1, "updateRevision": "b", "currentRevision": "a"}, P),
    ("StatefulSet.apps",
     {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}},
     {**UP, "updatedReplicas": 1, "updateRevision": "b", "currentRevision": "a"}, H),
    ("StatefulSet.apps", {"replicas": 2, "updateStrategy": {"type": "OnDelete"}},
     {**UP, "updatedReplicas": 0, "updateRevision": "b", "currentRevision": "a"}, H),
    ("DaemonSet.apps", {}, {}, P),
    ("DaemonSet.apps", {},
     {"desiredNumberScheduled": 3, "numberAvailable": 3, "updatedNumberScheduled": 3}, H),
    ("DaemonSet.apps", {},
     {"desiredNumberScheduled": 3, "numberAvailable": 2, "updatedNumberScheduled": 3}, P),
    ("DaemonSet.apps", {}, {"desiredNumberScheduled": 3, "numberAvailable": 3}, P),
    ("DaemonSet.apps", {}, {"desiredNumberScheduled": 0}, H),
    ("Pod", {}, {"phase": "Running", **conditions(Ready=True)}, H),
    ("Pod", {}, {"phase": "Running", **conditions(Ready=False)}, P),
    ("Pod", {"restartPolicy": "Never"}, {"phase": "Running", **conditions(Ready=True)}, P),
    ("Pod", {}, {"phase": "Succeeded"}, H),
    ("Pod", {}, {"phase": "Failed", "reason": "Evicted"}, D),
    ("Pod", {}, waiting("ImagePullBackOff"), D),
    ("Pod", {}, waiting("ContainerCreating"), P),
    ("Pod", {}, None, P),
    ("Job.batch", {}, {"active": 1}, P),
    ("Job.batch", {}, conditions(Complete=True), H),
    ("Job.batch", {}, conditions(Failed=("True", "BackoffLimitExceeded", "")), D),
    ("Job.batch", {"suspend": True}, conditions(Suspended=True), S),
    ("CronJob.batch", {}, {}, H),
    ("CronJob.batch", {"suspend": True}, {}, S),
    ("PersistentVolumeClaim", {}, {"phase": "Bound"}, H),
    ("PersistentVolumeClaim", {}, {"phase": "Pending"}, P),
    ("PersistentVolumeClaim", {}, {"phase": "Lost"}, D),
    ("PersistentVolume", {}, {"phase": "Failed"}, D),
    ("Service", {"type": "ClusterIP"}, {}, H),
    ("Service", {"type": "LoadBalancer"}, {"loadBalancer": {}}, P),
    ("Service", {"type": "LoadBalancer"}, {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}, H),
    ("Ingress.networking.k8s.io", {}, {"loadBalancer": {}}, H),
    ("HorizontalPodAutoscaler.autoscaling", {}, {}, P),
    ("HorizontalPodAutoscaler.autoscaling", {}, conditions(AbleToScale=True, ScalingActive=True),
     H),
    ("HorizontalPodAutoscaler.autoscaling", {},
     conditions(AbleToScale=True, ScalingActive=("False", "FailedGetResourceMetric", "no data")),
     D),
    ("HorizontalPodAutoscaler.autoscaling", {},
     conditions(AbleToScale=True, ScalingActive=("False", "ScalingDisabled", "at zero")), S),
    ("HorizontalPodAutoscaler.autoscaling", {}, conditions(AbleToScale=False), D),
    ("PodDisruptionBudget.policy", {}, conditions(DisruptionAllowed=True), H),
    ("PodDisruptionBudget.policy", {},
     conditions(DisruptionAllowed=("False", "InsufficientPods", "")), H),
    ("PodDisruptionBudget.policy", {}, conditions(DisruptionAllowed=("False", "SyncFailed", "")),
     D),
    ("Namespace", {}, {"phase": "Active"}, H),
    ("Namespace", {}, {"phase": "Terminating"}, P),
    ("CustomResourceDefinition.apiextensions.k8s.io", {}, {}, P),
    ("CustomResourceDefinition.apiextensions.k8s.io", {},
     conditions(NamesAccepted=True, Established=True), H),
    ("CustomResourceDefinition.apiextensions.k8s.io", {}, conditions(NamesAccepted=False), D),
    ("APIService.apiregistration.k8s.io", {}, conditions(Available=True), H),
    ("APIService.apiregistration.k8s.io", {}, conditions(Available=False), D),
    ("APIService.apiregistration.k8s.io", {}, {}, P),
    ("InferenceService.holdfast.dev", {}, conditions(Ready=True), H),
    ("InferenceService.holdfast.dev", {}, conditions(Ready=("False", "RollingOut", "")), P),
    ("InferenceService.holdfast.dev", {}, conditions(Ready=("False", "InvalidSpec", "")), D),
    ("InferenceService.holdfast.dev", {}, conditions(Ready=False, Degraded=True), D),
    ("InferenceService.holdfast.dev", {}, None, P),
    ("Application.holdfast.dev", {}, {"health": "degraded", "message": "It is."}, D),
    ("Application.holdfast.dev", {"suspend": True}, {"health": "healthy"}, S),
    ("Application.holdfast.dev", {}, {}, U),
    ("Application.argoproj.io", {}, {"health": {"status": "Progressing", "message": "It is."}}, P),
    ("ConfigMap", None, None, H),
    ("Thing.example.com", {}, conditions(Ready=True), H),
    ("Thing.example.com", {}, conditions(Ready=("False", "Waiting", "for a volume")), P),
    ("Thing.example.com", {}, conditions(Ready="Unknown"), P),
    ("Thing.example.com", {}, conditions(Available=False), P),
    ("Thing.example.com", {}, conditions(Ready=True, Reconciling=True), P),
    ("Thing.example.com", {}, conditions(Ready=False, Stalled=True), D),
    ("Thing.example.com", {"suspend": True}, conditions(Ready=True), S),
    ("Thing.example.com", {}, None, H),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spec", "status", "expected"), TABLE)
def test_a_status_means(kind: str, spec: Any, status: Any, expected: ObjectHealth) -> None:
    health, why = health_of(item(kind, spec, status))
    assert health is expected, why
    assert why == "" or why.endswith((".", "…"))
    if expected in (P, D, S):
        assert why


def test_every_kind_that_is_known_is_in_the_table() -> None:
    assert set(_KINDS) <= {kind for kind, *_ in TABLE}


def test_a_status_about_an_older_spec_tells_nothing() -> None:
    found = item("Deployment.apps", {"replicas": 2}, {**UP, "observedGeneration": 3}, generation=4)
    assert health_of(found)[0] is P


def test_what_is_being_deleted_is_not_healthy() -> None:
    gone = "2026-11-16T10:00:00Z"
    assert health_of(item("ConfigMap", deletionTimestamp=gone)) == (P, "It is being deleted.")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "True", "Ready"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["conditions", "type", "status", "phase", "replicas", "loadBalancer", "ingress",
                 "health", "containerStatuses", "state", "updateStrategy", "rollingUpdate",
                 "partition", "observedGeneration", "suspend", "waiting", "reason", "message"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(kind=st.sampled_from(sorted([*_KINDS, "Thing.example.com"])), spec=JUNK, status=JUNK)
def test_no_status_breaks_the_reader(kind: str, spec: Any, status: Any) -> None:
    """A status is written by strangers."""
    health, why = health_of(item(kind, spec, status, generation=2))
    assert isinstance(health, ObjectHealth)
    assert isinstance(why, str)
