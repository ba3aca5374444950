"""What can be asked about applications. Nothing here writes to a cluster or to the ledger.

`diff` and `plan` look at Git and the cluster anew; the rest tells what the last pass saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime

from holdfast.adapters.store import TokenScope
from holdfast.apps.server import gitops_forms
from holdfast.apps.server.authorize import missing_scope
from holdfast.apps.server.errors import HttpError, cluster_refusal
from holdfast.apps.server.request import (
    HttpResponse,
    HttpStream,
    Request,
    check_one_of,
    json_response,
    read_body,
)
from holdfast.apps.server.services import Services
from holdfast.core.errors import AuthError, NotFound, PermissionDenied
from holdfast.core.gitops.application import SyncSpec
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.records import PendingPlan
from holdfast.core.people import actor_text
from holdfast.core.redact import redact
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_state import PROJECTS_KEY, projects_in
from holdfast.reconcile.gitops.ledger_store import export_drifts, export_journal, iter_entries
from holdfast.reconcile.gitops.ports import JournalEntry, LedgerStore, RecordKind
from holdfast.reconcile.gitops.review import ReviewService
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_http_v1 import (
    DiffForm,
    FollowedForm,
    FollowedListForm,
    HoldListForm,
    JournalEntryForm,
    JournalForm,
    ObjectListForm,
)
from holdfast.wire.gitops_v1 import (
    ApplicationDriftForm,
    decode_record,
    drift_from_json,
    parse_app_id,
)

MAX_DEPARTED_DRIFTS = 1_000
"""Of the drifts that ended last, of whichever application, so many are looked through."""


async def list_with_departed(
    review: ReviewService, ledger_store: LedgerStore, project: str, name: str
) -> tuple[Sequence[ApplicationContext], Sequence[ObjectDrift]]:
    """Return the applications of a project that are followed, and ended drifts of those it had.

    With a name those of one application: the one that is followed, or one that was.
    """
    if not name:
        return review.applications(project), await _list_departed_drifts(
            review, ledger_store, project
        )
    try:
        return [review.application(project, name)], ()
    except NotFound:
        found = await _list_departed_drifts(review, ledger_store, project)
        found = [drift for drift in found if drift.application.is_called(name)]
        if not found:
            raise
        return (), found


async def _list_departed_drifts(
    review: ReviewService, ledger_store: LedgerStore, project: str
) -> list[ObjectDrift]:
    drifts = await _read_drifts(ledger_store, project, state="closed", limit=MAX_DEPARTED_DRIFTS)
    here = {each.application.id for each in review.applications(project)}
    return [drift for drift in drifts if drift.application not in here]


async def _read_drifts(
    ledger_store: LedgerStore,
    project: str,
    *,
    application: str = "",
    key: str = "",
    state: str = "",
    limit: int = 0,
) -> list[ObjectDrift]:
    """Return drifts of a project from the ledger."""
    records = await ledger_store.records(
        RecordKind.DRIFT, application=application, key=key, state=state, limit=limit
    )
    drifts = [drift_from_json(decode_record(ApplicationDriftForm, each.body)) for each in records]
    return [drift for drift in drifts if drift.project == project]


def require_gitops(services: Services) -> tuple[ReviewService, LedgerStore]:
    """Return the parts that are there wherever these routes are, once they know anything."""
    if services.waiting:
        raise HttpError(503, "unavailable", services.waiting, retry_after=1)
    assert services.review_service is not None  # noqa: S101  # else there are no such routes
    assert services.ledger_store is not None  # noqa: S101  # set with it
    return services.review_service, services.ledger_store


def actor_of(request: Request) -> str:
    """Say who asks: the name on the token and which token it was, the person where one is known.

    A session of a person has no token; one that stands for a token is that token.
    """
    token = request.token
    assert token is not None  # noqa: S101  # every one of these routes asks for one
    signed_in = request.session is not None and request.session.token_id is None
    return actor_text(token.name, token_id="" if signed_in else token.id, person=token.person)


def describe_plan_obstacle(
    services: Services, request: Request, context: ApplicationContext, plan: PendingPlan
) -> str:
    """Say why who asks may not approve a plan now; empty where they may."""
    review, _ = require_gitops(services)
    obstacle = review.plan_obstacle(context, plan, actor_of(request))
    return obstacle or missing_scope(request, TokenScope.APPROVE)


def write_application(
    services: Services, request: Request, context: ApplicationContext
) -> FollowedForm:
    """Write one application for whoever asks: with the plans that wait for them marked."""
    form = gitops_forms.application_form(context, services.clock.now())
    for each in form.plans:
        plan = context.state.plans[each.id]
        each.waiting_for_me = not describe_plan_obstacle(services, request, context, plan)
    return form


def find_application(services: Services, request: Request) -> ApplicationContext:
    """Return the application that the path names, by name or `namespace.name`."""
    review, _ = require_gitops(services)
    return review.application(request.params["project"], request.params["application"])


async def list_applications(services: Services, request: Request) -> HttpResponse:
    """List the applications of a project: how they stand, their holds, the plans that wait."""
    review, _ = require_gitops(services)
    found = review.applications(request.params["project"])
    return json_response(
        FollowedListForm(applications=[write_application(services, request, one) for one in found])
    )


async def get_application(services: Services, request: Request) -> HttpResponse:
    """Tell how one application stands."""
    context = find_application(services, request)
    form = write_application(services, request, context)
    form.next_window = gitops_forms.next_window_form(context, services.clock.now())
    return json_response(form)


async def list_objects(services: Services, request: Request) -> HttpResponse:
    """List the objects of an application as they were seen last."""
    context = find_application(services, request)
    found = gitops_forms.object_forms(context, services.clock.now())
    return json_response(ObjectListForm(application=str(context.application.id), objects=found))


async def diff_application(services: Services, request: Request) -> HttpResponse:
    """Look at Git and at everything now, and tell which fields differ and who wrote them.

    Tolerated fields are told with the rule that hides them. Values of Secrets are never told.
    """
    review, _ = require_gitops(services)
    context = find_application(services, request)
    with translate_cluster_refusals():
        found = await review.compare(context)
    return json_response(
        DiffForm(
            application=str(context.application.id),
            commit=found.commit,
            stale=redact(found.stale),
            looked_at=services.clock.now(),
            objects=gitops_forms.diff_forms(context, found.observed),
        )
    )


async def plan_application(services: Services, request: Request) -> HttpResponse:
    """Say what a sync would do now. Deletions are in it with `prune`, or where it is the rule."""
    review, _ = require_gitops(services)
    query = request.known_query("prune")
    context = find_application(services, request)
    sync = context.application.spec.sync or SyncSpec()
    prune = _parse_flag(query.get("prune", "false"), "prune") or bool(sync.prune)
    with translate_cluster_refusals():
        made, stale = await review.plan(context, prune=prune)
    return json_response(gitops_forms.sync_plan_form(made, prune=prune, stale=stale))


async def find_application_drift(services: Services, project: str, id: str) -> ObjectDrift:
    """Return a drift of a project, from the controller or from the ledger."""
    review, ledger_store = require_gitops(services)
    try:
        return review.drift(project, id)[1]
    except NotFound:
        for drift in await _read_drifts(ledger_store, project, key=id):
            return drift
        raise


async def list_holds(services: Services, request: Request) -> HttpResponse:
    """List the holds of a project, those that end first first."""
    review, _ = require_gitops(services)
    now = services.clock.now()
    found = [
        hold
        for context in review.applications(request.params["project"])
        for hold in gitops_forms.hold_forms(context, now)
    ]
    return json_response(HoldListForm(holds=sorted(found, key=lambda hold: (hold.until, hold.id))))


@contextmanager
def translate_cluster_refusals() -> Iterator[None]:
    """Keep a cluster's refusal of this controller from looking like one of the caller."""
    try:
        yield
    except (AuthError, PermissionDenied) as error:
        raise cluster_refusal(error, whose="the controller's") from error


