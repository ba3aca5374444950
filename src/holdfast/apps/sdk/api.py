"""What a management client does, in one colour.

The sync and the async client are mechanical wrappers over this. Drift is a value down here;
it becomes an exception or a warning at the very end, when the policy says so.
"""

# ruff: noqa: ASYNC109  # the transport keeps the total deadline, the same in both colours

from __future__ import annotations

import builtins  # `list` is a method here
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from holdfast.core.desired import Desired, desired_of
from holdfast.core.drift import Drift
from holdfast.core.errors import (
    ConfigurationError,
    Conflict,
    DriftError,
    HoldfastError,
    NotFound,
    Problem,
    ValidationError,
)
from holdfast.core.ledger import DriftRecord, HistoryEntry
from holdfast.core.live import Absent, Live
from holdfast.core.names import WorkloadId, require_slug
from holdfast.core.outcome import EndpointRef, Outcome
from holdfast.core.plan import Plan, delete_plan
from holdfast.core.policy import DecisionAction, OnAbsent, OnDrift, decide
from holdfast.core.redact import quote_text
from holdfast.core.show import plan_summary
from holdfast.core.tree import show_path
from holdfast.core.workload import WorkloadSpec
from holdfast.reconcile import reconciler
from holdfast.reconcile.ports import Clock, ControlTarget

DELETE_ATTEMPTS = 8
log = logging.getLogger("holdfast")
log.addHandler(logging.NullHandler())  # a library speaks when its application listens

E = TypeVar("E", bound=StrEnum)
WarnFunction = Callable[[str], None]


def new_idempotency_key() -> str:
    """Return a fresh idempotency key."""
    return uuid.uuid4().hex


