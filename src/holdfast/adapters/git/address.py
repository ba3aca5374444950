"""Where a repository is, and which revision of it: read from text and checked.

Git takes far more for an address than a place: `ext::` runs a command, a leading dash is an
option, a password in a URL ends up in every log. So an address is taken apart here, once, against
an allow-list, and nothing but a `RepositoryAddress` reaches the command line.

    https://host[:port]/path            always
    ssh://[user@]host[:port]/path       always
    [user@]host:path                    always; this is ssh too
    http://127.0.0.1[:port]/path        loopback alone, for a forge on the same machine
    /path, file:///path                 only when the caller allows what is on this machine
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from holdfast.core.errors import ConfigurationError
from holdfast.core.redact import quote_text

MAX_ADDRESS_LENGTH = 2048
_HOST = re.compile(r"(?!-)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*\.?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_PATH = re.compile(r"[A-Za-z0-9._~/+@%=,:-]+")
_SCP = re.compile(r"(?:([^/:@]*)@)?([^/:@\[\]]+):(.*)", re.DOTALL)
_AUTHORITY = re.compile(r"(?:(.*)@)?(\[[0-9A-Fa-f:.]+\]|[^\[\]@:]*)(?::([0-9]{1,5}))?", re.DOTALL)
_ADDRESS_HINT = "Write https://host/path, ssh://git@host/path or git@host:path."


class GitScheme(StrEnum):
    """How a repository is reached. The values are Git's own names for its transports."""

    HTTPS = "https"
    HTTP = "http"
    SSH = "ssh"
    FILE = "file"


DEFAULT_PORTS = {GitScheme.HTTPS: 443, GitScheme.HTTP: 80, GitScheme.SSH: 22, GitScheme.FILE: 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryAddress:
    """One repository's place. Holds no credential, so it may be shown and stored."""

    scheme: GitScheme
    host: str = ""
    """In lower case; empty for this machine's own files."""
    port: int = 0
    """Always set where there is a host."""
    user: str = ""
    """For ssh alone."""
    path: str
    """With a leading slash, but for the short form of ssh, where it starts at the user's home."""

    @property
    def url(self) -> str:
        """What Git is given."""
        if self.scheme is GitScheme.FILE:
            return self.path
        at = f"{self.user}@" if self.user else ""
        if not self.path.startswith("/"):
            return f"{at}{self.host}:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{at}{host}{port}{self.path}"

    def __str__(self) -> str:
        return self.url


def parse_address(text: str, *, local: bool = False) -> RepositoryAddress:
    """Read an address. Raises ConfigurationError, without any credential that stands in it.

    `local` allows what is on this machine, which a repository named by another user never may.
    """
    found = _parse_parts(text)
    if isinstance(found, str):
        raise ConfigurationError(f"A repository address {found}.", hint=_ADDRESS_HINT)
    shown = quote_text(str(found), 200)
    if found.scheme is GitScheme.FILE and not local:
        raise ConfigurationError(
            f"The repository address {shown} is a path on this machine.",
            hint=f"{_ADDRESS_HINT} To try it out, start the controller with --allow-local.",
        )
    if found.scheme is GitScheme.HTTP and not _is_loopback(found.host):
        raise ConfigurationError(
            f"The repository address {shown} uses http, which anyone on the way can read.",
            hint="Use https; http is for this machine's own loopback addresses.",
        )
    return found


def _parse_parts(text: str) -> RepositoryAddress | str:
    """Take an address apart, or say what is wrong with it, without quoting it."""
    if not text or len(text) > MAX_ADDRESS_LENGTH:
        return "is empty" if not text else f"has more than {MAX_ADDRESS_LENGTH} characters"
    lowest = 32 if text.startswith("/") else 33  # a path on this machine may have spaces
    if any(ord(char) < lowest or not char.isprintable() for char in text):
        return "has spaces or control characters"
    if text.startswith("-"):
        return "begins with a dash"
    if text.startswith("/"):
        return _parse_local_path(text)
    scheme, mark, rest = text.partition("://")
    if mark and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return _parse_url(scheme.lower(), rest)
    found = _SCP.fullmatch(text)
    if "::" in text or found is None:
        return "has a form that is not supported"
    user, host, path = found.groups()
    if path.startswith("-") or "@" in path or ":" in path:
        return "has a path that is none"  # or is a password, by someone's mistake
    return _make_address(GitScheme.SSH, host=host, port=22, user=user, path=path)


def _parse_url(scheme: str, rest: str) -> RepositoryAddress | str:
    if scheme not in set(GitScheme):
        return f"begins with {quote_text(scheme)}://, which is not supported"
    authority, slash, path = rest.partition("/")
    if scheme == GitScheme.FILE:
        return "names another machine's file" if authority else _parse_local_path(f"/{path}")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return "has no host that can be read"
    user, host, port = found.groups()
    if user is not None and (scheme != GitScheme.SSH or ":" in user):
        return "holds a credential, which is not shown here; keep it in a Secret"
    number = int(port) if port else DEFAULT_PORTS[GitScheme(scheme)]
    if not 0 < number < 65536:
        return "has a port that is none"
    return _make_address(
        GitScheme(scheme), host=host.strip("[]"), port=number, user=user, path=slash + path
    )


def _make_address(
    scheme: GitScheme, *, host: str, port: int, user: str | None, path: str
) -> RepositoryAddress | str:
    host = host.lower()
    if not _is_ip_address(host) and (len(host) > 253 or not _HOST.fullmatch(host)):
        return "has no host that can be read"
    if user is not None and not _USER.fullmatch(user):
        return "has a user name that is none"
    # The path as it will be understood, too: what is hidden by `%` is no better.
    steps = unquote(path, errors="replace").strip("/").split("/")
    if not _PATH.fullmatch(path) or any(each in ("", ".", "..") for each in steps):
        return "has a path that is none"
    if any(not char.isprintable() or char in "\\\ufffd" for step in steps for char in step):
        return "has a path that is none"
    if path.startswith("//") or path.endswith("//"):
        return "has a path that is none"
    return RepositoryAddress(
        scheme=scheme, host=host, port=port, user=user or "", path=path.rstrip("/")
    )


def _parse_local_path(path: str) -> RepositoryAddress | str:
    steps = path.strip("/").split("/")
    if any(each in ("", ".", "..") for each in steps):
        return "has a path that is none"
    return RepositoryAddress(scheme=GitScheme.FILE, path="/" + "/".join(steps))


def _is_ip_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_ip_address(host) and ipaddress.ip_address(host).is_loopback)


