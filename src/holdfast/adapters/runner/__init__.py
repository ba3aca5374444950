"""Runs workloads as local processes: start, health, replace, drain.

The server gives it what should run and hears back through `RunEvent`s. It knows nothing of
where declarations are stored.
"""

from holdfast.adapters.runner.balance import Lease
from holdfast.adapters.runner.runner import Runner
from holdfast.adapters.runner.values import EventKind, Limits, RunEvent, RunSpec

__all__ = ["EventKind", "Lease", "Limits", "RunEvent", "RunSpec", "Runner"]
