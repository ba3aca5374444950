"""Runs each scenario of the contract once for every target."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.cluster_fixture import (
    cluster,
    namespace,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_itemcollected,
)
from tests.support.cluster_target import definitions, kubeconfig
from tests.support.targets import FACTORIES, NAMES

from holdfast.reconcile.ports import Control

__all__ = [
    "cluster",
    "definitions",
    "kubeconfig",
    "namespace",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_itemcollected",
]

Scenario = Callable[[Control], Awaitable[None]]


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
