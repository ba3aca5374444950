"""Fights over hours and days, and clocks that jump: nothing hot, nothing stuck, nothing revived."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
import tests.support.gitops_world as world_module
from tests.faults.gitops_story import PROJECT
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route
from tests.support.operator_world import ManualClock

from holdfast.core.errors import TargetUnavailable, ValidationError
from holdfast.core.gitops.application import DriftSpec, HoldEnd, IgnoreSpec, Remediation
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.hold import PAUSED_UNTIL
from holdfast.core.object_ref import ref_of
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import RecordKind

A = config_ref("a")
HOUR, DAY, DECADE = timedelta(hours=1), timedelta(days=1), timedelta(days=3650)


class JumpClock(ManualClock):
    """Time that somebody sets, while the seconds that pass are counted all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0
        self.began = self.time

    def now(self) -> datetime:
        return self.time + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed

    async def sleep(self, seconds: float) -> None:
        self.passed += seconds

    def jump(self, by: timedelta) -> None:
        self.time += by


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "ManualClock", JumpClock)


def jumping(world: GitopsWorld) -> JumpClock:
    assert isinstance(world.clock, JumpClock)
    return world.clock


async def one(remediation: Remediation = Remediation.SELF_HEAL) -> GitopsWorld:
    world = GitopsWorld(route(remediation))
    spec = world.application.spec
    slow = replace(spec, source=replace(spec.source, interval="6h"))
    world.application = replace(world.application, spec=slow)
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", x="1")})
    await world.reconcile()
    return world


def edit(world: GitopsWorld, value: str = "9", manager: str = "rogue-cron") -> None:
    world.kube.edit(A, lambda item: item["data"].update(x=value), manager=manager)


def heals(world: GitopsWorld) -> int:
    """Writes to the object beside its creation, dry runs aside."""
    ours = (w for w in world.kube.writes if w.ref == A and w.manager == "holdfast-gitops")
    return sum(not write.dry_run for write in ours) - 1


async def fought(world: GitopsWorld, lasts: timedelta, every: float = 1.0) -> list[float]:
    """Somebody puts it back a moment after each heal. Gives the seconds at which it was healed."""
    began, healed, seen = world.clock.now(), [], heals(world)
    last = world.last_result
    assert last is not None
    while world.clock.now() - began < lasts:
        if await world.data("a") == {"x": "1"}:
            world.pass_time(every)
            edit(world)
            last = await world.reconcile({A})
        else:
            world.pass_time(min(last.requeue_after, 3600.0) + 0.01)
            last = await world.reconcile(set())
        if heals(world) > seen:
            seen = heals(world)
            healed.append((world.clock.now() - began).total_seconds())
    return healed


async def test_a_fight_backs_off_and_names_the_other() -> None:
    world = await one()
    healed = [at for at in await fought(world, timedelta(minutes=10)) if at < 600]
    assert len(healed) == 3
    gaps = [later - earlier for earlier, later in pairwise(healed)]
    assert gaps[0] >= 5
    assert gaps[1] >= 10
    alarms = [line for line, _ in world.ledger_store._entries if line.action == "fight"]
    assert [line.summary for line in alarms] == [
        "rogue-cron and holdfast-gitops keep changing data.x."
    ]
    (told,) = [notice for notice in world.notices if "fight" in notice.type]
    assert "rogue-cron" in told.text


async def test_over_a_day_a_fight_costs_a_few_writes_an_hour() -> None:
    world = await one()
    healed = await fought(world, DAY)
    hourly = [
        sum(start <= at < start + 3600 for at in healed) for start in range(0, 24 * 3600, 600)
    ]
    assert max(hourly) <= 6
    assert healed[-1] > 23 * 3600, "it is tried again, day and night"


@pytest.mark.usefixtures("clock")
async def test_an_annotation_does_not_hold_for_ever() -> None:
    world = await one()
    await hold(world, world.clock.now() + DECADE, "annotation")
    await world.reconcile()
    edit(world)
    await world.reconcile()
    assert [drift.state for drift in world.drifts] == [DriftState.HELD]
    jumping(world).passed += 31 * DAY.total_seconds()
    for _ in range(3):
        await world.fetch_and_reconcile()
        assert world.context is not None
        assert not world.context.state.holds
        jumping(world).passed += 60
    # Longer than annotations are granted was asked for, so its end is its route's, and says so.
    assert await world.data("a") == {"x": "1"}
    assert not world.forge.pulls
    (told,) = [
        line.summary for line, _ in world.ledger_store._entries if line.action == "pause-expired"
    ]
    assert told.endswith("ended: what changed under it goes the way of its route again.")


async def test_a_restart_does_not_forget_a_fight() -> None:
    world = await one()
    for _ in range(6):
        edit(world)
        await world.reconcile({A})
        world.pass_time(20)
        await world.start()
        await world.reconcile()
    assert heals(world) == 3
    assert [drift.state for drift in world.drifts] == [DriftState.FIGHTING]


