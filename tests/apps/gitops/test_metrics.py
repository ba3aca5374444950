"""What happened is counted once it is committed, by its fact."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.memory_ledger import MemoryLedgerStore

from holdfast.adapters.clock import SystemClock
from holdfast.apps.gitops.metrics import GitopsMetrics
from holdfast.apps.server.metrics import ServerMetrics
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.errors import Conflict
from holdfast.core.gitops import facts
from holdfast.core.gitops.application import ApplicationId, PullRequestKind, Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.records import PullRequestRecord
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops.application_state import open_state, retire_application

AT = datetime(2026, 11, 16, 14, tzinfo=UTC)
APPLICATION = ApplicationId(namespace="team", name="shop")
REF = ObjectRef(api_version="v1", kind="ConfigMap", namespace="chat", name="a")
DRIFT = ObjectDrift(
    id="drf-1",
    application=APPLICATION,
    project="p",
    object=REF,
    entries=(
        DriftEntry(
            path="data.x",
            desired="1",
            live="9",
            kind=DriftKind.CONFIGURATION,
            cause=Cause.PERSON,
            evidence="",
        ),
    ),
    commit="c1",
    remediation=Remediation.SELF_HEAL,
    first_seen=AT,
    last_seen=AT,
)
HEALED = replace(
    DRIFT,
    state=DriftState.RESOLVED,
    resolution=Resolution.SELF_HEALED,
    resolved_at=AT + timedelta(seconds=10),
)
PULL = PullRequestRecord(
    branch="holdfast/revert/drf-1",
    drift="drf-1",
    digest="",
    number=1,
    url="",
    head="",
    opened_at=AT,
    checked_at=AT,
)


def pull_labels(kind: str, result: str) -> dict[str, str]:
    return {"provider": "gitea", "kind": kind, "result": result}


DETECTED = "holdfast_drift_detected_total"
RESOLVED = "holdfast_drift_resolved_total"
PULLS = "holdfast_pull_requests_total"
TEAM = {"namespace": "team"}
CASES: list[tuple[facts.ApplicationFact, str, dict[str, str]]] = [
    (
        facts.DriftDetected(drift=DRIFT),
        DETECTED,
        {**TEAM, "type": "configuration", "cause": Cause.PERSON.value},
    ),
    (
        facts.drift_resolved(HEALED),
        RESOLVED,
        {**TEAM, "type": "configuration", "resolution": Resolution.SELF_HEALED.value},
    ),
    (
        facts.drift_resolved(replace(HEALED, resolution=Resolution.IGNORED)),
        RESOLVED,
        {**TEAM, "type": "configuration", "resolution": "ignored"},
    ),
    (facts.drift_resolved(HEALED), "holdfast_drift_time_to_resolve_seconds_count", TEAM),
    (
        facts.FightDetected(drift=DRIFT, writers=("keda",), since=AT),
        "holdfast_selfheal_loop_total",
        TEAM,
    ),
    (facts.PullRequestOpened(drift=DRIFT, url=""), PULLS, pull_labels("codify", "opened")),
    (
        facts.PullRequestOpened(drift=replace(DRIFT, pull=PullRequestKind.REVERT), url=""),
        PULLS,
        pull_labels("revert", "opened"),
    ),
    (facts.PullRequestMerged(pull=PULL), PULLS, pull_labels("revert", "merged")),
    (facts.PullRequestRejected(pull=PULL), PULLS, pull_labels("revert", "rejected")),
    (facts.PullRequestClosed(pull=PULL, reason=""), PULLS, pull_labels("revert", "closed")),
    (
        facts.PullRequestLeftAlone(drift=DRIFT, branch="holdfast/codify/chat-configmap-a"),
        PULLS,
        pull_labels("codify", "left-alone"),
    ),
]


@pytest.mark.parametrize(("fact", "name", "labels"), CASES)
def test_a_fact_is_counted_under_its_labels(
    fact: facts.ApplicationFact, name: str, labels: dict[str, str]
) -> None:
    metrics = GitopsMetrics(ServerMetrics(), lambda id: "gitea")
    metrics.count_fact(APPLICATION, fact)
    assert metrics.registry.get_sample_value(name, labels) == 1


async def test_what_was_not_committed_is_not_counted() -> None:
    clock = SystemClock()
    ledger_store = MemoryLedgerStore(clock)
    counted: list[facts.ApplicationFact] = []
    mine, other = [
        await open_state(ledger_store, APPLICATION, clock, lambda each: counted.extend(each.facts))
        for _ in range(2)
    ]
    mine.put_drift(DRIFT)
    mine.record(facts.DriftDetected(drift=DRIFT))
    assert counted == []
    await mine.commit()
    assert counted == [facts.DriftDetected(drift=DRIFT)]
    other.put_drift(DRIFT)
    other.record(facts.DriftDetected(drift=DRIFT))
    with pytest.raises(Conflict):
        await other.commit()
    await mine.commit()
    assert len(counted) == 1


async def test_drifts_of_an_application_that_is_gone_are_counted_as_such() -> None:
    clock = SystemClock()
    metrics = GitopsMetrics(ServerMetrics())
    state = await open_state(MemoryLedgerStore(clock), APPLICATION, clock, metrics.count_commit)
    state.put_drift(DRIFT)
    await retire_application(state, AT)
    labels = {**TEAM, "type": "configuration", "resolution": "gone"}
    assert metrics.registry.get_sample_value(RESOLVED, labels) == 1
