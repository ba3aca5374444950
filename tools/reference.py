"""Writes the reference pages that come from the code: routes and errors.

python tools/reference.py          # write them
python tools/reference.py --check  # exit 1 when one is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.apps.server.route_table import EMBEDDED_ROUTES, GITOPS_ROUTES
from holdfast.apps.server.routes import ApiRoute, RouteCredential
from holdfast.core import errors
from holdfast.core.errors import HoldfastError

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "<!-- Made by tools/reference.py; do not edit. -->\n"


def main(arguments: list[str]) -> int:
    """Write the pages, or say which would change."""
    stale = []
    for name, text in (("http.md", http()), ("errors.md", error_codes())):
        page = PAGES / name
        if not page.exists() or page.read_text() != text:
            stale.append(name)
            if "--check" not in arguments:
                page.write_text(text)
    if stale and "--check" in arguments:
        print(f"out of date: {', '.join(stale)}; run python tools/reference.py", file=sys.stderr)
        return 1
    return 0


def http() -> str:
    """The tables of routes."""
    shared = {(route.method, route.path) for route in EMBEDDED_ROUTES}
    gitops = [route for route in GITOPS_ROUTES if (route.method, route.path) not in shared]
    return f"""{MADE}
# HTTP API

`/openapi.json` on a running server describes every body and answer.

| method | path | credential | what |
|---|---|---|---|
{_rows(EMBEDDED_ROUTES)}

