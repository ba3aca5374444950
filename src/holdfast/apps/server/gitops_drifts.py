"""The inbox: drifts of applications in pages and in groups, as whoever asks may handle them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import replace

import msgspec

from holdfast.adapters.store import TokenScope
from holdfast.apps.server.authorize import missing_scope
from holdfast.apps.server.drift_queries import (
    DRIFT_LIST_PARAMETERS,
    MAX_GROUP_IDS,
    read_drift_list_query,
)
from holdfast.apps.server.gitops_drift_forms import (
    is_waiting_for,
    review_drift_form,
    single_drift_form,
)
from holdfast.apps.server.gitops_routes import (
    actor_of,
    find_application_drift,
    find_application_names,
    require_gitops,
    translate_cluster_refusals,
)
from holdfast.apps.server.request import HttpResponse, Request, check_one_of, json_response
from holdfast.apps.server.services import Services
from holdfast.core.drift import OBJECT_DRIFT_KINDS
from holdfast.core.drift_list import (
    DriftFilter,
    DriftGroup,
    group_by_origin,
    next_cursor,
    page_of,
)
from holdfast.core.errors import NotFound
from holdfast.core.gitops.drift import DriftState
from holdfast.core.redact import redact
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_state import CLOSED
from holdfast.reconcile.gitops.choices import DriftChoice, choices_for
from holdfast.reconcile.gitops.drift_index import ApplicationDriftFilter, DriftRow
from holdfast.reconcile.gitops.ledger_store import EXPORT_PAGE
from holdfast.reconcile.gitops.ports import RecordKind
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_http_v1 import (
    ChoiceForm,
    ChoiceListForm,
    CodifyPreviewForm,
    DriftGroupForm,
    DriftPageForm,
)
from holdfast.wire.gitops_v1 import (
    ApplicationDriftForm,
    decode_record,
    drift_from_json,
    parse_app_id,
)
from holdfast.wire.plan_v1 import CostForm

_REVIEWING = frozenset({DriftChoice.APPROVE, DriftChoice.REJECT, DriftChoice.SNOOZE})
"""Choices of a reviewer; the others are a writer's."""
_STATES = ("open", "all", *(state.value for state in DriftState))


async def list_application_drifts(services: Services, request: Request) -> HttpResponse:
    """List drifts, newest first: the open ones, those in one state, or with `state=all` every one.

    A drift of several kinds, causes or writers matches each of them. `cursor` goes on from the
    `next` of a page, however many drifts came or went meanwhile. `waiting_for=me` gives what the
    caller may approve now. `group=cause` gives the drifts of one cause and writer as one group.
    """
    review, _ = require_gitops(services)
    query = request.known_query(
        "state", "application", "namespace", "waiting_for", *DRIFT_LIST_PARAMETERS
    )
    state = query.get("state", "open")
    check_one_of(state, _STATES, "state")
    asked = read_drift_list_query(request, OBJECT_DRIFT_KINDS)
    project, actor, name = (
        request.params["project"],
        actor_of(request),
        query.get("application", ""),
    )
    wanted = _filter_of(services, request, actor, asked.filter)
    ended: dict[str, DriftRow] = {}
    if state in ("all", DriftState.RESOLVED):
        _, names = await find_application_names(services, project, name)
        ended = {row.drift.id: row async for row in iter_ended(services, project, names)}
        applications = frozenset(map(parse_app_id, names))
    elif name:
        applications = frozenset({review.application(project, name).application.id})
    if name:
        wanted = replace(wanted, applications=applications)
    rows = review.index.rows(project)
    if ended:
        open_ids = {row.drift.id for row in rows}
        closed = [row for id, row in ended.items() if id not in open_ids]
        rows = sorted((*rows, *closed), key=lambda row: row.order)
    everything = wanted == ApplicationDriftFilter()
    found = rows if everything else [row for row in rows if wanted.matches(row)]
    if asked.grouped:
        groups = [_group_form(each) for each in group_by_origin(found)[: asked.limit]]
        return json_response(DriftPageForm(groups=groups, total=len(found)))
    page = page_of(found, after=asked.after, limit=asked.limit)
    return json_response(
        DriftPageForm(
            drifts=[review_drift_form(services, request, actor, row) for row in page],
            next=next_cursor(page, found),
            total=len(found),
        )
    )


