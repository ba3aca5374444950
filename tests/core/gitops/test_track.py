"""Drifts over time: opened once, kept while they last, resolved when they are gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.diff import Change
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.gitops.application import (
    Application,
    ApplicationId,
    ApplicationSpec,
    DriftSpec,
    MatchSpec,
    Remediation,
    RouteSpec,
    SourceSpec,
)
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.objects import ObjectHealth, ObservedObject, SyncStatus
from holdfast.core.gitops.source import DeclaredObject, Origin
from holdfast.core.gitops.track import TrackedDrifts, close_undeclared, track
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.object_diff import ObjectDiff, ObjectState
from holdfast.core.ownership.signals import FieldDrift, Signal

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
APPLICATION = Application(
    id=ApplicationId(namespace="gitops", name="chat"),
    spec=ApplicationSpec(
        project="p",
        source=SourceSpec(url="https://git.example/infra.git"),
        drift=DriftSpec(
            routes=(
                RouteSpec(
                    name="images",
                    match=MatchSpec(paths=("spec.image",)),
                    remediation=Remediation.PULL_REQUEST,
                ),
                RouteSpec(name="rest", remediation=Remediation.REVIEW),
            )
        ),
    ),
)


def observed(
    values: dict[str, int], name: str = "chat", status: SyncStatus | None = None
) -> ObservedObject:
    """An object of which these fields moved to these values."""
    ref = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="prod", name=name)
    found = tuple(
        FieldDrift(
            change=Change(path=("spec", field), desired=0, live=value),
            kind=DriftKind.CONFIGURATION,
            signal=Signal.VALUE,
            field_class=FieldClass.OWNED,
            evidence="",
            confirmed=True,
            cause=Cause.PERSON,
        )
        for field, value in sorted(values.items())
    )
    state = ObjectState.DRIFTED if found else ObjectState.IN_SYNC
    item = {"metadata": {"name": name, "uid": "u1"}}
    return ObservedObject(
        ref=ref,
        sync_status=status or (SyncStatus.DRIFTED if found else SyncStatus.IN_SYNC),
        health=ObjectHealth.HEALTHY,
        live=item,
        declared=DeclaredObject(ref=ref, item=item, origin=Origin(file="a.yaml", lines={})),
        diff=ObjectDiff(state=state, field_drifts=found),
        applied=True,
    )


def tracked(
    objects: list[ObservedObject], before: tuple[ObjectDrift, ...] = (), minutes: int = 0
) -> TrackedDrifts:
    now = NOW + timedelta(minutes=minutes)
    return track(APPLICATION, objects, {each.id: each for each in before}, commit="c1", now=now)


def test_fields_of_different_routes_are_different_drifts() -> None:
    found = tracked([observed({"image": 1, "replicas": 2, "args": 3})]).opened
    assert {(each.route, len(each.entries)) for each in found} == {("images", 1), ("rest", 2)}


def test_a_drift_keeps_its_id_while_its_fields_change() -> None:
    (first,) = tracked([observed({"replicas": 2})]).opened
    after = tracked([observed({"replicas": 3, "args": 1})], (first,), minutes=5)
    assert [each.id for each in after.changed] == [first.id]
    assert after.changed[0].last_seen > first.last_seen
    assert (after.opened, after.same, after.resolved) == ((), (), ())


@pytest.mark.parametrize("state", [DriftState.REJECTED, DriftState.SNOOZED, DriftState.AWAITING])
def test_what_was_decided_counts_for_what_was_reviewed_alone(state: DriftState) -> None:
    (first,) = tracked([observed({"replicas": 2})]).opened
    decided = replace(first, state=state, plan="sha256:1", decided_by="alice")
    (same,) = tracked([observed({"replicas": 2})], (decided,), minutes=1).same
    assert same.state is state
    (changed,) = tracked([observed({"replicas": 3})], (decided,), minutes=1).changed
    assert (changed.state, changed.plan) == (DriftState.DETECTED, "")


@pytest.mark.parametrize(
    ("state", "remediation", "resolution"),
    [
        (DriftState.DETECTED, Remediation.REVIEW, Resolution.EXTERNAL),
        (DriftState.HEALING, Remediation.SELF_HEAL, Resolution.SELF_HEALED),
        (DriftState.FIGHTING, Remediation.SELF_HEAL, Resolution.SELF_HEALED),
        (DriftState.APPROVED, Remediation.REVIEW, Resolution.APPROVED),
        (DriftState.APPROVED, Remediation.REPORT, Resolution.REVERTED),
    ],
)
def test_how_a_drift_ended_follows_from_what_was_done_about_it(
    state: DriftState, remediation: Remediation, resolution: Resolution
) -> None:
    (first,) = tracked([observed({"replicas": 2})]).opened
    before = replace(first, state=state, remediation=remediation)
    (ended,) = tracked([observed({})], (before,), minutes=1).resolved
    assert (ended.state, ended.resolution) == (DriftState.RESOLVED, resolution)


names = st.sampled_from(["a", "b", "c"])
values = st.dictionaries(st.sampled_from(["image", "replicas", "args"]), st.integers(1, 3))
worlds = st.dictionaries(names, values).map(
    lambda found: [observed(fields, name) for name, fields in found.items()]
)


@given(worlds)
def test_tracking_the_same_again_changes_nothing(world: list[ObservedObject]) -> None:
    first = tracked(world).open
    again = tracked(world, first, minutes=1)
    assert (again.opened, again.changed, again.resolved) == ((), (), ())
    assert sorted(each.id for each in again.same) == sorted(each.id for each in first)


@given(worlds, worlds)
def test_every_drift_of_before_is_open_or_resolved_and_none_is_both(
    before: list[ObservedObject], now: list[ObservedObject]
) -> None:
    first = tracked(before).open
    after = tracked(now, first, minutes=1)
    seen = {each.ref for each in now}
    known = {each.id for each in first if each.object in seen}
    kept = {each.id for each in (*after.changed, *after.same)}
    resolved = {each.id for each in after.resolved}
    assert kept | resolved == known
    assert not kept & resolved
    assert not known & {each.id for each in after.opened}


@given(worlds)
def test_what_could_not_be_read_changes_nothing(world: list[ObservedObject]) -> None:
    first = tracked(world).open
    unread = [replace(each, sync_status=SyncStatus.UNKNOWN, live=None) for each in world]
    after = tracked(unread, first, minutes=1)
    assert (after.open, after.resolved) == ((), ())


@given(worlds)
def test_every_drifted_field_is_in_exactly_one_drift(world: list[ObservedObject]) -> None:
    for each in world:
        entries = [entry.path for drift in tracked([each]).open for entry in drift.entries]
        assert sorted(entries) == sorted(".".join(f.change.path) for f in each.drifted)


@given(worlds)
def test_drifts_of_what_is_no_longer_declared_end_as_gone(world: list[ObservedObject]) -> None:
    first = {each.id: each for each in tracked(world).open}
    gone = close_undeclared(first, {each.ref for each in world[:1]}, NOW)
    assert {each.resolution for each in gone} <= {Resolution.GONE}
    assert {each.object for each in gone}.isdisjoint({each.ref for each in world[:1]})


@pytest.mark.parametrize("status", SyncStatus)
@pytest.mark.parametrize("state", [each for each in DriftState if each is not DriftState.RESOLVED])
@pytest.mark.parametrize("remediation", Remediation)
def test_a_drift_is_kept_or_ended_whatever_became_of_its_object(
    status: SyncStatus, state: DriftState, remediation: Remediation
) -> None:
    (first,) = tracked([observed({"replicas": 2})]).opened
    before = replace(first, state=state, remediation=remediation)
    after = tracked([observed({"replicas": 2}, status=status)], (before,), minutes=1)
    same = [each.id for each in after.same]
    ended = [(each.id, each.state) for each in after.resolved]
    match status:
        case SyncStatus.UNKNOWN:
            assert (after.open, after.resolved) == ((), ())
        case SyncStatus.DRIFTED:
            assert (same, ended) == ([before.id], [])
            assert after.same[0].state is state
        case _:
            assert (same, ended) == ([], [(before.id, DriftState.RESOLVED)])
            assert after.resolved[0].resolution is not None
    assert bool(after.opened) is (status is SyncStatus.ORPHAN)
