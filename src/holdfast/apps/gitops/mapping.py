"""From what happened to an object to the objects that have to be looked at. Pure.

Called for every event, so it stays cheap: a status that only counts or only ticks is no news.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.adapters.kubernetes.objects import Object, same_but_status
from holdfast.apps.gitops.surroundings import secrets_read, targets, workloads
from holdfast.core.gitops.health import health_of
from holdfast.core.gitops.pods import WORKLOADS, settled
from holdfast.core.objects import ObjectRef, ref_of

Name = tuple[str, str, str, str]
"""Group, kind, namespace and name: its version may change while it stays the same object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One object to look at."""

    ref: ObjectRef
    soon: bool = False
    """Only its status says something new, which comes in bursts and is no hurry."""
    own: bool = True
    """False for an object that is looked at because of another one."""
    kept: bool = False
    """A controller made it, so that it is nobody's orphan."""


def name_of(ref: ObjectRef) -> Name:
    """Name an object whatever the version of its API."""
    return (ref.group, ref.kind, ref.namespace, ref.name)


def moved(old: Object | None, new: Object | None) -> Iterator[Moved]:
    """Say what has to be looked at."""
    item = new if new is not None else old
    if item is None:
        return
    ref = ref_of(item)
    kept = any(each.get("controller") for each in item["metadata"].get("ownerReferences") or ())
    if old is None or new is None or not same_but_status(old, new):
        yield Moved(ref=ref, kept=kept)
    elif _says(old) != _says(new):
        yield Moved(ref=ref, soon=True, kept=kept)
    if ref.kind == "HorizontalPodAutoscaler" and _targets(old) != _targets(new):
        for target in {*_targets(old), *_targets(new)}:
            yield Moved(ref=target, own=False)
    if ref.kind == "Pod" and not ref.group and _runs(old) != _runs(new):
        for each in (*workloads(item), *secrets_read(item)):
            yield Moved(ref=each, soon=True, own=False)


def _says(item: Object) -> tuple[object, ...]:
    """What a status tells us: how the object does, and whether all its pods are its newest."""
    ready = settled(item) if item.get("kind") in WORKLOADS else None
    return (*health_of(item), ready)


def _targets(item: Object | None) -> frozenset[ObjectRef]:
    return frozenset(targets(item)) if item is not None else frozenset()


def _runs(pod: Object | None) -> object:
    """Which images run in a pod, and since when."""
    statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    return [
        (each.get("name"), each.get("imageID"), (each.get("state") or {}).get("running"))
        for each in statuses
    ]
