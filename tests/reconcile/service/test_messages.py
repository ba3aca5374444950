"""What the status says about replicas in words: true and readable at every moment of a rollout."""

from __future__ import annotations

import pytest

from holdfast.core.service.spec import Condition, InferenceServiceStatus
from holdfast.reconcile.service.observe import RolloutStatus
from holdfast.reconcile.service.status import _describe_rollout, events_of_transition


def rollout(
    *, desired: int, ready: int, total: int = 0, updated: int | None = None, observed: bool = True
) -> RolloutStatus:
    total = total or ready
    return RolloutStatus(
        desired=desired,
        total=total,
        updated=total if updated is None else updated,
        ready=ready,
        available=ready,
        observed=observed,
        stuck=None,
    )


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (rollout(desired=3, ready=3), "3 of 3 replicas are ready."),
        (rollout(desired=3, ready=1), "1 of 3 replicas is ready."),
        (rollout(desired=1, ready=1), "The replica is ready."),
        (rollout(desired=1, ready=0), "The replica is not ready yet."),
        (rollout(desired=3, ready=4), "4 replicas are ready, 3 wanted."),
        (
            rollout(desired=3, ready=3, observed=False),
            "A change was just written and is not rolled out yet. 3 replicas are ready.",
        ),
        (
            rollout(desired=3, ready=3, total=4, updated=1),
            "A rollout is under way: 1 of 3 replicas has the newest version. 3 replicas are ready.",
        ),
        (
            rollout(desired=1, ready=0, total=1, updated=0),
            "A rollout is under way: 0 of 1 replicas have the newest version. No replica is ready.",
        ),
    ],
)
def test_replicas_are_counted_in_a_sentence_that_is_true(state: RolloutStatus, words: str) -> None:
    assert _describe_rollout(state) == words


@pytest.mark.parametrize(("reason", "warns"), [("RollingOut", False), ("PodsFailing", True)])
def test_a_rollout_is_told_without_a_warning(reason: str, warns: bool) -> None:
    before = InferenceServiceStatus(conditions=(_ready("True", "Serving"),))
    after = InferenceServiceStatus(conditions=(_ready("False", reason),))
    assert [(note.reason, note.warning) for note in events_of_transition(before, after)] == [
        ("NotReady", warns)
    ]


def _ready(status: str, reason: str) -> Condition:
    return Condition(type="Ready", status=status, reason=reason, message="As it is.")
