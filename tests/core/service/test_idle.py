"""When a service that may have no replicas has some: the whole table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.core.service.idle import (
    DATA_PLANE_ANNOTATION,
    DATA_PLANE_TIMEOUT,
    LAST_REQUEST_ANNOTATION,
    IdleReason,
    decide_idle,
)
from holdfast.core.service.spec import (
    AutoscalingSpec,
    CanarySpec,
    Condition,
    HealthCheckSpec,
    InferenceService,
    InferenceServiceSpec,
    InferenceServiceStatus,
)

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
REQUESTED, IDLE = IdleReason.REQUESTED, IdleReason.IDLE
NO_DATA_PLANE, CANARY = IdleReason.NO_DATA_PLANE, IdleReason.CANARY


def stamp(ago: float) -> str:
    return (NOW - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def service(
    *,
    asked: float | None = None,
    seen: float | None = 5,
    changed: float | None = 3600,
    ready: str = "True",
    idle_after: str | None = "60s",
    **spec: Any,
) -> InferenceService:
    """A service of a minute's patience; times are in seconds ago, None is never."""
    annotations = {LAST_REQUEST_ANNOTATION: asked, DATA_PLANE_ANNOTATION: seen}
    conditions = ()
    if changed is not None:
        conditions = (
            Condition(type="Ready", status=ready, reason="R", last_transition_time=stamp(changed)),
        )
    bounds = {"min_replicas": 0, "max_replicas": 1, **spec}
    return InferenceService(
        name="bot",
        annotations={name: stamp(ago) for name, ago in annotations.items() if ago is not None},
        spec=InferenceServiceSpec(
            model_ref="m",
            autoscaling=AutoscalingSpec(idle_after=idle_after),
            health_check=HealthCheckSpec(startup="300s"),
            **bounds,
        ),
        status=InferenceServiceStatus(conditions=conditions),
    )


@pytest.mark.parametrize(
    ("given", "asleep", "expected"),
    [
        # awake
        pytest.param({"asked": 59}, False, (False, REQUESTED), id="asked a moment ago"),
        pytest.param({"asked": 66}, False, (True, IDLE), id="not asked for long"),
        pytest.param({"asked": 61}, False, (False, REQUESTED), id="no sign since it would rest"),
        pytest.param({}, False, (True, IDLE), id="never asked, ready for long"),
        pytest.param({"changed": 59}, False, (False, REQUESTED), id="ready a moment ago"),
        pytest.param({"changed": None}, False, (False, REQUESTED), id="not reported yet"),
        pytest.param({"seen": None}, False, (False, NO_DATA_PLANE), id="never a data plane"),
        pytest.param({"seen": 61}, False, (False, NO_DATA_PLANE), id="the data plane is gone"),
        pytest.param(
            {"ready": "False", "changed": 299}, False, (False, REQUESTED), id="still starting"
        ),
        pytest.param(
            {"ready": "False", "changed": 306}, False, (True, IDLE), id="failing, and not asked"
        ),
        pytest.param(
            {"ready": "False", "changed": 400, "asked": 200},
            False,
            (False, REQUESTED),
            id="failing, and asked within its start-up budget",
        ),
        pytest.param({"idle_after": None, "asked": 599}, False, (False, REQUESTED), id="10m: no"),
        pytest.param({"idle_after": None, "asked": 606}, False, (True, IDLE), id="10m: yes"),
        pytest.param({"idle_after": "1s", "asked": 4}, False, (False, REQUESTED), id="1s is 5s"),
        pytest.param(
            {"canary": CanarySpec(weight=5, model_ref="n")}, False, (False, CANARY), id="a canary"
        ),
        # asleep
        pytest.param({"asked": 1}, True, (False, REQUESTED), id="woken"),
        pytest.param({"asked": 1, "seen": None}, True, (False, REQUESTED), id="woken late"),
        pytest.param({"asked": 61}, True, (True, IDLE), id="asleep"),
        pytest.param({}, True, (True, IDLE), id="asleep, and never asked"),
        pytest.param({"seen": None}, True, (True, IDLE), id="asleep, and nobody to wake it"),
        pytest.param(
            {"canary": CanarySpec(weight=5, model_ref="n")},
            True,
            (False, CANARY),
            id="canary",
        ),
    ],
)
def test_replicas_by_requests_readiness_and_data_planes(
    given: dict[str, Any], asleep: bool, expected: tuple[bool, IdleReason]
) -> None:
    found = decide_idle(service(**given), asleep=asleep, now=NOW)
    assert found is not None
    assert (found.asleep, found.reason) == expected
    seen = given.get("seen", 5)
    assert found.wakeable == (seen is not None and seen < DATA_PLANE_TIMEOUT)
    assert found.recheck_at > NOW


@pytest.mark.parametrize(
    "bounds",
    [{"min_replicas": 1}, {"min_replicas": None, "max_replicas": None}, {"max_replicas": 0}],
)
def test_other_services_are_never_put_to_rest(bounds: dict[str, Any]) -> None:
    assert decide_idle(service(**bounds), asleep=False, now=NOW) is None


def test_what_somebody_else_wrote_into_the_annotations_is_no_time() -> None:
    odd = service()
    odd = InferenceService(
        name="bot",
        annotations={LAST_REQUEST_ANNOTATION: "soon", DATA_PLANE_ANNOTATION: "here"},
        spec=odd.spec,
        status=odd.status,
    )
    found = decide_idle(odd, asleep=False, now=NOW)
    assert found is not None
    assert found.reason is NO_DATA_PLANE
