"""Runs each scenario of the contract once for every target."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.contracts.targets import FACTORIES, NAMES

from holdfast.reconcile.ports import ControlTarget

Scenario = Callable[[ControlTarget], Awaitable[None]]


@pytest.fixture(params=NAMES)
def on_target(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Run a scenario on a target of its own."""
    if request.param == "kubernetes":
        request.getfixturevalue("kubeconfig")
    factory = FACTORIES[request.param]

    def run(scenario: Scenario) -> None:
        async def played() -> None:
            async with factory(tmp_path) as target:
                await scenario(target)

        asyncio.run(played())

    return run
