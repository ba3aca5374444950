"""A cluster that is written to only while this process may act.

The lease is no fence: a process that was frozen may wake after another took over. What it writes
is guarded by version all the same; this keeps it from trying.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.client import ClusterClient
from holdfast.adapters.kubernetes.lease import LeadershipLost
from holdfast.core.objects import ObjectRef
from holdfast.core.tree import Fields


class LeadingClient(ClusterClient):
    """One cluster. Nothing is written before `turn` is set, nor while it says no."""

    def __init__(self, api: KubeApi) -> None:
        super().__init__(api)
        self.turn: Callable[[], bool] = lambda: False

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
        if not dry_run and not self.turn():
            raise LeadershipLost(
                "This controller does not lead any more, so it wrote nothing.",
                todo="Another one goes on; restart this one to wait for its turn.",
            )
