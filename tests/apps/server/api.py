"""A few verbs over the HTTP API, so that tests read as what they ask."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import httpx2
from tests.support.processes import ECHO_SERVER
from tests.support.server import EVERYTHING, RunningServer, bearer

ECHO = f"{sys.executable} {ECHO_SERVER} --port ${{PORT}}"


def body(slug: str = "bot", **more: Any) -> dict[str, Any]:
    """The body of a create."""
    return {"name": slug, "slug": slug, "backend": "custom", "model_name": "tiny", **more}


def spec(slug: str = "bot", **more: Any) -> dict[str, Any]:
    """A declaration in our own words."""
    return {"name": slug, "slug": slug, "backend": "custom", "model": "tiny", **more}


@dataclass(kw_only=True)
class Api:
    server: RunningServer
    http: httpx2.Client
    project: str

    def path(self, rest: str) -> str:
        """Give a path within the project."""
        return f"/api/projects/{self.project}/{rest}"

    def ask(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        token: str | None = None,
        agent: str = "tests/1",
        name: str = "test",
        headers: dict[str, str] | None = None,
    ) -> httpx2.Response:
        """Send a request; paths without a slash in front are the project's."""
        token = token or self.server.token(self.project, EVERYTHING, name=name)
        path = path if path.startswith("/") else self.path(path)
        return self.http.request(
            method,
            path,
            json=json,
            headers={**bearer(token), "User-Agent": agent, **(headers or {})},
        )

    def create(self, slug: str = "bot", **more: Any) -> dict[str, Any]:
        """Create a workload."""
        answer = self.ask("POST", "workloads", json=body(slug, **more))
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def get(self, slug: str = "bot") -> dict[str, Any]:
        """Read a workload."""
        answer = self.ask("GET", f"workloads/{slug}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def step(self, action: str, slug: str = "bot", **more: Any) -> dict[str, Any]:
        """The body of a step."""
        return {"project": self.project, "slug": slug, "action": action, **more}
