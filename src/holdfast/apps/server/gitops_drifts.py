"""The inbox: drifts of applications in pages and in groups, as whoever asks may handle them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import replace

import msgspec

from holdfast.adapters.store import TokenScope
from holdfast.apps.server.authorize import missing_scope
from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.gitops_drift_forms import (
    is_waiting_for,
    review_drift_form,
    single_drift_form,
)
from holdfast.apps.server.gitops_routes import (
    actor_of,
    check_one_of,
    find_application_drift,
    find_application_names,
    require_gitops,
    translate_cluster_refusals,
)
from holdfast.apps.server.request import HttpResponse, Request, json_response
from holdfast.apps.server.services import Services
from holdfast.core.drift import OBJECT_DRIFT_KINDS, Cause, DriftKind
from holdfast.core.errors import NotFound
from holdfast.core.gitops.drift import DriftState
from holdfast.core.redact import redact
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_state import CLOSED
from holdfast.reconcile.gitops.choices import DriftChoice, choices_for
from holdfast.reconcile.gitops.drift_index import (
    DriftFilter,
    DriftRow,
    encode_cursor,
    page_of,
    parse_cursor,
    parse_words,
)
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

MAX_ROWS = 1_000
MAX_GROUP_IDS = 50
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
        "state",
        "application",
        "type",
        "namespace",
        "q",
        "cause",
        "writer",
        "waiting_for",
        "group",
        "cursor",
        "limit",
    )
    state = query.get("state", "open")
    check_one_of(state, _STATES, "state")
    check_one_of(query.get("group", ""), ("", "cause"), "group")
    limit = request.number("limit", default=MAX_ROWS, high=MAX_ROWS)
    after = parse_cursor(query["cursor"]) if "cursor" in query else None
    if after is not None and "group" in query:
        raise HttpError(400, "invalid", "Groups come on one page: leave out cursor, or group.")
    project, actor, name = (
        request.params["project"],
        actor_of(request),
        query.get("application", ""),
    )
    wanted = _filter_of(services, request, actor)
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
    found = rows if wanted == DriftFilter() else [row for row in rows if wanted.matches(row)]
    if "group" in query:
        return json_response(DriftPageForm(groups=_groups_of(found)[:limit], total=len(found)))
    page = page_of(found, after=after, limit=limit)
    more = bool(page) and page[-1].order < found[-1].order
    return json_response(
        DriftPageForm(
            drifts=[review_drift_form(services, request, actor, row) for row in page],
            next=encode_cursor(page[-1]) if more else "",
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


def _filter_of(services: Services, request: Request, actor: str) -> DriftFilter:
    query = request.query
    kind, cause, state = query.get("type", ""), query.get("cause", ""), query.get("state", "open")
    check_one_of(kind, ("", *OBJECT_DRIFT_KINDS), "type")
    check_one_of(cause, ("", *Cause), "cause")
    check_one_of(query.get("waiting_for", ""), ("", "me"), "waiting_for")
    waits = bool(query.get("waiting_for"))
    return DriftFilter(
        states=frozenset() if state in ("open", "all") else frozenset({DriftState(state)}),
        kind=kind,
        namespace=query.get("namespace", ""),
        cause=Cause(cause) if cause else None,
        writer=query.get("writer", ""),
        words=parse_words(query.get("q", "")),
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


def _groups_of(rows: Iterable[DriftRow]) -> list[DriftGroupForm]:
    """Put together what has one cause and one writer, the largest group first."""
    found: dict[tuple[Cause, str], list[DriftRow]] = {}
    for row in rows:
        found.setdefault(row.origin, []).append(row)
    groups = []
    for (cause, writer), members in found.items():
        kinds = {kind for row in members for kind in row.drift.kinds}
        groups.append(
            DriftGroupForm(
                cause=cause,
                writer=writer,
                count=len(members),
                kinds=[kind.value for kind in DriftKind if kind in kinds],
                applications=sorted({str(row.drift.application) for row in members}),
                first_seen=min(row.drift.first_seen for row in members),
                last_seen=max(row.drift.last_seen for row in members),
                drifts=[row.drift.id for row in members[:MAX_GROUP_IDS]],
            )
        )
    return sorted(groups, key=lambda each: (-each.count, each.cause, each.writer))
