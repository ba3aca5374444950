"""Finds pods that were stopped before they had answered what they were asked.

A pod that serves is ready while another one ends, so no pass would look at that one. Fed by the
operator's watch of pods; whether a hook failed is said by an Event of the kubelet alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.core.errors import HoldfastError
from holdfast.core.ownership.canonical import value_at
from holdfast.core.service.facts import DrainFailed
from holdfast.core.service.pod_overlay import CONTAINER
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import KubeClient, Scope

_MAX_PODS = 3
"""Pods that are asked about for one service at a time."""
_HOOK_FAILED = "FailedPreStopHook"
"""The kubelet's reason where a hook could not be run, or ended with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPod:
    """A pod that is gone."""

    name: str
    uid: str


class EndedPods:
    """Remembers pods that are gone until a pass asks about them. Used from one event loop only."""

    def __init__(self, *, again: Callable[[str, str], None]) -> None:
        """`again` is called with the namespace and name of a service that a pod of is gone."""
        self._again = again
        self._pods: dict[tuple[str, str], deque[EndedPod]] = {}

    def pod_changed(
        self, namespace: str, service: str, old: Fields | None, new: Fields | None
    ) -> None:
        """Take note of a pod that is gone after it was told to end."""
        if new is not None or old is None:
            return
        uid = str(value_at(old, ("metadata", "uid")) or "")
        if not uid or value_at(old, ("metadata", "deletionTimestamp")) is None:
            return
        pods = self._pods.setdefault((namespace, service), deque(maxlen=_MAX_PODS))
        pods.append(EndedPod(name=str(value_at(old, ("metadata", "name"))), uid=uid))
        self._again(namespace, service)

    def take(self, namespace: str, service: str) -> tuple[EndedPod, ...]:
        """Give the pods of a service that are gone, once."""
        return tuple(self._pods.pop((namespace, service), ()))

    def forget(self, namespace: str, service: str) -> None:
        """Forget a service that is gone."""
        self._pods.pop((namespace, service), None)


async def find_failed_drains(
    client: KubeClient, namespace: str, pods: Iterable[EndedPod]
) -> DrainFailed | None:
    """Ask the cluster which of them did not wait; None where it knows of none, or does not say."""
    failed: dict[str, str] = {}
    try:
        for pod in pods:
            scope = Scope(
                api_version="v1",
                kind="Event",
                namespace=namespace,
                fields=f"involvedObject.uid={pod.uid},reason={_HOOK_FAILED}",
            )
            for event in (await client.list(scope)).items:
                if _is_about_server(event, pod):
                    failed[pod.name] = " ".join(str(event.get("message") or "").split())
    except HoldfastError:
        pass
    if not failed:
        return None
    return DrainFailed(pods=tuple(failed), message=next(iter(failed.values())))


def _is_about_server(event: Fields, pod: EndedPod) -> bool:
    place = value_at(event, ("involvedObject", "fieldPath"))
    uid = value_at(event, ("involvedObject", "uid"))
    # A client of somebody's own may not know the selector.
    told = uid == pod.uid and event.get("reason") == _HOOK_FAILED
    return told and place in (None, f"spec.containers{{{CONTAINER}}}")