def _parse_flag(text: str, name: str) -> bool:
    check_one_of(text, ("true", "false"), name)
    return text == "true"


MAX_JOURNAL_ROWS = 1_000
MAX_WEBHOOK_BODY = 1024 * 1024
JSON_LINES = "application/jsonl"
_WEBHOOK_ERROR_CODES = {
    400: "bad_request",
    401: "unauthenticated",
    404: "not_found",
    413: "too_large",
    429: "too_many_requests",
}


async def list_journal(services: Services, request: Request) -> HttpResponse:
    """List lines of the journal, newest first; `before` goes on from the `next` of a page.

    `subject` is the id of a drift, a plan or a hold.
    """
    query = request.known_query("application", "subject", "since", "before", "limit")
    limit = request.number("limit", default=100, high=MAX_JOURNAL_ROWS)
    before = request.number("before", default=0, high=2**62, low=0)
    ledger_store, names = await find_application_names(
        services, request.params["project"], query.get("application", "")
    )
    project, since = request.params["project"], parse_time(query.get("since"), "since")
    found: list[JournalEntry] = []
    for name in names:
        lines = iter_entries(
            ledger_store,
            application=name,
            project=project,
            subject=query.get("subject", ""),
            since=since,
            before=before,
        )
        async with aclosing(lines) as some:
            most = limit
            async for entry in some:
                found.append(entry)
                most -= 1
                if not most:
                    break
    found.sort(key=lambda entry: entry.seq, reverse=True)
    page = found[:limit]
    more = page[-1].seq if len(page) == limit else None
    return json_response(
        JournalForm(entries=[reshape(JournalEntryForm, entry) for entry in page], next=more)
    )


