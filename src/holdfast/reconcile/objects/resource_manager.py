"""Keeps single Kubernetes objects as declared: judges them, creates, heals and hands over.

For objects of any kind. The operator keeps the children of its services with it, the GitOps
controller whatever Git holds. It knows nothing of policies: callers decide between a look and
a write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from holdfast.core.errors import PermissionDenied, TargetUnavailable, ValidationError
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.delegated import NO_CONTEXT, REPLICA_SEED_MANAGER, OwnershipContext
from holdfast.core.ownership.healing import (
    REPLICAS_PATH,
    drops_replicas,
    is_owned_by_unknown,
    item_to_apply,
    release_unknown_owners,
    take_over_additions,
    take_over_obstacles,
    without_nulls,
)
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.object_diff import (
    ObjectDiff,
    ObjectState,
    attribute_to_admission,
    cache_key,
    diff_object,
    server_alterations,
    settle_as_refused,
    settle_without_dry_run,
)
from holdfast.core.ownership.signals import AppliedRecord, Declaration, FieldDrift, record_values
from holdfast.core.redact import quote_text
from holdfast.core.tree import Fields, Path, Tree
from holdfast.reconcile.kube import ConflictReason, KubeClient, KubeConflict, ref_of
from holdfast.reconcile.ports import Clock

MAX_CACHED_DIFFS = 50_000
"""Objects whose last verdict is kept, in about half a kilobyte each."""
MAX_PREPARED = 1_000
"""Declarations that are kept in the form in which they are compared fast: ten kilobytes each."""
RECHECK_DELAY = timedelta(seconds=15)
"""How long a verdict counts that hangs on what the server does with a write, at first."""
MAX_RECHECK_DELAY = timedelta(minutes=5)
"""It doubles from look to look, up to this."""
REWRITE_DELAY = timedelta(minutes=5)
"""How long a value that the server made of our write is left alone, at first. A dry run tells
sooner that it would be stored as declared now; where the server alters real writes alone, only
another write can tell."""
MAX_REWRITE_DELAY = timedelta(minutes=30)
PERSISTENT_FAILURE_SECONDS = 60.0
"""Seconds after which a server that fails at one object is taken to refuse it."""
_MAX_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedDiff:
    """A verdict, and everything that it holds for."""

    key: tuple[str, str, str]
    record: AppliedRecord | None
    around: OwnershipContext
    ignore: tuple[IgnoreRule, ...]
    until: datetime | None
    """When the first of the rules expires, or the server is to be asked again."""
    verdict: ObjectDiff

    def holds(
        self,
        key: tuple[str, str, str],
        record: AppliedRecord | None,
        around: OwnershipContext,
        ignore: tuple[IgnoreRule, ...],
        now: datetime,
    ) -> bool:
        return (
            self.key == key
            and self.record == record
            and self.around == around
            and self.ignore == ignore
            and (self.until is None or now < self.until)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alteration:
    """What the server made of our last write to an object."""

    field_drifts: tuple[FieldDrift, ...]
    times: int
    """How many writes in a row it altered."""
    until: datetime
    """When another write may be tried."""
    foretold: bool = False
    """A dry run gives the same answer, so it will also tell when the server has stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What became of a write, by the server's own answer."""

    live: Fields = field(repr=False)
    """The object as the server has it now."""
    altered: tuple[FieldDrift, ...] = ()
    """What it stored otherwise than was sent. Nothing was put back of these, and no other apply
    would put it back: their cause is admission."""


