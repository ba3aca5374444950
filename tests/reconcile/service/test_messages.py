"""What the status says about replicas in words: true and readable at every moment of a rollout."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.service.facts import ConditionReport, ConditionReports
from holdfast.core.service.spec import Condition, InferenceServiceStatus
from holdfast.reconcile.service.conditions import describe_rollout
from holdfast.reconcile.service.messages import note_of
from holdfast.reconcile.service.observe import RolloutStatus
from holdfast.reconcile.service.transitions import facts_of_transition


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
    assert describe_rollout(state) == words


@pytest.mark.parametrize(("reason", "warns"), [("RollingOut", False), ("PodsFailing", True)])
def test_a_rollout_is_told_without_a_warning(reason: str, warns: bool) -> None:
    before = InferenceServiceStatus(conditions=(_ready("True", "Serving"),))
    (fact,) = facts_of_transition(before, {}, _reports(_report("Ready", "False", reason)))
    assert (note_of(fact).reason, note_of(fact).warning) == ("NotReady", warns)


@pytest.mark.parametrize("sentence", ["As it is.", "In other words."])
def test_a_condition_is_told_again_for_its_values_and_never_for_its_words(sentence: str) -> None:
    before = InferenceServiceStatus(
        conditions=(_ready("True", "Serving"), _ready("True", "Left", type="DriftDetected"))
    )
    left = _report("DriftDetected", "True", "Left", about="image")
    again = replace(left, message=sentence)
    ready = _report("Ready", "True", "Serving")
    last = _reports(ready, left)
    assert not [*facts_of_transition(before, last, _reports(ready, again))]
    other = _report("DriftDetected", "True", "Left", about="replicas")
    (fact,) = facts_of_transition(before, last, _reports(ready, other))
    assert note_of(fact).reason == "DriftLeft"
    assert not [*facts_of_transition(before, {}, _reports(ready, other))], "after a restart"


def _ready(status: str, reason: str, *, type: str = "Ready") -> Condition:
    return Condition(type=type, status=status, reason=reason, message="As it is.")


def _report(type: str, status: str, reason: str, about: str = "") -> ConditionReport:
    return ConditionReport(
        type=type, status=status, reason=reason, message="As it is.", details=(about,)
    )


def _reports(*reports: ConditionReport) -> ConditionReports:
    usual = (_report("UpToDate", "True", "AsDeclared"), _report("DriftDetected", "False", "None"))
    return {each.type: each for each in (*usual, *reports)}
