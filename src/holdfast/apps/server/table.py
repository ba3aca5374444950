"""Every route of the server. A route that is not here does not exist."""

from __future__ import annotations

from dataclasses import replace

from holdfast.adapters.store import Scope
from holdfast.apps.server import access, cluster_routes, compat, ledger, native, probes
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
from holdfast.apps.server.proxy import proxy
from holdfast.apps.server.routes import Credential, Query, Route
from holdfast.wire.ledger_v1 import DriftForm, DriftListForm, HistoryListForm
from holdfast.wire.plan_v1 import PlanForm, StepForm
from holdfast.wire.workload_v1 import CreateForm, UpdateForm, WorkloadForm

PROJECT = "/api/projects/{project}"
WORKLOADS = f"{PROJECT}/workloads"
SSE = "text/event-stream"
_SLUG = Query(name="slug", about="Only this workload.")
_LIMIT = Query(name="limit", type=int, about="How many at most.")


def control(
    method: str, path: str, scope: Scope, handler: object, summary: str, **more: object
) -> Route:
    """Write a route that a control token opens."""
    return Route(
        method=method,
        path=path,
        credential=Credential.CONTROL,
        scope=scope,
        handler=handler,  # type: ignore[arg-type]  # all below are handlers
        summary=summary,
        **more,  # type: ignore[arg-type]  # the fields of Route
    )


def _open(path: str, handler: object, summary: str, **more: object) -> Route:
    return Route(
        method="GET",
        path=path,
        credential=Credential.OPEN,
        handler=handler,  # type: ignore[arg-type]  # all below are handlers
        summary=summary,
        **more,  # type: ignore[arg-type]  # the fields of Route
    )


READ, WRITE, ADMIN = Scope.READ, Scope.WRITE, Scope.ADMIN

ACCESS: tuple[Route, ...] = (
    control(
        "GET", f"{PROJECT}/tokens", ADMIN, access.list_tokens, "List tokens",
        answer=TokenListForm,
    ),
    control(
        "POST", f"{PROJECT}/tokens", ADMIN, access.create_token, "Create a token",
        body=TokenRequestForm, answer=NewTokenForm, status=201, errors=(404, 409),
    ),
    control(
        "DELETE", f"{PROJECT}/tokens/{{id}}", ADMIN, access.revoke_token, "Revoke a token",
        status=204, errors=(404,),
    ),
)  # fmt: skip
"""Tokens, wherever there are projects."""

PROBES: tuple[Route, ...] = (
    _open("/healthz", probes.healthz, "Is the process alive", answer=HealthForm),
    _open("/readyz", probes.readyz, "Are requests welcome", answer=HealthForm),
    _open("/metrics", probes.metrics, "Figures for Prometheus", media="text/plain"),
    _open("/openapi.json", probes.openapi, "This description", answer=dict),
)  # fmt: skip
"""What every server answers to anyone."""

ROUTES: tuple[Route, ...] = (
    control(
        "GET", WORKLOADS, READ, compat.list_workloads, "List workloads",
        answer=WorkloadListForm,
        query=(_LIMIT, Query(name="after", about="Begin behind this slug.")),
    ),
    control(
        "POST", WORKLOADS, WRITE, compat.create_workload, "Create a workload",
        body=CreateForm, answer=WorkloadForm, status=201, errors=(409,),
    ),
    control(
        "GET", f"{WORKLOADS}/{{slug}}", READ, native.get_workload, "Get one workload",
        answer=WorkloadForm, headers=("If-None-Match",), errors=(304, 404),
    ),
    control(
        "PATCH", "/api/workloads/{id}", WRITE, compat.update_workload, "Change some fields",
        body=UpdateForm, answer=WorkloadForm, headers=("If-Match",), errors=(404, 409, 412),
    ),
    control(
        "DELETE", "/api/workloads/{id}", WRITE, compat.delete_workload, "Delete a workload",
        status=204, headers=("If-Match",), errors=(404, 409, 412),
    ),
    control(
        "GET", f"{WORKLOADS}/{{slug}}/readiness-events", READ, compat.readiness_events,
        "Follow a workload to readiness", media=SSE, streams=True, errors=(404,),
    ),
    control(
        "GET", f"{WORKLOADS}/{{slug}}/logs", READ, native.workload_logs, "Read log lines",
        media="text/plain", streams=True, errors=(404,),
        query=(
            Query(name="tail", type=int, about="How many of the last lines."),
            Query(name="follow", type=bool, about="Wait for more."),
        ),
    ),
    control(
        "POST", f"{PROJECT}/steps", WRITE, native.perform_step, "Carry out one step of a plan",
        body=StepForm, answer=WorkloadForm, headers=("Idempotency-Key",),
        errors=(204, 404, 409, 422),
    ),
    control(
        "POST", f"{PROJECT}/ensure", WRITE, native.ensure, "Make a workload match",
        body=EnsureForm, answer=EnsuredForm, headers=("Idempotency-Key",),
        errors=(404, 409, 422),
    ),
    control(
        "POST", f"{PROJECT}/plan", READ, native.plan, "Say what ensure would do",
        body=PlanRequestForm, answer=PlanForm,
    ),
    control(
        "GET", f"{PROJECT}/drift", READ, ledger.list_drift, "List drifts",
        answer=DriftListForm, query=(Query(name="state", about="open or all"), _SLUG, _LIMIT),
    ),
    control(
        "GET", f"{PROJECT}/drift/{{id}}", READ, ledger.show_drift, "Get one drift",
        answer=DriftForm, errors=(404,),
    ),
    control(
        "GET", f"{PROJECT}/history", READ, ledger.list_history, "List audit rows",
        answer=HistoryListForm,
        query=(_SLUG, _LIMIT, Query(name="before", type=int, about="Rows before this seq.")),
    ),
    control(
        "GET", f"{PROJECT}/events", READ, ledger.project_events, "Follow changes",
        media=SSE, streams=True,
    ),
    *ACCESS,
    *(
        Route(
            method=method,
            path="/endpoint/{project}/{workload}/v1/{path:path}",
            credential=Credential.DATA,
            handler=proxy,
            summary="Ask the workload",
            streams=True,
            media="*/*",
            errors=(404, 502, 504),
        )
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    ),
    *PROBES,
)  # fmt: skip

_INSTEAD: dict[object, object] = {
    compat.list_workloads: cluster_routes.list_workloads,
    compat.create_workload: cluster_routes.create_workload,
    compat.update_workload: cluster_routes.update_workload,
    compat.delete_workload: cluster_routes.delete_workload,
    compat.readiness_events: cluster_routes.readiness_events,
    native.get_workload: cluster_routes.get_workload,
    native.workload_logs: cluster_routes.workload_logs,
    ledger.list_drift: cluster_routes.list_drift,
    ledger.show_drift: cluster_routes.show_drift,
    ledger.list_history: cluster_routes.list_history,
    ledger.project_events: cluster_routes.project_events,
    proxy: cluster_routes.proxy,
}
ON_CLUSTER: tuple[Route, ...] = tuple(
    replace(route, handler=_INSTEAD.get(route.handler, route.handler))  # type: ignore[arg-type]
    for route in ROUTES
)
"""The same routes, credentials and scopes where a cluster keeps the workloads."""
