"""Every route of the server. A route that is not here does not exist."""

from __future__ import annotations

from dataclasses import replace

from holdfast.adapters.store import TokenScope
from holdfast.apps.server import cluster_routes as cluster
from holdfast.apps.server import forms, open_routes, page, project_endpoint, prompt, workload_drifts
from holdfast.apps.server import gitops_decisions as decisions
from holdfast.apps.server import gitops_drifts as drifts
from holdfast.apps.server import gitops_events as events
from holdfast.apps.server import gitops_plans as plans
from holdfast.apps.server import gitops_routes as gitops
from holdfast.apps.server import gitops_rules as rules
from holdfast.apps.server import gitops_statistics as statistics
from holdfast.apps.server import openid_routes as openid
from holdfast.apps.server import session_routes as people
from holdfast.apps.server import token_routes as tokens
from holdfast.apps.server import workload_routes as workloads
from holdfast.apps.server.proxy import proxy_request
from holdfast.apps.server.routes import ApiRoute, QueryParameter, RouteCredential
from holdfast.wire import gitops_http_v1 as gitops_v1
from holdfast.wire import ledger_v1, plan_v1, workload_v1

READ, WRITE, APPROVE, ADMIN = (
    TokenScope.READ,
    TokenScope.WRITE,
    TokenScope.APPROVE,
    TokenScope.ADMIN,
)


def _query(name: str, about: str, *, type: type = str) -> QueryParameter:
    return QueryParameter(name=name, about=about, type=type)


_PROJECT = "/api/projects/{project}"
_WORKLOADS = f"{_PROJECT}/workloads"
_PROJECT_ENDPOINT = "/p/{project}/v1"
_EVENT_STREAM = "text/event-stream"
_CONFLICT = (404, 409)
_SLUG = _query("slug", "Only this workload.")
_LIMIT = _query("limit", "How many at most.", type=int)
_OF_EVERY_DRIFT = (
    _query("cause", "Only this cause, such as person."),
    _query("writer", "Only what this field manager wrote."),
    _query("group", "cause: drifts of one cause and writer as one group."),
    _query("cursor", "The `next` of the page before."),
    _LIMIT,
)


