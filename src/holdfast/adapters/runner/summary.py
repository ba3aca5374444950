"""Sums the replicas of a workload up in one status. Pure.

The phase speaks of what is declared: while an old revision still serves, `ready` counts it,
but the phase is that of the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.adapters.runner.balance import effective_weight
from holdfast.adapters.runner.launch import Launch
from holdfast.adapters.runner.replica import Replica, Stage
from holdfast.adapters.runner.values import CANARY, PRIMARY
from holdfast.adapters.runner.wanted import Wanted
from holdfast.core.diff import same
from holdfast.core.live import FailedReplica, OutdatedReplica, Phase, Status
from holdfast.core.normalize import normalize_workload
from holdfast.core.tree import Fields


def summarize(
    wanted: Wanted, launches: Mapping[str, Launch], replicas: Sequence[Replica]
) -> Status:
    """Say how a workload is doing. `launches` is what each group is declared to run."""
    staying = [replica for replica in replicas if not replica.retiring]
    current = [
        r for r in staying if (launch := launches.get(r.group)) and r.revision == launch.revision
    ]
    serving = [replica for replica in staying if replica.ready]
    phase, text = _phase(wanted, current)
    if phase is Phase.ERROR and any(r not in current for r in serving):
        text += " The previous revision keeps serving."
    return Status(
        phase=phase,
        message=" ".join((text, *wanted.notes)),
        ready=len(serving),
        wanted=wanted.replicas,
        canary_weight=effective_weight(
            any(r.group == PRIMARY for r in serving),
            any(r.group == CANARY for r in serving),
            wanted.weight,
        ),
        failed=tuple(
            FailedReplica(name=r.name, generation=wanted.spec.generation, reason=r.trouble)
            for r in current
            if r.trouble and not r.ready
        ),
        outdated=tuple(
            _outdated(r, launches[r.group], wanted.spec.fields)
            for r in serving
            if r not in current and r.group in launches
        ),
    )


def _outdated(replica: Replica, launch: Launch, written: Fields) -> OutdatedReplica:
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
            if not same(now.get(name), then.get(name))
        }
        if replica.group == CANARY:
            differs = _as_canary(differs, written)
        if not differs and not secrets:
            differs = None
    return OutdatedReplica(
        name=replica.name, generation=replica.generation, fields=differs, secrets=secrets
    )


def _as_canary(differs: Fields, written: Fields) -> Fields:
    """Write a canary's own fields where the workload has them; what it inherits has no place."""
    canary = written.get("canary")
    own = canary if isinstance(canary, dict) else {}
    mine = {name: value for name, value in differs.items() if name in own}
    return {"canary": {**own, **mine}} if mine else {}


def _phase(wanted: Wanted, current: Sequence[Replica]) -> tuple[Phase, str]:
    count = wanted.replicas
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
    first = min(behind, key=lambda replica: (replica.stage is Stage.WAITING, replica.name))
    started = first.stage is Stage.LOADING or first.failures
    phase = Phase.BOOTSTRAPPING if started else Phase.PROVISIONING
    return phase, f"{ready} of {count} replicas ready; {first.name}: {first.message}"
