"""The `Target` and `ControlTarget` ports, as every adapter must keep them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.contracts.targets import PROJECT

from holdfast.core.cost import CostKind
from holdfast.core.drift import find_drift
from holdfast.core.errors import Conflict, HoldfastError, NotFound, ValidationError
from holdfast.core.live import Absent, Live, Observation
from holdfast.core.names import WorkloadId
from holdfast.core.outcome import Outcome
from holdfast.core.plan import Action, Disruption, Step, delete_plan, make_plan
from holdfast.core.policy import OnDrift
from holdfast.core.workload import Desired, WorkloadSpec, desired_of
from holdfast.reconcile import reconciler
from holdfast.reconcile.ports import ControlTarget

OnTarget = Callable[[Callable[[ControlTarget], Awaitable[None]]], None]


def declared(slug: str = "chat", **fields: object) -> Desired:
    given: dict[str, object] = {
        "name": slug,
        "slug": slug,
        "model": "meta/llama",
        "backend": "vllm",
        "command": "vllm serve meta/llama --max-model-len 8192",
        "env": {"A": "1"},
        "replicas": 1,
    }
    spec = WorkloadSpec(**{**given, **fields})  # type: ignore[arg-type]  # checked when built
    return desired_of(spec, project=PROJECT)


def step_to(desired: Desired, live: Observation) -> Step:
    return make_plan([find_drift(desired=desired, live=live)]).steps[0]


async def created(target: ControlTarget, desired: Desired, key: str = "create") -> Live:
    live = await target.perform(step_to(desired, Absent(id=desired.id)), key=key)
    assert isinstance(live, Live)
    return live


async def updated(target: ControlTarget, desired: Desired, live: Live, key: str = "update") -> Live:
    after = await target.perform(step_to(desired, live), key=key)
    assert isinstance(after, Live)
    return after


async def actions(target: ControlTarget, slug: str = "chat") -> list[str]:
    return [entry.action for entry in await target.history(PROJECT, slug=slug)]


def test_what_was_never_created_is_absent(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        where = WorkloadId(project=PROJECT, slug="chat")
        assert await target.observe(where) == Absent(id=where)

    on_target(scenario)


def test_a_created_workload_is_observed_as_it_was_declared(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        desired = declared()
        live = await created(target, desired)
        assert live.fields == desired.fields
        assert live.generation == 1
        seen = await target.observe(desired.id)
        assert isinstance(seen, Live)
        assert (seen.uid, seen.version, seen.fields) == (live.uid, live.version, live.fields)
        assert seen.writers.keys() == desired.fields.keys()
        assert find_drift(desired=desired, live=seen).fields == ()

    on_target(scenario)


def test_an_update_changes_the_version_and_the_generation_and_keeps_the_uid(
    on_target: OnTarget,
) -> None:
    async def scenario(target: ControlTarget) -> None:
        live = await created(target, declared())
        after = await updated(target, declared(replicas=3, env={"B": "2"}), live)
        assert after.uid == live.uid
        assert after.version != live.version
        assert after.generation == live.generation + 1
        assert after.fields["replicas"] == 3
        assert after.fields["env"] == {"B": "2"}
        assert after.fields["command"] == live.fields["command"]

    on_target(scenario)


def test_a_second_creation_is_a_conflict_and_changes_nothing(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        live = await created(target, declared())
        with pytest.raises(Conflict):
            await created(target, declared(replicas=2), key="other")
        seen = await target.observe(live.id)
        assert isinstance(seen, Live)
        assert (seen.uid, seen.version, seen.fields) == (live.uid, live.version, live.fields)
        assert await actions(target) == ["created"]

    on_target(scenario)


def test_an_update_from_an_older_version_is_a_conflict_and_changes_nothing(
    on_target: OnTarget,
) -> None:
    async def scenario(target: ControlTarget) -> None:
        old = await created(target, declared())
        new = await updated(target, declared(replicas=2), old)
        with pytest.raises(Conflict):
            await updated(target, declared(replicas=3), old, key="late")
        seen = await target.observe(old.id)
        assert isinstance(seen, Live)
        assert seen.version == new.version
        assert seen.fields["replicas"] == 2

    on_target(scenario)


def test_a_step_on_a_workload_that_was_replaced_is_a_conflict(on_target: OnTarget) -> None:
    """Same slug, other uid: an update or a deletion meant the one that is gone."""

    async def scenario(target: ControlTarget) -> None:
        first = await created(target, declared())
        delete = delete_plan(first).steps[0]
        await target.perform(delete, key="delete")
        second = await created(target, declared(), key="again")
        assert second.uid != first.uid
        assert second.version != first.version
        with pytest.raises(Conflict):
            await updated(target, declared(replicas=5), first, key="late-update")
        with pytest.raises(Conflict):
            await target.perform(delete, key="late-delete")
        seen = await target.observe(first.id)
        assert isinstance(seen, Live)
        assert (seen.uid, seen.fields) == (second.uid, second.fields)

    on_target(scenario)


def test_an_update_of_what_was_deleted_is_a_conflict_and_creates_nothing(
    on_target: OnTarget,
) -> None:
    async def scenario(target: ControlTarget) -> None:
        live = await created(target, declared())
        await target.perform(delete_plan(live).steps[0], key="delete")
        with pytest.raises(Conflict):
            await updated(target, declared(replicas=2), live, key="late")
        assert isinstance(await target.observe(live.id), Absent)

    on_target(scenario)


def test_a_uid_from_another_slug_does_not_open_a_workload(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        mine = await created(target, declared("mine"))
        other = await created(target, declared("other"), key="other")
        forged = replace(step_to(declared("mine", replicas=9), mine), uid=other.uid)
        with pytest.raises(Conflict):
            await target.perform(forged, key="forged")
        for live in (mine, other):
            seen = await target.observe(live.id)
            assert isinstance(seen, Live)
            assert seen.version == live.version

    on_target(scenario)


def test_a_deletion_leaves_nothing_and_may_be_repeated(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        live = await created(target, declared())
        delete = delete_plan(live).steps[0]
        for key in ("first", "first", "second"):
            assert await target.perform(delete, key=key) == Absent(id=live.id)
        assert await target.observe(live.id) == Absent(id=live.id)
        assert (await actions(target)).count("deleted") == 1

    on_target(scenario)


def test_a_deletion_of_what_was_changed_since_is_a_conflict(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        old = await created(target, declared())
        await updated(target, declared(replicas=2), old)
        with pytest.raises(Conflict):
            await target.perform(delete_plan(old).steps[0], key="delete")
        assert isinstance(await target.observe(old.id), Live)

    on_target(scenario)


def test_a_repeated_key_answers_the_same_and_has_no_second_effect(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        desired = declared()
        create = step_to(desired, Absent(id=desired.id))
        first = await target.perform(create, key="k1")
        assert await target.perform(create, key="k1") == first
        assert isinstance(first, Live)
        update = step_to(declared(replicas=2), first)
        second = await target.perform(update, key="k2")
        assert isinstance(second, Live)
        await updated(target, declared(replicas=3), second, key="k3")
        again = await target.perform(update, key="k2")
        assert isinstance(again, Live)
        assert (again.version, again.fields) == (second.version, second.fields)
        assert await actions(target) == ["updated", "updated", "created"]

    on_target(scenario)


def test_a_key_that_was_used_for_another_request_is_refused(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        live = await created(target, declared(), key="k1")
        with pytest.raises(HoldfastError) as refused:
            await updated(target, declared(replicas=2), live, key="k1")
        assert not isinstance(refused.value, Conflict)
        seen = await target.observe(live.id)
        assert isinstance(seen, Live)
        assert seen.version == live.version

    on_target(scenario)


def test_a_step_that_does_nothing_only_observes(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        desired = declared()
        live = await created(target, desired)
        nothing = step_to(desired, live)
        assert nothing.action is Action.NOTHING
        after = await target.perform(nothing, key="nothing")
        assert isinstance(after, Live)
        assert after.version == live.version
        assert await actions(target) == ["created"]

    on_target(scenario)


def test_writing_another_spelling_of_what_is_there_changes_nothing(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        live = await created(target, declared())
        step = Step(
            id=live.id,
            action=Action.UPDATE,
            reason="spelling",
            disruption=Disruption.NONE,
            write={"command": "vllm serve meta/llama --max-model-len=8192"},
            uid=live.uid,
            version=live.version,
        )
        after = await target.perform(step, key="spelling")
        assert isinstance(after, Live)
        assert (after.version, after.generation) == (live.version, live.generation)
        assert await actions(target) == ["created"]

    on_target(scenario)


def test_what_would_leave_an_invalid_workload_is_refused_whole(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        live = await created(target, declared())
        for write in ({"replicas": -1}, {"nonsense": 1}, {"model": None}, {"slug": "other"}):
            step = Step(
                id=live.id,
                action=Action.UPDATE,
                reason="bad",
                disruption=Disruption.NONE,
                write={"description": "new", **write},
                uid=live.uid,
                version=live.version,
            )
            with pytest.raises(ValidationError):
                await target.perform(step, key=str(write))
        seen = await target.observe(live.id)
        assert isinstance(seen, Live)
        assert (seen.version, seen.fields) == (live.version, live.fields)

    on_target(scenario)


def test_of_many_that_create_one_slug_at_once_exactly_one_does(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        results = await asyncio.gather(
            *(created(target, declared(replicas=n + 1), key=f"k{n}") for n in range(16)),
            return_exceptions=True,
        )
        won = [result for result in results if isinstance(result, Live)]
        assert len(won) == 1
        assert all(isinstance(result, Live | Conflict) for result in results)
        assert await actions(target) == ["created"]

    on_target(scenario)


def test_many_reconcile_one_workload_at_once_and_it_ends_as_declared(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        desired = declared(replicas=4)
        outcomes = await asyncio.gather(
            *(reconciler.ensure(target, desired, key=f"call{n}") for n in range(8))
        )
        assert sorted(each.outcome for each in outcomes).count(Outcome.CREATED) == 1
        assert await actions(target) == ["created"]
        again = await reconciler.ensure(target, desired, on_drift=OnDrift.FAIL, key="again")
        assert again.outcome is Outcome.UNCHANGED

    on_target(scenario)


def test_a_project_is_listed_whole_and_in_order(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        assert list(await target.list(PROJECT)) == []
        for slug in ("b", "a-1", "a", "c"):
            await created(target, declared(slug), key=slug)
        assert [live.id.slug for live in await target.list(PROJECT)] == ["a", "a-1", "b", "c"]

    on_target(scenario)


def test_history_is_newest_first_and_outlives_the_workload(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        live = await created(target, declared())
        live = await updated(target, declared(replicas=2), live)
        await target.perform(delete_plan(live).steps[0], key="delete")
        rows = await target.history(PROJECT, slug="chat")
        assert [row.action for row in rows] == ["deleted", "updated", "created"]
        assert [row.seq for row in rows] == sorted((row.seq for row in rows), reverse=True)
        assert all(row.writer.manager for row in rows)
        assert len(await target.history(PROJECT, slug="chat", limit=2)) == 2
        assert await target.history(PROJECT, slug="elsewhere") == []

    on_target(scenario)


def test_nothing_has_drifted_after_our_own_writes(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        live = await created(target, declared())
        await updated(target, declared(replicas=2), live)
        assert list(await target.drifts(PROJECT)) == []
        assert list(await target.drifts(PROJECT, include_resolved=True)) == []

    on_target(scenario)


def test_progress_and_logs_of_what_is_not_there_are_not_found(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        nobody = WorkloadId(project=PROJECT, slug="nobody")
        with pytest.raises(NotFound):
            await anext(aiter(target.progress(nobody)))
        with pytest.raises(NotFound):
            await anext(aiter(target.logs(nobody, tail=10, follow=False)))

    on_target(scenario)


def test_closing_twice_is_harmless(on_target: OnTarget) -> None:
    async def scenario(target: ControlTarget) -> None:
        await target.aclose()
        await target.aclose()

    on_target(scenario)


def test_what_a_step_costs_is_asked_without_changing_anything(on_target: OnTarget) -> None:
    """How much is known differs by target; that a moved world is unknown, and no error, is not."""

    async def scenario(target: ControlTarget) -> None:
        desired = declared()
        (creation,) = make_plan([find_drift(desired=desired, live=Absent(id=desired.id))]).steps
        await target.cost(creation)
        assert await target.observe(desired.id) == Absent(id=desired.id)
        live = await created(target, desired)
        (update,) = make_plan([find_drift(desired=declared(replicas=3), live=live)]).steps
        for step in (update, delete_plan(live).steps[0]):
            cost = await target.cost(step)
            assert cost is None or cost.kind in CostKind
            moved = replace(step, version=f"{step.version}-before")
            assert await target.cost(moved) is None
            assert await target.cost(replace(step, uid="another")) is None
        assert await target.cost(creation) is None  # it is there meanwhile
        assert await target.cost(replace(update, write={"replicas": "many"})) in (None, cost)
        seen = await target.observe(live.id)
        assert isinstance(seen, Live)
        assert (seen.version, seen.fields) == (live.version, live.fields)
        assert await actions(target) == ["created"]

    on_target(scenario)
