"""One pass after another over one application: what is in sync, what drifts, what is written."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from tests.support.gitops_world import NAMESPACE, GitopsWorld, config_ref, configmap, route

from holdfast.adapters.memory.kube.kinds import custom_kind
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.errors import TargetUnavailable, ValidationError
from holdfast.core.gitops.application import (
    ApplicationStatus,
    DriftSpec,
    GuardSpec,
    IgnoreSpec,
    MatchSpec,
    OrphanPolicy,
    PullRequestKind,
    Remediation,
    SyncSpec,
    WindowKind,
    WindowSpec,
)
from holdfast.core.gitops.drift import DriftState, Resolution
from holdfast.core.gitops.hold import ANNOTATION_BUDGET, PAUSED_UNTIL
from holdfast.core.gitops.records import AppliedRevision, ApprovalReason
from holdfast.core.gitops.source import Ancestry
from holdfast.core.object_ref import ObjectRef
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.application_status import application_status
from holdfast.reconcile.gitops.ports import LedgerWrite, PullRequestState, RecordKind

A = config_ref("a")


def set_data(
    world: GitopsWorld, name: str, key: str, value: str, manager: str = "kubectl-edit"
) -> None:
    world.kube.edit(
        config_ref(name), lambda item: item["data"].update({key: value}), manager=manager
    )


async def two(*routes: object, **more: object) -> GitopsWorld:
    """An application of two objects, applied."""
    world = GitopsWorld(*routes, **more)  # type: ignore[arg-type]
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", w="2")})
    await world.sync()
    return world


async def test_what_git_declares_is_applied_and_then_left_alone() -> None:
    world = await two()
    writes = len(world.kube.writes)
    result = await world.fetch_and_reconcile()
    assert result.status.sync == "synced"
    assert await world.data("a") == {"x": "1"}
    assert len(world.kube.writes) == writes


async def test_a_new_commit_is_applied_around_an_edit_that_waits_for_its_own_decision() -> None:
    world = GitopsWorld()
    world.git.commit({"a.yaml": configmap("a", x="1", v="1", w="1")})
    await world.sync()
    set_data(world, "a", "x", "9")
    await world.reconcile()
    (drift,) = world.drifts
    world.git.commit({"a.yaml": configmap("a", x="1", v="2")})
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "9", "v": "2"}
    (still,) = world.drifts
    assert (still.id, still.entries) == (drift.id, drift.entries)


async def test_without_automatic_sync_a_new_commit_is_only_reported() -> None:
    world = await two(sync=SyncSpec())
    world.git.commit({"a.yaml": configmap("a", x="7"), "b.yaml": configmap("b", w="2")})
    result = await world.fetch_and_reconcile()
    assert (result.status.sync, result.status.ahead, result.status.drifted) == ("ahead", 1, 0)
    assert await world.data("a") == {"x": "1"}
    result = await world.sync()
    assert result.status.sync == "synced"
    assert await world.data("a") == {"x": "7"}


async def test_a_change_by_hand_is_another_state_than_a_new_commit() -> None:
    world = await two()
    set_data(world, "a", "x", "9")
    result = await world.reconcile()
    assert (result.status.sync, result.status.ahead, result.status.drifted) == ("drifted", 0, 1)
    (drift,) = world.drifts
    assert drift.state is DriftState.DETECTED
    assert drift.kinds == (DriftKind.CONFIGURATION,)
    assert drift.causes == (Cause.PERSON,)
    assert drift.where == "a.yaml:6"
    (entry,) = drift.entries
    assert (entry.path, entry.desired, entry.live) == ("data.x", "1", "9")
    assert entry.writer is not None
    assert entry.writer.manager == "kubectl-edit"
    assert await world.data("a") == {"x": "9"}
    assert [note.reason for note in result.events] == ["DriftDetected"]
    assert len(world.notices) == 1


async def test_a_drift_that_stays_is_told_once() -> None:
    world = await two()
    set_data(world, "a", "x", "9")
    await world.reconcile()
    result = await world.reconcile()
    assert result.events == ()
    assert len(world.notices) == 1
    assert len(world.drifts) == 1


async def test_self_heal_puts_it_back_and_records_who_did_it() -> None:
    world = await two(route(Remediation.SELF_HEAL))
    set_data(world, "a", "x", "9")
    result = await world.reconcile({A})
    assert result.status.sync == "synced"
    assert await world.data("a") == {"x": "1"}
    (record,) = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
    assert record.body["resolution"] == Resolution.SELF_HEALED
    assert record.body["entries"][0]["writer"]["manager"] == "kubectl-edit"  # type: ignore[index,call-overload]
    actions = [entry.action for entry in await world.ledger_store.entries(subject=record.key)]
    assert actions == ["resolved", "applying", "detected"]


async def test_a_deleted_object_is_resource_drift_and_comes_back() -> None:
    world = await two(route(Remediation.SELF_HEAL))
    await world.kube.delete(A)
    result = await world.reconcile({A})
    assert result.status.sync == "synced"
    assert await world.data("a") == {"x": "1"}
    (record,) = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
    assert record.body["kinds"] == ["resource"]


async def test_what_could_not_be_read_is_neither_created_nor_pruned() -> None:
    world = await two(route(Remediation.SELF_HEAL), sync=SyncSpec(automatic=True, prune=True))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    writes = len(world.kube.writes)
    world.kube.fail_next("get", TargetUnavailable("The API server did not answer."))
    result = await world.fetch_and_reconcile()
    assert result.status.sync == "unknown"
    assert len(world.kube.writes) == writes
    assert await world.live("b") is not None
    await world.reconcile()
    assert await world.live("b") is None


async def test_what_is_no_longer_declared_stays_unless_prune_says_otherwise() -> None:
    world = await two()
    world.git.commit({"a.yaml": configmap("a", x="1")})
    result = await world.fetch_and_reconcile()
    assert (result.status.sync, result.status.ahead) == ("ahead", 1)
    assert await world.live("b") is not None
    await world.sync(prune=True)
    assert await world.live("b") is None
    result = await world.reconcile()
    assert result.status.sync == "synced"
    assert set(world.context.state.inventory) == {A}  # type: ignore[union-attr]


async def test_an_empty_repository_deletes_nothing() -> None:
    world = await two(sync=SyncSpec(automatic=True, prune=True))
    world.git.commit({"README": "moved away"})
    result = await world.fetch_and_reconcile()
    assert await world.live("a") is not None
    assert result.status.plan is not None
    assert "Parked" in [note.reason for note in result.events]
    await world.sync(force=True)
    assert await world.live("a") is not None, (
        "without allowEmpty even a person's word is not enough"
    )


async def test_a_mass_deletion_waits_for_a_person() -> None:
    sync = SyncSpec(automatic=True, prune=True)
    world = GitopsWorld(sync=sync)
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    await world.reconcile()
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)})
    result = await world.fetch_and_reconcile()
    assert await world.live("c19") is not None
    assert result.status.plan is not None
    again = await world.reconcile()
    assert again.events == (), "told once"
    await world.sync(prune=True, force=True)
    assert await world.live("c19") is None


async def test_mass_drift_is_not_healed_by_itself() -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(10)})
    await world.reconcile()
    for n in range(6):
        set_data(world, f"c{n}", "x", "9")
    result = await world.reconcile()
    assert result.status.drifted == 6
    assert {drift.state for drift in world.drifts} == {DriftState.BLOCKED}
    assert {drift.note for drift in world.drifts} == {
        "6 of 10 objects drifted at once; 5 are healed by themselves."
    }
    assert await world.data("c0") == {"x": "9"}
    assert [each.reason for each in result.events].count("Parked") == 1
    kept = dict(world.ledger_store._records)
    again = await world.reconcile()
    assert again.events == (), "told once"
    assert world.ledger_store._records == kept, "and written down once"
    set_data(world, "c6", "x", "9")
    more = await world.reconcile()
    assert "Parked" in [each.reason for each in more.events], "one more is news"
    await world.sync()
    assert await world.data("c0") == {"x": "1"}


async def test_drift_that_trickles_in_is_mass_drift_too() -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(10)})
    await world.reconcile()
    for n in range(8):
        set_data(world, f"c{n}", "x", "9")
        await world.reconcile({config_ref(f"c{n}")})
    assert await world.data("c4") == {"x": "1"}
    assert await world.data("c7") == {"x": "9"}


async def test_a_repository_that_does_not_answer_is_stale_and_drift_is_still_seen() -> None:
    world = await two(route(Remediation.SELF_HEAL))
    world.git.down = "git.example.com refused the connection."
    set_data(world, "a", "x", "9")
    result = await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "1"}
    assert any(each.type == "SourceStale" for each in result.status.conditions)
    world.git.down = ""
    world.pass_time(1000)
    result = await world.fetch_and_reconcile()
    assert not any(each.type == "SourceStale" for each in result.status.conditions)


async def test_after_a_restart_without_repository_the_last_commit_still_counts() -> None:
    world = await two(route(Remediation.SELF_HEAL))
    world.git.down = "git.example.com refused the connection."
    await world.start()
    set_data(world, "a", "x", "9")
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}


@pytest.mark.parametrize("ancestry", [Ancestry.REWOUND, Ancestry.UNRELATED])
async def test_a_strange_history_is_not_followed_before_somebody_agrees(ancestry: Ancestry) -> None:
    world = await two()
    world.git.commit({"a.yaml": configmap("a", x="7"), "b.yaml": configmap("b", w="2")})
    world.git.ancestry = ancestry
    result = await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "1"}
    assert result.status.plan is not None
    assert "It is not followed before somebody agrees." in result.status.message
    await world.sync(force=True)
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "7"}


async def test_a_kind_that_the_cluster_does_not_serve_is_named_with_what_is_missing() -> None:
    world = GitopsWorld()
    widget = "apiVersion: acme.io/v1\nkind: Widget\nmetadata: {name: w}\n"
    world.git.commit({"w.yaml": widget, "a.yaml": configmap("a", x="1")})
    result = await world.reconcile()
    assert result.status.sync == "unknown"
    told = f"1 object could not be read. Widget {NAMESPACE}/w: The cluster serves no Widget"
    assert result.status.message.startswith(told)
    assert await world.data("a") == {"x": "1"}, "nobody waits for it"


async def test_a_rewritten_branch_is_followed_but_deletes_nothing_by_itself() -> None:
    world = await two(sync=SyncSpec(automatic=True, prune=True))
    world.git.commit({"a.yaml": configmap("a", x="7")})
    world.git.ancestry = Ancestry.DIVERGED
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "7"}
    assert await world.live("b") is not None


async def test_a_new_commit_does_not_overwrite_what_somebody_changed() -> None:
    world = await two()
    set_data(world, "a", "x", "9")
    await world.reconcile()
    world.git.commit({"a.yaml": configmap("a", x="1", z="3"), "b.yaml": configmap("b", w="2")})
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "9", "z": "3"}
    assert [drift.state for drift in world.drifts] == [DriftState.DETECTED]


async def test_each_kind_of_writer_can_have_its_own_way() -> None:
    world = await two(
        route(Remediation.SELF_HEAL, match=MatchSpec(managers=("rogue*",))),
        route(Remediation.REVIEW, match=MatchSpec(paths=("data.x",))),
    )
    set_data(world, "a", "x", "9")
    set_data(world, "b", "w", "9", manager="rogue-cron")
    await world.reconcile()
    assert await world.data("b") == {"w": "2"}
    assert await world.data("a") == {"x": "9"}
    assert [drift.state for drift in world.drifts] == [DriftState.AWAITING]


async def test_one_object_may_have_two_drifts_and_only_one_is_healed() -> None:
    world = GitopsWorld(
        route(Remediation.REVIEW, match=MatchSpec(paths=("data.x",))), route(Remediation.SELF_HEAL)
    )
    world.git.commit({"a.yaml": configmap("a", x="1", w="2")})
    await world.reconcile()
    set_data(world, "a", "x", "9")
    set_data(world, "a", "w", "9")
    await world.reconcile()
    assert await world.data("a") == {"x": "9", "w": "2"}
    assert [drift.route for drift in world.drifts] == ["review"]


async def test_ignored_fields_are_neither_reported_nor_written() -> None:
    rule = IgnoreSpec(name="tuned", owner="ml", pointer="/data/x", kind="ConfigMap")
    world = await two(route(Remediation.SELF_HEAL), drift=DriftSpec(ignore=(rule,)))
    set_data(world, "a", "x", "9")
    result = await world.reconcile()
    assert result.status.sync == "synced"
    assert result.status.tolerated == 1
    assert await world.data("a") == {"x": "9"}


async def test_outside_of_its_window_drift_waits() -> None:
    window = WindowSpec(kind=WindowKind.ALLOW, schedule="0 22 * * *", duration="1h")
    world = await two(
        route(Remediation.SELF_HEAL), sync=SyncSpec(automatic=True, windows=(window,))
    )
    set_data(world, "a", "x", "9")
    await world.reconcile()
    assert [drift.state for drift in world.drifts] == [DriftState.BLOCKED]
    world.pass_time(timedelta(hours=10, minutes=5).total_seconds())
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}


async def test_a_fight_ends_in_an_alarm_that_names_both() -> None:
    world = await two(route(Remediation.SELF_HEAL))
    for _ in range(6):
        set_data(world, "a", "x", "9", manager="rogue-cron")
        await world.reconcile({A})
        world.pass_time(30)
        await world.reconcile({A})
    (drift,) = world.drifts
    assert drift.state is DriftState.FIGHTING
    assert "rogue-cron and holdfast-gitops" in drift.note
    healed = len([write for write in world.kube.writes if write.ref == A])
    for _ in range(20):
        world.pass_time(30)
        await world.reconcile({A})
    assert len([write for write in world.kube.writes if write.ref == A]) == healed
    world.pass_time(3600)
    await world.reconcile({A})
    assert await world.data("a") == {"x": "1"}, "after a quiet time it is tried again"


async def test_a_hold_keeps_everything_as_it_is_and_is_not_forgotten() -> None:
    world = await two(route(Remediation.SELF_HEAL))
    until = world.clock.now() + timedelta(hours=2)

    def emergency(item: dict) -> None:  # type: ignore[type-arg]
        item["data"]["x"] = "9"
        item["metadata"]["annotations"][PAUSED_UNTIL] = until.isoformat()

    world.kube.edit(A, emergency)
    result = await world.reconcile()
    assert [drift.state for drift in world.drifts] == [DriftState.HELD]
    assert result.status.held == 1
    assert any(each.type == "Paused" for each in result.status.conditions)
    world.pass_time(2 * 3600 + 1)
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "9"}, "the change goes to Git, it is not reverted"
    (pull,) = world.forge.pulls.values()
    assert pull.branch == "holdfast/codify/chat-configmap-a"
    assert [drift.state for drift in world.drifts] == [DriftState.PULL_REQUEST]


async def test_one_pull_request_for_a_drift_updated_and_closed_by_itself() -> None:
    world = await two(route(Remediation.PULL_REQUEST))
    set_data(world, "a", "x", "9")
    await world.reconcile()
    await world.reconcile()
    (pull,) = world.forge.pulls.values()
    assert "data.x" in pull.body
    set_data(world, "a", "x", "10")
    await world.reconcile()
    (pull,) = world.forge.pulls.values()
    assert "`10`" in pull.body
    set_data(world, "a", "x", "1")
    await world.reconcile()
    await world.reconcile()
    assert world.forge.pulls[1].state is PullRequestState.CLOSED
    assert world.git.branches == {}


async def test_a_pull_request_that_a_person_closed_is_not_opened_again() -> None:
    world = await two(route(Remediation.PULL_REQUEST))
    set_data(world, "a", "x", "9")
    await world.reconcile()
    await world.forge.close(1)
    for _ in range(3):
        world.pass_time(120)
        await world.reconcile()
    assert len(world.forge.pulls) == 1
    assert [drift.state for drift in world.drifts] == [DriftState.REJECTED]
    set_data(world, "a", "x", "10")
    await world.reconcile()
    assert len(world.forge.pulls) == 2, "another value is another question"


async def test_a_persons_commits_on_the_branch_are_never_written_over() -> None:
    world = await two(route(Remediation.PULL_REQUEST))
    set_data(world, "a", "x", "9")
    await world.reconcile()
    before = dict(world.git.branches)
    world.git.human.update(world.git.branches)
    set_data(world, "a", "x", "10")
    await world.reconcile()
    assert world.git.branches == before
    assert len(world.forge.comments[1]) == 1


async def test_a_merged_decision_reverts_exactly_what_was_reviewed() -> None:
    world = await two(route(Remediation.PULL_REQUEST, pull=PullRequestKind.REVERT))
    set_data(world, "a", "x", "9")
    await world.reconcile()
    (branch,) = world.git.branches
    world.git.merge(branch)
    await world.fetch_and_reconcile()
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}
    (record,) = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
    assert record.body["resolution"] == Resolution.REVERTED


async def test_a_merged_decision_about_another_value_approves_nothing() -> None:
    world = await two(route(Remediation.PULL_REQUEST, pull=PullRequestKind.REVERT))
    set_data(world, "a", "x", "9")
    await world.reconcile()
    (branch,) = world.git.branches
    world.git.merge(branch)
    set_data(world, "a", "x", "10")
    await world.fetch_and_reconcile()
    await world.reconcile()
    assert await world.data("a") == {"x": "10"}


async def test_each_drift_of_an_object_names_its_own_line() -> None:
    routes = [
        route(Remediation.REPORT, name=name, match=MatchSpec(paths=(path,)))
        for name, path in (("first", "data.x"), ("second", "data.z"))
    ]
    world = GitopsWorld(*routes)
    world.git.commit({"a.yaml": configmap("a", x="1", z="1")})
    await world.reconcile()
    set_data(world, "a", "x", "9")
    set_data(world, "a", "z", "9")
    await world.reconcile()
    lines = {each.route: each.where for each in world.drifts}
    assert (lines["first"], lines["second"]) == ("a.yaml:6", "a.yaml:7")


async def test_orphans_are_reported_and_deleted_only_where_that_is_asked_for() -> None:
    drift = DriftSpec(namespaces=(NAMESPACE,))
    world = await two(route(Remediation.SELF_HEAL), drift=drift)
    item = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "stray", "namespace": NAMESPACE},
        "data": {"k": "v"},
    }
    world.kube.create(item)  # type: ignore[arg-type]
    result = await world.reconcile()
    assert result.status.orphans == 1
    assert await world.live("stray") is not None
    (found,) = world.drifts
    assert found.entries[0].writer is not None
    await world.sync(prune=True, force=True)
    assert await world.live("stray") is not None, "a sync is not for what nobody declared"
    spec = world.application.spec
    asked = replace(drift, routes=spec.drift and spec.drift.routes, orphans=OrphanPolicy.REMEDIATE)
    world.application = replace(world.application, spec=replace(spec, drift=asked))
    await world.reconcile()
    await world.reconcile()
    assert await world.live("stray") is None


async def test_objects_of_other_tools_are_observed_and_never_written() -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    item = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "a",
            "namespace": NAMESPACE,
            "annotations": {
                "argocd.argoproj.io/tracking-id": f"shop:/ConfigMap:{NAMESPACE}/a",
            },
        },
        "data": {"x": "1"},
    }
    world.kube.create(item, manager="argocd-controller")  # type: ignore[arg-type]
    world.git.commit({"a.yaml": configmap("a", x="5")})
    writes = len(world.kube.writes)
    result = await world.reconcile()
    assert result.status.drifted == 1
    await world.sync(force=True)
    assert len(world.kube.writes) == writes


async def test_a_lost_inventory_prunes_nothing_and_is_taken_up_again() -> None:
    world = await two(sync=SyncSpec(automatic=True, prune=True))
    records = await world.ledger_store.records(RecordKind.INVENTORY)
    await world.ledger_store.write(
        [
            LedgerWrite(
                kind=each.kind, application=each.application, key=each.key, seen=each.version
            )
            for each in records
        ],
        [],
    )
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.start()
    await world.fetch_and_reconcile()
    assert await world.live("b") is not None
    assert set(world.context.state.inventory) == {A}  # type: ignore[union-attr]


async def test_the_guard_can_be_set() -> None:
    world = GitopsWorld(
        route(Remediation.SELF_HEAL),
        sync=SyncSpec(automatic=True, guard=GuardSpec(objects=1, percent=0)),
    )
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", w="2")})
    await world.reconcile()
    set_data(world, "a", "x", "9")
    set_data(world, "b", "w", "9")
    await world.reconcile()
    assert {drift.state for drift in world.drifts} == {DriftState.BLOCKED}


async def test_a_route_that_ignores_hides_and_holds_back_like_a_rule() -> None:
    world = await two(
        route(Remediation.IGNORE, match=MatchSpec(paths=("data.x",))), route(Remediation.SELF_HEAL)
    )
    set_data(world, "a", "x", "9")
    result = await world.reconcile()
    assert (result.status.sync, result.status.tolerated) == ("synced", 1)
    assert world.notices == []
    world.git.commit({"a.yaml": configmap("a", x="1", z="3"), "b.yaml": configmap("b", w="2")})
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "9", "z": "3"}


async def test_what_argo_cd_was_told_to_ignore_is_ignored() -> None:
    world = GitopsWorld()
    world.kube.serve(custom_kind("argoproj.io/v1alpha1", "Application"))
    tracking = {"argocd.argoproj.io/tracking-id": f"shop:/ConfigMap:{NAMESPACE}/a"}
    world.kube.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "data": {"x": "1", "q": "1"},
            "metadata": {"name": "a", "namespace": NAMESPACE, "annotations": tracking},
        },
        manager="argocd-controller",
    )
    world.kube.create(
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": "shop", "namespace": "argocd"},
            "spec": {"ignoreDifferences": [{"kind": "ConfigMap", "jsonPointers": ["/data/x"]}]},
        }
    )
    world.git.commit({"a.yaml": configmap("a", x="5", q="1")})
    result = await world.reconcile()
    assert (result.status.drifted, result.status.tolerated) == (0, 1)


async def test_a_hold_by_annotation_ends_after_a_day_at_the_latest() -> None:
    world = await two()

    def emergency(item: dict) -> None:  # type: ignore[type-arg]
        item["metadata"]["annotations"][PAUSED_UNTIL] = "2036-01-01T00:00:00Z"

    world.kube.edit(A, emergency)
    begun = world.clock.now()
    for _ in range(3):
        await world.reconcile()
        world.pass_time(3600)
    assert world.context is not None
    (hold,) = world.context.state.holds.values()
    assert hold.until == begun + ANNOTATION_BUDGET


async def test_a_branch_set_back_from_a_commit_that_was_partly_applied_waits_for_a_person() -> None:
    world = GitopsWorld()
    first = world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", x="1")})
    await world.reconcile()
    inner = world.kube.apply

    async def refusing(item: Fields, **more: object) -> Fields:
        if item["metadata"]["name"] == "b":  # type: ignore[index,call-overload]
            raise ValidationError("b is refused.")
        return await inner(item, **more)  # type: ignore[arg-type]  # as it was given

    world.kube.apply = refusing  # type: ignore[method-assign,assignment]  # a policy of the cluster
    second = world.git.commit({"a.yaml": configmap("a", x="2"), "b.yaml": configmap("b", x="2")})
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "2"}
    world.kube.apply = inner  # type: ignore[method-assign]
    world.git.head_sha, world.git.ancestry = first, Ancestry.REWOUND
    await world.start()  # what was begun is in the ledger
    result = await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "2"}
    assert result.status.sync == "ahead"
    assert world.context.desired.rendered.commit == second  # type: ignore[union-attr]
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    assert plan.reasons == (ApprovalReason.REWOUND,)
    await world.review().approve_plan("ml-platform", plan.id, plan=plan.digest, actor="maria")
    await world.fetch_and_reconcile()
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "1"}
    world.git.ancestry = None
    assert (await world.fetch_and_reconcile()).status.sync == "synced"


def test_what_a_rewritten_branch_left_in_question_stays_so_until_it_is_there_as_a_whole() -> None:
    at = datetime.fromisoformat("2026-11-16T11:00:00+00:00")
    begun = AppliedRevision(commit="c1", at=at, begun="c2", begun_as=Ancestry.DIVERGED)
    assert begun.newest == "c2"
    assert begun.ancestry("c2", Ancestry.SAME) is Ancestry.DIVERGED
    assert begun.ancestry("c3", Ancestry.AHEAD) is Ancestry.DIVERGED
    assert begun.ancestry("c1", Ancestry.REWOUND) is Ancestry.REWOUND
    assert replace(begun, begun_as=Ancestry.AHEAD).ancestry("c3", Ancestry.AHEAD) is Ancestry.AHEAD
    assert AppliedRevision(commit="c1", at=at).ancestry("c1", Ancestry.SAME) is Ancestry.SAME


async def test_before_everything_was_compared_nothing_is_called_synced() -> None:
    world = GitopsWorld()
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.reconcile()
    following = await world.start()
    inner = world.kube.get
    said: list[ApplicationStatus] = []

    async def slow(ref: ObjectRef) -> Fields | None:
        said.append(application_status(following, world.clock.now()))
        return await inner(ref)

    world.kube.get = slow  # type: ignore[method-assign]  # somebody asks during the look
    await world.reconcile()
    assert {status.sync for status in said} == {"unknown"}
    assert said[0].message.startswith("Its objects were not compared with")
    said.clear()
    world.git.commit({"a.yaml": configmap("a", x="2")})
    await world.fetch_and_reconcile()
    assert said[0].sync == "unknown", "what was seen is how it stood to the commit before"
    assert world.last_result is not None and world.last_result.status.sync == "synced"


async def ended(world: GitopsWorld) -> tuple[str, Resolution | None]:
    """How the drift ended that ended last, in the words of the journal."""
    closed = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
    told = [line.summary for line, _ in world.ledger_store._entries if line.action == "resolved"]
    last = max(closed, key=lambda record: str(record.body["resolved_at"]))
    return told[-1], Resolution(str(last.body["resolution"]))


async def test_a_drift_that_became_another_is_not_called_as_declared() -> None:
    deleted = route(Remediation.REVIEW, match=MatchSpec(drift=(DriftKind.RESOURCE,)))
    world = await two(deleted, route(Remediation.REPORT))
    set_data(world, "a", "x", "9")
    await world.reconcile()
    await world.kube.delete(A)
    result = await world.reconcile()
    told, how = await ended(world)
    assert how is Resolution.SUPERSEDED and "as declared" not in told
    assert "DriftCorrected" not in {note.reason for note in result.events}


async def test_only_a_drift_that_was_put_back_is_called_as_declared() -> None:
    world = await two(sync=SyncSpec(automatic=False))
    set_data(world, "a", "x", "9")
    await world.reconcile()
    world.kube.edit(A, lambda item: item["data"].update(x="1"), manager="kubectl-edit")
    await world.reconcile()
    assert "as declared again" in (await ended(world))[0]
    world.pass_time(60)
    set_data(world, "b", "w", "9")
    await world.reconcile()
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.fetch_and_reconcile()
    told, how = await ended(world)
    assert how is Resolution.GONE and "as declared" not in told
