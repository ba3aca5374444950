"""An Application that is changed or taken away in the middle of a pass: what it says now counts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.adapters.kubernetes.harness import eventually
from tests.support.gitops_world import ControllerWorld, configmap

from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.apply import MAX_PARALLEL

NAMES = [f"c{n}" for n in range(5 * MAX_PARALLEL)]


@pytest.mark.parametrize("change", ["suspended", "wrong", "gone"])
async def test_nothing_more_is_written_under_a_spec_that_counts_no_more(change: str) -> None:
    world = ControllerWorld()
    plain, held = world.kube.apply, asyncio.Event()
    begun = 0

    async def slow(item: Fields, **more: object) -> Fields:
        nonlocal begun
        begun += 1
        await held.wait()
        return await plain(item, **more)  # type: ignore[arg-type]

    world.kube.apply = slow  # type: ignore[method-assign,assignment]
    async with world:
        files = {f"{name}.yaml": configmap(name, x="1") for name in NAMES}
        id = world.declare("shop", files)
        await eventually(lambda: begun == MAX_PARALLEL, "the sync to be under way")
        match change:
            case "suspended":
                application = world.applications.application_of(id)
                spec = replace(application.spec, suspend=True)
                world.applications.put(replace(application, generation=2, spec=spec))
            case "wrong":
                world.applications.spoil(id)
            case _:
                world.applications.remove(id)
        held.set()
        await world.wait_idle()
        written = {write.ref.name for write in world.kube.writes if not write.dry_run}
        assert len(written) == MAX_PARALLEL, "those that had begun, and no other"
