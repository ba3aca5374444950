"""Keeps single Kubernetes objects as declared: judges them, creates, heals and deletes them.

For objects of any kind. The operator keeps the children of its services with it, the GitOps
controller whatever Git holds. It knows nothing of policies: callers decide between a look and
a write.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.ownership.delegated import ALONE, Surroundings
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.objects import at
from holdfast.core.ownership.signals import Declaration
from holdfast.core.ownership.verdict import State, Verdict, judge
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import KubeClient
from holdfast.reconcile.ports import Clock


class Keeper:
    """Everything one field manager does to objects."""

    def __init__(self, client: KubeClient, *, manager: str, key: bytes, clock: Clock) -> None:
        self._client = client
        self.manager = manager
        self._key = key
        self._clock = clock

    async def look(
        self,
        declared: Declaration,
        live: Fields | None,
        *,
        around: Surroundings = ALONE,
        ignore: Sequence[IgnoreRule] = (),
    ) -> Verdict:
        """Judge one object, with a dry run where the object alone does not tell.

        A caller who may not write, and so may not dry-run, gets the verdict SUSPECT as it is.
        """
        verdict = judge(
            declared=declared, live=live, key=self._key, now=self._clock.now(),
            around=around, ignore=ignore,
        )  # fmt: skip
        if verdict.state is not State.SUSPECT or live is None:
            return verdict
        answer = await self._client.apply(
            guarded(declared.item, live), manager=self.manager, force=True, dry_run=True
        )
        return judge(
            declared=declared, live=live, key=self._key, now=self._clock.now(),
            around=around, ignore=ignore, dry_run=answer,
        )  # fmt: skip

    async def create(self, declared: Declaration) -> Fields:
        """Create an object that was seen to be absent. Raises KubeConflict `exists` otherwise."""
        return await self._client.apply(declared.item, manager=self.manager, absent=True)

    async def heal(self, declared: Declaration, live: Fields, verdict: Verdict) -> Fields:
        """Make an object as declared again, unless it moved since it was seen (KubeConflict)."""
        return await self._client.apply(
            guarded(declared.item, live), manager=self.manager, force=True
        )


def guarded(item: Fields, live: Fields) -> Fields:
    """Let a write hold only for the object that was seen, at the version it had then."""
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    seen = {name: at(live, ("metadata", name)) for name in ("uid", "resourceVersion")}
    return {**item, "metadata": {**metadata, **seen}}
