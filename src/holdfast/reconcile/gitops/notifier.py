"""Delivers notices once, without flooding and without delaying anyone.

A notice is committed to the ledger first and sent from there, so a restart neither repeats nor
loses it. Each channel goes at its own pace: one that is down delays nobody, and what it missed
reaches it as a digest. A queue without a channel keeps what waits until the channel is there,
since after a start notices are read before the applications that name the channels.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from holdfast.core.errors import ConfigurationError, Conflict, HoldfastError, TargetUnavailable
from holdfast.core.gitops.notification import (
    DIGEST_TYPE,
    ChannelLimits,
    MessageBucket,
    Notice,
    Severity,
    WaitingNotice,
    make_batch,
    make_digest,
    overflowing,
    repeat_key,
)
from holdfast.reconcile.gitops.ports import (
    LedgerRecord,
    LedgerStore,
    LedgerWrite,
    NotificationChannel,
    RecordKind,
)
from holdfast.reconcile.ports import Clock
from holdfast.wire.notice_v1 import WAITING, outbox_from_json, outbox_to_json

SENT = "sent"
REFUSED = "refused"
"""The channel said that trying again cannot help."""
FOLDED = "folded"
"""Told as part of a digest, which is a record of its own."""
DROPPED = "dropped"
"""The channel is no more."""


@dataclass(slots=True)
class OutboxNotice:
    """One notice and how it stands with each channel. The channels of one process share it."""

    notice: Notice
    channels: dict[str, str]
    version: int = 0

    @property
    def open(self) -> bool:
        """True while a channel does not have it."""
        return WAITING in self.channels.values()


def outbox_write(kept: OutboxNotice) -> LedgerWrite:
    """Return the write that brings the ledger to how a notice stands."""
    application = kept.notice.data.get("application")  # a digest of several names none
    return LedgerWrite(
        kind=RecordKind.NOTICE,
        application=application if isinstance(application, str) else "",
        key=kept.notice.id,
        seen=kept.version,
        state="open" if kept.open else "closed",
        body=outbox_to_json(kept.notice, kept.channels),
    )


class Outbox:
    """The open notices of a ledger, and the same in memory."""

    def __init__(self, book: LedgerStore) -> None:
        self._book = book
        self._lock = asyncio.Lock()
        self.kept: dict[str, OutboxNotice] = {}
        self.stale = True
        """True when the ledger may say something else, so that it is read before the next use."""

    async def add(self, kept: OutboxNotice) -> bool:
        """Write a new notice. False when the ledger has it already, told or waiting."""
        async with self._lock:
            try:
                await self._book.write([outbox_write(kept)], [])
            except Conflict:
                return False
            except TargetUnavailable:
                self.stale = True  # it may have been written
                raise
            kept.version = 1
            self.kept[kept.notice.id] = kept
            return True

    def waits(self, notice: str, channel: str) -> bool:
        """True when a channel does not have a notice, as far as is known here."""
        kept = self.kept.get(notice)
        return kept is not None and kept.channels.get(channel) == WAITING

    async def mark(
        self, channel: str, ids: Sequence[str], word: str, *, new: OutboxNotice | None = None
    ) -> None:
        """Write that a channel is done with some notices, together with a new one.

        In memory nothing changes when it raises: Conflict or TargetUnavailable, after which the
        ledger is read anew.
        """
        async with self._lock:
            done = [
                OutboxNotice(kept.notice, {**kept.channels, channel: word}, kept.version)
                for kept in (self.kept.get(each) for each in ids)
                if kept is not None
            ]
            if new is not None:
                done.append(new)
            if not done:
                return
            try:
                await self._book.write([outbox_write(kept) for kept in done], [])
            except (Conflict, TargetUnavailable):
                self.stale = True
                raise
            for kept in done:
                kept.version += 1
                if kept.open:
                    self.kept[kept.notice.id] = kept
                else:
                    self.kept.pop(kept.notice.id, None)

    async def read(self, gone: Callable[[str], None]) -> list[OutboxNotice]:
        """Bring memory to what the ledger says, and return what memory did not know of.

        `gone` hears of each notice that is no longer open. What was taken in meanwhile stays.
        """
        async with self._lock:
            before = set(self.kept)
            found = await self._book.records(RecordKind.NOTICE, state="open")
            fresh = []
            for kept in filter(None, map(_read_record, reversed(found))):
                if kept.notice.id not in self.kept:
                    fresh.append(kept)
                self.kept[kept.notice.id] = kept
                before.discard(kept.notice.id)
            for each in before:
                self.kept.pop(each, None)
                gone(each)
            self.stale = False
            return fresh

    async def recent(self, limit: int) -> list[Notice]:
        """Return the notices of the last writes, told or not, oldest first."""
        found = await self._book.records(RecordKind.NOTICE, limit=limit)
        return [kept.notice for kept in filter(None, map(_read_record, reversed(found)))]


def _read_record(record: LedgerRecord) -> OutboxNotice | None:
    """Read a record; None for one that a later version wrote, which is left to it."""
    read = outbox_from_json(record.body)
    if read is None or read[0].id != record.key:
        return None
    return OutboxNotice(notice=read[0], channels=read[1], version=record.version)


FIRST_RETRY = 5.0
MAX_RETRY = 600.0
ABSENT_TIMEOUT = 3600.0
"""Seconds that notices wait for a channel that nobody names."""


@dataclass(slots=True)
class ChannelQueue:
    """The way to one channel."""

    name: str
    bucket: MessageBucket
    channel: NotificationChannel | None = None
    absent_since: float = 0.0
    waiting: dict[str, WaitingNotice] = field(default_factory=dict)
    unmarked: dict[str, str] = field(default_factory=dict)
    """Notices that the channel has while the ledger does not say so yet."""
    failures: int = 0
    error: str = ""
    undelivered: int = 0
    not_before: float = 0.0
    """After a failure: when to try again."""
    next_at: float | None = None
    """When there is something to do; None when nothing waits."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    task: asyncio.Task[None] | None = None

    def add(self, waiting: WaitingNotice, limits: ChannelLimits) -> None:
        """Queue a notice."""
        self.waiting[waiting.notice.id] = waiting
        urgent = waiting.notice.severity is Severity.CRITICAL
        delay = limits.flapping if waiting.held else 0.0 if urgent else limits.window
        at = max(waiting.since + delay, self.not_before)
        if len(self.waiting) > limits.waiting:
            at = waiting.since  # the older are folded, also while the channel is down
        self.next_at = at if self.next_at is None else min(self.next_at, at)

    def failed(self, now: float, why: str, *, asked: float | None, chance: float) -> None:
        """Wait before the next attempt: doubling, with jitter, and at least as long as asked."""
        wait = min(MAX_RETRY, FIRST_RETRY * 2.0 ** min(self.failures, 20))
        self.failures += 1
        self.error = why
        self.not_before = now + max(wait * (0.5 + chance / 2), asked or 0.0)

    def succeeded(self) -> None:
        """Forget the failures."""
        self.failures = 0
        self.error = ""
        self.not_before = 0.0

    def plan_next(self, now: float, limits: ChannelLimits) -> None:
        """Set when there is something to do again."""
        self.next_at = None
        if self.waiting:
            due = make_batch(list(self.waiting.values()), now=now, limits=limits, tokens=1)
            if due.groups or due.digest:
                self.next_at = now + self.bucket.filled(now, limits).wait(limits)
            elif due.again_in is not None:
                self.next_at = now + due.again_in
        if self.unmarked:
            self.next_at = now
        if self.next_at is not None:
            self.next_at = max(self.next_at, self.not_before)
            if self.channel is None and not self.unmarked:
                self.next_at = max(self.next_at, self.absent_since + ABSENT_TIMEOUT)


