"""Every route of the server. A route that is not here does not exist."""

from __future__ import annotations

from dataclasses import replace

from holdfast.adapters.store import TokenScope
from holdfast.apps.server import gitops_decisions, probes, token_routes
from holdfast.apps.server.cluster_routes import (
    create_cluster_workload,
    delete_cluster_workload,
    get_cluster_drift,
    get_cluster_workload,
    list_cluster_drifts,
    list_cluster_history,
    list_cluster_workloads,
    proxy_to_cluster,
    stream_cluster_changes,
    stream_cluster_logs,
    stream_cluster_readiness,
    update_cluster_workload,
)
from holdfast.apps.server.forms import (
    EnsuredForm,
    EnsureForm,
    HealthForm,
    NewTokenForm,
    PlanRequestForm,
    TokenListForm,
    TokenRequestForm,
    WorkloadListForm,
)
from holdfast.apps.server.gitops_routes import (
    JSON_LINES,
    diff_application,
    export_history,
    get_application,
    get_application_drift,
    get_plan,
    list_application_drifts,
    list_applications,
    list_holds,
    list_journal,
    list_objects,
    plan_application,
    receive_webhook,
)
from holdfast.apps.server.proxy import proxy_request
from holdfast.apps.server.routes import ApiRoute, QueryParameter, RouteCredential
from holdfast.apps.server.workload_routes import (
    create_workload,
    delete_workload,
    ensure_workload,
    get_workload,
    get_workload_drift,
    list_workload_drifts,
    list_workload_history,
    list_workloads,
    perform_step,
    plan_workloads,
    stream_readiness,
    stream_workload_changes,
    stream_workload_logs,
    update_workload,
)
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
from holdfast.wire.ledger_v1 import DriftForm, DriftListForm, HistoryListForm
from holdfast.wire.plan_v1 import PlanForm, StepForm
from holdfast.wire.workload_v1 import CreateForm, UpdateForm, WorkloadForm

PROJECT_PATH = "/api/projects/{project}"
WORKLOADS_PATH = f"{PROJECT_PATH}/workloads"
EVENT_STREAM = "text/event-stream"
_SLUG = QueryParameter(name="slug", about="Only this workload.")
_LIMIT = QueryParameter(name="limit", type=int, about="How many at most.")


def control_route(
    method: str, path: str, scope: TokenScope, handler: object, summary: str, **more: object
) -> ApiRoute:
    """Write a route that a control token opens."""
    return ApiRoute(
        method=method,
        path=path,
        credential=RouteCredential.CONTROL,
        scope=scope,
        handler=handler,  # type: ignore[arg-type]  # all below are handlers
        summary=summary,
        **more,  # type: ignore[arg-type]  # the fields of Route
    )


def _open_route(path: str, handler: object, summary: str, **more: object) -> ApiRoute:
    return ApiRoute(
        method="GET",
        path=path,
        credential=RouteCredential.OPEN,
        handler=handler,  # type: ignore[arg-type]  # all below are handlers
        summary=summary,
        **more,  # type: ignore[arg-type]  # the fields of Route
    )


READ, WRITE, ADMIN = TokenScope.READ, TokenScope.WRITE, TokenScope.ADMIN

TOKEN_ROUTES: tuple[ApiRoute, ...] = (
    control_route(
        "GET", f"{PROJECT_PATH}/tokens", ADMIN, token_routes.list_tokens, "List tokens",
        response=TokenListForm,
    ),
    control_route(
        "POST", f"{PROJECT_PATH}/tokens", ADMIN, token_routes.create_token, "Create a token",
        body=TokenRequestForm, response=NewTokenForm, status=201, errors=(404, 409),
    ),
    control_route(
        "DELETE", f"{PROJECT_PATH}/tokens/{{id}}", ADMIN, token_routes.revoke_token, "Revoke a token",
        status=204, errors=(404,),
    ),
)  # fmt: skip
"""Tokens, wherever there are projects."""

PROBE_ROUTES: tuple[ApiRoute, ...] = (
    _open_route("/healthz", probes.get_health, "Is the process alive", response=HealthForm),
    _open_route("/readyz", probes.get_readiness, "Are requests welcome", response=HealthForm),
    _open_route("/metrics", probes.get_metrics, "Figures for Prometheus", media="text/plain"),
    _open_route("/openapi.json", probes.get_openapi, "This description", response=dict),
)  # fmt: skip
"""What every server answers to anyone."""

