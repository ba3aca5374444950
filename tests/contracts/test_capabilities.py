"""A target that cannot honour a field says so when it plans, and never drops it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.targets import FACTORIES, PROJECT

from holdfast.core.desired import desired_of
from holdfast.core.errors import ValidationError
from holdfast.core.live import Absent
from holdfast.core.policy import OnDrift
from holdfast.core.workload import Resources, WorkloadSpec
from holdfast.reconcile import reconciler

ON_ONE_MACHINE = ("embedded", "embedded-submitting", "remote")
SPEC = WorkloadSpec(
    name="chat", model="m", backend="vllm", command="vllm serve m", resources=Resources(gpu=2)
)


@pytest.mark.parametrize("name", ON_ONE_MACHINE)
def test_one_machine_refuses_resources_when_it_plans_and_when_it_ensures(
    name: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with FACTORIES[name](tmp_path) as target:
            desired = desired_of(SPEC, project=PROJECT)
            with pytest.raises(ValidationError, match=r"resources\.gpu"):
                await reconciler.plan(target, [desired])
            for policy in OnDrift:
                with pytest.raises(ValidationError, match=r"resources\.gpu"):
                    await reconciler.ensure(target, desired, on_drift=policy, key=policy)
            assert await target.observe(desired.id) == Absent(id=desired.id)

    asyncio.run(story())
