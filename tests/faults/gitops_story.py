"""A story that one application lives through, cut at any call that its controller makes.

Every call to the cluster, the ledger, the repository and the forge is numbered. A fault at one of
them is a crash, before or after the call took effect, or an error; after a crash the controller
begins anew with nothing but what those four have kept. The fault suites compare what is left in
the end, and what was written on the way, with a run that nothing happened to.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

from tests.support.gitops_world import GitopsWorld, MemoryForge, config_ref, configmap, route
from tests.support.memory_ledger import MemoryLedgerStore

from holdfast.core.errors import Conflict, HoldfastError, NotFound
from holdfast.core.gitops.application import (
    HoldEnd,
    MatchSpec,
    PullRequestKind,
    PullRequestSpec,
    Remediation,
    SyncSpec,
)
from holdfast.core.gitops.codify import CodifyResult
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.hold import PAUSED_UNTIL
from holdfast.core.gitops.objects import ObservedObject
from holdfast.core.object_ref import ref_of
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.ports import PullRequestState, RecordKind

PROJECT = "ml-platform"
MOST_PASSES = 45
"""Passes until a step of the story has to be over; a truce after a fight lasts thirty."""
CLAIMS = frozenset({"applying", "syncing"})
_CALLS = frozenset({
    "get", "list", "apply", "patch", "delete", "records", "write", "entries", "fetch", "head",
    "push", "find", "past", "open", "update", "comment", "close",
})  # fmt: skip


class Crash(BaseException):
    """The process ends here. Nobody catches it but the test."""


@dataclass
class CallFault:
    """What happens at one call, and at those after it if `times` says so."""

    at: int
    error: Callable[[], BaseException] = Crash
    after: bool = False
    """The call takes effect first."""
    times: int = 1
    part: str = ""
    """Only calls to this one are counted: `kube`, `ledger`, `git` or `forge`."""
    met: int = 0


@dataclass
class CallCounter:
    """Numbers calls, and lets one of them meet a fault."""

    fault: CallFault | None = None
    calls: list[str] = field(default_factory=list)
    creates: Counter[str] = field(default_factory=Counter)
    deletes: Counter[str] = field(default_factory=Counter)
    unclaimed: list[str] = field(default_factory=list)
    """Writes to the cluster that no line of the journal announced."""

    def meet(self, part: str, name: str) -> BaseException | None:
        """Count a call; raises a fault that comes before it, returns one that comes after."""
        self.calls.append(f"{part}.{name}")
        fault = self.fault
        if fault is None or fault.part not in ("", part):
            return None
        fault.met += 1
        if not fault.at <= fault.met < fault.at + fault.times:
            return None
        if fault.after:
            return fault.error()
        raise fault.error()


class CountedPort:
    """Something whose calls are counted; everything else about it is as it was."""

    def __init__(
        self, inner: object, tap: CallCounter, part: str, watch: Callable[..., None]
    ) -> None:
        self._inner = inner
        self._tap = tap
        self._part = part
        self._watch = watch

    def __getattr__(self, name: str) -> Any:  # Any: whatever the inner one has
        found = getattr(self._inner, name)
        if name == "export":
            return self._exported(found)
        if name not in _CALLS or not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: object, **more: object) -> object:
            late = self._tap.meet(self._part, name)
            answer = await found(*args, **more)
            self._watch(name, args, more, answer)
            if late is not None:
                raise late
            return answer

        return call

    def _exported(self, export: Callable[[str], Any]) -> Any:  # Any: a context manager
        @asynccontextmanager
        async def opened(commit: str) -> Any:  # Any: as above
            late = self._tap.meet(self._part, "export")
            if late is not None:
                raise late
            async with export(commit) as held:
                yield held

        return opened


FILES = {name: configmap(name, x="1") for name in ("heal", "ask", "propose", "undo", "hold", "old")}


def routes() -> tuple[Any, ...]:  # Any: routes, for whom the world knows
    """One way for each object, by its name."""
    return (
        route(Remediation.SELF_HEAL, match=MatchSpec(names=("heal*",))),
        route(Remediation.REVIEW, match=MatchSpec(names=("ask*",))),
        route(Remediation.PULL_REQUEST, match=MatchSpec(names=("propose*",))),
        route(
            Remediation.PULL_REQUEST, name="undo", pull=PullRequestKind.REVERT,
            match=MatchSpec(names=("undo*",)),
        ),
    )  # fmt: skip


class StoryWorld(GitopsWorld):
    """A world whose every call may meet a fault, with a person who repeats what failed."""

    def __init__(self, fault: CallFault | None = None, *ways: Any, **more: Any) -> None:
        super().__init__(*(ways or routes()), sync=SyncSpec(automatic=True, prune=True), **more)
        self.tap = CallCounter(fault)
        self.ledger = cast(MemoryLedgerStore, self.ledger_store)
        self.hub: MemoryForge = self.forge
        self.ledger_store = cast(
            MemoryLedgerStore, CountedPort(self.ledger_store, self.tap, "ledger", _nothing)
        )
        self.client = cast(Any, CountedPort(self.kube, self.tap, "kube", self._wrote))
        self.git = cast(Any, CountedPort(self.git, self.tap, "git", _nothing))
        self.forge = cast(Any, CountedPort(self.forge, self.tap, "forge", _nothing))
        spec = replace(
            self.application.spec, pull_requests=PullRequestSpec(most_hourly=20, most_open=20)
        )
        self.application = replace(self.application, spec=spec)
        self.crashes = 0
        self.errors: list[HoldfastError] = []

    def _wrote(self, name: str, args: tuple[Any, ...], more: dict[str, Any], answer: Any) -> None:
        if name not in ("apply", "patch", "delete") or more.get("dry_run"):
            return
        if name == "delete" and answer:
            self.tap.deletes[args[0].name] += 1
        if name == "apply" and more.get("absent"):
            self.tap.creates[ref_of(args[0]).name] += 1
        lines = self.ledger._entries
        if not lines or lines[-1][0].action not in CLAIMS:
            self.tap.unclaimed.append(f"{name} {args[0]}")

    async def codify(
        self, context: ApplicationContext, drift: ObjectDrift, seen: ObservedObject
    ) -> CodifyResult:
        """Declare what is live, in a file that can be read again."""
        assert seen.declared is not None
        text: bytes | None = None
        if seen.live is not None:
            data = cast(dict[str, str], seen.live["data"])
            text = configmap(seen.ref.name, **data).encode()
        return CodifyResult(
            files={seen.declared.origin.file: text}, lines=(), layer="file", notes=()
        )

    async def live_through(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Do something as the controller does it. False when it failed or the process ended."""
        try:
            if self.context is None:
                await self.start()
            await work()
        except Crash:
            self.crashes += 1
            self.context = None
            return False
        except HoldfastError as error:
            self.errors.append(error)
            return False
        return True

    async def until(self, over: Callable[[], Awaitable[bool]], step: str) -> None:
        """Make passes, as the controller does, until a step of the story is over."""
        for _ in range(MOST_PASSES):
            fine = await self.live_through(self.fetch_and_reconcile)
            self.pass_time(61)
            if fine and await over():
                return
        raise AssertionError(f"{step!r} is not over; last: {self.errors[-1:]}")

    async def decided(self, work: Callable[[], Awaitable[object]]) -> None:
        """A person who tries again until it is done, or learns that it was."""
        for _ in range(MOST_PASSES):
            if await self.live_through(work):
                return
            if self.errors and type(self.errors[-1]) in (NotFound, Conflict):
                await self.live_through(self.fetch_and_reconcile)
            self.pass_time(61)
        raise AssertionError(f"nothing was decided; last: {self.errors[-1:]}")

    def merge(self, branch: str) -> None:
        """Merge a pull request, as a person does."""
        (number,) = (
            pull.number
            for pull in self.hub.pulls.values()
            if pull.branch == branch and pull.state is PullRequestState.OPEN
        )
        self.hub.pulls[number] = replace(self.hub.pulls[number], state=PullRequestState.MERGED)
        self.git.merge(branch)

    def quiet(self, *names: str, data: str = "1") -> Callable[[], Awaitable[bool]]:
        """True when objects are as declared, no drift of them is open and nothing is to be done."""

        async def over() -> bool:
            open_ones = await self.ledger.records(RecordKind.DRIFT, state="open")
            about = {record.body["object"]["name"] for record in open_ones}  # type: ignore[index,call-overload]
            done = self.last_result is not None and self.last_result.status.sync == "synced"
            return (
                done
                and not about & set(names)
                and all([await self.data(name) == {"x": data} for name in names])
            )

        return over

    def in_state(self, name: str, state: DriftState) -> Callable[[], Awaitable[bool]]:
        async def over() -> bool:
            return any(d.object.name == name and d.state is state for d in self.drifts)

        return over

    def find_drift(self, name: str) -> ObjectDrift | None:
        """The open drift of an object, as far as the controller knows."""
        return next((each for each in self.drifts if each.object.name == name), None)