async def test_after_a_quiet_time_the_first_heal_is_at_once_again() -> None:
    world = await one()
    for _ in range(2):
        edit(world)
        await world.reconcile({A})
        world.pass_time(20)
        await world.reconcile({A})
    before = heals(world)
    world.pass_time(11 * 60)
    edit(world)
    await world.reconcile({A})
    assert heals(world) == before + 1, "no waiting"
    assert world.drifts == []


async def test_rare_edits_are_no_fight() -> None:
    world = await one()
    for _ in range(20):
        world.pass_time(6 * 60)
        edit(world)
        await world.reconcile({A})
        assert await world.data("a") == {"x": "1"}
    assert not [notice for notice in world.notices if "fight" in notice.type]


@pytest.mark.parametrize("tells", [True, False], ids=["also in a dry run", "only for real"])
async def test_an_admission_that_rewrites_gets_few_writes_and_an_alarm(tells: bool) -> None:
    world = await one()
    plain = world.kube.apply

    async def mutating(item: Fields, **more: object) -> Fields:
        if ref_of(item) == A and (tells or not more.get("dry_run")):
            item = {**item, "data": {"x": "9"}}
        return await plain(item, **more)  # type: ignore[arg-type]

    world.kube.apply = mutating  # type: ignore[method-assign,assignment]
    edit(world, manager="kubectl-edit")
    for _hour in range(6):
        before = heals(world)
        for _minute in range(60):
            await world.reconcile()
            world.pass_time(60)
        assert heals(world) - before <= 5
    (drift,) = world.drifts
    assert (drift.state, drift.altered) == (DriftState.BLOCKED, True), "nobody is named for it"
    assert [notice for notice in world.notices if "failed" in notice.type]
    world.kube.apply = plain  # type: ignore[method-assign]
    for _minute in range(31):
        world.pass_time(60)
        await world.reconcile()
    assert world.drifts == []
    assert await world.data("a") == {"x": "1"}


@pytest.mark.parametrize(
    "error", [TargetUnavailable("No answer."), ValidationError("It is refused.")]
)
@pytest.mark.parametrize("remediation", [Remediation.SELF_HEAL, Remediation.REVIEW])
async def test_a_passing_failure_is_tried_again_and_no_fight(
    error: Exception, remediation: Remediation
) -> None:
    world = await one(remediation)
    edit(world)
    for _ in range(8):
        world.kube.fail_next("apply", error)  # type: ignore[arg-type]
    await world.reconcile()
    if remediation is Remediation.REVIEW:
        (drift,) = world.drifts
        await world.review().approve(PROJECT, drift.id, plan=drift.plan, actor="maria")
    minutes = 0
    while world.drifts and minutes < 20:
        await world.reconcile()
        world.pass_time(60)
        minutes += 1
    assert await world.data("a") == {"x": "1"}
    assert minutes <= 10
    assert not [notice for notice in world.notices if "fight" in notice.type]


async def test_a_refused_heal_is_not_repeated_in_a_loop() -> None:
    world = await one()
    edit(world)
    for _ in range(50):
        world.kube.fail_next("apply", ValidationError("It is refused."))
    for _ in range(50):
        await world.reconcile({A})  # as fast as events can come
    assert len(world.kube._faults) >= 48