EMBEDDED_ROUTES: tuple[ApiRoute, ...] = (
    control_route(
        "GET", WORKLOADS_PATH, READ, list_workloads, "List workloads",
        response=WorkloadListForm,
        query=(_LIMIT, QueryParameter(name="after", about="Begin behind this slug.")),
    ),
    control_route(
        "POST", WORKLOADS_PATH, WRITE, create_workload, "Create a workload",
        body=CreateForm, response=WorkloadForm, status=201, errors=(409,),
    ),
    control_route(
        "GET", f"{WORKLOADS_PATH}/{{slug}}", READ, get_workload, "Get one workload",
        response=WorkloadForm, headers=("If-None-Match",), errors=(304, 404),
    ),
    control_route(
        "PATCH", "/api/workloads/{id}", WRITE, update_workload, "Change some fields",
        body=UpdateForm, response=WorkloadForm, headers=("If-Match",), errors=(404, 409, 412),
    ),
    control_route(
        "DELETE", "/api/workloads/{id}", WRITE, delete_workload, "Delete a workload",
        status=204, headers=("If-Match",), errors=(404, 409, 412),
    ),
    control_route(
        "GET", f"{WORKLOADS_PATH}/{{slug}}/readiness-events", READ, stream_readiness,
        "Follow a workload to readiness", media=EVENT_STREAM, streams=True, errors=(404,),
    ),
    control_route(
        "GET", f"{WORKLOADS_PATH}/{{slug}}/logs", READ, stream_workload_logs, "Read log lines",
        media="text/plain", streams=True, errors=(404,),
        query=(
            QueryParameter(name="tail", type=int, about="How many of the last lines."),
            QueryParameter(name="follow", type=bool, about="Wait for more."),
        ),
    ),
    control_route(
        "POST", f"{PROJECT_PATH}/steps", WRITE, perform_step, "Carry out one step of a plan",
        body=StepForm, response=WorkloadForm, headers=("Idempotency-Key",),
        errors=(204, 404, 409, 422),
    ),
    control_route(
        "POST", f"{PROJECT_PATH}/ensure", WRITE, ensure_workload, "Make a workload match",
        body=EnsureForm, response=EnsuredForm, headers=("Idempotency-Key",),
        errors=(404, 409, 422),
    ),
    control_route(
        "POST", f"{PROJECT_PATH}/plan", READ, plan_workloads, "Say what ensure would do",
        body=PlanRequestForm, response=PlanForm,
    ),
    control_route(
        "GET", f"{PROJECT_PATH}/drift", READ, list_workload_drifts, "List drifts",
        response=DriftListForm, query=(QueryParameter(name="state", about="open or all"), _SLUG, _LIMIT),
    ),
    control_route(
        "GET", f"{PROJECT_PATH}/drift/{{id}}", READ, get_workload_drift, "Get one drift",
        response=DriftForm, errors=(404,),
    ),
    control_route(
        "GET", f"{PROJECT_PATH}/history", READ, list_workload_history, "List audit rows",
        response=HistoryListForm,
        query=(_SLUG, _LIMIT, QueryParameter(name="before", type=int, about="Rows before this seq.")),
    ),
    control_route(
        "GET", f"{PROJECT_PATH}/events", READ, stream_workload_changes, "Follow changes",
        media=EVENT_STREAM, streams=True,
    ),
    *TOKEN_ROUTES,
    *(
        ApiRoute(
            method=method,
            path="/endpoint/{project}/{workload}/v1/{path:path}",
            credential=RouteCredential.DATA,
            handler=proxy_request,
            summary="Ask the workload",
            streams=True,
            media="*/*",
            errors=(404, 502, 504),
        )
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    ),
    *PROBE_ROUTES,
)  # fmt: skip

_CLUSTER_HANDLERS: dict[object, object] = {
    list_workloads: list_cluster_workloads,
    create_workload: create_cluster_workload,
    update_workload: update_cluster_workload,
    delete_workload: delete_cluster_workload,
    stream_readiness: stream_cluster_readiness,
    get_workload: get_cluster_workload,
    stream_workload_logs: stream_cluster_logs,
    list_workload_drifts: list_cluster_drifts,
    get_workload_drift: get_cluster_drift,
    list_workload_history: list_cluster_history,
    stream_workload_changes: stream_cluster_changes,
    proxy_request: proxy_to_cluster,
}
CLUSTER_ROUTES: tuple[ApiRoute, ...] = tuple(
    replace(route, handler=_CLUSTER_HANDLERS.get(route.handler, route.handler))  # type: ignore[arg-type]
    for route in EMBEDDED_ROUTES
)
"""The same routes, credentials and scopes where a cluster keeps the workloads."""


_READ, _WRITE, APPROVE = TokenScope.READ, TokenScope.WRITE, TokenScope.APPROVE
GITOPS_PATH = f"{PROJECT_PATH}/gitops"
APPLICATION_PATH = f"{GITOPS_PATH}/applications/{{application}}"
DRIFT_PATH = f"{GITOPS_PATH}/drifts/{{id}}"
_NOT_FOUND_OR_CONFLICT = (404, 409)
_APPLICATION = QueryParameter(name="application", about="Only this one, by name or namespace.name.")
_ROW_LIMIT = QueryParameter(name="limit", type=int, about="How many at most.")

