"""Branches of ours are written without a work tree, and never over the work of people."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.adapters.git.git_world import (
    AT,
    BRANCH,
    MESSAGE,
    GitWorld,
    expect_unavailable,
    make_push,
)
from tests.support.git_host import BareRepository, HostFault

from holdfast.adapters.git.repository import GitRepository
from holdfast.core.errors import (
    ConfigurationError,
    Conflict,
    PermissionDenied,
    ValidationError,
)
from holdfast.reconcile.gitops.ports import HumanCommits, SourceUnavailable


def test_a_push_puts_one_commit_on_its_base(served: GitWorld) -> None:
    origin = served.origin
    base = origin.commit({"a.yaml": "a: 1\n", "deep/b.yaml": "b", "c": "c"})

    async def story(repository: GitRepository) -> None:
        assert await repository.head(BRANCH) is None
        files = {"a.yaml": b"a: 2\r\n\0", "deep/b.yaml": None, "new/with space": b""}
        commit = await repository.push(make_push(base, files))
        assert await repository.head(BRANCH) == commit == origin.tip(BRANCH)
        who = "Holdfast <holdfast@users.noreply.holdfast.dev> 1780315200 +0000"
        raw = origin.git("cat-file", "commit", commit)
        assert raw.splitlines()[1:4] == [f"parent {base}", f"author {who}", f"committer {who}"]
        assert raw.partition("\n\n")[2] == MESSAGE.strip()
        listed = origin.git("ls-tree", "-r", "--name-only", commit)
        assert listed.splitlines() == ["a.yaml", "c", "new/with space"]
        size = origin.git("cat-file", "-s", f"{commit}:a.yaml")
        assert int(size) == len(b"a: 2\r\n\0")
        assert origin.tip("main") == base
        origin.git("fsck", "--strict")

    served.play(story)


def test_equal_pushes_have_equal_ids_and_are_pushed_once(served: GitWorld) -> None:
    base = served.origin.commit({"a.yaml": "a: 1\n"})

    async def story(repository: GitRepository) -> None:
        first = await repository.push(make_push(base))
        assert await repository.push(make_push(base)) == first
        later = make_push(base, message=MESSAGE + "Other: words\n", at=AT + timedelta(days=1))
        assert await repository.push(later) == first
        assert served.host.requests.count("push") == 1
        served.origin.git("update-ref", "-d", f"refs/heads/{BRANCH}")
        assert await repository.push(make_push(base)) == first

    served.play(story)


def test_what_we_pushed_is_replaced_when_the_change_or_the_base_is_another(world: GitWorld) -> None:
    origin = world.origin
    base = origin.commit({"a.yaml": "a: 1\n"})

    async def story(repository: GitRepository) -> None:
        first = await repository.push(make_push(base))
        second = await repository.push(make_push(base, {"a.yaml": b"a: 3\n"}))
        moved = origin.commit({"a.yaml": "a: 1\n", "b": "b"})
        third = await repository.push(make_push(moved, {"a.yaml": b"a: 3\n"}))
        assert len({first, second, third}) == 3
        assert origin.tip(BRANCH) == third
        assert origin.git("rev-list", f"{base}..{third}").splitlines() == [third, moved]
        rewritten = origin.commit({"a.yaml": "a: 9\n"}, parents=())
        fourth = await repository.push(make_push(rewritten, {"a.yaml": b"a: 3\n"}))
        assert origin.git("rev-list", fourth).splitlines() == [fourth, rewritten]

    world.play(story)


def on_top(origin: BareRepository) -> str:
    return origin.commit({"a.yaml": "mine"}, branch=BRANCH)


def amended(origin: BareRepository) -> str:
    tip = origin.tip(BRANCH)
    tree, parent = origin.git("rev-parse", f"{tip}^{{tree}}", f"{tip}^").split()
    return origin.commit_tree(tree, branch=BRANCH, message=MESSAGE, parents=(parent,))


def merged(origin: BareRepository) -> str:
    main = origin.commit({"a.yaml": "a: 1\n", "b": "b"})
    tip = origin.tip(BRANCH)
    return origin.commit({"a.yaml": "x"}, branch=BRANCH, parents=(tip, main))


def replaced(origin: BareRepository) -> str:
    return origin.commit({"mine": "mine"}, branch=BRANCH, parents=())


@pytest.mark.parametrize("change", [on_top, amended, merged, replaced])
def test_a_branch_with_a_commit_of_a_person_is_neither_written_nor_deleted(
    world: GitWorld, change: object
) -> None:
    base = world.origin.commit({"a.yaml": "a: 1\n"})

    async def story(repository: GitRepository) -> None:
        await repository.push(make_push(base))
        assert callable(change)
        theirs = change(world.origin)
        for files in ({"a.yaml": b"a: 3\n"}, None):
            with pytest.raises(HumanCommits, match="did not make"):
                await repository.push(make_push(base, files))
        with pytest.raises(HumanCommits):
            await repository.delete(BRANCH)
        assert world.origin.tip(BRANCH) == theirs

    world.play(story)


def test_a_branch_that_was_merged_whole_is_ours_again(world: GitWorld) -> None:
    """Whatever a person added to it is in the base, so that nothing is lost."""
    base = world.origin.commit({"a.yaml": "a: 1\n"})

    async def story(repository: GitRepository) -> None:
        await repository.push(make_push(base))
        theirs = on_top(world.origin)
        merge = world.origin.commit({"a.yaml": "a: 1\n", "b": "b"}, parents=(base, theirs))
        ours = await repository.push(make_push(merge))
        assert world.origin.tip(BRANCH) == ours
        assert world.origin.git("rev-parse", f"{ours}^") == merge

    world.play(story)


def test_other_branches_are_not_ours_to_write(world: GitWorld) -> None:
    base = world.origin.commit({"a.yaml": "a: 1\n"})

    async def story(repository: GitRepository) -> None:
        with pytest.raises(HumanCommits):
            await repository.push(make_push(base, branch="main"))
        with pytest.raises(HumanCommits):
            await repository.delete("main")
        for hostile in ("--all", "refs/heads/main", "HEAD", "a:b", "+main", ":main"):
            if hostile == "+main":
                continue  # a name like any other, once it stands behind refs/heads/
            with pytest.raises(ConfigurationError):
                await repository.push(make_push(base, branch=hostile))
            with pytest.raises(ConfigurationError):
                await repository.delete(hostile)
            with pytest.raises(ConfigurationError):
                await repository.head(hostile)
        assert world.origin.tip("main") == base

    world.play(story)


@pytest.mark.parametrize("when", ["begin-push", "push"])
@pytest.mark.parametrize("existing", [False, True])
def test_a_branch_that_moves_while_we_push_is_left_as_it_is(
    served: GitWorld, when: str, existing: bool
) -> None:
    base = served.origin.commit({"a.yaml": "a: 1\n"})
    theirs: list[str] = []

    def move(kind: str) -> None:
        if kind == when and not theirs:
            theirs.append(served.origin.commit({"theirs": "1"}, branch=BRANCH, parents=()))

    async def story(repository: GitRepository) -> None:
        if existing:
            await repository.push(make_push(base))
        served.host.before = move
        with pytest.raises(Conflict, match="moved while") as refused:
            await repository.push(make_push(base, {"a.yaml": b"a: 3\n"}))
        assert not isinstance(refused.value, HumanCommits)
        assert [served.origin.tip(BRANCH)] == theirs

    served.play(story)


def test_a_branch_of_ours_is_deleted_once(world: GitWorld) -> None:
    base = world.origin.commit({"a.yaml": "a: 1\n"})

    async def story(repository: GitRepository) -> None:
        assert await repository.delete(BRANCH) is False
        await repository.push(make_push(base))
        assert await repository.delete(BRANCH) is True
        assert world.origin.tip(BRANCH) == ""
        assert await repository.delete(BRANCH) is False

    world.play(story)


def test_a_push_whose_answer_is_lost_is_found_to_have_arrived(served: GitWorld) -> None:
    base = served.origin.commit({"a.yaml": "a: 1\n"})

    async def story(repository: GitRepository) -> None:
        served.host.fault = HostFault(on="push", after=0)
        commit = await repository.push(make_push(base))
        assert served.origin.tip(BRANCH) == commit
        assert await repository.delete(BRANCH) is True
        assert served.origin.tip(BRANCH) == ""

    served.play(story)


def test_a_push_that_nobody_can_ask_about_is_unknown(served: GitWorld) -> None:
    base = served.origin.commit({"a.yaml": "a: 1\n"})

    def fail(kind: str) -> None:
        if kind == "push":
            served.host.fault = HostFault(status=500)

    async def story(repository: GitRepository) -> None:
        served.host.fault = HostFault(on="push", after=0)
        served.host.before = fail
        error = await expect_unavailable(repository.push(make_push(base)))
        assert "unknown" in str(error)
        served.host.fault = None
        served.host.before = lambda _: None
        assert await repository.push(make_push(base)) == served.origin.tip(BRANCH)

    served.play(story)


@pytest.mark.parametrize("kind", ["refs", "begin-push", "push"])
@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_push_that_fails_changes_nothing(served: GitWorld, kind: str, status: int) -> None:
    base = served.origin.commit({"a.yaml": "a: 1\n"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        served.host.fault = HostFault(on=kind, status=status)
        declined = status == 403 and kind != "refs"
        with pytest.raises(PermissionDenied if declined else SourceUnavailable):
            await repository.push(make_push(base))
        assert served.origin.tip(BRANCH) == ""

    served.play(story)


def test_a_branch_that_the_remote_protects_is_not_permitted(world: GitWorld) -> None:
    base = world.origin.commit({"a.yaml": "a: 1\n"})
    hook = world.origin.path / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'not on \033[31mmy\033[0m watch' >&2\nexit 1\n")
    hook.chmod(0o755)

    async def story(repository: GitRepository) -> None:
        with pytest.raises(PermissionDenied, match="declined") as refused:
            await repository.push(make_push(base))
        assert "watch" in str(refused.value) and str(refused.value).isprintable()

    world.play(story)


def test_a_path_that_is_none_is_refused(world: GitWorld) -> None:
    base = world.origin.commit({"a.yaml": "a: 1\n"})
    paths = [
        "", "/a", "a/", "../a", "a/../b", "./a", "a//b", ".git/config", "a/.GIT/hooks/x", "a\nb",
        '"a"', "a\\b", ".gitmodules", ".gitattributes", "a\0b",
    ]  # fmt: skip

    async def story(repository: GitRepository) -> None:
        for path in paths:
            for content in (b"x", None):
                with pytest.raises(ValidationError, match="may be written"):
                    await repository.push(make_push(base, {path: content}))
        assert world.origin.tip(BRANCH) == ""

    world.play(story)


def test_links_folders_and_submodules_are_not_written_over(world: GitWorld) -> None:
    blob = world.origin.blob("x")
    base = world.origin.commit_entries(
        [
            ("120000", blob, b"link"),
            ("160000", "1" * 40, b"module"),
            ("100644", blob, b"folder/file"),
            ("100755", blob, b"run"),
        ]
    )

    async def story(repository: GitRepository) -> None:
        for path in ("link", "link/x", "module", "module/x", "folder", "folder/file/x"):
            with pytest.raises(ValidationError, match="there"):
                await repository.push(make_push(base, {path: b"y"}))
        commit = await repository.push(make_push(base, {"run": b"y", "folder/new": b"z"}))
        listed = world.origin.git("ls-tree", "-r", commit, "run", "folder/new").splitlines()
        assert [line.split()[0] for line in listed] == ["100644", "100755"]

    world.play(story)


def test_a_push_that_would_change_nothing_or_not_be_known_as_ours_is_refused(
    world: GitWorld,
) -> None:
    base = world.origin.commit({"a.yaml": "a: 2\n"})

    async def story(repository: GitRepository) -> None:
        for push in (
            make_push(base),
            make_push(base, {"missing": None}),
            make_push(base, {}),
            make_push(base, {"b": b"1"}, message="Without its trailer"),
        ):
            with pytest.raises(ValidationError):
                await repository.push(push)
        await expect_unavailable(repository.push(make_push("1" * 40)))
        assert world.origin.tip(BRANCH) == ""

    world.play(story)


def test_a_message_cannot_break_out_of_its_commit(world: GitWorld) -> None:
    base = world.origin.commit({"a.yaml": "a: 1\n"})
    message = "x\nM 100644 inline evil\ndata 1\nx\n\ncommit refs/heads/main\n" + MESSAGE

    async def story(repository: GitRepository) -> None:
        commit = await repository.push(make_push(base, message=message))
        assert world.origin.git("ls-tree", "--name-only", commit) == "a.yaml"
        assert world.origin.tip("main") == base

    world.play(story)


def test_pushes_to_many_branches_at_once_all_arrive(world: GitWorld) -> None:
    base = world.origin.commit({"a.yaml": "a: 1\n"})

    async def story(repository: GitRepository) -> None:
        pushes = [
            make_push(base, {f"f{n}": b"x"}, branch=f"holdfast/revert/drf-{n}") for n in range(6)
        ]
        commits = await asyncio.gather(*(repository.push(each) for each in pushes))
        assert [world.origin.tip(each.branch) for each in pushes] == list(commits)

    world.play(story)


def test_a_push_from_a_damaged_copy_arrives_from_a_new_one(world: GitWorld) -> None:
    base = world.origin.commit({"a.yaml": "a: 1\n"})

    async def story(repository: GitRepository) -> None:
        await repository.fetch("main", known=None)
        world.copy().joinpath("HEAD").unlink()
        assert await repository.push(make_push(base)) == world.origin.tip(BRANCH)

    world.play(story)
