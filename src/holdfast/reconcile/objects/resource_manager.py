"""Compares, creates and heals single Kubernetes objects of any kind, by server-side apply.

The operator manages the children of its services with it, the GitOps controller whatever Git
holds. It knows no policies: its callers decide whether to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

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
from holdfast.core.ownership.signals import Declaration, FieldDrift, record_values
from holdfast.core.redact import quote_text
from holdfast.core.tree import Fields, Path, Tree
from holdfast.reconcile.kube import ConflictReason, KubeClient, KubeConflict, ObjectRef, ref_of
from holdfast.reconcile.ports import Clock

T = TypeVar("T")

MAX_CACHED_DIFFS = 50_000
"""Objects whose last diff is kept, in about half a kilobyte each."""
MAX_PREPARED = 1_000
"""Declarations that are kept in the form in which they are compared fast: ten kilobytes each."""
RECHECK_DELAY = timedelta(seconds=15)
"""How long a diff is kept at first that depends on what the server does with a write."""
MAX_RECHECK_DELAY = timedelta(minutes=5)
"""The delay doubles each time, up to this."""
REWRITE_DELAY = timedelta(minutes=5)
"""How long a value that the server made of our write is left alone, at first. Where a dry run is
altered too, it shows sooner that the server has stopped; otherwise only another write can."""
MAX_REWRITE_DELAY = timedelta(minutes=30)
PERSISTENT_FAILURE_SECONDS = 60.0
"""Seconds after which a server that fails at one object is taken to refuse it."""
_MAX_TRIES = 5
_ROLLOUT_NUMBER = "deployment.kubernetes.io/revision"
_IDENTITY = ("uid", "resourceVersion")


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedDiff:
    """A diff, and everything that it holds for."""

    basis: tuple[object, ...]
    """The object's version, the declaration, its record, the context and the ignore rules."""
    until: datetime | None
    """When the first of the rules expires, or the server is to be asked again."""
    diff: ObjectDiff


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alteration:
    """What the server made of our last write to an object."""

    field_drifts: tuple[FieldDrift, ...]
    times: int
    """How many writes in a row it altered."""
    until: datetime
    """When another write may be tried."""
    seen_by_dry_run: bool = False
    """A dry run is altered too, so it will also show when the server has stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The outcome of a write, by the server's own answer."""

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
        max_cached: int = MAX_CACHED_DIFFS,
        max_prepared: int = MAX_PREPARED,
    ) -> None:
        self._client = client
        self.manager = manager
        self._key = key
        self._clock = clock
        self._max_cached = max_cached
        self._cached: dict[str, _CachedDiff] = {}
        self._uncertain: dict[str, int] = {}
        """How often in a row the server was asked about objects, by uid, and gave an answer that
        another policy of its own would change: what it stores otherwise, or refuses."""
        self._altered: dict[str, _Alteration] = {}
        self._failing: dict[str, float] = {}
        """Since when the server fails at dry runs of objects, by uid."""
        self._max_prepared = max_prepared
        self._prepared: dict[str, Declaration] = {}

    async def diff(
        self,
        declared: Declaration,
        live: Fields | None,
        *,
        context: OwnershipContext = NO_CONTEXT,
        ignore: Sequence[IgnoreRule] = (),
    ) -> ObjectDiff:
        """Compare one object, with one dry run where the object alone leaves a doubt.

        The diff is kept for this version of the object and this declaration of it. What an
        account may not ask, or the server refuses to put back, or stores otherwise each time, is
        part of the diff, and asked again after a while (`ObjectDiff.recheck_at`).
        """
        rules = tuple(ignore)
        if live is None:
            return self._compare(declared, None, context, rules)
        key = cache_key(live, declared.digest)
        uid, now = key[0], self._clock.now()
        basis = (key, declared.record, context, rules)
        plain = _is_plain_declaration(declared, self.manager)
        cached = self._cached.get(uid) if plain else None
        if cached and cached.basis == basis and (cached.until is None or now < cached.until):
            return cached.diff
        declared = self._prepare(uid, declared)
        diff = self._compare(declared, live, context, rules)
        uncertain = False
        if diff.needs_dry_run or (uid in self._uncertain and diff.drifted):
            diff, uncertain = await self._compare_by_dry_run(declared, live, context, rules, diff)
            self._note_dry_run(uid, diff)
        alteration = self._altered.get(uid)
        if alteration is not None and now < alteration.until:
            diff = attribute_to_admission(diff, alteration.field_drifts)
            uncertain = uncertain or bool(diff.altered)
        diff = self._with_recheck(uid, diff, uncertain=uncertain)
        if diff.state is not ObjectState.IN_SYNC or diff.field_drifts:
            diff = replace(diff, context=context, ignore=rules)
        if plain:
            ends = [rule.expires for rule in rules if rule.expires and rule.expires > now]
            ends += [diff.recheck_at] if diff.recheck_at else []
            _put(
                self._cached,
                uid,
                _CachedDiff(basis=basis, until=min(ends, default=None), diff=diff),
                limit=self._max_cached,
            )
        return diff

    def _prepare(self, uid: str, declared: Declaration) -> Declaration:
        """Give the same declaration as last time, which is ready to be compared fast."""
        known = self._prepared.get(uid, declared)
        known = known if _is_same_declaration(known, declared) else declared
        _put(self._prepared, uid, known, limit=self._max_prepared)
        return known

    def forget(self, uid: str) -> None:
        """Drop what was remembered of an object that is gone."""
        self._cached.pop(uid, None)
        self._prepared.pop(uid, None)
        self._uncertain.pop(uid, None)
        self._failing.pop(uid, None)

    def values(
        self,
        declared: Declaration,
        live: Fields,
        *,
        left: frozenset[Path] = frozenset(),
        before: str = "",
    ) -> str:
        """Write down what was applied, for the record that later diffs rely on."""
        return record_values(declared, live, key=self._key, left=left, before=before)

    async def create(self, declared: Declaration) -> WriteResult:
        """Create an object that was seen to be absent. Raises KubeConflict `exists` otherwise."""
        answer = await self._apply(declared.item, absent=True)
        return self._result(declared, declared.item, answer, NO_CONTEXT, ())

    async def heal(
        self,
        declared: Declaration,
        live: Fields,
        diff: ObjectDiff,
        *,
        leave: frozenset[Path] = frozenset(),
    ) -> WriteResult:
        """Make an object as declared, unless it moved since it was seen (KubeConflict).

        What is delegated, ignored, or named by `leave` keeps its value. What others added and the
        diff calls drift goes. An object that is on its way out is returned as it is. Raises
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
        diff = diff.observing_only(leave)
        item = item_to_apply(declared, live, diff, leave)
        if drops_replicas(item, declared, live):
            live = await self.seed_replicas(live)
        if is_owned_by_unknown(live):
            # The record was wiped once, and a controller kept us from taking our fields back then.
            live = await self._write_owners(live, release_unknown_owners(declared, live))
        live = await self._write_owners(live, take_over_additions(declared, live, diff))
        try:
            healed = await self._apply_beside_status(item, live)
        except ValidationError:
            managed = take_over_obstacles(declared, live, diff)
            if managed is None:
                raise
            live = await self._write_owners(live, managed)
            healed = await self._apply_beside_status(item, live)
        written = self._result(declared, item, healed, diff.context, diff.ignore)
        if diff.state is ObjectState.WIPED:
            written = replace(written, live=await self._release_owners(declared, healed))
        return written

    async def delete(self, ref: ObjectRef, live: Fields) -> None:
        """Delete an object as it was read. Only its status may have moved since, as it always does.

        Raises KubeConflict when anything else has, who owns which field included: somebody else
        has plans with it, so decide again.
        """
        for _ in range(_MAX_TRIES):
            uid, version = (str(value_at(live, ("metadata", name))) for name in _IDENTITY)
            try:
                await self._client.delete(ref, uid=uid, version=version)
            except KubeConflict as conflict:
                if conflict.reason is not ConflictReason.CHANGED:
                    raise
                now = await self._client.get(ref)
                if now is None:
                    return
                if _without_status(now) != _without_status(live):
                    raise
                live = now
            else:
                return
        raise KubeConflict(f"{ref} keeps changing.", reason=ConflictReason.CHANGED)

    async def seed_replicas(self, live: Fields, *, replicas: int | None = None) -> Fields:
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
        return await self._client.apply(item, manager=REPLICA_SEED_MANAGER)

    def _compare(
        self,
        declared: Declaration,
        live: Fields | None,
        context: OwnershipContext,
        ignore: Sequence[IgnoreRule],
        dry_run: Fields | None = None,
    ) -> ObjectDiff:
        return diff_object(
            declared=declared,
            live=live,
            key=self._key,
            now=self._clock.now(),
            context=context,
            ignore=ignore,
            dry_run=dry_run,
        )

    async def _compare_by_dry_run(
        self,
        declared: Declaration,
        live: Fields,
        context: OwnershipContext,
        ignore: Sequence[IgnoreRule],
        suspect: ObjectDiff,
    ) -> tuple[ObjectDiff, bool]:
        """Compare with a dry run. Also says whether its answer may change without an event."""
        try:
            answer = await self._apply(
                with_version_guard(declared.item, live), force=True, dry_run=True
            )
        except PermissionDenied:
            return settle_without_dry_run(suspect), True
        except (ValidationError, TargetUnavailable) as error:
            if isinstance(error, TargetUnavailable) and not (
                error.failed and await self._fails_for_good(live)
            ):
                raise
            # The server quotes what it refuses, and of a Secret that must not be repeated.
            secret = declared.item.get("kind") == "Secret"
            why = "" if secret else f": {quote_text(error.happened, 300)}"
            return settle_as_refused(suspect, why), True
        self._failing.pop(str(value_at(live, ("metadata", "uid"))), None)
        altered = self._alterations(declared, declared.item, answer, context, ignore)
        diff = self._compare(declared, live, context, ignore, dry_run=answer)
        diff = attribute_to_admission(diff, altered)
        return diff, bool(diff.altered)

    async def _fails_for_good(self, live: Fields) -> bool:
        """True when the server has failed at an object for a while, and answers otherwise.

        That is no outage, which ends by itself: it would keep the object out of sight for ever.
        """
        now = self._clock.monotonic()
        uid = str(value_at(live, ("metadata", "uid")))
        since = self._failing.get(uid, now)
        _put(self._failing, uid, since, limit=self._max_cached)
        if now - since < PERSISTENT_FAILURE_SECONDS:
            return False
        await self._client.get(ref_of(live))  # raises when it does not answer at all
        return True

    def _result(
        self,
        declared: Declaration,
        sent: Fields,
        answer: Fields,
        context: OwnershipContext,
        ignore: tuple[IgnoreRule, ...],
    ) -> WriteResult:
        """Compare the answer to a write with what was sent."""
        altered = self._alterations(declared, sent, answer, context, ignore)
        uid = str(value_at(answer, ("metadata", "uid")))
        before = self._altered.pop(uid, None)
        if altered:
            # The next diff asks the server, and does not take it for somebody's edit.
            self._uncertain.setdefault(uid, 0)
            self._cached.pop(uid, None)
            times = before.times + 1 if before else 0
            alteration = _Alteration(
                field_drifts=altered,
                times=times,
                until=self._clock.now() + _delay(REWRITE_DELAY, times, MAX_REWRITE_DELAY),
                seen_by_dry_run=bool(before and before.seen_by_dry_run),
            )
            _put(self._altered, uid, alteration, limit=self._max_cached)
        return WriteResult(live=answer, altered=altered)

    def _note_dry_run(self, uid: str, diff: ObjectDiff) -> None:
        """Note whether a dry run shows what the server makes of writes, and that it has stopped."""
        alteration = self._altered.get(uid)
        if alteration is None:
            return
        if diff.altered:
            self._altered[uid] = replace(alteration, seen_by_dry_run=True)
        elif alteration.seen_by_dry_run:
            del self._altered[uid]

    def _alterations(
        self,
        declared: Declaration,
        sent: Fields,
        answer: Fields,
        context: OwnershipContext,
        ignore: Sequence[IgnoreRule],
    ) -> tuple[FieldDrift, ...]:
        return server_alterations(
            declared=declared,
            sent=sent,
            answer=answer,
            key=self._key,
            now=self._clock.now(),
            context=context,
            ignore=ignore,
        )

    def _with_recheck(self, uid: str, diff: ObjectDiff, *, uncertain: bool) -> ObjectDiff:
        """Note when the server is to be asked again."""
        times = self._uncertain.pop(uid, 0)
        if not uncertain:
            return diff
        _put(self._uncertain, uid, times + 1, limit=self._max_cached)
        delay = _delay(RECHECK_DELAY, times, MAX_RECHECK_DELAY)
        return replace(diff, recheck_at=self._clock.now() + delay)

    async def _apply(
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

    async def _apply_beside_status(self, item: Fields, live: Fields) -> Fields:
        """Apply to an object as it was seen, also where a controller reported its status since.

        Raises KubeConflict when anything else moved. A heal that ended here after additions were
        made ours would leave what was added looking like our own, and its writer untold.
        """
        ref = ref_of(live)
        for _ in range(_MAX_TRIES):
            try:
                return await self._apply(with_version_guard(item, live), force=True)
            except KubeConflict as conflict:
                if conflict.reason is not ConflictReason.CHANGED:
                    raise
                now = await self._client.get(ref)
                if now is None or _without_status(now) != _without_status(live):
                    raise
                live = now
        raise KubeConflict(f"{ref} keeps changing.", reason=ConflictReason.CHANGED)

    async def _release_owners(self, declared: Declaration, healed: Fields) -> Fields:
        """Make ours alone what we just applied, whatever controllers write to it meanwhile.

        Where they are faster each time, the next heal does it before it writes.
        """
        for _ in range(_MAX_TRIES):
            try:
                return await self._write_owners(healed, release_unknown_owners(declared, healed))
            except KubeConflict:
                now = await self._client.get(ref_of(healed))
                if now is None or value_at(now, ("metadata", "uid")) != value_at(
                    healed, ("metadata", "uid")
                ):
                    raise
                healed = now
        return healed

    async def _write_owners(self, live: Fields, managed: list[Tree] | None) -> Fields:
        """Give an object's fields other owners, if it is still at this version."""
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
    seen = {name: value_at(live, ("metadata", name)) for name in _IDENTITY}
    return {**item, "metadata": {**metadata, **seen}}


