"""A real cluster as the `KubeClient` port that reconcilers are written against.

Thin: `api` has the verbs and `watch` the stream; here they get the port's words and guards.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.informer import MAX_WATCH_SECONDS, MIN_WATCH_SECONDS
from holdfast.adapters.kubernetes.lease import LeadershipLost
from holdfast.adapters.kubernetes.watch import ResourceScope, watch_resource
from holdfast.core.errors import NotFound
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import (
    ConflictReason,
    KubeConflict,
    ObjectList,
    ObjectRef,
    Scope,
    WatchEvent,
    ref_of,
)

_ABSENT_VERSION = "1"
"""No object ever has it. Applied with it, a missing object is created and any other refused."""


class ClusterClient:
    """One cluster, through the connection of `api`, which the caller closes."""

    def __init__(self, api: KubeApi) -> None:
        self.api = api

    async def get(self, ref: ObjectRef) -> Fields | None:
        """Return the object as it is now; see the port."""
        resource = await self.api.resource_of(ref.api_version, ref.kind)
        try:
            return await self.api.get(resource, ref.name, namespace=ref.namespace)
        except NotFound:
            return None

    async def list(self, scope: Scope) -> ObjectList:
        """Return every object that matches; see the port."""
        resource = await self.api.resource_of(scope.api_version, scope.kind)
        return await self.api.list(resource, namespace=scope.namespace, labels=scope.labels)

    async def watch(self, scope: Scope, *, version: str) -> AsyncGenerator[WatchEvent, None]:
        """Yield what happens after a version; see the port."""
        resource = await self.api.resource_of(scope.api_version, scope.kind)
        followed = ResourceScope(resource=resource, namespace=scope.namespace, labels=scope.labels)
        lasting = (
            MIN_WATCH_SECONDS
            + (MAX_WATCH_SECONDS - MIN_WATCH_SECONDS) * self.api.connection.chance()
        )
        events = watch_resource(self.api, followed, version=version, lasting=lasting)
        async with aclosing(events):
            async for event in events:
                yield event

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
        """Apply an object on the server's side; see the port."""
        if absent:
            metadata = item["metadata"]
            assert isinstance(metadata, dict)  # noqa: S101  # every object has them
            item = {**item, "metadata": {**metadata, "resourceVersion": _ABSENT_VERSION}}
        try:
            return await self.api.apply(
                item, manager=manager, force=force, dry_run=dry_run, subresource=subresource
            )
        except KubeConflict as conflict:
            # Who owns its fields is compared before the version is: both say that it is there.
            there = conflict.reason in (ConflictReason.CHANGED, ConflictReason.OWNED)
            if absent and there:
                raise KubeConflict(
                    f"{ref_of(item)} should not exist yet, and it does.",
                    reason=ConflictReason.EXISTS,
                ) from conflict
            raise

    async def patch(
        self, ref: ObjectRef, operations: Sequence[Fields], *, manager: str, subresource: str = ""
    ) -> Fields:
        """Change one object by a JSON patch; see the port."""
        resource = await self.api.resource_of(ref.api_version, ref.kind)
        return await self.api.patch(
            resource,
            ref.name,
            operations,
            namespace=ref.namespace,
            manager=manager,
            subresource=subresource,
        )

    async def delete(self, ref: ObjectRef, *, uid: str = "", version: str = "") -> bool:
        """Delete one object and, in the background, what it owns; see the port."""
        resource = await self.api.resource_of(ref.api_version, ref.kind)
        try:
            await self.api.delete(
                resource, ref.name, namespace=ref.namespace, uid=uid, version=version
            )
        except NotFound:
            return False
        return True


class GuardedClient(ClusterClient):
    """A cluster that is written to only while this process may act.

    Nothing is written before `turn` is set, nor while it says no. The lease is no fence: a process
    that was frozen may wake after another took over. What it writes is guarded by version all the
    same; this keeps it from trying.
    """

    def __init__(self, api: KubeApi) -> None:
        super().__init__(api)
        self.may_write: Callable[[], bool] = lambda: False

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
        """See the port."""
        self._check(dry_run=dry_run)
        return await super().apply(
            item, manager=manager, force=force, dry_run=dry_run, absent=absent,
            subresource=subresource,
        )  # fmt: skip

    async def patch(
        self, ref: ObjectRef, operations: Sequence[Fields], *, manager: str, subresource: str = ""
    ) -> Fields:
        """See the port."""
        self._check()
        return await super().patch(ref, operations, manager=manager, subresource=subresource)

    async def delete(self, ref: ObjectRef, *, uid: str = "", version: str = "") -> bool:
        """See the port."""
        self._check()
        return await super().delete(ref, uid=uid, version=version)

    def _check(self, *, dry_run: bool = False) -> None:
        if not dry_run and not self.may_write():
            raise LeadershipLost(
                "This controller does not lead any more, so it wrote nothing.",
                hint="Another one goes on; restart this one to wait for its turn.",
            )