async def get_application_drift(services: Services, request: Request) -> HttpResponse:
    """Return one drift, open or ended."""
    project, id = request.params["project"], request.params["id"]
    found = await find_application_drift(services, project, id)
    return json_response(single_drift_form(services, request, actor_of(request), found))


async def list_drift_choices(services: Services, request: Request) -> HttpResponse:
    """Say what the caller may decide about a drift, what each decision does, and what it costs.

    It tells what the last pass saw; a decision looks again.
    """
    review, _ = require_gitops(services)
    project, id = request.params["project"], request.params["id"]
    drift = await find_application_drift(services, project, id)
    context: ApplicationContext | None = None
    with suppress(NotFound):
        context, drift = review.drift(project, id)
    actor, now = actor_of(request), services.clock.now()
    choices = [
        ChoiceForm(
            choice=each.choice.value,
            allowed=not (why := each.obstacle or missing_scope(request, _scope_of(each.choice))),
            why_not=redact(why),
            effect=each.effect,
            cost=reshape(CostForm, each.cost) if each.cost else msgspec.UNSET,
            needs_comment=each.needs_comment,
        )
        for each in choices_for(review, context, drift, actor=actor, now=now)
    ]
    return json_response(
        ChoiceListForm(drift=drift.id, digest=drift.digest, plan=drift.plan, choices=choices)
    )


def _scope_of(choice: DriftChoice) -> TokenScope:
    return TokenScope.APPROVE if choice in _REVIEWING else TokenScope.WRITE


async def preview_codify(services: Services, request: Request) -> HttpResponse:
    """Show what codify would propose for a drift, as the text of a patch. Changes nothing."""
    review, _ = require_gitops(services)
    with translate_cluster_refusals():
        found = await review.preview_codify(request.params["project"], request.params["id"])
    return json_response(
        CodifyPreviewForm(
            possible=not found.obstacle,
            why_not=found.obstacle,
            title=found.title,
            branch=found.branch,
            files=list(found.files),
            notes=[redact(note) for note in found.notes],
            patch=found.patch,
            secret=found.secret,
        )
    )


def _filter_of(
    services: Services, request: Request, actor: str, anywhere: DriftFilter
) -> ApplicationDriftFilter:
    query = request.query
    state = query.get("state", "open")
    check_one_of(query.get("waiting_for", ""), ("", "me"), "waiting_for")
    waits = bool(query.get("waiting_for"))
    return ApplicationDriftFilter(
        anywhere=anywhere,
        states=frozenset() if state in ("open", "all") else frozenset({DriftState(state)}),
        namespace=query.get("namespace", ""),
        waiting=(lambda row: is_waiting_for(services, request, actor, row)) if waits else None,
    )


async def iter_ended(
    services: Services, project: str, names: Iterable[str]
) -> AsyncIterator[DriftRow]:
    """Give the ended drifts that applications had in a project, a page of the ledger at a time."""
    review, ledger_store = require_gitops(services)
    contexts = {str(each.application.id): each for each in review.applications(project)}
    for name in names:
        after = ""
        while True:
            page = await ledger_store.records_after(
                RecordKind.DRIFT, application=name, after=after, limit=EXPORT_PAGE
            )
            for record in page:
                if record.state == CLOSED and record.body.get("project") == project:
                    form = decode_record(ApplicationDriftForm, record.body)
                    yield DriftRow(drift_from_json(form), contexts.get(name))
            if len(page) < EXPORT_PAGE:
                break
            after = page[-1].key
            await asyncio.sleep(0)  # others are to be answered too


def _group_form(group: DriftGroup[DriftRow]) -> DriftGroupForm:
    drifts = [row.drift for row in group.members]
    return DriftGroupForm(
        cause=group.cause,
        writer=group.writer,
        count=len(drifts),
        kinds=[kind.value for kind in group.kinds],
        applications=sorted({str(drift.application) for drift in drifts}),
        first_seen=min(drift.first_seen for drift in drifts),
        last_seen=max(drift.last_seen for drift in drifts),
        drifts=[drift.id for drift in drifts[:MAX_GROUP_IDS]],
    )
