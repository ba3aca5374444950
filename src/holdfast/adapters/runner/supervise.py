"""Keeps one workload as it should be: starts, rolls over and retires its replicas.

Level-triggered: every change of the wish or of a replica ends in `_converge`, which looks at
everything and takes the next small steps.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.adapters.runner.backends import facts_of
from holdfast.adapters.runner.balance import Balancer, Lease
from holdfast.adapters.runner.launch import Launch, make_launch
from holdfast.adapters.runner.log import Follower, ReplicaLog
from holdfast.adapters.runner.progress import Board
from holdfast.adapters.runner.record import Record
from holdfast.adapters.runner.replica import Replica, Surroundings
from holdfast.adapters.runner.rollout import next_moves
from holdfast.adapters.runner.secrets import Mask, SecretFolder
from holdfast.adapters.runner.summary import summarize
from holdfast.adapters.runner.values import CANARY, PRIMARY, EventKind, RunEvent, RunSpec
from holdfast.adapters.runner.wanted import wanted
from holdfast.core.live import Phase, Status
from holdfast.core.redact import Secret

_LOG = logging.getLogger("holdfast.runner")
_NUMBER = re.compile(r"-(\d+)$")
_FOLLOW = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What every supervisor of a runner shares."""

    around: Surroundings
    secrets: SecretFolder
    key: bytes
    inherited: Mapping[str, str]
    logs: Path
    report: Callable[[RunEvent], None]


