"""Runs workloads as local processes: start, health, replace, drain.

The server gives it what should run and hears back through `RunEvent`s. It knows nothing of
where declarations are stored.

Start at `runner`, which has one `supervisor` per workload, which has one `replica` per process.
`run_spec` says what should run, `launch` how it starts, `process` starts and stops it, `health`
probes it, `balancer` chooses the replica for a request, `records` outlive a restart of the server;
`replica_log` bounds what is printed, `secrets` reads what a workload refers to.
"""

from holdfast.adapters.runner.balancer import Balancer, ReplicaLease
from holdfast.adapters.runner.run_spec import EventKind, RunEvent, RunnerLimits, RunSpec
from holdfast.adapters.runner.runner import Runner

__all__ = ["Balancer", "EventKind", "ReplicaLease", "RunEvent", "RunSpec", "Runner", "RunnerLimits"]