_LOG = logging.getLogger("holdfast.notices")
_MAX_REMEMBERED = 1000
"""Notices read at the start, and subjects kept, to know what flaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """How one channel fares."""

    name: str
    waiting: int
    failures: int
    """Attempts in a row that failed."""
    error: str
    """Why the last one failed, without secrets; empty when it did not."""
    undelivered: int
    """Notices that the channel refused for good since the start."""


@dataclass(slots=True)
class _Repeats:
    """When the same was told of one subject lately."""

    limits: ChannelLimits
    seen: dict[tuple[str, str, str], deque[float]] = field(default_factory=dict)

    def count(self, notice: Notice, now: float) -> bool:
        """Note one more, and say whether that is too often."""
        if notice.type == DIGEST_TYPE:
            return False
        since = now - self.limits.flapping
        if len(self.seen) > _MAX_REMEMBERED:
            self.seen = {key: times for key, times in self.seen.items() if times[-1] > since}
        key = repeat_key(notice)
        times = self.seen.setdefault(key, deque(maxlen=self.limits.repeats))
        flaps = len(times) == self.limits.repeats and times[0] > since
        times.append(now)
        return flaps


class Notifier:
    """The outbox of one controller.

    A channel's name stands for where it leads, not for who asked: applications that share a
    destination should share the channel, so that its limits hold for all of them together.
    Several controllers may share the ledger, but one at a time may run its notifier.
    """

    def __init__(
        self,
        book: LedgerStore,
        channels: Mapping[str, NotificationChannel],
        clock: Clock,
        *,
        limits: ChannelLimits | None = None,
        patience: float = 30.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`patience` is how long one message may take, whatever its channel says."""
        self._outbox = Outbox(book)
        self._clock = clock
        self._limits = limits or ChannelLimits()
        self._patience = patience
        self._chance = chance
        self._repeats = _Repeats(self._limits)
        self._queues: dict[str, ChannelQueue] = {}
        self._wake = asyncio.Event()
        self._reading = asyncio.Lock()
        self._started = False
        self._book_failures = 0
        self.use(channels)

    def use(self, channels: Mapping[str, NotificationChannel]) -> None:
        """Replace the channels. What waits for one that is no more is dropped in an hour."""
        now = self._clock.monotonic()
        for name, channel in channels.items():
            queue = self._channel_queue(name)
            if queue.channel is not channel:
                queue.channel = channel
                queue.succeeded()
                queue.plan_next(now, self._limits)
        for name, queue in list(self._queues.items()):
            if name not in channels and queue.channel is not None:
                queue.channel, queue.absent_since = None, now
                queue.plan_next(now, self._limits)
        self._wake.set()

    async def tell(self, notice: Notice, channels: Sequence[str]) -> bool:
        """Have a notice sent. False when it was told before, or there is nobody to tell.

        Durable once it returns, and waits for the ledger alone. Raises what the ledger raises.
        """
        if not channels:
            return False
        if not self._started:
            await self._read()  # to know what was told lately
        kept = OutboxNotice(notice, dict.fromkeys(channels, WAITING))
        if not await self._outbox.add(kept):
            return False
        self._queue(kept, self._clock.monotonic())
        return True

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        try:
            while True:
                self._wake.clear()
                await self._pause(await self._turn())
        finally:
            tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def flush(self, seconds: float = 5.0) -> None:
        """Send now whatever can be sent, as before a shutdown. The rest stays in the ledger.

        A channel that is down is not tried, and no channel gets more than its rate allows.
        """
        ready = [queue for queue in self._queues.values() if queue.channel and not queue.failures]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(self._step(queue, force=True) for queue in ready))

    def states(self) -> Sequence[ChannelState]:
        """Say how each channel fares."""
        return [
            ChannelState(
                name=queue.name,
                waiting=len(queue.waiting),
                failures=queue.failures,
                error=queue.error,
                undelivered=queue.undelivered,
            )
            for queue in self._queues.values()
        ]

    def _channel_queue(self, name: str) -> ChannelQueue:
        if name not in self._queues:
            now = self._clock.monotonic()
            full = MessageBucket(tokens=float(self._limits.burst), at=now)
            self._queues[name] = ChannelQueue(name=name, bucket=full, absent_since=now)
        return self._queues[name]

    def _queue(self, kept: OutboxNotice, since: float) -> None:
        held = self._repeats.count(kept.notice, since)
        for name, word in kept.channels.items():
            if word == WAITING:
                self._channel_queue(name).add(
                    WaitingNotice(notice=kept.notice, since=since, held=held), self._limits
                )
        self._wake.set()

    async def _turn(self) -> float | None:
        """Start what is due; return seconds until there is more."""
        if self._outbox.stale:
            try:
                await self._read()
                self._book_failures = 0
            except HoldfastError as error:
                self._book_failures += 1
                _LOG.warning("notices_not_read", extra={"reason": error.code})
                return min(60.0, 2.0 ** min(self._book_failures, 6))
        now = self._clock.monotonic()
        waits = []
        for queue in list(self._queues.values()):
            if queue.task is not None or queue.next_at is None:
                if queue.channel is None and queue.task is None and not queue.unmarked:
                    self._queues.pop(queue.name)  # nothing waits, and nobody names it
            elif queue.next_at <= now:
                queue.task = asyncio.create_task(self._carry(queue))
            else:
                waits.append(queue.next_at - now)
        return min(waits, default=None)

    async def _read(self) -> None:
        """Take in what the ledger has open; at the start, also what was told lately."""
        async with self._reading:
            if not self._outbox.stale:
                return
            # First, because what `read` returns must not be lost to a failure.
            recent = [] if self._started else await self._outbox.recent(_MAX_REMEMBERED)
            fresh = {kept.notice.id: kept for kept in await self._outbox.read(self._forget)}
            came = [each for each in recent if each.id not in self._outbox.kept]
            came += [kept.notice for kept in fresh.values()]
            self._started = True
        now, at = self._clock.monotonic(), self._clock.now()
        for notice in sorted(came, key=attrgetter("at")):
            since = now - max(0.0, (at - notice.at).total_seconds())
            if notice.id in fresh:
                self._queue(fresh[notice.id], since)
            else:
                self._repeats.count(notice, since)

    def _forget(self, notice: str) -> None:
        for queue in self._queues.values():
            queue.waiting.pop(notice, None)
            queue.unmarked.pop(notice, None)

    async def _carry(self, queue: ChannelQueue) -> None:
        try:
            await self._step(queue)
        finally:
            queue.task = None
            self._wake.set()

    async def _step(self, queue: ChannelQueue, *, force: bool = False) -> None:
        """Send what is due on one channel. Whatever fails, it is tried again later."""
        async with queue.lock:
            try:
                await self._work(queue, force=force)
            except HoldfastError as error:  # of the ledger; channels are heard where they send
                self._failed(queue, error, "ledger")
            except Exception as error:
                self._failed(queue, error, "notifier")
            queue.plan_next(self._clock.monotonic(), self._limits)

    async def _work(self, queue: ChannelQueue, *, force: bool) -> None:
        await self._mark(queue)
        for each in [each for each in queue.waiting if not self._outbox.waits(each, queue.name)]:
            queue.waiting.pop(each)
        old = overflowing(list(queue.waiting.values()), self._limits)
        if old:
            await self._fold(queue, old)
        now = self._clock.monotonic()
        if queue.channel is None:
            if now - queue.absent_since >= ABSENT_TIMEOUT:
                _LOG.warning("notices_dropped", extra={"channel": queue.name})
                queue.unmarked.update(dict.fromkeys(queue.waiting, DROPPED))
                await self._mark(queue)
            return
        if now < queue.not_before:
            return
        queue.bucket = queue.bucket.filled(now, self._limits)
        due = make_batch(
            list(queue.waiting.values()),
            now=now,
            limits=self._limits,
            tokens=queue.bucket.whole,
            force=force,
        )
        groups = [tuple(each.notice for each in group) for group in due.groups]
        if due.digest:
            groups.append((await self._fold(queue, due.digest),))
        for group in groups:
            if not await self._send(queue, queue.channel, group):
                break

    async def _fold(self, queue: ChannelQueue, many: Sequence[WaitingNotice]) -> Notice:
        """Put one digest in the place of many, in the ledger first."""
        ids = [each.notice.id for each in many]
        told = make_digest([each.notice for each in many], channel=queue.name, at=self._clock.now())
        await self._outbox.mark(
            queue.name, ids, FOLDED, new=OutboxNotice(told, {queue.name: WAITING})
        )
        for each in ids:
            queue.waiting.pop(each, None)
        since = min(each.since for each in many)
        queue.waiting[told.id] = WaitingNotice(notice=told, since=since)
        return told

    async def _send(
        self, queue: ChannelQueue, channel: NotificationChannel, group: Sequence[Notice]
    ) -> bool:
        """Send one message. False when the channel should be left alone for a while."""
        queue.bucket = queue.bucket.taken()
        word = SENT
        try:
            async with asyncio.timeout(self._patience):
                await channel.send(group)
        except ConfigurationError as error:
            word = REFUSED
            queue.error = str(error)
            queue.undelivered += len(group)
            _LOG.warning("notices_refused", extra={"channel": queue.name, "reason": str(error)})
        except Exception as error:
            self._failed(queue, error, "channel")
            return False
        else:
            queue.succeeded()
        queue.unmarked.update({each.id: word for each in group})
        await self._mark(queue)
        return True

    async def _mark(self, queue: ChannelQueue) -> None:
        """Write to the ledger what the channel has, and keep no longer what is written."""
        for each in queue.unmarked:
            queue.waiting.pop(each, None)
        for word in sorted(set(queue.unmarked.values())):
            ids = [each for each, its in queue.unmarked.items() if its == word]
            await self._outbox.mark(queue.name, ids, word)
            for each in ids:
                queue.unmarked.pop(each, None)

    def _failed(self, queue: ChannelQueue, error: Exception, where: str) -> None:
        known = isinstance(error, HoldfastError)
        asked = error.retry_after if isinstance(error, TargetUnavailable) else None
        # What is none of ours may show anything, so its kind alone is told.
        why = str(error) if known else f"It failed ({type(error).__name__})."
        queue.failed(self._clock.monotonic(), why, asked=asked, chance=self._chance())
        level = logging.WARNING if known or isinstance(error, TimeoutError) else logging.ERROR
        _LOG.log(
            level,
            "notices_delayed",
            extra={"channel": queue.name, "at": where, "reason": why, "attempt": queue.failures},
        )

    async def _pause(self, seconds: float | None) -> None:
        if seconds is None:
            await self._wake.wait()
            return
        sleep = asyncio.create_task(self._clock.sleep(seconds))
        sleep.add_done_callback(lambda task: None if task.cancelled() else self._wake.set())
        try:
            await self._wake.wait()
        finally:
            sleep.cancel()
