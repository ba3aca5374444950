"""How far a Deployment is, read from its live object, and what ails the pods that are not ready.

Pure, except that the pods are asked when some are not ready. The status is made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.core.errors import HoldfastError
from holdfast.core.ink import clean
from holdfast.core.ownership.objects import at
from holdfast.core.redact import redact
from holdfast.core.service.children import selector
from holdfast.core.service.spec import InferenceService
from holdfast.core.tree import Fields, Path, Tree
from holdfast.reconcile.kube import KubeClient, Scope
from holdfast.reconcile.service.family import Part

PATIENCE = 5.0
"""Seconds that pods may take before they are asked what ails them."""
_BENIGN = ("", "ContainerCreating", "PodInitializing", "Completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Counts of one Deployment. `seen` is False while its controller has not read the last spec."""

    wanted: int
    total: int
    updated: int
    ready: int
    available: int
    seen: bool
    stuck: str | None
    """Why the Deployment's own controller gave up, in its words."""

    @property
    def rolling(self) -> bool:
        """Pods of an older template are still there, or the newest are not all there yet."""
        return not self.seen or self.updated < self.wanted or self.total > self.updated

    @property
    def complete(self) -> bool:
        """Every pod is of the newest template, and ready."""
        return not self.rolling and self.ready >= self.wanted and self.available >= self.wanted


def rollout_of(live: Fields | None) -> Rollout | None:
    """Read a Deployment; None when there is none."""
    if live is None:
        return None
    return Rollout(
        wanted=_count(live, ("spec", "replicas"), 1),
        total=_count(live, ("status", "replicas")),
        updated=_count(live, ("status", "updatedReplicas")),
        ready=_count(live, ("status", "readyReplicas")),
        available=_count(live, ("status", "availableReplicas")),
        seen=_count(live, ("status", "observedGeneration"))
        >= _count(live, ("metadata", "generation")),
        stuck=_stuck(live),
    )


def conditions_of(live: Fields, path: Path = ("status", "conditions")) -> dict[str, Fields]:
    """The conditions of any object, by type."""
    found = at(live, path)
    held = found if isinstance(found, list) else []
    return {str(each.get("type")): each for each in held if isinstance(each, dict)}


def unready_for(
    service: InferenceService, live: Mapping[Part, Fields], now: datetime
) -> float | None:
    """For how many seconds replicas have been missing, by the status; None when none is."""
    rollouts = (rollout_of(live.get(part)) for part in (Part.PRIMARY, Part.CANARY))
    if not any(each is not None and each.ready < each.wanted for each in rollouts):
        return None
    held = service.status.conditions if service.status else ()
    ready = next((each for each in held if each.type == "Ready"), None)
    if ready is None or ready.status == "True" or ready.last_transition_time is None:
        return 0.0
    since = datetime.fromisoformat(ready.last_transition_time.replace("Z", "+00:00"))
    return max((now - since).total_seconds(), 0.0)


async def ailments(client: KubeClient, service: InferenceService) -> str:
    """Say why pods are not ready: what their containers or the scheduler report.

    Only words for a person, so a list that fails costs them and nothing else.
    """
    labels = ",".join(f"{name}={value}" for name, value in selector(service.name).items())
    scope = Scope(api_version="v1", kind="Pod", namespace=service.namespace, labels=labels)
    try:
        pods = (await client.list(scope)).items
    except HoldfastError:
        return ""
    found = dict.fromkeys(text for pod in pods if (text := _ailment(pod)))
    shown = list(found)[:3]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return clean(redact("; ".join(shown)), ascii_only=False) + more


def _ailment(pod: Fields) -> str:
    for group in ("initContainerStatuses", "containerStatuses"):
        states = at(pod, ("status", group))
        for each in states if isinstance(states, list) else ():
            if not isinstance(each, dict):
                continue
            waiting = str(at(each, ("state", "waiting", "reason")) or "")
            if waiting in _BENIGN:
                waiting = str(at(each, ("state", "terminated", "reason")) or "")
            if waiting not in _BENIGN:
                why = _ended(at(each, ("lastState", "terminated")))
                return f"{_name(pod)}: {waiting}{why}"
    scheduled = conditions_of(pod).get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{_name(pod)}: {scheduled.get('reason')}: {scheduled.get('message') or ''}"[:300]
    return ""


def _ended(last: Tree) -> str:
    if not isinstance(last, dict):
        return ""
    return f" (ended with {last.get('reason')}, exit code {last.get('exitCode')})"


def _name(pod: Fields) -> str:
    return str(at(pod, ("metadata", "name")))


def _stuck(live: Fields) -> str | None:
    found = conditions_of(live)
    failing = found.get("ReplicaFailure", {})
    if failing.get("status") == "True":
        return str(failing.get("message") or failing.get("reason"))
    progress = found.get("Progressing", {})
    if progress.get("status") == "False":
        return str(progress.get("message") or progress.get("reason"))
    return None


def _count(live: Fields, path: Path, default: int = 0) -> int:
    found = at(live, path)
    return found if isinstance(found, int) and not isinstance(found, bool) else default
