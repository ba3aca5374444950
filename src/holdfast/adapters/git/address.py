"""Where a repository is: read from text, checked, shown and compared.

Git takes far more for an address than a place: `ext::` runs a command, a leading dash is an
option, a password in a URL ends up in every log. So an address is taken apart here, once, against
an allow-list, and nothing but an `Address` reaches the command line.

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
from holdfast.core.redact import quoted

LONGEST = 2048
_HOST = re.compile(r"(?!-)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*\.?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_PATH = re.compile(r"[A-Za-z0-9._~/+@%=,:-]+")
_SCP = re.compile(r"(?:([^/:@]*)@)?([^/:@\[\]]+):(.*)", re.DOTALL)
_AUTHORITY = re.compile(r"(?:(.*)@)?(\[[0-9A-Fa-f:.]+\]|[^\[\]@:]*)(?::([0-9]{1,5}))?", re.DOTALL)
_FORMS = "Write https://host/path, ssh://git@host/path or git@host:path."


class Scheme(StrEnum):
    """How a repository is reached. The values are Git's own names for its transports."""

    HTTPS = "https"
    HTTP = "http"
    SSH = "ssh"
    FILE = "file"


PORTS = {Scheme.HTTPS: 443, Scheme.HTTP: 80, Scheme.SSH: 22, Scheme.FILE: 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One repository's place. Holds no credential, so it may be shown and stored."""

    scheme: Scheme
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
        if self.scheme is Scheme.FILE:
            return self.path
        at = f"{self.user}@" if self.user else ""
        if not self.path.startswith("/"):
            return f"{at}{self.host}:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{at}{host}{port}{self.path}"

    def __str__(self) -> str:
        return self.url


def parse_address(text: str, *, local: bool = False) -> Address:
    """Read an address. Raises ConfigurationError, without any credential that stands in it.

    `local` allows what is on this machine, which a repository named by another user never may.
    """
    found = _split(text)
    if isinstance(found, str):
        raise ConfigurationError(f"A repository address {found}.", todo=_FORMS)
    shown = quoted(str(found), 200)
    if found.scheme is Scheme.FILE and not local:
        raise ConfigurationError(
            f"The repository address {shown} is a path on this machine.",
            todo=f"{_FORMS} To try it out, start the controller with --allow-local.",
        )
    if found.scheme is Scheme.HTTP and not _is_loopback(found.host):
        raise ConfigurationError(
            f"The repository address {shown} uses http, which anyone on the way can read.",
            todo="Use https; http is for this machine's own loopback addresses.",
        )
    return found


def same_repository(ours: Address, theirs: str) -> bool:
    """True when a text names the repository that we follow, by whatever way it is reached.

    For webhooks, which name a repository by the addresses its host knows: the same one by https
    and by ssh, with and without `.git`, in any case. It leads to a fetch of ours at most.
    """
    found = _split(theirs)
    if isinstance(found, str) or _place(found) != _place(ours):
        return False
    return found.scheme is not ours.scheme or found.port == ours.port


def _place(address: Address) -> tuple[str, str]:
    path = address.path if address.scheme is Scheme.FILE else unquote(address.path).lower()
    return address.host.rstrip("."), path.strip("/").removesuffix(".git").rstrip("/")


def _split(text: str) -> Address | str:
    """Take an address apart, or say what is wrong with it, without quoting it."""
    if not text or len(text) > LONGEST:
        return "is empty" if not text else f"has more than {LONGEST} characters"
    lowest = 32 if text.startswith("/") else 33  # a path on this machine may have spaces
    if any(ord(char) < lowest or not char.isprintable() for char in text):
        return "has spaces or control characters"
    if text.startswith("-"):
        return "begins with a dash"
    if text.startswith("/"):
        return _local(text)
    scheme, mark, rest = text.partition("://")
    if mark and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return _url(scheme.lower(), rest)
    found = _SCP.fullmatch(text)
    if "::" in text or found is None:
        return "has a form that is not supported"
    user, host, path = found.groups()
    if path.startswith("-") or "@" in path or ":" in path:
        return "has a path that is none"  # or is a password, by someone's mistake
    return _checked(Scheme.SSH, host=host, port=22, user=user, path=path)


def _url(scheme: str, rest: str) -> Address | str:
    if scheme not in set(Scheme):
        return f"begins with {quoted(scheme)}://, which is not supported"
    authority, slash, path = rest.partition("/")
    if scheme == Scheme.FILE:
        return "names another machine's file" if authority else _local(f"/{path}")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return "has no host that can be read"
    user, host, port = found.groups()
    if user is not None and (scheme != Scheme.SSH or ":" in user):
        return "holds a credential, which is not shown here; keep it in a Secret"
    number = int(port) if port else PORTS[Scheme(scheme)]
    if not 0 < number < 65536:
        return "has a port that is none"
    return _checked(
        Scheme(scheme), host=host.strip("[]"), port=number, user=user, path=slash + path
    )


def _checked(scheme: Scheme, *, host: str, port: int, user: str | None, path: str) -> Address | str:
    host = host.lower()
    if not _is_address(host) and (len(host) > 253 or not _HOST.fullmatch(host)):
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
    return Address(scheme=scheme, host=host, port=port, user=user or "", path=path.rstrip("/"))


def _local(path: str) -> Address | str:
    steps = path.strip("/").split("/")
    if any(each in ("", ".", "..") for each in steps):
        return "has a path that is none"
    return Address(scheme=Scheme.FILE, path="/" + "/".join(steps))


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
