"""What of a sync is done now and what waits: a table, and laws over the whole product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations, product

import pytest

from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.guard import ApprovalRequirement
from holdfast.core.gitops.plan import SyncPlan, SyncStep
from holdfast.core.gitops.records import ApprovalReason, PendingPlan
from holdfast.core.gitops.sync_decision import SyncDecision, SyncTerms, decide_sync
from holdfast.core.object_plan import StepReason
from holdfast.core.object_ref import ObjectRef
from holdfast.core.plan import Action

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CREATE, UPDATE, DELETE = Action.CREATE, Action.UPDATE, Action.DELETE
MASS_DELETE, MASS_CHANGE, EMPTY = (
    ApprovalReason.MASS_DELETE, ApprovalReason.MASS_CHANGE, ApprovalReason.EMPTY,
)  # fmt: skip


def plan_of(*actions: Action) -> SyncPlan:
    steps = tuple(
        SyncStep(
            ref=ObjectRef(api_version="v1", kind="ConfigMap", namespace="chat", name=action.value),
            action=action,
            reason=StepReason.DECLARED_ANEW,
            uid=None,
        )
        for action in actions
    )
    application = ApplicationId(namespace="team", name="shop")
    return SyncPlan(application=application, commit="c1", steps=steps, policy="sha256:p")


def requirements_of(*whys: ApprovalReason) -> list[ApprovalRequirement]:
    return [ApprovalRequirement(why=why, message="Somebody has to agree.") for why in whys]


def pending_of(plan: SyncPlan, by: str = "", *, digest: str = "") -> dict[str, PendingPlan]:
    """Keep a plan that waits, or that somebody approved."""
    kept = PendingPlan(
        id=plan.id,
        digest=digest or plan.digest,
        commit=plan.commit,
        reasons=(),
        told="",
        steps=(),
        made_at=AT,
        approved_by=by,
    )
    return {plan.id: kept}


BOTH, WRITES, DELETES = plan_of(CREATE, DELETE), plan_of(CREATE), plan_of(DELETE)
NONE = plan_of()
HANDS_OFF = SyncTerms()
BY_ITSELF = SyncTerms(automatic=True)
PRUNING = SyncTerms(automatic=True, prunes=True)
CLOSED = SyncTerms(automatic=True, prunes=True, window_open=False)
ASKED = SyncTerms(requested=True)
FORCED = SyncTerms(requested=True, forced=True, prunes=True)

# The plan, why it needs approval, the terms, what is known; then what is done and what waits.
Row = tuple[
    SyncPlan,
    Sequence[ApprovalReason],
    SyncTerms,
    Mapping[str, PendingPlan],
    SyncPlan | None,
    SyncPlan | None,
]
TABLE: dict[str, Row] = {
    "by itself": (WRITES, [], BY_ITSELF, {}, WRITES, None),
    "nothing to do": (NONE, [], BY_ITSELF, {}, NONE, None),
    "by itself, deletions are left": (BOTH, [], BY_ITSELF, {}, WRITES, None),
    "by itself, pruning": (BOTH, [], PRUNING, {}, BOTH, None),
    "outside of windows": (BOTH, [], CLOSED, {}, None, None),
    "nobody asks": (WRITES, [], HANDS_OFF, {}, None, None),
    "somebody asks": (WRITES, [], ASKED, {}, WRITES, None),
    "somebody asks, outside of windows": (
        BOTH, [], replace(CLOSED, requested=True), {}, BOTH, None,
    ),
    "much to delete": (BOTH, [MASS_DELETE], PRUNING, {}, WRITES, DELETES),
    "much to delete, outside of windows": (BOTH, [MASS_DELETE], CLOSED, {}, None, DELETES),
    "much to delete, waiting": (
        BOTH, [MASS_DELETE], PRUNING, pending_of(DELETES), WRITES, DELETES,
    ),
    "much to delete, approved": (
        BOTH, [MASS_DELETE], PRUNING, pending_of(DELETES, "ann"), BOTH, None,
    ),
    "much to delete, approved outside of windows": (
        BOTH, [MASS_DELETE], CLOSED, pending_of(DELETES, "ann"), DELETES, None,
    ),
    "much to delete, another plan approved": (
        BOTH, [MASS_DELETE], PRUNING, pending_of(BOTH, "ann"), WRITES, DELETES,
    ),
    "much to delete, approved as it was": (
        BOTH, [MASS_DELETE], PRUNING, pending_of(DELETES, "ann", digest="sha256:0"),
        WRITES, DELETES,
    ),
    "much to delete, asked for": (
        BOTH, [MASS_DELETE], replace(ASKED, prunes=True), {}, WRITES, DELETES,
    ),
    "much to delete, forced": (BOTH, [MASS_DELETE], FORCED, {}, BOTH, None),
    "an approved deletion that nobody has to agree to any more": (
        BOTH, [], BY_ITSELF, pending_of(DELETES, "ann"), BOTH, None,
    ),
    "much to change": (BOTH, [MASS_CHANGE], PRUNING, {}, NONE, BOTH),
    "much to change, not pruning": (BOTH, [MASS_CHANGE], BY_ITSELF, {}, NONE, WRITES),
    "much to change and to delete": (
        BOTH, [MASS_DELETE, MASS_CHANGE], PRUNING, {}, NONE, BOTH,
    ),
    "much to change, approved": (
        BOTH, [MASS_CHANGE], PRUNING, pending_of(BOTH, "ann"), BOTH, None,
    ),
    "much to change, approved outside of windows": (
        BOTH, [MASS_CHANGE], CLOSED, pending_of(BOTH, "ann"), BOTH, None,
    ),
    "much to change, forced": (BOTH, [MASS_CHANGE], FORCED, {}, BOTH, None),
    "empty": (DELETES, [EMPTY], PRUNING, {}, NONE, NONE),
    "empty, forced": (DELETES, [EMPTY], FORCED, {}, NONE, None),
    "empty, approved": (DELETES, [EMPTY], PRUNING, pending_of(DELETES, "ann"), NONE, NONE),
    "empty and meant": (
        DELETES, [EMPTY], replace(PRUNING, allow_empty=True), {}, NONE, DELETES,
    ),
    "empty and meant, approved": (
        DELETES, [EMPTY], replace(PRUNING, allow_empty=True), pending_of(DELETES, "ann"),
        DELETES, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_what_is_done_now_and_what_waits(case: str) -> None:
    plan, whys, terms, pending, now, waiting = TABLE[case]
    found = decide_sync(plan, requirements_of(*whys), terms, pending)
    assert (found.now, found.waiting) == (now, waiting)


def everything() -> Iterator[
    tuple[SyncPlan, list[ApprovalRequirement], SyncTerms, dict[str, PendingPlan], SyncDecision]
]:
    """Yield every plan, with every need of approval, under all terms, and what is decided."""
    plans = [plan_of(*some) for n in range(4) for some in combinations(Action, n)]
    reasons = [MASS_DELETE, MASS_CHANGE, EMPTY]
    whys = [some for n in range(4) for some in combinations(reasons, n)]
    known = [{}, *(pending_of(each, by) for each in (BOTH, WRITES, DELETES) for by in ("", "ann"))]
    for plan, why, flags, pending in product(plans, whys, product((True, False), repeat=6), known):
        requested, forced, automatic, window_open, prunes, allow_empty = flags
        if forced and not requested:
            continue
        terms = SyncTerms(
            requested=requested,
            forced=forced,
            automatic=automatic,
            window_open=window_open,
            prunes=prunes,
            allow_empty=allow_empty,
        )
        needs = requirements_of(*why)
        yield plan, needs, terms, pending, decide_sync(plan, needs, terms, pending)


def test_the_laws_hold_over_the_whole_product() -> None:
    for plan, needs, terms, _, found in everything():
        told = f"{plan.steps} {[each.why for each in needs]} {terms}: {found}"
        now = found.now.steps if found.now else ()
        waiting = found.waiting.steps if found.waiting else ()
        assert [step for step in plan.steps if step in now] == [*now], told
        assert not set(now) & set(waiting), f"what waits is not done by the way: {told}"
        if found.waiting is not None:
            assert needs, told
            assert not terms.forced, told
            assert found.approval is None, told
        deletes = any(step.action is DELETE for step in now)
        if any(each.why is EMPTY for each in needs) and not terms.allow_empty:
            assert not deletes, f"an empty repository deletes nothing: {told}"
        if deletes:
            assert terms.prunes or found.approval, told
        if found.now and not terms.acts:
            assert found.approval is not None, f"nobody agreed to write: {told}"
            assert found.now.digest == found.approval.digest, told
        if found.waiting is not None and any(each.whole for each in needs):
            assert not now, f"all of a commit waits: {told}"


def test_an_approval_counts_only_for_the_very_plan_that_was_asked_about() -> None:
    for _, _, _, pending, found in everything():
        if found.approval is not None:
            assert found.approval in pending.values()
            assert found.approval.approved_by


def test_what_nobody_asked_for_or_agreed_to_counts_for_the_guards() -> None:
    for _, _, terms, _, found in everything():
        assert found.unapproved is (
            bool(found.now) and not terms.requested and found.approval is None
        )
