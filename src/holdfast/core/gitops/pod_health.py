"""How a pod does: by its phase, its readiness, and what its containers wait for.

Asked by `health`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.core.gitops.reported import Reported
from holdfast.core.gitops.standing import Health
from holdfast.core.tree import Tree

_STUCK = frozenset({
    "CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName",
    "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
})  # fmt: skip


def pod(found: Reported) -> tuple[Health, str]:
    """Say how it does. One that has ended well is healthy, as the pod of a job is."""
    match found.status.get("phase"):
        case "Succeeded":
            return Health.HEALTHY, ""
        case "Failed":
            said = found.status.get("message") or found.status.get("reason")
            return Health.DEGRADED, f"It failed: {said}." if said else "It failed."
    for name, reason in _waiting(found):
        if reason in _STUCK:
            return Health.DEGRADED, f"Container {name} does not start: {reason}."
    if found.status.get("phase") != "Running":
        return Health.PROGRESSING, found.condition("PodScheduled").told("It does not run yet")
    if found.spec.get("restartPolicy", "Always") != "Always":
        return Health.PROGRESSING, "It has not ended yet."
    if found.condition("Ready").true:
        return Health.HEALTHY, ""
    return Health.PROGRESSING, found.condition("Ready").told("It is not ready")


def _waiting(found: Reported) -> Iterator[tuple[str, str]]:
    """Containers that wait, and for what."""
    for group in ("initContainerStatuses", "containerStatuses"):
        held = found.status.get(group)
        for each in held if isinstance(held, list) else ():
            state = _mapping(_mapping(each).get("state")).get("waiting")
            if isinstance(state, dict):
                yield str(_mapping(each).get("name")), str(state.get("reason") or "")


def _mapping(value: Tree) -> Mapping[str, Tree]:
    return value if isinstance(value, dict) else {}
