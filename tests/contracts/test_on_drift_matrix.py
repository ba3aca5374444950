"""Five policies, three situations, every target, both colours: the table that we publish."""

from __future__ import annotations

import itertools

import pytest
from tests.contracts.drift_worlds import World, observed, remote, world

from holdfast import Live, OnDrift, Outcome
from holdfast.core.names import WorkloadId
from holdfast.testing import a_spec

__all__ = ["remote", "world"]

NUMBERS = itertools.count(1)
WANTED, MOVED = 2, 9


@pytest.mark.parametrize("policy", OnDrift)
@pytest.mark.parametrize("situation", ["absent", "in-sync", "drifted"])
def test_each_policy_does_in_each_situation_what_the_table_says(
    world: World, situation: str, policy: OnDrift
) -> None:
    spec = a_spec(name=f"chat-{next(NUMBERS)}", replicas=WANTED)
    where = WorkloadId(project="acme", slug=spec.slug)
    before: Live | None = None
    if situation != "absent":
        before = world.client.ensure(spec).live
        assert before is not None
    if situation == "drifted":
        assert before is not None
        world.move(before, {"replicas": MOVED})
        before = world.client.get(where.slug)
        assert before is not None
        assert before.generation == 2
    written = world.written()

    noticed, ref, plan = observed(world, spec, policy)
    sent = None if written is None else (world.written() or 0) - written
    after = world.client.get(where.slug)

    if situation == "absent":
        assert (noticed, ref and ref.outcome) == ("quiet", Outcome.CREATED)
        assert after.generation == 1
        assert sent in (None, 1)
        return
    assert before is not None
    if situation == "in-sync":
        assert (noticed, ref and ref.outcome) == ("quiet", Outcome.UNCHANGED)
    elif policy is OnDrift.RECONCILE:
        assert (noticed, ref and ref.outcome) == ("quiet", Outcome.UPDATED)
        assert world.client.ensure(spec, on_drift="fail").outcome is Outcome.UNCHANGED
        assert (after.uid, after.generation) == (before.uid, 3)
        assert sent in (None, 1)
        assert [record.resolution for record in world.client.drifts(slug=where.slug)] == []
        (closed,) = world.client.drifts(slug=where.slug, include_resolved=True)
        assert closed.resolution == "reconciled"
        return
    else:
        expected = {
            OnDrift.FAIL: ("raised", None),
            OnDrift.DRY_RUN: ("quiet", Outcome.PLANNED),
            OnDrift.WARN: ("warned", Outcome.LEFT),
            OnDrift.IGNORE: ("quiet", Outcome.LEFT),
        }
        assert (noticed, ref and ref.outcome) == expected[policy]
        assert plan is not None
        assert plan.changes[0].write["replicas"] == WANTED
        (opened,) = world.client.drifts(slug=where.slug)
        assert opened.fields[0].writer is not None
        assert opened.fields[0].writer.manager == "curl"
    assert (after.version, after.fields) == (before.version, before.fields)
    assert sent in (None, 0)
