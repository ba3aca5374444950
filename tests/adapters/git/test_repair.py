"""A copy that was left locked or damaged is replaced by a new one, at the price of one fetch."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.adapters.git.git_world import GitWorld, expect_unavailable, exported_files
from tests.support.git_host import HostFault, running_children
from tests.support.processes import wait_until

from holdfast.adapters.git import bare
from holdfast.adapters.git.repository import GitRepository
from holdfast.core.gitops.source import Ancestry


def packs(copy: Path, pattern: str) -> list[Path]:
    """Name a copy's packs or their indexes, or its loose objects where it has none."""
    found = sorted((copy / "objects" / "pack").glob(pattern))
    return found or sorted(copy.glob("objects/[0-9a-f][0-9a-f]/*"))


def flip(copy: Path) -> None:
    for path in packs(copy, "*.pack"):
        data = bytearray(path.read_bytes())
        middle = len(data) // 2
        data[middle : middle + 40] = bytes(255 - byte for byte in data[middle : middle + 40])
        path.chmod(0o644)
        path.write_bytes(data)


def truncate(copy: Path) -> None:
    for path in packs(copy, "*.pack"):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-60])


def unlink(pattern: str) -> Callable[[Path], None]:
    def damage(copy: Path) -> None:
        for path in copy.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def write(name: str, text: str = "") -> Callable[[Path], None]:
    def damage(copy: Path) -> None:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)

    return damage


def locks(copy: Path) -> None:
    """What a killed git leaves beside every file that it may have been writing."""
    for path in [*copy.rglob("refs/**/*"), copy / "HEAD", copy / "config", copy / "packed-refs"]:
        if not path.is_dir():
            path.with_name(path.name + ".lock").touch()


DAMAGES = {
    "pack flipped": flip,
    "pack truncated": truncate,
    "objects gone": unlink("objects"),
    "packs gone": unlink("objects/pack"),
    "HEAD gone": unlink("HEAD"),
    "HEAD garbage": write("HEAD", "\0\0\0"),
    "config garbage": write("config", "[core\n\0"),
    "config hostile": write("config", "[core]\n\trepositoryformatversion = 99\n"),
    "refs gone": unlink("refs"),
    "refs garbage": write("packed-refs", "garbage\n"),
    "locks left": locks,
    "everything gone": unlink("*"),
    "the copy gone": shutil.rmtree,
}


@pytest.mark.parametrize(
    ("when", "name"),
    [("while running", name) for name in DAMAGES]
    + [("before a start", name) for name in ("pack flipped", "HEAD gone", "locks left")],
)
def test_a_damaged_copy_is_replaced_with_at_most_one_more_fetch(
    served: GitWorld, when: str, name: str
) -> None:
    files = {f"f{n}": os.urandom(3000).hex() for n in range(8)}
    one = served.origin.commit(files)
    served.origin.commit({**files, "g": "1"})

    async def prepare(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)

    async def after(repository: GitRepository) -> None:
        DAMAGES[name](served.copy())
        two = served.origin.commit({**files, "g": "2"})
        served.host.requests.clear()
        found = await repository.fetch("main", known=one)
        assert (found.sha, found.ancestry) == (two, Ancestry.AHEAD)
        expected = {path: text.encode() for path, text in {**files, "g": "2"}.items()}
        assert await exported_files(repository, two) == expected
        assert served.host.requests.count("fetch") <= 3

    async def both(repository: GitRepository) -> None:
        await prepare(repository)
        await after(repository)

    if when == "while running":
        served.play(both)
    else:
        served.play(prepare)
        served.play(after)
    assert len(served.copies()) == 1


@pytest.mark.parametrize("name", ["pack flipped", "objects gone", "locks left"])
def test_while_the_remote_is_away_a_damaged_copy_is_unknown_not_empty(
    served: GitWorld, name: str
) -> None:
    commit = served.origin.commit({"a": os.urandom(3000).hex()})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        async with repository.export(commit):
            DAMAGES[name](served.copy())
            served.host.fault = HostFault(status=503)
            await expect_unavailable(repository.fetch("main", known=commit))
            assert len(await exported_files(repository, commit)) == 1  # exported before, and held
        served.host.fault = None
        assert (await repository.fetch("main", known=commit)).sha == commit

    served.play(story)


def test_a_file_whose_content_is_not_what_its_id_says_is_never_exported(served: GitWorld) -> None:
    commit = served.origin.commit({"a": "good"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        evil, good = served.origin.blob("evil"), served.origin.blob("good")
        for pack in (served.copy() / "objects" / "pack").glob("*.pack"):
            data = pack.read_bytes()
            shutil.rmtree(pack.parent)
            served.origin.git("unpack-objects", "-q", given=data, GIT_DIR=str(served.copy()))
        path = served.copy() / "objects" / good[:2] / good[2:]
        path.unlink()
        shutil.copy(served.origin.path / "objects" / evil[:2] / evil[2:], path)
        assert await exported_files(repository, commit) == {"a": b"good"}

    served.play(story)


@pytest.mark.parametrize("sent", [0, 100, 4000, 60_000, 119_000, 10**9])
def test_a_fetch_that_is_killed_leaves_a_copy_that_still_serves(
    served: GitWorld, sent: int
) -> None:
    """Killed with its whole group, once that many bytes of the pack were on the way."""
    one = served.origin.commit({"a": "1"})
    killed: list[int] = []

    async def kill() -> None:
        for pid in running_children("fetch"):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
                killed.append(pid)

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        many = {f"f{n}": os.urandom(20_000) for n in range(6)}
        two = served.origin.commit(many)
        served.host.fault = HostFault(on="fetch", after=sent, then=kill)
        with suppress(Exception):  # both tries were killed, or the last byte was early enough
            await repository.fetch("main", known=one)
        assert await exported_files(repository, one) == {"a": b"1"}
        served.host.fault = None
        found = await repository.fetch("main", known=one)
        assert (found.sha, found.ancestry) == (two, Ancestry.AHEAD)
        assert await exported_files(repository, two) == many

    served.play(story)
    assert killed
    assert len(served.copies()) == 1


def test_a_killed_fetch_is_tried_once_more_by_itself(served: GitWorld) -> None:
    one = served.origin.commit({"a": "1"})

    async def kill() -> None:
        served.host.fault = None
        for pid in running_children("fetch"):
            os.killpg(pid, signal.SIGKILL)
        wait_until(lambda: not running_children("fetch"))

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        two = served.origin.commit({"a": "2"})
        served.host.fault = HostFault(on="fetch", after=10, then=kill)
        assert (await repository.fetch("main", known=one)).sha == two

    served.play(story)


def test_a_copy_of_many_packs_is_tidied_up(
    world: GitWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare, "_MANY_PACKS", 3)
    commits = [world.origin.commit({"a": str(n)}) for n in range(6)]

    async def story(repository: GitRepository) -> None:
        for commit in commits:
            await repository.fetch(commit, known=None)
            world.origin.git("repack", "-d", "-q", GIT_DIR=str(world.copy()))
        assert len(packs(world.copy(), "*.pack")) <= 5
        assert len(packs(world.copy(), "*.idx")) <= 5
        for n, commit in enumerate(commits):
            assert await exported_files(repository, commit) == {"a": str(n).encode()}

    world.play(story)
