"""How workloads are shown whose target says more than where they stand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.workloads import ObservedWorkload, workload_body, workload_table
from holdfast.core.live import Live, Phase, Status
from holdfast.core.names import WorkloadId

NOW = datetime(2026, 11, 18, tzinfo=UTC)
LIVE = Live(
    id=WorkloadId(project="chat", slug="bot"),
    uid="u",
    version="1",
    generation=1,
    fields={"backend": "vllm", "model": "m"},
    status=Status(phase=Phase.READY, ready=1, wanted=1),
)


def lines(live: Live) -> list[str]:
    return list(workload_table(Screen(), [ObservedWorkload(live=live)], now=NOW))


def test_a_suspended_workload_is_said_to_be_with_the_reason_and_the_end() -> None:
    why = "Nothing is written to its objects until noon: INC-1432"
    live = replace(LIVE, status=replace(LIVE.status, suspended=why))
    assert "ready, suspended" in lines(live)[1]
    assert f"chat/bot is suspended. {why}" in lines(live)
    assert workload_body(ObservedWorkload(live=live))["status"]["suspended"] == why


def test_one_that_is_not_suspended_is_shown_as_ever() -> None:
    assert not any("suspended" in line for line in lines(LIVE))
