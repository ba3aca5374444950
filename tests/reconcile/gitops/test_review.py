"""What people decide about drift: who wins, what is stale, what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.gitops_world import APP, GitopsWorld, config_ref, configmap, route

from holdfast.core.errors import (
    AuthError,
    Conflict,
    NotFound,
    PermissionDenied,
    StalePlan,
    StoreUnavailable,
    ValidationError,
)
from holdfast.core.gitops.application import DriftSpec, HoldEnd, MatchSpec, Remediation, SyncSpec
from holdfast.core.gitops.drift import DriftState, Resolution
from holdfast.core.gitops.objects import SyncStatus
from holdfast.reconcile.gitops.ports import RecordKind
from holdfast.reconcile.gitops.reporting import ApplicationResult
from holdfast.reconcile.gitops.review import ReviewService

A = config_ref("a")
PROJECT = "ml-platform"


async def drifted(
    remediation: Remediation = Remediation.REVIEW, **spec: object
) -> tuple[GitopsWorld, ReviewService]:
    """An application with one drift that waits."""
    world = GitopsWorld(route(remediation), drift=DriftSpec(**spec))  # type: ignore[arg-type]
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", w="2")})
    await world.reconcile()
    edit(world, "9")
    await world.reconcile()
    return world, world.review()


def edit(world: GitopsWorld, value: str) -> None:
    world.kube.edit(A, lambda item: item["data"].update(x=value))


async def test_exactly_the_approved_plan_is_applied() -> None:
    world, review = await drifted()
    (drift,) = world.drifts
    await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria (t1)", comment="agreed")
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}
    (record,) = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
    assert record.body["resolution"] == Resolution.APPROVED
    assert record.body["decided_by"] == "maria (t1)"
    actions = [entry.action for entry in await world.ledger_store.entries(subject=drift.id)]
    assert actions == ["resolved", "applying", "approved", "approval-requested", "detected"]


async def test_an_approval_applies_nothing_that_git_asks_for_beside_it() -> None:
    world = GitopsWorld(route(Remediation.REVIEW), sync=SyncSpec(automatic=False))
    world.git.commit({"a.yaml": configmap("a", x="1", z="1")})
    await world.sync()
    world.git.commit({"a.yaml": configmap("a", x="1", z="2")})
    await world.fetch_and_reconcile()
    edit(world, "9")
    await world.reconcile()
    (drift,) = world.drifts
    assert [entry.path for entry in drift.entries] == ["data.x"]
    await world.review().approve(PROJECT, drift.id, plan=drift.plan, actor="maria", comment="")
    await world.reconcile()
    assert await world.data("a") == {"x": "1", "z": "1"}
    result = await world.reconcile()
    assert (result.status.sync, world.drifts) == ("ahead", [])
    await world.sync()
    assert await world.data("a") == {"x": "1", "z": "2"}


async def test_an_approval_does_not_hold_for_a_world_that_moved() -> None:
    world, review = await drifted()
    (drift,) = world.drifts
    await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria", comment="")
    edit(world, "10")
    result = await world.reconcile()
    assert await world.data("a") == {"x": "10"}
    assert "PlanStale" in [note.reason for note in result.events]
    await world.reconcile()
    (again,) = world.drifts
    assert again.state is DriftState.AWAITING
    assert again.plan != drift.plan


async def test_a_plan_that_was_replaced_cannot_be_approved() -> None:
    world, review = await drifted()
    (drift,) = world.drifts
    edit(world, "10")
    await world.reconcile()
    with pytest.raises(StalePlan):
        await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria", comment="")
    assert world.drifts[0].state is DriftState.AWAITING


async def test_an_approval_that_was_not_written_is_not_shown_as_one() -> None:
    world, review = await drifted()
    (drift,) = world.drifts
    write = world.ledger_store.write

    async def fails(*_: object) -> None:
        raise StoreUnavailable("The ledger does not answer.")

    world.ledger_store.write = fails  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreUnavailable):
        await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria")
    assert [each.state for each in world.drifts] == [DriftState.AWAITING]

    async def stays_silent(*_: object) -> None:
        world.ledger_store.failure = StoreUnavailable("The ledger does not answer.")
        raise world.ledger_store.failure

    world.ledger_store.write = stays_silent  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreUnavailable):
        await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria")
    assert [each.state for each in world.drifts] == [DriftState.AWAITING]
    world.ledger_store.failure = None
    world.ledger_store.write = write  # type: ignore[method-assign]
    await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria")
    assert [each.state for each in world.drifts] == [DriftState.APPROVED]


async def test_of_two_decisions_at_once_exactly_one_counts() -> None:
    world, review = await drifted()
    (drift,) = world.drifts
    answers = await asyncio.gather(
        review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria", comment=""),
        review.reject(PROJECT, drift.id, actor="joe", comment="keep it"),
        review.approve(PROJECT, drift.id, plan=drift.plan, actor="ann", comment=""),
        return_exceptions=True,
    )
    assert sum(not isinstance(each, Exception) for each in answers) == 1
    assert all(isinstance(each, Conflict) for each in answers if isinstance(each, Exception))


async def test_two_controllers_with_one_ledger_cannot_both_decide() -> None:
    world, review = await drifted()
    other = GitopsWorld()
    other.ledger_store, other.kube, other.client, other.git = (
        world.ledger_store,
        world.kube,
        world.kube,
        world.git,
    )
    other.application = world.application
    await other.start()
    (drift,) = world.drifts
    await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria", comment="")
    with pytest.raises(Conflict):
        await other.review().reject(PROJECT, drift.id, actor="joe", comment="no")


async def test_who_asked_for_it_cannot_approve_it() -> None:
    world, review = await drifted(Remediation.REPORT, four_eyes=True)
    (drift,) = world.drifts
    await review.revert(PROJECT, drift.id, actor="maria (t1)")
    await world.reconcile()
    (drift,) = world.drifts
    assert drift.state is DriftState.AWAITING
    with pytest.raises(PermissionDenied):
        await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria (t2)", comment="")
    await review.approve(PROJECT, drift.id, plan=drift.plan, actor="joe (t3)", comment="")
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}


async def test_where_nobody_knows_who_made_a_change_two_people_approve_it() -> None:
    """Whoever used kubectl may be the one who approves: a field manager is no person."""
    world, review = await drifted(four_eyes=True)
    (drift,) = world.drifts
    first = await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria (t1)", comment="")
    assert first.state is DriftState.AWAITING
    again = await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria (t2)", comment="")
    assert again.state is DriftState.AWAITING, "two tokens of one person are one"
    await world.reconcile()
    assert await world.data("a") == {"x": "9"}
    second = await review.approve(PROJECT, drift.id, plan=drift.plan, actor="joe (t3)", comment="")
    assert second.state is DriftState.APPROVED
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}


async def test_a_first_approval_does_not_count_for_another_plan() -> None:
    world, review = await drifted(four_eyes=True)
    (drift,) = world.drifts
    await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria (t1)", comment="")
    edit(world, "10")
    await world.reconcile()
    (moved,) = world.drifts
    assert moved.plan != drift.plan
    after = await review.approve(PROJECT, moved.id, plan=moved.plan, actor="joe (t3)", comment="")
    assert after.state is DriftState.AWAITING


async def test_one_approval_is_enough_where_four_eyes_are_not_asked_for() -> None:
    world, review = await drifted()
    (drift,) = world.drifts
    after = await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria (t1)", comment="")
    assert after.state is DriftState.APPROVED


async def test_a_rejected_drift_is_asked_about_again_only_when_it_changes() -> None:
    world, review = await drifted()
    (drift,) = world.drifts
    with pytest.raises(ValidationError):
        await review.reject(PROJECT, drift.id, actor="maria", comment=" ")
    await review.reject(PROJECT, drift.id, actor="maria", comment="tuned on purpose")
    await world.reconcile()
    assert world.drifts[0].state is DriftState.REJECTED
    told = world.notices[-1]
    assert told.type == "dev.holdfast.drift.rejected.v1"
    assert "maria rejected it. tuned on purpose." in told.text
    edit(world, "10")
    await world.reconcile()
    assert world.drifts[0].state is DriftState.AWAITING


async def test_a_drift_that_no_pull_request_can_be_opened_for_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, review = await drifted(Remediation.REPORT)
    (drift,) = world.drifts

    async def refuses(*asked: object, **more: object) -> None:
        raise AuthError("The forge does not know the token.")

    for question in ("find", "past", "open"):
        monkeypatch.setattr(world.forge, question, refuses)
    await review.codify(PROJECT, drift.id, actor="maria")
    await world.reconcile()
    (after,) = world.drifts
    assert "The forge does not know the token." in after.note


async def test_a_hold_by_annotation_is_ended_where_it_stands() -> None:
    world, review = await drifted(Remediation.REPORT)
    until = (world.clock.now() + timedelta(hours=1)).isoformat()
    mark = {"holdfast.dev/paused-until": until}
    world.kube.edit(A, lambda item: item["metadata"].setdefault("annotations", {}).update(mark))
    await world.reconcile()
    with pytest.raises(NotFound) as refused:
        await review.resume(world.context, actor="maria", object=A)
    assert "kubectl annotate -n chat configmap/a holdfast.dev/paused-until-" in str(refused.value)
    with pytest.raises(NotFound, match="is not on hold"):
        await review.resume(world.context, actor="maria", object=config_ref("b"))


async def test_a_snooze_ends() -> None:
    world, review = await drifted()
    (drift,) = world.drifts
    until = world.clock.now() + timedelta(hours=1)
    await review.snooze(PROJECT, drift.id, actor="maria", comment="later", until=until)
    await world.reconcile()
    assert world.drifts[0].state is DriftState.SNOOZED
    world.pass_time(3700)
    await world.reconcile(set())
    assert world.drifts[0].state is DriftState.AWAITING


async def test_a_revert_by_hand_is_applied_at_once_where_no_review_is_asked_for() -> None:
    world, review = await drifted(Remediation.REPORT)
    (drift,) = world.drifts
    await review.revert(PROJECT, drift.id, actor="maria")
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}


async def test_a_drift_can_be_sent_to_git_by_hand() -> None:
    world, review = await drifted(Remediation.REPORT)
    (drift,) = world.drifts
    await review.codify(PROJECT, drift.id, actor="maria")
    await world.reconcile()
    assert list(world.forge.pulls) == [1]
    await world.reconcile()
    assert world.drifts[0].state is DriftState.PULL_REQUEST, "the route does not take it back"


@pytest.mark.parametrize("match", [None, MatchSpec(kinds=("ConfigMap",))])
async def test_what_was_sent_to_git_stays_so_when_the_routes_change(
    match: MatchSpec | None,
) -> None:
    world, review = await drifted(Remediation.REPORT)
    (drift,) = world.drifts
    await review.codify(PROJECT, drift.id, actor="maria")
    await world.reconcile()
    routes = (route(Remediation.SELF_HEAL, name="new", match=match),)
    spec = replace(world.application.spec, drift=DriftSpec(routes=routes))
    world.application = replace(world.application, spec=spec)
    await world.reconcile()
    (after,) = world.drifts
    assert (after.id, after.state) == (drift.id, DriftState.PULL_REQUEST)
    assert await world.data("a") == {"x": "9"}, "nobody took the choice back"
    edit(world, "10")
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}, "another value is another drift, for the new route"


async def test_a_rule_of_a_moment_hides_and_ends() -> None:
    world, review = await drifted(Remediation.REPORT)
    (drift,) = world.drifts
    until = world.clock.now() + timedelta(days=7)
    (rule,) = await review.ignore(PROJECT, drift.id, actor="maria", until=until, reason="load test")
    result = await world.reconcile()
    assert result.status.sync == "synced"
    assert result.status.tolerated == 1
    assert rule.path == "data.x"
    world.pass_time(timedelta(days=8).total_seconds())
    result = await world.reconcile()
    assert result.status.drifted == 1


async def test_a_pause_counts_at_once_and_its_end_is_decided() -> None:
    world, review = await drifted(Remediation.REPORT)
    following = review.application(PROJECT, "shop")
    until = world.clock.now() + timedelta(hours=2)
    hold = await review.pause(
        following, actor="maria", reason="INC-1432", until=until, end=HoldEnd.REVERT
    )
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", w="7")})
    result = await world.fetch_and_reconcile()
    assert await world.data("b") == {"w": "2"}, "nothing is written while it is on hold"
    assert result.status.held == 1
    assert world.drifts[0].state is DriftState.HELD
    world.pass_time(7300)
    await world.reconcile()
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}
    assert await world.data("b") == {"w": "7"}
    closed = await world.ledger_store.records(RecordKind.HOLD, state="closed")
    assert [record.key for record in closed] == [hold.id]


async def test_a_resumed_application_goes_its_own_way_again() -> None:
    world, review = await drifted(Remediation.SELF_HEAL)
    following = review.application(PROJECT, f"{APP}")
    until = world.clock.now() + timedelta(hours=2)
    await review.pause(following, actor="maria", reason="INC-1", until=until)
    edit(world, "9")
    await world.reconcile()
    assert world.drifts[0].state is DriftState.HELD
    await review.resume(following, actor="maria")
    world.pass_time(60)
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}
    with pytest.raises(NotFound):
        await review.resume(following, actor="maria")


async def test_a_parked_plan_is_carried_out_once_it_is_approved() -> None:
    world = GitopsWorld(sync=SyncSpec(automatic=True, prune=True))
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    await world.reconcile()
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)})
    await world.fetch_and_reconcile()
    review = world.review()
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    with pytest.raises(StalePlan):
        await review.approve_plan(PROJECT, plan.id, plan="sha256:0", actor="maria")
    await review.approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria")
    await world.reconcile()
    assert await world.live("c19") is None
    assert world.context.state.plans == {}


async def test_a_rejected_plan_is_asked_about_again_when_it_changes_or_by_a_sync() -> None:
    world = GitopsWorld(sync=SyncSpec(automatic=True, prune=True))
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    await world.reconcile()
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)})
    result = await world.fetch_and_reconcile()
    review = world.review()
    assert world.context is not None
    assert waits_for_approval(result)
    (plan,) = world.context.state.plans.values()
    with pytest.raises(ValidationError):
        await review.reject_plan(PROJECT, plan.id, actor="maria", comment=" ")
    await review.reject_plan(PROJECT, plan.id, actor="maria", comment="set back by mistake")
    for decide in (
        review.reject_plan(PROJECT, plan.id, actor="joe", comment="me too"),
        review.approve_plan(PROJECT, plan.id, plan=plan.digest, actor="joe"),
    ):
        with pytest.raises(Conflict, match="was rejected by maria"):
            await decide
    world.pass_time(120)
    result = await world.reconcile()
    assert await world.live("c19") is not None
    assert not waits_for_approval(result)
    assert result.status.sync == "ahead", "it is not what Git declares, whoever said no"
    assert [note.reason for note in result.events] == []

    await world.sync()
    (again,) = world.context.state.plans.values()
    assert (again.id, again.rejected_by) == (plan.id, "")
    await review.reject_plan(PROJECT, plan.id, actor="maria", comment="still a mistake")
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(11)})
    result = await world.fetch_and_reconcile()
    (other,) = world.context.state.plans.values()
    assert other.id != plan.id and not other.decided
    assert waits_for_approval(result)
    await review.approve_plan(PROJECT, other.id, plan=other.digest, actor="maria")
    with pytest.raises(Conflict, match="was approved by maria"):
        await review.reject_plan(PROJECT, other.id, actor="joe", comment="too late")


def waits_for_approval(result: ApplicationResult) -> bool:
    return any(each.type == "ApprovalRequired" for each in result.status.conditions or ())


async def test_another_project_sees_nothing() -> None:
    world, review = await drifted()
    (drift,) = world.drifts
    with pytest.raises(NotFound):
        await review.approve("other", drift.id, plan=drift.plan, actor="eve", comment="")
    with pytest.raises(NotFound):
        review.application("other", "shop")
    assert review.applications("other") == ()


async def test_a_hold_does_not_last_for_ever() -> None:
    world, review = await drifted()
    following = review.application(PROJECT, "shop")
    for days in (-1, 0, 31):
        with pytest.raises(ValidationError):
            await review.pause(
                following,
                actor="maria",
                reason="x",
                until=world.clock.now() + timedelta(days=days),
            )
    assert world.context is not None
    assert world.context.state.holds == {}


async def test_a_secret_in_a_comment_is_refused() -> None:
    world, review = await drifted()
    (drift,) = world.drifts
    with pytest.raises(ValidationError, match="credential"):
        await review.reject(PROJECT, drift.id, actor="m", comment="use ghp_" + "a" * 36)


async def test_a_sync_during_a_hold_decides_nothing_about_what_is_held() -> None:
    world, review = await drifted(Remediation.REPORT)
    following = world.context
    assert following is not None
    until = world.clock.now() + timedelta(hours=1)
    await review.pause(following, actor="maria", reason="INC-1", until=until)
    await world.reconcile()
    before = [entry.seq for entry in await world.ledger_store.entries(application="team/shop")]
    review.sync(following, actor="joe", prune=False, force=False)
    await world.reconcile()
    (drift,) = world.drifts
    assert (drift.state, drift.decided_by) == (DriftState.HELD, "")
    said = await world.ledger_store.entries(application="team/shop")
    assert "held" not in {entry.action for entry in said if entry.seq not in before}


async def test_a_diff_and_a_dry_run_right_after_a_push_look_at_what_git_declares_now() -> None:
    world = GitopsWorld(sync=SyncSpec(automatic=False))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.sync()
    pushed = world.git.commit({"a.yaml": configmap("a", x="2")})
    assert world.context is not None
    found = await world.review().compare(world.context)
    assert (found.commit, found.stale) == (pushed, "")
    assert [each.sync_status for each in found.observed] == [SyncStatus.OUT_OF_SYNC]
    plan, stale = await world.review().plan(world.context, prune=False)
    assert (plan.commit, len(plan.steps), stale) == (pushed, 1, "")
    assert await world.data("a") == {"x": "1"}
    result = await world.reconcile()
    assert result.status.sync == "ahead"
    world.git.down = "git.example.com refused the connection."
    found = await world.review().compare(world.context)
    assert found.commit == pushed and "git.example.com refused" in found.stale
    await world.reconcile()
    stale_notices = [each for each in world.notices if "source.stale" in each.type]
    assert len(stale_notices) == 1, "the pass tells it, although a question met it first"
