"""People who review drifts in the page: what they open, what the world does meanwhile.

review = Review(served, served.worlds[0], screens)
review.drift("a")
review.read("a").press("a")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2
from playwright.sync_api import expect
from tests.support.browser import Screen, Screens
from tests.support.gitops_server import PROJECT, ServedApplications
from tests.support.gitops_world import GitopsWorld
from tests.support.server import bearer

INBOX = f"/ui/p/{PROJECT}/inbox"
REVIEWER = ("read", "write", "approve")


@dataclass
class Review:
    """A reviewer in a browser, before one application of a server."""

    served: ServedApplications
    world: GitopsWorld
    screens: Screens

    @property
    def url(self) -> str:
        return self.served.url

    def token(self, *scopes: str, name: str = "maria") -> str:
        return self.served.server.token(PROJECT, scopes or REVIEWER, name=name)

    def edit(self, name: str, value: str = "9", manager: str = "kubectl-edit") -> None:
        self.served.call(lambda: self.world.edit(name, value, manager=manager))

    def drift(self, *names: str, value: str = "9") -> None:
        """Change ConfigMaps past Git, and let the controller see it."""
        for name in names:
            self.edit(name, value)
        self.served.reconcile(self.world)

    def heal(self) -> None:
        self.served.reconcile(self.world)

    def data(self, name: str) -> Any:
        return self.served.run(self.world.data(name))

    def api(self, path: str, **query: str) -> Any:
        answer = httpx2.get(
            f"{self.url}/api/projects/{PROJECT}/gitops{path}",
            params=query,
            headers=bearer(self.token()),
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def drift_of(self, name: str) -> Any:
        """The newest drift of a ConfigMap, open or ended."""
        found = [
            each
            for each in self.api("/drifts", state="all")["drifts"]
            if each["object"]["name"] == name
        ]
        return found[0]

    def open(self, *scopes: str, name: str = "maria", path: str = INBOX) -> Screen:
        return self.screens.open(self.url, self.token(*scopes, name=name), path=path)

    def read(self, name: str, *scopes: str, by: str = "maria") -> Screen:
        """Open the drift of a ConfigMap."""
        path = f"/ui/p/{PROJECT}/drifts/{self.drift_of(name)['id']}"
        screen = self.open(*scopes, name=by, path=path)
        expect(screen.title).to_contain_text(f"chat/{name} ")
        expect(screen.page.locator("table.diff").first).to_be_visible()
        expect(screen.page.locator(".choices")).not_to_be_empty()
        return screen

    def read_unheard(self, name: str, *, by: str = "maria") -> Screen:
        """Open the drift of a ConfigMap in a page that hears of nothing that happens."""
        screen = self.open(name=by)
        screen.tolerated += ["409", "ERR_FAILED"]
        screen.page.route("**/gitops/events*", lambda route: route.abort())
        screen.go(f"/ui/p/{PROJECT}/drifts/{self.drift_of(name)['id']}")
        expect(screen.page.locator(".choices button").first).to_be_visible()
        return screen
