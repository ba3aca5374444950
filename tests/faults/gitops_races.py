"""Two controllers with one ledger, people who decide and edit, and Git that moves: all at once.

A schedule is a number: it chooses what happens, and which call of whom comes next, so that a run
that went wrong can be had again. What must never happen is looked for at every single write.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from tests.faults.gitops_story import PROJECT, CountedPort, StoryWorld, routes
from tests.support.gitops_world import NAMESPACE, GitopsWorld, config_ref, configmap

from holdfast.core.errors import HoldfastError, TargetUnavailable
from holdfast.core.gitops.application import HoldEnd
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.objects import APPLICATION_LABEL
from holdfast.core.object_ref import ObjectRef, ref_of
from holdfast.reconcile.gitops.application_state import inventory_key
from holdfast.reconcile.gitops.ports import (
    LedgerWrite,
    NewPullRequest,
    PullRequest,
    PullRequestState,
    RecordKind,
)
from holdfast.wire import gitops_v1

NAMES = ("heal", "ask", "propose", "undo", "plain")
THEIRS = "theirs"
_MARKER = re.compile(r"<!-- holdfast:drift=(\S+ digest=\S+) -->")


class Races(StoryWorld):
    """One controller of the two, and everything that both of them share."""

    def __init__(self, seed: int) -> None:
        super().__init__(None, *routes())
        self.chance = random.Random(seed)
        self.seed = seed
        self.wrong: list[str] = []
        """What must not happen, and did."""
        self.refused: set[str] = set()
        """Drifts, as they were then, whose pull request a person closed."""
        self.again: set[int] = set()
        """Pull requests about what a person had said no to: opened in the same moment."""
        self.held = False
        """True once everything or `heal` was on hold: its end may send changes elsewhere."""
        self.declared: dict[str, set[str]] = {}
        self.applied: Counter[tuple[str, str]] = Counter()
        """How often each plan for a drift changed something."""
        self.controllers = [RacingController(self), RacingController(self)]
        self.values = dict.fromkeys(NAMES, "1")
        self.hub.open = self._opening(self.hub.open)  # type: ignore[method-assign]
        self.commit()
        self.kube.create(
            {
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "0"},
                "metadata": {
                    "name": THEIRS, "namespace": NAMESPACE,
                    "annotations": {
                        "argocd.argoproj.io/tracking-id": f"o:/ConfigMap:{NAMESPACE}/{THEIRS}",
                    },
                },
            },
            manager="argocd-controller",
        )  # fmt: skip

    def commit(self) -> None:
        """Declare what is to be declared now."""
        for name, value in self.values.items():
            self.declared.setdefault(name, set()).add(value)
        files = {f"{name}.yaml": configmap(name, x=value) for name, value in self.values.items()}
        self.git.commit({**files, "theirs.yaml": configmap(THEIRS, x="1")})

    def _opening(
        self, opened: Callable[[NewPullRequest], Awaitable[PullRequest]]
    ) -> Callable[[NewPullRequest], Awaitable[PullRequest]]:
        async def open(new: NewPullRequest) -> PullRequest:
            before = len(self.hub.pulls)
            pull = await opened(new)
            found = _MARKER.search(new.body)
            assert found is not None
            lines = (line for line, _ in self.ledger._entries)
            later = {line.subject for line in lines if line.action == "snoozed"}  # to be asked then
            refused = found[1] in self.refused and found[1].split()[0] not in later
            if len(self.hub.pulls) > before and refused:
                self.again.add(pull.number)
            return pull

        return open

    def check_pulls(self) -> None:
        """Whoever opened what a person had said no to has closed it by the end of its pass."""
        for number in self.again:
            if self.hub.pulls[number].state is PullRequestState.OPEN:
                self.wrong.append(f"{self.hub.pulls[number].branch} was proposed again")

    async def run(self, steps: int = 10) -> None:
        """Let everything happen at once, then let it come to rest."""
        await self.controllers[0].attempt(self.controllers[0].fetch_and_reconcile)
        for _ in range(steps):
            count = self.chance.randint(1, 4)
            await asyncio.gather(*(self._something() for _ in range(count)))
            if self.chance.random() < 0.2:
                self._pull(self.chance)
            self.pass_time(self.chance.choice((1, 1, 7, 61, 400, 4000)))
        await self._rest()

    async def _something(self) -> None:
        chance = self.chance
        who = chance.choice(self.controllers)
        name = chance.choice(NAMES)
        match chance.randrange(20):
            case 0 | 1 | 2 | 3:
                await who.attempt(who.fetch_and_reconcile)
            case 4:
                await who.attempt(lambda: who.reconcile({config_ref(name)}))
            case 5 | 6 | 7:
                await self._edit(chance.choice((*NAMES, THEIRS)))
            case 8:
                await self._git(name)
            case 9 | 10:
                await who.attempt(lambda: who.approve(chance))
            case 11:
                await who.attempt(lambda: who.decide(chance))
            case 12:
                await who.attempt(lambda: who.pause(config_ref(name) if chance.random() < 0.7
                                                    else None))  # fmt: skip
            case 13:
                await who.attempt(who.resume)
            case 14 | 15:
                if who.idle:
                    who.context = None  # a restart; one in the middle is what crashes are for
            case 16:
                verb = chance.choice(("get", "get", "apply", "delete"))
                who.faults.append((verb, chance.random() < 0.5))
            case 17 | 18:
                for _ in range(chance.randrange(30)):
                    await asyncio.sleep(0)
                self._pull(chance)
            case _:
                if await self.live(name) is not None:
                    await self.kube.delete(config_ref(name))

    async def _edit(self, name: str) -> None:
        value = self.chance.choice(("8", "9", "1"))
        if await self.live(name) is not None:
            self.edit(name, value, manager=self.chance.choice(("kubectl-edit", "rogue")))

    async def _git(self, name: str) -> None:
        if name in self.values and self.chance.random() < 0.3:
            del self.values[name]
        else:
            self.values[name] = self.chance.choice(("1", "2", "9"))
        self.commit()

    def _pull(self, chance: random.Random) -> None:
        """A person merges or closes a pull request."""
        open_ones = [
            pull for pull in self.hub.pulls.values() if pull.state is PullRequestState.OPEN
        ]
        if not open_ones:
            return
        pull = chance.choice(open_ones)
        if chance.random() < 0.5:
            found = _MARKER.search(pull.body)
            assert found is not None
            self.refused.add(found[1])
            self.hub.pulls[pull.number] = replace(pull, state=PullRequestState.CLOSED)
        elif pull.branch in self.git.branches:
            self.hub.pulls[pull.number] = replace(pull, state=PullRequestState.MERGED)
            self.git.merge(pull.branch)
            for name in self.values:
                text = self.git.files.get(f"{name}.yaml", "")
                self.values[name] = text.rpartition("x: '")[2][:1] or "1"
                self.declared[name].add(self.values[name])

    async def _rest(self) -> None:
        """No more surprises: both controllers must come to terms with what there is."""
        first = self.controllers[0]
        first.faults.clear()
        for _ in range(3):
            await first.attempt(first.resume)
        for _ in range(6):
            self.pass_time(2000)
            first.failed = None
            await first.attempt(first.fetch_and_reconcile)
        if first.failed is not None:
            self.wrong.append(f"no peace: {first.failed!r}")
        await self._compare()

    async def _compare(self) -> None:
        """What is left, against what was promised."""
        lines = [line for line, _ in self.ledger._entries]
        resolved = Counter(line.subject for line in lines if line.action == "resolved")
        closed = await self.ledger.records(RecordKind.DRIFT, state="closed")
        if resolved != Counter(record.key for record in closed):
            self.wrong.append("a drift ended twice, or without a line")
        kept = {
            drift.object.name for drift in self.controllers[0].drifts
            if drift.state is DriftState.REJECTED
        }  # fmt: skip
        for name in NAMES:
            live = await self.live(name)
            heals = name == "heal" and name in self.values and not self.held and name not in kept
            if heals and (live is None or cast(Any, live["data"])["x"] != self.values[name]):
                self.wrong.append(f"{name} was not put back")
        open_ones = Counter(
            pull.branch for pull in self.hub.pulls.values() if pull.state is PullRequestState.OPEN
        )
        if open_ones and max(open_ones.values()) > 1:
            self.wrong.append("two pull requests of one branch are open")
        self.wrong += _decisions(lines)


class RacingController(GitopsWorld):
    """One controller: it has a memory of its own, and shares everything else."""

    def __init__(self, races: Races) -> None:
        super().__init__()
        self.races = races
        self.clock, self.kube, self.git = races.clock, races.kube, races.git
        self.forge = cast(Any, YieldingPort(races.forge, self, races.chance))
        self.application = races.application
        self.codify = races.codify  # type: ignore[method-assign]
        self.ledger_store = cast(Any, YieldingPort(races.ledger, self, races.chance))
        self.client = cast(Any, YieldingPort(races.kube, self, races.chance))
        self.failed: HoldfastError | None = None
        self.working = 0
        self.faults: list[tuple[str, bool]] = []
        """What does not answer the next time, and whether it is done all the same."""
        self.claim = ""
        """The plan that it said it would carry out, and what it calls that."""
        self.claimed = ""
        self.about = ""
        self.knew: dict[str, Hold] = {}
        """Holds in the ledger when it asked last."""
        self.unread: set[ObjectRef] = set()
        """Objects whose last read failed."""

    @property
    def idle(self) -> bool:
        return self.context is not None and not self.working

    async def attempt(self, work: Callable[[], Awaitable[object]]) -> None:
        self.working += 1
        try:
            if self.context is None:
                await self.start()
            await work()
        except HoldfastError as error:
            self.failed = error
        finally:
            self.working -= 1
        if not any(each.working for each in self.races.controllers):
            self.races.check_pulls()

    async def approve(self, chance: random.Random) -> None:
        waiting = [drift for drift in self.drifts if drift.state is DriftState.AWAITING]
        if waiting:
            drift, review = chance.choice(waiting), self.review()
            await asyncio.sleep(0)
            await review.approve(PROJECT, drift.id, plan=drift.plan, actor="maria", comment="")

    async def decide(self, chance: random.Random) -> None:
        if not self.drifts:
            return
        drift, review = chance.choice(self.drifts), self.review()
        until = self.clock.now() + timedelta(seconds=chance.choice((60, 3000)))
        match chance.randrange(3):
            case 0:
                await review.reject(PROJECT, drift.id, actor="joe", comment="keep it")
            case 1:
                await review.snooze(PROJECT, drift.id, actor="ann", comment="later", until=until)
            case _:
                if drift.object.name == "plain":
                    await review.revert(PROJECT, drift.id, actor="ann")

    async def pause(self, ref: ObjectRef | None) -> None:
        assert self.context is not None
        self.races.held |= ref in (None, config_ref("heal"))
        until = self.clock.now() + timedelta(seconds=self.races.chance.choice((30, 500, 5000)))
        end = self.races.chance.choice((HoldEnd.REVERT, HoldEnd.PULL_REQUEST))
        await self.review().pause(
            self.context, actor="maria", reason="INC-1", until=until, object=ref, end=end
        )

    async def resume(self) -> None:
        assert self.context is not None
        await self.review().resume(self.context, actor="maria")

    async def before(self, name: str, args: tuple[Any, ...], more: dict[str, Any]) -> None:
        """Look at a write to the cluster that is about to happen."""
        if name not in ("apply", "patch", "delete") or more.get("dry_run"):
            return
        ref = ref_of(args[0]) if name == "apply" else args[0]
        wrong, now = self.races.wrong, self.clock.now()
        holds = {**self.knew, **(self.context.state.holds if self.context else {})}
        if any(hold.holds(ref, now) for hold in holds.values()):
            wrong.append(f"{name} of {ref.name}, which is on hold")
        if ref.name == THEIRS:
            wrong.append(f"{name} of an object of another tool")
        if ref in self.unread and (name == "delete" or more.get("absent")):
            wrong.append(f"{name} of {ref.name}, which could not be read")
        live = await self.kube.get(ref)
        if name == "delete" and live is not None:
            records = await self.races.ledger.records(RecordKind.INVENTORY, key=inventory_key(ref))
            metadata = cast(Any, live["metadata"])
            if (
                not more.get("uid")
                or metadata.get("labels", {}).get(APPLICATION_LABEL) != "team.shop"
            ):
                wrong.append(f"deletion of {ref.name} without guard or label")
            if more.get("uid") not in {record.body["uid"] for record in records}:
                wrong.append(f"deletion of {ref.name}, which is not in the inventory")
        if name == "apply" and live is not None and ref.name == "ask":
            await self._reviewed(args[0], cast(Any, live))

    async def _reviewed(self, item: Any, live: Any) -> None:
        """What somebody changed is put back by an approved plan and by nothing else."""
        was, becomes = live["data"].get("x"), item.get("data", {}).get("x")
        if was == becomes or was in self.races.declared["ask"]:
            return
        lines = [line for line, _ in self.races.ledger._entries]
        approved = {line.detail.get("plan") for line in lines if line.action == "approved"}
        if self.claimed != "applying" or self.claim not in approved:
            self.races.wrong.append(f"{self.claimed} changed what was not approved")

    def after(self, name: str, args: tuple[Any, ...], more: dict[str, Any], answer: object) -> None:
        if name == "records" and args[0] is RecordKind.HOLD:
            self.knew = {
                record.key: gitops_v1.decode_record(Hold, record.body)
                for record in cast(Any, answer)
                if record.state != "closed"
            }
        if name == "write":
            for put in cast(list[LedgerWrite], args[0]):
                if put.kind is RecordKind.HOLD:
                    self.knew.pop(put.key, None)
            for entry in args[1]:
                if entry.action in ("applying", "syncing"):
                    self.claimed, self.claim = entry.action, str(entry.detail.get("plan"))
                    self.about = entry.subject
        if name == "get":
            self.unread.discard(args[0])
        if name == "apply" and not more.get("dry_run") and self.claimed == "applying":
            write = self.kube.writes[-1]
            if write.changed:
                self.races.applied[self.claim, self.about] += 1
                if self.races.applied[self.claim, self.about] > 1:
                    self.races.wrong.append(f"{self.claim} was applied twice")

    def failing(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "get":
            self.unread.add(args[0])


class YieldingPort(CountedPort):
    """Lets others go first before any call, as often as chance says."""

    def __init__(self, inner: object, who: RacingController, chance: random.Random) -> None:
        super().__init__(inner, who.races.tap, "", who.after)
        self._who = who
        self._chance = chance

    def __getattr__(self, name: str) -> Any:  # Any: whatever the inner one has
        found = super().__getattr__(name)
        if not callable(found) or name in ("aclose", "watch"):
            return found

        async def call(*args: Any, **more: Any) -> object:
            for _ in range(self._chance.randrange(4)):
                await asyncio.sleep(0)
            await self._who.before(name, args, more)
            fault = next((each for each in self._who.faults if each[0] == name), None)
            if fault is None:
                return await found(*args, **more)
            self._who.faults.remove(fault)
            if fault[1]:
                await found(*args, **more)
            self._who.failing(name, args)
            raise TargetUnavailable("No answer.")

        return call


def _decisions(lines: list[Any]) -> list[str]:
    """One decision about each thing that was asked: a second one needs a new question."""
    decided: dict[str, str] = {}
    wrong = []
    for line in lines:
        if line.action in ("stale", "changed", "held", "approval-requested", "detected"):
            decided.pop(line.subject, None)
        elif line.action in ("approved", "rejected", "snoozed"):
            if decided.get(line.subject) == "approved":
                wrong.append(f"{line.subject} was {line.action} after it was approved")
            decided[line.subject] = line.action
    return wrong
