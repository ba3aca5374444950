"""Verdicts per second and core for real Deployments, against the engines of Argo CD and Flux."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.edits import DEPLOYMENT

from bench.report import Row
from holdfast.core.ownership.object_diff import ObjectState, diff_object
from holdfast.core.ownership.signals import Declaration, declare

OBJECTS = Path(__file__).parent.parent / "tests" / "core" / "ownership" / "objects"
MANAGER = "holdfast-operator"
KEY = b"a key of the benchmark"
NOW = datetime(2026, 11, 16, tzinfo=UTC)

ARGO_CD = 140
"""Per second and core: its engine's normalise and diff of one such Deployment, measured on cores
like these."""
FLUX = 150
"""Per second and core, at best: it asks the API server for a dry run of every object (80 to 150,
measured on cores like these)."""
GOAL = 10_000
COUNT = 2_000


def measure() -> list[Row]:
    """Every verdict is of another object at another version, so that none is remembered."""
    rows = []
    for what, name, state, goal in (
        ("in sync", "nothing", ObjectState.IN_SYNC, GOAL),
        ("drifted", "kubectl-set-image", ObjectState.DRIFTED, None),
    ):
        ours = _per_second(name, state, again=True)
        for peer, theirs in (("Argo CD", ARGO_CD), ("Flux", FLUX)):
            rows.append(_row(f"verdicts on Deployments {what}, against {peer}", ours, theirs, goal))
    first = _per_second("nothing", ObjectState.IN_SYNC, again=False)
    rows.append(_row("verdicts on Deployments never seen before, against Flux", first, FLUX, None))
    return rows


def _row(what: str, ours: float, theirs: int, goal: int | None) -> Row:
    return Row(
        what=what,
        ours=f"{ours:,.0f}/s",
        peer=f"{theirs}/s",
        ratio=ours / theirs,
        goal=None if goal is None else goal / theirs,
    )


def _per_second(name: str, state: ObjectState, *, again: bool) -> float:
    """Judge many objects on one core; `again` after each had another status."""
    pairs = [_pair(name, number) for number in range(COUNT)]
    if again:
        _judged(pairs, state)
        for number, (_, live) in enumerate(pairs):
            live["metadata"]["resourceVersion"] = str(10 * COUNT + number)
            live["status"]["observedGeneration"] = number
    best = 0.0
    for _ in range(3 if again else 1):
        begin = time.process_time()
        _judged(pairs, state)
        best = max(best, COUNT / (time.process_time() - begin))
    return best


def _judged(pairs: list[tuple[Declaration, dict[str, Any]]], state: ObjectState) -> None:
    for declared, live in pairs:
        found = diff_object(declared=declared, live=live, key=KEY, now=NOW)
        assert found.state is state, found


@cache
def _captured(name: str) -> str:
    return (OBJECTS / f"{name}.json").read_text()


# Any: an object of the Kubernetes API as it came over the wire.
def _pair(name: str, number: int) -> tuple[Declaration, dict[str, Any]]:
    live: dict[str, Any] = json.loads(_captured(name))["live"]
    item: dict[str, Any] = json.loads(json.dumps(DEPLOYMENT))
    for each in (item, live):
        each["metadata"] |= {"name": f"bot-{number}", "namespace": "default"}
    declared = declare(item, MANAGER)
    notes = live["metadata"].setdefault("annotations", {})
    notes["holdfast.dev/applied"] = declared.digest
    for entry in live["metadata"]["managedFields"]:
        if entry["manager"] == MANAGER:
            fields = entry["fieldsV1"]["f:metadata"].setdefault("f:annotations", {})
            fields["f:holdfast.dev/applied"] = {}
    live["metadata"]["uid"] = f"uid-{number}"
    live["status"] = STATUS | {"observedGeneration": 1}
    return declared, json.loads(json.dumps(live))


STATUS = {
    "availableReplicas": 2,
    "readyReplicas": 2,
    "replicas": 2,
    "updatedReplicas": 2,
    "conditions": [
        {
            "type": kind,
            "status": "True",
            "reason": "MinimumReplicasAvailable",
            "message": "Deployment has minimum availability.",
            "lastUpdateTime": "2026-11-16T01:00:00Z",
            "lastTransitionTime": "2026-11-16T01:00:00Z",
        }
        for kind in ("Available", "Progressing")
    ],
}
