"""What is known of an application in memory is no more than what the ledger was known to have."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.gitops_world import GitopsWorld, config_ref, configmap

from holdfast.core.errors import StoreUnavailable
from holdfast.core.gitops.application import HoldEnd
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.records import TemporaryIgnoreRule
from holdfast.reconcile.gitops.application_state import ApplicationState, open_state

SILENT = StoreUnavailable("The ledger does not answer.")


async def synced() -> tuple[GitopsWorld, ApplicationState]:
    world = GitopsWorld()
    world.git.commit({"a.yaml": configmap("a", x="1")})
    following = await world.start()
    await world.fetch_and_reconcile()
    return world, following.state


def hold(world: GitopsWorld) -> Hold:
    now = world.clock.now()
    return Hold(
        id="hold-1",
        application=world.application.id,
        object=config_ref("a"),
        reason="INC-1",
        by="maria",
        since=now,
        until=now + timedelta(hours=1),
        end=HoldEnd.REVERT,
    )


async def test_what_could_not_be_committed_is_taken_back_though_nothing_can_be_read() -> None:
    world, state = await synced()
    state.put_hold(hold(world))
    await state.commit()
    before = known(state)
    (applied,) = state.inventory.values()
    rule = TemporaryIgnoreRule(
        name="r",
        drift="drf-1",
        path="data.x",
        manager=None,
        kind="ConfigMap",
        object_name="a",
        namespace="chat",
        owner="maria",
        reason="noise",
        expires=world.clock.now() + timedelta(hours=1),
    )
    state.drop_applied(applied.ref)
    state.put_hold(hold(world), ended=True)
    state.put_rule(rule)
    state.put_rule(rule, ended=True)
    state.drop_revision()
    state.put_projects(("other",))
    world.ledger_store.failure = SILENT
    with pytest.raises(StoreUnavailable):
        await state.commit()
    assert known(state) == before
    assert state.stale
    with pytest.raises(StoreUnavailable):
        await state.refresh()
    assert known(state) == before
    world.ledger_store.failure = None
    await state.refresh()
    assert known(state) == before


async def test_a_reading_that_breaks_off_changes_nothing_and_revives_nothing() -> None:
    world, state = await synced()
    state.put_hold(hold(world))
    await state.commit()
    other = await open_state(world.ledger_store, world.application.id, world.clock)
    other.put_hold(hold(world), ended=True)
    await other.commit()
    records = world.ledger_store.records
    calls = 0

    async def breaks_off(*args: object, **more: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise SILENT
        return await records(*args, **more)  # type: ignore[arg-type]

    before = known(state)
    world.ledger_store.records = breaks_off  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreUnavailable):
        await state.refresh()
    assert known(state) == before
    await state.refresh()
    assert state.holds == {}


def known(state: ApplicationState) -> dict[str, object]:
    names = ("inventory", "drifts", "holds", "plans", "pulls", "ended", "rules", "expired")
    return {
        "followed": state.revision,
        "projects": state.projects,
        "unasked": state.unapproved,
        **{name: dict(getattr(state, name)) for name in names},
    }
