"""Sums the replicas of a workload up in one status. Pure.

The phase speaks of what is declared: while an old revision still serves, `ready` counts it,
but the phase is that of the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.adapters.runner.balance import effective_weight
from holdfast.adapters.runner.replica import Replica, Stage
from holdfast.adapters.runner.values import CANARY, PRIMARY
from holdfast.adapters.runner.wanted import Wanted
from holdfast.core.live import Phase, Status


def summarize(wanted: Wanted, revisions: Mapping[str, str], replicas: Sequence[Replica]) -> Status:
    """Say how a workload is doing. `revisions` names the declared one of each group."""
    staying = [replica for replica in replicas if not replica.retiring]
    current = [r for r in staying if r.revision == revisions.get(r.group)]
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
    )


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
