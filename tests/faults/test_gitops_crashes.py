"""A GitOps controller that is cut anywhere: what is left, and what was written, stays the same.

One story of an application is played over and over, each time with a crash or an error at another
call to the cluster, the ledger, the repository or the forge. The long runs meet every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.faults.gitops_story import (
    CallFault,
    EndState,
    StoryWorld,
    end_state_of,
    play,
    resolved_once,
)

from holdfast.core.errors import (
    AuthError,
    Conflict,
    HoldfastError,
    PermissionDenied,
    StoreUnavailable,
    TargetUnavailable,
)
from holdfast.reconcile.gitops.ports import SourceUnavailable
from holdfast.reconcile.kube import ConflictReason, KubeConflict

WRITES = ("ledger.write", "kube.apply", "kube.patch", "kube.delete", "git.push", "forge.open")
ERRORS: dict[str, tuple[str, Callable[[], HoldfastError]]] = {
    "the cluster does not answer": ("kube", lambda: TargetUnavailable("No answer.")),
    "the object has changed": (
        "kube",
        lambda: KubeConflict("It changed.", reason=ConflictReason.CHANGED),
    ),
    "a right is missing": ("kube", lambda: PermissionDenied("It may not.")),
    "the credential is over": ("kube", lambda: AuthError("It is over.")),
    "the ledger does not answer": ("ledger", lambda: StoreUnavailable("No answer.")),
    "others wrote to the ledger": ("ledger", lambda: Conflict("It moved.")),
    "the repository does not answer": ("git", lambda: SourceUnavailable("No answer.")),
    "the forge does not answer": ("forge", lambda: TargetUnavailable("No answer.")),
    "the forge refuses": ("forge", lambda: PermissionDenied("It may not.")),
}
UNANSWERED = [name for name in ERRORS if name.endswith("answer")]
"""Those where the call may have taken effect all the same."""
_quiet: list[StoryWorld] = []


async def quiet() -> StoryWorld:
    """The run that nothing happened to."""
    if not _quiet:
        world = StoryWorld()
        await play(world)
        assert not world.errors
        _quiet.append(world)
    return _quiet[0]


async def compare(fault: CallFault) -> StoryWorld:
    """Play with a fault, and hold the end against the quiet one."""
    reference: EndState = await end_state_of(await quiet())
    world = StoryWorld(fault)
    await play(world)
    assert await end_state_of(world) == reference, fault
    assert world.tap.unclaimed == [], fault
    assert await resolved_once(world), fault
    return world


async def test_a_quiet_story_writes_what_it_has_to_and_then_nothing() -> None:
    world = StoryWorld()
    await play(world)
    end = await end_state_of(world)
    assert set(end.creates) == {"heal", "ask", "propose", "undo", "hold", "old"}
    assert end.creates["heal"] == 2, "it was deleted once"
    assert end.deletes == {"old": 1}
    assert set(end.open.values()) == {0}
    writes = len(world.kube.writes)
    for _ in range(10):
        await world.fetch_and_reconcile()
        world.pass_time(61)
    assert len(world.kube.writes) == writes


def _some(calls: list[str]) -> Iterator[tuple[int, bool]]:
    """Every other write, before and after in turn, and a few reads."""
    writes = [number for number, call in enumerate(calls, start=1) if call in WRITES]
    for place, number in enumerate([*writes[::2], *range(1, len(calls), 41)]):
        yield number, place % 2 == 0


@pytest.mark.parametrize("part", range(4))
async def test_a_crash_at_a_write_changes_neither_the_end_nor_what_is_written(part: int) -> None:
    calls = (await quiet()).tap.calls
    for number, after in list(_some(calls))[part::4]:
        world = await compare(CallFault(at=number, after=after))
        assert world.crashes == 1


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
async def test_a_crash_at_any_call_changes_neither_the_end_nor_what_is_written(part: int) -> None:
    calls = (await quiet()).tap.calls
    for number in range(1 + part, len(calls) + 1, 4):
        for after in (False, True):
            world = await compare(CallFault(at=number, after=after))
            assert world.crashes == 1


@pytest.mark.long
@pytest.mark.parametrize("times", [2, 3, 7])
async def test_a_controller_that_crashes_again_while_it_recovers_gets_there(times: int) -> None:
    """The next calls crash too, whatever they are by then."""
    calls = (await quiet()).tap.calls
    for number in range(1, len(calls) + 1):
        await compare(CallFault(at=number, after=number % 2 == 0, times=times))


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_at_a_call_changes_neither_the_end_nor_what_is_written(name: str) -> None:
    part, error = ERRORS[name]
    total = sum(call.startswith(part) for call in (await quiet()).tap.calls)
    for number in range(1, total + 1, max(1, total // 6)):
        await compare(
            CallFault(
                at=number, error=error, part=part, times=1 + number % 3,
                after=name in UNANSWERED and number % 2 == 0,
            )
        )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_at_any_call_changes_neither_the_end_nor_what_is_written(
    name: str, times: int
) -> None:
    part, error = ERRORS[name]
    total = sum(call.startswith(part) for call in (await quiet()).tap.calls)
    for number in range(1, total + 1):
        for after in (False, True) if name in UNANSWERED else (False,):
            await compare(CallFault(at=number, error=error, part=part, times=times, after=after))
