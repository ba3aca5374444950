"""A follower asks its repository when it is time, and takes no answer from before the question."""

from __future__ import annotations

from tests.support.gitops_world import GitopsWorld, MemoryRepository, configmap

from holdfast.core.gitops.source import Commit


class Noting(MemoryRepository):
    """Notes how old an answer may be, question by question."""

    ages: list[float]

    async def fetch(self, revision: str, *, known: str | None, age: float = 0.0) -> Commit:
        self.ages.append(age)
        return await super().fetch(revision, known=known, age=age)


async def followed() -> GitopsWorld:
    world = GitopsWorld()
    world.git = Noting()
    world.git.ages = []
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.reconcile()
    return world


def ages(world: GitopsWorld) -> list[float]:
    assert isinstance(world.git, Noting)
    return world.git.ages


async def test_a_hint_wants_an_answer_from_after_it() -> None:
    world = await followed()
    assert ages(world) == [0]
    world.pass_time(10)
    assert world.context is not None
    world.context.poller.hasten()
    world.pass_time(3)
    await world.reconcile()
    assert ages(world) == [0, 3]


async def test_a_hint_to_look_later_is_not_answered_by_what_was_said_before_that() -> None:
    world = await followed()
    assert world.context is not None
    world.context.poller.hasten(within=5)
    world.pass_time(4)
    await world.reconcile()
    assert len(ages(world)) == 1
    world.pass_time(2)
    await world.reconcile()
    assert ages(world) == [0, 1]


async def test_at_its_time_an_answer_that_another_application_just_got_will_do() -> None:
    world = await followed()
    world.pass_time(61)
    await world.reconcile()
    assert ages(world) == [0, 13]  # a second late, and a fifth of the minute
