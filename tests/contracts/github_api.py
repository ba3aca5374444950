"""Recorded shapes of GitHub's REST API (version 2022-11-28), served from memory.

NOT GitHub: only the requests that pull requests need, in the documented shapes and with the
documented statuses and messages, written down from GitHub's reference. Nothing here checks what
the real one would check beside that. Served below `/api/v3`, as Enterprise Server is.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web
from tests.contracts.forge_memory import (
    BOT,
    FORK,
    OWN,
    AlreadyOpen,
    ForgeMemory,
    StoredPull,
    commit_of,
    page_of,
)

ROOT = "/api/v3"
DOCUMENTED = "https://docs.github.com/rest/pulls/pulls#create-a-pull-request"


def application(memory: ForgeMemory) -> web.Application:
    """Give the API of one repository."""
    app = web.Application(middlewares=[_authenticated(memory)])
    api = _Api(memory)
    own = f"{ROOT}/repos/{memory.owner}/{memory.name}"
    app.add_routes(
        [
            web.get(f"{own}/pulls", api.list_pulls),
            web.post(f"{own}/pulls", api.create_pull),
            web.get(own + "/pulls/{number}", api.get_pull),
            web.patch(own + "/pulls/{number}", api.edit_pull),
            web.get(own + "/issues/{number}", api.get_issue),
            web.get(own + "/issues/{number}/comments", api.list_comments),
            web.post(own + "/issues/{number}/comments", api.create_comment),
            web.post(own + "/issues/{number}/labels", api.add_labels),
        ]
    )
    return app


def refusal(status: int, message: str, **more: Any) -> web.Response:
    """Answer as GitHub refuses. Any: JSON."""
    body = {"message": message, **more, "documentation_url": DOCUMENTED, "status": str(status)}
    return web.json_response(body, status=status)


class _Api:
    def __init__(self, memory: ForgeMemory) -> None:
        self._memory = memory

    async def list_pulls(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        owner, _, branch = query.get("head", "").partition(":")
        if branch and owner != self._memory.owner:
            return web.json_response([])
        state = query.get("state", "open")
        found = [
            self._shape(each)
            for each in self._memory.listed(branch)
            if state == "all" or (each.state == "open") is (state == "open")
        ]
        part, headers = page_of(found, query, str(request.url.with_query(None)))
        return web.json_response(part, headers=headers)

    async def create_pull(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["head"] not in self._memory.branches:
            error = {"resource": "PullRequest", "field": "head", "code": "invalid"}
            return refusal(422, "Validation Failed", errors=[error])
        if len(body["title"]) > 256 or len(body["body"]) > 65536:
            text = "body is too long (maximum is 65536 characters)"
            error = {"resource": "Issue", "code": "custom", "field": "body", "message": text}
            return refusal(422, "Validation Failed", errors=[error])
        if body.get("draft") and not self._memory.drafts:
            return refusal(422, "Draft pull requests are not supported in this repository.")
        try:
            made = self._memory.open(
                branch=body["head"],
                base=body["base"],
                title=body["title"],
                body=body["body"],
                draft=bool(body.get("draft")),
            )
        except AlreadyOpen:
            text = f"A pull request already exists for {self._memory.owner}:{body['head']}."
            error = {"resource": "PullRequest", "code": "custom", "message": text}
            return refusal(422, "Validation Failed", errors=[error])
        return web.json_response(self._whole(made), status=201)

    async def get_pull(self, request: web.Request) -> web.Response:
        pull = self._pull(request)
        answer = web.json_response(self._whole(pull))
        pull.looked_at += 1
        return answer

    async def edit_pull(self, request: web.Request) -> web.Response:
        pull, body = self._pull(request), await request.json()
        pull.title = body.get("title", pull.title)
        pull.body = body.get("body", pull.body)
        if body.get("state") == "closed" and pull.state == "open":
            self._memory.end(pull.number, "closed", BOT)
        return web.json_response(self._whole(pull))

    async def get_issue(self, request: web.Request) -> web.Response:
        pull = self._pull(request)
        closer = {"login": pull.closed_by, "id": 7} if pull.state != "open" else None
        state = "open" if pull.state == "open" else "closed"
        return web.json_response(
            {"number": pull.number, "state": state, "closed_by": closer, "pull_request": {}}
        )

    async def list_comments(self, request: web.Request) -> web.Response:
        shapes: list[dict[str, object]] = [
            {"id": number, "body": text, "user": {"login": BOT}}
            for number, text in enumerate(self._pull(request).comments, 1)
        ]
        part, headers = page_of(shapes, dict(request.query), str(request.url.with_query(None)))
        return web.json_response(part, headers=headers)

    async def create_comment(self, request: web.Request) -> web.Response:
        text = (await request.json())["body"]
        self._pull(request).comments.append(text)
        return web.json_response({"id": 1, "body": text, "user": {"login": BOT}}, status=201)

    async def add_labels(self, request: web.Request) -> web.Response:
        pull = self._pull(request)
        new = (await request.json())["labels"]
        pull.labels += [name for name in new if name not in pull.labels]
        return web.json_response([_label(name) for name in pull.labels])

    def _pull(self, request: web.Request) -> StoredPull:
        found = self._memory.pulls.get(int(request.match_info["number"]))
        if found is None:
            raise web.HTTPNotFound(
                text='{"message": "Not Found", "status": "404"}', content_type="application/json"
            )
        return found

    def _shape(self, pull: StoredPull) -> dict[str, object]:
        """A pull request as lists have it."""
        home = self._repository(pull.head_repository)
        return {
            "id": pull.number + 1000,
            "number": pull.number,
            "html_url": f"https://github.com/{self._memory.owner}/{self._memory.name}"
            f"/pull/{pull.number}",
            "state": "open" if pull.state == "open" else "closed",
            "locked": False,
            "title": pull.title,
            "body": pull.body or None,
            "user": {"login": BOT, "id": 1},
            "labels": [_label(name) for name in pull.labels],
            "draft": pull.draft,
            "merged_at": "2026-11-15T10:00:00Z" if pull.state == "merged" else None,
            "closed_at": None if pull.state == "open" else "2026-11-15T10:00:00Z",
            "head": {"ref": pull.branch, "sha": commit_of(pull.branch), "repo": home},
            "base": {
                "ref": pull.base,
                "sha": commit_of(pull.base),
                "repo": self._repository(OWN),
            },
        }

    def _whole(self, pull: StoredPull) -> dict[str, object]:
        """A pull request as it is told of alone."""
        merged = pull.state == "merged"
        known = pull.looked_at > 0 and pull.state == "open"
        return {
            **self._shape(pull),
            "merged": merged,
            "mergeable": not pull.conflicts if known else None,
            "mergeable_state": ("dirty" if pull.conflicts else "clean") if known else "unknown",
            "merged_by": {"login": pull.closed_by, "id": 7} if merged else None,
            "comments": len(pull.comments),
        }

    def _repository(self, number: int | None) -> dict[str, object] | None:
        if number is None:
            return None
        owner = self._memory.owner if number != FORK else "somebody"
        return {"id": number, "full_name": f"{owner}/{self._memory.name}", "fork": number == FORK}


def _label(name: str) -> dict[str, object]:
    return {"id": 1, "name": name, "color": "ededed", "default": False}


def _authenticated(memory: ForgeMemory) -> Any:  # Any: aiohttp's own type for it
    @web.middleware
    async def check(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {memory.token}":
            return refusal(401, "Bad credentials")
        if "User-Agent" not in request.headers:
            return refusal(403, "Request forbidden by administrative rules.")
        answer: web.StreamResponse = await handler(request)
        return answer

    return check