async def play(world: StoryWorld) -> None:
    """Everything that an application can live through, one step after the other."""
    world.git.commit({f"{name}.yaml": text for name, text in FILES.items()})
    await world.until(world.quiet(*FILES), "first sync")

    world.edit("heal", "9")
    await world.live_through(lambda: world.reconcile({config_ref("heal")}))
    await world.until(world.quiet("heal"), "self-heal")

    await world.kube.delete(config_ref("heal"))
    await world.until(world.quiet("heal"), "self-heal of a deletion")

    world.edit("ask", "9")
    await world.until(world.in_state("ask", DriftState.AWAITING), "ask for a review")

    async def approve() -> None:
        drift = world.find_drift("ask")
        if drift is None:
            await world.fetch_and_reconcile()
            drift = world.find_drift("ask")
        if drift is not None and drift.state is DriftState.AWAITING:
            review = world.review()
            await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria", comment="")

    await world.decided(approve)
    await world.until(world.quiet("ask"), "apply what was approved")

    for value in ("9", "7"):  # the second time, the branch has a history
        world.edit("propose", value)
        await world.until(world.in_state("propose", DriftState.PULL_REQUEST), "propose")
        world.merge("holdfast/codify/chat-configmap-propose")
        await world.until(world.quiet("propose", data=value), "merge")

    world.edit("undo", "9")
    await world.until(world.in_state("undo", DriftState.PULL_REQUEST), "ask for a decision")
    world.merge(next(branch for branch in world.git.branches if "revert" in branch))
    await world.until(world.quiet("undo"), "revert")

    await _hold(world)

    files = {**world.git.files}
    del files["old.yaml"]
    world.git.commit(files)

    async def pruned() -> bool:
        return await world.live("old") is None and len(await inventory(world)) == len(FILES) - 1

    await world.until(pruned, "prune")
    for _ in range(4):
        await world.live_through(world.fetch_and_reconcile)
        world.pass_time(61)


