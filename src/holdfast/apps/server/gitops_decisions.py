"""What people decide about applications: syncs, approvals, holds, pull requests, rules.

The desk decides who wins and what is stale. Here the request becomes its question: who asks, by
name and token, until when, about which object. A decision that is refused is on record too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from holdfast.adapters.store import Scope
from holdfast.apps.server import gitops_forms as forms
from holdfast.apps.server.authorize import lacking
from holdfast.apps.server.body import read_form
from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.gitops_routes import (
    application_of,
    cluster_answers,
    desk_of,
    find_drift,
)
from holdfast.apps.server.request import Answer, Request, json_answer
from holdfast.apps.server.services import Services
from holdfast.core.errors import (
    Ambiguous,
    Conflict,
    HoldfastError,
    InvalidState,
    NotFound,
    PermissionDenied,
    StalePlan,
)
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.objects import ObjectRef
from holdfast.core.redact import redact
from holdfast.reconcile.gitops.desk import Desk
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.ports import Entry
from holdfast.wire.gitops_http_v1 import (
    ApproveForm,
    HoldListForm,
    HoldRequestForm,
    IgnoredListForm,
    IgnoreForm,
    RefusedForm,
    RejectForm,
    RevertForm,
    SnoozeForm,
    SyncedForm,
    SyncForm,
    Via,
)
from holdfast.wire.gitops_v1 import drift_to_json, object_to_json

MAX_BODY = 64 * 1024
_POLL = 0.05
_TELLING = ("syncing", "synced", "sync-failed", "parked", "accepted", "resolved", "heal-failed")
"""Journal lines that say what became of a sync."""


def actor_of(request: Request) -> str:
    """Say who asks: the name on the token, and which token it was."""
    token = request.token
    assert token is not None  # noqa: S101  # every one of these routes asks for one
    return f"{token.name} ({token.id})"


async def sync(services: Services, request: Request) -> Answer:
    """Have Git applied, and with `wait` tell what became of it.

    Objects on hold are left out. `prune` deletes what is no longer declared; `force` also does
    what a guard or a window holds back, and what waits for a review, so it needs the scope
    `approve` as well.
    """
    desk, book = desk_of(services)
    form = await read_form(request, SyncForm, MAX_BODY)
    following = application_of(services, request)
    if form.force and not (request.token and request.token.allows(Scope.APPROVE)):
        raise lacking(Scope.APPROVE)
    newest = await book.entries(application=str(following.application.id), limit=1)
    desk.sync(following, actor=actor_of(request), prune=form.prune, force=form.force)
    done = await _handled(services, following, form.wait)
    entries = await book.entries(application=str(following.application.id), limit=100)
    seq = newest[0].seq if newest else 0
    told = [entry.summary for entry in entries if entry.seq > seq and entry.action in _TELLING]
    return json_answer(
        SyncedForm(
            done=done,
            application=forms.followed(following, services.clock.now()),
            told=told[::-1],
            refused=[
                RefusedForm(object=object_to_json(ref), message=redact(why))
                for ref, why in sorted(following.failed.items())
            ],
        ),
        status=200 if done else 202,
    )


async def _handled(services: Services, following: Following, seconds: int) -> bool:
    """Wait until a pass has taken up what was asked for."""
    end = services.clock.monotonic() + seconds
    while following.request is not None:
        if services.clock.monotonic() >= end or services.closing.is_set():
            return False
        await asyncio.sleep(_POLL)
    async with following.lock:  # free once the pass is over and its journal is written
        return True


async def approve(services: Services, request: Request) -> Answer:
    """Approve exactly the plan that was reviewed, by its digest. Saying it twice is no error."""
    desk, _ = desk_of(services)
    form = await read_form(request, ApproveForm, MAX_BODY)
    project, id, actor = request.params["project"], request.params["id"], actor_of(request)
    async with _on_record(services, desk, request, "approval"):
        try:
            drift = await desk.approve(
                project, id, plan=form.plan, actor=actor, comment=form.comment
            )
        except (Conflict, InvalidState, NotFound):
            drift = await find_drift(services, project, id)
            if (drift.plan, drift.decided_by) != (form.plan, actor) or not _agreed(drift):
                raise
    return _drift(drift)


async def approve_plan(services: Services, request: Request) -> Answer:
    """Agree to a plan that a guard parked, by its digest."""
    desk, _ = desk_of(services)
    form = await read_form(request, ApproveForm, MAX_BODY)
    project, id = request.params["project"], request.params["id"]
    following, _ = desk.waiting_plan(project, id)
    async with _on_record(services, desk, request, "approval"):
        kept = await desk.approve_plan(
            project, id, plan=form.plan, actor=actor_of(request), comment=form.comment
        )
    return json_answer(forms.waiting_plan(following, kept))


async def reject_plan(services: Services, request: Request) -> Answer:
    """Say that a plan which a guard parked is not to be carried out."""
    desk, _ = desk_of(services)
    form = await read_form(request, RejectForm, MAX_BODY)
    project, id = request.params["project"], request.params["id"]
    following, _ = desk.waiting_plan(project, id)
    async with _on_record(services, desk, request, "rejection"):
        kept = await desk.reject_plan(project, id, actor=actor_of(request), comment=form.comment)
    return json_answer(forms.waiting_plan(following, kept))


async def reject(services: Services, request: Request) -> Answer:
    """Say that the live side stays as it is. Asked again only when it changes."""
    desk, _ = desk_of(services)
    form = await read_form(request, RejectForm, MAX_BODY)
    async with _on_record(services, desk, request, "rejection"):
        return _drift(
            await desk.reject(
                request.params["project"], request.params["id"], actor=actor_of(request),
                comment=form.comment,
            )
        )  # fmt: skip


async def snooze(services: Services, request: Request) -> Answer:
    """Be asked again later."""
    desk, _ = desk_of(services)
    form = await read_form(request, SnoozeForm, MAX_BODY)
    until = _until(services, form.seconds, form.until)
    async with _on_record(services, desk, request, "snooze"):
        return _drift(
            await desk.snooze(
                request.params["project"], request.params["id"], actor=actor_of(request),
                comment=form.comment, until=until,
            )
        )  # fmt: skip


async def codify(services: Services, request: Request) -> Answer:
    """Propose the live value to Git by a pull request. The next pass opens it."""
    desk, _ = desk_of(services)
    return _drift(
        await desk.codify(
            request.params["project"], request.params["id"], actor=actor_of(request)
        )
    )  # fmt: skip


async def revert(services: Services, request: Request) -> Answer:
    """Have the declared value put back: directly where the policy allows, or by a decision."""
    desk, _ = desk_of(services)
    form = await read_form(request, RevertForm, MAX_BODY)
    with cluster_answers():
        drift = await desk.revert(
            request.params["project"], request.params["id"], actor=actor_of(request),
            comment=form.comment, by_pull=form.via is Via.PULL_REQUEST,
        )  # fmt: skip
    return _drift(drift)


async def ignore(services: Services, request: Request) -> Answer:
    """Hide a drift, or one field of it, for a while."""
    desk, _ = desk_of(services)
    form = await read_form(request, IgnoreForm, MAX_BODY)
    rules = await desk.ignore(
        request.params["project"], request.params["id"], actor=actor_of(request),
        until=_until(services, form.seconds, form.until), reason=form.reason, path=form.path,
        manager=form.manager,
    )  # fmt: skip
    return json_answer(IgnoredListForm(rules=[forms.ignored(rule) for rule in rules]))


async def pause(services: Services, request: Request) -> Answer:
    """Hold an application, or one object of it: nothing is written to it until the hold ends."""
    desk, _ = desk_of(services)
    form = await read_form(request, HoldRequestForm, MAX_BODY)
    following = application_of(services, request)
    hold = await desk.pause(
        following, actor=actor_of(request), reason=form.reason,
        until=_until(services, form.seconds, form.until), end=form.end,
        object=object_named(following, form.object) if form.object else None,
    )  # fmt: skip
    return json_answer(forms.hold_form(hold), status=201)


async def resume(services: Services, request: Request) -> Answer:
    """End the holds of an application, or those of one object, before their time."""
    desk, _ = desk_of(services)
    name = request.known_query("object").get("object", "")
    following = application_of(services, request)
    ended = await desk.resume(
        following, actor=actor_of(request),
        object=object_named(following, name) if name else None,
    )  # fmt: skip
    return json_answer(HoldListForm(holds=[forms.hold_form(hold) for hold in ended]))


def object_named(following: Following, text: str) -> ObjectRef:
    """Find an object by `KIND/NAMESPACE/NAME`, or `KIND/NAME` for one without a namespace."""
    kind, _, rest = text.partition("/")
    namespace, _, name = rest.rpartition("/")
    known = {*following.glances, *following.shelf.inventory}
    found = _matching(known, kind, namespace, name)
    if not found and not namespace:
        found = _matching(known, kind, following.application.namespace, name)
    if len(found) > 1:
        groups = ", ".join(sorted(ref.api_version for ref in found))
        raise Ambiguous(
            f"{text[:120]} may be of {groups}.", todo="Hold the whole application instead."
        )
    if not found:
        raise NotFound(
            f"{following.application.id} has no object {text[:120]!a}.",
            todo="Name it as KIND/NAMESPACE/NAME; holdfast status APP -o wide lists them.",
        )
    return found[0]


def _matching(known: Iterable[ObjectRef], kind: str, namespace: str, name: str) -> list[ObjectRef]:
    return [
        ref
        for ref in known
        if (ref.kind.lower(), ref.namespace, ref.name) == (kind.lower(), namespace, name)
    ]


def _until(services: Services, seconds: int | None, until: datetime | None) -> datetime:
    if (seconds is None) == (until is None):
        raise HttpError(400, "invalid", "Give either seconds or until. Nothing was changed.")
    return until or services.clock.now() + timedelta(seconds=seconds or 0)


@asynccontextmanager
async def _on_record(
    services: Services, desk: Desk, request: Request, what: str
) -> AsyncIterator[None]:
    """Keep a refused decision in the journal, and tell a stale one what moved."""
    try:
        yield
    except (Conflict, InvalidState, PermissionDenied) as error:
        _, book = desk_of(services)
        id = request.params["id"]
        name = await _application_of(services, desk, request.params["project"], id)
        refused = Entry(
            application=name, subject=id, action="refused", actor=actor_of(request),
            summary=f"Its {what} was refused: {error.happened}",
            detail={"project": request.params["project"]}, at=services.clock.now(),
        )  # fmt: skip
        await book.write((), [refused])
        if isinstance(error, StalePlan):
            raise HttpError(409, "stale_plan", await _moved(services, id, error)) from error
        raise


async def _application_of(services: Services, desk: Desk, project: str, id: str) -> str:
    try:
        return str(desk.waiting_plan(project, id)[0].application.id)
    except NotFound:
        return str((await find_drift(services, project, id)).application)


async def _moved(services: Services, id: str, error: HoldfastError) -> str:
    """Say what happened to a plan since it was reviewed, as the journal has it."""
    _, book = desk_of(services)
    for entry in await book.entries(subject=id, limit=20):
        if entry.action in ("changed", "stale"):
            told = f"{error.happened} Since then: {entry.summary}"
            return f"{error.summary}. {told} {error.changed} {error.todo}"
    return str(error)


def _agreed(drift: ObjectDrift) -> bool:
    """True when what was decided last about a drift was to put it back."""
    put_back = (Resolution.APPROVED, Resolution.REVERTED)
    return drift.state is DriftState.APPROVED or drift.resolution in put_back


def _drift(drift: ObjectDrift) -> Answer:
    return json_answer(drift_to_json(drift))
