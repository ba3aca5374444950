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
from holdfast.core.ownership.delegated import ALONE, SEED, Surroundings
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.objects import at
from holdfast.core.ownership.partial import REPLICAS, drops_replicas, to_write, without_nulls
from holdfast.core.ownership.signals import AppliedRecord, Declaration, Finding, values_of
from holdfast.core.ownership.transfer import (
    is_owned_by_unknown,
    take_additions,
    take_back,
    take_obstacles,
)
from holdfast.core.ownership.verdict import (
    State,
    Verdict,
    altered,
    blame_admission,
    judge,
    memo_key,
    refused,
    unasked,
)
from holdfast.core.redact import quoted
from holdfast.core.tree import Fields, Path, Tree
from holdfast.reconcile.kube import ConflictReason, KubeClient, KubeConflict, ref_of
from holdfast.reconcile.ports import Clock

REMEMBERED = 50_000
"""Objects whose last verdict is kept, in about half a kilobyte each."""
READY = 1_000
"""Declarations that are kept in the form in which they are compared fast: ten kilobytes each."""
RECHECK = timedelta(seconds=15)
"""How long a verdict counts that hangs on what the server does with a write, at first."""
LONGEST_RECHECK = timedelta(minutes=5)
"""It doubles from look to look, up to this."""
REWRITE = timedelta(minutes=5)
"""How long a value that the server made of our write is left alone, at first. A dry run tells
sooner that it would be stored as declared now; where the server alters real writes alone, only
another write can tell."""
LONGEST_REWRITE = timedelta(minutes=30)
LASTING = 60.0
"""Seconds after which a server that fails at one object is taken to refuse it."""
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A verdict, and everything that it holds for."""

    key: tuple[str, str, str]
    record: AppliedRecord | None
    around: Surroundings
    ignore: tuple[IgnoreRule, ...]
    until: datetime | None
    """When the first of the rules expires, or the server is to be asked again."""
    verdict: Verdict

    def holds(
        self,
        key: tuple[str, str, str],
        record: AppliedRecord | None,
        around: Surroundings,
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

    findings: tuple[Finding, ...]
    times: int
    """How many writes in a row it altered."""
    until: datetime
    """When another write may be tried."""
    foretold: bool = False
    """A dry run gives the same answer, so it will also tell when the server has stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of a write, by the server's own answer."""

    live: Fields = field(repr=False)
    """The object as the server has it now."""
    altered: tuple[Finding, ...] = ()
    """What it stored otherwise than was sent. Nothing was put back of these, and no other apply
    would put it back: their cause is admission."""


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
        self._doubts: dict[str, int] = {}
        """How often in a row the server was asked about objects, by uid, and gave an answer that
        another policy of its own would change: what it stores otherwise, or refuses."""
        self._altered: dict[str, _Alteration] = {}
        self._failing: dict[str, float] = {}
        """Since when the server fails at dry runs of objects, by uid."""
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
        an account may not ask, or the server refuses to put back, or stores otherwise each time,
        is part of the verdict, and asked again after a while (`Verdict.recheck_at`).
        """
        if live is None:
            return self._judged(declared, None, around, ignore)
        key = memo_key(live, declared.digest)
        rules = tuple(ignore)
        seen = self._seen.get(key[0])
        plain = _plain(declared, self.manager)
        now, record = self._clock.now(), declared.record
        if plain and seen is not None and seen.holds(key, record, around, rules, now):
            return seen.verdict
        declared = self._made_ready(key[0], declared)
        verdict = self._judged(declared, live, around, rules)
        doubtful = False
        if verdict.unsettled or (key[0] in self._doubts and verdict.drifted):
            verdict, doubtful = await self._asked(declared, live, around, rules, verdict)
            self._learn(key[0], verdict)
        made = self._altered.get(key[0])
        if made is not None and now < made.until:
            verdict = blame_admission(verdict, made.findings)
            doubtful = doubtful or bool(verdict.altered)
        verdict = self._under(key[0], verdict, around, rules, doubtful=doubtful)
        if plain:
            self._remember(key, record, around, rules, verdict)
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
        return values_of(declared, live, key=self._key, left=left, before=before)

    async def create(self, declared: Declaration) -> Written:
        """Create an object that was seen to be absent. Raises KubeConflict `exists` otherwise."""
        answer = await self._sent(declared.item, absent=True)
        return self._compared(declared, declared.item, answer, ALONE, ())

    async def heal(
        self,
        declared: Declaration,
        live: Fields,
        verdict: Verdict,
        *,
        leave: frozenset[Path] = frozenset(),
    ) -> Written:
        """Make an object as declared, unless it moved since it was seen (KubeConflict).

        What is delegated, ignored, or named by `leave` keeps its value. What others added and the
        verdict calls drift goes. An object that is on its way out is returned as it is. Raises
        ValidationError when the server refuses the result however its fields are owned. What the
        server took and stored otherwise is `altered` in the answer: that was not put back.
        """
        if at(live, ("metadata", "deletionTimestamp")) is not None:
            return Written(live=live)
        if declared.uid is not None and at(live, ("metadata", "uid")) != declared.uid:
            raise KubeConflict(
                f"{ref_of(live)} was deleted and created again by others.",
                reason=ConflictReason.REPLACED,
            )
        verdict = verdict.leaving(leave)
        item = to_write(declared, live, verdict, leave)
        if drops_replicas(item, declared, live):
            live = await self.park(live)
        if is_owned_by_unknown(live):
            # The record was wiped once, and a controller kept us from taking our fields back then.
            live = await self._record(live, take_back(declared, live))
        live = await self._record(live, take_additions(declared, live, verdict))
        try:
            healed = await self._applied(item, live)
        except ValidationError:
            managed = take_obstacles(declared, live, verdict)
            if managed is None:
                raise
            live = await self._record(live, managed)
            healed = await self._applied(item, live)
        written = self._compared(declared, item, healed, verdict.around, verdict.ignore)
        if verdict.state is State.WIPED:
            written = replace(written, live=await self._taken_back(declared, healed))
        return written

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
    ) -> tuple[Verdict, bool]:
        """Judge with a dry run. Also says whether the answer may change without an event."""
        secret = declared.item.get("kind") == "Secret"
        try:
            answer = await self._sent(guarded(declared.item, live), force=True, dry_run=True)
        except ValidationError as error:
            # The server quotes what it refuses, and of a Secret that must not be repeated.
            return refused(suspect, "" if secret else f": {quoted(error.happened, 300)}"), True
        except PermissionDenied:
            return unasked(suspect), True
        except TargetUnavailable as error:
            if not error.failed or not await self._fails_for_good(live):
                raise
            return refused(suspect, "" if secret else f": {quoted(error.happened, 300)}"), True
        self._failing.pop(str(at(live, ("metadata", "uid"))), None)
        would = self._alterations(declared, declared.item, answer, around, ignore)
        verdict = blame_admission(self._judged(declared, live, around, ignore, answer), would)
        return verdict, bool(verdict.altered)

    async def _fails_for_good(self, live: Fields) -> bool:
        """True when the server has failed at an object for a while, and answers otherwise.

        That is no outage, which ends by itself: it would keep the object out of sight for ever.
        """
        now = self._clock.monotonic()
        since = self._failing.setdefault(str(at(live, ("metadata", "uid"))), now)
        if len(self._failing) > self._remembered:
            del self._failing[next(iter(self._failing))]
        if now - since < LASTING:
            return False
        await self._client.get(ref_of(live))  # raises when it does not answer at all
        return True

    def _compared(
        self,
        declared: Declaration,
        sent: Fields,
        answer: Fields,
        around: Surroundings,
        ignore: tuple[IgnoreRule, ...],
    ) -> Written:
        """Hold the answer to a write against what was sent, before anything is said of it."""
        found = self._alterations(declared, sent, answer, around, ignore)
        uid = str(at(answer, ("metadata", "uid")))
        before = self._altered.pop(uid, None)
        if found:
            # The next look asks the server, and does not take it for somebody's edit.
            self._doubts.setdefault(uid, 0)
            self._seen.pop(uid, None)
            times = before.times + 1 if before else 0
            wait = min(REWRITE * 2 ** min(times, 10), LONGEST_REWRITE)
            until = self._clock.now() + wait
            self._altered[uid] = _Alteration(
                findings=found, times=times, until=until, foretold=bool(before and before.foretold)
            )
            if len(self._altered) > self._remembered:
                del self._altered[next(iter(self._altered))]
        return Written(live=answer, altered=found)

    def _learn(self, uid: str, asked: Verdict) -> None:
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
        around: Surroundings,
        ignore: Sequence[IgnoreRule],
    ) -> tuple[Finding, ...]:
        return altered(
            declared=declared, sent=sent, answer=answer, key=self._key, now=self._clock.now(),
            around=around, ignore=ignore,
        )  # fmt: skip

    def _under(
        self,
        uid: str,
        verdict: Verdict,
        around: Surroundings,
        ignore: tuple[IgnoreRule, ...],
        *,
        doubtful: bool,
    ) -> Verdict:
        """Note what a verdict was judged under, and when the server is to be asked again."""
        times = self._doubts.pop(uid, 0)
        if doubtful:
            self._doubts[uid] = times + 1
            if len(self._doubts) > self._remembered:
                del self._doubts[next(iter(self._doubts))]
            wait = min(RECHECK * 2 ** min(times, 10), LONGEST_RECHECK)
            verdict = replace(verdict, recheck_at=self._clock.now() + wait)
        if verdict.state is State.IN_SYNC and not verdict.findings:
            return verdict
        return replace(verdict, around=around, ignore=ignore)

    def _remember(
        self,
        key: tuple[str, str, str],
        record: AppliedRecord | None,
        around: Surroundings,
        ignore: tuple[IgnoreRule, ...],
        verdict: Verdict,
    ) -> None:
        now = self._clock.now()
        ends = [rule.expires for rule in ignore if rule.expires and rule.expires > now]
        ends += [verdict.recheck_at] if verdict.recheck_at else []
        self._seen.pop(key[0], None)
        self._seen[key[0]] = _Seen(
            key=key, record=record, around=around, ignore=ignore,
            until=min(ends, default=None), verdict=verdict,
        )  # fmt: skip
        if len(self._seen) > self._remembered:
            del self._seen[next(iter(self._seen))]

    async def _applied(self, item: Fields, live: Fields) -> Fields:
        return await self._sent(guarded(item, live), force=True)

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
        and one.record == other.record
    )
