"""A keeper asks little, remembers what it was told, and writes only what it was shown."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.edits import DEPLOYMENT, SERVICE, with_change
from tests.support.ownership import KEY, MANAGER, NOW

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.memory.kube import MemoryKube
from holdfast.adapters.memory.kube.kinds import custom_kind
from holdfast.core.drift import Cause
from holdfast.core.errors import PermissionDenied, Problem, TargetUnavailable, ValidationError
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.delegated import REPLICA_SEED_MANAGER, FieldClass, OwnershipContext
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.managed_fields import UNTRACKED_MANAGER, read_ownership
from holdfast.core.ownership.object_diff import ObjectState
from holdfast.core.ownership.signals import Declaration, declare
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ConflictReason, KubeConflict, ref_of
from holdfast.reconcile.objects.resource_manager import PERSISTENT_FAILURE_SECONDS, ResourceManager


class SetClock(SystemClock):
    """Stands until it is set."""

    time = NOW
    passed = 0.0

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.passed


class Counting(MemoryKube):
    """Counts dry runs, and refuses them where told."""

    asked = 0
    refusal: Exception | None = None

    async def apply(self, item: Fields, *, dry_run: bool = False, **more: Any) -> Fields:
        if dry_run:
            self.asked += 1
            if self.refusal is not None:
                raise self.refusal
        return await super().apply(item, dry_run=dry_run, **more)


class Busy(Counting):
    """Has a controller that writes right after every apply."""

    async def apply(self, item: Fields, **more: Any) -> Fields:
        applied = await super().apply(item, **more)
        seen = str(value_at(applied, ("metadata", "resourceVersion")))
        self.edit(
            ref_of(item),
            lambda live: live["metadata"]["annotations"].update(seen=seen),
            manager="a-controller",
        )
        return applied


class Reporting(Counting):
    """Has a controller that reports in the status right after every change of the owners."""

    async def patch(self, ref: Any, operations: Any, **more: Any) -> Fields:
        patched = await super().patch(ref, operations, **more)

        def report(live: dict[str, Any]) -> None:
            live.update(status={"replicas": 1})
            annotations = live["metadata"].setdefault("annotations", {})
            annotations["deployment.kubernetes.io/revision"] = "2"

        self.edit(ref, report, manager="kube-controller-manager", subresource="status")
        return patched


class Mirroring(Counting):
    """Has an admission policy that sends images to a mirror, as long as it is there."""

    policy = True

    async def apply(self, item: Fields, **more: Any) -> Fields:
        item = copy.deepcopy(item)
        if self.policy and isinstance(value_at(item, ("spec", "template")), dict):
            image(item)["image"] = f"mirror/{image(item)['image'].removeprefix('mirror/')}"
        return await super().apply(item, **more)


class Stage:
    """A keeper, its cluster, and one object of theirs."""

    def __init__(
        self, item: dict[str, Any] = DEPLOYMENT, kube: Counting | None = None, **more: Any
    ) -> None:
        self.kube = kube or Counting()
        self.clock = SetClock()
        self.resource_manager = ResourceManager(
            self.kube, manager=MANAGER, key=KEY, clock=self.clock, **more
        )
        self.item = item

    # Any, here and below: objects of the Kubernetes API as they come over the wire.
    def declared(self, item: dict[str, Any] | None = None) -> Declaration:
        item = item or self.item
        return declare({**item, "metadata": {**item["metadata"], "namespace": "n"}}, MANAGER)

    async def live(self) -> dict[str, Any]:
        found: Any = await self.kube.get(ref_of(self.declared().item))
        return dict(found)

    def edit(self, change: Callable[[Any], object], manager: str = "kubectl-edit") -> None:
        self.kube.edit(ref_of(self.declared().item), change, manager=manager)


def play(story: Awaitable[None]) -> None:
    async def played() -> None:
        await story

    asyncio.run(played())


def image(item: Any) -> Any:
    return item["spec"]["template"]["spec"]["containers"][0]


def change_and_change_back(stage: Stage) -> None:
    before = image(DEPLOYMENT)["image"]
    stage.edit(lambda item: image(item).update(image="other"))
    stage.edit(lambda item: image(item).update(image=before))


def test_a_suspect_costs_one_dry_run_and_is_remembered() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        change_and_change_back(stage)
        for _ in range(3):
            found = await stage.resource_manager.diff(stage.declared(), await stage.live())
            assert found.state is ObjectState.IN_SYNC
        assert stage.kube.asked == 1
        stage.edit(
            lambda item: item["metadata"]["annotations"].update(x="y"), manager="an-operator"
        )
        await stage.resource_manager.diff(stage.declared(), await stage.live())
        assert stage.kube.asked == 2

    play(story())


def test_what_is_forgotten_or_too_old_is_asked_again() -> None:
    async def story() -> None:
        stage = Stage(max_cached=1)
        await stage.resource_manager.create(stage.declared())
        change_and_change_back(stage)
        live = await stage.live()
        await stage.resource_manager.diff(stage.declared(), live)
        stage.resource_manager.forget(live["metadata"]["uid"])
        await stage.resource_manager.diff(stage.declared(), live)
        assert stage.kube.asked == 2
        other = stage.declared(SERVICE)
        await stage.resource_manager.diff(other, (await stage.resource_manager.create(other)).live)
        await stage.resource_manager.diff(stage.declared(), live)
        assert stage.kube.asked == 3

    play(story())


def test_a_diff_is_not_remembered_in_another_context_nor_past_a_rule() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        stage.edit(lambda item: item["spec"].update(replicas=5))
        live, declared = await stage.live(), stage.declared()
        assert (await stage.resource_manager.diff(declared, live)).state is ObjectState.DRIFTED
        scaled = OwnershipContext(autoscaler="HorizontalPodAutoscaler/bot")
        found = await stage.resource_manager.diff(declared, live, context=scaled)
        assert found.state is ObjectState.IN_SYNC
        until = NOW + timedelta(hours=1)
        rule = IgnoreRule(name="r", owner="ana", pointer="/spec/replicas", expires=until)
        for state in (ObjectState.IN_SYNC, ObjectState.DRIFTED):
            found = await stage.resource_manager.diff(declared, live, ignore=[rule])
            assert found.state is state
            stage.clock.time = until

    play(story())


def test_a_heal_that_the_server_refuses_is_drift_with_its_reason() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        change_and_change_back(stage)
        stage.kube.refusal = ValidationError("field is immutable")
        found = await stage.resource_manager.diff(stage.declared(), await stage.live())
        assert found.state is ObjectState.DRIFTED
        assert "field is immutable" in found.drifted[0].evidence

    play(story())


class Typed(Counting):
    """Refuses a null at some fields, in the words and with the causes of an API server."""

    refused = ("spec.size", "spec.parts[1].size", "spec.other")
    sent: Any = None

    async def apply(self, item: Fields, **more: Any) -> Fields:
        spec: Any = item["spec"]
        there = {"spec.size": spec.get("size", 0), "spec.other": spec.get("other", 0)}
        if "parts" in spec:
            there["spec.parts[1].size"] = spec["parts"][1].get("size", 0)
        wrong = [each for each in self.refused if there.get(each, 0) is None]
        if wrong:
            problems = [
                Problem(field=each, reason=f'Invalid value: "null": {each}', fix="")
                for each in wrong
            ]
            raise ValidationError("it is invalid", problems=problems)
        self.sent = item
        return await super().apply(item, **more)


def test_a_null_that_the_schema_refuses_is_left_out_and_any_other_is_sent() -> None:
    """As `kubectl apply` takes them; in the values of a chart a null means something."""
    thing: dict[str, Any] = {
        "apiVersion": "x.example/v1",
        "kind": "Thing",
        "metadata": {"name": "a"},
        "spec": {
            "size": None,
            "values": {"gone": None},
            "parts": [{"size": None}, {"size": None, "n": 1}],
        },
    }

    async def story() -> None:
        kube = Typed()
        kube.serve(custom_kind("x.example/v1", "Thing"))
        stage = Stage(thing, kube)
        await stage.resource_manager.create(stage.declared())
        assert kube.sent["spec"] == {
            "values": {"gone": None},
            "parts": [{"size": None}, {"n": 1}],
        }
        found = await stage.resource_manager.diff(stage.declared(), await stage.live())
        assert found.state is ObjectState.IN_SYNC
        kube.refusal = ValidationError("field is immutable", problems=[
            Problem(field="spec.unheard", reason="is immutable", fix=""),
        ])  # fmt: skip
        with pytest.raises(ValidationError):
            await stage.resource_manager._apply(stage.declared().item, dry_run=True)

    play(story())


def failing(*, failed: bool) -> TargetUnavailable:
    error = TargetUnavailable("PATCH /x answered 500: something within it broke")
    error.failed = failed
    return error


def test_a_server_that_keeps_failing_at_one_object_refuses_it() -> None:
    """A moment's failure is an outage, which ends; one that lasts would hide the object."""

    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        change_and_change_back(stage)
        stage.kube.refusal = failing(failed=True)
        with pytest.raises(TargetUnavailable):
            await stage.resource_manager.diff(stage.declared(), await stage.live())
        stage.clock.passed = PERSISTENT_FAILURE_SECONDS - 1
        with pytest.raises(TargetUnavailable):
            await stage.resource_manager.diff(stage.declared(), await stage.live())
        stage.clock.passed = PERSISTENT_FAILURE_SECONDS + 1
        found = await stage.resource_manager.diff(stage.declared(), await stage.live())
        assert found.state is ObjectState.DRIFTED
        assert "something within it broke" in found.drifted[0].evidence
        assert found.recheck_at is not None, "it may be mended without an event"

    play(story())


