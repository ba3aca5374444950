"""One folder, one process, one copy for each address, and a bound for all of them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.adapters.git.git_world import TOKEN, GitWorld, expect_unavailable, exported_files
from tests.support.git_host import BareRepository

from holdfast.adapters.git.address import parse_address
from holdfast.adapters.git.repository import GitRepositories, GitRepository
from holdfast.core.errors import ConfigurationError
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import GitCredential, Repository


def test_what_is_opened_is_the_port(world: GitWorld) -> None:
    async def story(repository: GitRepository) -> None:
        port: Repository = repository
        assert await port.head("main") is None

    world.play(story)


def test_equal_addresses_share_a_copy_and_others_do_not(world: GitWorld) -> None:
    world.origin.commit({"a": "1"})
    other = BareRepository(world.tmp / "other" / "origin.git")
    other.commit({"a": "2"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        await world.open().fetch("main", known=None)
        assert len(world.copies()) == 1
        address = parse_address(str(other.path), local=True)
        await world.repositories.open(address).fetch("main", known=None)
        assert len(world.copies()) == 2

    world.play(story)


def test_a_new_credential_counts_for_the_next_call(served: GitWorld) -> None:
    commit = served.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        served.host.token = "renewed"
        await expect_unavailable(repository.fetch("main", known=commit))
        renewed = served.open(GitCredential(token=Secret("renewed")))
        assert (await renewed.fetch("main", known=commit)).sha == commit
        assert served.host.requests.count("fetch") == 1
        served.host.token = TOKEN

    served.play(story)


def test_a_second_process_cannot_use_the_same_folder(world: GitWorld) -> None:
    async def story(_: GitRepository) -> None:
        with pytest.raises(ConfigurationError, match="Another process"):
            GitRepositories(world.cache)

    world.play(story)
    world.play(lambda repository: repository.head("main"))


def test_a_folder_that_cannot_be_made_is_said_clearly(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be kept"):
        GitRepositories(tmp_path / "file" / "cache")


def test_the_copies_that_were_used_least_lately_make_room(world: GitWorld) -> None:
    origins = [BareRepository(world.tmp / f"o{n}.git") for n in range(4)]
    tips = [origin.commit({"a": os.urandom(300_000)}) for origin in origins]
    world.options["disk"] = 800_000

    def names() -> set[str]:
        return {path.parent.name.split("-")[1] for path in world.copies()}

    async def story(_: GitRepository) -> None:
        opened = [
            world.repositories.open(parse_address(str(origin.path), local=True))
            for origin in origins
        ]
        for repository in opened[:3]:
            await repository.fetch("main", known=None)
        assert names() == {"o1", "o2"}
        async with opened[1].export(tips[1]) as held:
            await opened[3].fetch("main", known=None)
            assert names() == {"o1", "o3"}  # what is held stays, though it is older
            assert (held.root / "a").stat().st_size == 300_000
        assert len((await exported_files(opened[0], tips[0]))["a"]) == 300_000

    world.play(story)


def test_what_a_killed_process_left_is_cleared_at_the_next_start(world: GitWorld) -> None:
    commit = world.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        await exported_files(repository, commit)

    world.play(story)
    folder = world.copy().parent
    assert list(folder.glob("exports/*"))
    (folder / "copy-halfmade" / "objects").mkdir(parents=True)
    (folder / "link-halfmade").symlink_to("nowhere")
    world.play(lambda repository: repository.head("main"))
    assert sorted(path.name for path in folder.iterdir()) == sorted([world.copy().name, "current"])
    world.play(story)


def test_many_applications_of_one_repository_do_not_get_in_each_others_way(
    served: GitWorld,
) -> None:
    tips = {f"b{n}": served.origin.commit({"a": str(n)}, branch=f"b{n}") for n in range(5)}
    served.limits = replace(served.limits, list_timeout=30, fetch_timeout=30, idle_exports=1)

    async def application(name: str) -> dict[str, bytes]:
        repository = served.open()
        found = await repository.fetch(name, known=None)
        return await exported_files(repository, found.sha)

    async def story(_: GitRepository) -> None:
        found = await asyncio.gather(*(application(name) for name in tips for _ in range(3)))
        assert found == [{"a": name[1:].encode()} for name in tips for _ in range(3)]

    served.play(story)
    assert len(served.copies()) == 1
