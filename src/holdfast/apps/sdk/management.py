"""The management client: declare workloads and keep them as declared."""

from __future__ import annotations

import builtins  # `list` is a method here
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Self

from holdfast.apps.sdk.client import BaseClient, warn_of_drift
from holdfast.apps.sdk.view import ProgressView, unseen
from holdfast.apps.sdk.waiting import wait_until_ready
from holdfast.apps.sdk.watching import WorkloadChange, watch
from holdfast.core.ledger import DriftRecord, HistoryEntry
from holdfast.core.live import Live, Progress
from holdfast.core.outcome import EndpointRef
from holdfast.core.plan import Plan
from holdfast.core.policy import OnAbsent, OnDrift
from holdfast.core.workload import WorkloadSpec
from holdfast.reconcile.colour import iterate, run


class ManagementClient(BaseClient):
    """Declares workloads and keeps them as declared.

    Safe to share between threads. Every method raises a `HoldfastError` and nothing else.
    """

    _blocking = True

    def ensure(
        self,
        spec: WorkloadSpec,
        *,
        on_drift: OnDrift | str = OnDrift.RECONCILE,
        on_absent: OnAbsent | str = OnAbsent.CREATE,
        project: str | None = None,
        timeout: float | None = None,
    ) -> EndpointRef:
        """Make the live workload match the spec, as far as the policy allows.

        Absent, it is created; in sync, nothing happens; drifted, `on_drift` decides:
        `reconcile` updates it, `fail` raises DriftError with the plan, `dry_run` returns the
        plan on the ref, `warn` warns, `ignore` keeps quiet. `on_absent` governs the absent
        case: `create`, `plan`, or `fail`, which raises NotFound.
        """
        return run(
            self._engine.ensure(
                spec,
                on_drift=on_drift,
                on_absent=on_absent,
                project=project,
                timeout=timeout,
                warn=warn_of_drift,
            )
        )

    def ensure_all(
        self,
        specs: Iterable[WorkloadSpec],
        *,
        on_drift: OnDrift | str = OnDrift.RECONCILE,
        on_absent: OnAbsent | str = OnAbsent.CREATE,
        project: str | None = None,
        timeout: float | None = None,
    ) -> builtins.list[EndpointRef]:
        """Ensure several workloads, in the order given.

        All are checked and observed before the first write, so a policy that stops at one
        stops before any is touched. When one fails later, the error says what was written.
        """
        return run(
            self._engine.ensure_all(
                specs,
                on_drift=on_drift,
                on_absent=on_absent,
                project=project,
                timeout=timeout,
                warn=warn_of_drift,
            )
        )

    def plan(
        self,
        specs: WorkloadSpec | Iterable[WorkloadSpec],
        *,
        project: str | None = None,
        timeout: float | None = None,
    ) -> Plan:
        """Say what `ensure` would do. Changes nothing in any situation."""
        return run(self._engine.plan(specs, project=project, timeout=timeout))

    def apply(self, plan: Plan, *, timeout: float | None = None) -> builtins.list[Live | None]:
        """Carry out exactly this plan, or raise StalePlan before the first write.

        Returns the live side after each step, None where the workload is gone.
        """
        return run(self._engine.apply(plan, timeout=timeout))

    def get(
        self, workload_slug: str, *, project: str | None = None, timeout: float | None = None
    ) -> Live:
        """Return one live workload. Raises NotFound when there is none."""
        return run(self._engine.get(workload_slug, project=project, timeout=timeout))

    def list(
        self, *, project: str | None = None, timeout: float | None = None
    ) -> builtins.list[Live]:
        """Return every live workload of the project, ordered by slug."""
        return run(self._engine.list(project=project, timeout=timeout))

    def delete(
        self, workload_slug: str, *, project: str | None = None, timeout: float | None = None
    ) -> bool:
        """Delete a workload. True when it was there, False when it was already gone."""
        return run(self._engine.delete(workload_slug, project=project, timeout=timeout))

    def watch(
        self, *, slug: str | None = None, project: str | None = None, timeout: float | None = None
    ) -> Iterator[WorkloadChange]:
        """Yield what is there, then each change, until `timeout` seconds are over or for ever."""
        return iterate(watch(self._engine, project=project, slug=slug, timeout=timeout))

    def wait_until_ready(
        self,
        workload_slug: str,
        *,
        project: str | None = None,
        timeout: float = 600.0,
        on_progress: Callable[[Progress], None] | None = None,
        silent: bool = False,
    ) -> Progress:
        """Wait until the workload serves, showing its progress on stderr.

        Give `on_progress` to show it in your own way, or `silent` for not at all. Raises
        WorkloadFailed when it cannot serve, WaitTimeout when the time is up.
        """
        view = None if on_progress or silent else ProgressView(workload_slug)
        with view or nullcontext():
            return run(
                wait_until_ready(
                    self._engine,
                    workload_slug,
                    project=project,
                    timeout=timeout,
                    show=on_progress or view or unseen,
                )
            )

    def drifts(
        self,
        *,
        slug: str | None = None,
        include_resolved: bool = False,
        project: str | None = None,
        timeout: float | None = None,
    ) -> builtins.list[DriftRecord]:
        """Return the drifts in the ledger, newest first; only open ones unless told."""
        return run(
            self._engine.drifts(
                slug=slug, include_resolved=include_resolved, project=project, timeout=timeout
            )
        )

    def history(
        self,
        *,
        slug: str | None = None,
        limit: int = 100,
        project: str | None = None,
        timeout: float | None = None,
    ) -> builtins.list[HistoryEntry]:
        """Return who did what and when, newest first."""
        return run(self._engine.history(slug=slug, limit=limit, project=project, timeout=timeout))

    def logs(
        self,
        workload_slug: str,
        *,
        tail: int = 100,
        follow: bool = False,
        project: str | None = None,
    ) -> Iterator[str]:
        """Yield the workload's last log lines; with `follow`, go on as they come."""
        return iterate(self._engine.logs(workload_slug, tail=tail, follow=follow, project=project))

    def close(self) -> None:
        """Let go of connections and files. Safe to call twice."""
        run(self._engine.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
