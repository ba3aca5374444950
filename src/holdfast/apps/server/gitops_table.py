"""The routes of a server beside which a GitOps controller runs; there are no others then."""

from __future__ import annotations

from holdfast.adapters.store import Scope
from holdfast.apps.server import gitops_decisions as decisions
from holdfast.apps.server import gitops_history as history
from holdfast.apps.server import gitops_routes as gitops
from holdfast.apps.server.routes import Credential, Query, Route
from holdfast.apps.server.table import ACCESS, PROBES, PROJECT, control
from holdfast.wire.gitops_http_v1 import (
    ApplicationDriftListForm,
    ApproveForm,
    DiffForm,
    FollowedForm,
    FollowedListForm,
    HoldForm,
    HoldListForm,
    HoldRequestForm,
    IgnoredListForm,
    IgnoreForm,
    JournalForm,
    ObjectListForm,
    RejectForm,
    RevertForm,
    SnoozeForm,
    SyncedForm,
    SyncForm,
    SyncPlanForm,
    WaitingPlanForm,
)
from holdfast.wire.gitops_v1 import ApplicationDriftForm

READ, WRITE, APPROVE = Scope.READ, Scope.WRITE, Scope.APPROVE
HERE = f"{PROJECT}/gitops"
ONE = f"{HERE}/applications/{{application}}"
DRIFT = f"{HERE}/drifts/{{id}}"
_ABSENT = (404, 409)
_APPLICATION = Query(name="application", about="Only this one, by name or namespace.name.")
_LIMIT = Query(name="limit", type=int, about="How many at most.")

GITOPS: tuple[Route, ...] = (
    control(
        "GET", f"{HERE}/applications", READ, gitops.list_applications, "List applications",
        answer=FollowedListForm,
    ),
    control(
        "GET", ONE, READ, gitops.get_application, "Get one application",
        answer=FollowedForm, errors=_ABSENT,
    ),
    control(
        "GET", f"{ONE}/objects", READ, gitops.list_objects, "List its objects",
        answer=ObjectListForm, errors=_ABSENT,
    ),
    control(
        "GET", f"{ONE}/diff", READ, gitops.diff, "Look now, and say what differs",
        answer=DiffForm, errors=_ABSENT,
    ),
    control(
        "GET", f"{ONE}/plan", READ, gitops.plan, "Say what a sync would do",
        answer=SyncPlanForm, errors=_ABSENT,
        query=(Query(name="prune", type=bool, about="With what is no longer declared."),),
    ),
    control(
        "POST", f"{ONE}/sync", WRITE, decisions.sync, "Have Git applied",
        body=SyncForm, answer=SyncedForm, errors=(202, *_ABSENT),
    ),
    control(
        "POST", f"{ONE}/holds", WRITE, decisions.pause, "Hold it, or one of its objects",
        body=HoldRequestForm, answer=HoldForm, status=201, errors=_ABSENT,
    ),
    control(
        "DELETE", f"{ONE}/holds", WRITE, decisions.resume, "End its holds",
        answer=HoldListForm, errors=_ABSENT,
        query=(Query(name="object", about="Only those of this KIND/NAMESPACE/NAME."),),
    ),
    control(
        "GET", f"{HERE}/holds", READ, gitops.list_holds, "List holds", answer=HoldListForm,
    ),
    control(
        "GET", f"{HERE}/plans/{{id}}", READ, gitops.get_plan, "Get a plan that waits",
        answer=WaitingPlanForm, errors=(404,),
    ),
    control(
        "POST", f"{HERE}/plans/{{id}}/approve", APPROVE, decisions.approve_plan,
        "Agree to a plan that waits", body=ApproveForm, answer=WaitingPlanForm, errors=_ABSENT,
    ),
    control(
        "POST", f"{HERE}/plans/{{id}}/reject", APPROVE, decisions.reject_plan,
        "Say no to a plan that waits", body=RejectForm, answer=WaitingPlanForm, errors=_ABSENT,
    ),
    control(
        "GET", f"{HERE}/drifts", READ, gitops.list_drifts, "List drifts of applications",
        answer=ApplicationDriftListForm, errors=_ABSENT,
        query=(
            Query(name="state", about="open, all, or one state such as awaiting-approval"),
            _APPLICATION,
            Query(name="type", about="Only this kind of drift."),
            Query(name="namespace", about="Only objects of this namespace."),
            _LIMIT,
        ),
    ),
    control(
        "GET", DRIFT, READ, gitops.get_drift, "Get one drift, open or ended",
        answer=ApplicationDriftForm, errors=(404,),
    ),
    control(
        "POST", f"{DRIFT}/approve", APPROVE, decisions.approve, "Approve exactly its plan",
        body=ApproveForm, answer=ApplicationDriftForm, errors=_ABSENT,
    ),
    control(
        "POST", f"{DRIFT}/reject", APPROVE, decisions.reject, "Let the live side stay",
        body=RejectForm, answer=ApplicationDriftForm, errors=_ABSENT,
    ),
    control(
        "POST", f"{DRIFT}/snooze", APPROVE, decisions.snooze, "Be asked again later",
        body=SnoozeForm, answer=ApplicationDriftForm, errors=_ABSENT,
    ),
    control(
        "POST", f"{DRIFT}/codify", WRITE, decisions.codify, "Propose the live value to Git",
        answer=ApplicationDriftForm, errors=_ABSENT,
    ),
    control(
        "POST", f"{DRIFT}/revert", WRITE, decisions.revert, "Put the declared value back",
        body=RevertForm, answer=ApplicationDriftForm, errors=_ABSENT,
    ),
    control(
        "POST", f"{DRIFT}/ignore", WRITE, decisions.ignore, "Hide it for a while",
        body=IgnoreForm, answer=IgnoredListForm, errors=_ABSENT,
    ),
    control(
        "GET", f"{HERE}/history", READ, history.list_history, "List lines of the journal",
        answer=JournalForm, errors=_ABSENT,
        query=(
            _APPLICATION,
            Query(name="subject", about="Only what is about this drift, plan or hold."),
            Query(name="since", about="A time such as 2026-11-20T18:00:00Z."),
            Query(name="before", type=int, about="The `next` of the page before."),
            _LIMIT,
        ),
    ),
    control(
        "GET", f"{HERE}/export", READ, history.export, "Give all drifts, or the journal",
        media=history.JSON_LINES, streams=True, errors=_ABSENT,
        query=(_APPLICATION, Query(name="what", about="drifts or journal")),
    ),
    *ACCESS,
    Route(
        method="POST", path="/hooks/{provider}", credential=Credential.OPEN, handler=history.hook,
        summary="Take a webhook of a forge", status=202,
        errors=(200, 400, 401, 404, 408, 413, 415, 429),
    ),
    *PROBES,
)  # fmt: skip
