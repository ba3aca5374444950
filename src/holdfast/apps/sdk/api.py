"""What a management client does, as coroutines.

The async client has these methods, and the sync client drives the same coroutines. Drift is a value
down here; it becomes an exception or a warning at the very end, when the policy says so.
"""

# ruff: noqa: ASYNC109  # the transport keeps the total deadline, for sync and async alike

from __future__ import annotations

import builtins  # `list` is a method here
import logging
import os
import sys
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from holdfast.apps.sdk.progress import ProgressView
from holdfast.apps.sdk.watching import WorkloadChange, wait_until_ready, watch_workloads
from holdfast.core.drift import Drift
from holdfast.core.errors import (
    ConfigurationError,
    Conflict,
    DriftError,
    DriftWarning,
    HoldfastError,
    NotFound,
    Problem,
    ValidationError,
)
from holdfast.core.ledger import DriftRecord, HistoryEntry
from holdfast.core.live import Absent, Live, Progress
from holdfast.core.names import WorkloadId, require_slug
from holdfast.core.outcome import EndpointRef, Outcome
from holdfast.core.plan import Plan, delete_plan
from holdfast.core.policy import DecisionAction, OnAbsent, OnDrift, decide
from holdfast.core.redact import quote_text
from holdfast.core.show import plan_summary
from holdfast.core.tree import show_path
from holdfast.core.workload import Desired, WorkloadSpec, desired_of
from holdfast.reconcile import reconciler
from holdfast.reconcile.ports import Clock, ControlTarget

DELETE_ATTEMPTS = 8
log = logging.getLogger("holdfast")
log.addHandler(logging.NullHandler())  # a library speaks when its application listens

E = TypeVar("E", bound=StrEnum)
_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCalls:
    """How a client calls its target: with a default project and a default time-out."""

    target: ControlTarget
    project: str | None
    timeout: float
    clock: Clock

    def within(self, seconds: float | None) -> ControlTarget:
        """Return the target under a total deadline, where it can keep one."""
        bound = getattr(self.target, "within", None)
        if bound is None:
            return self.target
        limited: ControlTarget = bound(seconds)
        return limited

    def for_call(self, timeout: float | None) -> ControlTarget:
        """Return the target for one call."""
        budget = self.timeout if timeout is None else timeout
        if not budget > 0:
            raise ValidationError(f"A timeout of {budget!r} leaves no time to do anything.")
        return self.within(budget)

    def project_of(self, project: str | None) -> str:
        """Return the project of a call."""
        chosen = project or self.project
        if not chosen:
            raise ConfigurationError(
                "No project was named.",
                hint="Set HOLDFAST_PROJECT, pass project=, or set it in the spec.",
            )
        return require_slug(chosen, field="project")

    def workload_id(self, slug: str, project: str | None) -> WorkloadId:
        """Return the identity of a workload that a caller named."""
        return WorkloadId(project=self.project_of(project), slug=require_slug(slug))

    def desired(self, spec: WorkloadSpec, project: str | None) -> Desired:
        """Put a spec in a project: the call's, else the spec's, else the client's."""
        if not isinstance(spec, WorkloadSpec):
            raise ValidationError(
                f"A WorkloadSpec is needed; this is a {type(spec).__name__}.",
                hint="Build one: WorkloadSpec(name=…, model=…, backend=…).",
            )
        project = self.project_of(project or spec.project)
        desired = desired_of(spec, project=project)
        return replace(desired, id=WorkloadId(project=project, slug=spec.slug))


