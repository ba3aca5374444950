"""The status of a Deployment as its controller writes it, for tests that need one."""

from __future__ import annotations

from holdfast.adapters.memory.kube.kinds import Object

REVISION = "deployment.kubernetes.io/revision"


def rolled_out(item: Object, *, ready: int | None, now: str) -> None:
    """Let the newest template have all the pods, so many of them ready."""
    wanted: int = item["spec"]["replicas"]
    count = wanted if ready is None else min(ready, wanted)
    status: Object = {
        "observedGeneration": item["metadata"]["generation"],
        "replicas": wanted,
        "updatedReplicas": wanted,
        "readyReplicas": count,
        "availableReplicas": count,
        "unavailableReplicas": wanted - count,
    }
    status = {name: value for name, value in status.items() if value}
    done = count == wanted
    status["conditions"] = [
        _condition(
            "Available", done, "MinimumReplicasAvailable" if done else "MinimumReplicasUnavailable",
            item, now,
        ),
        _condition(
            "Progressing", True, "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
            item, now,
        ),
    ]  # fmt: skip
    item["status"] = status
    item["metadata"].setdefault("annotations", {}).setdefault(REVISION, "1")


def _condition(kind: str, holds: bool, reason: str, item: Object, now: str) -> Object:
    state = "True" if holds else "False"
    before = (item.get("status") or {}).get("conditions") or ()
    since = next(
        (each["lastTransitionTime"] for each in before
         if (each["type"], each["status"]) == (kind, state)),
        now,
    )  # fmt: skip
    return {
        "type": kind,
        "status": state,
        "reason": reason,
        "message": f"{reason}.",
        "lastTransitionTime": since,
        "lastUpdateTime": now,
    }
