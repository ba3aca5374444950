"""From what happened to an object to the service that has to be looked at. Pure.

Handlers of informers call it for every event, so it stays cheap and never fails on odd objects.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.adapters.kubernetes.objects import Key, Object
from holdfast.core.service.children import CANARY, PRIMARY, WORKLOAD
from holdfast.core.service.spec import API_VERSION, KIND

_GROUP = API_VERSION.partition("/")[0]
_NOISE = frozenset({"currentMetrics", "lastScaleTime", "collisionCount", "conditions"})
_CLOCKWORK = frozenset({"resourceVersion", "managedFields", "generation"})
_SUFFIXES = tuple(f"-{role}" for role in (PRIMARY, CANARY))


def owner_of(item: Object) -> tuple[Key, str] | None:
    """Return the service that a child belongs to, and its uid as the child has it.

    The uid is empty for a child that lost its owner reference and is known by its label alone.
    """
    metadata = item["metadata"]
    namespace = metadata.get("namespace", "")
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            group = str(reference.get("apiVersion", "")).partition("/")[0]
            if reference.get("kind") != KIND or group != _GROUP:
                return None
            return Key(namespace=namespace, name=reference["name"]), str(reference.get("uid", ""))
    name = (metadata.get("labels") or {}).get(WORKLOAD)
    return (Key(namespace=namespace, name=name), "") if name else None


def scaled_by(autoscaler: Object) -> Key | None:
    """Return the service whose Deployment an autoscaler targets, if its name says so."""
    target = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    name = str(target.get("name", ""))
    for suffix in _SUFFIXES:
        if target.get("kind") == "Deployment" and name.endswith(suffix):
            namespace = autoscaler["metadata"].get("namespace", "")
            return Key(namespace=namespace, name=name.removesuffix(suffix))
    return None


def service_moved(old: Object, new: Object) -> bool:
    """True unless only the status of a service changed, which is our own doing."""
    watched = ("generation", "labels", "annotations", "deletionTimestamp", "uid")
    before, after = old["metadata"], new["metadata"]
    return any(before.get(name) != after.get(name) for name in watched)


def child_moved(old: Object, new: Object) -> bool:
    """True when anything of a child changed but its status and the clockwork of the server."""
    for name in (old.keys() | new.keys()) - {"metadata", "status"}:
        if old.get(name) != new.get(name):
            return True
    before, after = old["metadata"], new["metadata"]
    for name in (before.keys() | after.keys()) - _CLOCKWORK:
        if before.get(name) != after.get(name):
            return True
    return list(_claims(before)) != list(_claims(after))


def status_moved(old: Object, new: Object) -> bool:
    """True when a status says something new; times and raw measurements do not count."""
    return _told(old) != _told(new)


def _claims(metadata: Object) -> Iterator[tuple[object, ...]]:
    """Who owns what, without those who only report a status."""
    for entry in metadata.get("managedFields") or ():
        if entry.get("subresource") != "status":
            yield entry.get("manager"), entry.get("operation"), entry.get("fieldsV1")


def _told(item: Object) -> Object:
    status = item.get("status") or {}
    said: Object = {name: value for name, value in status.items() if name not in _NOISE}
    said["conditions"] = _conditions(status)
    said["parents"] = [
        (parent.get("parentRef"), _conditions(parent)) for parent in status.get("parents") or ()
    ]
    return said


def _conditions(holder: Object) -> list[tuple[object, ...]]:
    names = ("type", "status", "reason", "observedGeneration")
    return [
        tuple(condition.get(name) for name in names) for condition in holder.get("conditions") or ()
    ]
