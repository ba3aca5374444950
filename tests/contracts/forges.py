"""The forges that the contract is played on, each with people who do things on it.

Gitea is real. GitHub and GitLab are recorded shapes; see their modules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web
from tests.contracts import github_api, gitlab_api
from tests.contracts.forge_memory import ForgeMemory
from tests.support.gitea import GiteaRepository

from holdfast.adapters.forge.providers import make_forge
from holdfast.adapters.forge.pull_requests import PullRequestClient
from holdfast.core.gitops.application import ForgeProvider
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import GitCredential

NAMES = ("gitea", "github", "gitlab")
HUMAN = "ann"


class ForgeWorld(Protocol):
    """One repository on one forge, and what happens there without us."""

    name: str
    url: str
    """Where the forge listens."""

    def forge(self, url: str = "", token: str = "", timeout: float = 30.0) -> PullRequestClient:
        """Our side, by way of another address or with another token."""

    def push(self, branch: str) -> None:
        """Put a commit on a branch, so that there is something to pull."""

    def conflict(self, branch: str) -> None:
        """Move the base so that a branch cannot be merged any more."""

    def merge(self, number: int) -> str:
        """Merge as somebody else, and say who."""

    def close(self, number: int) -> str:
        """Close as somebody else, and say who."""

    def pull_from_a_fork(self, branch: str) -> int:
        """Open a pull request from a branch of that name in somebody's fork."""

    def numbers(self) -> list[int]:
        """Every pull request there is, newest first."""

    def comments(self, number: int) -> list[str]: ...

    def labels(self, number: int) -> set[str]: ...

    def title(self, number: int) -> str:
        """As the forge keeps it, with its mark of a draft."""

    def is_draft(self, number: int) -> bool: ...


class GiteaForgeWorld:
    """The real thing."""

    name = "gitea"

    def __init__(self, repository: GiteaRepository) -> None:
        self._repository = repository
        self._human = repository.add_member(HUMAN)
        self.url = repository.gitea.url

    def forge(self, url: str = "", token: str = "", timeout: float = 30.0) -> PullRequestClient:
        return make_forge(
            self._repository.url,
            provider=ForgeProvider.GITEA,
            api=url or self.url,
            credential=GitCredential(token=Secret(token or self._repository.owner.token)),
            timeout=timeout,
        )

    def push(self, branch: str) -> None:
        self._repository.commit({"shared.yaml": f"from: {branch}\n"}, branch=branch)

    def conflict(self, branch: str) -> None:
        self._repository.commit({"shared.yaml": "from: main\n"})

    def merge(self, number: int) -> str:
        self._repository.merge(number, by=self._human)
        return self._human.name

    def close(self, number: int) -> str:
        self._repository.close(number, by=self._human)
        return self._human.name

    def pull_from_a_fork(self, branch: str) -> int:
        self._repository.ask("POST", "/forks", {}, by=self._human)
        fork = GiteaRepository(self._repository.gitea, self._human, self._repository.name)
        fork.commit({"fork.yaml": "a: 1\n"}, branch=branch)
        return self._repository.open_pull(f"{self._human.name}:{branch}", by=self._human)

    def numbers(self) -> list[int]:
        return [each["number"] for each in self._repository.pulls()]

    def comments(self, number: int) -> list[str]:
        return self._repository.comments(number)

    def labels(self, number: int) -> set[str]:
        return {each["name"] for each in self._repository.pull(number)["labels"]}

    def title(self, number: int) -> str:
        return str(self._repository.pull(number)["title"])

    def is_draft(self, number: int) -> bool:
        return bool(self._repository.pull(number)["draft"])


class RecordedForgeWorld:
    """GitHub or GitLab, as far as their shapes were written down."""

    def __init__(self, name: str, memory: ForgeMemory, url: str) -> None:
        self.name = name
        self.memory = memory
        self.url = url

    def forge(self, url: str = "", token: str = "", timeout: float = 30.0) -> PullRequestClient:
        return make_forge(
            f"https://git.example.com/{self.memory.owner}/{self.memory.name}.git",
            provider=ForgeProvider(self.name),
            api=url or self.url,
            credential=GitCredential(token=Secret(token or self.memory.token)),
            timeout=timeout,
        )

    def push(self, branch: str) -> None:
        self.memory.branches.add(branch)

    def conflict(self, branch: str) -> None:
        for each in self.memory.listed(branch):
            each.conflicts = True

    def merge(self, number: int) -> str:
        self.memory.end(number, "merged", HUMAN)
        return HUMAN

    def close(self, number: int) -> str:
        self.memory.end(number, "closed", HUMAN)
        return HUMAN

    def pull_from_a_fork(self, branch: str) -> int:
        made = self.memory.open(
            branch=branch, base="main", title="From a fork", body="", draft=False, fork=True
        )
        return made.number

    def numbers(self) -> list[int]:
        return [each.number for each in self.memory.listed()]

    def comments(self, number: int) -> list[str]:
        return self.memory.pulls[number].comments

    def labels(self, number: int) -> set[str]:
        return set(self.memory.pulls[number].labels)

    def title(self, number: int) -> str:
        return self.memory.pulls[number].title

    def is_draft(self, number: int) -> bool:
        return self.memory.pulls[number].draft


@asynccontextmanager
async def serve_recorded_forge(name: str) -> AsyncIterator[RecordedForgeWorld]:
    """Serve GitHub's or GitLab's shapes while the block runs."""
    memory = ForgeMemory()
    api = {"github": github_api, "gitlab": gitlab_api}[name]
    async with serve_application(api.application(memory)) as url:
        yield RecordedForgeWorld(name, memory, url)


@asynccontextmanager
async def serve_application(app: web.Application) -> AsyncIterator[str]:
    """Serve an application on loopback while the block runs."""
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