HEADS, TAGS = "refs/heads/", "refs/tags/"
_COMMIT_ID = re.compile(r"[0-9a-f]{40}")
_MAX_REF_LENGTH = 200
_FORBIDDEN_CHARACTERS = frozenset("~^:?*[\\\x7f ")


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionSpec:
    """One checked revision: a commit id, or the names at the remote that it may stand for."""

    text: str
    commit: str = ""
    names: tuple[str, ...] = ()
    """More than one for a short name; when the remote has both, it is ambiguous."""


def parse_revision(text: str) -> RevisionSpec:
    """Read a revision. Raises ConfigurationError for what is none.

    `main` may be a branch or a tag, `refs/heads/main` and `refs/tags/main` say which, `HEAD` is
    the remote's default branch, and 40 hexadecimal digits are always a commit.
    """
    if _COMMIT_ID.fullmatch(text):
        return RevisionSpec(text=text, commit=text)
    if text == "HEAD":
        return RevisionSpec(text=text, names=("HEAD",))
    short = text.removeprefix(HEADS).removeprefix(TAGS)
    if text.count("refs/") > 1 or short.startswith("refs/") or not is_ref_name(short):
        raise _invalid_revision(text, "is no branch, tag or full commit id")
    if short != text:
        return RevisionSpec(text=text, names=(text,))
    return RevisionSpec(text=text, names=(HEADS + text, TAGS + text))


def branch_ref(text: str) -> str:
    """Return the full name of a branch. Raises ConfigurationError for what is none."""
    if text.startswith("refs/") or text == "HEAD" or _COMMIT_ID.fullmatch(text):
        raise _invalid_revision(text, "is no name for a branch of ours")
    if not is_ref_name(text):
        raise _invalid_revision(text, "is no name of a branch")
    return HEADS + text


def check_commit_id(text: str) -> str:
    """Return a full commit id. Raises ConfigurationError for anything else."""
    if not _COMMIT_ID.fullmatch(text):
        raise _invalid_revision(text, "is no full commit id")
    return text


def is_ref_name(text: str) -> bool:
    """True for what Git takes as a branch or tag name, less what could be read as an option."""
    if not text or len(text) > _MAX_REF_LENGTH or text.startswith("-") or text == "@":
        return False
    if (
        not text.isprintable()
        or _FORBIDDEN_CHARACTERS.intersection(text)
        or ".." in text
        or "@{" in text
    ):
        return False
    return all(
        step and not step.startswith((".", "-")) and not step.endswith((".", ".lock"))
        for step in text.split("/")
    )


def _invalid_revision(text: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"The revision {quote_text(text)} {what}.",
        hint="Write a branch, a tag, HEAD, or all 40 digits of a commit id.",
    )
