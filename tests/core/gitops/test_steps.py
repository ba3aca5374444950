"""Plans: what an approval is bound to, and what may move without making it stale."""

from __future__ import annotations

import copy
from typing import Any

from holdfast.core.diff import Change
from holdfast.core.drift import DriftKind
from holdfast.core.gitops.application import Application, ApplicationId, ApplicationSpec, SourceSpec
from holdfast.core.gitops.objects import ObjectHealth, ObservedObject, SyncStatus
from holdfast.core.gitops.plan import make_sync_plan
from holdfast.core.gitops.source import DeclaredObject, Origin
from holdfast.core.object_ref import ref_of
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.object_diff import ObjectDiff, ObjectState
from holdfast.core.ownership.signals import FieldDrift, Signal

APPLICATION = Application(
    id=ApplicationId(namespace="team", name="shop"),
    spec=ApplicationSpec(project="acme", source=SourceSpec(url="https://git.example.com/a/b.git")),
)


# Any: an object as the API server has it.
def live(kind: str = "Deployment", **metadata: Any) -> dict[str, Any]:
    named = {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "10"}
    version = "apps/v1" if kind == "Deployment" else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": {**named, **metadata}}


def digest_of(item: dict[str, Any]) -> str:
    item = copy.deepcopy(item)
    finding = FieldDrift(
        change=Change(path=("spec", "replicas"), desired=1, live=2),
        kind=DriftKind.CONFIGURATION,
        signal=Signal.VALUE,
        field_class=FieldClass.OWNED,
        evidence="",
        pending=True,
    )
    seen = ObservedObject(
        ref=ref_of(item),
        sync_status=SyncStatus.OUT_OF_SYNC,
        health=ObjectHealth.HEALTHY,
        live=item,
        applied=True,
        declared=DeclaredObject(
            ref=ref_of(item), item=item, origin=Origin(file="a.yaml", lines={})
        ),
        diff=ObjectDiff(state=ObjectState.DRIFTED, field_drifts=(finding,)),
    )
    plan = make_sync_plan(
        APPLICATION, "c" * 40, [seen], digests=lambda ref: "d", inventory={}, prune=False
    )
    assert plan.changes
    return plan.digest


def test_a_status_that_moves_leaves_a_plan_as_it_was_reviewed() -> None:
    before = live(generation=3)
    after = {**live(generation=3, resourceVersion="11"), "status": {"readyReplicas": 2}}
    assert digest_of(before) == digest_of(after)


def test_a_change_of_what_is_asked_for_or_another_object_makes_it_another_plan() -> None:
    before = digest_of(live(generation=3))
    assert digest_of(live(generation=4)) != before
    assert digest_of(live(generation=3, uid="u2")) != before


def test_where_the_server_counts_nothing_every_write_counts() -> None:
    before = digest_of(live("ConfigMap"))
    assert digest_of(live("ConfigMap", resourceVersion="11")) != before
