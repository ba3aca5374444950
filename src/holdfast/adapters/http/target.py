"""A remote control plane as a target: one GET to observe, one POST to perform a step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from urllib.parse import quote, urlencode

import msgspec

from holdfast.adapters.http.client import HttpClient
from holdfast.adapters.http.responses import (
    Response,
    decode_response,
    is_absent,
    read_events,
    read_lines,
)
from holdfast.adapters.http.transports import Deadline, deadline_in
from holdfast.core.cost import Cost
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    ApiError,
    HoldfastError,
    Problem,
)
from holdfast.core.ledger import DriftRecord, HistoryEntry
from holdfast.core.live import Absent, Live, Phase, Progress
from holdfast.core.names import WorkloadId
from holdfast.core.plan import Action, Step
from holdfast.core.single_machine import unsupported_fields
from holdfast.core.workload import Desired
from holdfast.wire.decode import prepare_type, reshape
from holdfast.wire.ledger_v1 import (
    DriftListForm,
    HistoryListForm,
    ProgressForm,
    drift_from_json,
    history_from_json,
)
from holdfast.wire.plan_v1 import StepCostForm, cost_from_json, step_to_json
from holdfast.wire.service_mapping import unsupported_on_kubernetes
from holdfast.wire.workload_v1 import WorkloadForm, workload_from_json

EMBEDDED = "embedded"
KUBERNETES = "kubernetes"
PAGE_SIZE = 500
IDLE_TIMEOUT = 90.0
"""Longest silence of a stream; servers send a comment well within it."""


class _WorkloadListForm(msgspec.Struct):
    workloads: list[WorkloadForm]


@dataclass(slots=True)
class _ServerInfo:
    """What the control plane said of itself."""

    target: str = ""


class RemoteTarget:
    """The `ControlTarget` port over HTTP. Copies have their own deadlines and share connections."""

    def __init__(
        self,
        client: HttpClient,
        *,
        deadline: Deadline | None = None,
        server: _ServerInfo | None = None,
    ) -> None:
        self._client = client
        self._deadline = deadline or deadline_in(None, client.clock)
        self._server = server or _ServerInfo()

    def __repr__(self) -> str:
        return f"RemoteTarget({self._client.base_url!r})"

    def within(self, seconds: float | None) -> RemoteTarget:
        """Return this target with a total deadline for everything asked through it."""
        deadline = deadline_in(seconds, self._client.clock)
        return RemoteTarget(self._client, deadline=deadline, server=self._server)

    def refuses(self, desired: Desired) -> Sequence[Problem]:
        """Say what the control plane's target cannot do, once it has said which it has.

        It checks for itself, too, whatever its client believes.
        """
        if self._server.target == KUBERNETES:
            return unsupported_on_kubernetes(desired.id.slug, desired.fields)
        return unsupported_fields(desired.fields) if self._server.target == EMBEDDED else ()

    async def observe(self, workload: WorkloadId) -> Live | Absent:
        """Ask for one workload by its slug."""
        response = await self._get(_workload_path(workload))
        if is_absent(response):
            return Absent(id=workload)
        return self._live(response, workload)

    async def perform(self, step: Step, *, key: str) -> Live | Absent:
        """Post one step under its key; the server guards it by what the step saw."""
        if step.action is Action.NOTHING:
            return await self.observe(step.id)
        response = await self._client.request(
            "POST",
            f"{_project_path(step.id.project)}/steps",
            body=_encode_step(step),
            key=key,
            deadline=self._deadline,
        )
        if response.status == 204 and step.action is Action.DELETE:
            return Absent(id=step.id)
        return self._live(response, step.id)

    async def cost(self, step: Step) -> Cost | None:
        """Ask the server; one of an earlier version does not know the question."""
        path = f"{_project_path(step.id.project)}/cost"
        try:
            response = await self._client.request(
                "POST", path, body=_encode_step(step), deadline=self._deadline
            )
            return cost_from_json(decode_response(response, StepCostForm).cost)
        except HoldfastError:
            return None

    async def list(self, project: str) -> Sequence[Live]:
        """Read every page."""
        found: list[Live] = []
        after = ""
        while True:
            query = {"limit": str(PAGE_SIZE), **({"after": after} if after else {})}
            response = await self._get(f"{_project_path(project)}/workloads?{urlencode(query)}")
            page = [
                workload_from_json(form)
                for form in decode_response(response, _WorkloadListForm).workloads
            ]
            if any(live.id.slug <= after or live.id.project != project for live in page):
                raise ApiError(f"{response.where} gave workloads that were not asked for.")
            found += page
            if len(page) < PAGE_SIZE:
                return sorted(found, key=lambda live: live.id)
            after = page[-1].id.slug

    async def progress(self, workload: WorkloadId) -> AsyncIterator[Progress]:
        """Follow the readiness events of one connection."""
        path = f"{_workload_path(workload)}/readiness-events"
        async with (
            self._client.stream("GET", path, deadline=self._deadline, idle=IDLE_TIMEOUT) as chunks,
            aclosing(read_events(chunks)) as events,
        ):
            async for event in events:
                if event.name == "comment":
                    continue
                try:
                    form = msgspec.json.decode(event.data, type=prepare_type(ProgressForm))
                except msgspec.DecodeError as error:
                    raise ApiError(
                        "The readiness stream had an event that cannot be read."
                    ) from error
                yield reshape(Progress, form)
                if form.phase in (Phase.READY, Phase.ERROR):
                    return

    async def changes(self, project: str) -> AsyncIterator[None]:
        """Yield once the stream is open, then whenever something in the project changed.

        An event only says that it is time to observe again; what it carries is not used.
        """
        path = f"{_project_path(project)}/events"
        async with (
            self._client.stream("GET", path, deadline=self._deadline, idle=IDLE_TIMEOUT) as chunks,
            aclosing(read_events(chunks)) as events,
        ):
            yield None
            async for event in events:
                if event.name != "comment":
                    yield None

    async def drifts(
        self, project: str, *, slug: str | None = None, include_resolved: bool = False
    ) -> Sequence[DriftRecord]:
        """Ask the ledger."""
        query = {"state": "all" if include_resolved else "open", **({"slug": slug} if slug else {})}
        found: list[DriftRecord] = []
        while True:
            response = await self._get(f"{_project_path(project)}/drift?{urlencode(query)}")
            page = decode_response(response, DriftListForm)
            found += map(drift_from_json, page.drifts)
            if not page.next or not page.drifts:
                return found
            query["cursor"] = page.next

    async def history(
        self, project: str, *, slug: str | None = None, limit: int = 100
    ) -> Sequence[HistoryEntry]:
        """Ask for audit rows."""
        query = {"limit": str(limit), **({"slug": slug} if slug else {})}
        response = await self._get(f"{_project_path(project)}/history?{urlencode(query)}")
        return [
            history_from_json(form) for form in decode_response(response, HistoryListForm).history
        ]

    async def logs(self, workload: WorkloadId, *, tail: int, follow: bool) -> AsyncIterator[str]:
        """Read log lines as they come."""
        query = urlencode({"tail": tail, "follow": "true" if follow else "false"})
        path = f"{_workload_path(workload)}/logs?{query}"
        async with (
            self._client.stream(
                "GET", path, deadline=self._deadline, accept="text/plain"
            ) as chunks,
            aclosing(read_lines(chunks)) as lines,
        ):
            async for line in lines:
                yield line

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def _get(self, path: str) -> Response:
        response = await self._client.request("GET", path, deadline=self._deadline)
        self._server.target = response.headers.get("holdfast-target", "")
        return response

    def _live(self, response: Response, workload: WorkloadId) -> Live:
        live = workload_from_json(decode_response(response, WorkloadForm))
        if live.id != workload:
            raise ApiError(
                f"{response.where} answered about workload {live.id}, and not about {workload}.",
                status=response.status,
                reason="unreadable",
                changed=NOTHING_CHANGED if response.method == "GET" else OUTCOME_UNKNOWN,
            )
        return live


def _encode_step(step: Step) -> bytes:
    """Write a step without its cost, which servers of an earlier version would refuse."""
    return msgspec.json.encode(step_to_json(replace(step, cost=None)))


def _project_path(project: str) -> str:
    return f"/api/projects/{quote(project, safe='')}"


def _workload_path(workload: WorkloadId) -> str:
    return f"{_project_path(workload.project)}/workloads/{quote(workload.slug, safe='')}"
