"""`holdfast drift explain` says in sentences what moved, who moved it, and what follows."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.drifts import (
    CAUSE_TEXTS,
    OBJECTS_PATH,
    show_drift,
    show_drift_explanation,
    show_drifts,
)
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.ledger import DriftEntry, DriftRecord
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId

NOW = datetime(2026, 10, 1, 12, 0, tzinfo=UTC)
SAID = (
    "kubectl-edit changed spec.replicas of Deployment bot-primary at 2026-10-01T11:00:00Z. "
    "It was left, as onDrift: warn says."
)


def record(*entries: DriftEntry, resolution: str | None = None) -> DriftRecord:
    return DriftRecord(
        id="drf-1",
        workload=WorkloadId(project="chat", slug="bot"),
        kinds=(DriftKind.CONFIGURATION,),
        fields=entries,
        first_seen=NOW - timedelta(minutes=14),
        resolved_at=NOW if resolution else None,
        resolution=resolution,
    )


def entry(**given: Any) -> DriftEntry:
    base: dict[str, Any] = {
        "path": "/replicas",
        "desired": 2,
        "live": 5,
        "kind": DriftKind.CONFIGURATION,
        "cause": Cause.PERSON,
        "evidence": "",
        "writer": Writer(manager="kubectl-edit", at=NOW - timedelta(minutes=14)),
    }
    return DriftEntry(**{**base, **given})


def test_a_field_is_explained_with_its_writer_time_and_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_drift_explanation(Screen(), record(entry()), now=NOW)
    shown = capsys.readouterr().out
    assert "chat/bot  drf-1  open for 14m" in shown
    assert "replicas is 5; 2 is declared." in shown
    assert "kubectl-edit wrote it at 2026-10-01 11:46:00Z (14m ago): a tool that people" in shown
    assert "ensure -f FILE puts the declared values back" in shown


def test_the_operators_word_is_shown_as_it_is_and_fits_no_column(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = entry(
        path=OBJECTS_PATH, live=SAID, desired="as declared", writer=None, cause=Cause.UNKNOWN
    )
    show_drift_explanation(Screen(), record(told), now=NOW)
    explained = capsys.readouterr().out
    assert "    kubectl-edit changed spec.replicas of Deployment bot-primary at" in explained
    assert "    It was left, as onDrift: warn says." in explained
    assert "puts the declared values back" not in explained
    show_drift(Screen(), record(told), now=NOW)
    assert f"Objects: {SAID}" in capsys.readouterr().out


def test_a_drift_that_ended_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    show_drift_explanation(Screen(), record(entry(), resolution="healed"), now=NOW)
    assert "The operator put it back." in capsys.readouterr().out


def test_every_cause_has_words() -> None:
    assert set(CAUSE_TEXTS) == set(Cause)


def test_secrets_are_masked(capsys: pytest.CaptureFixture[str]) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    show_drift_explanation(Screen(), record(entry(live=secret, path="/env/KEY")), now=NOW)
    assert secret not in capsys.readouterr().out


def test_nothing_open_is_said(holdfast: Any, chat: Path) -> None:
    holdfast("ensure", "-f", str(chat))
    run = holdfast("drift", "explain", "support-bot")
    assert run.code == 0 and run.out == "No drift is open.\n"
    assert json.loads(holdfast("drift", "explain", "-o", "json").out)["items"] == []


def test_what_the_operator_healed_is_told_once_and_names_the_tool_in_the_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = (
        "kubectl-set changed spec.replicas of Deployment bot-primary at 2026-10-01T11:46:00Z."
        " somebody unknown changed spec.ports of Service bot-svc. It was put back."
    )
    told = entry(
        path=OBJECTS_PATH, live=said, desired="as declared", writer=None, cause=Cause.UNKNOWN
    )
    healed = record(told, resolution="healed")
    show_drift_explanation(Screen(), healed, now=NOW)
    assert capsys.readouterr().out.count("put") == 1
    show_drifts(Screen(), [healed], now=NOW)
    shown = capsys.readouterr().out
    assert "kubectl-set, somebody unknown" in shown
    assert "told by the operator" in shown
    assert shown.endswith("0 open\n")
