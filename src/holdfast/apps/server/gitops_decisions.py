"""What people decide about applications: syncs, approvals, holds, pull requests, rules.

The review service decides who wins and what is stale. Here a request becomes a call of it: who
asks, by name and token, until when, about which object. A refused decision is on record too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from holdfast.adapters.store import TokenScope
from holdfast.apps.server import gitops_forms
from holdfast.apps.server.authorize import insufficient_scope
from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.gitops_drift_forms import single_drift_form
from holdfast.apps.server.gitops_plans import waiting_plan_response
from holdfast.apps.server.gitops_routes import (
    actor_of,
    find_application,
    find_application_drift,
    require_gitops,
    translate_cluster_refusals,
    write_application,
)
from holdfast.apps.server.request import HttpResponse, Request, json_response, read_form
from holdfast.apps.server.services import Services
from holdfast.core.errors import (
    Ambiguous,
    Conflict,
    HoldfastError,
    InvalidState,
    NotFound,
    PermissionDenied,
    StalePlan,
    report_changes,
)
from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.facts import ApplicationFact, DecisionRefused, JournalAction
from holdfast.core.object_ref import ObjectRef
from holdfast.core.redact import redact
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_state import journal_entry
from holdfast.reconcile.gitops.review import ReviewService
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_http_v1 import (
    ApproveForm,
    HoldListForm,
    HoldRequestForm,
    IgnoredListForm,
    IgnoreForm,
    RefusedForm,
    RejectDriftForm,
    RejectForm,
    RevertForm,
    SnoozeForm,
    SyncedForm,
    SyncForm,
    Via,
)
from holdfast.wire.gitops_v1 import ObjectForm

MAX_BODY = 64 * 1024
_POLL_SECONDS = 0.05
_SYNC_ACTIONS = (
    "syncing",
    "synced",
    "sync-failed",
    "parked",
    "accepted",
    "resolved",
    "heal-failed",
)
"""Journal lines that say what became of a sync."""


async def sync_application(services: Services, request: Request) -> HttpResponse:
    """Have Git applied, and with `wait` tell what became of it.

    Objects on hold are left out. `prune` deletes what is no longer declared; `force` also does
    what a guard or a window holds back, and what waits for a review, so it needs the scope
    `approve` as well.
    """
    review, ledger_store = require_gitops(services)
    form = await read_form(request, SyncForm, MAX_BODY)
    context = find_application(services, request)
    if form.force and not (request.token and request.token.allows(TokenScope.APPROVE)):
        raise insufficient_scope(TokenScope.APPROVE)
    newest = await ledger_store.entries(application=str(context.application.id), limit=1)
    review.sync(context, actor=actor_of(request), prune=form.prune, force=form.force)
    with report_changes(f"The sync of {context.application.id} was begun."):
        done = await _wait_until_handled(services, context, form.wait)
        entries = await ledger_store.entries(application=str(context.application.id), limit=100)
    seq = newest[0].seq if newest else 0
    messages = [
        entry.summary for entry in entries if entry.seq > seq and entry.action in _SYNC_ACTIONS
    ]
    return json_response(
        SyncedForm(
            done=done,
            application=write_application(services, request, context),
            told=messages[::-1],
            refused=[
                RefusedForm(object=reshape(ObjectForm, ref), message=redact(why))
                for ref, why in sorted(context.failed.items())
            ],
        ),
        status=200 if done else 202,
    )


async def _wait_until_handled(
    services: Services, context: ApplicationContext, seconds: int
) -> bool:
    """Wait until a pass has taken up what was asked for."""
    end = services.clock.monotonic() + seconds
    while context.request is not None:
        if services.clock.monotonic() >= end or services.closing.is_set():
            return False
        await asyncio.sleep(_POLL_SECONDS)
    async with context.lock:  # free once the pass is over and its journal is written
        return True


async def approve_drift(services: Services, request: Request) -> HttpResponse:
    """Approve exactly the plan that was reviewed, by its digest. Saying it twice is no error."""
    review, _ = require_gitops(services)
    form = await read_form(request, ApproveForm, MAX_BODY)
    project, id, actor = request.params["project"], request.params["id"], actor_of(request)
    async with _journal_refusals(services, review, request, JournalAction.APPROVED):
        try:
            drift = await review.approve(
                project, id, plan=form.plan, actor=actor, comment=form.comment
            )
        except (Conflict, InvalidState, NotFound):
            drift = await find_application_drift(services, project, id)
            if (drift.plan, drift.decided_by) != (form.plan, actor) or not _is_approved(drift):
                raise
    return _drift_response(services, request, drift)


async def approve_plan(services: Services, request: Request) -> HttpResponse:
    """Agree to a plan that a guard parked, by its digest."""
    review, _ = require_gitops(services)
    form = await read_form(request, ApproveForm, MAX_BODY)
    project, id = request.params["project"], request.params["id"]
    context, _ = review.waiting_plan(project, id)
    async with _journal_refusals(services, review, request, JournalAction.APPROVED):
        kept = await review.approve_plan(
            project, id, plan=form.plan, actor=actor_of(request), comment=form.comment
        )
    return waiting_plan_response(services, request, context, kept)


async def reject_plan(services: Services, request: Request) -> HttpResponse:
    """Say that a plan which a guard parked is not to be carried out."""
    review, _ = require_gitops(services)
    form = await read_form(request, RejectForm, MAX_BODY)
    project, id = request.params["project"], request.params["id"]
    context, _ = review.waiting_plan(project, id)
    async with _journal_refusals(services, review, request, JournalAction.REJECTED):
        kept = await review.reject_plan(project, id, actor=actor_of(request), comment=form.comment)
    return waiting_plan_response(services, request, context, kept)


async def reject_drift(services: Services, request: Request) -> HttpResponse:
    """Say that the live side stays as it is. Asked again only when it changes."""
    review, _ = require_gitops(services)
    form = await read_form(request, RejectDriftForm, MAX_BODY)
    async with _journal_refusals(services, review, request, JournalAction.REJECTED):
        return _drift_response(
            services,
            request,
            await review.reject(
                request.params["project"],
                request.params["id"],
                actor=actor_of(request),
                comment=form.comment,
                digest=form.digest,
            ),
        )


async def snooze_drift(services: Services, request: Request) -> HttpResponse:
    """Be asked again later."""
    review, _ = require_gitops(services)
    form = await read_form(request, SnoozeForm, MAX_BODY)
    until = _parse_until(services, form.seconds, form.until)
    async with _journal_refusals(services, review, request, JournalAction.SNOOZED):
        return _drift_response(
            services,
            request,
            await review.snooze(
                request.params["project"],
                request.params["id"],
                actor=actor_of(request),
                comment=form.comment,
                until=until,
                digest=form.digest,
            ),
        )


async def codify_drift(services: Services, request: Request) -> HttpResponse:
    """Propose the live value to Git by a pull request. The next pass opens it."""
    review, _ = require_gitops(services)
    digest = request.known_query("digest").get("digest", "")
    async with _journal_refusals(services, review, request, JournalAction.CODIFY_REQUESTED):
        with translate_cluster_refusals():
            drift = await review.codify(
                request.params["project"],
                request.params["id"],
                actor=actor_of(request),
                digest=digest,
            )
    return _drift_response(services, request, drift)


async def revert_drift(services: Services, request: Request) -> HttpResponse:
    """Have the declared value put back: directly where the policy allows, or by a decision."""
    review, _ = require_gitops(services)
    form = await read_form(request, RevertForm, MAX_BODY)
    async with _journal_refusals(services, review, request, JournalAction.REVERT_REQUESTED):
        with translate_cluster_refusals():
            drift = await review.revert(
                request.params["project"],
                request.params["id"],
                actor=actor_of(request),
                comment=form.comment,
                by_pull=form.via is Via.PULL_REQUEST,
                digest=form.digest,
            )
    return _drift_response(services, request, drift)


async def ignore_drift(services: Services, request: Request) -> HttpResponse:
    """Hide a drift, or one field of it, for a while."""
    review, _ = require_gitops(services)
    form = await read_form(request, IgnoreForm, MAX_BODY)
    until = _parse_until(services, form.seconds, form.until)
    async with _journal_refusals(services, review, request, JournalAction.IGNORED):
        rules = await review.ignore(
            request.params["project"],
            request.params["id"],
            actor=actor_of(request),
            until=until,
            reason=form.reason,
            path=form.path,
            manager=form.manager,
            digest=form.digest,
        )
    return json_response(
        IgnoredListForm(rules=[gitops_forms.ignore_rule_form(rule) for rule in rules])
    )


async def hold_application(services: Services, request: Request) -> HttpResponse:
    """Hold an application, or one object of it: nothing is written to it until the hold ends."""
    review, _ = require_gitops(services)
    form = await read_form(request, HoldRequestForm, MAX_BODY)
    context = find_application(services, request)
    hold = await review.pause(
        context,
        actor=actor_of(request),
        reason=form.reason,
        until=_parse_until(services, form.seconds, form.until),
        end=form.end,
        object=find_object(context, form.object) if form.object else None,
    )
    return json_response(gitops_forms.hold_form(hold), status=201)


async def release_application(services: Services, request: Request) -> HttpResponse:
    """End the holds of an application, those of one object, or one by its id."""
    review, _ = require_gitops(services)
    query = request.known_query("object", "id")
    name = query.get("object", "")
    context = find_application(services, request)
    ended = await review.resume(
        context,
        actor=actor_of(request),
        object=find_object(context, name) if name else None,
        id=query.get("id", ""),
    )
    return json_response(HoldListForm(holds=[gitops_forms.hold_form(hold) for hold in ended]))


def find_object(context: ApplicationContext, text: str) -> ObjectRef:
    """Find an object by `KIND/NAMESPACE/NAME`, or `KIND/NAME` for one without a namespace."""
    kind, _, rest = text.partition("/")
    namespace, _, name = rest.rpartition("/")
    known = {*context.object_states, *context.state.inventory}
    found = _matching_refs(known, kind, namespace, name)
    if not found and not namespace:
        found = _matching_refs(known, kind, context.application.namespace, name)
    if len(found) > 1:
        groups = ", ".join(sorted(ref.api_version for ref in found))
        raise Ambiguous(
            f"{text[:120]} may be of {groups}.", hint="Hold the whole application instead."
        )
    if not found:
        raise NotFound(
            f"{context.application.id} has no object {text[:120]!a}.",
            hint="Name it as KIND/NAMESPACE/NAME; holdfast status APP -o wide lists them.",
        )
    return found[0]


def _matching_refs(
    known: Iterable[ObjectRef], kind: str, namespace: str, name: str
) -> list[ObjectRef]:
    return [
        ref
        for ref in known
        if (ref.kind.lower(), ref.namespace, ref.name) == (kind.lower(), namespace, name)
    ]


def _parse_until(services: Services, seconds: int | None, until: datetime | None) -> datetime:
    if (seconds is None) == (until is None):
        raise HttpError(400, "invalid", "Give either seconds or until. Nothing was changed.")
    return until or services.clock.now() + timedelta(seconds=seconds or 0)


@asynccontextmanager
async def _journal_refusals(
    services: Services, review: ReviewService, request: Request, decision: JournalAction
) -> AsyncIterator[None]:
    """Keep a refused decision in the journal, and tell a late or stale one what happened."""
    project, id = request.params["project"], request.params["id"]
    try:
        try:
            yield
        except NotFound as error:
            drift = await find_application_drift(services, project, id)
            if drift.state is not DriftState.RESOLVED:
                raise
            raise _ended_error(drift) from error
    except (Conflict, InvalidState, PermissionDenied) as error:
        fact = DecisionRefused(
            about=id, decision=decision, reason=error.happened, actor=actor_of(request)
        )
        application = await _application_of(services, review, project, id)
        await _journal(services, project, application, fact)
        if isinstance(error, StalePlan):
            raise HttpError(
                409, "stale_plan", await _describe_stale_plan(services, id, error)
            ) from error
        raise


async def _journal(
    services: Services, project: str, application: ApplicationId, fact: ApplicationFact
) -> None:
    """Put the line of a fact into the journal that changes nothing else, and tell the streams."""
    _, ledger_store = require_gitops(services)
    entry = journal_entry(fact, application, project, services.clock.now())
    if entry is None:
        return
    await ledger_store.write((), [entry])
    if services.application_events is not None:
        services.application_events.on_entries(project, [entry])


async def _application_of(
    services: Services, review: ReviewService, project: str, id: str
) -> ApplicationId:
    """Say whose plan or drift that is. The application itself may be gone by now."""
    try:
        return review.waiting_plan(project, id)[0].application.id
    except NotFound:
        return (await find_application_drift(services, project, id)).application


async def _describe_stale_plan(services: Services, id: str, error: HoldfastError) -> str:
    """Say what happened to a plan since it was reviewed, as the journal has it."""
    _, ledger_store = require_gitops(services)
    for entry in await ledger_store.entries(subject=id, limit=20):
        if entry.action in ("changed", "stale"):
            changed = f"{error.happened} Since then: {entry.summary}"
            return f"{error.summary}. {changed} {error.changed} {error.hint}"
    return str(error)


def _ended_error(drift: ObjectDrift) -> Conflict:
    """Say to whom comes late how a drift ended."""
    ended = f"ended meanwhile ({drift.resolution})"
    if drift.resolution is Resolution.APPROVED and drift.decided_by:
        ended = f"was approved by {drift.decided_by} already, and was put back"
    return Conflict(
        f"{drift.id} {ended}, so there is nothing to decide.",
        hint=f"holdfast drift show {drift.id} tells how it ended.",
    )


def _is_approved(drift: ObjectDrift) -> bool:
    """True when what was decided last about a drift was to put it back."""
    put_back = (Resolution.APPROVED, Resolution.REVERTED)
    return drift.state is DriftState.APPROVED or drift.resolution in put_back


def _drift_response(services: Services, request: Request, drift: ObjectDrift) -> HttpResponse:
    return json_response(single_drift_form(services, request, actor_of(request), drift))
