"""Carries out a plan on a cluster, step by step, reading nothing but the plan and what was seen.

Every write is guarded by the uid and the version of the object that was seen. A step that fails
keeps no other from being tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from holdfast.core.errors import HoldfastError, TargetUnavailable
from holdfast.core.gitops.objects import ObservedObject
from holdfast.core.gitops.plan import SyncPlan, SyncStep
from holdfast.core.gitops.records import AppliedObject
from holdfast.core.gitops.track import added_paths
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.signals import APPLIED_PATH, FieldDrift
from holdfast.core.plan import Action
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.object_observer import Declarations
from holdfast.reconcile.kube import KindNotServed, KubeConflict
from holdfast.reconcile.objects.resource_manager import ResourceManager, WriteResult
from holdfast.reconcile.ports import Clock

_CRD_TIMEOUT = 10.0
"""Seconds for a kind to be served once its definition was applied."""
_CRD_POLL = 0.1
MAX_PARALLEL = 8
"""Objects of one kind that are written at the same time. One waits for the server most of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What became of one step."""

    step: SyncStep
    live: Fields | None = None
    """The object as the server has it now; None when it is gone or was not written."""
    error: HoldfastError | None = None
    withheld: str = ""
    """Why it was not tried."""
    message: str = ""
    """Why it was not carried out, in a sentence that may be shown."""
    altered: tuple[FieldDrift, ...] = ()
    """What the server stored differently from what was sent: of these nothing was put back."""

    @property
    def ok(self) -> bool:
        """True when the step was carried out."""
        return self.error is None and not self.withheld


class PlanApplier:
    """Writes for one field manager."""

    def __init__(self, resource_manager: ResourceManager, clock: Clock) -> None:
        self._resource_manager = resource_manager
        self._clock = clock

    async def apply(
        self,
        context: ApplicationContext,
        plan: SyncPlan,
        observed: Mapping[ObjectRef, ObservedObject],
    ) -> tuple[StepOutcome, ...]:
        """Carry out every step that may be, and keep the inventory true.

        One kind after the other, in the order of the plan. Our own errors become part of the
        answer. A hold, or another spec, counts from the moment it is there, also in the middle.
        """
        desired = context.desired
        assert desired is not None  # noqa: S101  # a plan is made from it
        done: list[StepOutcome] = []
        for _, steps in groupby(plan.changes, key=_group_key):
            done += await self._run_parallel(
                list(steps),
                lambda step: self._perform_step(context, desired, plan, step, observed[step.ref]),
            )
        return tuple(done)

    async def _run_parallel(
        self, steps: Sequence[SyncStep], one: Callable[[SyncStep], Awaitable[StepOutcome]]
    ) -> list[StepOutcome]:
        """Carry out steps that need nothing of each other, some at a time."""
        done: dict[ObjectRef, StepOutcome] = {}
        waiting = iter(steps)

        async def worker() -> None:
            for step in waiting:
                done[step.ref] = await one(step)

        workers = [asyncio.ensure_future(worker()) for _ in steps[:MAX_PARALLEL]]
        try:
            await asyncio.gather(*workers)
        finally:
            for each in workers:
                each.cancel()
        return [done[step.ref] for step in steps]

    async def _perform_step(
        self,
        context: ApplicationContext,
        desired: Declarations,
        plan: SyncPlan,
        step: SyncStep,
        observed: ObservedObject,
    ) -> StepOutcome:
        if context.overtaken:
            message = "The Application was changed meanwhile: what it says now counts from here on."
            return StepOutcome(step=step, withheld=message, message=message)
        hold = context.hold_of(step.ref, self._clock.now())
        if hold is not None:
            message = f"On hold by {hold.by}: {hold.reason}"
            return StepOutcome(step=step, withheld=message, message=message)
        try:
            written = await self._perform(step, desired, observed)
        except HoldfastError as error:
            message = _failure_message(step.ref, error)
            context.failed[step.ref] = message
            return StepOutcome(step=step, error=error, message=message)
        context.failed.pop(step.ref, None)
        if written is None:
            return StepOutcome(step=step)
        done = StepOutcome(step=step, live=written.live, altered=written.altered)
        taken_over = step.action is Action.UPDATE and not observed.applied
        try:
            found = (
                await self._find_additions(desired, observed, written.live) if taken_over else None
            )
        except HoldfastError:
            # The next look takes it up by its marks, with what others have on it then.
            return done
        self._record_applied(context, step, written.live, plan.commit, found)
        return done

    def _record_applied(
        self,
        context: ApplicationContext,
        step: SyncStep,
        live: Fields,
        commit: str,
        found: tuple[str, ...] | None,
    ) -> None:
        """Put what was just applied into the inventory. What is deleted stays until it is gone.

        Of fields that were left as they are, the record stays as it is: what somebody made of
        them must not become what we applied.
        """
        known, desired = context.state.inventory.get(step.ref), context.desired
        assert desired is not None  # noqa: S101  # a plan is made from it
        if found is None:
            found = known.found if known else ()
        uid = str(value_at(live, ("metadata", "uid")))
        same_one = known is not None and known.uid == uid
        values = self._resource_manager.values(
            desired.of(step.ref),
            live,
            left=step.leave,
            before=known.values if known and same_one else "",
        )
        marked = APPLIED_PATH not in step.leave
        context.state.put_applied(
            AppliedObject(
                ref=step.ref,
                uid=uid,
                commit=commit,
                declaration=step.declaration if marked or known is None else known.declaration,
                images=known.images if known else {},
                marks=known.marks if known else {},
                data=known.data if known and same_one else {},
                values=values,
                found=found,
            )
        )

    async def _find_additions(
        self, desired: Declarations, observed: ObservedObject, live: Fields
    ) -> tuple[str, ...]:
        """Name what others have on an object that was just taken over."""
        verdict = await self._resource_manager.diff(desired.of(observed.ref), live)
        return added_paths(replace(observed, live=live, diff=verdict))

    async def _perform(
        self, step: SyncStep, desired: Declarations, observed: ObservedObject
    ) -> WriteResult | None:
        if step.action is Action.DELETE:
            assert observed.live is not None  # noqa: S101  # a plan deletes only what was there
            await self._resource_manager.delete(step.ref, observed.live)
            return None
        declared = desired.of(step.ref)
        if step.action is Action.CREATE:
            return await self._create(step.ref, desired)
        assert observed.live is not None  # noqa: S101  # a plan changes only what was there
        assert observed.diff is not None  # noqa: S101  # and was judged
        # An object that others made anew under the name is taken over: the plan says so.
        declared = replace(declared, uid=None, applied=observed.applied)
        return await self._resource_manager.heal(
            declared, observed.live, observed.diff, leave=step.leave
        )

    async def _create(self, ref: ObjectRef, desired: Declarations) -> WriteResult:
        """Create an object; one whose kind was defined a moment ago is waited for."""
        until = self._clock.monotonic() + _CRD_TIMEOUT
        while True:
            try:
                return await self._resource_manager.create(desired.of(ref))
            except KindNotServed:
                if not desired.defines(ref) or self._clock.monotonic() > until:
                    raise
            await self._clock.sleep(_CRD_POLL)


def _group_key(step: SyncStep) -> tuple[Action, str, str]:
    """What steps have in common that may be carried out at the same time."""
    return step.action, step.ref.api_version, step.ref.kind


def _failure_message(ref: ObjectRef, error: HoldfastError) -> str:
    """Say what went wrong. The server quotes what it refuses, and of a Secret that is a secret."""
    if ref.kind == "Secret" and not isinstance(error, TargetUnavailable | KubeConflict):
        return f"{error.summary}. What the server said is not repeated: it may quote the Secret."
    return error.happened
