"""Pods that were stopped without waiting for what they were answering are told of, once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.operator_world import NAME, OperatorWorld

from holdfast.core.errors import PermissionDenied

POD, UID = f"{NAME}-primary-x", "6f1c"


def ended(world: OperatorWorld, uid: str = UID, name: str = POD, *, told: bool = True) -> None:
    """Have a pod go that was told to end."""
    metadata = {"name": name, "uid": uid}
    if told:
        metadata["deletionTimestamp"] = "2026-11-16T12:00:00Z"
    world.pod_seen({"metadata": metadata}, None)


def event(world: OperatorWorld, reason: str = "FailedPreStopHook", **change: Any) -> None:
    """Have the kubelet say something about that pod."""
    about = {"kind": "Pod", "name": POD, "uid": UID, "fieldPath": "spec.containers{server}"}
    world.apply(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{POD}.{reason.lower()}"},
            "reason": reason,
            "message": "PreStopHook failed",
            "involvedObject": {**about, **change},
        }
    )


def told(world: OperatorWorld) -> list[str]:
    """The warnings of one pass, in words."""
    return [note.message for note in world.reconcile().notes if note.warning]


@pytest.fixture
def serving(world: OperatorWorld) -> OperatorWorld:
    world.declare()
    world.converge()
    return world


def test_a_pod_whose_hook_failed_is_told_of_once_while_the_service_is_ready(
    serving: OperatorWorld,
) -> None:
    event(serving)
    ended(serving)
    notes = serving.reconcile().notes
    assert [(note.warning, note.reason) for note in notes] == [(True, "DrainFailed")]
    assert notes[0].message == (
        f"The preStop hook of pod {POD} failed: PreStopHook failed. Requests may have been cut "
        "off. Where the image has no /bin/sh, give lifecycle.preStop in podTemplate."
    )
    assert serving.condition("Ready")[0] == "True"
    assert told(serving) == []


def test_two_pods_are_told_of_in_one_sentence(serving: OperatorWorld) -> None:
    event(serving)
    other = {"uid": "7a2d", "name": "other"}
    event(serving, **other)
    ended(serving)
    ended(serving, **other)
    assert len(told(serving)) == 1


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("Killing", {}),
        ("FailedPreStopHook", {"uid": "another"}),
        ("FailedPreStopHook", {"fieldPath": "spec.containers{exporter}"}),
    ],
)
def test_what_else_is_said_of_pods_tells_of_no_drain(
    serving: OperatorWorld, reason: str, change: dict[str, str]
) -> None:
    event(serving, reason, **change)
    ended(serving)
    assert told(serving) == []


def test_a_pod_that_was_not_told_to_end_and_one_that_stays_are_not_asked_about(
    serving: OperatorWorld,
) -> None:
    event(serving)
    ended(serving, told=False)
    ending = {"metadata": {"name": POD, "uid": UID, "deletionTimestamp": "2026-11-16T12:00:00Z"}}
    serving.pod_seen(ending, ending)
    assert told(serving) == []


def test_events_that_cannot_be_read_stop_nothing_and_are_no_drain(serving: OperatorWorld) -> None:
    denied = PermissionDenied("Events are not yours to list.")
    serving.client.failing = lambda call: denied if call.kind == "Event" else None
    ended(serving)
    assert told(serving) == []


def test_of_many_pods_that_end_at_once_three_are_asked_about(serving: OperatorWorld) -> None:
    for number in range(9):
        ended(serving, f"uid-{number}", f"{NAME}-{number}")
    serving.reconcile()
    assert [call.kind for call in serving.client.calls].count("Event") == 3