JUMPS = [HOUR, -HOUR, DECADE, -DECADE]


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("jump", JUMPS, ids=str)
async def test_a_fight_does_not_get_stuck_by_a_clock_that_is_set(jump: timedelta) -> None:
    world = await one()
    for _ in range(5):
        edit(world)
        await world.reconcile({A})
        jumping(world).passed += 30
        await world.reconcile({A})
    assert [drift.state for drift in world.drifts] == [DriftState.FIGHTING]
    jumping(world).jump(jump)
    for _ in range(35):
        await world.reconcile()
        jumping(world).passed += 60
    assert await world.data("a") == {"x": "1"}
    assert world.drifts == []


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("jump", JUMPS, ids=str)
async def test_a_refused_heal_is_tried_again_though_the_clock_is_set(jump: timedelta) -> None:
    world = await one()
    edit(world)
    world.kube.fail_next("apply", TargetUnavailable("No answer."))
    await world.reconcile()
    jumping(world).jump(jump)
    for _ in range(3):
        await world.reconcile()
        jumping(world).passed += 60
    assert await world.data("a") == {"x": "1"}


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("by", ["command", "annotation"])
@pytest.mark.parametrize("jump", [-HOUR, -DECADE], ids=str)
async def test_a_hold_that_ended_is_not_revived(jump: timedelta, by: str) -> None:
    world = await one()
    until = world.clock.now() + HOUR / 2
    await hold(world, until, by)
    await world.reconcile()
    jumping(world).passed += 1801
    await world.reconcile()
    assert world.context is not None
    assert not world.context.state.holds
    jumping(world).jump(jump)
    for restart in (False, True):
        if restart:
            await world.start()
            assert world.context is not None
        edit(world)
        await world.reconcile()
        assert not world.context.state.holds
        assert await world.data("a") == {"x": "1"}
        jumping(world).passed += 700


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("by", ["command", "annotation"])
@pytest.mark.parametrize("jump", [-HOUR, -DECADE], ids=str)
async def test_a_hold_is_not_cut_short_by_a_clock_that_is_set_back(
    jump: timedelta, by: str
) -> None:
    world = await one()
    await hold(world, world.clock.now() + HOUR, by)
    await world.reconcile()
    jumping(world).jump(jump)
    edit(world)
    await world.reconcile()
    assert await world.data("a") == {"x": "9"}
    jumping(world).jump(-jump)
    jumping(world).passed += 3601
    await world.reconcile()
    assert world.context is not None
    assert not world.context.state.holds


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("end", HoldEnd)
@pytest.mark.parametrize("jump", [2 * HOUR, DECADE], ids=str)
async def test_a_change_under_a_hold_is_not_healed_away_when_the_clock_leaps_over_its_end(
    jump: timedelta, end: HoldEnd
) -> None:
    """Nobody looked while it was on hold: its change is first seen with its end."""
    world = await one(Remediation.REPORT if end is HoldEnd.REVERT else Remediation.SELF_HEAL)
    assert world.context is not None
    await world.review().pause(
        world.context, actor="maria", reason="INC-1", until=world.clock.now() + HOUR,
        object=A, end=end,
    )  # fmt: skip
    edit(world)
    jumping(world).jump(jump)
    world.context.poller.hasten()
    for _ in range(2):
        await world.reconcile()
        jumping(world).passed += 30
    assert await world.data("a") == {"x": "9"}
    assert len(world.forge.pulls) == (end is HoldEnd.PULL_REQUEST)
    closed = await world.ledger_store.records(RecordKind.HOLD, state="closed")
    assert len(closed) == 1


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("jump", JUMPS, ids=str)
async def test_a_snooze_ends_once_and_at_its_time(jump: timedelta) -> None:
    world = await one(Remediation.REVIEW)
    edit(world)
    await world.reconcile()
    (drift,) = world.drifts
    until = world.clock.now() + HOUR / 2
    await world.review().snooze(PROJECT, drift.id, actor="ann", comment="later", until=until)
    jumping(world).jump(jump)
    await world.reconcile()
    early = world.clock.now() < until
    assert (world.drifts[0].state is DriftState.SNOOZED) == early
    if early:
        jumping(world).jump(-jump)
        jumping(world).passed += 1801
        await world.reconcile()
    assert world.drifts[0].state is DriftState.AWAITING
    jumping(world).jump(-DECADE)
    await world.reconcile()
    assert world.drifts[0].state is DriftState.AWAITING


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("jump", JUMPS, ids=str)
async def test_an_approval_holds_for_its_plan_whatever_the_clock_says(jump: timedelta) -> None:
    world = await one(Remediation.REVIEW)
    edit(world)
    await world.reconcile()
    (drift,) = world.drifts
    await world.review().approve(PROJECT, drift.id, plan=drift.plan, actor="maria")
    jumping(world).jump(jump)
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}
    edit(world)
    await world.reconcile()
    assert await world.data("a") == {"x": "9"}, "an approval is used once"
    jumping(world).jump(-jump)
    await world.reconcile()
    assert [each.state for each in world.drifts] == [DriftState.AWAITING]


async def hold(world: GitopsWorld, until: datetime, by: str) -> None:
    assert world.context is not None
    if by == "command":
        await world.review().pause(
            world.context, actor="maria", reason="INC-1", until=until, object=A
        )
        return
    stamp = until.isoformat()
    world.kube.edit(A, lambda item: item["metadata"]["annotations"].update({PAUSED_UNTIL: stamp}))


async def hidden(world: GitopsWorld) -> tuple[str, DriftState]:
    """The value of the field and the state of its drift after the controller's own next pass.

    It looks at nothing else than what time alone brings up, when it said that it would.
    """
    assert world.last_result is not None
    world.pass_time(world.last_result.requeue_after)
    await world.reconcile(set())
    data = await world.data("a")
    assert isinstance(data, dict)
    return str(data["x"]), next((each.state for each in world.drifts), DriftState.RESOLVED)


@pytest.mark.parametrize("whose", ["ledger", "application"])
async def test_a_rule_that_expires_is_looked_at_when_it_does(whose: str) -> None:
    start = GitopsWorld().clock.now()
    expires = (start + timedelta(seconds=30)).isoformat()
    rule = IgnoreSpec(name="test", owner="maria", pointer="/data/x", expires=expires)
    drift = DriftSpec(ignore=(rule,)) if whose == "application" else DriftSpec()
    world = GitopsWorld(route(Remediation.REPORT), drift=drift)
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.reconcile()
    world.kube.edit(config_ref("a"), lambda item: item["data"].update(x="9"))
    await world.reconcile()
    if whose == "ledger":
        (open_drift,) = world.drifts
        until = start + timedelta(seconds=30)
        await world.review().ignore(
            PROJECT, open_drift.id, actor="maria", reason="a load test", until=until
        )
        await world.reconcile()
    assert world.drifts == []
    assert world.last_result is not None and world.last_result.requeue_after <= 30
    assert await hidden(world) == ("9", DriftState.DETECTED)
