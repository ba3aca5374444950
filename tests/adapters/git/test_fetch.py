"""A fetch says which commit a revision is now, and how it stands to the one known before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.adapters.git.git_world import TOKEN, GitWorld, expect_unavailable, exported_files
from tests.support.git_host import HostFault

from holdfast.adapters.git.bare import BareRepository
from holdfast.adapters.git.repository import GitRepository
from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.source import Ancestry
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import NO_GIT_CREDENTIAL, GitCredential


def test_the_first_fetch_of_a_branch_gives_its_commit(world: GitWorld) -> None:
    commit = world.origin.commit({"a.yaml": "a: 1\n"}, message="Say hello\n\nAt length.")

    async def story(repository: GitRepository) -> None:
        found = await repository.fetch("main", known=None)
        assert (found.sha, found.ancestry) == (commit, Ancestry.FIRST)
        assert (found.author, found.subject) == ("Ada", "Say hello")
        assert found.at.isoformat() == "2026-01-01T00:01:00+00:00"

    world.play(story)


def test_ancestry_tells_every_way_in_which_a_branch_can_move(world: GitWorld) -> None:
    one = world.origin.commit({"a": "1"})
    two = world.origin.commit({"a": "2"})
    three = world.origin.commit({"a": "3"})
    other = world.origin.commit({"a": "4"}, parents=(one,), branch="other")
    strange = world.origin.commit({"a": "5"}, parents=(), branch="strange")
    table = [
        (one, one, Ancestry.SAME),
        (three, one, Ancestry.AHEAD),
        (one, three, Ancestry.REWOUND),
        (other, three, Ancestry.DIVERGED),
        (two, other, Ancestry.DIVERGED),
        (strange, three, Ancestry.UNRELATED),
        (two, strange, Ancestry.UNRELATED),
    ]

    async def story(repository: GitRepository) -> None:
        for at, known, expected in table:
            world.origin.git("update-ref", "refs/heads/main", at)
            assert (await repository.fetch("main", known=known)).ancestry == expected

    world.play(story)


def test_what_was_found_out_about_two_commits_is_not_asked_again(
    world: GitWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.origin.commit({"a": "1"})
    world.origin.commit({"a": "2"})
    asked: list[str] = []
    run = BareRepository.run

    async def noted(bare: BareRepository, *arguments: str, **more: Any) -> tuple[int, bytes]:
        asked.append(arguments[0])
        return await run(bare, *arguments, **more)

    async def story(repository: GitRepository) -> None:
        first = await repository.fetch("main", known=one)
        monkeypatch.setattr(BareRepository, "run", noted)
        assert await repository.fetch("main", known=one) == first
        assert asked == []

    world.play(story)


def test_ancestry_is_right_for_a_process_that_starts_without_a_copy(world: GitWorld) -> None:
    one = world.origin.commit({"a": "1"})
    two = world.origin.commit({"a": "2"})
    world.origin.git("update-ref", "refs/heads/main", one)

    async def story(repository: GitRepository) -> None:
        assert (await repository.fetch("main", known=two)).ancestry == Ancestry.REWOUND

    world.play(story)


def test_a_past_that_the_remote_has_lost_counts_as_unrelated(world: GitWorld) -> None:
    old = world.origin.commit({"a": "1"})
    new = world.origin.commit({"a": "2"}, parents=())
    world.origin.git("gc", "--quiet", "--prune=now")
    world.origin.git("rev-parse", "--verify", f"{new}^{{commit}}")

    async def story(repository: GitRepository) -> None:
        assert (await repository.fetch("main", known=old)).ancestry == Ancestry.UNRELATED

    world.play(story)


def test_a_repository_in_the_place_of_another_is_unrelated(world: GitWorld) -> None:
    old = world.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        world.origin.path.rename(world.tmp / "gone")
        type(world.origin).__init__(world.origin, world.origin.path)
        new = world.origin.commit({"b": "1"}, message="Another")
        found = await repository.fetch("main", known=old)
        assert (found.sha, found.ancestry) == (new, Ancestry.UNRELATED)
        assert await exported_files(repository, old) == {"a": b"1"}

    world.play(story)


def test_tags_commits_full_names_and_the_default_branch_can_be_followed(world: GitWorld) -> None:
    one = world.origin.commit({"a": "1"})
    two = world.origin.commit({"a": "2"})
    world.origin.git("tag", "light", one)
    world.origin.git("tag", "-a", "-m", "Heavy", "heavy", one)
    world.origin.git("tag", "-a", "-m", "Twice", "twice", "heavy")
    table = {"light": one, "heavy": one, "twice": one, "refs/tags/heavy": one, "HEAD": two}
    table |= {one: one, two: two, "refs/heads/main": two}

    async def story(repository: GitRepository) -> None:
        for revision, commit in table.items():
            assert (await repository.fetch(revision, known=None)).sha == commit, revision

    world.play(story)


def test_a_moved_tag_is_followed_and_told(world: GitWorld) -> None:
    one = world.origin.commit({"a": "1"})
    two = world.origin.commit({"a": "2"}, branch="side", parents=())
    world.origin.git("tag", "v1", one)

    async def story(repository: GitRepository) -> None:
        assert (await repository.fetch("v1", known=None)).sha == one
        world.origin.git("tag", "--force", "v1", two)
        moved = await repository.fetch("v1", known=one)
        assert (moved.sha, moved.ancestry) == (two, Ancestry.UNRELATED)

    world.play(story)


def test_a_name_that_is_a_branch_and_a_tag_is_refused_until_it_says_which(world: GitWorld) -> None:
    commit = world.origin.commit({"a": "1"})
    world.origin.git("tag", "main", commit)

    async def story(repository: GitRepository) -> None:
        assert "a branch and a tag" in str(
            await expect_unavailable(repository.fetch("main", known=None))
        )
        assert (await repository.fetch("refs/tags/main", known=None)).sha == commit

    world.play(story)


def test_what_is_no_commit_is_refused(world: GitWorld) -> None:
    world.origin.commit({"a": "1"})
    blob = world.origin.blob("x")
    world.origin.git("update-ref", "refs/tags/blob", blob)

    async def story(repository: GitRepository) -> None:
        for revision in ("blob", blob, "0" * 40, "nowhere", "refs/heads/main2", "ain"):
            assert "no such revision" in str(
                await expect_unavailable(repository.fetch(revision, known=None))
            )
        for hostile in ("--upload-pack=x", "HEAD:../x", "@{-1}", "a\nb", ""):
            with pytest.raises(ConfigurationError):
                await repository.fetch(hostile, known=None)
        with pytest.raises(ConfigurationError):
            await repository.fetch("main", known="HEAD")

    world.play(story)


def test_a_deleted_branch_and_an_emptied_repository_are_unknown_not_empty(world: GitWorld) -> None:
    commit = world.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        world.origin.git("update-ref", "-d", "refs/heads/main")
        await expect_unavailable(repository.fetch("main", known=commit))
        await expect_unavailable(repository.fetch("HEAD", known=commit))
        assert await repository.head("main") is None
        assert await exported_files(repository, commit) == {"a": b"1"}

    world.play(story)


def test_a_token_opens_the_repository_and_a_wrong_one_does_not(served: GitWorld) -> None:
    commit = served.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        assert (await repository.fetch("main", known=None)).sha == commit
        for wrong in (
            NO_GIT_CREDENTIAL,
            GitCredential(token=Secret("wrong")),
            GitCredential(user="x"),
        ):
            stranger = served.open(wrong)
            error = await expect_unavailable(stranger.fetch("main", known=None))
            assert "did not accept the credential" in str(error)
            await expect_unavailable(stranger.fetch(commit, known=None))
        served.host.user = "oauth2"
        renewed = served.open(GitCredential(token=Secret(TOKEN), user="oauth2"))
        assert (await renewed.fetch("main", known=None)).sha == commit

    served.play(story)


@pytest.mark.parametrize("token", ["two\nlines", "", "sp ace", "ünï"])
def test_a_token_that_is_none_is_not_sent(served: GitWorld, token: str) -> None:
    async def story(_: GitRepository) -> None:
        with pytest.raises(ConfigurationError) as refused:
            await served.open(GitCredential(token=Secret(token))).fetch("main", known=None)
        assert not token or token not in str(refused.value)

    served.play(story)
    assert served.host.requests == []


def test_the_same_fetch_from_many_applications_asks_for_one_pack(served: GitWorld) -> None:
    commit = served.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        found = await asyncio.gather(*(repository.fetch("main", known=None) for _ in range(8)))
        assert {each.sha for each in found} == {commit}
        assert served.host.requests.count("fetch") == 1
        served.origin.commit({"a": "2"})
        await asyncio.gather(*(repository.fetch("main", known=commit) for _ in range(8)))
        assert served.host.requests.count("fetch") == 2
        await repository.fetch("main", known=commit)
        assert served.host.requests.count("fetch") == 2

    served.play(story)


def test_one_answer_serves_whoever_asks_soon_after_with_the_same_credential(
    served: GitWorld,
) -> None:
    old = served.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        def asked() -> int:
            return served.host.requests.count("list")

        await repository.fetch("main", known=None)
        before = asked()
        many = (served.open().fetch("main", known=old, age=60) for _ in range(20))
        assert {found.sha for found in await asyncio.gather(*many)} == {old}
        assert asked() == before
        new = served.origin.commit({"a": "2"})
        assert (await served.open().fetch("main", known=old, age=60)).sha == old
        assert (await served.open().fetch("main", known=old)).sha == new
        before = asked()
        assert (await served.open().fetch("main", known=old, age=60)).sha == new
        assert asked() == before
        await expect_unavailable(served.open(NO_GIT_CREDENTIAL).fetch("main", known=None, age=60))

    served.play(story)


def test_a_failure_is_an_answer_for_those_who_asked_meanwhile(served: GitWorld) -> None:
    served.origin.commit({"a": "1"})

    async def story(repository: GitRepository) -> None:
        served.host.fault = HostFault(status=500)
        many = (
            expect_unavailable(served.open().fetch("main", known=None, age=60)) for _ in range(5)
        )
        await asyncio.gather(*many)
        assert served.host.requests.count("refs") == 1
        served.host.fault = None
        await repository.fetch("main", known=None)

    served.play(story)


def test_many_revisions_at_once_all_arrive(world: GitWorld) -> None:
    tips = {f"b{n}": world.origin.commit({"a": str(n)}, branch=f"b{n}") for n in range(8)}

    async def story(repository: GitRepository) -> None:
        found = await asyncio.gather(*(repository.fetch(name, known=None) for name in tips))
        assert [each.sha for each in found] == list(tips.values())

    world.play(story)


def test_a_commit_may_claim_anything_about_itself(world: GitWorld) -> None:
    world.origin.commit({"a": "1"}, message="\x1b[31mred\u202e\n" + "x" * 100_000)
    long = world.origin.commit({"a": "2"}, message="y" * 2_000_000)

    async def story(repository: GitRepository) -> None:
        found = await repository.fetch(f"{long}", known=None)
        assert found.subject == "y" * 200
        found = await repository.fetch(world.origin.git("rev-parse", "main~1"), known=None)
        assert found.subject.isprintable() and "red" in found.subject

    world.play(story)


def test_an_old_copy_serves_the_next_process(served: GitWorld) -> None:
    one = served.origin.commit({"a": "1"})
    served.play(lambda repository: repository.fetch("main", known=None))
    served.host.requests.clear()

    async def story(repository: GitRepository) -> None:
        assert (await repository.fetch("main", known=one)).ancestry == Ancestry.SAME
        assert await exported_files(repository, one) == {"a": b"1"}

    served.play(story)
    assert "fetch" not in served.host.requests