async def _hold(world: StoryWorld) -> None:
    """An emergency change under a hold of a person, then one under an annotation."""
    until = world.clock.now() + timedelta(hours=3)

    async def pause() -> None:
        context = world.context or await world.start()
        holds = context.state.holds.values()
        if not any(hold.object == config_ref("hold") for hold in holds):
            await world.review().pause(
                context, actor="maria", reason="INC-1", until=until,
                object=config_ref("hold"), end=HoldEnd.REVERT,
            )  # fmt: skip

    await world.decided(pause)
    world.edit("hold", "9")
    await world.until(world.in_state("hold", DriftState.HELD), "hold")
    assert await world.data("hold") == {"x": "9"}
    world.clock.time = max(world.clock.time, until) + timedelta(seconds=1)
    await world.until(world.quiet("hold"), "expiry")

    for value in ("8", "7"):
        await _emergency(world, value)


async def _emergency(world: StoryWorld, value: str) -> None:
    until = world.clock.now() + timedelta(hours=3)

    def change(item: dict[str, Any]) -> None:
        item["data"]["x"] = value
        item["metadata"]["annotations"][PAUSED_UNTIL] = until.isoformat()

    world.kube.edit(config_ref("hold"), change)
    await world.until(world.in_state("hold", DriftState.HELD), "hold by annotation")
    world.clock.time = max(world.clock.time, until) + timedelta(seconds=1)
    await world.until(world.in_state("hold", DriftState.PULL_REQUEST), "expiry to a pull request")
    world.merge("holdfast/codify/chat-configmap-hold")
    await world.until(world.quiet("hold", data=value), "back-port")


async def inventory(world: GitopsWorld) -> set[str]:
    ledger = world.ledger if isinstance(world, StoryWorld) else world.ledger_store
    records = await ledger.records(RecordKind.INVENTORY)
    return {record.key.rpartition("|")[2] for record in records}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndState:
    """What is compared with the run that nothing happened to."""

    objects: dict[str, object]
    creates: Counter[str]
    deletes: Counter[str]
    writes: Counter[str]
    """Those that changed something, by object."""
    pulls: list[tuple[str, str]]
    inventory: set[str]
    drifts: Counter[tuple[str, str]]
    """How many of which object ended in which way."""
    open: dict[str, int]


async def end_state_of(world: StoryWorld) -> EndState:
    """Describe what is left, and what was done on the way."""
    live = {name: await world.live(name) for name in FILES}
    closed = await world.ledger.records(RecordKind.DRIFT, state="closed")
    still = {
        kind.value: len(await world.ledger.records(kind, state="open"))
        for kind in (RecordKind.DRIFT, RecordKind.HOLD, RecordKind.PLAN, RecordKind.PULL)
    }
    return EndState(
        objects={name: _plain(item) for name, item in live.items()},
        creates=world.tap.creates,
        deletes=world.tap.deletes,
        writes=Counter(
            f"{write.verb} {write.ref.name}"
            for write in world.kube.writes
            if write.changed and not write.dry_run
        ),
        pulls=sorted((pull.branch.rpartition("drf-")[0] or pull.branch, pull.state.value)
                     for pull in world.hub.pulls.values()),
        inventory=await inventory(world),
        drifts=Counter(
            (str(record.body["object"]["name"]), str(record.body["resolution"]))  # type: ignore[index,call-overload]
            for record in closed
        ),
        open=still,
    )  # fmt: skip


async def resolved_once(world: StoryWorld) -> bool:
    """True when every drift that ended has exactly one line that says so."""
    lines = [line for line, _ in world.ledger._entries if line.action == "resolved"]
    closed = await world.ledger.records(RecordKind.DRIFT, state="closed")
    return Counter(line.subject for line in lines) == Counter(record.key for record in closed)


def _plain(item: Any) -> object:  # Any: an object of the cluster
    if item is None:
        return None
    metadata = item["metadata"]
    applied = metadata.get("annotations", {}).get("holdfast.dev/applied")
    return item.get("data"), metadata.get("labels"), applied


def _nothing(*_: object) -> None:
    pass
