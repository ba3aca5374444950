"""Keeps one workload running as declared: starts, rolls over and retires its replicas.

Level-triggered: every change of the desired run or of a replica ends in `_converge`, which looks at
all replicas and takes the next small steps. Deciding those steps and summing the replicas up in one
status are pure functions.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import shutil
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace

from holdfast.adapters.runner.balancer import Balancer, ReplicaLease, effective_weight
from holdfast.adapters.runner.launch import Launch, make_launch
from holdfast.adapters.runner.records import ReplicaRecord
from holdfast.adapters.runner.replica import Replica, ReplicaStage, RunnerContext
from holdfast.adapters.runner.replica_log import LogFollower, ReplicaLog
from holdfast.adapters.runner.run_spec import (
    CANARY,
    PRIMARY,
    DesiredRun,
    EventKind,
    ReplicaGroup,
    RunEvent,
    RunSpec,
    make_desired_run,
)
from holdfast.adapters.runner.secrets import SecretMask
from holdfast.core.backends import backend_profile
from holdfast.core.cost import Cost, CostKind, sum_costs
from holdfast.core.diff import same_value
from holdfast.core.live import FailedReplica, OutdatedReplica, Phase, Progress, Status
from holdfast.core.normalize import normalize_workload
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields
from holdfast.reconcile.ports import Clock

_LISTENER_BACKLOG = 64
"""A listener that does not read loses the oldest updates, never the latest."""


class StatusFeed:
    """The latest status of one workload, and its listeners."""

    def __init__(self, clock: Clock, status: Status) -> None:
        self.status = status
        self._clock = clock
        self._listeners: set[_StatusListener] = set()

    def post(self, status: Status) -> None:
        """Replace the status; notify the listeners when it reads differently."""
        before, self.status = self.status, status
        if (before.phase, before.message) != (status.phase, status.message):
            for listener in self._listeners:
                listener.put(status)

    async def follow(self, began: float) -> AsyncIterator[Progress]:
        """Yield the present status, then each change, up to `ready` or `error`."""
        listener = _StatusListener(self.status)
        self._listeners.add(listener)
        try:
            while True:
                status = await listener.get()
                yield Progress(
                    phase=status.phase,
                    message=status.message,
                    elapsed_ms=int((self._clock.monotonic() - began) * 1000),
                )
                if status.phase in (Phase.READY, Phase.ERROR):
                    return
        finally:
            self._listeners.discard(listener)


class _StatusListener:
    def __init__(self, first: Status) -> None:
        self._waiting = deque([first], maxlen=_LISTENER_BACKLOG)
        self._filled = asyncio.Event()
        self._filled.set()

    def put(self, status: Status) -> None:
        self._waiting.append(status)
        self._filled.set()

    async def get(self) -> Status:
        await self._filled.wait()
        status = self._waiting.popleft()
        if not self._waiting:
            self._filled.clear()
        return status


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStep:
    """What to do now; more follows once these have taken effect."""

    start: int
    retire: tuple[Replica, ...]


def next_rollout_step(
    replicas: Sequence[Replica], *, desired: int, revision: str, surge: int
) -> RolloutStep:
    """Bring one group closer to `desired` replicas of `revision`.

    `replicas` are those not yet retiring, oldest first. At most `surge` more than desired run
    at once while an old revision is being replaced.
    """
    current = [replica for replica in replicas if replica.revision == revision]
    old = [replica for replica in replicas if replica.revision != revision]
    ready = sum(replica.ready for replica in current)
    # The newest go first when there are too many, and those that do not serve before them.
    newest = current[::-1]
    surplus = [r for r in newest if not r.ready] + [r for r in newest if r.ready]
    retire = surplus[: max(0, len(current) - desired)]
    # Old ones fill up what the new revision lacks; one that never served is of no use.
    useful = sorted((r for r in old if r.was_ready), key=lambda replica: not replica.ready)
    kept = useful[: max(0, desired - ready)]
    retire += [replica for replica in old if not any(replica is one for one in kept)]
    missing = desired - len(current)
    room = desired + surge - len(current) - len(kept) if kept else missing
    return RolloutStep(start=max(0, min(missing, room)), retire=tuple(retire))


def replacement_cost(
    replicas: Sequence[Replica], *, before: Sequence[ReplicaGroup], after: Sequence[ReplicaGroup]
) -> Cost:
    """Say what it does to replicas when their groups become other ones.

    `replicas` are those not yet retiring, oldest first. A new one serves before an old one that
    serves is given up, so while any answers, some go on answering.
    """
    old, new = ({group.name: group for group in groups} for groups in (before, after))
    costs = []
    for name in (PRIMARY, CANARY):
        staying = [replica for replica in replicas if replica.group == name]
        declared, will = old.get(name), new.get(name)
        count = will.replicas if will else 0
        replaced = []
        if will is not None and count and not (declared and _starts_alike(declared, will.fields)):
            replaced = [r for r in staying if not _is_started_from(r, will.fields)]
        kind = CostKind.NONE
        if replaced:
            kind = CostKind.ROLLING if any(r.ready for r in staying) else CostKind.GAP
        elif name == PRIMARY and staying and not count:
            kind = CostKind.GAP
        costs.append(Cost(kind=kind, pods=len(replaced), added=count - len(staying)))
    ready = [r.cold_start for r in reversed(replicas) if r.ready and r.cold_start is not None]
    return replace(sum_costs(costs), cold_start=ready[0] if ready else None)


def _starts_alike(group: ReplicaGroup, fields: Fields) -> bool:
    return normalize_workload(group.fields) == normalize_workload(fields)


def _is_started_from(replica: Replica, fields: Fields) -> bool:
    """True for a replica that runs these fields already, such as before a rollout that failed."""
    started = replica.fields
    return started is not None and normalize_workload(started) == normalize_workload(fields)


def summarize_status(
    desired: DesiredRun, launches: Mapping[str, Launch], replicas: Sequence[Replica]
) -> Status:
    """Say how a workload is doing. `launches` is what each group is declared to run."""
    staying = [replica for replica in replicas if not replica.retiring]
    current = [
        r for r in staying if (launch := launches.get(r.group)) and r.revision == launch.revision
    ]
    serving = [replica for replica in staying if replica.ready]
    phase, text = _workload_phase(desired, current)
    if phase is Phase.ERROR and any(r not in current for r in serving):
        text += " The previous revision keeps serving."
    return Status(
        phase=phase,
        message=" ".join((text, *desired.notes)),
        ready=len(serving),
        wanted=desired.replicas,
        canary_weight=effective_weight(
            any(r.group == PRIMARY for r in serving),
            any(r.group == CANARY for r in serving),
            desired.weight,
        ),
        failed=tuple(
            FailedReplica(name=r.name, generation=desired.spec.generation, reason=r.trouble)
            for r in current
            if r.trouble and not r.ready
        ),
        outdated=tuple(
            _outdated_replica(r, launches[r.group], desired.spec.fields)
            for r in serving
            if r not in current and r.group in launches
        ),
        runtime=tuple(each for r in current if r.ready for each in r.runtime),
        runtime_unknown=" ".join(
            f"{r.name}: {r.runtime_unknown}" for r in current if r.ready and r.runtime_unknown
        ),
    )


def _outdated_replica(replica: Replica, launch: Launch, written: Fields) -> OutdatedReplica:
    """Say what a replica runs, in fields of the workload and as far as it differs from them."""
    started = replica.fields
    secrets: tuple[str, ...] = ()
    differs: Fields | None = None
    if started is not None:
        secrets = tuple(
            sorted(
                name
                for name, value in replica.fingerprints.items()
                if name in launch.fingerprints and launch.fingerprints[name] != value
            )
        )
        now, then = normalize_workload(launch.fields), normalize_workload(started)
        differs = {
            name: started.get(name)
            for name in sorted({*now, *then})
            if not same_value(now.get(name), then.get(name))
        }
        if replica.group == CANARY:
            differs = _canary_fields(differs, written)
        if not differs and not secrets:
            differs = None
    return OutdatedReplica(
        name=replica.name, generation=replica.generation, fields=differs, secrets=secrets
    )


def _canary_fields(differs: Fields, written: Fields) -> Fields:
    """Write a canary's own fields where the workload has them; what it inherits has no place."""
    canary = written.get("canary")
    own = canary if isinstance(canary, dict) else {}
    mine = {name: value for name, value in differs.items() if name in own}
    return {"canary": {**own, **mine}} if mine else {}


