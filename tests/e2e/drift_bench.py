"""Puts many objects on a real cluster through the keeper, edits them as others do, judges them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.adapters.kubernetes.harness import api_for, cluster_config
from tests.support.cluster import Cluster

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.core.errors import HoldfastError
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.object_diff import ObjectDiff
from holdfast.core.ownership.signals import Declaration, FieldDrift
from holdfast.core.ownership.signals import declare as sealed
from holdfast.core.tree import Fields, Path, json_pointer, show_path
from holdfast.reconcile.kube import ConflictReason, KubeConflict, ref_of
from holdfast.reconcile.objects.resource_manager import ResourceManager

MANAGER = "holdfast-gitops"
EDITOR = "kubectl-edit"
AT_ONCE = 16
PATIENCE = 120.0
"""Pods of the corpus want GPUs of one node, which other tests may have for a while."""
T = TypeVar("T")

_BEFORE = (
    ("Namespace", "APIService"),
    ("CustomResourceDefinition",),
    ("PriorityClass", "RuntimeClass", "StorageClass", "LimitRange", "ResourceQuota"),
)
"""What others need, and what must be in force before it is."""
_NAMES = frozenset({
    "apiVersion", "kind", "name", "namespace", "key", "port", "containerPort", "protocol",
    "mountPath", "ip", "topologyKey", "whenUnsatisfiable", "host", "expression", "replicas",
    "parallelism", "finalizers", "holdfast.dev/applied", "kubernetes.io/metadata.name",
})  # fmt: skip
"""Fields that name an object or a list item, and what the cluster sets itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """One declared value that another manager changed."""

    declared: Declaration
    place: tuple[str | int, ...]

    @property
    def pointed(self) -> str:
        return json_pointer(tuple(map(str, self.place)))


