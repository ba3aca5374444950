"""Plans by their id or digest: those that wait, those of drifts, and those that are decided.

A plan is linked from chat and from CI, so it stays readable for as long as the ledger keeps it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from holdfast.apps.server.gitops_drift_forms import is_waiting_for
from holdfast.apps.server.gitops_routes import (
    actor_of,
    describe_plan_obstacle,
    find_application_drift,
    find_application_names,
    require_gitops,
)
from holdfast.apps.server.request import HttpResponse, Request, json_response
from holdfast.apps.server.services import Services
from holdfast.core.errors import NotFound
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.facts import JournalAction
from holdfast.core.gitops.records import PendingPlan
from holdfast.core.ledger import DriftEntry
from holdfast.core.page_links import plan_link
from holdfast.core.plan import Action
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.ledger_store import iter_entries
from holdfast.reconcile.gitops.ports import JournalEntry, LedgerStore, RecordKind
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_http_v1 import PlanFieldForm, ReviewPlanForm
from holdfast.wire.gitops_v1 import ObjectForm, decode_record
from holdfast.wire.ledger_v1 import DriftEntryForm
from holdfast.wire.plan_v1 import CostForm

MAX_SEARCHED_LINES = 20_000
"""Lines of the journal that are looked through for a plan that no record names any more."""
_PLAN = re.compile(r"(?:plan-|sha256-)?([0-9a-f]{8,64})")
_MOVES = (JournalAction.CHANGED, JournalAction.STALE, JournalAction.RESOLVED)
"""Lines about a drift after which an earlier plan for it may not hold."""


async def get_plan(services: Services, request: Request) -> HttpResponse:
    """Return a plan by its id, or by the hex digits of its digest, also after it was decided.

    `current` is false for one that an approval would not carry out; `moved` says what happened.
    """
    project, name = request.params["project"], request.params["id"]
    found = _PLAN.fullmatch(name)
    if found is not None:
        form = _waiting(services, request, found[1]) or _of_open_drift(services, request, found[1])
        form = form or await _from_ledger(services, project, found[1])
        if form is not None:
            form.page = plan_link(services.config.base_url, project, form.id) or ""
            return json_response(form)
    raise NotFound(
        f"There is no plan {name[:80]!a} in project {project}.",
        hint="holdfast status -o wide shows which plans wait.",
    )


def _matches(digest: str, hex_digits: str) -> bool:
    return bool(digest) and digest.removeprefix("sha256:").startswith(hex_digits)


def _waiting(services: Services, request: Request, hex_digits: str) -> ReviewPlanForm | None:
    review, _ = require_gitops(services)
    for context in review.applications(request.params["project"]):
        for plan in context.state.plans.values():
            if _matches(plan.digest, hex_digits):
                return _waiting_plan_form(services, request, context, plan)
    return None


def waiting_plan_response(
    services: Services, request: Request, context: ApplicationContext, plan: PendingPlan
) -> HttpResponse:
    """Answer a decision about a plan of a whole application."""
    return json_response(_waiting_plan_form(services, request, context, plan))


def _waiting_plan_form(
    services: Services, request: Request, context: ApplicationContext, plan: PendingPlan
) -> ReviewPlanForm:
    review, _ = require_gitops(services)
    form = _plan_form(str(context.application.id), plan, current=True)
    form.why_not = describe_plan_obstacle(services, request, context, plan)
    form.waiting_for_me = not form.why_not
    form.needs_comment = review.asks_for_comment(context)
    return form


def _of_open_drift(services: Services, request: Request, hex_digits: str) -> ReviewPlanForm | None:
    review, _ = require_gitops(services)
    for row in review.index.rows(request.params["project"]):
        if _matches(row.drift.plan, hex_digits):
            form = _drift_plan_form(row.drift, current=True)
            form.waiting_for_me = is_waiting_for(services, request, actor_of(request), row)
            return form
    return None


async def _from_ledger(services: Services, project: str, hex_digits: str) -> ReviewPlanForm | None:
    ledger_store, names = await find_application_names(services, project, "")
    for record in await ledger_store.records(RecordKind.PLAN, key=f"plan-{hex_digits[:8]}"):
        plan = decode_record(PendingPlan, record.body)
        if record.application not in names or not _matches(plan.digest, hex_digits):
            continue
        lines = await _lines_about(ledger_store, record.application, project, plan.id)
        if lines:  # it was made while the application was this project's
            return _plan_form(record.application, plan, moved=[_what_became(plan)])
    async for line in _requests(ledger_store, names, project):
        if _matches(str(line.detail.get("plan") or ""), hex_digits):
            return await _earlier_drift_plan(services, project, line)
    return None


async def _requests(
    ledger_store: LedgerStore, names: Sequence[str], project: str
) -> AsyncIterator[JournalEntry]:
    """Give the lines by which approvals were asked for, newest first for each application."""
    left = MAX_SEARCHED_LINES
    for name in names:
        async with aclosing(iter_entries(ledger_store, application=name, project=project)) as all:
            async for line in all:
                left -= 1
                if left < 0:
                    return
                if line.action == JournalAction.APPROVAL_REQUESTED:
                    yield line


async def _earlier_drift_plan(
    services: Services, project: str, line: JournalEntry
) -> ReviewPlanForm:
    """Write a plan for a drift that went on since: its steps as they were asked about."""
    _, ledger_store = require_gitops(services)
    drift = await find_application_drift(services, project, line.subject)
    digest = str(line.detail["plan"])
    later = [
        each.summary
        for each in await _lines_about(ledger_store, line.application, project, line.subject)
        if each.seq > line.seq and each.action in _MOVES
    ]
    same = drift.plan == digest
    form = _drift_plan_form(drift, moved=later[::-1] or ["Another plan was made for it since."])
    steps = line.detail.get("steps")
    form.id, form.digest = f"plan-{digest.removeprefix('sha256:')[:8]}", digest
    form.steps = [str(step) for step in steps] if isinstance(steps, list) else form.steps
    form.made_at = line.at
    if not same:  # what it would have changed is not known any more, but for its steps
        form.fields, form.cost, form.approved_by, form.rejected_by = [], None, "", ""
        form.comment = ""
    return form


async def _lines_about(
    ledger_store: LedgerStore, application: str, project: str, subject: str
) -> list[JournalEntry]:
    lines = await ledger_store.entries(application=application, subject=subject, limit=200)
    return [line for line in lines if line.detail.get("project") == project]


def _what_became(plan: PendingPlan) -> str:
    if plan.approved_by:
        return f"It was approved by {plan.approved_by}, and does not wait any more."
    if plan.rejected_by:
        return f"It was rejected by {plan.rejected_by}, and does not wait any more."
    return "Git or the cluster moved, so another plan, or none, took its place."


def _plan_form(
    application: str, plan: PendingPlan, *, current: bool = False, moved: Sequence[str] = ()
) -> ReviewPlanForm:
    """Write a plan of a whole application."""
    fields = [
        PlanFieldForm(
            object=reshape(ObjectForm, each.object),
            action=each.action,
            **_entry_parts(each.entry),
        )
        for each in plan.fields
    ]
    return ReviewPlanForm(
        id=plan.id,
        digest=plan.digest,
        application=application,
        commit=plan.commit,
        reasons=list(plan.reasons),
        told=plan.told,
        steps=list(plan.steps),
        fields=fields,
        cost=reshape(CostForm, plan.cost) if plan.cost else None,
        made_at=plan.made_at,
        current=current,
        moved=list(moved),
        approved_by=plan.approved_by,
        rejected_by=plan.rejected_by,
        comment=plan.comment,
    )


def _drift_plan_form(
    drift: ObjectDrift, *, current: bool = False, moved: Sequence[str] = ()
) -> ReviewPlanForm:
    """Write the plan that would put a drift back."""
    action = Action.UPDATE
    if any(not entry.path for entry in drift.entries) and not (drift.uid and drift.where):
        action = Action.DELETE if drift.uid else Action.CREATE
    ref = reshape(ObjectForm, drift.object)
    approved = _is_approval(drift)
    return ReviewPlanForm(
        id=f"plan-{drift.plan.removeprefix('sha256:')[:8]}",
        digest=drift.plan,
        application=str(drift.application),
        drift=drift.id,
        commit=drift.commit,
        reasons=[],
        told=drift.note,
        steps=[f"{action} {drift.object}"],
        fields=[
            PlanFieldForm(object=ref, action=action, **_entry_parts(entry))
            for entry in drift.entries
        ],
        cost=reshape(CostForm, drift.cost) if drift.cost else None,
        made_at=drift.last_seen,
        current=current,
        moved=list(moved),
        approved_by=drift.decided_by if approved else "",
        rejected_by=drift.decided_by if drift.state is DriftState.REJECTED else "",
        comment=drift.comment,
    )


def _is_approval(drift: ObjectDrift) -> bool:
    put_back = (Resolution.APPROVED, Resolution.REVERTED)
    return drift.state is DriftState.APPROVED or drift.resolution in put_back


def _entry_parts(entry: DriftEntry) -> dict[str, Any]:  # Any: what the form takes
    """The fields of an entry, as a form that has more of them takes them."""
    form = reshape(DriftEntryForm, entry)
    return {name: getattr(form, name) for name in DriftEntryForm.__struct_fields__}
