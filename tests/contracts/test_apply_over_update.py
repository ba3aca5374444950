"""What a client without server-side apply tells: right verdicts, and unknown where it cannot know.

On the memory cluster, and with the client that the page shows on a real API server, whose
controllers write to the same objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.contracts.kube_worlds import KubeWorld, config_map
from tests.contracts.plain_clients import PlainMemoryWorld, plain_cluster_world

from holdfast.core.errors import TargetUnavailable, ValidationError
from holdfast.core.tree import Fields
from holdfast.operator import (
    AutoscalingSpec,
    InferenceService,
    InferenceServiceSpec,
    Reconciler,
    ResourceSpec,
    ServiceResult,
)
from holdfast.reconcile.kube import ConflictReason, KubeConflict, ObjectRef, Scope, ref_of
from holdfast.reconcile.objects.apply_over_update import RECORD_ANNOTATION

Scene = Callable[[KubeWorld], Awaitable[None]]
KEY = b"0" * 32


@pytest.fixture(params=["memory", pytest.param("cluster", marks=pytest.mark.cluster)])
def on(request: pytest.FixtureRequest) -> Callable[[Scene], None]:
    async def in_memory(scene: Scene) -> None:
        await scene(PlainMemoryWorld())

    async def on_cluster(scene: Scene) -> None:
        found = request.getfixturevalue("definitions"), request.getfixturevalue("namespace")
        async with plain_cluster_world(*found) as world:
            await scene(world)

    if request.param == "memory":
        return lambda scene: asyncio.run(in_memory(scene))
    request.getfixturevalue("namespace")
    return lambda scene: asyncio.run(on_cluster(scene))


class Operated:
    """A service that is reconciled through the plain client."""

    def __init__(self, world: KubeWorld, **spec: Any) -> None:
        self.world = world
        self.service = InferenceService(
            name="bot",
            namespace=world.namespace,
            spec=InferenceServiceSpec(model_ref="org/model", replicas=2, **spec),
        )
        self.reconciler = Reconciler(world.client, key=KEY)
        self.primary = ObjectRef(
            api_version="apps/v1", kind="Deployment", namespace=world.namespace, name="bot-primary"
        )

    async def reconcile(self) -> ServiceResult:
        """Make a pass, and another where somebody was faster, as the controller does."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await self.reconciler.reconcile(self.service)
                except KubeConflict:
                    await asyncio.sleep(0.2)

    async def settled(self) -> None:
        """Reconcile, and let controllers have their say."""
        await self.reconcile()
        await self.rest()

    async def rest(self) -> None:
        """Let controllers write what they have to, so that a pass meets no conflict half-way."""
        if not isinstance(self.world, PlainMemoryWorld):
            await asyncio.sleep(1.5)

    # Any: objects of the Kubernetes API as they come over the wire, here and below.
    async def live(self) -> Any:
        return await self.world.client.get(self.primary)

    async def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        await self.world.edit(self.primary, change, manager="kubectl-edit")


