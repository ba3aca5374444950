"""The contract of the `KubeClient` port, for the real API server and for the one in memory.

Every sentence of the port, on each; `test_kube_twins` then compares the two with each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from tests.contracts.kube_worlds import (
    US,
    KubeWorld,
    MemoryKubeWorld,
    cluster_world,
    comparable,
    config_map,
    get_live,
    service,
    wait_until_gone,
)
from tests.contracts.plain_clients import PlainMemoryWorld, plain_cluster_world
from tests.support.inference_services import document

from holdfast.core.errors import NotFound, ValidationError
from holdfast.reconcile.kube import (
    ConflictReason,
    FieldOwner,
    KindNotServed,
    KubeConflict,
    ObjectRef,
    Scope,
    VersionExpired,
    WatchEventType,
    ref_of,
)

Scene = Callable[[KubeWorld], Awaitable[None]]
OTHER_UID = "11111111-2222-3333-4444-555555555555"


NOT_OVER_UPDATES = {
    "test_fields_of_others_are_named_and_taken_only_by_force": "writers are unknown",
    "test_a_dry_run_answers_as_the_apply_would_and_writes_nothing": "a dry run is our own merge",
    "test_a_kind_that_is_not_served_leaves_every_question_open": "there is no watch",
    "test_a_watch_misses_nothing_since_a_list": "there is no watch",
    "test_an_object_that_leaves_a_selection_is_deleted_from_it": "there is no watch",
    "test_a_version_whose_events_are_not_kept_has_expired": "there is no watch",
    "test_a_field_that_the_schema_does_not_know_is_refused": "a dry run is our own merge",
}
"""What a client over plain updates does not promise; `test_apply_over_update` has its own words."""


@pytest.fixture(
    params=[
        "memory",
        pytest.param("cluster", marks=pytest.mark.cluster),
        "plain-memory",
        pytest.param("plain-cluster", marks=pytest.mark.cluster),
    ]
)
def on(request: pytest.FixtureRequest) -> Callable[[Scene], None]:
    """Play a scene on one implementation."""
    plain = request.param.startswith("plain-")
    why = NOT_OVER_UPDATES.get(request.node.originalname)
    if plain and why:
        pytest.skip(f"over plain updates {why}")

    async def in_memory(scene: Scene) -> None:
        await scene(PlainMemoryWorld() if plain else MemoryKubeWorld())

    async def on_cluster(scene: Scene) -> None:
        found = request.getfixturevalue("definitions"), request.getfixturevalue("namespace")
        async with (plain_cluster_world if plain else cluster_world)(*found) as world:
            await scene(world)

    if request.param.endswith("memory"):
        return lambda scene: asyncio.run(in_memory(scene))
    request.getfixturevalue("namespace")
    return lambda scene: asyncio.run(on_cluster(scene))


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def guarded(item: dict[str, Any], **guards: str) -> dict[str, Any]:
    return {**item, "metadata": {**item["metadata"], **guards}}


async def refusal(call: Awaitable[Any]) -> KubeConflict:
    with pytest.raises(KubeConflict) as raised:
        await call
    return raised.value


def version(item: Any) -> str:
    found: str = item["metadata"]["resourceVersion"]
    return found


def scope_of(world: KubeWorld, kind: str = "ConfigMap", labels: str = "app=bot") -> Scope:
    return Scope(api_version="v1", kind=kind, namespace=world.namespace, labels=labels)


def labelled(world: KubeWorld, name: str, **labels: str) -> dict[str, Any]:
    item = config_map(world, name, text="x")
    item["metadata"]["labels"] = {"app": "bot", **labels}
    return item


def test_what_is_not_there_is_none(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        assert await get_live(world, config_map(world)) is None

    on(scene)


def test_an_applied_object_is_there_and_belongs_to_the_caller(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        sent = config_map(world, text="x")
        made: Any = await world.client.apply(sent, manager=US)
        assert made["metadata"]["uid"] and made["data"] == {"text": "x"}
        made["data"]["text"] = sent["data"]["text"] = "changed by the caller"
        found = await get_live(world, sent)
        assert found["data"] == {"text": "x"}

    on(scene)


def test_absent_creates_what_is_missing_and_refuses_what_is_there(
    on: Callable[[Scene], None],
) -> None:
    async def scene(world: KubeWorld) -> None:
        for force in (False, True):
            for dry_run in (True, False):
                item = config_map(world, f"force-{str(force).lower()}", text="x")
                await world.client.apply(
                    item, manager=US, absent=True, force=force, dry_run=dry_run
                )
            live = await get_live(world, item)
            for manager, text in ((US, "x"), (US, "y"), ("them", "y")):
                for dry_run in (True, False):
                    wanted = {**item, "data": {"text": text}}
                    refused = await refusal(
                        world.client.apply(
                            wanted, manager=manager, absent=True, force=force, dry_run=dry_run
                        )
                    )
                    assert refused.reason is ConflictReason.EXISTS
            assert await get_live(world, item) == live

    on(scene)


GUARDS = {
    # What is sent, and the answer when the object is there and when it is not; "" is a success.
    "nothing": ((), "", ""),
    "the right uid": (("uid",), "", "replaced"),
    "the right uid and version": (("uid", "version"), "", "replaced"),
    "another uid": (("other uid",), "replaced", "replaced"),
    "another version": (("other version",), "changed", ""),
    "the right uid and another version": (("uid", "other version"), "changed", "replaced"),
    "another uid and the right version": (("other uid", "version"), "replaced", "replaced"),
    "empty guards": (("empty",), "", ""),
}


@pytest.mark.parametrize("sent", GUARDS)
def test_guards_hold_for_the_object_that_was_seen(on: Callable[[Scene], None], sent: str) -> None:
    names, if_there, if_deleted = GUARDS[sent]

    async def scene(world: KubeWorld) -> None:
        await part(world, config_map(world, "there", text="x"), if_there)
        await part(world, config_map(world, "deleted", text="x"), if_deleted)

    async def part(world: KubeWorld, item: dict[str, Any], expected: str) -> None:
        before: Any = await world.client.apply(item, manager=US)
        guards = {
            "uid": {"uid": before["metadata"]["uid"]},
            "other uid": {"uid": OTHER_UID},
            "version": {"resourceVersion": version(before)},
            "other version": {"resourceVersion": "2"},
            "empty": {"uid": "", "resourceVersion": ""},
        }
        given = {name: value for each in names for name, value in guards[each].items()}
        if item["metadata"]["name"] == "deleted":
            assert await world.client.delete(ref_of(item))
        live = await get_live(world, item)
        for dry_run, force in ((True, True), (True, False), (False, True)):
            wanted = guarded({**item, "data": {"text": "y"}}, **given)
            call = world.client.apply(wanted, manager=US, force=force, dry_run=dry_run)
            if expected:
                assert (await refusal(call)).reason.value == expected
            else:
                answer: Any = await call
                assert answer["data"] == {"text": "y"}
            if expected or dry_run:
                assert await get_live(world, item) == live

    on(scene)


def test_fields_of_others_are_named_and_taken_only_by_force(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        item = config_map(world, a="1", b="2")
        await world.client.apply(item, manager="them")
        await world.edit(ref_of(item), lambda it: it["data"].update(b="3"), manager="ed")
        wanted = config_map(world, a="other", b="other")
        for dry_run in (True, False):
            refused = await refusal(world.client.apply(wanted, manager=US, dry_run=dry_run))
            assert refused.reason is ConflictReason.OWNED
            assert sorted(refused.owners, key=lambda owner: owner.path) == [
                FieldOwner(path=".data.a", manager="them"),
                FieldOwner(path=".data.b", manager="ed", api_version="v1"),
            ]
        forced: Any = await world.client.apply(wanted, manager=US, force=True)
        assert forced["data"] == {"a": "other", "b": "other"}
        assert [entry["manager"] for entry in forced["metadata"]["managedFields"]] == [US]

    on(scene)


def test_a_dry_run_answers_as_the_apply_would_and_writes_nothing(
    on: Callable[[Scene], None],
) -> None:
    async def scene(world: KubeWorld) -> None:
        item = service(world)
        foreseen: Any = await world.client.apply(item, manager=US, dry_run=True)
        assert await get_live(world, item) is None
        assert "resourceVersion" not in foreseen["metadata"] and foreseen["metadata"]["uid"]
        made: Any = await world.client.apply(item, manager=US)
        seen = comparable(made, "none")
        del seen["metadata"]["resourceVersion"]
        if isinstance(world, MemoryKubeWorld):  # a real server makes up no address in a dry run
            assert comparable(foreseen, "none") == seen
        item["spec"]["sessionAffinity"] = "ClientIP"
        foreseen = await world.client.apply(item, manager=US, dry_run=True)
        assert version(foreseen) == version(made)
        assert await get_live(world, item) == made
        changed: Any = await world.client.apply(item, manager=US)
        assert version(changed) != version(made)
        assert comparable(changed, "none") == comparable(foreseen, "none")

    on(scene)


def test_an_apply_that_changes_nothing_leaves_the_version(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        for item in (config_map(world, text="x"), service(world)):
            made = await world.client.apply(item, manager=US)
            for force in (True, False):
                for dry_run in (True, False):
                    again = await world.client.apply(item, manager=US, force=force, dry_run=dry_run)
                    assert again == made
            assert await get_live(world, item) == made

    on(scene)


def test_what_was_applied_before_and_is_left_out_is_removed_unless_others_own_it(
    on: Callable[[Scene], None],
) -> None:
    async def scene(world: KubeWorld) -> None:
        await world.client.apply(config_map(world, ours="1", shared="1"), manager=US)
        await world.client.apply(config_map(world, shared="1"), manager="them")
        left: Any = await world.client.apply(config_map(world, more="1"), manager=US)
        assert left["data"] == {"shared": "1", "more": "1"}
        left = await world.client.apply(config_map(world), manager="them")
        assert left["data"] == {"more": "1"}

    on(scene)


def test_a_patch_meets_only_what_its_test_allows(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        item = config_map(world, text="x")
        change: Any = {"op": "replace", "path": "/data/text", "value": "y"}
        with pytest.raises(NotFound):
            await world.client.patch(ref_of(item), [change], manager=US)
        live: Any = await world.client.apply(item, manager=US)
        path = "/metadata/resourceVersion"
        for wrong in (
            {"op": "test", "path": path, "value": "2"},
            {"op": "test", "path": "/data/missing", "value": "x"},
            {"op": "remove", "path": "/data/missing"},
        ):
            with pytest.raises(ValidationError):
                await world.client.patch(ref_of(item), [wrong, change], manager=US)
        assert await get_live(world, item) == live
        right: Any = {"op": "test", "path": path, "value": version(live)}
        add: Any = {"op": "add", "path": "/data/more", "value": "z"}
        found: Any = await world.client.patch(ref_of(item), [right, change, add], manager=US)
        assert found["data"] == {"text": "y", "more": "z"}
        assert await get_live(world, item) == found

    on(scene)


def test_a_deletion_meets_only_the_object_that_was_seen(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        item = config_map(world, text="x")
        ref = ref_of(item)
        assert await world.client.delete(ref) is False
        assert await world.client.delete(ref, uid=OTHER_UID, version="2") is False
        live: Any = await world.client.apply(item, manager=US)
        uid = live["metadata"]["uid"]
        for guards, reason in (
            ({"uid": OTHER_UID}, ConflictReason.REPLACED),
            ({"uid": OTHER_UID, "version": version(live)}, ConflictReason.REPLACED),
            ({"version": "2"}, ConflictReason.CHANGED),
            ({"uid": uid, "version": "2"}, ConflictReason.CHANGED),
        ):
            assert (await refusal(world.client.delete(ref, **guards))).reason is reason
        assert await get_live(world, item) == live
        assert await world.client.delete(ref, uid=uid, version=version(live)) is True
        assert await get_live(world, item) is None

    on(scene)


def test_what_an_object_owns_goes_with_it(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        def owned(name: str, *owners: Any) -> dict[str, Any]:
            item = config_map(world, name, text="x")
            item["metadata"]["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                }
                for owner in owners
            ]
            return item

        first, second = [
            await world.client.apply(config_map(world, name), manager=US) for name in ("one", "two")
        ]
        child = owned("child", first)
        made = await world.client.apply(child, manager=US)
        grandchild, shared = owned("grandchild", made), owned("shared", first, second)
        for each in (grandchild, shared):
            await world.client.apply(each, manager=US)
        await world.client.delete(ref_of(first))
        await wait_until_gone(world.client, ref_of(child))
        await wait_until_gone(world.client, ref_of(grandchild))
        assert await get_live(world, shared) is not None
        await world.client.delete(ref_of(second))
        await wait_until_gone(world.client, ref_of(shared))

    on(scene)


def test_a_finalizer_holds_an_object_until_it_is_taken_off(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        item = config_map(world, text="x")
        held = guarded(item)
        held["metadata"]["finalizers"] = ["example.com/hold"]
        made: Any = await world.client.apply(held, manager=US)
        assert await world.client.delete(ref_of(item), uid=made["metadata"]["uid"]) is True
        going = await get_live(world, item)
        assert going["metadata"]["deletionTimestamp"] and version(going) != version(made)
        assert await world.client.delete(ref_of(item)) is True
        assert await get_live(world, item) == going
        more = guarded(item)
        more["metadata"]["finalizers"] = ["example.com/hold", "example.com/more"]
        with pytest.raises(ValidationError):
            await world.client.apply(more, manager=US)
        await world.client.apply(item, manager=US)
        assert await get_live(world, item) is None

    on(scene)


def test_a_list_is_whole_and_its_items_say_what_they_are(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        for name in ("b", "a"):
            await world.client.apply(labelled(world, name), manager=US)
        await world.client.apply(config_map(world, "other"), manager=US)
        found: Any = await world.client.list(scope_of(world))
        assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
        assert found.items[0] == await get_live(world, labelled(world, "a"))
        everywhere = await world.client.list(replace(scope_of(world), namespace=""))
        assert len(everywhere.items) >= 2

    on(scene)


SELECTED = {
    "tier=gold": ["a"],
    "tier==gold": ["a"],
    "tier!=gold": ["b", "c"],
    "tier": ["a", "b"],
    "!tier": ["c"],
    "tier=gold,app=bot": ["a"],
    "tier=none": [],
}


def test_fields_select(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        for uid in ("one", "two"):
            about = {"kind": "Pod", "name": uid, "uid": uid, "namespace": world.namespace}
            item = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"bot.{uid}", "namespace": world.namespace},
                "involvedObject": about,
                "reason": "Unhealthy",
                "message": "Liveness probe failed",
            }
            await world.client.apply(item, manager=US)
        scope = Scope(
            api_version="v1",
            kind="Event",
            namespace=world.namespace,
            fields="involvedObject.uid=two,reason=Unhealthy",
        )
        found: Any = await world.client.list(scope)
        assert [each["metadata"]["name"] for each in found.items] == ["bot.two"]

    on(scene)


def test_labels_select(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        for name, labels in (("a", {"tier": "gold"}), ("b", {"tier": "iron"}), ("c", {})):
            await world.client.apply(labelled(world, name, **labels), manager=US)
        for selector, names in SELECTED.items():
            found: Any = await world.client.list(scope_of(world, labels=f"app=bot,{selector}"))
            assert [item["metadata"]["name"] for item in found.items] == names, selector

    on(scene)


async def events(world: KubeWorld, scope: Scope, since: str, count: int) -> list[Any]:
    """The next events of a watch, without bookmarks."""
    found: list[Any] = []
    stream: Any = world.client.watch(scope, version=since)  # an iterator that can be closed
    async with asyncio.timeout(30), aclosing(stream):
        async for event in stream:
            if event.type is not WatchEventType.BOOKMARK:
                found.append(event)
            if len(found) == count:
                break
    return found


def test_a_watch_misses_nothing_since_a_list(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        await world.client.apply(labelled(world, "old"), manager=US)
        listed = await world.client.list(scope_of(world))
        states = [
            await world.client.apply(labelled(world, "new"), manager=US),
            await world.client.apply(labelled(world, "new", tier="gold"), manager=US),
        ]
        await world.client.apply(config_map(world, "of-no-interest"), manager=US)
        await world.client.delete(ref_of(labelled(world, "old")))
        running = asyncio.ensure_future(events(world, scope_of(world), listed.version, 4))
        await asyncio.sleep(0)
        states.append(await world.client.apply(labelled(world, "late"), manager=US))
        found = await running
        names = [(event.type.value, event.item["metadata"]["name"]) for event in found]
        assert names == [
            ("ADDED", "new"),
            ("MODIFIED", "new"),
            ("DELETED", "old"),
            ("ADDED", "late"),
        ]
        assert [found[0].item, found[1].item, found[3].item] == states
        versions = [int(version(event.item)) for event in found]
        assert versions == sorted(versions) and versions[0] > int(listed.version)
        later = await events(world, scope_of(world), version(found[2].item), 1)
        assert later == found[3:]

    on(scene)


def test_an_object_that_leaves_a_selection_is_deleted_from_it(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        listed = await world.client.list(scope_of(world))
        item = config_map(world, "a", text="x")
        await world.client.apply(item, manager=US)
        await world.client.apply(labelled(world, "a"), manager=US)
        left: Any = await world.client.apply(item, manager=US)
        found = await events(world, scope_of(world), listed.version, 2)
        assert [event.type for event in found] == [WatchEventType.ADDED, WatchEventType.DELETED]
        assert found[1].item["metadata"]["labels"] == {"app": "bot"}
        assert version(found[1].item) == version(left)

    on(scene)


def test_a_version_whose_events_are_not_kept_has_expired(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        item = document(namespace=world.namespace)
        await world.client.apply(item, manager=US)
        scope = Scope(api_version=item["apiVersion"], kind=item["kind"], namespace=world.namespace)
        with pytest.raises(VersionExpired):
            await events(world, scope, "1", 1)

    on(scene)


def test_a_kind_that_is_not_served_leaves_every_question_open(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        ref = ObjectRef(
            api_version="nowhere.example/v1", kind="Nothing", namespace=world.namespace, name="a"
        )
        scope = Scope(api_version=ref.api_version, kind=ref.kind)
        metadata = {"name": "a", "namespace": world.namespace}
        item: Any = {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": metadata}
        for call in (
            world.client.get(ref),
            world.client.list(scope),
            world.client.apply(item, manager=US),
            world.client.patch(ref, [], manager=US),
            world.client.delete(ref),
            events(world, scope, "1", 1),
        ):
            with pytest.raises(KindNotServed):
                await call

    on(scene)


def test_the_status_is_written_apart_and_only_there(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        item = document(namespace=world.namespace)
        said = {**item, "status": {"ready": True, "message": "from the main resource"}}
        with pytest.raises(NotFound):
            await world.client.apply(said, manager=US, subresource="status")
        made: Any = await world.client.apply(said, manager=US)
        assert "status" not in made
        said = {**item, "spec": {"modelRef": "another"}, "status": {"ready": True}}
        written: Any = await world.client.apply(said, manager=US, subresource="status")
        assert written["status"] == {"ready": True} and written["spec"] == made["spec"]
        assert written["metadata"]["generation"] == made["metadata"]["generation"] == 1
        again = await world.client.apply(item, manager=US)
        assert again == written
        assert await world.client.apply(said, manager=US, subresource="status") == written
        item["spec"]["replicas"] = 3
        changed: Any = await world.client.apply(item, manager=US)
        assert changed["status"] == {"ready": True} and changed["metadata"]["generation"] == 2

    on(scene)


def test_a_field_that_the_schema_does_not_know_is_refused(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        item = document(namespace=world.namespace)
        for wrong in ({"bogus": 1}, {"resources": {"tpu": 1}}, {"replicas": "two"}):
            for dry_run in (True, False):
                with pytest.raises(ValidationError):
                    await world.client.apply(
                        {**item, "spec": {**item["spec"], **wrong}}, manager=US, dry_run=dry_run
                    )
        assert await get_live(world, item) is None
        await world.client.apply(item, manager=US)
        with pytest.raises(ValidationError):
            await world.client.apply(
                {**item, "status": {"bogus": 1}}, manager=US, subresource="status"
            )

    on(scene)
