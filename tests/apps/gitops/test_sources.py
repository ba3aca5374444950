"""Which addresses a repository or a forge may be at, whoever names them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.gitops_world import GitopsWorld

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.git.repository import GitRepositories, GitRepository
from holdfast.adapters.outbound import NoResponse, OutboundClient
from holdfast.apps.gitops.credentials import ApplicationCredentials, FolderCredentialStore
from holdfast.apps.gitops.settings import GitopsSettings
from holdfast.apps.gitops.sources import ApplicationSources, KindScopes
from holdfast.core.address_reach import source_problem
from holdfast.core.errors import ConfigurationError, SourceUnavailable
from holdfast.core.gitops.application import Application, ForgeProvider, PullRequestSpec

REFUSED = (
    "127.0.0.1",
    "::1",
    "169.254.169.254",
    "fe80::1",
    "0.0.0.9",
    "100.100.100.200",
    "fd00:ec2::254",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
)


class Place:
    """Sources of one controller, whose name service says what the test says."""

    def __init__(self, folder: Path, *, local: bool = False) -> None:
        self.answers: Sequence[str] = ("10.0.0.7",)
        self.asked = 0
        vault = folder / "credentials" / "git"
        vault.mkdir(parents=True)
        (vault / "token").write_text("t0ken")
        self.sources = ApplicationSources(
            GitRepositories(folder / "git"),
            ApplicationCredentials(FolderCredentialStore(vault.parent), local=local),
            KindScopes(None),  # type: ignore[arg-type]  # nothing is rendered
            GitopsSettings(db=folder / "db", local=local),
            key=b"k",
            clock=SystemClock(),
            resolve=self.resolve,
        )

    def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        if not self.answers:
            raise socket.gaierror("no such name")
        return self.answers


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    asyncio.run(made.sources.aclose())


def application(url: str, pulls: PullRequestSpec | None = None) -> Application:
    known = GitopsWorld().application
    source = replace(known.spec.source, url=url, credentials="git")
    return replace(known, spec=replace(known.spec, source=source, pull_requests=pulls))


@pytest.mark.parametrize("address", REFUSED)
async def test_a_name_that_leads_to_this_machine_or_a_metadata_service_is_not_asked(
    place: Place, address: str
) -> None:
    place.answers = ("10.0.0.7", address)
    with pytest.raises(ConfigurationError, match="was not asked"):
        await place.sources.repository(application("https://git.example.com/a/b.git"))
    with pytest.raises(ConfigurationError, match="was not asked"):
        await place.sources.repository(application("git@git.example.com:a/b.git"))


@pytest.mark.parametrize(
    "url",
    [
        "https://169.254.169.254/a/b",
        "http://127.0.0.1:8400/a/b",
        "https://[::1]/a/b",
        "ssh://git@169.254.169.254/a/b",
    ],
)
async def test_neither_is_such_an_address_itself(place: Place, url: str) -> None:
    with pytest.raises(ConfigurationError, match="was not asked"):
        await place.sources.repository(application(url))
    assert place.asked == 0


async def test_a_host_in_a_private_network_is_asked_and_only_where_it_was_found(
    place: Place,
) -> None:
    place.answers = ("10.0.0.7", "fd00::7")
    found = await place.sources.repository(application("https://git.example.com/a/b.git"))
    assert isinstance(found, GitRepository)
    with found._connect() as environment:
        assert "git.example.com:443:10.0.0.7,[fd00::7]" in environment.reveal().values()
    await place.sources.repository(application("https://git.example.com/c/d.git"))
    assert place.asked == 1, "the answer is kept for a while"


async def test_a_name_that_nobody_knows_is_an_outage_and_not_a_mistake(place: Place) -> None:
    place.answers = ()
    with pytest.raises(SourceUnavailable) as caught:
        await place.sources.repository(application("https://git.example.com/a/b.git"))
    assert caught.value.unreachable


async def test_an_operator_may_allow_this_machine_but_no_metadata_service(tmp_path: Path) -> None:
    place = Place(tmp_path, local=True)
    await place.sources.repository(application("http://127.0.0.1:3000/a/b.git"))
    with pytest.raises(ConfigurationError):
        await place.sources.repository(application("https://169.254.169.254/a/b.git"))
    await place.sources.aclose()


@pytest.mark.parametrize("api", ["https://169.254.169.254", "http://127.0.0.1:3000"])
async def test_a_forge_is_at_no_such_address_either(place: Place, api: str) -> None:
    spec = PullRequestSpec(provider=ForgeProvider.GITEA, api=api)
    with pytest.raises(ConfigurationError, match="was not asked"):
        await place.sources.forge(application("https://git.example.com/a/b.git", spec))


async def test_a_token_is_not_sent_to_the_api_that_an_application_names(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / "credentials" / "git" / "hosts").write_text("git.example.com")
    url = "https://git.example.com/a/b.git"
    for api in ("https://git.example.com", "https://git.example.com/api/v1"):
        spec = PullRequestSpec(provider=ForgeProvider.GITEA, api=api)
        assert await place.sources.forge(application(url, spec)) is not None
    thief = PullRequestSpec(provider=ForgeProvider.GITEA, api="https://thief.example")
    with pytest.raises(ConfigurationError, match="bound to other hosts"):
        await place.sources.forge(application(url, thief))
    await place.sources.aclose()


async def test_a_forge_whose_name_leads_to_this_machine_is_not_connected_to() -> None:
    client = OutboundClient(
        timeout=5,
        max_bytes=0,
        address_rule=lambda address: source_problem(str(address), allow_loopback=False),
    )
    response = await client.send("GET", "http://localhost:1/")
    await client.aclose()
    assert isinstance(response, NoResponse)
    assert "controller's own machine" in response.forbidden and not response.sent