def test_a_failure_that_ended_in_between_has_not_lasted() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        for _ in range(2):
            change_and_change_back(stage)
            stage.kube.refusal = failing(failed=True)
            with pytest.raises(TargetUnavailable):
                await stage.resource_manager.diff(stage.declared(), await stage.live())
            stage.kube.refusal = None
            await stage.resource_manager.diff(stage.declared(), await stage.live())
            stage.clock.passed += PERSISTENT_FAILURE_SECONDS + 1

    play(story())


def test_a_server_that_does_not_answer_at_all_refuses_nothing() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        change_and_change_back(stage)
        stage.kube.refusal = failing(failed=False)
        for _ in range(3):
            with pytest.raises(TargetUnavailable):
                await stage.resource_manager.diff(stage.declared(), await stage.live())
            stage.clock.passed += PERSISTENT_FAILURE_SECONDS + 1

    play(story())


def test_without_the_right_to_dry_run_only_values_are_drift() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        change_and_change_back(stage)
        stage.kube.refusal = PermissionDenied("patch is not allowed")
        found = await stage.resource_manager.diff(stage.declared(), await stage.live())
        assert found.state is ObjectState.IN_SYNC
        assert [item.field_class for item in found.field_drifts] == [FieldClass.OBSERVED]
        more = stage.declared(with_change(DEPLOYMENT, lambda item: item["spec"].update(replicas=7)))
        found = await stage.resource_manager.diff(more, await stage.live())
        assert found.state is ObjectState.DRIFTED

    play(story())


