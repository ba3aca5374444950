"""Many writers at once: in one event loop, and in many processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.adapters.store.store_script import SDK, broken_invariants, spec, write_concurrently
from tests.support.processes import ROOT

import holdfast.adapters.store.store as store_module
from holdfast.adapters.store import OpenMode, Project, Store, Transaction
from holdfast.core.errors import Conflict, StoreBusy, StoreUnavailable
from holdfast.core.names import WorkloadId
from holdfast.core.workload import desired_of


def create(slug: str) -> Callable[[Transaction], Project]:
    return lambda tx: tx.create_project(slug)


def failing(slug: str) -> Callable[[Transaction], None]:
    def work(tx: Transaction) -> None:
        tx.create_project(slug)
        raise KeyError(slug)

    return work


def test_a_failing_work_is_undone_alone_and_raises_to_its_own_caller(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        works = [(failing if number % 3 == 0 else create)(f"p{number}") for number in range(30)]
        answers = await asyncio.gather(
            *(store.submit(work) for work in works), return_exceptions=True
        )
        for number, answer in enumerate(answers):
            assert isinstance(answer, KeyError if number % 3 == 0 else Project)
        assert len(store.projects()) == 20
        assert len(store.history("p1")) == 1
        assert store.history("p0") == []

    with Store.open(tmp_path / "holdfast.db", mode=OpenMode.SERVER) as store:
        asyncio.run(scenario(store))
    assert broken_invariants(tmp_path / "holdfast.db") == []


def test_works_that_wait_together_share_a_commit(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        before = store.serial
        await asyncio.gather(*(store.submit(create(f"p{number}")) for number in range(100)))
        assert store.serial - before < 50

    with Store.open(tmp_path / "holdfast.db", mode=OpenMode.SERVER) as store:
        asyncio.run(scenario(store))


def test_an_answer_is_readable_the_moment_it_arrives(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        for number in range(30):
            project = await store.submit(create(f"p{number}"))
            assert store.project(project.slug) == project

    with Store.open(tmp_path / "holdfast.db", mode=OpenMode.SERVER) as store:
        asyncio.run(scenario(store))


def test_subscribers_hear_what_was_committed_and_nothing_else(tmp_path: Path) -> None:
    heard: list[frozenset[WorkloadId]] = []

    def noisy(_: frozenset[WorkloadId]) -> None:
        raise RuntimeError("a listener of no concern to the writer")

    async def scenario(store: Store) -> None:
        def broken(tx: Transaction) -> None:
            tx.create_workload(desired_of(spec("lost"), project="acme"), writer=SDK)
            raise KeyError

        await store.submit(create("acme"))
        store.subscribe(noisy)
        unsubscribe = store.subscribe(heard.append)
        with pytest.raises(KeyError):
            await store.submit(broken)
        wanted = desired_of(spec("kept"), project="acme")
        await store.submit(lambda tx: tx.create_workload(wanted, writer=SDK))
        unsubscribe()
        unsubscribe()
        wanted = desired_of(spec("later"), project="acme")
        await store.submit(lambda tx: tx.create_workload(wanted, writer=SDK))

    with Store.open(tmp_path / "holdfast.db", mode=OpenMode.SERVER) as store:
        asyncio.run(scenario(store))
    assert heard == [frozenset({WorkloadId(project="acme", slug="kept")})]


def test_a_caller_who_left_before_the_work_began_gets_no_effect(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        started, go_on = threading.Event(), threading.Event()

        def slow(tx: Transaction) -> None:
            started.set()
            go_on.wait(30)

        first = asyncio.create_task(store.submit(slow))
        await asyncio.to_thread(started.wait, 30)
        second = asyncio.create_task(store.submit(create("cancelled")))
        third = asyncio.create_task(store.submit(create("kept")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        go_on.set()
        await asyncio.gather(first, third)
        assert [project.slug for project in store.projects()] == ["kept"]

    with Store.open(tmp_path / "holdfast.db", mode=OpenMode.SERVER) as store:
        asyncio.run(scenario(store))


def test_a_write_too_many_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "QUEUE_LIMIT", 3)

    async def scenario(store: Store) -> None:
        answers = await asyncio.gather(
            *(store.submit(create(f"p{number}")) for number in range(40)), return_exceptions=True
        )
        kept = [answer for answer in answers if isinstance(answer, Project)]
        refused = [answer for answer in answers if isinstance(answer, StoreBusy)]
        assert kept
        assert len(kept) + len(refused) == 40
        assert len(store.projects()) == len(kept)

    with Store.open(tmp_path / "holdfast.db", mode=OpenMode.SERVER) as store:
        asyncio.run(scenario(store))


def test_closing_finishes_what_is_queued_and_then_refuses(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = Store.open(tmp_path / "holdfast.db", mode=OpenMode.SERVER)
        waiting = [asyncio.create_task(store.submit(create(f"p{n}"))) for n in range(10)]
        await asyncio.sleep(0)
        store.close()
        assert all(isinstance(each, Project) for each in await asyncio.gather(*waiting))
        for call in (lambda: store.write(create("late")), store.projects):
            with pytest.raises(StoreUnavailable, match="closed"):
                call()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.submit(create("late"))

    asyncio.run(scenario())


def test_a_crowd_of_clients_leaves_every_generation_with_its_audit_row(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    answers = [0] * 16

    def acknowledge(client: int) -> None:
        answers[client] += 1

    with Store.open(path, mode=OpenMode.SERVER) as store:
        asyncio.run(write_concurrently(store, 16, acknowledge))
        assert [record.generation for record in store.records("acme")] == [11] * 16
    assert answers == [11] * 16
    assert broken_invariants(path) == []


def test_threads_share_an_embedded_store(tmp_path: Path) -> None:
    with Store.open(tmp_path / "holdfast.db") as store:
        errors: list[BaseException] = []

        def life(number: int) -> None:
            try:
                for turn in range(10):
                    slug = f"p{number}-{turn}"
                    store.write(create(slug))
                    assert store.project(slug) is not None
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=life, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(store.projects()) == 80


CREATORS = """
import os, sys
from holdfast.adapters.store import Store, StoreTarget
from holdfast.core.workload import desired_of
from holdfast.core.drift import find_drift
from holdfast.core.errors import Conflict
from holdfast.core.live import Absent
from holdfast.core.plan import make_plan
from holdfast.reconcile.sync_bridge import run_sync
from tests.adapters.store.store_script import SDK, spec