class ManagementApi:
    """The methods of the async client, which `ManagementClient` drives."""

    def __init__(self, calls: TargetCalls) -> None:
        self._calls = calls

    async def ensure(
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
        drift_policy = parse_enum(OnDrift, on_drift, "on_drift")
        absent_policy = parse_enum(OnAbsent, on_absent, "on_absent")
        desired = self._calls.desired(spec, project)
        ref = await reconciler.ensure(
            self._calls.for_call(timeout),
            desired,
            on_drift=drift_policy,
            on_absent=absent_policy,
            key=uuid.uuid4().hex,
        )
        return report_drift(ref, drift_policy)

    async def ensure_all(
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
        drift_policy = parse_enum(OnDrift, on_drift, "on_drift")
        absent_policy = parse_enum(OnAbsent, on_absent, "on_absent")
        desired = [self._calls.desired(spec, project) for spec in specs]
        check_distinct(desired)
        target = self._calls.for_call(timeout)
        plan, drifts = await reconciler.plan(target, desired)
        if drift_policy is OnDrift.FAIL:  # the error carries the plan
            plan = await reconciler.add_costs(target, plan)
        raise_if_refused(plan, drifts, drift_policy, absent_policy)
        refs: list[EndpointRef] = []
        for each in desired:
            try:
                ref = await reconciler.ensure(
                    target,
                    each,
                    on_drift=drift_policy,
                    on_absent=absent_policy,
                    key=uuid.uuid4().hex,
                )
                refs.append(report_drift(ref, drift_policy))
            except HoldfastError as error:
                error.add_changes(_describe_changes_so_far(refs, each))
                raise
        return refs

    async def plan(
        self,
        specs: WorkloadSpec | Iterable[WorkloadSpec],
        *,
        project: str | None = None,
        timeout: float | None = None,
    ) -> Plan:
        """Say what `ensure` would do, and what that costs. Changes nothing in any situation."""
        given = [specs] if isinstance(specs, WorkloadSpec) else list(specs)
        desired = [self._calls.desired(spec, project) for spec in given]
        check_distinct(desired)
        target = self._calls.for_call(timeout)
        plan, _ = await reconciler.plan(target, desired)
        return await reconciler.add_costs(target, plan)

    async def apply(
        self, plan: Plan, *, timeout: float | None = None
    ) -> builtins.list[Live | None]:
        """Carry out exactly this plan, or raise StalePlan before the first write.

        Returns the live side after each step, None where the workload is gone.
        """
        return [*await reconciler.apply(self._calls.for_call(timeout), plan, key=uuid.uuid4().hex)]

    async def get(
        self, workload_slug: str, *, project: str | None = None, timeout: float | None = None
    ) -> Live:
        """Return one live workload. Raises NotFound when there is none."""
        where = self._calls.workload_id(workload_slug, project)
        live = await self._calls.for_call(timeout).observe(where)
        if isinstance(live, Absent):
            raise NotFound(
                f"There is no workload {where}.", hint="list() shows the workloads there are."
            )
        return live

    async def delete(
        self, workload_slug: str, *, project: str | None = None, timeout: float | None = None
    ) -> bool:
        """Delete a workload. True when it was there, False when it was already gone."""
        where = self._calls.workload_id(workload_slug, project)
        target, key = self._calls.for_call(timeout), uuid.uuid4().hex
        for attempt in range(DELETE_ATTEMPTS):
            live = await target.observe(where)
            if isinstance(live, Absent):
                return False
            try:
                await target.perform(delete_plan(live).steps[0], key=f"{key}-{attempt}")
            except Conflict:
                continue
            return True
        raise Conflict(f"Workload {where} was changed {DELETE_ATTEMPTS} times while being deleted.")

    async def plan_delete(
        self, workload_slug: str, *, project: str | None = None, timeout: float | None = None
    ) -> Plan:
        """Say what `delete` would do, and what that costs; nothing where nothing is there.

        Changes nothing. `apply` carries it out, as long as the workload is as it was seen here.
        """
        where = self._calls.workload_id(workload_slug, project)
        target = self._calls.for_call(timeout)
        live = await target.observe(where)
        if isinstance(live, Absent):
            return Plan(steps=())
        return await reconciler.add_costs(target, delete_plan(live))

    async def list(
        self, *, project: str | None = None, timeout: float | None = None
    ) -> builtins.list[Live]:
        """Return every live workload of the project, ordered by slug."""
        return [*await self._calls.for_call(timeout).list(self._calls.project_of(project))]

    async def drifts(
        self,
        *,
        slug: str | None = None,
        include_resolved: bool = False,
        project: str | None = None,
        timeout: float | None = None,
    ) -> builtins.list[DriftRecord]:
        """Return the drifts in the ledger, newest first; only open ones unless told."""
        named = None if slug is None else require_slug(slug)
        found = await self._calls.for_call(timeout).drifts(
            self._calls.project_of(project), slug=named, include_resolved=include_resolved
        )
        return [*found]

    async def history(
        self,
        *,
        slug: str | None = None,
        limit: int = 100,
        project: str | None = None,
        timeout: float | None = None,
    ) -> builtins.list[HistoryEntry]:
        """Return who did what and when, newest first."""
        named = None if slug is None else require_slug(slug)
        found = await self._calls.for_call(timeout).history(
            self._calls.project_of(project), slug=named, limit=limit
        )
        return [*found]

    def logs(
        self,
        workload_slug: str,
        *,
        tail: int = 100,
        follow: bool = False,
        project: str | None = None,
    ) -> AsyncIterator[str]:
        """Yield the workload's last log lines; with `follow`, go on as they come."""
        target = self._calls.within(None) if follow else self._calls.for_call(None)
        return target.logs(
            self._calls.workload_id(workload_slug, project), tail=tail, follow=follow
        )

    def watch(
        self, *, slug: str | None = None, project: str | None = None, timeout: float | None = None
    ) -> AsyncIterator[WorkloadChange]:
        """Yield what is there, then each change, until `timeout` seconds are over or for ever."""
        return watch_workloads(self._calls, project=project, slug=slug, timeout=timeout)

    async def wait_until_ready(
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
        workload = self._calls.workload_id(workload_slug, project)
        view = None if on_progress or silent else ProgressView(workload_slug)
        show = on_progress or view or (lambda _: None)
        with view or nullcontext():
            return await wait_until_ready(self._calls, workload, timeout=timeout, show=show)

    async def close(self) -> None:
        """Let go of connections and files. Safe to call twice."""
        await self._calls.target.aclose()


def parse_enum(kind: type[E], value: E | str, field: str) -> E:
    """Accept the enum or its name, in any case and with either dash."""
    text = str(value).lower().replace("-", "_")
    if text not in kind._value2member_map_:
        names = ", ".join(kind)
        raise ValidationError(
            problems=[
                Problem(
                    field=field,
                    reason=f"{quote_text(str(value), 40)} is not one of its values.",
                    fix=f"Use {names}.",
                )
            ]
        )
    return kind(text)


def check_distinct(desired: Sequence[Desired]) -> None:
    """Refuse two declarations of one workload: the later would undo the earlier."""
    seen: set[WorkloadId] = set()
    for each in desired:
        if each.id in seen:
            raise ValidationError(
                f"Workload {each.id} is declared twice.", hint="Keep one of the two."
            )
        seen.add(each.id)


def raise_if_refused(
    plan: Plan, drifts: Sequence[Drift], on_drift: OnDrift, on_absent: OnAbsent
) -> None:
    """Raise before the first write when the policy stops at any of the workloads."""
    stopped = [
        drift
        for drift in drifts
        if decide(drift.situation, on_drift.policy, on_absent=on_absent).action
        is DecisionAction.REFUSE
    ]
    absent = [drift for drift in stopped if isinstance(drift.live, Absent)]
    if absent:
        raise _absent_error(*(drift.desired.id for drift in absent))
    if stopped:
        names = ", ".join(str(drift.desired.id) for drift in stopped)
        raise DriftError(
            f"Workload {names} has drifted."
            if len(drifts) == 1
            else f"{len(stopped)} of {len(drifts)} workloads have drifted: {names}.",
            plan=plan,
            hint="Review the plan (.plan), then apply it or change the declarations.",
        )


def report_drift(ref: EndpointRef, policy: OnDrift) -> EndpointRef:
    """Raise, warn or stay quiet about what was found."""
    where = f"{ref.project_slug}/{ref.workload_slug}"
    if ref.outcome is Outcome.REFUSED:
        if isinstance(ref.drift.live, Absent):
            raise _absent_error(ref.drift.desired.id)
        raise DriftError(
            f"Workload {where} differs from its declaration in {describe_drifted_fields(ref)}.",
            plan=ref.plan,
            hint="Review the plan (.plan), then apply it or change the declaration.",
        )
    if ref.outcome is Outcome.LEFT and policy is OnDrift.WARN:
        fields = describe_drifted_fields(ref)
        log.warning("workload_drifted workload=%s fields=%s", where, fields)
        warn_of_drift(
            f"Workload {where} has drifted in {fields}. Nothing was changed (on_drift=warn)."
        )
    elif ref.outcome in (Outcome.CREATED, Outcome.UPDATED):
        log.info("workload_%s workload=%s plan=%s", ref.outcome, where, ref.plan.id)
    elif ref.outcome is Outcome.PLANNED:
        log.info(
            "workload_planned workload=%s plan=%s %s", where, ref.plan.id, plan_summary(ref.plan)
        )
    return ref


def warn_of_drift(text: str) -> None:
    """Warn at the caller's own line, however deep in the SDK the drift was found."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE_ROOT):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, DriftWarning, stacklevel=level)


def describe_drifted_fields(ref: EndpointRef) -> str:
    """Name the fields that moved, each with its last writer where one is known."""
    return ", ".join(
        show_path(field.change.path) + (f" (by {field.writer})" if field.writer else "")
        for field in ref.drift.fields
    )


def _absent_error(*workloads: WorkloadId) -> NotFound:
    names = ", ".join(map(str, workloads))
    return NotFound(
        f"There is no workload {names}, and on_absent=fail says not to create it.",
        hint="Create it with on_absent='create', or check the slug and the project.",
    )


def _describe_changes_so_far(refs: Sequence[EndpointRef], failed: Desired) -> str:
    done = [ref for ref in refs if ref.outcome in (Outcome.CREATED, Outcome.UPDATED)]
    if not done:
        return f"Nothing was changed before workload {failed.id}."
    names = ", ".join(f"{ref.workload_slug} ({ref.outcome})" for ref in done)
    return f"Before workload {failed.id}, these were written: {names}."