class ManagementApi:
    """One target, one default project."""

    def __init__(
        self,
        target: ControlTarget,
        *,
        project: str | None,
        timeout: float,
        clock: Clock,
        keys: Callable[[], str] = new_idempotency_key,
    ) -> None:
        self.target = target
        self.project = project
        self.clock = clock
        self._timeout = timeout
        self._keys = keys

    def within(self, seconds: float | None) -> ControlTarget:
        """Return the target under a total deadline, where it can keep one."""
        bound = getattr(self.target, "within", None)
        if bound is None:
            return self.target
        limited: ControlTarget = bound(seconds)
        return limited

    def call(self, timeout: float | None) -> ControlTarget:
        """Return the target for one call."""
        budget = self._timeout if timeout is None else timeout
        if not budget > 0:
            raise ValidationError(f"A timeout of {budget!r} leaves no time to do anything.")
        return self.within(budget)

    def where(self, project: str | None) -> str:
        """Return the project of a call."""
        found = project or self.project
        if not found:
            raise ConfigurationError(
                "No project was named.",
                hint="Set HOLDFAST_PROJECT, pass project=, or set it in the spec.",
            )
        return require_slug(found, field="project")

    def id_of(self, slug: str, project: str | None) -> WorkloadId:
        """Return the identity of a workload that a caller named."""
        return WorkloadId(project=self.where(project), slug=require_slug(slug))

    def desired(self, spec: WorkloadSpec, project: str | None) -> Desired:
        """Place a spec: the call's project, else the spec's, else the client's."""
        if not isinstance(spec, WorkloadSpec):
            raise ValidationError(
                f"A WorkloadSpec is needed; this is a {type(spec).__name__}.",
                hint="Build one: WorkloadSpec(name=…, model=…, backend=…).",
            )
        place = self.where(project or spec.project)
        placed = desired_of(spec, project=place)
        return replace(placed, id=WorkloadId(project=place, slug=spec.slug))

    async def ensure(
        self,
        spec: WorkloadSpec,
        *,
        on_drift: OnDrift | str,
        on_absent: OnAbsent | str,
        project: str | None,
        timeout: float | None,
        warn: WarnFunction,
    ) -> EndpointRef:
        """Reconcile one workload and speak up about drift as the policy says."""
        drift_policy = parse_enum(OnDrift, on_drift, "on_drift")
        absent_policy = parse_enum(OnAbsent, on_absent, "on_absent")
        desired = self.desired(spec, project)
        ref = await reconciler.ensure(
            self.call(timeout),
            desired,
            on_drift=drift_policy,
            on_absent=absent_policy,
            key=self._keys(),
        )
        return report_drift(ref, drift_policy, warn)

    async def ensure_all(
        self,
        specs: Iterable[WorkloadSpec],
        *,
        on_drift: OnDrift | str,
        on_absent: OnAbsent | str,
        project: str | None,
        timeout: float | None,
        warn: WarnFunction,
    ) -> builtins.list[EndpointRef]:
        """Check all of them, then reconcile one after another in the order given."""
        drift_policy = parse_enum(OnDrift, on_drift, "on_drift")
        absent_policy = parse_enum(OnAbsent, on_absent, "on_absent")
        desired = [self.desired(spec, project) for spec in specs]
        check_distinct(desired)
        target = self.call(timeout)
        plan, drifts = await reconciler.plan(target, desired)
        raise_if_refused(plan, drifts, drift_policy, absent_policy)
        refs: list[EndpointRef] = []
        for each in desired:
            try:
                ref = await reconciler.ensure(
                    target,
                    each,
                    on_drift=drift_policy,
                    on_absent=absent_policy,
                    key=self._keys(),
                )
                refs.append(report_drift(ref, drift_policy, warn))
            except HoldfastError as error:
                error.add_changes(_describe_changes_so_far(refs, each))
                raise
        return refs

    async def plan(
        self,
        specs: WorkloadSpec | Iterable[WorkloadSpec],
        *,
        project: str | None,
        timeout: float | None,
    ) -> Plan:
        """Say what ensuring these would do. Changes nothing in any situation."""
        given = [specs] if isinstance(specs, WorkloadSpec) else list(specs)
        desired = [self.desired(spec, project) for spec in given]
        check_distinct(desired)
        plan, _ = await reconciler.plan(self.call(timeout), desired)
        return plan

    async def apply(self, plan: Plan, *, timeout: float | None) -> builtins.list[Live | None]:
        """Carry out exactly this plan."""
        return [*await reconciler.apply(self.call(timeout), plan, key=self._keys())]

    async def get(self, slug: str, *, project: str | None, timeout: float | None) -> Live:
        """Return one workload, or raise NotFound."""
        where = self.id_of(slug, project)
        live = await self.call(timeout).observe(where)
        if isinstance(live, Absent):
            raise NotFound(
                f"There is no workload {where}.", hint="list() shows the workloads there are."
            )
        return live

    async def delete(self, slug: str, *, project: str | None, timeout: float | None) -> bool:
        """Delete whatever stands under a slug; False when nothing did."""
        where = self.id_of(slug, project)
        target, key = self.call(timeout), self._keys()
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

    async def list(self, *, project: str | None, timeout: float | None) -> builtins.list[Live]:
        """Return every workload of a project."""
        return [*await self.call(timeout).list(self.where(project))]

    async def drifts(
        self,
        *,
        slug: str | None,
        include_resolved: bool,
        project: str | None,
        timeout: float | None,
    ) -> builtins.list[DriftRecord]:
        """Return the ledger's drifts, newest first."""
        named = None if slug is None else require_slug(slug)
        found = await self.call(timeout).drifts(
            self.where(project), slug=named, include_resolved=include_resolved
        )
        return [*found]

    async def history(
        self, *, slug: str | None, limit: int, project: str | None, timeout: float | None
    ) -> builtins.list[HistoryEntry]:
        """Return audit rows, newest first."""
        named = None if slug is None else require_slug(slug)
        found = await self.call(timeout).history(self.where(project), slug=named, limit=limit)
        return [*found]

    def logs(
        self, slug: str, *, tail: int, follow: bool, project: str | None
    ) -> AsyncIterator[str]:
        """Yield log lines, oldest first."""
        target = self.within(None) if follow else self.call(None)
        return target.logs(self.id_of(slug, project), tail=tail, follow=follow)

    async def close(self) -> None:
        """Let go of the target."""
        await self.target.aclose()


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


def report_drift(ref: EndpointRef, policy: OnDrift, warn: WarnFunction) -> EndpointRef:
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
        warn(f"Workload {where} has drifted in {fields}. Nothing was changed (on_drift=warn).")
    elif ref.outcome in (Outcome.CREATED, Outcome.UPDATED):
        log.info("workload_%s workload=%s plan=%s", ref.outcome, where, ref.plan.id)
    elif ref.outcome is Outcome.PLANNED:
        log.info(
            "workload_planned workload=%s plan=%s %s", where, ref.plan.id, plan_summary(ref.plan)
        )
    return ref


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
