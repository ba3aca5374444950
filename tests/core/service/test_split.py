"""Dividing pods and requests, and reading from live objects how they are divided."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.service.split import (
    WEIGHT_TOLERANCE,
    SplitMode,
    canary_share,
    compute_split,
    is_expressible,
    route_accepted,
    route_weight,
    selector_weight,
)

PARENT = {
    "group": "gateway.networking.k8s.io",
    "kind": "Gateway",
    "namespace": "infra",
    "name": "inference",
}


def conditions(generation: int, **statuses: str) -> list[dict[str, Any]]:
    given = {"Accepted": "True", "ResolvedRefs": "True", **statuses}
    return [
        {"type": kind, "status": status, "observedGeneration": generation}
        for kind, status in given.items()
    ]


def route(
    *said: list[dict[str, Any]],
    backends: dict[str, int] | None = None,
    parents: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    refs = parents or [PARENT]
    return {
        "metadata": {"namespace": "default", "generation": 3},
        "spec": {
            "parentRefs": refs,
            "rules": [
                {"backendRefs": [{"name": n, "weight": w} for n, w in (backends or {}).items()]}
            ],
        },
        "status": {
            "parents": [
                {"parentRef": ref, "conditions": each}
                for ref, each in zip(refs, said, strict=False)
            ]
        },
    }


@given(
    weight=st.integers(0, 100),
    declared=st.none() | st.integers(1, 50),
    observed=st.none() | st.integers(0, 50),
    canary=st.none() | st.integers(1, 10),
    gateway=st.booleans(),
)
def test_a_division_gives_both_sides_someone_who_can_answer(
    weight: int, declared: int | None, observed: int | None, canary: int | None, gateway: bool
) -> None:
    split = compute_split(
        weight=weight,
        gateway=gateway,
        ready=True,
        declared=declared,
        observed=observed,
        canary=canary,
    )
    assert split.canary is not None
    assert split.canary >= 1
    assert split.primary is None or split.primary >= 1, "there is always a way back"
    assert 0 <= split.weight <= 100
    if gateway or weight in (0, 100):
        assert split.weight == weight
    if not gateway and declared is not None and 0 < weight < 100:
        assert split.primary is not None
        assert split.weight == canary_share(split.primary, split.canary)
    waiting = compute_split(
        weight=weight,
        gateway=gateway,
        ready=False,
        declared=declared,
        observed=observed,
        canary=canary,
    )
    assert (waiting.primary, waiting.weight) == (declared, 0)


@pytest.mark.parametrize(
    ("replicas", "weight", "given", "possible"),
    [
        (10, 20, 20, True),
        (10, 1, 10, True),
        (5, 10, 20, True),
        (4, 10, 25, False),
        (3, 20, 33, False),
        (2, 20, 50, False),
        (2, 45, 50, True),
        (1, 50, 50, True),
        (1, 20, 50, False),
        (1, 100, 100, True),
    ],
)
def test_a_weight_is_possible_when_pods_come_near_it(
    replicas: int, weight: int, given: int, possible: bool
) -> None:
    split = compute_split(
        weight=weight, gateway=False, ready=True, declared=replicas, observed=replicas
    )
    assert split.mode is SplitMode.REPLICA_RATIO
    assert split.weight == given
    assert is_expressible(weight, given) is possible


def test_the_tolerance_is_what_the_documentation_says() -> None:
    assert WEIGHT_TOLERANCE == 10


@pytest.mark.parametrize(
    ("backends", "weight"),
    [
        ({"bot-primary": 100}, 0),
        ({"bot-primary": 80, "bot-canary": 20}, 20),
        ({"bot-canary": 100}, 100),
        ({"bot-primary": 4, "bot-canary": 1}, 20),
        ({"bot-primary": 1, "bot-canary": 1}, 50),
        ({"bot-primary": 0, "bot-canary": 0}, 0),
        ({}, 0),
    ],
)
def test_the_share_on_a_route_is_read_as_a_percentage(
    backends: dict[str, int], weight: int
) -> None:
    assert route_weight(route(backends=backends), "bot-canary") == weight


@pytest.mark.parametrize(
    ("document", "accepted"),
    [
        (route(conditions(3)), True),
        (route(conditions(2)), False),
        (route(conditions(4)), False),
        (route(conditions(3, Accepted="False")), False),
        (route(conditions(3, ResolvedRefs="False")), False),
        (route(conditions(3, ResolvedRefs="Unknown")), False),
        (route([]), False),
        (route(), False),
        (route(conditions(3), parents=[PARENT, {**PARENT, "name": "other"}]), False),
        (route(conditions(3), conditions(3), parents=[PARENT, {**PARENT, "port": 1}]), True),
        (route(conditions(3), conditions(2), parents=[PARENT, {**PARENT, "port": 1}]), False),
        ({**route(conditions(3)), "status": None}, False),
    ],
)
def test_a_route_is_accepted_when_every_parent_took_over_this_generation(
    document: dict[str, Any], accepted: bool
) -> None:
    assert route_accepted(document) is accepted


def test_what_a_controller_leaves_out_of_a_parent_is_its_default() -> None:
    document = route(conditions(3), parents=[{"name": "inference"}])
    document["status"]["parents"][0]["parentRef"] = {
        **PARENT,
        "namespace": "default",
    }
    assert route_accepted(document)


@pytest.mark.parametrize(
    ("selector", "weight"),
    [
        ({"workload": "bot", "role": "primary"}, 0),
        ({"workload": "bot", "role": "canary"}, 100),
        ({"workload": "bot"}, 50),
        ({}, 0),
        (None, 0),
    ],
)
def test_a_selector_lets_one_or_both_through(selector: Any, weight: int) -> None:
    service = {"spec": {"selector": selector}} if selector is not None else {}
    assert selector_weight(service, "role", "canary") == weight