def _control(
    method: str, path: str, scope: TokenScope | None, handler: object, summary: str, **more: object
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


def _data(method: str, path: str, handler: object, summary: str, **more: object) -> ApiRoute:
    """Write a route that a data key opens."""
    return ApiRoute(
        method=method,
        path=path,
        credential=RouteCredential.DATA,
        handler=handler,  # type: ignore[arg-type]  # all below are handlers
        summary=summary,
        **more,  # type: ignore[arg-type]  # the fields of Route
    )


def _open(path: str, handler: object, summary: str, **more: object) -> ApiRoute:
    return ApiRoute(
        method="GET",
        path=path,
        credential=RouteCredential.OPEN,
        handler=handler,  # type: ignore[arg-type]  # all below are handlers
        summary=summary,
        **more,  # type: ignore[arg-type]  # the fields of Route
    )


TOKEN_ROUTES: tuple[ApiRoute, ...] = (
    _control(
        "GET", f"{_PROJECT}/tokens", ADMIN, tokens.list_tokens, "List tokens",
        response=forms.TokenListForm,
    ),
    _control(
        "POST", f"{_PROJECT}/tokens", ADMIN, tokens.create_token, "Create a token",
        body=forms.TokenRequestForm, response=forms.NewTokenForm, status=201, errors=(404, 409),
    ),
    _control(
        "DELETE", f"{_PROJECT}/tokens/{{id}}", ADMIN, tokens.revoke_token, "Revoke a token",
        status=204, errors=(404,),
    ),
)  # fmt: skip
"""Tokens, wherever there are projects."""

PEOPLE_ROUTES: tuple[ApiRoute, ...] = (
    _open(
        "/api/login", openid.describe_login, "Say how to sign in", response=forms.LoginForm,
    ),
    ApiRoute(
        method="POST", path="/api/sessions", credential=RouteCredential.OPEN,
        handler=people.sign_in, summary="Sign in by a token or a code", body=forms.SignInForm,
        response=forms.MeForm, status=201, errors=(400, 401, 403, 409, 429),
    ),
    _control(
        "GET", "/api/sessions", None, people.list_sessions, "List one's own sessions",
        response=forms.SessionListForm,
    ),
    _control(
        "DELETE", "/api/sessions/current", None, people.sign_out, "Sign out",
        status=204, errors=(404,),
    ),
    _control(
        "DELETE", "/api/sessions/{id}", None, people.end_session, "End one of one's sessions",
        status=204, errors=(404,),
    ),
    _control(
        "POST", "/api/sign-in-links", None, people.create_sign_in_link,
        "Make a link that signs in once", response=forms.SignInLinkForm, status=201,
    ),
    _open(
        "/api/openid/{id}/login", openid.begin_login, "Sign in at an issuer", status=302,
        query=(_query("next", "Where on the page to come back to, below /ui/."),),
        errors=(400, 403, 404),
    ),
    _open(
        "/api/openid/{id}/callback", openid.finish_login, "Come back from an issuer", status=302,
        query=(
            _query("code", "What the issuer gave."),
            _query("state", "What this sign-in is known by."),
            _query("error", "Why the issuer gave no code."),
            _query("iss", "Which issuer answers."),
        ),
        errors=(403, 404, 429),
    ),
    ApiRoute(
        method="POST", path=f"{_PROJECT}/token-exchange", credential=RouteCredential.OPEN,
        handler=openid.exchange_token, summary="Change a CI job's token for one of ours",
        body=forms.TokenExchangeForm, response=forms.NewTokenForm, status=201,
        errors=(400, 401, 403, 404, 429, 503),
    ),
    _control("GET", "/api/me", None, people.get_me, "Say who asks", response=forms.MeForm),
)  # fmt: skip
"""Who somebody is, on every server."""

PROBE_ROUTES: tuple[ApiRoute, ...] = (
    _open("/healthz", open_routes.get_health, "Is the process alive", response=forms.HealthForm),
    _open("/readyz", open_routes.get_readiness, "Are requests welcome", response=forms.HealthForm),
    _open("/metrics", open_routes.get_metrics, "Figures for Prometheus", media="text/plain"),
    _open("/openapi.json", open_routes.get_openapi, "This description", response=dict),
)  # fmt: skip
"""What every server answers to anyone."""

PAGE_ROUTES: tuple[ApiRoute, ...] = (
    _open("/", page.redirect_to_page, "Go to the page", status=302, media="text/html"),
    _open(
        "/ui", page.redirect_to_page, "Go to the page", status=302, media="text/html",
        name="redirect_to_page_folder",
    ),
    _open("/ui/", page.get_page, "The page", media="text/html", errors=(304, 404)),
    _open(
        "/ui/{path:path}", page.get_page, "The page, at one of its screens", media="text/html",
        errors=(304, 404), name="get_page_screen",
    ),
    _open(
        "/ui/assets/{path:path}", page.get_page_file, "A file of the page", media="*/*",
        errors=(304, 404),
    ),
)  # fmt: skip
"""What a browser is given, by every server. The page asks the routes above for all it shows."""

EMBEDDED_ROUTES: tuple[ApiRoute, ...] = (
    _control(
        "GET", _WORKLOADS, READ, workloads.list_workloads, "List workloads",
        response=forms.WorkloadListForm,
        query=(_LIMIT, _query("after", "Begin behind this slug.")),
    ),
    _control(
        "POST", _WORKLOADS, WRITE, workloads.create_workload, "Create a workload",
        body=workload_v1.CreateForm, response=workload_v1.WorkloadForm, status=201, errors=(409,),
    ),
    _control(
        "GET", f"{_WORKLOADS}/{{slug}}", READ, workloads.get_workload, "Get one workload",
        response=workload_v1.WorkloadForm, headers=("If-None-Match",), errors=(304, 404),
    ),
    _control(
        "PATCH", "/api/workloads/{id}", WRITE, workloads.update_workload, "Change some fields",
        body=workload_v1.UpdateForm, response=workload_v1.WorkloadForm, headers=("If-Match",),
        errors=(404, 409, 412),
    ),
    _control(
        "DELETE", "/api/workloads/{id}", WRITE, workloads.delete_workload, "Delete a workload",
        status=204, headers=("If-Match",), errors=(404, 409, 412),
    ),
    _control(
        "GET", f"{_WORKLOADS}/{{slug}}/readiness-events", READ, workloads.stream_readiness,
        "Follow a workload to readiness", media=_EVENT_STREAM, streams=True, errors=(404,),
    ),
    _control(
        "GET", f"{_WORKLOADS}/{{slug}}/logs", READ, workloads.stream_workload_logs,
        "Read log lines", media="text/plain", streams=True, errors=(404,),
        query=(
            _query("tail", "How many of the last lines.", type=int),
            _query("follow", "Wait for more.", type=bool),
        ),
    ),
    _control(
        "POST", f"{_WORKLOADS}/{{slug}}/prompt", WRITE, prompt.prompt_workload,
        "Ask a workload, in a stream of our own", body=prompt.PromptForm, media=_EVENT_STREAM,
        streams=True, errors=(404, 502, 504),
    ),
    _control(
        "POST", f"{_PROJECT}/steps", WRITE, workloads.perform_step, "Carry out one step of a plan",
        body=plan_v1.StepForm, response=workload_v1.WorkloadForm, headers=("Idempotency-Key",),
        errors=(204, 404, 409, 422),
    ),
    _control(
        "POST", f"{_PROJECT}/ensure", WRITE, workloads.ensure_workload, "Make a workload match",
        body=forms.EnsureForm, response=forms.EnsuredForm, headers=("Idempotency-Key",),
        errors=(404, 409, 422),
    ),
    _control(
        "POST", f"{_PROJECT}/plan", READ, workloads.plan_workloads, "Say what ensure would do",
        body=forms.PlanRequestForm, response=plan_v1.PlanForm,
    ),
    _control(
        "POST", f"{_PROJECT}/cost", READ, workloads.estimate_step, "Say what a step would cost",
        body=plan_v1.StepForm, response=plan_v1.StepCostForm,
    ),
    _control(
        "GET", f"{_PROJECT}/drift", READ, workload_drifts.list_workload_drifts, "List drifts",
        response=ledger_v1.WorkloadDriftPageForm,
        query=(
            _query("state", "open or all"),
            _SLUG,
            _query("type", "Only this kind of drift."),
            _query("q", "Words in workload, path, writer or id; all must match."),
            *_OF_EVERY_DRIFT,
        ),
    ),
    _control(
        "GET", f"{_PROJECT}/drift/{{id}}", READ, workload_drifts.get_workload_drift,
        "Get one drift", response=ledger_v1.WorkloadDriftForm, errors=(404,),
    ),
    _control(
        "POST", f"{_PROJECT}/drift/{{id}}/revert", WRITE, workload_drifts.revert_workload_drift,
        "Write a workload as it was declared", body=ledger_v1.WorkloadRevertForm,
        response=ledger_v1.WorkloadDriftForm, errors=_CONFLICT,
    ),
    _control(
        "GET", f"{_PROJECT}/history", READ, workloads.list_workload_history, "List audit rows",
        response=ledger_v1.HistoryListForm,
        query=(_SLUG, _LIMIT, _query("before", "Rows before this seq.", type=int)),
    ),
    _control(
        "GET", f"{_PROJECT}/events", READ, workloads.stream_workload_changes, "Follow changes",
        media=_EVENT_STREAM, streams=True, headers=("Last-Event-ID",),
        query=(_query("after", "Resume after the event with this id.", type=int),),
    ),
    *TOKEN_ROUTES,
    *PEOPLE_ROUTES,
    *(
        ApiRoute(
            method=method,
            path="/endpoint/{project}/{workload}/v1/{path:path}",
            credential=RouteCredential.DATA,
            handler=proxy_request,
            summary="Ask the workload",
            name=f"{method.lower()}_endpoint",
            streams=True,
            media="*/*",
            errors=(404, 502, 504),
        )
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    ),
    _data(
        "GET", f"{_PROJECT_ENDPOINT}/models", project_endpoint.list_project_models,
        "List the workloads that the key opens", response=project_endpoint.ProjectModelListForm,
    ),
    _data(
        "GET", f"{_PROJECT_ENDPOINT}/models/{{model}}", project_endpoint.get_project_model,
        "Get one workload that the key opens", response=project_endpoint.ProjectModelForm,
        errors=(404,),
    ),
    _data(
        "POST", f"{_PROJECT_ENDPOINT}/{{path:path}}", project_endpoint.ask_project_model,
        "Ask the workload that the body names as its model", streams=True, media="*/*",
        errors=(404, 502, 504),
    ),
    *PROBE_ROUTES,
    *PAGE_ROUTES,
)  # fmt: skip

_CLUSTER_HANDLERS: dict[object, object] = {
    workloads.list_workloads: cluster.list_cluster_workloads,
    workloads.create_workload: cluster.create_cluster_workload,
    workloads.update_workload: cluster.update_cluster_workload,
    workloads.delete_workload: cluster.delete_cluster_workload,
    workloads.stream_readiness: cluster.stream_cluster_readiness,
    workloads.get_workload: cluster.get_cluster_workload,
    workloads.stream_workload_logs: cluster.stream_cluster_logs,
    workload_drifts.list_workload_drifts: cluster.list_cluster_drifts,
    workload_drifts.get_workload_drift: cluster.get_cluster_drift,
    workloads.list_workload_history: cluster.list_cluster_history,
    workloads.stream_workload_changes: cluster.stream_cluster_changes,
    proxy_request: cluster.proxy_to_cluster,
}
_ONLY_EMBEDDED = frozenset({workload_drifts.revert_workload_drift})
CLUSTER_ROUTES: tuple[ApiRoute, ...] = tuple(
    replace(route, handler=_CLUSTER_HANDLERS.get(route.handler, route.handler))  # type: ignore[arg-type]
    for route in EMBEDDED_ROUTES
    if route.handler not in _ONLY_EMBEDDED
)
"""The same routes, credentials and scopes where a cluster keeps the workloads."""


_GITOPS = f"{_PROJECT}/gitops"
_APPLICATION = f"{_GITOPS}/applications/{{application}}"
_DRIFT = f"{_GITOPS}/drifts/{{id}}"
_ONLY = _query("application", "Only this one, by name or namespace.name.")

_GITOPS_PAGE_ROUTES: tuple[ApiRoute, ...] = (
    _control(
        "GET", f"{_GITOPS}/statistics", READ, statistics.get_statistics,
        "Count drifts and decisions", response=gitops_v1.StatisticsForm, errors=_CONFLICT,
        query=(
            _query("since", "A time such as 2026-11-20T18:00:00Z; 30 days before until."),
            _query("until", "A time; now."),
            _ONLY,
        ),
    ),
    _control(
        "GET", f"{_GITOPS}/ignore-rules", READ, rules.list_ignore_rules,
        "List ignore rules and what they hide", response=gitops_v1.IgnoreRuleListForm,
        errors=_CONFLICT, query=(_ONLY,),
    ),
    _control(
        "POST", f"{_GITOPS}/ignore-rules/preview", READ, rules.preview_ignore_rule,
        "Say what a rule would hide", body=gitops_v1.IgnorePreviewRequestForm,
        response=gitops_v1.IgnorePreviewForm, errors=_CONFLICT,
    ),
    _control(
        "DELETE", f"{_GITOPS}/ignore-rules/{{name}}", WRITE, rules.end_ignore_rule,
        "End a rule that a person added", response=gitops_v1.IgnoredForm, errors=_CONFLICT,
        query=(_ONLY,),
    ),
    _control(
        "GET", f"{_DRIFT}/choices", READ, drifts.list_drift_choices,
        "Say what each decision would do, and cost", response=gitops_v1.ChoiceListForm,
        errors=(404,),
    ),
    _control(
        "GET", f"{_DRIFT}/codify-preview", READ, drifts.preview_codify,
        "Show what codify would propose", response=gitops_v1.CodifyPreviewForm, errors=(404,),
    ),
    _control(
        "GET", f"{_GITOPS}/events", READ, events.stream_application_events,
        "Follow what happens to applications", media=_EVENT_STREAM, streams=True,
        headers=("Last-Event-ID",),
        query=(_query("after", "The id of the last event that is known.", type=int),),
    ),
)  # fmt: skip
"""What a page about applications needs beside reading and deciding."""

GITOPS_ROUTES: tuple[ApiRoute, ...] = (
    _control(
        "GET", f"{_GITOPS}/applications", READ, gitops.list_applications, "List applications",
        response=gitops_v1.FollowedListForm,
    ),
    _control(
        "GET", _APPLICATION, READ, gitops.get_application, "Get one application",
        response=gitops_v1.FollowedForm, errors=_CONFLICT,
    ),
    _control(
        "GET", f"{_APPLICATION}/objects", READ, gitops.list_objects, "List its objects",
        response=gitops_v1.ObjectListForm, errors=_CONFLICT,
    ),
    _control(
        "GET", f"{_APPLICATION}/diff", READ, gitops.diff_application,
        "Look now, and say what differs", response=gitops_v1.DiffForm, errors=_CONFLICT,
    ),
    _control(
        "GET", f"{_APPLICATION}/plan", READ, gitops.plan_application, "Say what a sync would do",
        response=gitops_v1.SyncPlanForm, errors=_CONFLICT,
        query=(_query("prune", "With what is no longer declared.", type=bool),),
    ),
    _control(
        "POST", f"{_APPLICATION}/sync", WRITE, decisions.sync_application, "Have Git applied",
        body=gitops_v1.SyncForm, response=gitops_v1.SyncedForm, errors=(202, *_CONFLICT),
    ),
    _control(
        "POST", f"{_APPLICATION}/holds", WRITE, decisions.hold_application,
        "Hold it, or one of its objects", body=gitops_v1.HoldRequestForm,
        response=gitops_v1.HoldForm, status=201, errors=_CONFLICT,
    ),
    _control(
        "DELETE", f"{_APPLICATION}/holds", WRITE, decisions.release_application, "End its holds",
        response=gitops_v1.HoldListForm, errors=_CONFLICT,
        query=(
            _query("object", "Only those of this KIND/NAMESPACE/NAME."),
            _query("id", "Only this one."),
        ),
    ),
    _control(
        "GET", f"{_GITOPS}/holds", READ, gitops.list_holds, "List holds",
        response=gitops_v1.HoldListForm,
    ),
    _control(
        "GET", f"{_GITOPS}/plans/{{id}}", READ, plans.get_plan, "Get a plan, also a decided one",
        response=gitops_v1.ReviewPlanForm, errors=(404,),
    ),
    _control(
        "POST", f"{_GITOPS}/plans/{{id}}/approve", APPROVE, decisions.approve_plan,
        "Agree to a plan that waits", body=gitops_v1.ApproveForm,
        response=gitops_v1.ReviewPlanForm, errors=_CONFLICT,
    ),
    _control(
        "POST", f"{_GITOPS}/plans/{{id}}/reject", APPROVE, decisions.reject_plan,
        "Say no to a plan that waits", body=gitops_v1.RejectForm,
        response=gitops_v1.ReviewPlanForm, errors=_CONFLICT,
    ),
    _control(
        "GET", f"{_GITOPS}/drifts", READ, drifts.list_application_drifts,
        "List drifts of applications", response=gitops_v1.DriftPageForm,
        errors=_CONFLICT,
        query=(
            _query("state", "open, all, or one state such as awaiting-approval"),
            _ONLY,
            _query("type", "Only this kind of drift."),
            _query("namespace", "Only objects of this namespace."),
            _query("q", "Words in object, application, path, writer, note or id; all must match."),
            _query("waiting_for", "me: only what the caller may approve now."),
            *_OF_EVERY_DRIFT,
        ),
    ),
    _control(
        "GET", _DRIFT, READ, drifts.get_application_drift, "Get one drift, open or ended",
        response=gitops_v1.ReviewDriftForm, errors=(404,),
    ),
    _control(
        "POST", f"{_DRIFT}/approve", APPROVE, decisions.approve_drift, "Approve exactly its plan",
        body=gitops_v1.ApproveForm, response=gitops_v1.ReviewDriftForm, errors=_CONFLICT,
    ),
    _control(
        "POST", f"{_DRIFT}/reject", APPROVE, decisions.reject_drift, "Let the live side stay",
        body=gitops_v1.RejectDriftForm, response=gitops_v1.ReviewDriftForm, errors=_CONFLICT,
    ),
    _control(
        "POST", f"{_DRIFT}/snooze", APPROVE, decisions.snooze_drift, "Be asked again later",
        body=gitops_v1.SnoozeForm, response=gitops_v1.ReviewDriftForm, errors=_CONFLICT,
    ),
    _control(
        "POST", f"{_DRIFT}/codify", WRITE, decisions.codify_drift, "Propose the live value to Git",
        response=gitops_v1.ReviewDriftForm, errors=_CONFLICT,
        query=(_query("digest", "Of the drift as it was read: refused where it is another."),),
    ),
    _control(
        "POST", f"{_DRIFT}/revert", WRITE, decisions.revert_drift, "Put the declared value back",
        body=gitops_v1.RevertForm, response=gitops_v1.ReviewDriftForm, errors=_CONFLICT,
    ),
    _control(
        "POST", f"{_DRIFT}/ignore", WRITE, decisions.ignore_drift, "Hide it for a while",
        body=gitops_v1.IgnoreForm, response=gitops_v1.IgnoredListForm, errors=_CONFLICT,
    ),
    _control(
        "GET", f"{_GITOPS}/history", READ, gitops.list_journal, "List lines of the journal",
        response=gitops_v1.JournalForm, errors=_CONFLICT,
        query=(
            _ONLY,
            _query("subject", "Only what is about this drift, plan or hold."),
            _query("since", "A time such as 2026-11-20T18:00:00Z."),
            _query("before", "The `next` of the page before.", type=int),
            _LIMIT,
        ),
    ),
    _control(
        "GET", f"{_GITOPS}/export", READ, gitops.export_history, "Give all drifts, or the journal",
        media=gitops.JSON_LINES, streams=True, errors=_CONFLICT,
        query=(_ONLY, _query("what", "drifts or journal")),
    ),
    *_GITOPS_PAGE_ROUTES,
    *TOKEN_ROUTES,
    *PEOPLE_ROUTES,
    ApiRoute(
        method="POST", path="/hooks/{provider}", credential=RouteCredential.OPEN,
        handler=gitops.receive_webhook, summary="Take a webhook of a forge", status=202,
        errors=(200, 400, 401, 404, 408, 413, 415, 429),
    ),
    *PROBE_ROUTES,
    *PAGE_ROUTES,
)  # fmt: skip