def test_a_heal_removes_additions_and_leaves_what_is_delegated() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        stage.edit(lambda item: image(item)["env"].append({"name": "NEW", "value": "1"}))
        stage.kube.edit(
            ref_of(stage.declared().item),
            lambda item: item["spec"].update(replicas=9),
            manager="kube-controller-manager",
            subresource="scale",
        )
        live = await stage.live()
        found = await stage.resource_manager.diff(stage.declared(), live)
        healed: Any = (await stage.resource_manager.heal(stage.declared(), live, found)).live
        assert [each["name"] for each in image(healed)["env"]] == ["A", "B"]
        assert healed["spec"]["replicas"] == 9

    play(story())


def test_a_heal_goes_on_where_a_controller_reported_between_its_two_writes() -> None:
    """Ended half-way, it would have made the addition ours, and nobody would ever tell of it."""

    async def story() -> None:
        stage = Stage(kube=Reporting())
        await stage.resource_manager.create(stage.declared())
        stage.edit(lambda item: image(item)["env"].append({"name": "NEW", "value": "1"}))
        live = await stage.live()
        found = await stage.resource_manager.diff(stage.declared(), live)
        healed: Any = (await stage.resource_manager.heal(stage.declared(), live, found)).live
        assert [each["name"] for each in image(healed)["env"]] == ["A", "B"]

    play(story())


def test_what_is_left_alone_keeps_its_value_whether_it_was_changed_added_or_removed() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        before = image(DEPLOYMENT)["env"]
        edited = [{"name": "A", "value": "9"}, {"name": "NEW", "value": "1"}]
        stage.edit(lambda item: image(item).update(env=edited))
        renewed = replace(
            stage.declared(with_change(DEPLOYMENT, lambda item: image(item).update(image="v3"))),
            previous=stage.declared().item,
        )
        for leaves, env in ((True, edited), (False, before)):
            live = await stage.live()
            found = await stage.resource_manager.diff(renewed, live)
            left = frozenset(item.change.path for item in found.drifted if leaves)
            assert len(left) == (3 if leaves else 0)
            healed: Any = (await stage.resource_manager.heal(renewed, live, found, leave=left)).live
            assert image(healed)["image"] == "v3"
            assert sorted(each["name"] for each in image(healed)["env"]) == sorted(
                each["name"] for each in env
            )
            assert image(healed)["env"][0]["value"] == env[0]["value"]

    play(story())


