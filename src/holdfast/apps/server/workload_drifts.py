"""Drifts of workloads: in pages and in groups, each with its link, and the decision about one.

Lists are answered from the store, or from what a cluster remembers; what may be asked of them is
what may be asked of the drifts of applications.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.adapters.store import TokenScope, Transaction, WorkloadRecord
from holdfast.apps.server.authorize import missing_scope
from holdfast.apps.server.drift_queries import (
    DRIFT_LIST_PARAMETERS,
    MAX_GROUP_IDS,
    DriftListQuery,
    read_drift_list_query,
)
from holdfast.apps.server.errors import HttpError, not_found_error
from holdfast.apps.server.request import (
    HttpResponse,
    Request,
    check_one_of,
    json_response,
    read_form,
)
from holdfast.apps.server.services import Services
from holdfast.apps.server.workload_routes import LIST_SLICE
from holdfast.core.drift import DriftKind
from holdfast.core.drift_list import (
    DriftFilter,
    DriftGroup,
    ListedWorkloadDrift,
    group_by_origin,
    next_cursor,
    page_of,
    unknown_cursor_error,
)
from holdfast.core.errors import Conflict
from holdfast.core.ledger import DriftRecord
from holdfast.core.live import Status
from holdfast.core.page_links import workload_drift_link
from holdfast.core.plan import UNWRITTEN_KINDS, Action, Plan, step_back
from holdfast.wire.ledger_v1 import (
    DriftForm,
    RevertChoiceForm,
    WorkloadDriftForm,
    WorkloadDriftGroupForm,
    WorkloadDriftLinksForm,
    WorkloadDriftPageForm,
    WorkloadRevertForm,
    drift_to_json,
)

READ_SLICE = 200
"""Drifts that are read at one go while a list is searched, which takes some milliseconds."""
_FIELDS = DriftForm.__struct_fields__


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadDriftQuery:
    """Which drifts of a project's workloads are asked for."""

    include_resolved: bool
    slug: str | None
    listed: DriftListQuery

    @property
    def narrowed(self) -> bool:
        """True when every drift has to be looked at for the answer."""
        return self.listed.grouped or self.listed.filter != DriftFilter()


def read_workload_drift_query(request: Request) -> WorkloadDriftQuery:
    """Read whether ended drifts are wanted too, of which workload, and which page of what."""
    query = request.known_query("state", "slug", *DRIFT_LIST_PARAMETERS)
    state = query.get("state", "open")
    check_one_of(state, ("open", "all"), "state")
    return WorkloadDriftQuery(
        include_resolved=state == "all",
        slug=query.get("slug"),
        listed=read_drift_list_query(request, tuple(DriftKind)),
    )


async def list_workload_drifts(services: Services, request: Request) -> HttpResponse:
    """List drifts, newest first: the open ones, or with `state=all` those that ended too.

    A drift of several kinds, causes or writers matches each of them. `cursor` goes on from the
    `next` of a page, however many drifts came or went meanwhile. `group=cause` gives the drifts
    of one cause and writer as one group.
    """
    asked, project = read_workload_drift_query(request), request.params["project"]
    after, limit, place = asked.listed.after, asked.listed.limit, None
    if after is not None and (place := services.store.drift_place(project, after[1])) is None:
        raise unknown_cursor_error()
    if asked.narrowed:
        found = await _find_matching_drifts(services, project, asked)
        if asked.listed.grouped:
            return group_response(found, asked.listed)
        total = len(found)
        page = page_of(found, after=None if place is None else (-place, ""), limit=limit)
    else:
        found = _rows(services, project, asked, before=place, limit=limit + 1)
        total = services.store.drift_count(
            project, slug=asked.slug, include_resolved=asked.include_resolved
        )
        page = found[:limit]
    target = services.store_target(request.writer("read"))
    forms: list[WorkloadDriftForm] = []
    for count, row in enumerate(page, 1):
        forms.append(workload_drift_form(services, target.add_cost(row.drift)))
        if count % LIST_SLICE == 0:
            await asyncio.sleep(0)
    return json_response(
        WorkloadDriftPageForm(drifts=forms, next=next_cursor(page, found), total=total)
    )


async def _find_matching_drifts(
    services: Services, project: str, asked: WorkloadDriftQuery
) -> list[ListedWorkloadDrift]:
    """Return what matches of all pages, reading a little at a time so that others are answered."""
    found: list[ListedWorkloadDrift] = []
    before: int | None = None
    while True:
        rows = _rows(services, project, asked, before=before, limit=READ_SLICE)
        found += [row for row in rows if asked.listed.filter.matches(row)]
        if len(rows) < READ_SLICE:
            return found
        before = rows[-1].seq
        await asyncio.sleep(0)


def _rows(
    services: Services,
    project: str,
    asked: WorkloadDriftQuery,
    *,
    before: int | None,
    limit: int,
) -> list[ListedWorkloadDrift]:
    rows = services.store.drift_rows(
        project,
        slug=asked.slug,
        include_resolved=asked.include_resolved,
        before=before,
        limit=limit,
    )
    return [ListedWorkloadDrift(drift, seq=seq) for seq, drift in rows]