class DriftBench:
    """A cluster, and a keeper that a test may replace to forget everything."""

    def __init__(self, api: KubeApi) -> None:
        self.api = api
        self.client = api
        self.restart()

    def restart(self) -> None:
        """Go on with a keeper that remembers nothing."""
        self.resource_manager = ResourceManager(
            self.client, manager=MANAGER, key=b"a key of the tests", clock=SystemClock()
        )

    async def create(self, declared: Sequence[Declaration]) -> dict[str, ObjectDiff]:
        """Create everything, what others need first, and judge each answer at once."""
        found: dict[str, ObjectDiff] = {}

        async def one(each: Declaration) -> None:
            found[_name(each)] = await self.resource_manager.diff(
                each, (await self.resource_manager.create(each)).live
            )

        left = list(declared)
        for kinds in _BEFORE:
            now = [each for each in left if each.item["kind"] in kinds]
            left = [each for each in left if each not in now]
            await all_of(one, now)
            await all_of(self._in_force, now)
        await all_of(one, left)
        return found

    async def live(self, declared: Declaration) -> dict[str, Any]:
        # Any, here and below: objects of the Kubernetes API as they come over the wire.
        found: Any = await self.client.get(ref_of(declared.item))
        assert found is not None, _name(declared)
        return dict(found)

    async def diff(self, declared: Declaration) -> ObjectDiff:
        return await self.resource_manager.diff(declared, await self.live(declared))

    async def heal(self, declared: Declaration) -> tuple[dict[str, Any], dict[str, Any]]:
        """Look and heal as a controller does, and give the object before and after."""
        while True:
            live = await self.live(declared)
            try:
                found = await self.resource_manager.diff(declared, live)
                written = await self.resource_manager.heal(declared, live, found)
            except KubeConflict as conflict:
                if conflict.reason is not ConflictReason.CHANGED:
                    raise
            else:
                return live, dict(written.live)

    async def until(
        self, declared: Declaration, holds: Callable[[dict[str, Any]], object], what: str
    ) -> None:
        """Poll one object until it is as wanted."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds(await self.live(declared)):  # noqa: ASYNC110  # nothing to wait for
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{_name(declared)}: {what}") from None

    async def edit(self, declared: Declaration, *, tries: int = 12) -> Edited | None:
        """Change the first declared value that the server lets another manager change."""
        live = await self.live(declared)
        ref = ref_of(declared.item)
        for place, value in list(_editable(declared.item, live))[:tries]:
            edited = Edited(declared=declared, place=place)
            change = {"op": "replace", "path": edited.pointed, "value": value}
            try:
                await self.api.patch(ref, [change], manager=EDITOR)
            except HoldfastError:
                continue  # immutable, or no such value
            return edited
        return None

    async def remove(self, declared: Sequence[Declaration]) -> None:
        """Ask for everything to go, what is outside of namespaces too."""

        async def one(each: Declaration) -> None:
            ref = ref_of(each.item)
            finalizers = value_at(each.item, ("metadata", "finalizers"))
            with suppress(HoldfastError):  # whatever was never made
                if finalizers:
                    gone: list[Fields] = [{"op": "remove", "path": "/metadata/finalizers"}]
                    await self.client.patch(ref, gone, manager=EDITOR)
                if finalizers or not ref.namespace:
                    await self.client.delete(ref)

        # The definition of a kind goes after its objects, or their finalizers could not.
        last = [each for each in declared if each.item["kind"] == "CustomResourceDefinition"]
        await all_of(one, [each for each in declared if each not in last])
        await all_of(one, last)

    async def _in_force(self, declared: Declaration) -> None:
        def ready(live: dict[str, Any]) -> bool:
            conditions = live.get("status", {}).get("conditions") or []
            return any(
                each["type"] == "Established" and each["status"] == "True" for each in conditions
            )

        match declared.item["kind"]:
            case "CustomResourceDefinition":
                await self.until(declared, ready, "to be established")
            case "ResourceQuota":
                counted: Callable[[dict[str, Any]], object] = lambda live: "hard" in live["status"]  # noqa: E731
                await self.until(declared, counted, "to be counted")


@asynccontextmanager
async def drift_bench(cluster: Cluster) -> AsyncIterator[DriftBench]:
    async with api_for(cluster_config(cluster.kubeconfig)) as api:
        yield DriftBench(api)


async def all_of(
    work: Callable[[Declaration], Awaitable[T]], declared: Iterable[Declaration]
) -> list[T]:
    """Do something with each object, several at a time."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(each: Declaration) -> T:
        async with turns:
            try:
                return await work(each)
            except HoldfastError as error:
                error.add_note(_name(each))
                raise

    done = await asyncio.gather(*(one(each) for each in declared), return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return [each for each in done if not isinstance(each, BaseException)]


def declared_as_ours(items: Iterable[Fields]) -> list[Declaration]:
    return [sealed(item, MANAGER) for item in items]


def told(field_drifts: Iterable[FieldDrift]) -> list[str]:
    """Findings in words, for a test that fails."""
    return [
        f"{show_path(found.change.path)} {found.signal}: {found.change.desired!r} declared, "
        f"{found.change.live!r} live; {found.evidence}"
        for found in field_drifts
    ]


def _name(declared: Declaration) -> str:
    return str(ref_of(declared.item))


def _editable(item: Fields, live: Fields) -> Iterator[tuple[tuple[str | int, ...], object]]:
    """Declared values that stand in the live object at the same place, each with another one.

    Not what is true: where the server does not store its contrary, an edit removes it, and a
    removal leaves no trace of its writer.
    In an order of its own for each object, metadata last, so that all sorts of fields get their
    turn.
    """
    found = [
        (place, value)
        for place, value in _values(item)
        if _NAMES.isdisjoint(place[-2:]) and value is not True and _value(live, place) == value
    ]
    random.Random(str(ref_of(item))).shuffle(found)
    found.sort(key=lambda each: each[0][0] == "metadata")
    secret = item["kind"] == "Secret"
    for place, value in found:
        yield place, _other(place, value, secret=secret)


def _values(
    tree: object, place: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], object]]:
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from _values(value, (*place, name))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _values(value, (*place, index))
    elif tree is not None and len(place) > 1:
        yield place, tree


def _value(tree: Any, place: tuple[str | int, ...]) -> object:
    for step in place:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _other(place: tuple[str | int, ...], value: object, *, secret: bool) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if place[-1] == "image":
        return "registry.example/another:1"
    return "ZWRpdGVk" if secret and place[0] == "data" else f"{value}x"


def related(one: Path, other: Path) -> bool:
    """True when one of two paths lies within the other."""
    short = min(len(one), len(other))
    return one[:short] == other[:short]
