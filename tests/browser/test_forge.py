"""Codify to the end: a patch read in the page is the pull request on a real Gitea, and its merge.

Git, its renderer and the forge are the controller's own; the cluster is the one in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import expect
from tests.support.browser import Screens
from tests.support.gitea import GiteaRepository
from tests.support.gitops_server import serve_applications
from tests.support.gitops_world import KEY, GitopsWorld, MemorySources, route
from tests.support.review import Review

from holdfast.adapters.forge.providers import make_forge
from holdfast.adapters.git.address import parse_address
from holdfast.adapters.git.repository import GitRepositories, GitRepository
from holdfast.adapters.render.renderer import FileRenderer
from holdfast.core.gitops.application import (
    Application,
    ForgeProvider,
    PullRequestSpec,
    Remediation,
    SourceSpec,
)
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.codify import make_codifier
from holdfast.reconcile.gitops.ports import Forge, GitCredential

PROMPTS = """\
# What the support bot is told. Ask ann before you change it.
apiVersion: v1
kind: ConfigMap
metadata:
  name: prompts
  namespace: chat
data:
  model: tiny
  x: '1'  # tuned in March
  greeting: |
    Hello.
    What is it about?
"""


class ForgeSources(MemorySources):
    """What a controller reads and writes of one repository on a forge."""

    def __init__(self, world: GitopsWorld, repository: GiteaRepository, root: Path) -> None:
        super().__init__(world)
        self._gitea = repository
        self._credential = GitCredential(token=Secret(repository.owner.token))
        self.repositories = GitRepositories(root)
        self._renderer = FileRenderer(key=KEY)
        self._forge: Forge | None = None

    async def repository(self, application: Application) -> GitRepository:  # type: ignore[override]  # the real one
        return self.repositories.open(parse_address(self._gitea.url, local=True), self._credential)

    async def renders(self, application: Application) -> FileRenderer:  # type: ignore[override]  # the real one
        return self._renderer

    async def forge(self, application: Application) -> Forge:
        self._forge = self._forge or make_forge(
            self._gitea.url,
            provider=ForgeProvider.GITEA,
            api=self._gitea.gitea.url,
            credential=self._credential,
        )
        return self._forge

    async def aclose(self) -> None:
        if self._forge is not None:
            await self._forge.aclose()
        await self.repositories.aclose()


@pytest.fixture
def review(gitea_repository: GiteaRepository, tmp_path: Path, screens: Screens) -> Iterator[Review]:
    """An application whose ConfigMap is declared in a repository that everybody may read."""
    gitea_repository.ask("PATCH", "", {"private": False})
    gitea_repository.commit({"deploy/prompts.yaml": PROMPTS})
    world = GitopsWorld(route(Remediation.REVIEW))
    sources = ForgeSources(world, gitea_repository, tmp_path / "copies")
    world.sources = sources
    world.codify = make_codifier(sources)  # type: ignore[method-assign]  # the real one
    spec = replace(
        world.application.spec,
        source=SourceSpec(url=gitea_repository.url, revision="main", path="deploy"),
        pull_requests=PullRequestSpec(provider=ForgeProvider.GITEA, api=gitea_repository.gitea.url),
    )
    world.application = replace(world.application, spec=spec)
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        try:
            yield Review(running, world, screens)
        finally:
            running.run(sources.aclose())


def changed_lines(patch: str) -> list[str]:
    """What a patch takes away and adds, without the rest of it."""
    return [
        line
        for line in patch.splitlines()
        if line[:1] in ("+", "-") and line[:3] not in ("+++", "---")
    ]


def test_the_patch_that_was_read_is_the_pull_request_on_the_forge_and_its_merge_ends_the_drift(
    review: Review, gitea_repository: GiteaRepository
) -> None:
    review.drift("prompts")
    screen = review.read("prompts")
    expect(screen.page.get_by_role("button", name="Codify")).to_be_visible()
    screen.press("c")
    shown = screen.page.get_by_label("Patch")
    expect(shown).to_contain_text("deploy/prompts.yaml")
    read = changed_lines(shown.inner_text())
    assert read == ["-  x: '1'  # tuned in March", "+  x: '9'  # tuned in March"]
    assert gitea_repository.pulls() == []
    screen.press("Control+Enter")
    facts = screen.page.locator(".facts")
    link = facts.get_by_role("link", name=f"{gitea_repository.full_name}/pulls/1")
    expect(link).to_be_visible()
    (pull,) = gitea_repository.pulls()
    diff = httpx2.get(f"{gitea_repository.gitea.url}/{gitea_repository.full_name}/pulls/1.diff")
    assert diff.status_code == 200, diff.text
    assert changed_lines(diff.text) == read
    assert diff.text.count("diff --git") == 1
    with screen.page.expect_popup() as opened:
        link.click()
    expect(opened.value.locator("body")).to_contain_text(pull["title"])
    assert opened.value.url == pull["html_url"]
    assert review.data("prompts")["x"] == "9", "opening it writes nothing to the cluster"
    gitea_repository.merge(pull["number"])
    review.served.run(review.world.fetch_and_reconcile())
    expect(facts).to_contain_text("Git declares it now")
    assert gitea_repository.files()["deploy/prompts.yaml"] == PROMPTS.replace("'1'", "'9'")
    assert review.data("prompts")["x"] == "9"