def group_response(found: Sequence[ListedWorkloadDrift], asked: DriftListQuery) -> HttpResponse:
    """Answer with the groups of what matches."""
    groups = [_group_form(each) for each in group_by_origin(found)[: asked.limit]]
    return json_response(WorkloadDriftPageForm(groups=groups, total=len(found)))


def _group_form(group: DriftGroup[ListedWorkloadDrift]) -> WorkloadDriftGroupForm:
    drifts = [row.drift for row in group.members]
    return WorkloadDriftGroupForm(
        cause=group.cause,
        writer=group.writer,
        count=len(drifts),
        kinds=group.kinds,
        workloads=sorted({drift.workload.slug for drift in drifts}),
        first_seen=min(drift.first_seen for drift in drifts),
        drifts=[drift.id for drift in drifts[:MAX_GROUP_IDS]],
    )


def listed_drifts_response(
    services: Services, drifts: Sequence[DriftRecord], asked: DriftListQuery
) -> HttpResponse:
    """Answer with a page, or with the groups, of drifts that are all known, newest first."""
    rows = sorted(map(ListedWorkloadDrift, drifts), key=lambda row: row.order)
    found = [row for row in rows if asked.filter.matches(row)]
    if asked.grouped:
        return group_response(found, asked)
    page = page_of(found, after=asked.after, limit=asked.limit)
    forms = [workload_drift_form(services, row.drift) for row in page]
    return json_response(
        WorkloadDriftPageForm(drifts=forms, next=next_cursor(page, found), total=len(found))
    )


async def get_workload_drift(services: Services, request: Request) -> HttpResponse:
    """Return one drift, and the plan that would put it back."""
    found = services.store.drift(request.params["project"], request.params["id"])
    if found is None:
        raise not_found_error()
    return _single_drift_response(services, request, found)


async def revert_workload_drift(services: Services, request: Request) -> HttpResponse:
    """Write the workload as it was declared last, by exactly the plan that was read.

    Who declared it stays who they were. Where the workload or its declaration is another by now,
    nothing is written.
    """
    form = await read_form(request, WorkloadRevertForm, services.config.limits.control_body)
    project, id = request.params["project"], request.params["id"]
    writer = request.writer("revert")

    def work(tx: Transaction) -> DriftRecord | None:
        drift = tx.drift(project, id)
        if drift is None:
            raise not_found_error()
        if drift.resolved_at is not None:
            raise Conflict(f"Drift {id} ended before: {drift.resolution}.", hint="Read it again.")
        plan, obstacle = _plan_back(drift, tx.record(drift.workload))
        if plan is None:
            raise Conflict(obstacle, hint="Declare the workload again.")
        if plan.digest != form.plan:
            raise HttpError(
                409,
                "stale_plan",
                f"The plan that was named is not the one that would put {drift.workload} back now. "
                "Nothing was changed. Read the drift again and decide again.",
            )
        (step,) = plan.steps
        tx.update_workload(
            step.uid or "", step.write, version=step.version, writer=writer, declare=False
        )
        return tx.drift(project, id)

    after = await services.store.submit(work)
    if after is None:
        raise not_found_error()
    return _single_drift_response(services, request, after)


def _single_drift_response(
    services: Services, request: Request, drift: DriftRecord
) -> HttpResponse:
    priced = services.store_target(request.writer("read")).add_cost(drift)
    form = workload_drift_form(services, priced)
    if drift.resolved_at is None:
        form.revert = _revert_choice(services, request, drift)
    return json_response(form)


def _revert_choice(services: Services, request: Request, drift: DriftRecord) -> RevertChoiceForm:
    """Say whether who asks may put a drift back.

    The digest covers what is declared, values that are shown masked too, so that only those are
    told it who may write the workload.
    """
    plan, obstacle = _plan_back(drift, services.store.record(drift.workload))
    why_not = obstacle or missing_scope(request, TokenScope.WRITE)
    names = ", ".join(plan.steps[0].write) if plan else ""
    return RevertChoiceForm(
        allowed=not why_not,
        why_not=why_not,
        effect=f"Writes {names} as declared last." if plan else "Writes it as declared last.",
        plan=plan.digest if plan and not why_not else "",
    )


def _plan_back(drift: DriftRecord, record: WorkloadRecord | None) -> tuple[Plan | None, str]:
    """Return the plan that writes a workload as declared, or why there is none."""
    if UNWRITTEN_KINDS.intersection(drift.kinds):
        return None, "What its replicas do is no field that could be written."
    if record is None or record.declared is None:
        return None, "Nobody declared this workload, so nothing is known to put back."
    step = step_back(record.live(Status()), record.declared)
    if step.action is not Action.UPDATE:
        return None, "Nothing that is written differs from the declaration."
    return Plan(steps=(step,)), ""


def workload_drift_form(services: Services, drift: DriftRecord) -> WorkloadDriftForm:
    """Write one drift, with its link where the server knows its own name."""
    form = drift_to_json(drift)
    page = workload_drift_link(services.config.base_url, drift.workload.project, drift.id)
    return WorkloadDriftForm(
        **{name: getattr(form, name) for name in _FIELDS},
        links=WorkloadDriftLinksForm(page=page or ""),
    )
