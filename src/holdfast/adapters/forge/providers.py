"""Finds the forge that a repository lives on, from its address and what the user says of it.

A token goes to the host of the repository or to the address that the user set, never to one that
was guessed: an unknown host has to be told what it is.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import assert_never
from urllib.parse import SplitResult, unquote, urlsplit

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.forge.gitea import GiteaDialect
from holdfast.adapters.forge.github import ACCEPT, HEADERS, GitHubDialect
from holdfast.adapters.forge.gitlab import GitLabDialect
from holdfast.adapters.forge.pull_requests import PullRequestClient
from holdfast.adapters.forge.transport import DEFAULT_TIMEOUT, ForgeTransport
from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.application import ForgeProvider
from holdfast.core.redact import quote_text
from holdfast.reconcile.gitops.ports import GitCredential
from holdfast.reconcile.ports import Clock

KNOWN_HOSTS = {
    "github.com": ForgeProvider.GITHUB,
    "ssh.github.com": ForgeProvider.GITHUB,
    "gitlab.com": ForgeProvider.GITLAB,
    "altssh.gitlab.com": ForgeProvider.GITLAB,
    "gitea.com": ForgeProvider.GITEA,
    "codeberg.org": ForgeProvider.GITEA,
}
_PUBLIC_HOSTS = {ForgeProvider.GITHUB: "github.com", ForgeProvider.GITLAB: "gitlab.com"}
_TITLES = {
    ForgeProvider.GITHUB: "GitHub",
    ForgeProvider.GITLAB: "GitLab",
    ForgeProvider.GITEA: "Gitea",
}
_API_PATHS = {
    ForgeProvider.GITHUB: "/api/v3",
    ForgeProvider.GITLAB: "/api/v4",
    ForgeProvider.GITEA: "/api/v1",
}
_SCP_ADDRESS = re.compile(r"(?:[^/:@]*@)?([^/:@]+):(?!//)(.+)")
_PROVIDER_HINT = "Set pullRequests.provider to github, gitlab or gitea, and pullRequests.api."


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryLocation:
    """Where a repository is, without any credential."""

    web: str
    """The host's address as seen by HTTP; empty when only ssh is known."""
    host: str
    path: str


def make_forge(
    repository: str,
    *,
    credential: GitCredential,
    provider: ForgeProvider | None = None,
    api: str = "",
    clock: Clock | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    allow_loopback: bool = True,
) -> PullRequestClient:
    """Return the forge of a repository. Raises ConfigurationError when that cannot be told.

    `api` is the forge's own address, with or without the path of its API. `allow_loopback` lets
    it be on this machine; what is link-local or reserved it never is.
    """
    place = _locate_repository(repository)
    kind = _find_provider(place, provider)
    if credential.token is None:
        raise ConfigurationError(
            f"Pull requests on {place.host} need a token, and the credential has none.",
            hint="Add a token that may read and write pull requests to the credential.",
        )
    root = _forge_root(place, kind, api)
    line = ForgeTransport(
        forge=f"{_TITLES[kind]} at {urlsplit(root).netloc}",
        base=_api_base(root, kind),
        token=credential.token,
        authority=credential.authority,
        accept=ACCEPT if kind is ForgeProvider.GITHUB else "application/json",
        headers=HEADERS if kind is ForgeProvider.GITHUB else None,
        timeout=timeout,
        allow_loopback=allow_loopback,
    )
    path = _path_on_forge(place.path, urlsplit(root).path)
    owner, _, name = path.rpartition("/")
    owner = owner if kind is ForgeProvider.GITLAB else owner.rpartition("/")[2]
    if not owner:
        raise ConfigurationError(
            f"The repository address {quote_text(place.path)} names no owner.",
            hint="Write it as https://host/owner/name.",
        )
    match kind:
        case ForgeProvider.GITHUB:
            return PullRequestClient(GitHubDialect(line, owner=owner, repository=name))
        case ForgeProvider.GITLAB:
            return PullRequestClient(GitLabDialect(line, project=path))
        case ForgeProvider.GITEA:
            return PullRequestClient(
                GiteaDialect(line, owner=owner, repository=name, clock=clock or SystemClock())
            )
        case _:
            assert_never(kind)


def _locate_repository(repository: str) -> RepositoryLocation:
    parts = _split_url(repository)
    if parts.scheme in ("https", "http", "ssh"):
        host, path = parts.hostname or "", parts.path
        web = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.scheme != "ssh" else ""
    else:
        short = _SCP_ADDRESS.fullmatch(repository)
        host, path, web = (short[1].lower(), short[2], "") if short else ("", "", "")
    path = unquote(path).strip("/").removesuffix(".git")
    steps = path.split("/")
    if not host or any(step in ("", ".", "..") for step in steps):
        raise ConfigurationError(
            "The repository address names no repository on a forge.",
            hint="Write it as https://host/owner/name or git@host:owner/name.",
        )
    return RepositoryLocation(web=web, host=host, path=path)


def _split_url(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        _ = parts.port  # looked at only when it is asked for
    except ValueError:
        raise ConfigurationError(
            "An address of the repository or its forge cannot be read.",
            hint="Write it as https://host/owner/name.",
        ) from None
    return parts


def _find_provider(place: RepositoryLocation, provider: ForgeProvider | None) -> ForgeProvider:
    known = KNOWN_HOSTS.get(place.host)
    kind = provider or known
    if kind is None:
        raise ConfigurationError(
            f"The host {quote_text(place.host)} is not a forge that Holdfast knows by name.",
            hint=_PROVIDER_HINT,
        )
    if known is not None and kind is not known:
        raise ConfigurationError(
            f"The host {quote_text(place.host)} is {_TITLES[known]}, and the settings say "
            f"{_TITLES[kind]}.",
            hint="Set pullRequests.provider to what the host is, or leave it out.",
        )
    return kind


def _forge_root(place: RepositoryLocation, kind: ForgeProvider, api: str) -> str:
    """Return where the forge is, without the path of its API."""
    root = api.rstrip("/").removesuffix(_API_PATHS[kind])
    if not root and place.host in KNOWN_HOSTS:
        root = f"https://{_PUBLIC_HOSTS.get(kind, place.host)}"
    if not root:
        # A forge below a path has its repositories there, too; one reached by ssh may be anywhere.
        steps = place.path.split("/")
        below = "" if kind is ForgeProvider.GITLAB or not place.web else "/".join(steps[:-2])
        root = f"{place.web or 'https://' + place.host}/{below}".rstrip("/")
    parts = _split_url(root)
    plain = parts.scheme == "http" and _is_loopback(parts.hostname or "")
    if "@" in parts.netloc or parts.query or not parts.hostname:
        raise ConfigurationError(
            "The forge's own address holds more than a host and a path, or no host.",
            hint="Set pullRequests.api to an address such as https://git.example.com.",
        )
    if parts.scheme != "https" and not plain:
        raise ConfigurationError(
            f"The forge at {quote_text(parts.netloc)} would be asked without https, and anyone on "
            "the way could read the token.",
            hint="Set pullRequests.api to an https address.",
        )
    return root


def _api_base(root: str, kind: ForgeProvider) -> str:
    if kind is ForgeProvider.GITHUB and urlsplit(root).hostname in ("github.com", "api.github.com"):
        return "https://api.github.com"
    return root + _API_PATHS[kind]


def _path_on_forge(path: str, prefix: str) -> str:
    """Return a repository's path on its forge, which may itself stand below a path."""
    prefix = prefix.strip("/")
    return path.removeprefix(f"{prefix}/") if prefix else path


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
