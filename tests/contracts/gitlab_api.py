"""Recorded shapes of GitLab's REST API (v4), served from memory.

NOT GitLab: only the requests that merge requests need, in the documented shapes and with the
documented statuses and messages, written down from GitLab's reference. Nothing here checks what
the real one would check beside that.
"""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web
from tests.contracts.forge_memory import (
    BOT,
    OWN,
    AlreadyOpen,
    ForgeMemory,
    StoredPull,
    commit_of,
    page_of,
)

ROOT = "/api/v4"
_DRAFT = re.compile(r"(?i)^(?:draft:|\[draft\]|\(draft\))")
_COMMAND = re.compile(r"(?m)^/(?:close|merge|approve|label)\b")


class CommandCarriedOut(AssertionError):
    """A text held a line that the real GitLab would have obeyed."""


def application(memory: ForgeMemory) -> web.Application:
    """Give the API of one project."""
    app = web.Application(middlewares=[_authenticated(memory)])
    api = _Api(memory)
    # The project's path arrives as one step, with its slash encoded.
    own = ROOT + "/projects/{project}/merge_requests"
    app.add_routes(
        [
            web.get(own, api.list_merges),
            web.post(own, api.create_merge),
            web.get(own + "/{iid}", api.get_merge),
            web.put(own + "/{iid}", api.edit_merge),
            web.get(own + "/{iid}/notes", api.list_notes),
            web.post(own + "/{iid}/notes", api.create_note),
        ]
    )
    return app


def refusal(status: int, message: Any) -> web.Response:
    """Answer as GitLab refuses. Any: a text, a list of them, or lists by field."""
    return web.json_response({"message": message}, status=status)


class _Api:
    def __init__(self, memory: ForgeMemory) -> None:
        self._memory = memory

    async def list_merges(self, request: web.Request) -> web.Response:
        self._check_project(request)
        query = dict(request.query)
        wanted = query.get("state", "all")
        found = [
            self._shape(each)
            for each in self._memory.listed(query.get("source_branch", ""))
            if wanted in ("all", _state(each))
        ]
        part, headers = page_of(found, query, str(request.url.with_query(None)))
        return web.json_response(part, headers=headers)

    async def create_merge(self, request: web.Request) -> web.Response:
        self._check_project(request)
        body = await request.json()
        _obey(body["description"])
        if body["source_branch"] not in self._memory.branches:
            return refusal(400, {"base": ["source_branch does not exist"]})
        try:
            made = self._memory.open(
                branch=body["source_branch"],
                base=body["target_branch"],
                title=body["title"],
                body=body["description"],
                draft=bool(_DRAFT.match(body["title"])),
            )
        except AlreadyOpen:
            number = self._memory.listed(body["source_branch"])[0].number
            text = f"Another open merge request already exists for this source branch: !{number}"
            return refusal(409, [text])
        return web.json_response(self._shape(made), status=201)

    async def get_merge(self, request: web.Request) -> web.Response:
        merge = self._merge(request)
        answer = web.json_response(self._shape(merge))
        merge.looked_at += 1
        return answer

    async def edit_merge(self, request: web.Request) -> web.Response:
        merge, body = self._merge(request), await request.json()
        _obey(body.get("description", ""))
        merge.title = body.get("title", merge.title)
        merge.draft = bool(_DRAFT.match(merge.title))
        merge.body = body.get("description", merge.body)
        new = [name for name in body.get("add_labels", "").split(",") if name]
        merge.labels += [name for name in new if name not in merge.labels]
        if body.get("state_event") == "close":
            if merge.state != "open":
                return refusal(400, {"state": ["cannot be closed"]})
            self._memory.end(merge.number, "closed", BOT)
        return web.json_response(self._shape(merge))

    async def list_notes(self, request: web.Request) -> web.Response:
        said: list[dict[str, object]] = [
            {"id": number, "body": text, "system": False, "author": {"username": BOT}}
            for number, text in enumerate(self._merge(request).comments, 1)
        ]
        said.append({"id": 0, "body": "changed the description", "system": True, "author": {}})
        part, headers = page_of(said[::-1], dict(request.query), str(request.url.with_query(None)))
        return web.json_response(part, headers=headers)

    async def create_note(self, request: web.Request) -> web.Response:
        text = (await request.json())["body"]
        _obey(text)
        self._merge(request).comments.append(text)
        return web.json_response({"id": 1, "body": text, "system": False}, status=201)

    def _check_project(self, request: web.Request) -> None:
        project = request.match_info["project"]
        if project != f"{self._memory.owner}/{self._memory.name}":
            raise web.HTTPNotFound(
                text='{"message": "404 Project Not Found"}', content_type="application/json"
            )

    def _merge(self, request: web.Request) -> StoredPull:
        self._check_project(request)
        found = self._memory.pulls.get(int(request.match_info["iid"]))
        if found is None:
            raise web.HTTPNotFound(
                text='{"message": "404 Not found"}', content_type="application/json"
            )
        return found

    def _shape(self, merge: StoredPull) -> dict[str, object]:
        looked = merge.looked_at > 0
        status = "conflict" if merge.conflicts else "mergeable"
        if merge.state != "open":
            status = "not_open"
        elif merge.draft and not merge.conflicts:
            status = "draft_status"
        ended = {"id": 7, "username": merge.closed_by, "name": "Somebody"}
        return {
            "id": merge.number + 1000,
            "iid": merge.number,
            "project_id": OWN,
            "web_url": f"https://gitlab.com/{self._memory.owner}/{self._memory.name}"
            f"/-/merge_requests/{merge.number}",
            "state": _state(merge),
            "title": merge.title,
            "description": merge.body or None,
            "draft": merge.draft,
            "work_in_progress": merge.draft,
            "source_branch": merge.branch,
            "target_branch": merge.base,
            "source_project_id": merge.head_repository,
            "target_project_id": OWN,
            "sha": commit_of(merge.branch),
            "labels": merge.labels,
            "has_conflicts": merge.conflicts and looked,
            "merge_status": "can_be_merged" if looked else "unchecked",
            "detailed_merge_status": status if looked else "unchecked",
            "closed_by": ended if merge.state == "closed" else None,
            "merge_user": ended if merge.state == "merged" else None,
            "merged_by": ended if merge.state == "merged" else None,
            "author": {"id": 1, "username": BOT},
        }


def _state(merge: StoredPull) -> str:
    return "opened" if merge.state == "open" else merge.state


def _obey(text: str) -> None:
    if _COMMAND.search(text):
        raise CommandCarriedOut(text)


def _authenticated(memory: ForgeMemory) -> Any:  # Any: aiohttp's own type for it
    @web.middleware
    async def check(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {memory.token}":
            return refusal(401, "401 Unauthorized")
        answer: web.StreamResponse = await handler(request)
        return answer

    return check