A control token (`ik_sdk_…`) belongs to one project and has some of the scopes `read`, `write`, `approve` and `admin`: `write` and `approve` include `read`, `admin` includes all.
A data key (`ik_live_…`) belongs to one workload, or opens every workload of its project.
Both are sent as `Authorization: Bearer …` and in no other form.
Where a control token is asked for, a browser may bring the cookie of a session instead (see [sign in](../how-to/sign-in.md)). It counts where there is no `Authorization` header, and only for what our own page asks: a request that says by `Sec-Fetch-Site` or `Origin` that it comes from elsewhere is refused with `cross_site`, and one that changes something needs the header `Holdfast-CSRF: 1` too.
`GET …/drift` answers `{{"drifts": […], "next": "…", "total": n}}`, newest first, and takes `state` (`open` or `all`), `slug`, and `type`, `q`, `cause`, `writer`, `group`, `limit` and `cursor` as [the lists of applications](http-applications.md#lists-of-drifts) do; with `group=cause` each group names its `workloads`. Every drift has `links`, with its `page` where the base URL is set.
`GET …/drift/{{id}}` says in `revert` whether the caller may have the declared values put back, else `why_not`, and the `plan` to name for it; what it costs is the drift's `cost`. `POST …/drift/{{id}}/revert` with `{{"plan": "…"}}` writes them; who declared the workload stays who they were, and the history has who put it back. Where the workload or its declaration is another by now it is refused with 409 `stale_plan`, where the drift ended, or is no field that could be written, with 409 `conflict`. A server over a cluster does not have it.
A person with rights in several projects, asking by a workload's id at a server over a cluster, names the project with `Holdfast-Project`.

`GET /api/openid/{{id}}/callback` ends at the page: at `next`, or at `/ui/login#error=CODE` with `login_expired`, `login_refused`, `identity_refused`, `issuer_unavailable` or `no_access`.

## A GitOps controller

Where `holdfast gitops` answers, these routes take the place of those about workloads; tokens, probes, figures and the description stay.
An application is named in a path by its name, or as `namespace.name` where that is not enough.

| method | path | credential | what |
|---|---|---|---|
{_rows(gitops)}

What their lists, events and previews mean is in [HTTP API of applications](http-applications.md).
A decision is one write to the ledger and takes effect with the next pass.
An approval names the whole digest of the plan that was reviewed; the same approval given twice has one effect and the same answer.
Who decided is recorded as `NAME (ID)`, refused decisions too: the name and id of the token, or the name of the person and `issuer|subject`, or the token's id and the person's where a person made the token.
`/hooks/{{provider}}` is checked by the forge's signature, takes 1 MiB at most, and only makes a repository be asked sooner.

## Guards

| header | on | means |
|---|---|---|
| `ETag`, `If-None-Match` | reading one workload | 304 when it has not changed |
| `If-Match` | `PATCH`, `DELETE` of a workload | 412 when somebody wrote it since |
| `Idempotency-Key` | `POST …/steps` (required) | the same key and body answer as the first time, without a second effect; 422 with another body |
| `ETag`, `If-None-Match` | a file of the page | 304 when it has not changed |
| `Last-Event-ID` | `GET …/events` | go on behind that event; one `reset` where what was missed is not known any more |
| `Host` | anything but probes | 421 unless it is the server's own name, where that is known |
| `Origin` | the API and the data plane | answered with CORS headers where `--cors-origin` lists it |
| `X-Request-Id` | anything | echoed, and in every log line |

## Errors

One shape: `{{"error": "<code>", "message": "…", "request_id": "…"}}`, with `problems` for refused input and `plan` for drift.
Under `/endpoint/` and `/p/` the same stands where clients of OpenAI's API look for it: `{{"error": {{"message": "…", "type": "…", "code": "<code>", "param": null}}, "message": "…", "request_id": "…"}}`. An error of the workload itself passes as it is; it carries the header `X-Holdfast-Replica`, and ours do not.
The message says what happened, what was or was not changed, and what to do next.

| status | codes |
|---|---|
| 400 | `bad_request`, `invalid` |
| 401 | `unauthenticated` |
| 403 | `wrong_credential_type`, `project_scope_mismatch`, `scope_insufficient`; `cross_site`: a cookie on what is not our page's request; `insecure_transport`: a session needs TLS |
| 404 | `not_found`: absent, or another project's; `model_not_found`: no workload of that slug under `/p/` |
| 409 | `conflict`: another writer was first; `stale_plan`, `drift`, `already_exists`, `slug_taken`, `ambiguous`, `invalid_state`, `refused` |
| 412 | `precondition_failed` |
| 413, 414, 415, 431 | too large, or of a form that is not accepted |
| 421 | `misdirected_request`: sent to a Host that is not the server's own |
| 422 | `idempotency_key_reused` |
| 429 | too many requests; `Retry-After` says when to ask again |
| 503 | not ready, or busy, and nothing was begun; `Retry-After` says when to ask again |
| 504 | `outcome_unknown`: a write was begun, and whether it took effect, or how far, is unknown: look at what is there before you repeat it |
| 507 | the disk is full |
"""


def error_codes() -> str:
    """The table of errors."""
    found = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, HoldfastError)
    ]
    rows = [
        f"| `{each.code}` | `{each.__name__}` | {each.summary} | {each.retry.value} "
        f"| {(each.__doc__ or '').splitlines()[0]} |"
        for each in found
    ]
    return f"""{MADE}
# Errors

Every error of the SDK is a `HoldfastError`. `code` is stable and safe to match on; the text is not.
Its message says what happened, what was or was not changed (`error.changed`), and what to do next (`error.hint`).

| code | class | summary | would trying again help? | when |
|---|---|---|---|---|
{chr(10).join(rows)}

`DriftWarning` is a warning, not an error: `on_drift=WARN` shows it.

| exit code of `holdfast` | means |
|---|---|
| 0 | clean |
| 1 | an error |
| 2 | drift or changes, with `--exit-code` |
| 3 | refused by policy, or an approval is missing |
| 4 | authentication or permission |
| 5 | the plan is stale, or another writer was first |
| 64 | the command was typed wrongly |
| 124 | timed out waiting |
| 130 | interrupted |
"""


def _rows(routes: Sequence[ApiRoute]) -> str:
    return "\n".join(
        f"| `{route.method}` | `{route.path}` | {_who(route.credential, route.scope)} "
        f"| {route.summary} |"
        for route in routes
    )


def _who(credential: RouteCredential, scope: object) -> str:
    if credential is RouteCredential.OPEN:
        return "none"
    if credential is RouteCredential.DATA:
        return "data key"
    if scope is None:
        return "control"
    return f"control, `{getattr(scope, 'value', scope)}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
