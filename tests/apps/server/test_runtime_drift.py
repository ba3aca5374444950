"""What replicas serve otherwise than declared, as the server records it and `drift list` shows it.

The runner that asks the engines is tested with it; here its reports are given to the recorder.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from tests.apps.server.api import Api

from holdfast.adapters.runner import RunEvent
from holdfast.adapters.runner.run_spec import EventKind
from holdfast.apps.cli.main import cli
from holdfast.apps.server.live_events import EventHub
from holdfast.apps.server.metrics import ServerMetrics
from holdfast.apps.server.supervisor import ServerSupervisor
from holdfast.core.engine_report import RuntimeDifference

Report = Callable[..., None]
SCALE = "adapters.sql.scale"


@pytest.fixture
def report(api: Api) -> Report:
    """Record what happened to a replica; with fields, what it serves instead of 1."""
    uid = api.create()["id"]

    def record(kind: EventKind, replica: str, **fields: str) -> None:
        differences = tuple(
            RuntimeDifference(pod=replica, field=field, declared="1", served=value)
            for field, value in fields.items()
        )
        happened = RunEvent(
            uid=uid, kind=kind, replica=replica, message=kind, differences=differences
        )

        async def work() -> None:
            reports: asyncio.Queue[RunEvent | None] = asyncio.Queue()
            reports.put_nowait(happened)
            with api.server.admin() as store:
                metrics = ServerMetrics()
                supervisor = ServerSupervisor(store, None, reports, EventHub(), metrics)
                await supervisor.start()
                await supervisor.stop(leave_running=False)

        asyncio.run(work())

    return record


@pytest.fixture
def listed(api: Api, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """What `holdfast drift list` says."""
    monkeypatch.setenv("HOLDFAST_URL", api.server.url)
    monkeypatch.setenv("HOLDFAST_PROJECT", api.project)
    monkeypatch.setenv("HOLDFAST_TOKEN", api.server.token(api.project))

    def ask(*options: str) -> list[Any]:  # Any: JSON
        done = CliRunner().invoke(cli, ["drift", "list", "-o", "json", *options])
        assert done.exit_code == 0, done.output
        return list(json.loads(done.stdout)["items"])

    return ask


def served(found: list[Any]) -> dict[str, Any]:
    """What is served, by replica and field."""
    return {
        field["path"].removeprefix("/runtime/"): field["live"]
        for each in found
        for field in each["fields"]
    }


def test_each_replica_has_a_drift_of_its_own_until_it_serves_as_declared(
    report: Report, listed: Callable[..., list[Any]]
) -> None:
    report("runtime-drifted", "bot-1", **{SCALE: "0"})
    report("runtime-drifted", "bot-2", **{SCALE: "0.5"})
    found = listed("--type", "runtime")
    assert len(found) == 2
    assert listed("--type", "resource") == []
    assert {tuple(each["kinds"]) for each in found} == {("runtime",)}
    assert served(found) == {f"bot-1/{SCALE}": "0", f"bot-2/{SCALE}": "0.5"}
    report("runtime-verified", "bot-1")
    (left,) = listed()
    assert served([left]) == {f"bot-2/{SCALE}": "0.5"}


def test_another_difference_brings_the_drift_up_to_date_and_a_later_one_is_new(
    report: Report, listed: Callable[..., list[Any]]
) -> None:
    report("runtime-drifted", "bot-1", **{SCALE: "0"})
    (first,) = listed()
    report("runtime-drifted", "bot-1", **{SCALE: "0.5", "maxLength": "512"})
    (same,) = listed()
    assert same["id"] == first["id"]
    assert served([same]) == {f"bot-1/{SCALE}": "0.5", "bot-1/maxLength": "512"}
    report("runtime-verified", "bot-1")
    assert listed() == []
    report("runtime-drifted", "bot-1", **{SCALE: "0"})
    (later,) = listed()
    assert later["id"] != first["id"]


@pytest.mark.parametrize("ended", ["ready", "adopted", "replaced", "stopped"])
def test_a_process_that_was_started_anew_ends_the_drift_of_that_replica_alone(
    api: Api, report: Report, listed: Callable[..., list[Any]], ended: EventKind
) -> None:
    report("runtime-drifted", "bot-1", **{SCALE: "0"})
    report("runtime-drifted", "bot-11", **{SCALE: "0"})
    report(ended, "bot-1")
    assert served(listed()) == {f"bot-11/{SCALE}": "0"}
    with api.server.admin() as store:
        every = store.drifts(api.project, include_resolved=True)
    resolutions = {each.fields[0].path.split("/")[2]: each.resolution for each in every}
    assert resolutions == {"bot-1": "superseded", "bot-11": None}
