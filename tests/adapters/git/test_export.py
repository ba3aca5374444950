"""An export is the files of one commit: regular ones alone, read-only, within limits."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from tests.adapters.git.git_world import GitWorld, expect_unavailable, exported_files, files_below

from holdfast.adapters.git import export as files
from holdfast.adapters.git.bare import BareRepository, GitLimits
from holdfast.adapters.git.command import GitProgram
from holdfast.adapters.git.repository import GitRepository
from holdfast.core.errors import ConfigurationError, ValidationError


def test_files_are_exported_byte_for_byte(world: GitWorld) -> None:
    declared = {
        "a.yaml": b"a: 1\r\n",
        "deep/er/b": b"",
        "deep/er/c": bytes(range(256)) * 9000,
        "with space\u2028and ünï": b"x",
        ".gitattributes": b"* text=auto filter=evil ident\n",
        ".gitmodules": b'[submodule "x"]\n\tpath = x\n\turl = ext::sh -c touch% /tmp/x\n',
        "ident": b"$Id$\n",
        "lfs.yaml": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "Case": b"upper",
        "case": b"lower",
    }
    commit = world.origin.commit(declared)

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        async with repository.export(commit) as export:
            assert export.commit == commit and export.left_out == {}
            assert files_below(export.root) == declared

    world.play(story)


def test_an_export_is_read_only(world: GitWorld) -> None:
    world.origin.git("config", "core.fileMode", "true")
    entry = ("100755", world.origin.blob("#!/bin/sh"), b"bin/run")
    commit = world.origin.commit_entries([entry])

    async def story(repository: GitRepository) -> None:
        async with repository.export(commit) as export:
            modes = [stat.S_IMODE(path.stat().st_mode) for path in export.root.rglob("*")]
            assert sorted([*modes, stat.S_IMODE(export.root.stat().st_mode)]) == [
                0o444,
                0o555,
                0o555,
            ]

    world.play(story)


def test_links_submodules_and_odd_names_are_left_out_with_the_reason(world: GitWorld) -> None:
    world.tmp.joinpath("secret").write_text("outside")
    blob = world.origin.blob("x")
    commit = world.origin.commit_entries(
        [
            ("100644", blob, b"good.yaml"),
            ("120000", world.origin.blob(str(world.tmp / "secret")), b"link.yaml"),
            ("120000", world.origin.blob(".."), b"up"),
            ("160000", "1" * 40, b"module"),
            ("100644", blob, b"bad-\xff.yaml"),
            ("100644", blob, b"bad\nline.yaml"),
            ("100644", blob, b"n" * 300),
        ]
    )

    async def story(repository: GitRepository) -> None:
        async with repository.export(commit) as export:
            assert files_below(export.root) == {"good.yaml": b"x"}
            assert set(os.listdir(export.root)) == {"good.yaml"}
            assert dict(export.left_out) == {
                "link.yaml": "is a link, which is never followed",
                "up": "is a link, which is never followed",
                "module": "is a submodule, which is not fetched",
                "bad-\\xff.yaml": "has a name that is not UTF-8",
                "bad\nline.yaml": "has control characters in its name",
                "n" * 300: "has a name that is too long",
            }

    world.play(story)


RESERVED = dict(enumerate((b".git", b".GIT", b"..", b".", b"git~1")))
RESERVED[9] = ".g\u200cit".encode()


def hostile_tree(world: GitWorld, name: bytes, branch: str = "main") -> str:
    blob = bytes.fromhex(world.origin.blob("x"))
    inner = world.origin.git(
        "hash-object", "-t", "tree", "-w", "--literally", "--stdin",
        given=b"100644 config\0" + blob,
    )  # fmt: skip
    tree = world.origin.git(
        "hash-object", "-t", "tree", "-w", "--literally", "--stdin",
        given=b"40000 " + name + b"\0" + bytes.fromhex(inner),
    )  # fmt: skip
    return world.origin.commit_tree(tree, branch=branch)


def test_a_tree_with_names_that_git_reserves_is_not_even_taken(world: GitWorld) -> None:
    commits = {f"b{n}": hostile_tree(world, name, f"b{n}") for n, name in RESERVED.items()}

    async def story(repository: GitRepository) -> None:
        for branch, commit in commits.items():
            assert "malformed" in str(
                await expect_unavailable(repository.fetch(branch, known=None))
            )
            await expect_unavailable(exported_files(repository, commit))

    world.play(story)


def test_and_if_one_were_here_it_would_be_left_out(world: GitWorld) -> None:
    bare = BareRepository(world.origin.path, git=GitProgram(), home=world.tmp, limits=GitLimits())
    folder = world.tmp / "folder"
    folder.mkdir()
    for name in RESERVED.values():
        commit = hostile_tree(world, name)
        left_out = asyncio.run(files.write_files(bare, commit, folder))
        assert list(left_out.values()) == ["has a name that Git reserves"]
        assert files_below(folder) == {}


@pytest.mark.parametrize(
    ("limits", "output"),
    [
        (GitLimits(files=2), "3 files"),
        (GitLimits(file_bytes=99), "'b' has 100 bytes"),
        (GitLimits(total_bytes=109), "110 bytes together"),
    ],
)
def test_a_commit_over_the_limits_is_refused_before_it_is_written(
    world: GitWorld, limits: GitLimits, output: str
) -> None:
    commit = world.origin.commit({"a": "12345", "b": "x" * 100, "c": "12345"})
    world.limits = limits

    async def story(repository: GitRepository) -> None:
        with pytest.raises(ValidationError, match="over the limits") as refused:
            await exported_files(repository, commit)
        assert output in str(refused.value)
        assert list(world.cache.glob("repo-*/exports/*")) == []

    world.play(story)
    world.limits = GitLimits(files=3, file_bytes=100, total_bytes=110)
    assert len(world.play(lambda repository: exported_files(repository, commit))) == 3


def test_a_list_of_files_that_is_too_long_is_refused(
    world: GitWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MAX_LISTING", 200)
    commit = world.origin.commit({f"file-{n}": "x" for n in range(10)})

    async def story(repository: GitRepository) -> None:
        with pytest.raises(ValidationError, match="list of files"):
            await exported_files(repository, commit)

    world.play(story)


def test_holders_share_one_export_and_the_last_ones_are_kept(world: GitWorld) -> None:
    commits = [world.origin.commit({"a": str(n)}) for n in range(5)]
    world.limits = replace(world.limits, idle_exports=2)

    def exported() -> int:
        return len(list(world.cache.glob("repo-*/exports/*")))

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        other = world.open()

        async def root(which: GitRepository) -> Path:
            async with which.export(commits[0]) as export:
                await asyncio.sleep(0)
                return export.root

        roots = await asyncio.gather(*(root(each) for each in (repository, other) * 4))
        assert len(set(roots)) == 1
        async with repository.export(commits[0]) as held:
            for commit in commits[1:]:
                await exported_files(repository, commit)
            assert files_below(held.root) == {"a": b"0"}
            assert exported() == 3
        assert exported() == 2

    world.play(story)


def test_an_export_stays_what_it_is_while_the_branch_moves_and_the_copy_is_replaced(
    world: GitWorld,
) -> None:
    commit = world.origin.commit({"a": "1", "b/c": "2"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        async with repository.export(commit) as export:
            new = world.origin.commit({"a": "other"}, parents=())
            world.copy().joinpath("HEAD").unlink()
            assert (await repository.fetch("main", known=commit)).sha == new
            assert await exported_files(repository, new) == {"a": b"other"}
            assert files_below(export.root) == {"a": b"1", "b/c": b"2"}

    world.play(story)


def test_a_commit_that_is_nowhere_is_unavailable(world: GitWorld) -> None:
    world.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        await expect_unavailable(exported_files(repository, "1" * 40))
        with pytest.raises(ConfigurationError):
            await exported_files(repository, "main")
        assert list(world.cache.glob("repo-*/exports/*")) == []

    world.play(story)


def test_a_full_disk_is_said_clearly_and_leaves_nothing_half_written(
    world: GitWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = world.origin.commit({"a": "1", "b": "2"})

    write = os.write

    def full(file: int, data: bytes) -> int:
        if stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)  # the loop's own wake-up

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        with monkeypatch.context() as patched:
            patched.setattr(files.os, "write", full)
            error = await expect_unavailable(exported_files(repository, commit))
        assert "no space left" in str(error)
        assert list(world.cache.glob("repo-*/exports/*")) == []
        assert len(await exported_files(repository, commit)) == 2

    world.play(story)


def test_what_happens_in_the_block_is_not_taken_for_trouble_with_the_export(
    world: GitWorld,
) -> None:
    commit = world.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        with pytest.raises(FileNotFoundError):
            async with repository.export(commit) as export:
                (export.root / "nothing").read_bytes()

    world.play(story)


def test_two_thousand_files_are_written_in_one_go(world: GitWorld) -> None:
    blobs = [("100644", world.origin.blob(f"a: {n}\n" * 40), n) for n in range(20)]
    entries = [
        (mode, blob, b"apps/%d/%d.yaml" % (n, at)) for at in range(100) for mode, blob, n in blobs
    ]
    commit = world.origin.commit_entries(entries)

    async def story(repository: GitRepository) -> None:
        found = await exported_files(repository, commit)
        assert len(found) == 2000
        assert found["apps/7/33.yaml"] == b"a: 7\n" * 40

    world.play(story)