def _without_status(live: Fields) -> Fields:
    """All of an object that a decision may rest on: without its status and who reports it.

    The number of a rollout is part of the report: its controller writes both in one request.
    """
    metadata = live["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    counted = ("resourceVersion", "managedFields", "generation", "annotations")
    kept = {name: value for name, value in metadata.items() if name not in counted}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict):
        kept["annotations"] = {
            name: value for name, value in annotations.items() if name != _ROLLOUT_NUMBER
        }
    managed = value_at(live, ("metadata", "managedFields"))
    owners: list[Tree] = [
        {name: value for name, value in entry.items() if name != "time"}
        for entry in (managed if isinstance(managed, list) else ())
        if isinstance(entry, dict) and entry.get("subresource") != "status"
    ]
    return {**live, "metadata": {**kept, "managedFields": owners}, "status": None}


def _is_plain_declaration(declared: Declaration, manager: str) -> bool:
    """True for a declaration that its digest describes fully."""
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


def _delay(first: timedelta, times: int, longest: timedelta) -> timedelta:
    return min(first * (1 << min(times, 10)), longest)


def _put(items: dict[str, T], key: str, value: T, *, limit: int) -> None:
    """Set an item as the newest, and forget the oldest beyond a limit."""
    items.pop(key, None)
    items[key] = value
    if len(items) > limit:
        del items[next(iter(items))]
