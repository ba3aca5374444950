"""A KubeClient that remembers what went through it, and fails where a test says so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import KubeClient, ObjectList, ObjectRef, Scope, WatchEvent, ref_of

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call. Only those that may change something are kept in `Spy.writes`."""

    verb: str
    kind: str
    name: str
    manager: str = ""
    subresource: str = ""
    created: bool = False
    item: Fields | None = None


class Spy:
    """Stands before any client."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.calls: list[Call] = []
        self.failing: Callable[[Call], HoldfastError | None] = lambda call: None

    @property
    def writes(self) -> list[Call]:
        return [call for call in self.calls if call.verb in ("apply", "patch", "delete")]

    def of(self, kind: str, verb: str = "apply") -> list[Call]:
        """The writes to one kind, those of its status left out."""
        return [
            call
            for call in self.writes
            if (call.kind, call.verb, call.subresource) == (kind, verb, "")
        ]

    def _meet(self, call: Call) -> None:
        self.calls.append(self._allow(call))

    async def _written(self, call: Call, written: Awaitable[T]) -> T:
        """Keep a write that the cluster took; one that it refused changed nothing."""
        done = await written
        self.calls.append(call)
        return done

    def _allow(self, call: Call) -> Call:
        error = self.failing(call)
        if error is not None:
            raise error
        return call

    async def get(self, ref: ObjectRef) -> Fields | None:
        self._meet(Call(verb="get", kind=ref.kind, name=ref.name))
        return await self.client.get(ref)

    async def list(self, scope: Scope) -> ObjectList:
        self._meet(Call(verb="list", kind=scope.kind, name=""))
        return await self.client.list(scope)

    def watch(self, scope: Scope, *, version: str) -> AsyncIterator[WatchEvent]:
        return self.client.watch(scope, version=version)

    async def apply(
        self,
        item: Fields,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
        absent: bool = False,
        subresource: str = "",
    ) -> Fields:
        ref = ref_of(item)
        call = self._allow(
            Call(
                verb="dry-run" if dry_run else "apply",
                kind=ref.kind,
                name=ref.name,
                manager=manager,
                subresource=subresource,
                created=absent,
                item=item,
            )
        )
        written = self.client.apply(
            item,
            manager=manager,
            force=force,
            dry_run=dry_run,
            absent=absent,
            subresource=subresource,
        )
        return await self._written(call, written)

    async def patch(
        self, ref: ObjectRef, operations: Sequence[Fields], *, manager: str, subresource: str = ""
    ) -> Fields:
        call = self._allow(
            Call(
                verb="patch",
                kind=ref.kind,
                name=ref.name,
                manager=manager,
                subresource=subresource,
            )
        )
        written = self.client.patch(ref, operations, manager=manager, subresource=subresource)
        return await self._written(call, written)

    async def delete(self, ref: ObjectRef, *, uid: str = "", version: str = "") -> bool:
        call = self._allow(Call(verb="delete", kind=ref.kind, name=ref.name))
        return await self._written(call, self.client.delete(ref, uid=uid, version=version))