class ResourceManager:
    """Everything one field manager does to objects."""

    def __init__(
        self,
        client: KubeClient,
        *,
        manager: str,
        key: bytes,
        clock: Clock,
        remembered: int = MAX_CACHED_DIFFS,
        ready: int = MAX_PREPARED,
    ) -> None:
        self._client = client
        self.manager = manager
        self._key = key
        self._clock = clock
        self._remembered = remembered
        self._seen: dict[str, _CachedDiff] = {}
        self._doubts: dict[str, int] = {}
        """How often in a row the server was asked about objects, by uid, and gave an answer that
        another policy of its own would change: what it stores otherwise, or refuses."""
        self._altered: dict[str, _Alteration] = {}
        self._failing: dict[str, float] = {}
        """Since when the server fails at dry runs of objects, by uid."""
        self._most_ready = ready
        self._ready: dict[str, Declaration] = {}

    async def diff(
        self,
        declared: Declaration,
        live: Fields | None,
        *,
        around: OwnershipContext = NO_CONTEXT,
        ignore: Sequence[IgnoreRule] = (),
    ) -> ObjectDiff:
        """Judge one object, with one dry run where the object alone does not tell.

        The answer is remembered for this version of the object and this declaration of it. What
        an account may not ask, or the server refuses to put back, or stores otherwise each time,
        is part of the verdict, and asked again after a while (`Verdict.recheck_at`).
        """
        if live is None:
            return self._judged(declared, None, around, ignore)
        key = cache_key(live, declared.digest)
        rules = tuple(ignore)
        seen = self._seen.get(key[0])
        plain = _is_plain_declaration(declared, self.manager)
        now, record = self._clock.now(), declared.record
        if plain and seen is not None and seen.holds(key, record, around, rules, now):
            return seen.verdict
        declared = self._made_ready(key[0], declared)
        verdict = self._judged(declared, live, around, rules)
        doubtful = False
        if verdict.needs_dry_run or (key[0] in self._doubts and verdict.drifted):
            verdict, doubtful = await self._asked(declared, live, around, rules, verdict)
            self._learn(key[0], verdict)
        made = self._altered.get(key[0])
        if made is not None and now < made.until:
            verdict = attribute_to_admission(verdict, made.field_drifts)
            doubtful = doubtful or bool(verdict.altered)
        verdict = self._under(key[0], verdict, around, rules, doubtful=doubtful)
        if plain:
            self._remember(key, record, around, rules, verdict)
        return verdict

    def _made_ready(self, uid: str, declared: Declaration) -> Declaration:
        """Give the same declaration as last time, which knows how to be compared fast."""
        known = self._ready.pop(uid, declared)
        self._ready[uid] = declared = known if _is_same_declaration(known, declared) else declared
        if len(self._ready) > self._most_ready:
            del self._ready[next(iter(self._ready))]
        return declared

    def forget(self, uid: str) -> None:
        """Drop what was remembered of an object that is gone."""
        self._seen.pop(uid, None)
        self._ready.pop(uid, None)
        self._doubts.pop(uid, None)
        self._failing.pop(uid, None)

    def values(
        self,
        declared: Declaration,
        live: Fields,
        *,
        left: frozenset[Path] = frozenset(),
        before: str = "",
    ) -> str:
        """Write down what was applied, for the record that later looks are held against."""
        return record_values(declared, live, key=self._key, left=left, before=before)

    async def create(self, declared: Declaration) -> WriteResult:
        """Create an object that was seen to be absent. Raises KubeConflict `exists` otherwise."""
        answer = await self._sent(declared.item, absent=True)
        return self._compared(declared, declared.item, answer, NO_CONTEXT, ())

    async def heal(
        self,
        declared: Declaration,
        live: Fields,
        verdict: ObjectDiff,
        *,
        leave: frozenset[Path] = frozenset(),
    ) -> WriteResult:
        """Make an object as declared, unless it moved since it was seen (KubeConflict).

        What is delegated, ignored, or named by `leave` keeps its value. What others added and the
        verdict calls drift goes. An object that is on its way out is returned as it is. Raises
        ValidationError when the server refuses the result however its fields are owned. What the
        server took and stored otherwise is `altered` in the answer: that was not put back.
        """
        if value_at(live, ("metadata", "deletionTimestamp")) is not None:
            return WriteResult(live=live)
        if declared.uid is not None and value_at(live, ("metadata", "uid")) != declared.uid:
            raise KubeConflict(
                f"{ref_of(live)} was deleted and created again by others.",
                reason=ConflictReason.REPLACED,
            )
        verdict = verdict.observing_only(leave)
        item = item_to_apply(declared, live, verdict, leave)
        if drops_replicas(item, declared, live):
            live = await self.seed_replicas(live)
        if is_owned_by_unknown(live):
            # The record was wiped once, and a controller kept us from taking our fields back then.
            live = await self._record(live, release_unknown_owners(declared, live))
        live = await self._record(live, take_over_additions(declared, live, verdict))
        try:
            healed = await self._applied(item, live)
        except ValidationError:
            managed = take_over_obstacles(declared, live, verdict)
            if managed is None:
                raise
            live = await self._record(live, managed)
            healed = await self._applied(item, live)
        written = self._compared(declared, item, healed, verdict.around, verdict.ignore)
        if verdict.state is ObjectState.WIPED:
            written = replace(written, live=await self._taken_back(declared, healed))
        return written

    async def seed_replicas(
        self, live: Fields, seed_manager: str = REPLICA_SEED_MANAGER, *, replicas: int | None = None
    ) -> Fields:
        """Give the number of replicas an owner of its own, so that we can stop declaring it.

        Whatever scales it next takes it from there and leaves a trace. `replicas` is the number
        to start with instead of the live one. Raises KubeConflict `owned` when somebody else has
        set another number since.
        """
        count = value_at(live, REPLICAS_PATH) if replicas is None else replicas
        if count is None or value_at(live, ("metadata", "deletionTimestamp")) is not None:
            return live
        ref = ref_of(live)
        named: Fields = {"name": ref.name, "uid": value_at(live, ("metadata", "uid"))}
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
        around: OwnershipContext,
        ignore: Sequence[IgnoreRule],
        dry_run: Fields | None = None,
    ) -> ObjectDiff:
        return diff_object(
            declared=declared, live=live, key=self._key, now=self._clock.now(),
            around=around, ignore=ignore, dry_run=dry_run,
        )  # fmt: skip

    async def _asked(
        self,
        declared: Declaration,
        live: Fields,
        around: OwnershipContext,
        ignore: Sequence[IgnoreRule],
        suspect: ObjectDiff,
    ) -> tuple[ObjectDiff, bool]:
        """Judge with a dry run. Also says whether the answer may change without an event."""
        secret = declared.item.get("kind") == "Secret"
        try:
            answer = await self._sent(
                with_version_guard(declared.item, live), force=True, dry_run=True
            )
        except ValidationError as error:
            # The server quotes what it refuses, and of a Secret that must not be repeated.
            return settle_as_refused(
                suspect, "" if secret else f": {quote_text(error.happened, 300)}"
            ), True
        except PermissionDenied:
            return settle_without_dry_run(suspect), True
        except TargetUnavailable as error:
            if not error.failed or not await self._fails_for_good(live):
                raise
            return settle_as_refused(
                suspect, "" if secret else f": {quote_text(error.happened, 300)}"
            ), True
        self._failing.pop(str(value_at(live, ("metadata", "uid"))), None)
        would = self._alterations(declared, declared.item, answer, around, ignore)
        verdict = attribute_to_admission(
            self._judged(declared, live, around, ignore, answer), would
        )
        return verdict, bool(verdict.altered)

    async def _fails_for_good(self, live: Fields) -> bool:
        """True when the server has failed at an object for a while, and answers otherwise.

        That is no outage, which ends by itself: it would keep the object out of sight for ever.
        """
        now = self._clock.monotonic()
        since = self._failing.setdefault(str(value_at(live, ("metadata", "uid"))), now)
        if len(self._failing) > self._remembered:
            del self._failing[next(iter(self._failing))]
        if now - since < PERSISTENT_FAILURE_SECONDS:
            return False
        await self._client.get(ref_of(live))  # raises when it does not answer at all
        return True

    def _compared(
        self,
        declared: Declaration,
        sent: Fields,
        answer: Fields,
        around: OwnershipContext,
        ignore: tuple[IgnoreRule, ...],
    ) -> WriteResult:
        """Hold the answer to a write against what was sent, before anything is said of it."""
        found = self._alterations(declared, sent, answer, around, ignore)
        uid = str(value_at(answer, ("metadata", "uid")))
        before = self._altered.pop(uid, None)
        if found:
            # The next look asks the server, and does not take it for somebody's edit.
            self._doubts.setdefault(uid, 0)
            self._seen.pop(uid, None)
            times = before.times + 1 if before else 0
            wait = min(REWRITE_DELAY * 2 ** min(times, 10), MAX_REWRITE_DELAY)
            until = self._clock.now() + wait
            self._altered[uid] = _Alteration(
                field_drifts=found,
                times=times,
                until=until,
                foretold=bool(before and before.foretold),
            )
            if len(self._altered) > self._remembered:
                del self._altered[next(iter(self._altered))]
        return WriteResult(live=answer, altered=found)

    def _learn(self, uid: str, asked: ObjectDiff) -> None:
        """Note whether a dry run shows what the server makes of writes, and that it has stopped."""
        made = self._altered.get(uid)
        if made is None:
            return
        if asked.altered:
            self._altered[uid] = replace(made, foretold=True)
        elif made.foretold:
            del self._altered[uid]

    def _alterations(
        self,
        declared: Declaration,
        sent: Fields,
        answer: Fields,
        around: OwnershipContext,
        ignore: Sequence[IgnoreRule],
    ) -> tuple[FieldDrift, ...]:
        return server_alterations(
            declared=declared, sent=sent, answer=answer, key=self._key, now=self._clock.now(),
            around=around, ignore=ignore,
        )  # fmt: skip

    def _under(
        self,
        uid: str,
        verdict: ObjectDiff,
        around: OwnershipContext,
        ignore: tuple[IgnoreRule, ...],
        *,
        doubtful: bool,
    ) -> ObjectDiff:
        """Note what a verdict was judged under, and when the server is to be asked again."""
        times = self._doubts.pop(uid, 0)
        if doubtful:
            self._doubts[uid] = times + 1
            if len(self._doubts) > self._remembered:
                del self._doubts[next(iter(self._doubts))]
            wait = min(RECHECK_DELAY * 2 ** min(times, 10), MAX_RECHECK_DELAY)
            verdict = replace(verdict, recheck_at=self._clock.now() + wait)
        if verdict.state is ObjectState.IN_SYNC and not verdict.field_drifts:
            return verdict
        return replace(verdict, around=around, ignore=ignore)

    def _remember(
        self,
        key: tuple[str, str, str],
        record: AppliedRecord | None,
        around: OwnershipContext,
        ignore: tuple[IgnoreRule, ...],
        verdict: ObjectDiff,
    ) -> None:
        now = self._clock.now()
        ends = [rule.expires for rule in ignore if rule.expires and rule.expires > now]
        ends += [verdict.recheck_at] if verdict.recheck_at else []
        self._seen.pop(key[0], None)
        self._seen[key[0]] = _CachedDiff(
            key=key, record=record, around=around, ignore=ignore,
            until=min(ends, default=None), verdict=verdict,
        )  # fmt: skip
        if len(self._seen) > self._remembered:
            del self._seen[next(iter(self._seen))]

    async def _applied(self, item: Fields, live: Fields) -> Fields:
        return await self._sent(with_version_guard(item, live), force=True)

    async def _sent(
        self, item: Fields, *, force: bool = False, dry_run: bool = False, absent: bool = False
    ) -> Fields:
        """Apply an object, without those nulls that the schema of its kind does not allow.

        A null may mean something, as in the values of a chart, so it is sent; where the server
        refuses it, it is left out, as `kubectl apply` does with every one.
        """
        while True:
            try:
                return await self._client.apply(
                    item, manager=self.manager, force=force, dry_run=dry_run, absent=absent
                )
            except ValidationError as error:
                less = without_nulls(item, {problem.field for problem in error.problems})
                if less is None:
                    raise
                item = less

    async def _taken_back(self, declared: Declaration, healed: Fields) -> Fields:
        """Make ours alone what we just applied, whatever controllers write to it meanwhile.

        Where they are faster each time, the next heal does it before it writes.
        """
        for _ in range(_MAX_TRIES):
            try:
                return await self._record(healed, release_unknown_owners(declared, healed))
            except KubeConflict:
                now = await self._client.get(ref_of(healed))
                if now is None or value_at(now, ("metadata", "uid")) != value_at(
                    healed, ("metadata", "uid")
                ):
                    raise
                healed = now
        return healed

    async def _record(self, live: Fields, managed: list[Tree] | None) -> Fields:
        """Write down other owners of an object's fields, if it is still at this version."""
        if managed is None:
            return live
        version = value_at(live, ("metadata", "resourceVersion"))
        operations: list[Fields] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/metadata/managedFields", "value": managed},
        ]
        ref = ref_of(live)
        try:
            return await self._client.patch(ref, operations, manager=self.manager)
        except ValidationError:
            now = await self._client.get(ref)
            if now is not None and value_at(now, ("metadata", "resourceVersion")) == version:
                raise
            raise KubeConflict(
                f"{ref} was changed by others in the meantime.", reason=ConflictReason.CHANGED
            ) from None


def with_version_guard(item: Fields, live: Fields) -> Fields:
    """Let a write hold only for the object that was seen, at the version it had then."""
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    seen = {name: value_at(live, ("metadata", name)) for name in ("uid", "resourceVersion")}
    return {**item, "metadata": {**metadata, **seen}}


def _is_plain_declaration(declared: Declaration, manager: str) -> bool:
    """True for a declaration that its digest tells all about."""
    return (
        declared.managers == {manager}
        and declared.applied
        and declared.expected is None
        and declared.uid is None
        and declared.previous is None
    )


def _is_same_declaration(one: Declaration, other: Declaration) -> bool:
    """True for the same declaration, built twice."""
    return one is other or (
        one.digest == other.digest
        and one.managers == other.managers
        and one.expected == other.expected
        and one.uid == other.uid
        and one.applied == other.applied
        and one.previous == other.previous
        and one.record == other.record
    )
