"""A disk that fills up or fails under an open store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.adapters.store.faulty_disk import FaultyDisk, Hook, disk_full, sync_failure
from tests.adapters.store.store_script import broken_invariants

from holdfast.adapters.store import OpenMode, Store, Transaction
from holdfast.core.errors import Retry, StoreFull, StoreUnavailable


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk("faulty")
    yield disk
    disk.unregister()


def slugs(store: Store) -> list[str]:
    return [project.slug for project in store.projects()]


def test_settings_are_the_ones_that_durability_rests_on(tmp_path: Path) -> None:
    with Store.open(tmp_path / "holdfast.db", mode=OpenMode.SERVER) as store:
        for connection in (store._writer, store._reader):
            assert connection.pragma("journal_mode") == "wal"
            assert connection.pragma("mmap_size") == 0
        assert store._writer.pragma("synchronous") == 2
        assert store._writer.pragma("foreign_keys") == 1
        assert store._reader.pragma("query_only") == 1


def full_from(first: int) -> Hook:
    def hook(kind: str, number: int, before: bool) -> None:
        if before and kind == "write" and number >= first:
            raise disk_full()

    return hook


@pytest.mark.parametrize("write", range(1, 12))
def test_a_full_disk_acknowledges_nothing_and_heals_without_reopening(
    disk: FaultyDisk, tmp_path: Path, write: int
) -> None:
    path = tmp_path / "holdfast.db"
    with Store.open(path, vfs=disk.name) as store:
        store.write(lambda tx: tx.create_project("before"))
        disk.hook = full_from(disk.calls + write)
        refusals: list[StoreFull] = []
        for number in range(4):
            try:
                store.write(lambda tx, number=number: tx.create_project(f"full-{number}"))
            except StoreFull as error:
                refusals.append(error)
                assert f"full-{number}" not in slugs(store)
            else:
                assert not refusals, "a write went through while the disk was full"
        assert refusals[0].retry is Retry.LATER
        assert "Free some space" in str(refusals[0])
        kept = slugs(store)
        disk.hook = None
        store.write(lambda tx: tx.create_project("healed"))
        assert slugs(store) == sorted([*kept, "healed"])
    assert broken_invariants(path) == []
    with Store.open(path) as again:
        assert slugs(again) == sorted([*kept, "healed"])


def test_every_waiter_hears_of_a_full_disk_and_can_try_again(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    async def scenario(store: Store) -> None:
        def create(number: int):  # type: ignore[no-untyped-def]  # a work
            return lambda tx: tx.create_project(f"p{number}")

        await store.submit(lambda tx: tx.create_project("before"))
        disk.hook = full_from(disk.calls + 1)
        answers = await asyncio.gather(
            *(store.submit(create(number)) for number in range(20)), return_exceptions=True
        )
        assert all(isinstance(answer, StoreFull) for answer in answers)
        assert len({id(answer) for answer in answers}) == 20
        assert slugs(store) == ["before"]
        disk.hook = None
        await asyncio.gather(*(store.submit(create(number)) for number in range(20)))
        assert len(slugs(store)) == 21

    with Store.open(tmp_path / "holdfast.db", mode=OpenMode.SERVER, vfs=disk.name) as store:
        asyncio.run(scenario(store))


def test_after_a_failed_sync_no_write_is_acknowledged_any_more(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    """The next sync would report success for pages that the kernel has dropped."""

    def hook(kind: str, number: int, before: bool) -> None:
        if before and kind == "sync":
            raise sync_failure()

    async def scenario(store: Store) -> None:
        with pytest.raises(StoreUnavailable, match="Check the disk, then restart"):
            await store.submit(lambda tx: tx.create_project("lost"))

    with Store.open(tmp_path / "holdfast.db", mode=OpenMode.SERVER, vfs=disk.name) as store:
        store.write(lambda tx: tx.create_project("before"))
        disk.hook = hook
        with pytest.raises(StoreUnavailable, match="whether it took effect is unknown"):
            store.write(lambda tx: tx.create_project("first"))
        disk.hook = None
        with pytest.raises(StoreUnavailable, match="Nothing was changed"):
            store.write(lambda tx: tx.create_project("second"))
        asyncio.run(scenario(store))
        assert "before" in slugs(store)
        assert "second" not in slugs(store)


def test_a_sync_that_fails_while_the_log_is_folded_stops_writing_too(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    with Store.open(tmp_path / "holdfast.db", vfs=disk.name) as store:
        store.write(lambda tx: tx.create_project("before"))
        syncs = 0

        def hook(kind: str, number: int, before: bool) -> None:
            nonlocal syncs
            syncs += kind == "sync" and before
            if before and kind == "sync" and syncs > 1:  # the first is the commit's own
                raise sync_failure()

        store._fold_at = 1
        disk.hook = hook
        store.write(lambda tx: tx.create_project("kept"))
        disk.hook = None
        with pytest.raises(StoreUnavailable, match="Check the disk"):
            store.write(lambda tx: tx.create_project("refused"))
        assert slugs(store) == ["before", "kept"]


def test_a_work_that_changes_nothing_does_not_touch_the_disk(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    def look(tx: Transaction) -> int:
        return len(tx.projects())

    with Store.open(tmp_path / "holdfast.db", vfs=disk.name) as store:
        store.write(lambda tx: tx.ensure_project("acme"))
        calls, serial = disk.calls, store.serial
        assert store.write(look) == 1
        store.write(lambda tx: tx.ensure_project("acme"))
        assert (disk.calls, store.serial) == (calls, serial)


def test_one_commit_waits_for_the_disk_once(disk: FaultyDisk, tmp_path: Path) -> None:
    syncs = 0

    def hook(kind: str, number: int, before: bool) -> None:
        nonlocal syncs
        syncs += kind == "sync" and before

    with Store.open(tmp_path / "holdfast.db", vfs=disk.name) as store:
        store.write(lambda tx: tx.create_project("one"))
        disk.hook = hook
        store.write(lambda tx: tx.create_project("two"))
        disk.hook = None
        assert syncs == 1
