"""Keeps single Kubernetes objects as declared: judges them, creates, heals and hands over.

For objects of any kind. The operator keeps the children of its services with it, the GitOps
controller whatever Git holds. It knows nothing of policies: callers decide between a look and
a write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.core.errors import PermissionDenied, ValidationError
from holdfast.core.ownership.delegated import ALONE, SEED, Surroundings
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.objects import at
from holdfast.core.ownership.partial import REPLICAS, drops_replicas, to_write
from holdfast.core.ownership.signals import Declaration
from holdfast.core.ownership.transfer import take_additions, take_back, take_obstacles
from holdfast.core.ownership.verdict import State, Verdict, judge, memo_key, refused, unasked
from holdfast.core.redact import quoted
from holdfast.core.tree import Fields, Path, Tree
from holdfast.reconcile.kube import ConflictReason, KubeClient, KubeConflict, ref_of
from holdfast.reconcile.ports import Clock

REMEMBERED = 50_000
"""Objects whose last verdict is kept, in about half a kilobyte each."""
READY = 1_000
"""Declarations that are kept in the form in which they are compared fast: ten kilobytes each."""
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A verdict, and everything that it holds for."""

    key: tuple[str, str, str]
    around: Surroundings
    ignore: tuple[IgnoreRule, ...]
    until: datetime | None
    """When the first of the rules expires."""
    verdict: Verdict

    def holds(
        self,
        key: tuple[str, str, str],
        around: Surroundings,
        ignore: tuple[IgnoreRule, ...],
        now: datetime,
    ) -> bool:
        return (
            self.key == key
            and self.around == around
            and self.ignore == ignore
            and (self.until is None or now < self.until)
        )


