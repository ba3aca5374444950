"""Drifts of workloads: in pages and in groups, each with its link.

Lists are answered from the store, or from what a cluster remembers; what may be asked of them is
what may be asked of the drifts of applications.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.apps.server.drift_queries import (
    DRIFT_LIST_PARAMETERS,
    MAX_GROUP_IDS,
    DriftListQuery,
    read_drift_list_query,
)
from holdfast.apps.server.errors import not_found_error
from holdfast.apps.server.request import HttpResponse, Request, check_one_of, json_response
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
from holdfast.core.ledger import DriftRecord
from holdfast.core.page_links import workload_drift_link
from holdfast.wire.ledger_v1 import (
    DriftForm,
    WorkloadDriftForm,
    WorkloadDriftGroupForm,
    WorkloadDriftLinksForm,
    WorkloadDriftPageForm,
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
    """Return one drift."""
    found = services.store.drift(request.params["project"], request.params["id"])
    if found is None:
        raise not_found_error()
    priced = services.store_target(request.writer("read")).add_cost(found)
    return json_response(workload_drift_form(services, priced))


def workload_drift_form(services: Services, drift: DriftRecord) -> WorkloadDriftForm:
    """Write one drift, with its link where the server knows its own name."""
    form = drift_to_json(drift)
    page = workload_drift_link(services.config.base_url, drift.workload.project, drift.id)
    return WorkloadDriftForm(
        **{name: getattr(form, name) for name in _FIELDS},
        links=WorkloadDriftLinksForm(page=page or ""),
    )
