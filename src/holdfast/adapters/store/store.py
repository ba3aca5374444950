"""The embedded database: one SQLite file, durable at every acknowledged write.

Opened by the server, by the embedded target and by the admin commands. Reads are inline on a
connection of their own; writes go through `write`, or through `submit` where many callers
share one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import queue
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.store import schema
from holdfast.adapters.store.errors import (
    closed_store,
    damaged_store,
    is_fatal,
    is_shared,
    store_error,
)
from holdfast.adapters.store.files import (
    FileWatch,
    OpenedStore,
    OpenMode,
    Watermark,
    backup_store,
    find_problems,
    lock_holder,
    open_store_files,
    real_path,
    write_watermark,
)
from holdfast.adapters.store.queries import StoreQueries
from holdfast.adapters.store.rows import Row
from holdfast.adapters.store.transaction import Transaction
from holdfast.core.errors import NOTHING_CHANGED, StoreBusy, StoreUnavailable
from holdfast.core.names import WorkloadId
from holdfast.reconcile.ports import Clock

T = TypeVar("T")
BATCH_SIZE = 256
"""The most works in one commit, so that the first does not wait for a crowd."""
QUEUE_LIMIT = 4096
"""The most works that may wait. More are refused: they would time out before their turn."""
CommitListener = Callable[[frozenset[WorkloadId]], object]
CHECKPOINT_PAGES = 2000
"""The length of the write-ahead log from which it is folded into the file."""
WATERMARK_SECONDS = 5.0
"""Seconds between two notes of how far the file has come."""
_log = logging.getLogger("holdfast.store")


class Store(StoreQueries):
    """One open database. Safe to use from several threads."""

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        mode: OpenMode = OpenMode.CLIENT,
        clock: Clock | None = None,
        new_id: Callable[[], str] | None = None,
        accept_rollback: bool = False,
        vfs: str | None = None,
        migrations: Sequence[Sequence[str]] = schema.MIGRATIONS,
    ) -> Store:
        """Open a file, making it when there is none.

        Raises StoreUnavailable, with what to do, for a file that is held by a server, damaged,
        too new, not writable, or older than it was. `accept_rollback` takes an older one as it is
        and gives it a new lineage.
        """
        file = real_path(Path(path))
        opened = open_store_files(
            file, mode=mode, accept_rollback=accept_rollback, vfs=vfs, migrations=migrations
        )
        return cls(file, opened, clock or SystemClock(), new_id or (lambda: str(uuid.uuid4())), vfs)

    def __init__(
        self,
        path: Path,
        opened: OpenedStore,
        clock: Clock,
        new_id: Callable[[], str],
        vfs: str | None,
    ) -> None:
        """Use `open` instead."""
        self.path = path
        self._lock = opened.lock
        self._writer = opened.writer
        self._reader = opened.reader
        self._epoch = opened.epoch
        self._watermark = self._written_watermark = opened.seen
        self._watermark_at = clock.monotonic()
        self._clock = clock
        self._new_id = new_id
        self._vfs = vfs
        self._file_watch = FileWatch(path)
        self._broken: StoreUnavailable | None = None
        self._reading = threading.RLock()
        self._writing = threading.RLock()
        self._grouping = threading.Lock()
        self._listeners: list[CommitListener] = []
        self._group: GroupWriter | None = None
        self._log_pages = 0
        self._fold_at = CHECKPOINT_PAGES
        self._writer.set_wal_hook(self._grown)

    def announce(self, url: str, *, one_project: bool = False) -> None:
        """Tell those who are refused where this server answers.

        With `one_project` nobody can make a second project until it ends, not even beside it.
        """
        if self._lock:
            self._lock.announce(url, one_project=one_project)

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction of its own; it is durable when this returns."""
        with self._writing:
            self._begin()
            transaction = self._transaction()
            try:
                value = work(transaction)
                self._commit()
            except apsw.Error as error:
                raise self._failed(error) from error
            except BaseException:
                self._roll_back()
                raise
        self._notify(transaction.touched)
        self.tidy()
        return value

    async def submit(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` together with others that wait; it is durable when this returns."""
        if self._group is None:
            with self._grouping:  # never the lock of the writer, which is held during a commit
                self._group = self._group or GroupWriter(self, name=self.path.name)
        return await self._group.submit(work)

    def commit(self, jobs: Sequence[WriteJob]) -> None:
        """Run queued works in one transaction. For the group writer."""
        touched: set[WorkloadId] = set()
        try:
            with self._writing:
                self._begin()
                try:
                    for job in jobs:
                        touched |= self._run(job)
                    self._commit()
                except apsw.Error as error:
                    raise self._failed(error) from error
        except Exception as error:  # the writer thread must outlive whatever went wrong
            if not isinstance(error, StoreUnavailable):
                _log.exception("store commit failed")
                error = StoreUnavailable(f"The commit failed: {type(error).__name__}.")
            for job in jobs:
                # One exception object for each waiter: each gets a traceback of its own.
                job.value, job.error = None, copy.copy(error)
            return
        self._notify(touched)

    def tidy(self) -> None:
        """Fold a long log into the file, and note now and then how far the file has come."""
        if self._log_pages >= self._fold_at:
            with self._writing:
                self._fold()
        if (
            self._written_watermark != self._watermark
            and self._clock.monotonic() - self._watermark_at >= WATERMARK_SECONDS
        ):
            self._write_watermark()

    def subscribe(self, callback: CommitListener) -> Callable[[], None]:
        """Call back after each commit, from the thread that wrote, with what was touched.

        The answer ends the subscription.
        """
        self._listeners.append(callback)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(callback)

        return unsubscribe

    def backup(self, path: str | Path) -> None:
        """Copy the committed state to a new file while reading and writing go on."""
        backup_store(self.path, Path(path).absolute(), vfs=self._vfs)

    def check(self) -> list[str]:
        """Read the whole file and return what is wrong with it: nothing, if all is well."""
        return find_problems(self.path, vfs=self._vfs)

    def close(self) -> None:
        """Finish queued writes and let go of the file. Safe to call twice."""
        if self._group:
            self._group.close()
        with self._writing, self._reading:
            if self._written_watermark != self._watermark:
                self._write_watermark()
            for connection in (self._reader, self._writer):
                with contextlib.suppress(apsw.Error):
                    connection.close()
            self._broken = self._broken or closed_store(self.path)
            if self._lock:
                self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, sql: str, values: Sequence[Any], read: Callable[[Row], T]) -> list[T]:
        with self._reading:
            try:
                found = self._reader.execute(sql, values)
                return [read(row) for row in found]
            except apsw.ConnectionClosedError as error:
                raise closed_store(self.path) from error
            except apsw.Error as error:
                raise store_error(error, self.path) from error
            except UnicodeDecodeError as error:
                raise damaged_store(self.path, "a text is not UTF-8") from error

    def _transaction(self) -> Transaction:
        return Transaction(
            self._writer,
            now=self._clock.now(),
            new_id=self._new_id,
            epoch=self._epoch,
            one_project=self._one_project,
        )

    def _one_project(self) -> bool:
        holder = lock_holder(self.path)
        return holder is not None and holder.one_project

    def _begin(self) -> None:
        if self._broken is None:
            self._broken = self._file_watch.problem()
        if self._broken is not None:
            refusal = copy.copy(self._broken)
            refusal.changed = NOTHING_CHANGED  # what began before is another call's outcome
            raise refusal
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise self._failed(error) from error
        self._changes = self._writer.total_changes()

    def _run(self, job: WriteJob) -> set[WorkloadId]:
        """Run one of several works; it alone is undone when it fails."""
        self._writer.execute("SAVEPOINT work")
        transaction = self._transaction()
        try:
            job.value = job.work(transaction)
        except Exception as error:
            shared = isinstance(error, apsw.Error) and is_shared(error)
            if shared or not self._writer.in_transaction:
                raise
            self._writer.execute("ROLLBACK TO work")
            job.error = store_error(error, self.path) if isinstance(error, apsw.Error) else error
            transaction.touched.clear()
        self._writer.execute("RELEASE work")
        return transaction.touched

    def _commit(self) -> None:
        """Commit. A work that changed nothing costs no write and no wait for the disk."""
        seen = None
        if self._writer.total_changes() != self._changes:
            lineage, serial = self._writer.execute(
                "UPDATE meta SET serial = serial + 1 RETURNING lineage, serial"
            ).fetchall()[0]
            seen = Watermark(lineage=str(lineage), serial=int(str(serial)))
        self._writer.execute("COMMIT")
        if seen is not None:
            self._watermark = seen

    def _failed(self, error: apsw.Error) -> StoreUnavailable:
        """Undo, and say what happened. After a disk failure nothing is written any more."""
        self._roll_back()
        failure = store_error(error, self.path, writing=True)
        if is_fatal(error):
            self._broken = failure
        return failure

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            try:
                self._writer.execute("ROLLBACK")
            except apsw.Error as error:
                self._broken = store_error(error, self.path, writing=True)

    def _grown(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _fold(self) -> None:
        try:
            pages, folded = self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            # The log still has everything, so no write is lost; a full disk is tried again.
            if is_fatal(error):
                self._broken = store_error(error, self.path)
            self._fold_at = self._log_pages + CHECKPOINT_PAGES
            return
        # A reader elsewhere may hold the log back; then the next try waits for more.
        self._fold_at = CHECKPOINT_PAGES if folded >= pages else pages + CHECKPOINT_PAGES
        self._log_pages = 0

    def _write_watermark(self) -> None:
        write_watermark(self.path, self._watermark)
        self._written_watermark, self._watermark_at = self._watermark, self._clock.monotonic()

    def _notify(self, touched: Iterable[WorkloadId]) -> None:
        names = frozenset(touched)
        for listener in tuple(self._listeners) if names else ():
            try:
                listener(names)
            except Exception:
                _log.exception("store listener failed")


@dataclass(slots=True)
class WriteJob:
    """One work and the one who waits for it."""

    # Any: each caller knows the type of its own answer.
    work: Callable[[Transaction], Any]
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    value: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        """Tell the waiter, in its own loop."""
        if self.answer.done():
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.value)


class GroupWriter:
    """The thread, and the queue before it."""

    def __init__(self, store: Store, *, name: str) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"store-{name}", daemon=True)
        self._thread.start()

    async def submit(self, work: Callable[[Transaction], T]) -> T:
        """Queue a work and wait until it is committed."""
        if self._closed:
            raise StoreUnavailable("The store was closed.", hint="Open it again.")
        if self._queue.qsize() >= QUEUE_LIMIT:
            raise StoreBusy(
                f"{QUEUE_LIMIT} writes are waiting for the disk already.", hint="Try again later."
            )
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._queue.put(WriteJob(work, answer, loop))
        return await answer

    def close(self) -> None:
        """Finish what is queued and end the thread. Safe to call twice."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while True:
            jobs, ended = self._gather()
            if jobs:
                self._store.commit(jobs)
                for loop in {job.loop for job in jobs}:
                    _settle_jobs(loop, [job for job in jobs if job.loop is loop])
                self._store.tidy()
            if ended:
                return

    def _gather(self) -> tuple[list[WriteJob], bool]:
        """Wait for the first job and take all that are there behind it."""
        jobs: list[WriteJob] = []
        job = self._queue.get()
        while job is not None:
            # A caller who left before its work began gets no effect.
            if not job.answer.cancelled():
                jobs.append(job)
            if len(jobs) >= BATCH_SIZE or self._queue.empty():
                return jobs, False
            job = self._queue.get()
        return jobs, True


def _settle_jobs(loop: asyncio.AbstractEventLoop, jobs: Sequence[WriteJob]) -> None:
    def settle() -> None:
        for job in jobs:
            job.settle()

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return
