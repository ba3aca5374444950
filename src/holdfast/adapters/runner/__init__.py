"""Runs workloads as local processes: start, health, replace, drain.

The server gives it what should run and hears back through `RunEvent`s. It knows nothing of
where declarations are stored.
"""

from holdfast.adapters.runner.balancer import ReplicaLease
from holdfast.adapters.runner.run_spec import EventKind, RunEvent, RunnerLimits, RunSpec
from holdfast.adapters.runner.runner import Runner

__all__ = ["EventKind", "ReplicaLease", "RunEvent", "RunSpec", "Runner", "RunnerLimits"]
