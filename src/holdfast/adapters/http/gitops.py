"""A GitOps controller behind its HTTP API: what the command line asks and decides.

The forms are those that the server writes. A refusal is given in the controller's own words, for
it knows what was not changed and what to do next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from holdfast.adapters.http.client import HttpClient
from holdfast.adapters.http.responses import (
    Response,
    decode_response,
    printable,
    read_lines,
    response_error,
)
from holdfast.adapters.http.transports import deadline_in
from holdfast.core.errors import NOTHING_CHANGED, HoldfastError, StalePlan
from holdfast.core.gitops.application import HoldEnd
from holdfast.wire.decode import prepare_type
from holdfast.wire.gitops_http_v1 import (
    ApplicationDriftListForm,
    ApproveForm,
    DiffForm,
    FollowedForm,
    FollowedListForm,
    HoldForm,
    HoldListForm,
    HoldRequestForm,
    IgnoredForm,
    IgnoredListForm,
    IgnoreForm,
    JournalForm,
    ObjectListForm,
    ObjectStatusForm,
    RejectDriftForm,
    RejectForm,
    RevertForm,
    SnoozeForm,
    SyncedForm,
    SyncForm,
    SyncPlanForm,
    Via,
    WaitingPlanForm,
)
from holdfast.wire.gitops_v1 import ApplicationDriftForm

REQUEST_TIMEOUT = 60.0
"""Seconds for one response: observing a large application takes a while."""
JSON_LINES = "application/jsonl"
DRIFT_PAGE = 1_000
_REFUSED_STATUSES = frozenset({400, 403, 404, 409})
T = TypeVar("T")


class _Refusal(msgspec.Struct):
    error: str = ""
    message: str = ""


class RemoteApplications:
    """The applications of one project. Its coroutines suspend only if the transport does."""

    def __init__(
        self, client: HttpClient, project: str, *, request_timeout: float | None = None
    ) -> None:
        self._client = client
        self._request_timeout = request_timeout or REQUEST_TIMEOUT
        self._base = f"/api/projects/{quote(project, safe='')}/gitops"

    async def follows(self) -> list[FollowedForm] | None:
        """Return every application; None where no controller runs beside the server."""
        response = await self._request("GET", "/applications")
        if response.status == 404:  # another program on that address says it in its own way
            return None
        return _decode_or_refuse(response, FollowedListForm).applications

    async def application(self, name: str) -> FollowedForm:
        """Return one by `name` or `namespace/name`."""
        return await self._get(_application_path(name), FollowedForm)

    async def objects(self, name: str) -> list[ObjectStatusForm]:
        """Return its objects as they were seen last."""
        return (await self._get(f"{_application_path(name)}/objects", ObjectListForm)).objects

    async def diff(self, name: str) -> DiffForm:
        """Have everything observed and compared now."""
        return await self._get(f"{_application_path(name)}/diff", DiffForm)

    async def plan(self, name: str, *, prune: bool) -> SyncPlanForm:
        """Ask what a sync would do."""
        query = {"prune": "true"} if prune else {}
        return await self._get(f"{_application_path(name)}/plan", SyncPlanForm, query)

    async def sync(self, name: str, *, prune: bool, force: bool, wait: int) -> SyncedForm:
        """Have Git applied, waiting up to so many seconds for the outcome."""
        form = SyncForm(prune=prune, force=force, wait=wait)
        return await self._post(
            f"{_application_path(name)}/sync", form, SyncedForm, request_timeout=wait
        )

    async def drifts(
        self,
        *,
        state: str = "open",
        application: str = "",
        type: str = "",
        namespace: str = "",
        cause: str = "",
        writer: str = "",
        words: str = "",
        limit: int | None = None,
    ) -> list[ApplicationDriftForm]:
        """Return drifts, newest first: all of them, page by page, or the first few."""
        query = {
            "state": state,
            "application": _application_label(application),
            "type": type,
            "namespace": namespace,
            "cause": cause,
            "writer": writer,
            "q": words,
            "limit": str(DRIFT_PAGE if limit is None else limit),
        }
        found: list[ApplicationDriftForm] = []
        while True:
            page = await self._get("/drifts", ApplicationDriftListForm, query)
            found += page.drifts
            if limit is not None or not page.next or not page.drifts:
                return found
            query["cursor"] = page.next

    async def drift(self, id: str) -> ApplicationDriftForm:
        """Return one drift, open or ended."""
        return await self._get(f"/drifts/{quote(id, safe='')}", ApplicationDriftForm)

    async def waiting_plan(self, id: str) -> WaitingPlanForm:
        """Return a plan that waits for a person."""
        return await self._get(f"/plans/{quote(id, safe='')}", WaitingPlanForm)

    async def approve(self, id: str, *, plan: str, comment: str) -> ApplicationDriftForm:
        """Approve exactly this plan. Raises StalePlan when it is another by now."""
        form = ApproveForm(plan=plan, comment=comment)
        return await self._decide(id, "approve", form)

    async def approve_plan(self, id: str, *, plan: str, comment: str) -> WaitingPlanForm:
        """Agree to a plan that a guard parked."""
        form = ApproveForm(plan=plan, comment=comment)
        return await self._post(f"/plans/{quote(id, safe='')}/approve", form, WaitingPlanForm)

    async def reject(self, id: str, *, comment: str) -> ApplicationDriftForm:
        """Let the live side stay."""
        return await self._decide(id, "reject", RejectDriftForm(comment=comment))

    async def reject_plan(self, id: str, *, comment: str) -> WaitingPlanForm:
        """Say no to a plan that a guard parked."""
        form = RejectForm(comment=comment)
        return await self._post(f"/plans/{quote(id, safe='')}/reject", form, WaitingPlanForm)

    async def snooze(self, id: str, *, seconds: int, comment: str) -> ApplicationDriftForm:
        """Be asked again later."""
        return await self._decide(id, "snooze", SnoozeForm(seconds=seconds, comment=comment))

    async def codify(self, id: str) -> ApplicationDriftForm:
        """Propose the live value to Git."""
        return await self._decide(id, "codify", None)

    async def revert(self, id: str, *, via: Via, comment: str) -> ApplicationDriftForm:
        """Have the declared value put back."""
        return await self._decide(id, "revert", RevertForm(via=via, comment=comment))

    async def ignore(
        self, id: str, *, seconds: int, reason: str, path: str, manager: str
    ) -> list[IgnoredForm]:
        """Hide a drift, or one field of it, for a while."""
        form = IgnoreForm(seconds=seconds, reason=reason, path=path, manager=manager)
        place = f"/drifts/{quote(id, safe='')}/ignore"
        return (await self._post(place, form, IgnoredListForm)).rules

    async def pause(
        self, name: str, *, object: str, seconds: int, reason: str, end: HoldEnd | None
    ) -> HoldForm:
        """Hold an application, or one object of it."""
        form = HoldRequestForm(reason=reason, object=object, seconds=seconds, end=end)
        return await self._post(f"{_application_path(name)}/holds", form, HoldForm)

    async def resume(self, name: str, *, object: str) -> list[HoldForm]:
        """End holds before their time."""
        query = _query_string({"object": object})
        response = await self._request("DELETE", f"{_application_path(name)}/holds{query}")
        return _decode_or_refuse(response, HoldListForm).holds

    async def holds(self) -> list[HoldForm]:
        """Return every hold of the project."""
        return (await self._get("/holds", HoldListForm)).holds

    async def history(
        self,
        *,
        application: str = "",
        subject: str = "",
        since: datetime | None = None,
        before: int = 0,
        limit: int = 100,
    ) -> JournalForm:
        """Return one page of the journal, newest first."""
        query = {
            "application": _application_label(application),
            "subject": subject,
            "since": since.isoformat() if since else "",
            "before": str(before) if before else "",
            "limit": str(limit),
        }
        return await self._get("/history", JournalForm, query)

    async def export(self, *, what: str, application: str = "") -> AsyncIterator[str]:
        """Read every line of an export as it comes."""
        query = _query_string({"what": what, "application": _application_label(application)})
        path = f"{self._base}/export{query}"
        deadline = deadline_in(None, self._client.clock)
        async with (
            self._client.stream(
                "GET", path, deadline=deadline, accept=JSON_LINES, idle=REQUEST_TIMEOUT
            ) as chunks,
            aclosing(read_lines(chunks)) as lines,
        ):
            async for line in lines:
                yield line

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def _decide(
        self, id: str, verb: str, form: msgspec.Struct | None
    ) -> ApplicationDriftForm:
        return await self._post(f"/drifts/{quote(id, safe='')}/{verb}", form, ApplicationDriftForm)

    async def _get(self, path: str, form: type[T], query: Mapping[str, str] | None = None) -> T:
        return _decode_or_refuse(
            await self._request("GET", path + _query_string(query or {})), form
        )

    async def _post(
        self, path: str, body: msgspec.Struct | None, form: type[T], *, request_timeout: float = 0.0
    ) -> T:
        return _decode_or_refuse(
            await self._request("POST", path, body, request_timeout=request_timeout), form
        )

    async def _request(
        self,
        method: str,
        path: str,
        body: msgspec.Struct | None = None,
        *,
        request_timeout: float = 0.0,
    ) -> Response:
        return await self._client.request(
            method,
            self._base + path,
            body=None if body is None else msgspec.json.encode(body),
            deadline=deadline_in(self._request_timeout + request_timeout, self._client.clock),
        )


def _application_path(name: str) -> str:
    return f"/applications/{quote(_application_label(name), safe='')}"


def _application_label(name: str) -> str:
    """Write `namespace/name` as it fits into a path; one from a file has no namespace."""
    return name.replace("/", ".").removeprefix(".")


def _query_string(given: Mapping[str, str]) -> str:
    kept = {name: value for name, value in given.items() if value}
    return f"?{urlencode(kept)}" if kept else ""


def _decode_or_refuse(response: Response, form: type[T]) -> T:
    if response.status in _REFUSED_STATUSES:
        raise _refusal_error(response)
    return decode_response(response, form)


def _refusal_error(response: Response) -> HoldfastError:
    """Give a refusal in the controller's own words: what happened, and what to do next."""
    error, said = response_error(response), _refusal(response)
    if said.error == "stale_plan":
        error = StalePlan(error.happened, changed=error.changed)
    before, found, after = said.message.partition(NOTHING_CHANGED)
    if found:
        error.happened = printable(before.removeprefix(f"{error.summary}.").strip())
        error.hint = printable(after.strip()) or error.hint
    return error


def _refusal(response: Response) -> _Refusal:
    try:
        return msgspec.json.decode(response.body, type=prepare_type(_Refusal))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Refusal()
