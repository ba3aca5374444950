"""A canary judged by a metric, from its first pod to its end, through the reconciler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.inference_services import canary
from tests.support.operator_world import NAME, OperatorWorld, OperatorWorlds


class Gauge:
    """A metric whose value a test sets."""

    def __init__(self) -> None:
        self.value: float | None = 0.0
        self.asked: list[str] = []

    async def query(self, expression: str) -> float | None:
        self.asked.append(expression)
        return self.value


@pytest.fixture
def gauge() -> Gauge:
    return Gauge()


@pytest.fixture
def judged(gauge: Gauge) -> Iterator[OperatorWorld]:
    with OperatorWorlds() as worlds:
        world = worlds.memory(metrics=gauge)
        analysis = {"metric": "errors{pod=~'${CANARY}.*'}", "max": 1, "rounds": 2,
                    "interval": "10s"}  # fmt: skip
        world.declare({"replicas": 4, **canary(weight=25, analysis=analysis)})
        yield world


def model(world: OperatorWorld) -> str:
    notes: dict[str, Any] = world.primary()["spec"]["template"]["metadata"]["annotations"]
    return str(notes["holdfast.dev/model"])


def test_a_canary_that_passes_becomes_the_primary(judged: OperatorWorld, gauge: Gauge) -> None:
    judged.converge()
    assert gauge.asked[0] == "errors{pod=~'my-llama-canary.*'}"
    assert model(judged) == "llama3-8b-q8"
    assert judged.find("Deployment", f"{NAME}-canary") is None
    assert judged.primary()["spec"]["replicas"] == 4
    assert judged.condition("Ready") == ("True", "Serving")


def test_declaring_what_was_promoted_restarts_nothing(judged: OperatorWorld) -> None:
    judged.converge()
    before = judged.primary()["spec"]["template"]
    judged.declare({"replicas": 4, "modelRef": "llama3-8b-q8"})
    judged.converge()
    assert judged.primary()["spec"]["template"] == before


def test_a_canary_that_fails_is_rolled_back_and_stays_away(
    judged: OperatorWorld, gauge: Gauge
) -> None:
    gauge.value = 5.0
    judged.converge()
    assert model(judged) == "llama3-8b-q4"
    assert judged.find("Deployment", f"{NAME}-canary") is None
    assert judged.primary()["spec"]["replicas"] == 4
    assert judged.condition("CanaryReady")[0] == "False"
    judged.restart()
    judged.reconcile()
    assert judged.client.writes == []


def test_an_operator_that_restarts_at_every_pass_comes_to_the_same_end(
    judged: OperatorWorld,
) -> None:
    for _ in range(12):
        result = judged.reconcile()
        judged.settle()
        judged.run(judged.clock.sleep(result.requeue_after or 0))
        judged.restart()
    judged.converge()
    assert model(judged) == "llama3-8b-q8"
    assert judged.find("Deployment", f"{NAME}-canary") is None