def pod(item: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = item["spec"]["template"]["spec"]
    return found


def server(item: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod(item)["containers"][0]
    return found


def drift_of(result: ServiceResult) -> str:
    """What is said of drift, in words."""
    return "\n".join(note.message for note in result.notes if "rift" in note.reason)


def test_a_second_pass_finds_nothing_and_writes_nothing(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        bot = Operated(world)
        await bot.settled()
        before = await bot.live()
        result = await bot.reconcile()
        assert drift_of(result) == ""
        after = await bot.live()
        assert after["metadata"]["generation"] == before["metadata"]["generation"]
        assert after["metadata"]["managedFields"] == before["metadata"]["managedFields"]
        assert [entry["manager"] for entry in after["metadata"]["managedFields"]] == [
            "holdfast-operator"
        ]

    on(scene)


EDITS = {
    "a changed image": (lambda it: server(it).update(image="other:1"), "image"),
    "an added variable": (
        lambda it: server(it).setdefault("env", []).append({"name": "EXTRA", "value": "1"}),
        "EXTRA",
    ),
    "a removed probe": (lambda it: server(it).pop("readinessProbe"), "readinessProbe"),
    "another number of replicas": (lambda it: it["spec"].update(replicas=5), "replicas"),
    "an added container": (
        lambda it: pod(it)["containers"].append({"name": "miner", "image": "miner:1"}),
        "miner",
    ),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_is_found_put_back_and_its_writer_told_as_unknown(
    on: Callable[[Scene], None], what: str
) -> None:
    change, word = EDITS[what]

    async def scene(world: KubeWorld) -> None:
        bot = Operated(world)
        await bot.settled()
        before = await bot.live()
        await bot.edit(change)
        await bot.rest()
        said = drift_of(await bot.reconcile())
        assert word in said
        assert "kubectl-edit" not in said and "naive" not in said and "plain" not in said
        after = await bot.live()
        assert after["spec"] == before["spec"]
        assert drift_of(await bot.reconcile()) == ""

    on(scene)


def test_what_the_cluster_itself_writes_is_no_drift(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        bot = Operated(world)
        await bot.settled()
        await world.edit(
            bot.primary,
            lambda it: it["metadata"]["annotations"].update(
                {"deployment.kubernetes.io/revision": "7"}
            ),
            manager="kube-controller-manager",
        )
        assert drift_of(await bot.reconcile()) == ""

    on(scene)


def test_a_number_that_an_autoscaler_sets_is_its_own(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        bot = Operated(
            world,
            min_replicas=1,
            max_replicas=9,
            autoscaling=AutoscalingSpec(),
            resources=ResourceSpec(cpu="1"),
        )
        await bot.settled()
        await bot.edit(lambda it: it["spec"].update(replicas=4))
        assert drift_of(await bot.reconcile()) == ""
        assert (await bot.live())["spec"]["replicas"] == 4

    on(scene)


def test_an_object_without_our_record_is_not_ours(on: Callable[[Scene], None]) -> None:
    async def scene(world: KubeWorld) -> None:
        bot = Operated(world)
        await bot.settled()

        def forget(item: dict[str, Any]) -> None:
            del item["metadata"]["annotations"][RECORD_ANNOTATION]
            server(item).update(image="other:1")

        await bot.edit(forget)
        result = await bot.reconcile()
        assert (await bot.live())["spec"]["template"]["spec"]["containers"][0]["image"] == "other:1"
        assert not result.status.ready

    on(scene)


def test_a_field_of_an_unknown_writer_is_a_conflict_unless_forced(
    on: Callable[[Scene], None],
) -> None:
    async def scene(world: KubeWorld) -> None:
        item = config_map(world, a="1", b="2")
        await world.client.apply(item, manager="us")
        await world.edit(ref_of(item), lambda it: it["data"].update(b="3"), manager="ed")
        with pytest.raises(KubeConflict) as refused:
            await world.client.apply(item, manager="us")
        assert refused.value.reason is ConflictReason.OWNED
        assert [owner.path for owner in refused.value.owners] == [".data.b"]
        foreseen: Any = await world.client.apply(item, manager="us", force=True, dry_run=True)
        assert foreseen["data"] == {"a": "1", "b": "2"}
        forced: Any = await world.client.apply(item, manager="us", force=True)
        assert forced["data"] == {"a": "1", "b": "2"}

    on(scene)


INCOMPLETE = [
    *((verb, "metadata", name) for verb in ("get", "list", "create", "update")
      for name in ("uid", "resourceVersion")),
    ("get", "", "kind"),
    ("update", "", "apiVersion"),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "within", "missing"), INCOMPLETE)
def test_an_answer_without_its_identity_is_refused_in_words(
    verb: str, within: str, missing: str
) -> None:
    async def scene() -> None:
        world = PlainMemoryWorld()
        item = config_map(world, a="1")
        if verb == "update":
            await world.client.apply(item, manager="us")
            item = config_map(world, a="2")
        answered: Any = getattr(world.plain, verb)  # one of five verbs

        async def without(*given: Any, **named: Any) -> Any:
            found = await answered(*given, **named)
            for each in found.items if verb == "list" else [found]:
                (each[within] if within else each).pop(missing)
            return found

        if verb in ("get", "list"):
            world.kube.create(item, manager="them")
        setattr(world.plain, verb, without)
        scope = Scope(api_version="v1", kind="ConfigMap", namespace=world.namespace)
        listed = world.client.list(scope)
        applied = world.client.apply(item, manager="us", force=True)
        asked, unused = (listed, applied) if verb == "list" else (applied, listed)
        unused.close()
        with pytest.raises(TargetUnavailable, match=rf"{verb}\(\).* no {within}\.?{missing}\."):
            await asked

    asyncio.run(scene())


def test_what_it_cannot_do_it_refuses() -> None:
    async def scene() -> None:
        world = PlainMemoryWorld()
        with pytest.raises(TargetUnavailable):
            world.client.watch(Scope(api_version="v1", kind="ConfigMap"), version="1")
        secret: Fields = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "a", "namespace": world.namespace},
            "stringData": {"password": "hunter2"},
        }
        with pytest.raises(ValidationError):
            await world.client.apply(secret, manager="us")
        assert world.plain.writes == 0

    asyncio.run(scene())
