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
from holdfast.adapters.forge.line import TIMEOUT, Line
from holdfast.adapters.forge.pulls import PullRequests
from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.application import Provider
from holdfast.core.redact import quoted
from holdfast.reconcile.gitops.ports import Credential
from holdfast.reconcile.ports import Clock

KNOWN = {
    "github.com": Provider.GITHUB,
    "ssh.github.com": Provider.GITHUB,
    "gitlab.com": Provider.GITLAB,
    "altssh.gitlab.com": Provider.GITLAB,
    "gitea.com": Provider.GITEA,
    "codeberg.org": Provider.GITEA,
}
_PUBLIC = {Provider.GITHUB: "github.com", Provider.GITLAB: "gitlab.com"}
_TITLES = {Provider.GITHUB: "GitHub", Provider.GITLAB: "GitLab", Provider.GITEA: "Gitea"}
_API = {Provider.GITHUB: "/api/v3", Provider.GITLAB: "/api/v4", Provider.GITEA: "/api/v1"}
_SHORT = re.compile(r"(?:[^/:@]*@)?([^/:@]+):(?!//)(.+)")
_TODO = "Set pullRequests.provider to github, gitlab or gitea, and pullRequests.api."


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a repository is, without any credential."""

    web: str
    """The host's address as seen by HTTP; empty when only ssh is known."""
    host: str
    path: str


def forge_of(
    repository: str,
    *,
    credential: Credential,
    provider: Provider | None = None,
    api: str = "",
    clock: Clock | None = None,
    timeout: float = TIMEOUT,
    allow_loopback: bool = True,
) -> PullRequests:
    """Return the forge of a repository. Raises ConfigurationError when that cannot be told.

    `api` is the forge's own address, with or without the path of its API. `allow_loopback` lets
    it be on this machine; what is link-local or reserved it never is.
    """
    place = _place(repository)
    kind = _kind(place, provider)
    if credential.token is None:
        raise ConfigurationError(
            f"Pull requests on {place.host} need a token, and the credential has none.",
            todo="Add a token that may read and write pull requests to the credential.",
        )
    root = _root(place, kind, api)
    line = Line(
        forge=f"{_TITLES[kind]} at {urlsplit(root).netloc}",
        base=_base(root, kind),
        token=credential.token,
        authority=credential.authority,
        accept=ACCEPT if kind is Provider.GITHUB else "application/json",
        headers=HEADERS if kind is Provider.GITHUB else None,
        timeout=timeout,
        allow_loopback=allow_loopback,
    )
    path = _below(place.path, urlsplit(root).path)
    owner, _, name = path.rpartition("/")
    owner = owner if kind is Provider.GITLAB else owner.rpartition("/")[2]
    if not owner:
        raise ConfigurationError(
            f"The repository address {quoted(place.path)} names no owner.",
            todo="Write it as https://host/owner/name.",
        )
    match kind:
        case Provider.GITHUB:
            return PullRequests(GitHubDialect(line, owner=owner, repository=name))
        case Provider.GITLAB:
            return PullRequests(GitLabDialect(line, project=path))
        case Provider.GITEA:
            return PullRequests(
                GiteaDialect(line, owner=owner, repository=name, clock=clock or SystemClock())
            )
        case _:
            assert_never(kind)


def _place(repository: str) -> Place:
    parts = _split(repository)
    if parts.scheme in ("https", "http", "ssh"):
        host, path = parts.hostname or "", parts.path
        web = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.scheme != "ssh" else ""
    else:
        short = _SHORT.fullmatch(repository)
        host, path, web = (short[1].lower(), short[2], "") if short else ("", "", "")
    path = unquote(path).strip("/").removesuffix(".git")
    steps = path.split("/")
    if not host or any(step in ("", ".", "..") for step in steps):
        raise ConfigurationError(
            "The repository address names no repository on a forge.",
            todo="Write it as https://host/owner/name or git@host:owner/name.",
        )
    return Place(web=web, host=host, path=path)


def _split(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        _ = parts.port  # looked at only when it is asked for
    except ValueError:
        raise ConfigurationError(
            "An address of the repository or its forge cannot be read.",
            todo="Write it as https://host/owner/name.",
        ) from None
    return parts


def _kind(place: Place, provider: Provider | None) -> Provider:
    known = KNOWN.get(place.host)
    kind = provider or known
    if kind is None:
        raise ConfigurationError(
            f"The host {quoted(place.host)} is not a forge that Holdfast knows by name.", todo=_TODO
        )
    if known is not None and kind is not known:
        raise ConfigurationError(
            f"The host {quoted(place.host)} is {_TITLES[known]}, and the settings say "
            f"{_TITLES[kind]}.",
            todo="Set pullRequests.provider to what the host is, or leave it out.",
        )
    return kind


def _root(place: Place, kind: Provider, api: str) -> str:
    """Return where the forge is, without the path of its API."""
    root = api.rstrip("/").removesuffix(_API[kind])
    if not root and place.host in KNOWN:
        root = f"https://{_PUBLIC.get(kind, place.host)}"
    if not root:
        # A forge below a path has its repositories there, too; one reached by ssh may be anywhere.
        steps = place.path.split("/")
        below = "" if kind is Provider.GITLAB or not place.web else "/".join(steps[:-2])
        root = f"{place.web or 'https://' + place.host}/{below}".rstrip("/")
    parts = _split(root)
    plain = parts.scheme == "http" and _is_loopback(parts.hostname or "")
    if "@" in parts.netloc or parts.query or not parts.hostname:
        raise ConfigurationError(
            "The forge's own address holds more than a host and a path, or no host.",
            todo="Set pullRequests.api to an address such as https://git.example.com.",
        )
    if parts.scheme != "https" and not plain:
        raise ConfigurationError(
            f"The forge at {quoted(parts.netloc)} would be asked without https, and anyone on "
            "the way could read the token.",
            todo="Set pullRequests.api to an https address.",
        )
    return root


def _base(root: str, kind: Provider) -> str:
    if kind is Provider.GITHUB and urlsplit(root).hostname in ("github.com", "api.github.com"):
        return "https://api.github.com"
    return root + _API[kind]


def _below(path: str, prefix: str) -> str:
    """Return a repository's path on its forge, which may itself stand below a path."""
    prefix = prefix.strip("/")
    return path.removeprefix(f"{prefix}/") if prefix else path


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