class Keeper:
    """Everything one field manager does to objects."""

    def __init__(
        self,
        client: KubeClient,
        *,
        manager: str,
        key: bytes,
        clock: Clock,
        remembered: int = REMEMBERED,
        ready: int = READY,
    ) -> None:
        self._client = client
        self.manager = manager
        self._key = key
        self._clock = clock
        self._remembered = remembered
        self._seen: dict[str, _Seen] = {}
        self._most_ready = ready
        self._ready: dict[str, Declaration] = {}

    async def look(
        self,
        declared: Declaration,
        live: Fields | None,
        *,
        around: Surroundings = ALONE,
        ignore: Sequence[IgnoreRule] = (),
    ) -> Verdict:
        """Judge one object, with one dry run where the object alone does not tell.

        The answer is remembered for this version of the object and this declaration of it. What
        an account may not ask, or the server refuses to put back, is part of the verdict.
        """
        if live is None:
            return self._judged(declared, None, around, ignore)
        key = memo_key(live, declared.digest)
        rules = tuple(ignore)
        seen = self._seen.get(key[0])
        plain = _plain(declared, self.manager)
        if plain and seen is not None and seen.holds(key, around, rules, self._clock.now()):
            return seen.verdict
        declared = self._made_ready(key[0], declared)
        verdict = self._judged(declared, live, around, rules)
        if verdict.unsettled:
            verdict = await self._asked(declared, live, around, rules, verdict)
        if plain:
            self._remember(key, around, rules, verdict)
        return verdict

    def _made_ready(self, uid: str, declared: Declaration) -> Declaration:
        """Give the same declaration as last time, which knows how to be compared fast."""
        known = self._ready.pop(uid, declared)
        self._ready[uid] = declared = known if _alike(known, declared) else declared
        if len(self._ready) > self._most_ready:
            del self._ready[next(iter(self._ready))]
        return declared

    def forget(self, uid: str) -> None:
        """Drop what was remembered of an object that is gone."""
        self._seen.pop(uid, None)
        self._ready.pop(uid, None)

    async def create(self, declared: Declaration) -> Fields:
        """Create an object that was seen to be absent. Raises KubeConflict `exists` otherwise."""
        return await self._client.apply(declared.item, manager=self.manager, absent=True)

    async def heal(
        self,
        declared: Declaration,
        live: Fields,
        verdict: Verdict,
        *,
        leave: frozenset[Path] = frozenset(),
    ) -> Fields:
        """Make an object as declared, unless it moved since it was seen (KubeConflict).

        What is delegated, ignored, or named by `leave` keeps its value. What others added and the
        verdict calls drift goes. An object that is on its way out is returned as it is. Raises
        ValidationError when the server refuses the result however its fields are owned.
        """
        if at(live, ("metadata", "deletionTimestamp")) is not None:
            return live
        if declared.uid is not None and at(live, ("metadata", "uid")) != declared.uid:
            raise KubeConflict(
                f"{ref_of(live)} was deleted and created again by others.",
                reason=ConflictReason.REPLACED,
            )
        verdict = verdict.leaving(leave)
        item = to_write(declared, live, verdict, leave)
        if drops_replicas(item, declared, live):
            live = await self.park(live)
        live = await self._record(live, take_additions(declared, live, verdict))
        try:
            healed = await self._applied(item, live)
        except ValidationError:
            managed = take_obstacles(declared, live, verdict)
            if managed is None:
                raise
            live = await self._record(live, managed)
            healed = await self._applied(item, live)
        if verdict.state is State.WIPED:
            healed = await self._taken_back(declared, healed)
        return healed

    async def park(
        self, live: Fields, seed_manager: str = SEED, *, replicas: int | None = None
    ) -> Fields:
        """Give the number of replicas an owner of its own, so that we can stop declaring it.

        Whatever scales it next takes it from there and leaves a trace. `replicas` is the number
        to start with instead of the live one. Raises KubeConflict `owned` when somebody else has
        set another number since.
        """
        count = at(live, REPLICAS) if replicas is None else replicas
        if count is None or at(live, ("metadata", "deletionTimestamp")) is not None:
            return live
        ref = ref_of(live)
        named: Fields = {"name": ref.name, "uid": at(live, ("metadata", "uid"))}
        if ref.namespace:
            named["namespace"] = ref.namespace
        item: Fields = {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "metadata": named,
            "spec": {"replicas": count},
        }
        return await self._client.apply(item, manager=seed_manager)

    def _judged(
        self,
        declared: Declaration,
        live: Fields | None,
        around: Surroundings,
        ignore: Sequence[IgnoreRule],
        dry_run: Fields | None = None,
    ) -> Verdict:
        return judge(
            declared=declared, live=live, key=self._key, now=self._clock.now(),
            around=around, ignore=ignore, dry_run=dry_run,
        )  # fmt: skip

    async def _asked(
        self,
        declared: Declaration,
        live: Fields,
        around: Surroundings,
        ignore: Sequence[IgnoreRule],
        suspect: Verdict,
    ) -> Verdict:
        try:
            answer = await self._client.apply(
                guarded(declared.item, live), manager=self.manager, force=True, dry_run=True
            )
        except ValidationError as error:
            # The server quotes what it refuses, and of a Secret that must not be repeated.
            secret = declared.item.get("kind") == "Secret"
            return refused(suspect, "" if secret else f": {quoted(error.happened, 300)}")
        except PermissionDenied:
            return unasked(suspect)
        return self._judged(declared, live, around, ignore, answer)

    def _remember(
        self,
        key: tuple[str, str, str],
        around: Surroundings,
        ignore: tuple[IgnoreRule, ...],
        verdict: Verdict,
    ) -> None:
        now = self._clock.now()
        ends = [rule.expires for rule in ignore if rule.expires and rule.expires > now]
        self._seen.pop(key[0], None)
        self._seen[key[0]] = _Seen(
            key=key, around=around, ignore=ignore,
            until=min(ends, default=None), verdict=verdict,
        )  # fmt: skip
        if len(self._seen) > self._remembered:
            del self._seen[next(iter(self._seen))]

    async def _applied(self, item: Fields, live: Fields) -> Fields:
        return await self._client.apply(guarded(item, live), manager=self.manager, force=True)

    async def _taken_back(self, declared: Declaration, healed: Fields) -> Fields:
        """Make ours alone what we just applied, whatever controllers write to it meanwhile."""
        for _ in range(_TRIES):
            try:
                return await self._record(healed, take_back(declared, healed))
            except KubeConflict:
                now = await self._client.get(ref_of(healed))
                if now is None or at(now, ("metadata", "uid")) != at(healed, ("metadata", "uid")):
                    raise
                healed = now
        return healed

    async def _record(self, live: Fields, managed: list[Tree] | None) -> Fields:
        """Write down other owners of an object's fields, if it is still at this version."""
        if managed is None:
            return live
        version = at(live, ("metadata", "resourceVersion"))
        operations: list[Fields] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/metadata/managedFields", "value": managed},
        ]
        ref = ref_of(live)
        try:
            return await self._client.patch(ref, operations, manager=self.manager)
        except ValidationError:
            now = await self._client.get(ref)
            if now is not None and at(now, ("metadata", "resourceVersion")) == version:
                raise
            raise KubeConflict(
                f"{ref} was changed by others in the meantime.", reason=ConflictReason.CHANGED
            ) from None


def guarded(item: Fields, live: Fields) -> Fields:
    """Let a write hold only for the object that was seen, at the version it had then."""
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    seen = {name: at(live, ("metadata", name)) for name in ("uid", "resourceVersion")}
    return {**item, "metadata": {**metadata, **seen}}


def _plain(declared: Declaration, manager: str) -> bool:
    """True for a declaration that its digest tells all about."""
    return (
        declared.managers == {manager}
        and declared.applied
        and declared.expected is None
        and declared.uid is None
        and declared.previous is None
    )


def _alike(one: Declaration, other: Declaration) -> bool:
    """True for the same declaration, built twice."""
    return one is other or (
        one.digest == other.digest
        and one.managers == other.managers
        and one.expected == other.expected
        and one.uid == other.uid
        and one.applied == other.applied
        and one.previous == other.previous
    )