def test_a_wiped_record_is_ours_again_while_a_controller_writes() -> None:
    async def story() -> None:
        stage = Stage(kube=Busy())
        await stage.resource_manager.create(stage.declared())
        ref = ref_of(stage.declared().item)
        wipe: Fields = {"op": "replace", "path": "/metadata/managedFields", "value": [{}]}
        await stage.kube.patch(ref, [wipe], manager="a-backup")
        stage.edit(lambda item: image(item).update(image="other"))
        live = await stage.live()
        found = await stage.resource_manager.diff(stage.declared(), live)
        assert found.state is ObjectState.WIPED
        healed: Any = (await stage.resource_manager.heal(stage.declared(), live, found)).live
        owners = read_ownership(healed["metadata"]["managedFields"])  # type: ignore[index, call-overload]
        (ours,) = (entry for entry in owners.entries if entry.manager == MANAGER)
        (unknown,) = (entry for entry in owners.entries if entry.manager == UNTRACKED_MANAGER)
        assert not ours.paths & unknown.paths

    play(story())


def test_what_could_not_be_taken_back_after_a_wipe_is_taken_back_by_the_next_heal() -> None:
    """A controller was faster than each of our tries, so the server still names another owner."""

    async def story() -> None:
        longer = with_change(DEPLOYMENT, lambda item: item["spec"]["template"]["spec"][
            "containers"].append({"name": "extra", "image": "registry.example/x:1"}))  # fmt: skip
        stage = Stage(longer)
        await stage.resource_manager.create(stage.declared())
        ref = ref_of(stage.declared().item)
        wipe: Fields = {"op": "replace", "path": "/metadata/managedFields", "value": [{}]}
        await stage.kube.patch(ref, [wipe], manager="a-backup")
        stage.edit(lambda item: image(item).update(image="other"))
        live = await stage.live()
        found = await stage.resource_manager.diff(stage.declared(), live)
        for _ in range(5):
            stage.kube.fail_next("patch", KubeConflict("It moved.", reason=ConflictReason.CHANGED))
        await stage.resource_manager.heal(stage.declared(), live, found)
        shorter = stage.declared(DEPLOYMENT)
        live = await stage.live()
        found = await stage.resource_manager.diff(shorter, live)
        healed: Any = (await stage.resource_manager.heal(shorter, live, found)).live
        names = [each["name"] for each in healed["spec"]["template"]["spec"]["containers"]]
        assert names == [image(DEPLOYMENT)["name"]]

    play(story())


def test_replicas_are_parked_before_they_are_no_longer_declared() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        shorter = stage.declared(with_change(DEPLOYMENT, lambda item: item["spec"].pop("replicas")))
        live = await stage.live()
        found = await stage.resource_manager.diff(shorter, live)
        healed: Any = (await stage.resource_manager.heal(shorter, live, found)).live
        assert healed["spec"]["replicas"] == 2
        owners = read_ownership(healed["metadata"]["managedFields"]).owners(
            ("spec", "replicas"), "apps/v1"
        )
        assert [entry.manager for entry in owners] == [REPLICA_SEED_MANAGER]

    play(story())


def test_a_start_value_is_seeded_where_nobody_declares_one() -> None:
    async def story() -> None:
        stage = Stage(with_change(DEPLOYMENT, lambda item: item["spec"].pop("replicas")))
        made: Any = (await stage.resource_manager.create(stage.declared())).live
        seeded: Any = await stage.resource_manager.seed_replicas(made, replicas=4)
        assert seeded["spec"]["replicas"] == 4
        found = await stage.resource_manager.diff(stage.declared(), await stage.live())
        assert found.state is ObjectState.IN_SYNC

    play(story())


def test_an_object_that_was_replaced_or_is_going_is_not_written() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        live = await stage.live()
        found = await stage.resource_manager.diff(stage.declared(), live)
        with pytest.raises(KubeConflict) as refused:
            await stage.resource_manager.heal(replace(stage.declared(), uid="older"), live, found)
        assert refused.value.reason is ConflictReason.REPLACED
        going = copy.deepcopy(live)
        going["metadata"]["deletionTimestamp"] = "2026-11-16T01:00:00Z"
        assert (await stage.resource_manager.heal(stage.declared(), going, found)).live == going
        assert await stage.live() == live

    play(story())


