"""What the reconciler and the apps ask of the world.

The docstrings are the contract: one suite in `tests/contracts/` holds every adapter to them.
Adapters are async. The sync apps run the same code over transports that never suspend (see
`reconcile/sync_bridge.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.backends import BackendProfile
from holdfast.core.cost import Cost
from holdfast.core.engine_answer import EngineReport, Unreported
from holdfast.core.engine_report import AdapterRequest
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.ledger import DriftRecord, HistoryEntry
from holdfast.core.live import Absent, Live, Progress
from holdfast.core.names import WorkloadId
from holdfast.core.plan import Step
from holdfast.core.workload import Desired


class Target(Protocol):
    """A place workloads run."""

    def refuses(self, desired: Desired) -> Sequence[Problem]:
        """Say which declared fields this target cannot honour. Reads nothing.

        Asked after the workload was observed, so that what the target said of itself then may
        count. A field that passes here is honoured or refused by `perform`, never dropped.
        """

    async def observe(self, workload: WorkloadId) -> Live | Absent:
        """Return what is there now.

        Never changes anything. Raises TargetUnavailable rather than guess: an unanswered
        question is not an absent workload.
        """

    async def perform(self, step: Step, *, key: str) -> Live | Absent:
        """Carry out one step and return the live side after it.

        Guarded by what the step saw: raises Conflict and changes nothing when the workload
        was created, changed, replaced or deleted since. Safe to repeat with the same key:
        the second call answers as the first did and has no second effect. A deletion of what
        is already gone is no conflict. A step that does nothing only observes.
        """

    async def cost(self, step: Step) -> Cost | None:
        """Say what carrying out a step would do to the replicas that answer now.

        Never changes anything and never raises: None where nobody can tell, also since the
        workload is not as the step saw it.
        """


def reused_key_error() -> ValidationError:
    """What `perform` raises for a key of another step: neither outcome would be right."""
    problem = Problem(
        field="Idempotency-Key",
        reason="it was used for another request.",
        fix="Use a new key for each request.",
    )
    return ValidationError(problems=[problem])


class Clock(Protocol):
    """Time as an argument: tests give their own."""

    def now(self) -> datetime:
        """Wall-clock time with a time zone; for people and records, not for waiting."""

    def monotonic(self) -> float:
        """Seconds that never run backwards; for deadlines."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class MetricSource(Protocol):
    """Where a canary's metric is asked for."""

    async def query(self, expression: str) -> float | None:
        """Return the value now, or None for whatever is not one number.

        Never raises and never waits long: a metric that cannot be had must not hold up a pass.
        """


class EngineApi(Protocol):
    """The inference engines, at addresses that the caller answers for."""

    async def report(self, url: str, backend: BackendProfile) -> EngineReport:
        """Ask an engine what it serves. Reads only, within bounds of time and bytes.

        Never raises: what was not told is in the report, with the reason.
        """

    async def send(self, url: str, request: AdapterRequest) -> Unreported | None:
        """Send one change of its adapters; returns why the engine did not take it, or None.

        Where it was not reached, or gave no answer, whether it took it is unknown.
        """


class ControlTarget(Target, Protocol):
    """A target with everything the apps show besides: lists, history, progress, logs."""

    async def list(self, project: str) -> Sequence[Live]:
        """Return every workload of a project, ordered by slug. All of them or an error."""

    def progress(self, workload: WorkloadId) -> AsyncIterator[Progress]:
        """Follow a workload to readiness: the current phase first, then each change.

        Ends after `ready` or `error`. An end before that is a lost connection.
        """

    async def drifts(
        self, project: str, *, slug: str | None = None, include_resolved: bool = False
    ) -> Sequence[DriftRecord]:
        """Return the ledger's drifts, newest first.

        Each that is open says what putting it back costs, as far as that is known in time; how
        many there are does not change how often the world is asked for it.
        """

    async def history(
        self, project: str, *, slug: str | None = None, limit: int = 100
    ) -> Sequence[HistoryEntry]:
        """Return audit rows, newest first."""

    def logs(self, workload: WorkloadId, *, tail: int, follow: bool) -> AsyncIterator[str]:
        """Yield log lines, oldest first, each with the name of its replica."""

    async def aclose(self) -> None:
        """Let go of connections and files. Safe to call twice."""
