"""Hands the number of replicas over to an autoscaler and takes it back, never by way of one.

A field that its last owner leaves out falls back to its default, which is a single pod. So a
second field manager holds the number before it is left out of ours (the keeper sees to that).
Held so, it also has an owner, without which the API server would not say who scales.
"""

from __future__ import annotations

from holdfast.core.drift import Cause, cause_of
from holdfast.core.ownership.delegated import SEED
from holdfast.core.ownership.objects import at
from holdfast.core.ownership.owned import read_ownership
from holdfast.core.service.spec import InferenceService
from holdfast.core.tree import Fields
from holdfast.reconcile.keeper import guarded
from holdfast.reconcile.kube import KubeClient
from holdfast.reconcile.service.family import OPERATOR

_PATH = ("spec", "replicas")


def number_of(live: Fields | None) -> int | None:
    """How many replicas a Deployment is to have."""
    found = None if live is None else at(live, _PATH)
    return found if isinstance(found, int) else None


def start_of(service: InferenceService) -> int:
    """With how many a Deployment starts whose number others choose.

    One that was deleted comes back as it was seen last, not as a single pod.
    """
    spec = service.spec
    seen = service.status.replicas if service.status else 0
    start = seen or spec.replicas or spec.min_replicas or 1
    if spec.autoscaled:
        start = min(max(start, spec.min_replicas or 1), spec.max_replicas or start)
    return start


def started(item: Fields, number: int) -> Fields:
    """The manifest with a number to start with."""
    spec = item["spec"]
    assert isinstance(spec, dict)  # noqa: S101  # every Deployment has one
    return {**item, "spec": {"replicas": number, **spec}}


def of_uid(item: Fields, live: Fields) -> Fields:
    """Let a write hold for the object that was seen, whatever its version."""
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    return {**item, "metadata": {**metadata, "uid": at(live, ("metadata", "uid"))}}


def is_free(item: Fields) -> bool:
    """True for a manifest that leaves the number to others."""
    return number_of(item) is None


def is_held(live: Fields) -> bool:
    """True while the number is in our own manifest."""
    return _owned_by(live, OPERATOR)


def is_loose(live: Fields) -> bool:
    """True when nobody owns the number, so that a later scaling would leave no trace."""
    return not read_ownership(at(live, ("metadata", "managedFields"))).owners(_PATH, "apps/v1")


def is_lent(live: Fields, number: int) -> bool:
    """True when an autoscaler, or its place-holder, still has a number that is ours again."""
    if number_of(live) == number:
        return False
    owners = read_ownership(at(live, ("metadata", "managedFields"))).owners(_PATH, "apps/v1")
    return bool(owners) and all(
        entry.manager == SEED or cause_of(entry.writer) is Cause.AUTOSCALER for entry in owners
    )


async def take(client: KubeClient, live: Fields, number: int) -> Fields:
    """Take the number for the second manager; raises KubeConflict when the object moved since."""
    item: Fields = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {name: at(live, ("metadata", name)) for name in ("name", "namespace")},
        "spec": {"replicas": number},
    }
    return await client.apply(guarded(item, live), manager=SEED, force=True)


def _owned_by(live: Fields, manager: str) -> bool:
    entries = read_ownership(at(live, ("metadata", "managedFields"))).entries
    return any(
        entry.manager == manager and entry.operation == "Apply" and entry.owns(_PATH)
        for entry in entries
    )