def create(number):
    desired = desired_of(spec("chat", replicas=number), project="acme")
    step = make_plan([find_drift(desired=desired, live=Absent(id=desired.id))]).steps[0]
    with Store.open(sys.argv[1]) as store:
        try:
            run_sync(StoreTarget(store, writer=SDK).perform(step, key=str(number)))
            return b"created\\n"
        except Conflict:
            return b"conflict\\n"

start, go = os.pipe()
children = []
for number in range(1, 65):
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(start, 1)
        try:
            os.write(1, create(number))
        except BaseException as error:
            os.write(1, repr(error).encode() + b"\\n")
        os._exit(0)
    children.append(child)
os.close(go)
for child in children:
    os.waitpid(child, 0)
"""


def test_of_64_processes_that_create_one_slug_in_a_new_file_exactly_one_does(
    tmp_path: Path,
) -> None:
    path = tmp_path / "holdfast.db"
    done = subprocess.run(
        [sys.executable, "-c", CREATORS, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.split("\n")[:-1]) == ["conflict"] * 63 + ["created"]
    with Store.open(path, mode=OpenMode.SERVER) as store:
        assert len(store.records("acme")) == 1
        assert [row.action for row in store.history("acme", slug="chat")] == ["created"]
    assert broken_invariants(path) == []


def test_a_conflict_leaves_the_store_ready_for_the_next_write(tmp_path: Path) -> None:
    with Store.open(tmp_path / "holdfast.db") as store:
        store.write(create("acme"))
        with pytest.raises(Conflict):
            store.write(create("acme"))
        store.write(create("other"))
        assert len(store.projects()) == 2


def test_closing_one_of_two_stores_of_a_process_leaves_the_other_its_locks(
    tmp_path: Path,
) -> None:
    """Else the next process to close the file would take the log away under the first."""
    path = tmp_path / "holdfast.db"
    program = (
        "import sys; from holdfast.adapters.store import Store\n"
        "store = Store.open(sys.argv[1]); store.write(lambda tx: tx.create_project('theirs'))\n"
        "store.close()"
    )
    with Store.open(path) as store:
        store.write(create("mine"))
        Store.open(path).close()
        store.check()
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
        assert path.with_name("holdfast.db-wal").exists()
        store.write(create("after"))
        assert [project.slug for project in store.projects()] == ["after", "mine", "theirs"]
