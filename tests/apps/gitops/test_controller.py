"""Which applications are looked at, at which of their objects, and what comes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.adapters.kubernetes.harness import eventually
from tests.apps.gitops.machine import Machine
from tests.support.gitops_world import NAMESPACE, config_ref, configmap

from holdfast.apps.gitops.watches import WatchedKind
from holdfast.core.errors import TargetUnavailable
from holdfast.core.gitops.application import DriftSpec
from holdfast.core.gitops.drift import Resolution
from holdfast.core.gitops.objects import APPLICATION_LABEL
from holdfast.reconcile.gitops.application_status import RECONCILE_REQUESTED
from holdfast.reconcile.gitops.ports import RecordKind

REPORT = DriftSpec()


async def test_a_new_application_is_applied_and_an_edit_is_healed() -> None:
    machine = Machine()
    async with machine.working():
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")})
        await machine.reaches(id, "synced")
        await machine.edit("a", "9")
        await eventually(lambda: "DriftCorrected" in {n.reason for n in machine.notes}, "a heal")
        assert await machine.value("a") == "1"


async def test_an_event_makes_only_its_own_object_be_looked_at() -> None:
    machine = Machine()
    async with machine.working():
        files = {f"{name}.yaml": configmap(name, x="1") for name in "abc"}
        id = machine.declare("shop", files, drift=REPORT)
        await machine.reaches(id, "synced")
        await machine.settled()
        machine.looks.clear()
        await machine.edit("b", "9")
        await machine.reaches(id, "drifted")
        assert machine.looks[0] == {config_ref("b")}


async def test_what_nobody_declares_concerns_nobody() -> None:
    machine = Machine()
    async with machine.working():
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")})
        await machine.reaches(id, "synced")
        await machine.settled()
        machine.looks.clear()
        stranger = machine.kube.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "other", "namespace": NAMESPACE},
            }
        )
        machine.controller.on_object(None, stranger)
        assert machine.controller.queue.idle
        assert machine.looks == []


async def test_a_stranger_in_a_namespace_of_its_own_is_looked_at() -> None:
    machine = Machine()
    async with machine.working():
        drift = DriftSpec(namespaces=(NAMESPACE,))
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")}, drift=drift)
        await machine.reaches(id, "synced")
        stranger = machine.kube.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "other", "namespace": NAMESPACE},
            }
        )
        machine.controller.on_object(None, stranger)
        await machine.reaches(id, "drifted")
        assert machine.status(id).orphans == 1


async def test_the_second_to_declare_an_object_is_refused_and_told_who_has_it() -> None:
    machine = Machine()
    async with machine.working():
        first = machine.declare("first", {"a.yaml": configmap("a", x="1")})
        await machine.reaches(first, "synced")
        second = machine.declare("second", {"a.yaml": configmap("a", x="2")})
        await eventually(lambda: machine.status(second).conditions, "a word about the second")
        ready = machine.status(second).conditions[0]
        assert (ready.status, ready.reason) == ("False", "DeclaredTwice")
        assert "team/first" in ready.message
        assert await machine.value("a") == "1"
        # Once the first lets it go, the second has it.
        machine.repositories[first].commit({"b.yaml": configmap("b", x="1")})
        machine.contexts[first].poller.hasten()
        machine.controller.wake(first)
        await machine.reaches(second, "synced")
        assert await machine.value("a") == "2"
        await machine.reaches(first, "synced")
        assert config_ref("a") not in machine.contexts[first].state.inventory


async def test_after_a_restart_who_applied_an_object_still_has_it() -> None:
    before = Machine()
    async with before.working():
        id = before.declare("zz-first", {"a.yaml": configmap("a", x="1")})
        await before.reaches(id, "synced")
    after = Machine(before.memory, before.kube)
    second = after.declare("aa-second", {"a.yaml": configmap("a", x="2")})
    first = after.declare("zz-first", {"a.yaml": configmap("a", x="1")})
    after.repositories[first] = before.repositories[first]
    async with after.working():
        await after.reaches(first, "synced")
        await eventually(lambda: after.status(second).conditions, "a word about the second")
        assert after.status(second).conditions[0].reason == "DeclaredTwice"
        assert await after.value("a") == "1"


async def test_a_deleted_application_leaves_its_objects_and_closes_its_drifts() -> None:
    machine = Machine()
    async with machine.working():
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")}, drift=REPORT)
        await machine.reaches(id, "synced")
        await machine.edit("a", "9")
        await machine.reaches(id, "drifted")
        machine.applications.remove(id)
        await eventually(lambda: id not in machine.contexts, "it to be left")
        assert await machine.value("a") == "9"
        closed = await machine.memory.records(RecordKind.DRIFT, state="closed")
        assert [record.body["resolution"] for record in closed] == [Resolution.GONE.value]
        assert await machine.memory.records(RecordKind.INVENTORY) == []
        assert machine.needed == frozenset()


async def test_one_that_was_deleted_while_nobody_looked_is_left_at_the_start() -> None:
    before = Machine()
    async with before.working():
        id = before.declare("shop", {"a.yaml": configmap("a", x="1")}, drift=REPORT)
        await before.reaches(id, "synced")
        await before.edit("a", "9")
        await before.reaches(id, "drifted")
    after = Machine(before.memory, before.kube)
    async with after.working():
        await after.settled()
    assert await after.memory.records(RecordKind.DRIFT, state="open") == []


async def test_an_invalid_application_is_told_so_and_keeps_nobody_else_waiting() -> None:
    machine = Machine()
    async with machine.working():
        wrong = machine.declare("wrong", {"a.yaml": configmap("a", x="1")})
        await machine.reaches(wrong, "synced")
        machine.applications.spoil(wrong)
        fine = machine.declare("fine", {"b.yaml": configmap("b", x="1")})
        await machine.reaches(fine, "synced")
        await eventually(
            lambda: any(each.reason == "InvalidSpec" for each in machine.status(wrong).conditions),
            "the refusal",
        )
        assert await machine.value("a") == "1"


async def test_a_failing_application_is_tried_again_and_others_go_on() -> None:
    machine = Machine()
    async with machine.working():
        bad = machine.declare("bad", {"a.yaml": configmap("a", x="1")})
        machine.repositories[bad].down = "It is being moved."
        fine = machine.declare("fine", {"b.yaml": configmap("b", x="1")})
        await machine.reaches(fine, "synced")
        await eventually(lambda: machine.status(bad).conditions, "a word about the bad one")
        assert machine.status(bad).conditions[0].reason == "SourceUnavailable"
        machine.repositories[bad].down = ""
        machine.contexts[bad].poller.hasten()
        machine.controller.wake(bad)
        await machine.reaches(bad, "synced")


async def test_a_pass_that_breaks_off_reads_the_ledger_before_the_next() -> None:
    machine = Machine()
    async with machine.working():
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")}, drift=REPORT)
        await machine.reaches(id, "synced")
        write, failures = machine.memory.write, [TargetUnavailable("The ledger is away.")]

        async def failing(puts: object, entries: object) -> None:
            if failures:
                raise failures.pop()
            await write(puts, entries)  # type: ignore[arg-type]  # what we were given

        machine.memory.write = failing  # type: ignore[method-assign,assignment]
        await machine.edit("a", "9")
        await machine.reaches(id, "drifted")
        found = await machine.memory.records(RecordKind.DRIFT, state="open")
        assert len(found) == 1


async def test_a_request_by_annotation_asks_the_repository_and_looks_at_everything() -> None:
    machine = Machine()
    async with machine.working():
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")})
        await machine.reaches(id, "synced")
        machine.repositories[id].commit({"a.yaml": configmap("a", x="2")})
        known = machine.applications.held[id].application
        assert known is not None
        asked = replace(known, annotations={RECONCILE_REQUESTED: "now"})
        machine.applications.put(asked)
        await eventually(
            lambda: machine.status(id).last_handled_reconcile_at == "now", "the answer"
        )
        assert await machine.value("a") == "2"


async def test_a_hint_asks_the_repository_at_once() -> None:
    machine = Machine()
    async with machine.working():
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")})
        await machine.reaches(id, "synced")
        commit = machine.repositories[id].commit({"a.yaml": configmap("a", x="2")})
        machine.controller.hint(id)
        await eventually(lambda: machine.status(id).revision == commit, "the new commit")
        assert await machine.value("a") == "2"


async def test_what_is_declared_is_what_has_to_be_followed() -> None:
    machine = Machine()
    async with machine.working():
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")})
        await machine.reaches(id, "synced")
        assert set(machine.needed) == {
            WatchedKind(api_version="v1", kind="ConfigMap", namespace=NAMESPACE)
        }


async def test_a_kind_that_comes_back_makes_everything_be_looked_at() -> None:
    machine = Machine()
    async with machine.working():
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")})
        await machine.reaches(id, "synced")
        await machine.settled()
        machine.kube.unserve("ConfigMap")
        place = WatchedKind(api_version="v1", kind="ConfigMap", namespace="")
        machine.controller.on_kind_availability(place)
        await machine.reaches(id, "unknown")
        machine.kube.serve("ConfigMap")
        machine.controller.on_kind_availability(place)
        await machine.reaches(id, "synced")


async def test_what_happened_is_counted_once_it_is_in_the_ledger() -> None:
    machine = Machine()
    async with machine.working():
        id = machine.declare("shop", {"a.yaml": configmap("a", x="1")})
        await machine.reaches(id, "synced")
        await machine.edit("a", "9")
        await eventually(lambda: "DriftCorrected" in {n.reason for n in machine.notes}, "a heal")

    def value(name: str, **labels: str) -> float | None:
        return machine.metrics.registry.get_sample_value(name, labels)

    of = {"namespace": "team", "type": "configuration"}
    assert value("holdfast_drift_detected_total", **of, cause="person") == 1
    assert value("holdfast_drift_resolved_total", **of, resolution="self_heal") == 1
    assert value("holdfast_drift_time_to_resolve_seconds_count", namespace="team") == 1


MONOREPO = "https://git.example.com/acme/deploy.git"


@pytest.mark.parametrize("url", [MONOREPO, "git@git.example.com:acme/deploy"], ids=["same", "ssh"])
async def test_an_object_that_moves_to_another_application_is_handed_over_and_never_deleted(
    url: str,
) -> None:
    machine = Machine()
    async with machine.working():
        a, b = configmap("a", x="1"), configmap("b", x="1")
        giver = machine.declare("giver", {"a.yaml": a, "k.yaml": b}, url=MONOREPO, prune=True)
        taker = machine.declare("taker", {"c.yaml": configmap("c")}, url=url, prune=True)
        await machine.reaches(giver, "synced")
        await machine.reaches(taker, "synced")
        before = await machine.kube.get(config_ref("a"))
        # One commit moves it. The giver reads it first; the taker does not know of it yet.
        machine.repositories[taker].commit({"c.yaml": configmap("c"), "a.yaml": a})
        machine.repositories[giver].commit({"k.yaml": b})
        machine.controller.hint(giver)
        await eventually(
            lambda: config_ref("a") in machine.contexts[taker].state.inventory,
            "a taker",
        )
        await machine.settled()
        after = await machine.kube.get(config_ref("a"))
        assert before is not None and after is not None
        assert after["metadata"]["uid"] == before["metadata"]["uid"]  # type: ignore[index,call-overload]
        assert config_ref("a") not in machine.contexts[giver].state.inventory
        assert after["metadata"]["labels"] == {APPLICATION_LABEL: taker.label}  # type: ignore[index,call-overload]
        assert {machine.status(each).sync for each in (giver, taker)} == {"synced"}


async def test_what_nobody_declares_is_pruned_once_all_who_read_the_repository_were_asked() -> None:
    machine = Machine()
    async with machine.working():
        giver = machine.declare(
            "giver", {"a.yaml": configmap("a"), "b.yaml": configmap("b")}, url=MONOREPO, prune=True
        )
        other = machine.declare("other", {"c.yaml": configmap("c")}, url=MONOREPO, prune=True)
        await machine.reaches(giver, "synced")
        await machine.reaches(other, "synced")
        machine.repositories[other].down = "The host does not answer."
        machine.repositories[giver].commit({"b.yaml": configmap("b")})
        machine.controller.hint(giver)
        await machine.reaches(giver, "ahead")
        await machine.settled()
        assert await machine.kube.get(config_ref("a")) is not None
        (left,) = machine.status(giver).not_in_sync or ()
        assert left.message == (
            "It is not deleted yet: team/other was not read since and may declare it."
        )
        machine.repositories[other].down = ""
        machine.controller.hint(other)
        await machine.reaches(giver, "synced")
        assert await machine.kube.get(config_ref("a")) is None
