"""What can be asked about applications. Nothing here writes to a cluster or to the ledger.

`diff` and `plan` look at Git and the cluster anew; the rest tells what the last pass saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.apps.server import gitops_forms as forms
from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.gitops_departed import with_departed
from holdfast.apps.server.request import Answer, Request, json_answer
from holdfast.apps.server.services import Services
from holdfast.core.drift import DriftKind
from holdfast.core.errors import AuthError, NotFound, PermissionDenied
from holdfast.core.gitops.application import SyncSpec
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.redact import redact
from holdfast.reconcile.gitops.desk import Desk
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.ports import Book, RecordKind
from holdfast.wire.gitops_http_v1 import (
    ApplicationDriftListForm,
    DiffForm,
    FollowedListForm,
    HoldListForm,
    ObjectListForm,
)
from holdfast.wire.gitops_v1 import ApplicationDriftForm, drift_from_json, drift_to_json, read

MAX_ROWS = 1_000
_STATES = ("open", "all", *(state.value for state in DriftState))


def desk_of(services: Services) -> tuple[Desk, Book]:
    """Return the parts that are there wherever these routes are, once they know anything."""
    if services.waiting:
        raise HttpError(503, "unavailable", services.waiting, retry_after=1)
    assert services.desk is not None  # noqa: S101  # else the table has none of these routes
    assert services.book is not None  # noqa: S101  # set with the desk
    return services.desk, services.book


def application_of(services: Services, request: Request) -> Following:
    """Return the application that the path names, by name or `namespace.name`."""
    desk, _ = desk_of(services)
    return desk.application(request.params["project"], request.params["application"])


async def list_applications(services: Services, request: Request) -> Answer:
    """List the applications of a project: how they stand, their holds, the plans that wait."""
    desk, _ = desk_of(services)
    now = services.clock.now()
    found = desk.applications(request.params["project"])
    return json_answer(FollowedListForm(applications=[forms.followed(one, now) for one in found]))


async def get_application(services: Services, request: Request) -> Answer:
    """Tell how one application stands."""
    following = application_of(services, request)
    return json_answer(forms.followed(following, services.clock.now()))


async def list_objects(services: Services, request: Request) -> Answer:
    """List the objects of an application as they were seen last."""
    following = application_of(services, request)
    found = forms.standings(following, services.clock.now())
    return json_answer(ObjectListForm(application=str(following.application.id), objects=found))


async def diff(services: Services, request: Request) -> Answer:
    """Look at Git and at everything now, and tell which fields differ and who wrote them.

    Tolerated fields are told with the rule that hides them. Values of Secrets are never told.
    """
    desk, _ = desk_of(services)
    following = application_of(services, request)
    with cluster_answers():
        found = await desk.look(following)
    return json_answer(
        DiffForm(
            application=str(following.application.id),
            commit=found.commit,
            stale=redact(found.stale),
            looked_at=services.clock.now(),
            objects=forms.differences(following, found.seen),
        )
    )


async def plan(services: Services, request: Request) -> Answer:
    """Say what a sync would do now. Deletions are in it with `prune`, or where it is the rule."""
    desk, _ = desk_of(services)
    query = request.known_query("prune")
    following = application_of(services, request)
    sync = following.application.spec.sync or SyncSpec()
    prune = _flag(query.get("prune", "false"), "prune") or bool(sync.prune)
    with cluster_answers():
        made, stale = await desk.plan(following, prune=prune)
    return json_answer(forms.sync_plan(made, prune=prune, stale=stale))


async def get_plan(services: Services, request: Request) -> Answer:
    """Return a plan that waits for a person."""
    desk, _ = desk_of(services)
    following, kept = desk.waiting_plan(request.params["project"], request.params["id"])
    return json_answer(forms.waiting_plan(following, kept))


async def list_drifts(services: Services, request: Request) -> Answer:
    """List drifts, newest first: the open ones, those in one state, or with `state=all` every one.

    `type` is the kind of drift; a drift of several kinds matches each of them.
    """
    desk, book = desk_of(services)
    query = request.known_query("state", "application", "type", "namespace", "limit")
    state, kind = query.get("state", "open"), query.get("type", "")
    _one_of(state, _STATES, "state")
    _one_of(kind, ("", *DriftKind), "type")
    limit = request.number("limit", default=MAX_ROWS, high=MAX_ROWS)
    project = request.params["project"]
    name = query.get("application", "")
    found: list[ObjectDrift] = []
    if state in ("all", DriftState.RESOLVED):
        chosen, gone = await with_departed(desk, book, project, name)
        found += [*gone, *await _closed(book, chosen, project, limit)]
    else:
        chosen = [desk.application(project, name)] if name else desk.applications(project)
    found += [drift for following in chosen for drift in following.shelf.drifts.values()]
    namespace = query.get("namespace", "")
    wanted = [
        drift
        for drift in found
        if state in ("open", "all", drift.state)
        and (not kind or kind in drift.kinds)
        and namespace in ("", drift.object.namespace)
    ]
    wanted.sort(key=lambda drift: (drift.first_seen, drift.id), reverse=True)
    return json_answer(
        ApplicationDriftListForm(drifts=[drift_to_json(drift) for drift in wanted[:limit]])
    )


async def get_drift(services: Services, request: Request) -> Answer:
    """Return one drift, open or ended."""
    found = await find_drift(services, request.params["project"], request.params["id"])
    return json_answer(drift_to_json(found))


async def find_drift(services: Services, project: str, id: str) -> ObjectDrift:
    """Return a drift of a project, from the controller or from the ledger."""
    desk, book = desk_of(services)
    try:
        return desk.drift(project, id)[1]
    except NotFound:
        for record in await book.records(RecordKind.DRIFT, key=id):
            drift = drift_from_json(read(ApplicationDriftForm, record.body))
            if drift.project == project:
                return drift
        raise


async def list_holds(services: Services, request: Request) -> Answer:
    """List the holds of a project, those that end first first."""
    desk, _ = desk_of(services)
    now = services.clock.now()
    found = [
        hold
        for following in desk.applications(request.params["project"])
        for hold in forms.holds(following, now)
    ]
    return json_answer(HoldListForm(holds=sorted(found, key=lambda hold: (hold.until, hold.id))))


@contextmanager
def cluster_answers() -> Iterator[None]:
    """Keep a cluster's refusal of this controller from looking like one of the caller."""
    try:
        yield
    except (AuthError, PermissionDenied) as error:
        message = "The cluster refuses the controller's own credentials. Nothing was changed."
        raise HttpError(503, "unavailable", message, retry_after=30) from error


async def _closed(
    book: Book, chosen: Sequence[Following], project: str, limit: int
) -> list[ObjectDrift]:
    found = []
    for following in chosen:
        name = str(following.application.id)
        for record in await book.records(
            RecordKind.DRIFT, application=name, state="closed", limit=limit
        ):
            drift = drift_from_json(read(ApplicationDriftForm, record.body))
            if drift.project == project:
                found.append(drift)
    return found


def _flag(text: str, name: str) -> bool:
    _one_of(text, ("true", "false"), name)
    return text == "true"


def _one_of(text: str, known: Sequence[str], name: str) -> None:
    if text not in known:
        shown = ", ".join(each for each in known if each)
        raise HttpError(400, "invalid", f"The parameter {name} is one of {shown}.")
