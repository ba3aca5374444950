"""Figures over drifts: what counts in a time, and what is unknown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import ApplicationId, Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.statistics import DriftStatistics, count_drift, nearest_rank
from holdfast.core.ledger import DriftEntry
from holdfast.core.live import Writer
from holdfast.core.object_ref import ObjectRef

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def entry(
    cause: Cause = Cause.PERSON,
    writer: str = "kubectl-edit",
    kind: DriftKind = DriftKind.CONFIGURATION,
) -> DriftEntry:
    return DriftEntry(
        path=f"data.{cause}",
        desired="1",
        live="2",
        kind=kind,
        cause=cause,
        evidence="",
        writer=Writer(manager=writer) if writer else None,
    )


def drift(begin: float, end: float | None = None, *entries: DriftEntry) -> ObjectDrift:
    """A drift from so many hours after noon to so many."""
    return ObjectDrift(
        id=f"drf-{begin}-{end}",
        application=ApplicationId(namespace="team", name="shop"),
        project="p",
        object=ObjectRef(api_version="v1", kind="ConfigMap", namespace="chat", name="a"),
        entries=entries or (entry(),),
        commit="c",
        remediation=Remediation.REVIEW,
        first_seen=NOON + begin * HOUR,
        last_seen=NOON + begin * HOUR,
        state=DriftState.DETECTED if end is None else DriftState.RESOLVED,
        resolved_at=None if end is None else NOON + end * HOUR,
        resolution=None if end is None else Resolution.APPROVED,
    )


def statistics(*drifts: ObjectDrift) -> DriftStatistics:
    """Figures of the two hours after noon."""
    found = DriftStatistics(since=NOON, until=NOON + 2 * HOUR)
    for each in drifts:
        found.add(count_drift(each))
    return found


@pytest.mark.parametrize(
    ("begin", "end", "minutes", "open_at_end"),
    [
        (0.5, 1.0, 30, 0),
        (-1.0, 1.0, 60, 0),
        (1.0, None, 60, 1),
        (1.0, 5.0, 60, 1),
        (-3.0, None, 120, 1),
        (-3.0, 9.0, 120, 1),
    ],
)
def test_only_what_lies_within_the_time_counts(
    begin: float, end: float | None, minutes: int, open_at_end: int
) -> None:
    found = statistics(drift(begin, end))
    assert (found.whole.count, found.whole.seconds / 60, found.open) == (1, minutes, open_at_end)


@pytest.mark.parametrize(("begin", "end"), [(-3.0, -1.0), (2.0, None), (3.0, 4.0)])
def test_what_was_over_before_or_came_later_does_not_count(begin: float, end: float | None) -> None:
    found = statistics(drift(begin, end))
    assert (found.whole.count, found.by_cause, found.time_to_resolve(0.5)) == (0, {}, None)


def test_the_time_to_resolve_is_of_those_that_ended_within_the_time_and_whole() -> None:
    found = statistics(*(drift(1 - n / 10, 1) for n in range(1, 11)), drift(1, None), drift(1, 5))
    assert found.resolved == 10
    assert found.time_to_resolve(0.5) == pytest.approx(0.5 * 3600)
    assert found.time_to_resolve(0.9) == pytest.approx(0.9 * 3600)


def test_a_drift_of_several_causes_and_writers_counts_under_each_and_unknown_is_said() -> None:
    mixed = drift(
        0, 1, entry(), entry(Cause.UNKNOWN, ""), entry(Cause.CONTROLLER, "x", DriftKind.IMAGE)
    )
    found = statistics(mixed, drift(0, None))
    assert {key: each.count for key, each in found.by_cause.items()} == {
        "person": 2,
        "controller": 1,
        "unknown": 1,
    }
    assert {key: each.count for key, each in found.by_writer.items()} == {
        "kubectl-edit": 2,
        "unknown": 1,
        "x": 1,
    }
    assert {key: each.count for key, each in found.by_kind.items()} == {
        "configuration": 2,
        "image": 1,
    }
    assert {key: each.count for key, each in found.by_resolution.items()} == {
        "approved": 1,
        "open": 1,
    }
    assert found.by_application["team/shop"].seconds == 3 * 3600


def test_decisions_are_counted_by_who_made_them() -> None:
    found = statistics()
    for actor, action in [
        ("maria", "approved"),
        ("maria", "first-approved"),
        ("joe", "rejected"),
        ("joe", "codify-requested"),
        ("joe", "revert-requested"),
        ("joe", "snoozed"),
        ("joe", "detected"),
        ("joe", "refused"),
        ("joe", "an action of a later version"),
    ]:
        found.add_decision(actor, action)
    assert found.decisions["maria"].approved == 2
    joe = found.decisions["joe"]
    assert (joe.rejected, joe.codified, joe.reverted, joe.snoozed, joe.total) == (1, 1, 1, 1, 4)


def test_the_rank_of_few_values_is_one_of_them() -> None:
    assert nearest_rank([], 0.5) is None
    assert nearest_rank([7.0], 0.9) == 7.0
    assert nearest_rank([1.0, 2.0], 0.5) == 1.0
