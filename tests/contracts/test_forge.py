"""The `Forge` port, on a real Gitea and on recorded shapes of GitHub and GitLab."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.contracts.forges import NAMES, ForgeWorld, GiteaForgeWorld, serve_recorded_forge
from tests.support.fault_proxy import FaultProxy, Recorded, Response

from holdfast.adapters.forge.pull_requests import MAX_BODY, MAX_TITLE, PullRequestClient
from holdfast.core.errors import (
    OUTCOME_UNKNOWN,
    AuthError,
    NotFound,
    TargetUnavailable,
)
from holdfast.reconcile.gitops.ports import Forge, NewPullRequest, PullRequest, PullRequestState

BRANCH = "holdfast/codify/team-a-chat"
LONG_WAIT = 20.0

Scenario = Callable[[ForgeWorld, Forge], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture(params=NAMES)
def play(request: pytest.FixtureRequest) -> Play:
    """Play a scenario on a repository of its own."""

    def run(scenario: Scenario) -> None:
        async def on(world: ForgeWorld) -> None:
            forge = world.forge()
            try:
                await scenario(world, forge)
            finally:
                await forge.aclose()
                await forge.aclose()

        async def on_recorded() -> None:
            async with serve_recorded_forge(request.param) as world:
                await on(world)

        if request.param == "gitea":
            asyncio.run(on(GiteaForgeWorld(request.getfixturevalue("gitea_repository"))))
        else:
            asyncio.run(on_recorded())

    return run


def new(
    branch: str = BRANCH, title: str = "Codify chat", body: str = "Two replicas."
) -> NewPullRequest:
    return NewPullRequest(branch=branch, base="main", title=title, body=body)


async def opened(world: ForgeWorld, forge: Forge, branch: str = BRANCH) -> PullRequest:
    world.push(branch)
    return await forge.open(new(branch))


async def eventually(
    ask: Callable[[], Awaitable[PullRequest | None]], mergeable: bool
) -> PullRequest:
    deadline = asyncio.get_running_loop().time() + LONG_WAIT
    while True:
        found = await ask()
        assert found is not None
        if found.mergeable is mergeable:
            return found
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.1)


def test_a_branch_without_a_pull_request_has_none(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        assert await forge.find(BRANCH) is None
        assert await forge.past(BRANCH) == []
        assert forge.name == world.name

    play(scenario)


def test_an_opened_pull_request_is_found_as_it_was_written(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        made = await opened(world, forge)
        found = await forge.find(BRANCH)
        assert found is not None
        assert (found.number, found.state) == (made.number, PullRequestState.OPEN)
        assert (found.branch, found.base) == (BRANCH, "main")
        assert (found.title, found.body) == ("Codify chat", "Two replicas.")
        assert found.url.startswith(("http://", "https://")) and str(found.number) in found.url
        assert len(found.head) == 40
        assert found.closed_by == ""

    play(scenario)


def test_opening_twice_gives_the_one_that_is_open(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        first = await opened(world, forge)
        again = await forge.open(new(title="Another title"))
        assert again.number == first.number
        assert again.title == "Codify chat"
        assert world.numbers() == [first.number]

    play(scenario)


def test_a_lost_answer_does_not_lead_to_a_second_pull_request(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        world.push(BRANCH)
        with FaultProxy(world.url) as proxy:
            proxy.drop_response(is_creation)
            through = world.forge(proxy.url)
            with pytest.raises(TargetUnavailable) as lost:
                await through.open(new())
            assert lost.value.changed == OUTCOME_UNKNOWN
            proxy.reset()
            adopted = await through.open(new())
            assert not any(is_creation(request) for request in proxy.requests)
            await through.aclose()
        assert world.numbers() == [adopted.number]

    play(scenario)


def test_a_forge_that_says_it_is_there_already_is_believed(play: Play) -> None:
    """Two controllers look at the same time, and both find nothing."""

    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        made = await opened(world, forge)
        with FaultProxy(world.url) as proxy:
            nothing = Response(status=200, headers={"Content-Type": "application/json"}, body=b"[]")
            proxy.rewrite_response(1, lambda answer: nothing)
            through = world.forge(proxy.url)
            adopted = await through.open(new())
            assert any(is_creation(request) for request in proxy.requests)
            await through.aclose()
        assert adopted.number == made.number
        assert world.numbers() == [made.number]

    play(scenario)


def test_several_that_open_one_at_once_are_left_with_one(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        world.push(BRANCH)
        others = [world.forge() for _ in range(3)]
        await asyncio.gather(*(each.open(new()) for each in (forge, *others)))
        left = await forge.open(new())
        over = [pull.number for pull in await forge.past(BRANCH)]
        assert sorted([*over, left.number]) == sorted(world.numbers())
        for each in others:
            await each.aclose()

    play(scenario)


def test_a_pull_request_from_a_fork_is_not_taken_for_ours(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        foreign = world.pull_from_a_fork(BRANCH)
        assert await forge.find(BRANCH) is None
        made = await opened(world, forge)
        assert made.number != foreign
        found = await forge.find(BRANCH)
        assert found is not None and found.number == made.number

    play(scenario)


def test_merged_and_closed_are_told_apart_with_who_did_it(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        merged = await opened(world, forge)
        person = world.merge(merged.number)
        found = await forge.find(BRANCH)
        assert found is not None
        assert (found.state, found.closed_by) == (PullRequestState.MERGED, person)
        closed = await opened(world, forge, "holdfast/codify/team-a-embed")
        person = world.close(closed.number)
        found = await forge.find("holdfast/codify/team-a-embed")
        assert found is not None
        assert (found.state, found.closed_by) == (PullRequestState.CLOSED, person)

    play(scenario)


def test_the_newest_is_found_and_an_open_one_before_it(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        first = await opened(world, forge)
        world.close(first.number)
        second = await forge.open(new(title="Again"))
        assert second.number > first.number
        found = await forge.find(BRANCH)
        assert found is not None and found.number == second.number
        world.close(second.number)
        found = await forge.find(BRANCH)
        assert found is not None and (found.number, found.title) == (second.number, "Again")
        past = await forge.past(BRANCH)
        assert [pull.number for pull in past] == [second.number, first.number]
        assert {pull.state for pull in past} == {PullRequestState.CLOSED}
        assert (await forge.get(first.number)).title == "Codify chat"

    play(scenario)


def test_a_conflict_with_the_base_is_seen(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        await opened(world, forge)
        await eventually(lambda: forge.find(BRANCH), True)
        world.conflict(BRANCH)
        await eventually(lambda: forge.find(BRANCH), False)

    play(scenario)


def test_title_and_body_are_changed_and_the_same_ones_are_not_written(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        made = await opened(world, forge)
        with FaultProxy(world.url) as proxy:
            through = world.forge(proxy.url)
            changed = await through.update(made.number, title="Three", body="Line\n\nOther line")
            assert (changed.title, changed.body) == ("Three", "Line\n\nOther line")
            written = len(proxy.mutating)
            await through.update(made.number, title="Three", body="Line\r\n\r\nOther line\n")
            assert len(proxy.mutating) == written
            await through.aclose()
        found = await forge.find(BRANCH)
        assert found is not None and found.title == "Three"

    play(scenario)


def test_a_draft_stays_one_when_its_title_changes(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        world.push(BRANCH)
        made = await forge.open(
            NewPullRequest(branch=BRANCH, base="main", title="Codify", body="", draft=True)
        )
        assert made.title == "Codify"
        assert world.is_draft(made.number)
        changed = await forge.update(made.number, title="Codify it", body="")
        assert changed.title == "Codify it"
        assert world.is_draft(made.number)
        assert world.title(made.number).endswith("Codify it")

    play(scenario)


def test_labels_are_put_on_and_made_where_they_are_missing(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        world.push(BRANCH)
        world.push("holdfast/codify/other")
        labels = ("holdfast", "drift/image")
        for branch in (BRANCH, "holdfast/codify/other"):
            made = await forge.open(
                NewPullRequest(branch=branch, base="main", title="T", body="", labels=labels)
            )
            assert world.labels(made.number) == set(labels)

    play(scenario)


def test_a_comment_is_said_once(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        made = await opened(world, forge)
        await forge.comment(made.number, "The live object is back.\n\nNothing to do.")
        await forge.comment(made.number, "The live object is back.\n\nNothing to do.\n")
        await forge.comment(made.number, "Something else.")
        assert len(world.comments(made.number)) == 2

    play(scenario)


def test_a_comment_whose_answer_was_lost_is_said_once(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        made = await opened(world, forge)
        with FaultProxy(world.url) as proxy:
            proxy.drop_response(lambda request: request.method == "POST")
            through = world.forge(proxy.url)
            with pytest.raises(TargetUnavailable):
                await through.comment(made.number, "Back.")
            await through.aclose()
        await forge.comment(made.number, "Back.")
        assert world.comments(made.number) == ["Back."]

    play(scenario)


def test_text_of_others_is_text_and_no_command(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        world.push(BRANCH)
        made = await forge.open(new(body="The value was:\n/merge\n/close"))
        await forge.comment(made.number, "/close\n")
        again = await forge.update(made.number, title="Codify chat", body="/approve\nand so on")
        assert again.state is PullRequestState.OPEN
        assert "approve" in again.body

    play(scenario)


def test_what_is_too_long_is_shortened_and_keeps_its_marker(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        world.push(BRANCH)
        marker = "<!-- holdfast:drift=drf-7k2m -->"
        body = "a line of the table\n" * 5000 + marker
        made = await forge.open(new(title="Ţ" * 400, body=body))
        assert len(made.title) <= MAX_TITLE
        assert len(made.body) <= MAX_BODY
        assert made.body.rstrip().endswith(marker) and "too long" in made.body
        with FaultProxy(world.url) as proxy:
            through = world.forge(proxy.url)
            await through.update(made.number, title="Ţ" * 400, body=body)
            assert proxy.mutating == []
            await through.aclose()

    play(scenario)


def test_closing_says_why_and_leaves_what_is_closed_or_merged(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        made = await opened(world, forge)
        closed = await forge.close(made.number, comment="It is as declared again.")
        assert closed.state is PullRequestState.CLOSED and closed.closed_by
        assert world.comments(made.number) == ["It is as declared again."]
        again = await forge.close(made.number, comment="Once more.")
        assert again.state is PullRequestState.CLOSED
        merged = await opened(world, forge, "holdfast/codify/merged")
        world.merge(merged.number)
        kept = await forge.close(merged.number, comment="Too late.")
        assert kept.state is PullRequestState.MERGED
        assert world.comments(merged.number) == []

    play(scenario)


def test_what_is_over_is_told_for_each_branch_and_what_is_open_is_not(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        await opened(world, forge, "holdfast/codify/a")
        merged = await opened(world, forge, "holdfast/revert/b")
        closed = await opened(world, forge, "holdfast/codify/d")
        world.merge(merged.number)
        world.close(closed.number)
        assert await forge.past("holdfast/codify/a") == []
        (found,) = await forge.past("holdfast/revert/b")
        assert (found.number, found.state) == (merged.number, PullRequestState.MERGED)
        assert found.body == "Two replicas."
        (found,) = await forge.past("holdfast/codify/d")
        assert (found.number, found.state) == (closed.number, PullRequestState.CLOSED)

    play(scenario)


def test_a_number_that_is_not_there_is_not_found(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        for ask in (
            lambda: forge.update(99, title="T", body=""),
            lambda: forge.comment(99, "text"),
            lambda: forge.close(99),
            lambda: forge.get(99),
        ):
            with pytest.raises(NotFound):
                await ask()

    play(scenario)


def test_a_wrong_token_is_told_from_a_missing_pull_request(play: Play) -> None:
    async def scenario(world: ForgeWorld, forge: Forge) -> None:
        stranger: PullRequestClient = world.forge(token="not-a-token-of-this-forge")
        with pytest.raises(AuthError) as refused:
            await stranger.find(BRANCH)
        assert "not-a-token" not in str(refused.value)
        await stranger.aclose()

    play(scenario)


def is_creation(request: Recorded) -> bool:
    return request.method == "POST" and request.path.endswith(("/pulls", "/merge_requests"))