def test_a_heal_that_admission_rewrote_is_not_a_heal() -> None:
    async def story() -> None:
        stage = Stage(kube=Mirroring())
        declared = stage.declared()
        made = await stage.resource_manager.create(declared)
        assert [found.change.path[-1] for found in made.altered] == ["image"]
        stage.edit(lambda item: image(item).update(image="evil"))
        live = await stage.live()
        found = await stage.resource_manager.diff(declared, live)
        assert found.healable and not found.altered
        written = await stage.resource_manager.heal(declared, live, found)
        (altered,) = written.altered
        assert altered.cause is Cause.ADMISSION
        assert str(altered.change.live).startswith("mirror/")
        assert image(written.live)["image"] == altered.change.live

    play(story())


def test_what_admission_rewrites_is_asked_again_more_and_more_rarely_until_it_is_gone() -> None:
    """Nothing in the cluster tells that a policy is gone: the diff must not outlive it."""

    async def story() -> None:
        kube = Mirroring()
        stage = Stage(kube=kube)
        declared = stage.declared()
        await stage.resource_manager.create(declared)
        for wait in (15, 30, 60, 120, 240, 300, 300):
            asked = kube.asked
            found = await stage.resource_manager.diff(declared, await stage.live())
            assert found.altered and not found.healable
            assert found.recheck_at == stage.clock.now() + timedelta(seconds=wait)
            stage.clock.time += timedelta(seconds=wait - 1)
            assert await stage.resource_manager.diff(declared, await stage.live()) == found
            assert kube.asked == asked + 1
            stage.clock.time += timedelta(seconds=1)
        kube.policy = False
        live = await stage.live()
        found = await stage.resource_manager.diff(declared, live)
        assert found.healable and not found.altered and found.recheck_at is None
        assert (await stage.resource_manager.heal(declared, live, found)).altered == ()
        after = await stage.resource_manager.diff(declared, await stage.live())
        assert after.state is ObjectState.IN_SYNC

    play(story())


def test_an_ignored_field_that_admission_rewrites_does_not_spoil_a_heal() -> None:
    async def story() -> None:
        stage = Stage(kube=Mirroring())
        declared = stage.declared()
        await stage.resource_manager.create(declared)
        rule = IgnoreRule(
            name="mirrors",
            owner="team",
            glob="spec.template.spec.containers[*].image",
            security=True,
        )
        stage.edit(lambda item: item["spec"].update(revisionHistoryLimit=3, replicas=7))
        live = await stage.live()
        found = await stage.resource_manager.diff(declared, live, ignore=[rule])
        assert (await stage.resource_manager.heal(declared, live, found)).altered == ()

    play(story())


def test_an_answer_for_want_of_rights_is_not_remembered_for_ever() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.resource_manager.create(stage.declared())
        change_and_change_back(stage)
        stage.kube.refusal = PermissionDenied("no dry run for you")
        await stage.resource_manager.diff(stage.declared(), await stage.live())
        stage.kube.refusal = None
        stage.clock.time += timedelta(seconds=15)
        await stage.resource_manager.diff(stage.declared(), await stage.live())
        assert stage.kube.asked == 2

    play(story())


def _report_status(stage: Stage) -> None:
    stage.kube.edit(
        ref_of(stage.declared().item),
        lambda live: live.update(status={"replicas": 1}),
        manager="kube-controller-manager",
        subresource="status",
    )


def _relabel(stage: Stage) -> None:
    stage.edit(lambda live: live["metadata"].setdefault("labels", {}).update(keep="me"))


def _take_over(stage: Stage) -> None:
    """Somebody else claims a field, and leaves every value as it is."""
    item = stage.declared().item
    other = {**item, "spec": {"replicas": value_at(item, ("spec", "replicas"))}}
    asyncio.run(stage.kube.apply(other, manager="other", force=True))


@pytest.mark.parametrize(
    ("change", "deleted"), [(_report_status, True), (_relabel, False), (_take_over, False)]
)
def test_an_object_is_deleted_unless_more_than_its_status_moved(
    change: Callable[[Stage], None], deleted: bool
) -> None:
    stage = Stage()
    created = asyncio.run(stage.resource_manager.create(stage.declared()))
    change(stage)
    ref = ref_of(stage.declared().item)
    if deleted:
        asyncio.run(stage.resource_manager.delete(ref, created.live))
    else:
        with pytest.raises(KubeConflict):
            asyncio.run(stage.resource_manager.delete(ref, created.live))
    assert (asyncio.run(stage.kube.get(ref)) is None) is deleted
