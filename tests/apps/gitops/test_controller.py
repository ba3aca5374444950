"""Which applications are looked at, at which of their objects, and what comes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.adapters.kubernetes.harness import eventually
from tests.support.gitops_world import NAMESPACE, ControllerWorld, config_ref, configmap

from holdfast.apps.gitops.watches import WatchedKind
from holdfast.core.errors import TargetUnavailable
from holdfast.core.gitops.application import DriftSpec
from holdfast.core.gitops.drift import Resolution
from holdfast.core.gitops.objects import APPLICATION_LABEL
from holdfast.reconcile.gitops.application_status import RECONCILE_REQUESTED
from holdfast.reconcile.gitops.ports import RecordKind

REPORT = DriftSpec()


async def test_a_new_application_is_applied_and_an_edit_is_healed() -> None:
    async with ControllerWorld() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(id, "synced")
        await world.edit_and_notify("a", "9")
        await world.wait_event("DriftCorrected")
        assert await world.data("a") == {"x": "1"}


async def test_an_event_makes_only_its_own_object_be_looked_at() -> None:
    async with ControllerWorld() as world:
        files = {f"{name}.yaml": configmap(name, x="1") for name in "abc"}
        id = world.declare("shop", files, drift=REPORT)
        await world.wait_sync(id, "synced")
        await world.wait_idle()
        world.observed.clear()
        await world.edit_and_notify("b", "9")
        await world.wait_sync(id, "drifted")
        assert world.observed[0] == {config_ref("b")}


async def test_what_nobody_declares_concerns_nobody() -> None:
    async with ControllerWorld() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(id, "synced")
        await world.wait_idle()
        world.observed.clear()
        stranger = world.kube.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "other", "namespace": NAMESPACE},
            }
        )
        world.controller.on_object(None, stranger)
        assert world.controller.queue.idle
        assert world.observed == []


async def test_a_stranger_in_a_namespace_of_its_own_is_looked_at() -> None:
    async with ControllerWorld() as world:
        drift = DriftSpec(namespaces=(NAMESPACE,))
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")}, drift=drift)
        await world.wait_sync(id, "synced")
        stranger = world.kube.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "other", "namespace": NAMESPACE},
            }
        )
        world.controller.on_object(None, stranger)
        await world.wait_sync(id, "drifted")
        assert world.status(id).orphans == 1


async def test_the_second_to_declare_an_object_is_refused_and_told_who_has_it() -> None:
    async with ControllerWorld() as world:
        first = world.declare("first", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(first, "synced")
        second = world.declare("second", {"a.yaml": configmap("a", x="2")})
        await eventually(lambda: world.status(second).conditions, "a word about the second")
        ready = world.status(second).conditions[0]
        assert (ready.status, ready.reason) == ("False", "DeclaredTwice")
        assert "team/first" in ready.message
        assert await world.data("a") == {"x": "1"}
        # Once the first lets it go, the second has it.
        world.repositories[first].commit({"b.yaml": configmap("b", x="1")})
        world.contexts[first].poller.hasten()
        world.controller.wake(first)
        await world.wait_sync(second, "synced")
        assert await world.data("a") == {"x": "2"}
        await world.wait_sync(first, "synced")
        assert config_ref("a") not in world.contexts[first].state.inventory


async def test_after_a_restart_who_applied_an_object_still_has_it() -> None:
    before = ControllerWorld()
    async with before:
        id = before.declare("zz-first", {"a.yaml": configmap("a", x="1")})
        await before.wait_sync(id, "synced")
    after = ControllerWorld(before.ledger_store, before.kube)
    second = after.declare("aa-second", {"a.yaml": configmap("a", x="2")})
    first = after.declare("zz-first", {"a.yaml": configmap("a", x="1")})
    after.repositories[first] = before.repositories[first]
    async with after:
        await after.wait_sync(first, "synced")
        await eventually(lambda: after.status(second).conditions, "a word about the second")
        assert after.status(second).conditions[0].reason == "DeclaredTwice"
        assert await after.data("a") == {"x": "1"}


async def test_a_deleted_application_leaves_its_objects_and_closes_its_drifts() -> None:
    async with ControllerWorld() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")}, drift=REPORT)
        await world.wait_sync(id, "synced")
        await world.edit_and_notify("a", "9")
        await world.wait_sync(id, "drifted")
        world.applications.remove(id)
        await eventually(lambda: id not in world.contexts, "it to be left")
        assert await world.data("a") == {"x": "9"}
        closed = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
        assert [record.body["resolution"] for record in closed] == [Resolution.GONE.value]
        assert await world.ledger_store.records(RecordKind.INVENTORY) == []
        assert world.needed == frozenset()


async def test_one_that_was_deleted_while_nobody_looked_is_left_at_the_start() -> None:
    before = ControllerWorld()
    async with before:
        id = before.declare("shop", {"a.yaml": configmap("a", x="1")}, drift=REPORT)
        await before.wait_sync(id, "synced")
        await before.edit_and_notify("a", "9")
        await before.wait_sync(id, "drifted")
    after = ControllerWorld(before.ledger_store, before.kube)
    async with after:
        await after.wait_idle()
    assert await after.ledger_store.records(RecordKind.DRIFT, state="open") == []


async def test_an_invalid_application_is_told_so_and_keeps_nobody_else_waiting() -> None:
    async with ControllerWorld() as world:
        wrong = world.declare("wrong", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(wrong, "synced")
        world.applications.spoil(wrong)
        fine = world.declare("fine", {"b.yaml": configmap("b", x="1")})
        await world.wait_sync(fine, "synced")
        await eventually(
            lambda: any(each.reason == "InvalidSpec" for each in world.status(wrong).conditions),
            "the refusal",
        )
        assert await world.data("a") == {"x": "1"}


async def test_a_failing_application_is_tried_again_and_others_go_on() -> None:
    async with ControllerWorld() as world:
        bad = world.declare("bad", {"a.yaml": configmap("a", x="1")})
        world.repositories[bad].down = "It is being moved."
        fine = world.declare("fine", {"b.yaml": configmap("b", x="1")})
        await world.wait_sync(fine, "synced")
        await eventually(lambda: world.status(bad).conditions, "a word about the bad one")
        assert world.status(bad).conditions[0].reason == "SourceUnavailable"
        world.repositories[bad].down = ""
        world.contexts[bad].poller.hasten()
        world.controller.wake(bad)
        await world.wait_sync(bad, "synced")


async def test_a_pass_that_breaks_off_reads_the_ledger_before_the_next() -> None:
    async with ControllerWorld() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")}, drift=REPORT)
        await world.wait_sync(id, "synced")
        write, failures = world.ledger_store.write, [TargetUnavailable("The ledger is away.")]

        async def failing(puts: object, entries: object) -> None:
            if failures:
                raise failures.pop()
            await write(puts, entries)  # type: ignore[arg-type]  # what we were given

        world.ledger_store.write = failing  # type: ignore[method-assign,assignment]
        await world.edit_and_notify("a", "9")
        await world.wait_sync(id, "drifted")
        found = await world.ledger_store.records(RecordKind.DRIFT, state="open")
        assert len(found) == 1


async def test_a_request_by_annotation_asks_the_repository_and_looks_at_everything() -> None:
    async with ControllerWorld() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(id, "synced")
        world.repositories[id].commit({"a.yaml": configmap("a", x="2")})
        known = world.applications.application_of(id)
        asked = replace(known, annotations={RECONCILE_REQUESTED: "now"})
        world.applications.put(asked)
        await eventually(lambda: world.status(id).last_handled_reconcile_at == "now", "the answer")
        assert await world.data("a") == {"x": "2"}


async def test_a_hint_asks_the_repository_at_once() -> None:
    async with ControllerWorld() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(id, "synced")
        commit = world.repositories[id].commit({"a.yaml": configmap("a", x="2")})
        world.controller.hint(id)
        await eventually(lambda: world.status(id).revision == commit, "the new commit")
        assert await world.data("a") == {"x": "2"}


async def test_what_is_declared_is_what_has_to_be_followed() -> None:
    async with ControllerWorld() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(id, "synced")
        assert set(world.needed) == {
            WatchedKind(api_version="v1", kind="ConfigMap", namespace=NAMESPACE)
        }


async def test_a_kind_that_comes_back_makes_everything_be_looked_at() -> None:
    async with ControllerWorld() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(id, "synced")
        await world.wait_idle()
        world.kube.unserve("ConfigMap")
        place = WatchedKind(api_version="v1", kind="ConfigMap", namespace="")
        world.controller.on_kind_availability(place)
        await world.wait_sync(id, "unknown")
        world.kube.serve("ConfigMap")
        world.controller.on_kind_availability(place)
        await world.wait_sync(id, "synced")


async def test_what_happened_is_counted_once_it_is_in_the_ledger() -> None:
    async with ControllerWorld() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(id, "synced")
        await world.edit_and_notify("a", "9")
        await world.wait_event("DriftCorrected")

    def value(name: str, **labels: str) -> float | None:
        return world.metrics.registry.get_sample_value(name, labels)

    of = {"namespace": "team", "type": "configuration"}
    assert value("holdfast_drift_detected_total", **of, cause="person") == 1
    assert value("holdfast_drift_resolved_total", **of, resolution="self_heal") == 1
    assert value("holdfast_drift_time_to_resolve_seconds_count", namespace="team") == 1


MONOREPO = "https://git.example.com/acme/deploy.git"


@pytest.mark.parametrize("url", [MONOREPO, "git@git.example.com:acme/deploy"], ids=["same", "ssh"])
async def test_an_object_that_moves_to_another_application_is_handed_over_and_never_deleted(
    url: str,
) -> None:
    async with ControllerWorld() as world:
        a, b = configmap("a", x="1"), configmap("b", x="1")
        giver = world.declare("giver", {"a.yaml": a, "k.yaml": b}, url=MONOREPO, prune=True)
        taker = world.declare("taker", {"c.yaml": configmap("c")}, url=url, prune=True)
        await world.wait_sync(giver, "synced")
        await world.wait_sync(taker, "synced")
        before = await world.kube.get(config_ref("a"))
        # One commit moves it. The giver reads it first; the taker does not know of it yet.
        world.repositories[taker].commit({"c.yaml": configmap("c"), "a.yaml": a})
        world.repositories[giver].commit({"k.yaml": b})
        world.controller.hint(giver)
        await eventually(
            lambda: config_ref("a") in world.contexts[taker].state.inventory,
            "a taker",
        )
        await world.wait_idle()
        after = await world.kube.get(config_ref("a"))
        assert before is not None and after is not None
        assert after["metadata"]["uid"] == before["metadata"]["uid"]  # type: ignore[index,call-overload]
        assert config_ref("a") not in world.contexts[giver].state.inventory
        assert after["metadata"]["labels"] == {APPLICATION_LABEL: taker.label}  # type: ignore[index,call-overload]
        assert {world.status(each).sync for each in (giver, taker)} == {"synced"}


async def test_what_nobody_declares_is_pruned_once_all_who_read_the_repository_were_asked() -> None:
    async with ControllerWorld() as world:
        giver = world.declare(
            "giver", {"a.yaml": configmap("a"), "b.yaml": configmap("b")}, url=MONOREPO, prune=True
        )
        other = world.declare("other", {"c.yaml": configmap("c")}, url=MONOREPO, prune=True)
        await world.wait_sync(giver, "synced")
        await world.wait_sync(other, "synced")
        world.repositories[other].down = "The host does not answer."
        world.repositories[giver].commit({"b.yaml": configmap("b")})
        world.controller.hint(giver)
        await world.wait_sync(giver, "ahead")
        await world.wait_idle()
        assert await world.kube.get(config_ref("a")) is not None
        (left,) = world.status(giver).not_in_sync or ()
        assert left.message == (
            "It is not deleted yet: team/other was not read since and may declare it."
        )
        world.repositories[other].down = ""
        world.controller.hint(other)
        await world.wait_sync(giver, "synced")
        assert await world.kube.get(config_ref("a")) is None
