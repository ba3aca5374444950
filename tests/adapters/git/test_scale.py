"""Repositories that are far too large, and ones that are small on the wire alone: a typed refusal
within the deadlines of the limits, and what was fetched before stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from tests.adapters.git.git_world import GitWorld, exported_files
from tests.adapters.git.test_faults import script

from holdfast.adapters.git.bare import DEFAULT_LIMITS
from holdfast.adapters.git.repository import GitRepository
from holdfast.core.errors import ValidationError
from holdfast.core.gitops.source import Ancestry
from holdfast.reconcile.gitops.ports import SourceUnavailable


def imported(world: GitWorld, stream: Iterator[str]) -> str:
    world.origin.git("fast-import", "--quiet", "--force", given="".join(stream).encode())
    return world.origin.tip("main")


def commit(number: int, *lines: str) -> str:
    head = f"commit refs/heads/main\ncommitter A <a@example.com> {1_767_225_600 + number} +0000\n"
    return head + "data 1\nx\n" + "".join(f"{line}\n" for line in lines)


def bomb(world: GitWorld, deep: int, wide: int) -> str:
    """A few objects that stand for `wide ** deep` files."""
    inner = f"100644 blob {world.origin.blob('x')}\tf"
    tree = world.origin.git("mktree", given=inner.encode())
    for _ in range(deep):
        entries = "\n".join(f"040000 tree {tree}\td{n}" for n in range(wide))
        tree = world.origin.git("mktree", given=entries.encode())
    return world.origin.commit_tree(tree)


def test_a_few_trees_that_stand_for_thousands_of_millions_of_files_are_refused(
    world: GitWorld,
) -> None:
    good = world.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        hostile = bomb(world, deep=10, wide=10)
        assert (await repository.fetch("main", known=good)).sha == hostile
        with pytest.raises((ValidationError, SourceUnavailable), match=r"over the limits|in time"):
            await exported_files(repository, hostile)
        assert await exported_files(repository, good) == {"a": b"1"}

    world.play(story)
    assert not list(world.cache.glob("repo-*/exports/new-*"))


def test_a_file_that_is_small_on_the_wire_alone_is_refused_by_its_size(world: GitWorld) -> None:
    size = DEFAULT_LIMITS.file_bytes + 1
    hostile = world.origin.commit({"zeros.yaml": bytes(size)})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        with pytest.raises(ValidationError, match=f"{size} bytes"):
            await exported_files(repository, hostile)

    world.play(story)


@pytest.mark.long
def test_three_hundred_thousand_commits_are_followed_within_the_limits(world: GitWorld) -> None:
    def history() -> Iterator[str]:
        yield commit(0, "M 100644 inline a.yaml", "data 1", "x")
        for number in range(1, 300_000):
            yield commit(number)

    tip = imported(world, history())
    world.limits = DEFAULT_LIMITS

    async def story(repository: GitRepository) -> None:
        found = await repository.fetch("main", known=None)
        assert found.sha == tip
        first = world.origin.git("rev-list", "--max-parents=0", "main")
        assert (await repository.fetch("main", known=first)).ancestry is Ancestry.AHEAD
        assert await exported_files(repository, tip) == {"a.yaml": b"x"}

    world.play(story)


@pytest.mark.long
def test_a_million_files_are_refused_by_their_number(world: GitWorld) -> None:
    def tree() -> Iterator[str]:
        yield "blob\nmark :1\ndata 1\nx\n"
        yield commit(0, *(f"M 100644 :1 d{n // 1000}/f{n}" for n in range(1_000_000)))

    tip = imported(world, tree())
    world.limits = DEFAULT_LIMITS

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        with pytest.raises(ValidationError, match="over the limits"):
            await exported_files(repository, tip)

    world.play(story)


@pytest.mark.long
def test_hundreds_of_thousands_of_branches_do_not_hide_the_one_that_is_followed(
    served: GitWorld,
) -> None:
    tip = served.origin.commit({"a": "1"})
    lines = (f"{tip} refs/heads/b{n:07}\n" for n in range(300_000))
    (served.origin.path / "packed-refs").write_text(
        "# pack-refs with: peeled fully-peeled sorted\n" + "".join(lines)
    )

    async def story(repository: GitRepository) -> None:
        assert (await repository.fetch("main", known=None)).sha == tip

    served.play(story)


GROUPS = (
    "openat", "write,pwrite64,writev", "rename,renameat,renameat2,link,linkat", "unlink,unlinkat",
    "fsync,fdatasync", "ftruncate", "mkdir,mkdirat", "chmod,fchmod,fchmodat", "read,pread64",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("group", GROUPS)
def test_a_fetch_that_is_killed_at_any_call_to_the_system_leaves_a_copy_that_serves(
    served: GitWorld, group: str
) -> None:
    """Whichever process of it makes the call is killed in the middle of it."""
    one = served.origin.commit({"a": "1"})
    when, log = served.tmp / "when", served.tmp / "log"
    served.options["git"] = script(
        served.tmp / "git",
        f'if [ "$1" = fetch ] && [ -e {when} ]; then\n'
        f"  exec strace -f -qq -A -o {log} -e trace={group} "
        f'-e inject={group}:signal=SIGKILL:when=$(cat {when}) git "$@"\nfi\nexec git "$@"',
    )
    step = 1 if group not in ("read,pread64", "openat") else 5
    kills = 0

    async def story(repository: GitRepository) -> None:
        nonlocal kills
        await repository.fetch("main", known=None)
        known, number = one, 1
        while True:
            files = {f"f{n}": os.urandom(3000) for n in range(4)}
            new = served.origin.commit(files)
            when.write_text(str(number))
            log.unlink(missing_ok=True)
            try:
                await repository.fetch("main", known=known)
            except SourceUnavailable:
                assert await exported_files(repository, one) == {"a": b"1"}, number
            killed = log.exists() and "killed by SIGKILL" in log.read_text()
            when.unlink()
            found = await repository.fetch("main", known=known)
            assert (found.sha, found.ancestry) == (new, Ancestry.AHEAD), number
            assert await exported_files(repository, new) == files, number
            if not killed or number > 400:
                return
            kills, known, number = kills + 1, new, number + step

    served.play(story)
    assert len(served.copies()) == 1
    assert not list(served.cache.glob("repo-*/copy-*/objects/*/tmp_*"))
    if group == "openat":
        assert kills > 5