def _workload_phase(desired: DesiredRun, current: Sequence[Replica]) -> tuple[Phase, str]:
    count = desired.replicas
    if count == 0:
        return Phase.READY, "No replica is wanted, so none runs."
    ready = sum(replica.ready for replica in current)
    if ready >= count:
        return Phase.READY, f"{ready} of {count} replicas ready."
    behind = [replica for replica in current if not replica.ready]
    if not behind:
        return Phase.SCHEDULING, f"{ready} of {count} replicas ready; the next one follows."
    for replica in behind:
        if replica.failed:
            return Phase.ERROR, f"Replica {replica.name}: {replica.trouble}"
    first = min(behind, key=lambda replica: (replica.stage is ReplicaStage.WAITING, replica.name))
    started = first.stage is ReplicaStage.LOADING or first.failures
    phase = Phase.BOOTSTRAPPING if started else Phase.PROVISIONING
    return phase, f"{ready} of {count} replicas ready; {first.name}: {first.message}"


_LOG = logging.getLogger("holdfast.runner")
_NUMBER_SUFFIX = re.compile(r"-(\d+)$")
_FOLLOW_SECONDS = 0.25


class WorkloadSupervisor:
    """One workload. Does nothing before `begin`."""

    def __init__(
        self, context: RunnerContext, spec: RunSpec, *, gone: Callable[[str], None]
    ) -> None:
        self._context = context
        self._desired = make_desired_run(spec, context.limits)
        self._launches = self._made_launches()
        self._gone = gone
        self._begun = self._ended = False
        self._due = False
        self._strays: tuple[str, ...] = ()
        self._replicas: list[Replica] = []
        self._tasks: dict[Replica, asyncio.Task[None]] = {}
        self._reasons: dict[Replica, EventKind] = {}
        self._secrets_of: dict[str, Mapping[str, Secret]] = {}
        """The secrets of each replica whose log is kept: a rotated one still stands there."""
        self._balancer = Balancer()
        self._order = itertools.count(1)
        self._folder = context.logs / spec.uid
        self._logs = {log.replica: log for log in map(ReplicaLog, self._folder.glob("*.log"))}
        self.status_feed = StatusFeed(
            self._context.clock, Status(message="Waiting for the runner to begin.")
        )

    @property
    def spec(self) -> RunSpec:
        """What was asked for last."""
        return self._desired.spec

    def begin(
        self, survivors: Iterable[tuple[ReplicaRecord, int]] = (), *, strays: Iterable[str] = ()
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
                health_check = replace(self._desired.health_check, path=record.health)
                replica.desired = replace(
                    self._desired,
                    backend=backend_profile(record.backend),
                    health_check=health_check,
                )
            replica.was_ready = True  # it is not given up before another is ready
            replica.adopt(pid, record)
            self._run(replica)
        self._converge()

    def put(self, spec: RunSpec) -> None:
        """Change what should run. A workload that was being dropped is desired again."""
        self._ended = False
        self._desired = make_desired_run(spec, self._context.limits)
        self._launches = self._made_launches()
        for replica in self._replicas:
            # An old revision is probed as it was declared: its backend may be another one.
            launch = self._launches.get(replica.group)
            if launch is not None and launch.revision == replica.revision:
                replica.desired = self._desired
        self._converge()

    def end(self) -> None:
        """Retire everything; `gone` is called when nothing is left."""
        self._ended = True
        self._converge()

    async def wait_finished(self) -> None:
        """Wait until the replicas that run now have ended."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def let_go(self) -> None:
        """Stop watching, and leave the processes running."""
        self._begun = False
        for task in self._tasks.values():
            task.cancel()
        await self.wait_finished()

    def check_secrets(self) -> None:
        """Read the secrets anew; a rotated one is rolled out like any other change."""
        if self._ended or "secrets" not in self.spec.fields:
            return
        before, self._launches = self._launches, self._made_launches()
        for group, launch in self._launches.items():
            if launch.revision != before[group].revision:
                what = launch.refused or "A secret was rotated; replicas are being replaced."
                self._report("secret-changed", group, what)
                self._converge()

    def try_again(self) -> None:
        """Start what failed anew, without waiting for its turn; look at the secrets as well."""
        self.check_secrets()
        for replica in self._replicas:
            replica.try_again()

    def cost(self, after: DesiredRun | None) -> Cost:
        """Say what it does to the replicas when this is to run in place of what was asked last."""
        staying = [replica for replica in self._replicas if not replica.retiring]
        groups = after.groups if after else ()
        return replacement_cost(staying, before=self._desired.groups, after=groups)

    @property
    def names(self) -> frozenset[str]:
        """The replicas there are."""
        return frozenset(replica.name for replica in self._replicas)

    def acquire(self, tried: Collection[str] = ()) -> ReplicaLease | None:
        """Choose a ready replica for one request and count it in; none that it was given before."""
        ready = [each for each in self._replicas if each.ready and each.name not in tried]
        chosen = self._balancer.choose(
            [replica for replica in ready if replica.group == PRIMARY],
            [replica for replica in ready if replica.group == CANARY],
            0 if self._ended else self._desired.weight,
        )
        if chosen is None:
            return None
        chosen.take(next(self._order))
        return ReplicaLease(
            url=chosen.url,
            group=chosen.group,
            replica=chosen.name,
            release=chosen.give_back,
            failed=chosen.doubt,
        )

    def rotate_logs(self) -> bool:
        """Keep the logs within their limit; return whether one was over it."""
        limit = self._context.limits.log_bytes
        rotated = [replica.log.rotate(limit) for replica in self._replicas]
        return any(rotated)

    async def logs(self, *, tail: int, follow: bool) -> AsyncIterator[str]:
        """Yield the last lines of each replica, then new ones while following."""
        followers = {}
        for log in sorted(self._logs.values(), key=lambda log: log.written_at):
            lines, position = log.whole_tail(tail)
            followers[log.replica] = LogFollower(log, position)
            for line in self._masked(log, lines):
                yield line
        while follow and not (self._ended and not self._replicas):
            for log in list(self._logs.values()):
                follower = followers.setdefault(log.replica, LogFollower(log, log.start))
                for line in self._masked(log, follower.lines()):
                    yield line
            await self._context.clock.sleep(_FOLLOW_SECONDS)

    def _masked(self, log: ReplicaLog, lines: Iterable[str]) -> Iterator[str]:
        """Name the replica in each line and hide the secrets that it was, or is now, given."""
        given = [self._secrets_of.get(log.replica, {})]
        given += [launch.secrets for launch in self._launches.values()]
        mask = SecretMask(secret for secrets in given for secret in secrets.values())
        for line in lines:
            yield f"{log.replica} {mask(line)}"

    def _made_launches(self) -> dict[str, Launch]:
        return {
            group.name: make_launch(
                self._desired,
                group,
                secrets=self._context.secrets,
                key=self._context.key,
                inherited=self._context.inherited,
            )
            for group in self._desired.groups
        }

    def _converge(self) -> None:
        self._due = False
        if not self._begun:
            return
        groups = {} if self._ended else {group.name: group for group in self._desired.groups}
        for name in (PRIMARY, CANARY):
            staying = [r for r in self._replicas if r.group == name and not r.retiring]
            group, launch = groups.get(name), self._launches.get(name)
            if group is None or launch is None:
                for replica in staying:
                    self._retire(replica, "stopped")
                continue
            moves = next_rollout_step(
                staying, desired=group.replicas, revision=launch.revision, surge=self._desired.surge
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
            self._context,
            name=name,
            group=group,
            revision=revision,
            launch=launch,
            desired=self._desired,
            log=log,
            report=self._report_replica,
            changed=self._changed,
        )
        self._replicas.append(replica)
        if launch is not None:
            self._secrets_of[name] = launch.secrets
        return replica

    def _new_name(self, group: str) -> str:
        """Number replicas through; the latest log is always kept, so no number comes again."""
        names = [*self._logs, *self._strays, *(replica.name for replica in self._replicas)]
        used = [int(found[1]) for name in names if (found := _NUMBER_SUFFIX.search(name))]
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
        self._report(kind, replica.name, "It was drained and stopped.")
        self._prune_logs()
        self._converge()

    def _prune_logs(self) -> None:
        live = {replica.name for replica in self._replicas}
        ended = [log for log in self._logs.values() if log.replica not in live]
        for log in ended:
            log.rotate(self._context.limits.log_bytes)
        ended.sort(key=lambda log: log.written_at)
        for log in ended[: max(0, len(ended) - self._context.limits.kept_logs)]:
            log.remove()
            del self._logs[log.replica]
            self._secrets_of.pop(log.replica, None)

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
            self.status_feed.post(Status(phase=Phase.ERROR, message="The workload was deleted."))
            return
        self.status_feed.post(summarize_status(self._desired, self._launches, self._replicas))

    def _report_replica(self, kind: EventKind, replica: Replica, text: str, evidence: str) -> None:
        """Report what happened to a replica, and of a failed one what serves in its place."""
        instead = ""
        if kind == "failed" and replica.trouble:
            serving = [r for r in self._replicas if r.ready and r.group == replica.group]
            names = ", ".join(f"{r.name} (generation {r.generation or 'unknown'})" for r in serving)
            instead = f"These serve meanwhile: {names}." if names else "Nothing serves meanwhile."
        self._context.report(
            RunEvent(
                uid=self.spec.uid,
                kind=kind,
                replica=replica.name,
                message=text,
                evidence=evidence,
                generation=replica.generation,
                differences=replica.runtime if kind == "runtime-drifted" else (),
                instead=instead,
            )
        )

    def _report(self, kind: EventKind, replica: str, text: str, evidence: str = "") -> None:
        self._context.report(
            RunEvent(uid=self.spec.uid, kind=kind, replica=replica, message=text, evidence=evidence)
        )
