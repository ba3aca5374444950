"""Which forge a repository lives on, and where its API is: nothing is guessed with a token."""

from __future__ import annotations

import pytest
from tests.support.planted_secrets import Surfaces, planted_secret

from holdfast.adapters.forge.providers import make_forge
from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.application import ForgeProvider
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import NO_GIT_CREDENTIAL, GitCredential

TOKEN = GitCredential(token=Secret("a-token"))
GITHUB, GITLAB, GITEA = ForgeProvider.GITHUB, ForgeProvider.GITLAB, ForgeProvider.GITEA


def where(
    repository: str, provider: ForgeProvider | None = None, api: str = ""
) -> tuple[str, str, str]:
    """Give the forge's name, where its API begins, and the path of the repository there."""
    forge = make_forge(repository, provider=provider, api=api, credential=TOKEN)
    dialect = forge._dialect
    return forge.name, dialect._transport._base, dialect._path  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("repository", "name", "base", "path"),
    [
        ("https://github.com/acme/fleet.git", "github", "https://api.github.com", "acme/fleet"),
        ("https://github.com/acme/fleet/", "github", "https://api.github.com", "acme/fleet"),
        ("git@github.com:acme/fleet.git", "github", "https://api.github.com", "acme/fleet"),
        ("ssh://git@ssh.github.com:443/acme/f", "github", "https://api.github.com", "acme/f"),
        ("https://gitlab.com/a/b/c/d.git", "gitlab", "https://gitlab.com/api/v4", "a%2Fb%2Fc%2Fd"),
        ("git@gitlab.com:a/b.git", "gitlab", "https://gitlab.com/api/v4", "a%2Fb"),
        ("https://codeberg.org/a/b", "gitea", "https://codeberg.org/api/v1", "a/b"),
    ],
)
def test_well_known_hosts_are_told_by_their_name(
    repository: str, name: str, base: str, path: str
) -> None:
    found = where(repository)
    assert found[:2] == (name, base)
    assert path in found[2]


@pytest.mark.parametrize(
    ("repository", "provider", "api", "base", "path"),
    [
        ("https://git.x.org/a/b.git", GITEA, "", "https://git.x.org/api/v1", "/repos/a/b"),
        ("https://git.x.org:8443/a/b", GITEA, "", "https://git.x.org:8443/api/v1", "/repos/a/b"),
        ("https://x.org/git/a/b", GITEA, "", "https://x.org/git/api/v1", "/repos/a/b"),
        ("ssh://git@git.x.org:2222/a/b", GITEA, "", "https://git.x.org/api/v1", "/repos/a/b"),
        ("git@x.org:a/b", GITEA, "https://w.x.org/g/", "https://w.x.org/g/api/v1", "/repos/a/b"),
        ("https://git.x.org/a/b", GITHUB, "", "https://git.x.org/api/v3", "/repos/a/b"),
        (
            "https://git.x.org/a/b",
            GITHUB,
            "https://git.x.org/api/v3",
            "https://git.x.org/api/v3",
            "/repos/a/b",
        ),
        (
            "https://x.org/gitlab/g/s/p",
            GITLAB,
            "https://x.org/gitlab",
            "https://x.org/gitlab/api/v4",
            "/projects/g%2Fs%2Fp/merge_requests",
        ),
        ("http://127.0.0.1:3000/a/b", GITEA, "", "http://127.0.0.1:3000/api/v1", "/repos/a/b"),
        ("https://github.com/a/b", GITHUB, "https://github.com", "https://api.github.com", "/a/b"),
    ],
)
def test_a_forge_of_ones_own_is_told_what_it_is(
    repository: str, provider: ForgeProvider, api: str, base: str, path: str
) -> None:
    found = where(repository, provider, api)
    assert found[1] == base
    assert found[2].endswith(path)


@pytest.mark.parametrize(
    ("repository", "provider", "api"),
    [
        ("https://git.x.org/a/b", None, ""),
        ("https://git.x.org/a/b", None, "https://git.x.org"),
        ("https://github.com.evil.org/a/b", None, ""),
        ("https://github.com/a/b", GITEA, ""),
        ("https://github.com/a", None, ""),
        ("https://github.com/", None, ""),
        ("https://github.com/a/../b", None, ""),
        ("https://git.x.org/a/%2e%2e/b", GITEA, ""),
        ("https://[bad/a/b", GITEA, ""),
        ("https://git.x.org:port/a/b", GITEA, ""),
        ("/srv/git/fleet", GITEA, ""),
        ("", None, ""),
        ("http://git.x.org/a/b", GITEA, ""),
        ("https://git.x.org/a/b", GITEA, "http://git.x.org"),
        ("https://git.x.org/a/b", GITEA, "ftp://git.x.org"),
        ("https://git.x.org/a/b", GITEA, "git.x.org"),
        ("https://git.x.org/a/b", GITEA, "https://git.x.org?x=1"),
    ],
)
def test_what_cannot_be_told_is_refused(
    repository: str, provider: ForgeProvider | None, api: str
) -> None:
    with pytest.raises(ConfigurationError):
        where(repository, provider, api)


def test_a_credential_in_an_address_is_not_shown() -> None:
    canary = planted_secret("password", "{}")
    surfaces = Surfaces()
    for number, (repository, api) in enumerate(
        [
            (f"https://git.x.org/{canary.value}@x/..", ""),
            (f"https://user:{canary.value}@git.x.org/a", ""),
            (f"http://user:{canary.value}@git.x.org/a/b", ""),
            ("https://git.x.org/a/b", f"https://user:{canary.value}@git.x.org"),
        ]
    ):
        surfaces.add_refusal(
            str(number), lambda repository=repository, api=api: where(repository, GITEA, api)
        )
    assert surfaces.leaks([canary]) == []


@pytest.mark.parametrize(
    "credential",
    [
        NO_GIT_CREDENTIAL,
        GitCredential(token=Secret("")),
        GitCredential(token=Secret("two words")),
        GitCredential(token=Secret("x\r\nHost: evil")),
        GitCredential(token=Secret("a-token"), authority="no certificate"),
    ],
)
def test_a_credential_that_cannot_do_is_refused(credential: GitCredential) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make_forge("https://github.com/a/b", credential=credential)
    assert "evil" not in str(refused.value)


def test_a_token_is_taken_without_the_line_end_of_its_file() -> None:
    forge = make_forge(
        "https://github.com/a/b", credential=GitCredential(token=Secret("a-token\n"))
    )
    assert forge.name == "github"
