"""Finds the forge that a repository lives on, from its address and what the user says of it.

A token goes to the host of the repository or to the address that the user set, never to one that
was guessed: an unknown host needs a setting that says what it is.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import assert_never
from urllib.parse import SplitResult, quote, unquote, urlsplit

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.forge.gitea import GiteaDialect
from holdfast.adapters.forge.github import GITHUB_HEADERS, GitHubDialect
from holdfast.adapters.forge.gitlab import GitLabDialect
from holdfast.adapters.forge.pull_requests import PullRequestClient
from holdfast.adapters.forge.transport import DEFAULT_TIMEOUT, ForgeTransport
from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.application import ForgeProvider
from holdfast.core.redact import quote_text
from holdfast.reconcile.gitops.ports import GitCredential
from holdfast.reconcile.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProviderFacts:
    title: str
    api_path: str
    hosts: tuple[str, ...]
    """Public hosts that are this forge, those for ssh included."""
    public_host: str = ""
    """Where the API of the public hosts is, when it is the same for all."""
    headers: Mapping[str, str] = field(default_factory=dict)


_FACTS = {
    ForgeProvider.GITHUB: _ProviderFacts(
        title="GitHub",
        api_path="/api/v3",
        hosts=("github.com", "ssh.github.com"),
        public_host="github.com",
        headers=GITHUB_HEADERS,
    ),
    ForgeProvider.GITLAB: _ProviderFacts(
        title="GitLab",
        api_path="/api/v4",
        hosts=("gitlab.com", "altssh.gitlab.com"),
        public_host="gitlab.com",
    ),
    ForgeProvider.GITEA: _ProviderFacts(
        title="Gitea", api_path="/api/v1", hosts=("gitea.com", "codeberg.org")
    ),
}
KNOWN_HOSTS = {host: provider for provider, facts in _FACTS.items() for host in facts.hosts}
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
    location = _locate_repository(repository)
    kind = _find_provider(location, provider)
    if credential.token is None:
        raise ConfigurationError(
            f"Pull requests on {location.host} need a token, and the credential has none.",
            hint="Add a token that may read and write pull requests to the credential.",
        )
    root = _forge_root(location, kind, api)
    facts = _FACTS[kind]
    transport = ForgeTransport(
        forge=f"{facts.title} at {urlsplit(root).netloc}",
        base=_api_base(root, kind),
        token=credential.token,
        authority=credential.authority,
        headers=facts.headers,
        timeout=timeout,
        allow_loopback=allow_loopback,
    )
    path = _path_on_forge(location.path, urlsplit(root).path)
    owner, _, name = path.rpartition("/")
    owner = owner if kind is ForgeProvider.GITLAB else owner.rpartition("/")[2]
    if not owner:
        raise ConfigurationError(
            f"The repository address {quote_text(location.path)} names no owner.",
            hint="Write it as https://host/owner/name.",
        )
    match kind:
        case ForgeProvider.GITHUB:
            return PullRequestClient(GitHubDialect(transport, owner=owner, repository=name))
        case ForgeProvider.GITLAB:
            return PullRequestClient(GitLabDialect(transport, project=path))
        case ForgeProvider.GITEA:
            return PullRequestClient(
                GiteaDialect(transport, owner=owner, repository=name, clock=clock or SystemClock())
            )
        case _:
            assert_never(kind)


_SOURCE_PATHS = {
    ForgeProvider.GITHUB: "blob",
    ForgeProvider.GITLAB: "-/blob",
    ForgeProvider.GITEA: "src/commit",
}


def source_link(
    repository: str, *, provider: ForgeProvider | None = None, commit: str, where: str
) -> str:
    """Return where a person sees `file:line` of a commit; empty where that cannot be told.

    Only for a repository that is read by http or https, on a forge that is known.
    """
    sources = _sources_url(repository, provider)
    file, _, line = where.rpartition(":")
    if not line.isdigit():
        file, line = where, ""
    if not sources or not file or not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        return ""
    return f"{sources}/{commit}/{quote(file)}" + (f"#L{line}" if line else "")


@lru_cache(maxsize=1_024)
def _sources_url(repository: str, provider: ForgeProvider | None) -> str:
    try:
        location = _locate_repository(repository)
        kind = _find_provider(location, provider)
    except ConfigurationError:
        return ""
    return f"{location.web}/{quote(location.path)}/{_SOURCE_PATHS[kind]}" if location.web else ""


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


def _find_provider(location: RepositoryLocation, provider: ForgeProvider | None) -> ForgeProvider:
    known = KNOWN_HOSTS.get(location.host)
    kind = provider or known
    if kind is None:
        raise ConfigurationError(
            f"The host {quote_text(location.host)} is not a forge that Holdfast knows by name.",
            hint=_PROVIDER_HINT,
        )
    if known is not None and kind is not known:
        raise ConfigurationError(
            f"The host {quote_text(location.host)} is {_FACTS[known].title}, and the settings say "
            f"{_FACTS[kind].title}.",
            hint="Set pullRequests.provider to what the host is, or leave it out.",
        )
    return kind


def _forge_root(location: RepositoryLocation, kind: ForgeProvider, api: str) -> str:
    """Return where the forge is, without the path of its API."""
    root = api.rstrip("/").removesuffix(_FACTS[kind].api_path)
    if not root and location.host in KNOWN_HOSTS:
        root = f"https://{_FACTS[kind].public_host or location.host}"
    if not root:
        # A forge below a path has its repositories there, too; one reached by ssh may be anywhere.
        steps = location.path.split("/")
        below = "" if kind is ForgeProvider.GITLAB or not location.web else "/".join(steps[:-2])
        root = f"{location.web or 'https://' + location.host}/{below}".rstrip("/")
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
    return root + _FACTS[kind].api_path


def _path_on_forge(path: str, prefix: str) -> str:
    """Return a repository's path on its forge, which may itself stand below a path."""
    prefix = prefix.strip("/")
    return path.removeprefix(f"{prefix}/") if prefix else path


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