class Supervisor:
    """One workload. Does nothing before `begin`."""

    def __init__(self, means: Means, spec: RunSpec, *, gone: Callable[[str], None]) -> None:
        self._means, self._around = means, means.around
        self._wanted = wanted(spec, means.around.limits)
        self._launches = self._made_launches()
        self._gone = gone
        self._begun = self._ended = False
        self._due = False
        self._strays: tuple[str, ...] = ()
        self._replicas: list[Replica] = []
        self._tasks: dict[Replica, asyncio.Task[None]] = {}
        self._reasons: dict[Replica, EventKind] = {}
        self._given: dict[str, Mapping[str, Secret]] = {}
        """The secrets of each replica whose log is kept: a rotated one still stands there."""
        self._balancer = Balancer()
        self._order = itertools.count(1)
        self._folder = means.logs / spec.uid
        self._logs = {log.replica: log for log in map(ReplicaLog, self._folder.glob("*.log"))}
        self.board = Board(self._around.clock, Status(message="Waiting for the runner to begin."))

    @property
    def spec(self) -> RunSpec:
        """What was asked for last."""
        return self._wanted.spec

    def begin(
        self, survivors: Iterable[tuple[Record, int]] = (), *, strays: Iterable[str] = ()
    ) -> None:
        """Take over processes that still run, as (record, pid); then bring about the rest.

        `strays` are replicas being stopped elsewhere, by name: those names stay unused.
        """
        self._begun = True
        self._strays = tuple(strays)
        for record, pid in survivors:
            launch = self._launches.get(record.group)
            same = launch is not None and launch.revision == record.revision
            replica = self._replica(
                record.replica, record.group, record.revision, launch if same else None
            )
            if not same:
                judgement = replace(self._wanted.judgement, path=record.health)
                replica.wanted = replace(
                    self._wanted, backend=facts_of(record.backend), judgement=judgement
                )
            replica.was_ready = True  # it is not given up before another is ready
            replica.adopt(pid, record)
            self._run(replica)
        self._converge()

    def put(self, spec: RunSpec) -> None:
        """Change the wish. A workload that was being dropped is wanted again."""
        self._ended = False
        self._wanted = wanted(spec, self._around.limits)
        self._launches = self._made_launches()
        for replica in self._replicas:
            # An old revision is judged as it was declared: its backend may be another one.
            launch = self._launches.get(replica.group)
            if launch is not None and launch.revision == replica.revision:
                replica.wanted = self._wanted
        self._converge()

    def end(self) -> None:
        """Retire everything; `gone` is called when nothing is left."""
        self._ended = True
        self._converge()

    async def finished(self) -> None:
        """Wait until the replicas that run now have ended."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def let_go(self) -> None:
        """Stop watching, and leave the processes running."""
        self._begun = False
        for task in self._tasks.values():
            task.cancel()
        await self.finished()

    def check_secrets(self) -> None:
        """Read the secrets anew; a rotated one is rolled out like any other change."""
        if self._ended or "secrets" not in self.spec.fields:
            return
        before, self._launches = self._launches, self._made_launches()
        for group, launch in self._launches.items():
            if launch.revision != before[group].revision:
                what = launch.refused or "A secret was rotated; replicas are being replaced."
                self._tell("secret-changed", group, what)
                self._converge()

    def try_again(self) -> None:
        """Start what failed anew, without waiting for its turn; look at the secrets as well."""
        self.check_secrets()
        for replica in self._replicas:
            replica.try_again()

    @property
    def names(self) -> frozenset[str]:
        """The replicas there are."""
        return frozenset(replica.name for replica in self._replicas)

    def acquire(self) -> Lease | None:
        """Choose a ready replica for one request and count it in."""
        ready = [replica for replica in self._replicas if replica.ready]
        chosen = self._balancer.choose(
            [replica for replica in ready if replica.group == PRIMARY],
            [replica for replica in ready if replica.group == CANARY],
            0 if self._ended else self._wanted.weight,
        )
        if chosen is None:
            return None
        chosen.take(next(self._order))
        return Lease(
            url=chosen.url,
            group=chosen.group,
            replica=chosen.name,
            release=chosen.give_back,
            failed=chosen.doubt,
        )

    def rotate_logs(self) -> bool:
        """Keep the logs within their limit; return whether one was over it."""
        limit = self._around.limits.log_bytes
        rotated = [replica.log.rotate(limit) for replica in self._replicas]
        return any(rotated)

    async def logs(self, *, tail: int, follow: bool) -> AsyncIterator[str]:
        """Yield the last lines of each replica, then new ones while following."""
        followers = {}
        for log in sorted(self._logs.values(), key=lambda log: log.written_at):
            lines, position = log.whole_tail(tail)
            followers[log.replica] = Follower(log, position)
            for line in self._masked(log, lines):
                yield line
        while follow and not (self._ended and not self._replicas):
            for log in list(self._logs.values()):
                follower = followers.setdefault(log.replica, Follower(log, log.start))
                for line in self._masked(log, follower.lines()):
                    yield line
            await self._around.clock.sleep(_FOLLOW)

    def _masked(self, log: ReplicaLog, lines: Iterable[str]) -> Iterator[str]:
        """Name the replica in each line and hide the secrets that it was, or is now, given."""
        given = [self._given.get(log.replica, {})]
        given += [launch.secrets for launch in self._launches.values()]
        mask = Mask(secret for secrets in given for secret in secrets.values())
        for line in lines:
            yield f"{log.replica} {mask(line)}"

    def _made_launches(self) -> dict[str, Launch]:
        return {
            group.name: make_launch(
                self._wanted,
                group,
                secrets=self._means.secrets,
                key=self._means.key,
                inherited=self._means.inherited,
            )
            for group in self._wanted.groups
        }

    def _converge(self) -> None:
        self._due = False
        if not self._begun:
            return
        wishes = {} if self._ended else {group.name: group for group in self._wanted.groups}
        for name in (PRIMARY, CANARY):
            staying = [r for r in self._replicas if r.group == name and not r.retiring]
            wish, launch = wishes.get(name), self._launches.get(name)
            if wish is None or launch is None:
                for replica in staying:
                    self._retire(replica, "stopped")
                continue
            moves = next_moves(
                staying,
                wanted=wish.replicas,
                revision=launch.revision,
                surge=self._wanted.surge,
            )
            for replica in moves.retire:
                old = replica.revision != launch.revision
                self._retire(replica, "replaced" if old else "stopped")
            for _ in range(moves.start):
                self._run(self._replica(self._new_name(name), name, launch.revision, launch))
        self._publish()
        if self._ended and not self._replicas:
            self._gone(self.spec.uid)

    def _replica(self, name: str, group: str, revision: str, launch: Launch | None) -> Replica:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = self._logs.setdefault(name, ReplicaLog(self._folder / f"{name}.log"))
        replica = Replica(
            self._around,
            name=name,
            group=group,
            revision=revision,
            launch=launch,
            wanted=self._wanted,
            log=log,
            report=self._tell_of,
            changed=self._changed,
        )
        self._replicas.append(replica)
        if launch is not None:
            self._given[name] = launch.secrets
        return replica

    def _new_name(self, group: str) -> str:
        """Number replicas through; the latest log is always kept, so no number comes again."""
        names = [*self._logs, *self._strays, *(replica.name for replica in self._replicas)]
        used = [int(found[1]) for name in names if (found := _NUMBER.search(name))]
        return f"{group}-{max(used, default=0) + 1}"

    def _run(self, replica: Replica) -> None:
        task = asyncio.create_task(replica.run(), name=f"replica {replica.name}")
        self._tasks[replica] = task
        task.add_done_callback(lambda task: self._over(replica, task))

    def _retire(self, replica: Replica, reason: EventKind) -> None:
        self._reasons[replica] = reason
        replica.retire()

    def _over(self, replica: Replica, task: asyncio.Task[None]) -> None:
        del self._tasks[replica]
        if task.cancelled():
            return  # let go of, and running on
        if error := task.exception():
            _LOG.error("replica-task-failed", exc_info=error, extra={"replica": replica.name})
        self._replicas.remove(replica)
        kind = self._reasons.pop(replica, "stopped")
        self._tell(kind, replica.name, "It was drained and stopped.")
        self._prune_logs()
        self._converge()

    def _prune_logs(self) -> None:
        live = {replica.name for replica in self._replicas}
        ended = [log for log in self._logs.values() if log.replica not in live]
        for log in ended:
            log.rotate(self._around.limits.log_bytes)
        ended.sort(key=lambda log: log.written_at)
        for log in ended[: max(0, len(ended) - self._around.limits.kept_logs)]:
            log.remove()
            del self._logs[log.replica]
            self._given.pop(log.replica, None)

    def remove_logs(self) -> None:
        """Delete every log, once the workload is gone."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _changed(self) -> None:
        self._publish()
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._converge)

    def _publish(self) -> None:
        if self._ended:
            self.board.post(Status(phase=Phase.ERROR, message="The workload was deleted."))
            return
        self.board.post(summarize(self._wanted, self._launches, self._replicas))

    def _tell_of(self, kind: EventKind, replica: Replica, text: str, evidence: str) -> None:
        """Report what happened to a replica, and of a failed one what serves in its place."""
        instead = ""
        if kind == "failed" and replica.trouble:
            serving = [r for r in self._replicas if r.ready and r.group == replica.group]
            names = ", ".join(f"{r.name} (generation {r.generation or 'unknown'})" for r in serving)
            instead = f"These serve meanwhile: {names}." if names else "Nothing serves meanwhile."
        self._means.report(
            RunEvent(
                uid=self.spec.uid,
                kind=kind,
                replica=replica.name,
                message=text,
                evidence=evidence,
                generation=replica.generation,
                instead=instead,
            )
        )

    def _tell(self, kind: EventKind, replica: str, text: str, evidence: str = "") -> None:
        self._means.report(
            RunEvent(uid=self.spec.uid, kind=kind, replica=replica, message=text, evidence=evidence)
        )
