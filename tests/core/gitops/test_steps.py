"""Plans: what a sync does to each object, what an approval is bound to, and what makes it stale."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

import pytest

from holdfast.core.diff import Change
from holdfast.core.drift import DriftKind
from holdfast.core.gitops.application import Application, ApplicationId, ApplicationSpec, SourceSpec
from holdfast.core.gitops.objects import (
    APPLICATION_LABEL,
    ForeignOwner,
    ObjectHealth,
    ObservedObject,
    SyncStatus,
)
from holdfast.core.gitops.plan import SyncPlan, decide_object, make_sync_plan
from holdfast.core.gitops.records import AppliedObject
from holdfast.core.gitops.source import DeclaredObject, Origin
from holdfast.core.object_ref import ref_of
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.object_diff import ObjectDiff, ObjectState
from holdfast.core.ownership.signals import FieldDrift, Signal
from holdfast.core.policy import DecisionAction, Reason
from holdfast.core.tree import Fields

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


def field(name: str, *, pending: bool) -> FieldDrift:
    return FieldDrift(
        change=Change(path=("spec", name), desired=1, live=2),
        kind=DriftKind.CONFIGURATION,
        signal=Signal.VALUE,
        field_class=FieldClass.OWNED,
        evidence="",
        pending=pending,
    )


MOVED, ANEW = field("moved", pending=False), field("anew", pending=True)
OURS = live(labels={APPLICATION_LABEL: APPLICATION.id.label})
REF = ref_of(OURS)
INVENTORY = {REF: AppliedObject(ref=REF, uid="u1", commit="c0", declaration="d")}


def observed(
    sync_status: SyncStatus, there: Fields | None, *fields: FieldDrift, **more: Any
) -> ObservedObject:
    diff = ObjectDiff(state=ObjectState.DRIFTED, field_drifts=fields) if fields else None
    given: dict[str, Any] = {"applied": True, "diff": diff, **more}
    return ObservedObject(
        ref=REF, sync_status=sync_status, health=ObjectHealth.HEALTHY, live=there, **given
    )


def plan(seen: ObservedObject, *, prune: bool = True, held: bool = False) -> SyncPlan:
    return make_sync_plan(
        APPLICATION,
        "c" * 40,
        [seen],
        digests=lambda ref: "d",
        inventory=INVENTORY,
        prune=prune,
        held=[seen.ref] if held else [],
    )


S, A, R = SyncStatus, DecisionAction, Reason
NEW = observed(S.OUT_OF_SYNC, None, applied=False)
AHEAD = observed(S.OUT_OF_SYNC, OURS, ANEW)
TAKEN_OVER = observed(S.OUT_OF_SYNC, OURS, ANEW, MOVED, applied=False)
BESIDE = observed(S.DRIFTED, OURS, ANEW, MOVED)
LEFT_OVER = observed(S.PRUNABLE, OURS)
FLUX = {"owner": ForeignOwner.FLUX}

# An object, whether it is held, the decision, and the step of the plan: what it does, to which
# fields, and which it leaves.
STEPS: dict[str, tuple[ObservedObject, bool, DecisionAction, Reason, str]] = {
    "new": (NEW, False, A.CREATE, R.ABSENT, "create"),
    "new, held": (NEW, True, A.LEAVE, R.HELD, ""),
    "new, of another tool": (
        observed(S.OUT_OF_SYNC, None, applied=False, **FLUX), False, A.LEAVE, R.FOREIGN, "",
    ),
    "declared anew": (AHEAD, False, A.UPDATE, R.NEWLY_DECLARED, "update anew"),
    "declared anew, held": (AHEAD, True, A.LEAVE, R.HELD, ""),
    "declared anew, of another tool": (
        observed(S.OUT_OF_SYNC, OURS, ANEW, **FLUX), False, A.LEAVE, R.FOREIGN, "",
    ),
    "taken over": (TAKEN_OVER, False, A.UPDATE, R.NEWLY_DECLARED, "update anew moved"),
    "drifted": (observed(S.DRIFTED, OURS, MOVED), False, A.REPORT, R.POLICY, ""),
    "deleted": (observed(S.DRIFTED, None, ANEW), False, A.REPORT, R.POLICY, ""),
    "drifted, of another tool": (
        observed(S.DRIFTED, OURS, MOVED, **FLUX), False, A.REPORT, R.POLICY, "",
    ),
    "drifted and declared anew": (
        BESIDE, False, A.UPDATE_AROUND_DRIFT, R.NEWLY_DECLARED, "update anew, not moved",
    ),
    "drifted and declared anew, held": (BESIDE, True, A.LEAVE, R.HELD, ""),
    "drifted and declared anew, of another tool": (
        observed(S.DRIFTED, OURS, ANEW, MOVED, **FLUX), False, A.LEAVE, R.FOREIGN, "",
    ),
    "as declared": (observed(S.IN_SYNC, OURS), False, A.NOTHING, R.IN_SYNC, ""),
    "unread": (observed(S.UNKNOWN, None), False, A.HOLD, R.UNREAD, ""),
    "unread, held": (observed(S.UNKNOWN, None), True, A.HOLD, R.UNREAD, ""),
    "an orphan": (observed(S.ORPHAN, OURS, applied=False), False, A.REPORT, R.POLICY, ""),
    "no longer declared": (LEFT_OVER, False, A.UPDATE, R.NEWLY_DECLARED, "delete"),
    "no longer declared, held": (LEFT_OVER, True, A.LEAVE, R.HELD, ""),
    "no longer declared, of another tool": (
        observed(S.PRUNABLE, OURS, **FLUX), False, A.LEAVE, R.FOREIGN, "",
    ),
    "no longer declared, made anew by others": (
        observed(S.PRUNABLE, live(uid="u2")), False, A.UPDATE, R.NEWLY_DECLARED, "",
    ),
    "no longer declared, and gone": (
        observed(S.PRUNABLE, None), False, A.NOTHING, R.IN_SYNC, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STEPS)
def test_what_a_sync_does_to_an_object(case: str) -> None:
    seen, held, action, reason, step = STEPS[case]
    decision = decide_object(seen, held=held)
    assert (decision.action, decision.reason) == (action, reason)
    described = [
        " ".join([each.action.value, *(found.change.path[-1] for found in each.fields)])
        + "".join(f", not {path[-1]}" for path in each.leave)
        for each in plan(seen, held=held).steps
    ]
    assert described == ([step] if step else [])


def test_without_pruning_what_is_no_longer_declared_stays() -> None:
    assert not plan(LEFT_OVER, prune=False)


def test_nothing_is_planned_for_what_is_held_or_another_tools_or_unread() -> None:
    """Over every object there can be, not only those of the table."""
    fields = ((), (MOVED,), (ANEW,), (ANEW, MOVED))
    for status, there, some, applied, owner, held in product(
        S, (OURS, None), fields, (True, False), (None, *ForeignOwner), (True, False)
    ):
        seen = observed(status, there, *some, applied=applied, owner=owner)
        if some and status in (S.PRUNABLE, S.ORPHAN, S.UNKNOWN):
            continue  # there was nothing to compare
        if held or owner is not None or status in (S.UNKNOWN, S.IN_SYNC, S.ORPHAN):
            assert not plan(seen, held=held), (seen, held)