GITOPS_ROUTES: tuple[ApiRoute, ...] = (
    control_route(
        "GET", f"{GITOPS_PATH}/applications", _READ, list_applications, "List applications",
        response=FollowedListForm,
    ),
    control_route(
        "GET", APPLICATION_PATH, _READ, get_application, "Get one application",
        response=FollowedForm, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "GET", f"{APPLICATION_PATH}/objects", _READ, list_objects, "List its objects",
        response=ObjectListForm, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "GET", f"{APPLICATION_PATH}/diff", _READ, diff_application, "Look now, and say what differs",
        response=DiffForm, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "GET", f"{APPLICATION_PATH}/plan", _READ, plan_application, "Say what a sync would do",
        response=SyncPlanForm, errors=_NOT_FOUND_OR_CONFLICT,
        query=(QueryParameter(name="prune", type=bool, about="With what is no longer declared."),),
    ),
    control_route(
        "POST", f"{APPLICATION_PATH}/sync", _WRITE, gitops_decisions.sync_application, "Have Git applied",
        body=SyncForm, response=SyncedForm, errors=(202, *_NOT_FOUND_OR_CONFLICT),
    ),
    control_route(
        "POST", f"{APPLICATION_PATH}/holds", _WRITE, gitops_decisions.hold_application, "Hold it, or one of its objects",
        body=HoldRequestForm, response=HoldForm, status=201, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "DELETE", f"{APPLICATION_PATH}/holds", _WRITE, gitops_decisions.release_application, "End its holds",
        response=HoldListForm, errors=_NOT_FOUND_OR_CONFLICT,
        query=(QueryParameter(name="object", about="Only those of this KIND/NAMESPACE/NAME."),),
    ),
    control_route(
        "GET", f"{GITOPS_PATH}/holds", _READ, list_holds, "List holds", response=HoldListForm,
    ),
    control_route(
        "GET", f"{GITOPS_PATH}/plans/{{id}}", _READ, get_plan, "Get a plan that waits",
        response=WaitingPlanForm, errors=(404,),
    ),
    control_route(
        "POST", f"{GITOPS_PATH}/plans/{{id}}/approve", APPROVE, gitops_decisions.approve_plan,
        "Agree to a plan that waits", body=ApproveForm, response=WaitingPlanForm, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "POST", f"{GITOPS_PATH}/plans/{{id}}/reject", APPROVE, gitops_decisions.reject_plan,
        "Say no to a plan that waits", body=RejectForm, response=WaitingPlanForm, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "GET", f"{GITOPS_PATH}/drifts", _READ, list_application_drifts, "List drifts of applications",
        response=ApplicationDriftListForm, errors=_NOT_FOUND_OR_CONFLICT,
        query=(
            QueryParameter(name="state", about="open, all, or one state such as awaiting-approval"),
            _APPLICATION,
            QueryParameter(name="type", about="Only this kind of drift."),
            QueryParameter(name="namespace", about="Only objects of this namespace."),
            _ROW_LIMIT,
        ),
    ),
    control_route(
        "GET", DRIFT_PATH, _READ, get_application_drift, "Get one drift, open or ended",
        response=ApplicationDriftForm, errors=(404,),
    ),
    control_route(
        "POST", f"{DRIFT_PATH}/approve", APPROVE, gitops_decisions.approve_drift, "Approve exactly its plan",
        body=ApproveForm, response=ApplicationDriftForm, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "POST", f"{DRIFT_PATH}/reject", APPROVE, gitops_decisions.reject_drift, "Let the live side stay",
        body=RejectForm, response=ApplicationDriftForm, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "POST", f"{DRIFT_PATH}/snooze", APPROVE, gitops_decisions.snooze_drift, "Be asked again later",
        body=SnoozeForm, response=ApplicationDriftForm, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "POST", f"{DRIFT_PATH}/codify", _WRITE, gitops_decisions.codify_drift, "Propose the live value to Git",
        response=ApplicationDriftForm, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "POST", f"{DRIFT_PATH}/revert", _WRITE, gitops_decisions.revert_drift, "Put the declared value back",
        body=RevertForm, response=ApplicationDriftForm, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "POST", f"{DRIFT_PATH}/ignore", _WRITE, gitops_decisions.ignore_drift, "Hide it for a while",
        body=IgnoreForm, response=IgnoredListForm, errors=_NOT_FOUND_OR_CONFLICT,
    ),
    control_route(
        "GET", f"{GITOPS_PATH}/history", _READ, list_journal, "List lines of the journal",
        response=JournalForm, errors=_NOT_FOUND_OR_CONFLICT,
        query=(
            _APPLICATION,
            QueryParameter(name="subject", about="Only what is about this drift, plan or hold."),
            QueryParameter(name="since", about="A time such as 2026-11-20T18:00:00Z."),
            QueryParameter(name="before", type=int, about="The `next` of the page before."),
            _ROW_LIMIT,
        ),
    ),
    control_route(
        "GET", f"{GITOPS_PATH}/export", _READ, export_history, "Give all drifts, or the journal",
        media=JSON_LINES, streams=True, errors=_NOT_FOUND_OR_CONFLICT,
        query=(_APPLICATION, QueryParameter(name="what", about="drifts or journal")),
    ),
    *TOKEN_ROUTES,
    ApiRoute(
        method="POST", path="/hooks/{provider}", credential=RouteCredential.OPEN, handler=receive_webhook,
        summary="Take a webhook of a forge", status=202,
        errors=(200, 400, 401, 404, 408, 413, 415, 429),
    ),
    *PROBE_ROUTES,
)  # fmt: skip