async def export_history(services: Services, request: Request) -> HttpStream:
    """Give every drift, or with `what=journal` every line of the journal, as lines of JSON.

    One application after the other. A line says in `kind` what it is.
    """
    query = request.known_query("application", "what")
    what = query.get("what", "drifts")
    if what not in ("drifts", "journal"):
        raise HttpError(400, "invalid", "The parameter what is either drifts or journal.")
    project = request.params["project"]
    ledger_store, names = await find_application_names(
        services, project, query.get("application", "")
    )
    export = export_journal if what == "journal" else export_drifts
    chunks = (
        line
        for name in names
        async for line in export(ledger_store, application=name, project=project)
    )
    return HttpStream(headers=[(b"content-type", JSON_LINES.encode())], chunks=chunks)


async def receive_webhook(services: Services, request: Request) -> HttpResponse:
    """Take a webhook of a forge. It is checked by its signature, and only hastens the next look.

    There is no such route where no webhooks are configured.
    """
    if services.webhook_handler is None:
        raise HttpError(404, "no_such_route", "There is nothing at this path.")
    body = await read_body(request, MAX_WEBHOOK_BODY)
    headers = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()
    }
    answer = await services.webhook_handler(request.params["provider"], headers, body)
    if answer.status in _WEBHOOK_ERROR_CODES:
        raise HttpError(answer.status, _WEBHOOK_ERROR_CODES[answer.status], answer.message)
    return HttpResponse(status=answer.status)


async def find_application_names(
    services: Services, project: str, name: str
) -> tuple[LedgerStore, list[str]]:
    """The applications that are asked about: one, or all of the project, gone ones too."""
    review, ledger_store = require_gitops(services)
    owned = await ledger_store.records(RecordKind.REVISION, key=PROJECTS_KEY)
    had = {record.application for record in owned if project in projects_in(record)}
    names = {each for each in had if not name or parse_app_id(each).is_called(name)}
    try:
        chosen, gone = await list_with_departed(review, ledger_store, project, name)
    except NotFound:
        if not names:
            raise
        return ledger_store, sorted(names)
    names |= {str(each.application.id) for each in chosen}
    names |= {str(each.application) for each in gone}
    return ledger_store, sorted(names)


def parse_time(text: str | None, name: str) -> datetime | None:
    """Read a parameter that is a time; in UTC unless it says otherwise. None when not given."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        found.astimezone(UTC)  # refuses what is beyond all calendars
    except (ValueError, OverflowError):
        raise HttpError(
            400, "invalid", f"The parameter {name} is a time such as 2026-11-20T18:00:00Z."
        ) from None
    return found
