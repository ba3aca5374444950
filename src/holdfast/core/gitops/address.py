"""What the address of a repository or forge has to look like in an Application.

Only the form: the adapter that fetches takes an address apart by its own, stricter reading, and
says which hosts it may go to. The patterns are the API server's as well, so they are plain enough
for both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.core.custom_resource import matches_pattern
from holdfast.core.errors import ConfigurationError
from holdfast.core.redact import quote_text

HOSTS = "holdfast.dev/hosts"
"""The annotation of a Secret that says to which hosts its credential may go."""
_BOUND_HOST = re.compile(
    r"(?P<host>\*|(?:\*\.)?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}|\*))?(?P<path>/[A-Za-z0-9._~/+-]*)?"
)
_DEFAULT_PORTS = frozenset({443, 80, 22})

_HOST = r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"
_LOOPBACK = r"(localhost|127[.][0-9.]+|\[::1\])(:[0-9]{1,5})?"
_USER = r"([A-Za-z0-9_][A-Za-z0-9._-]*@)?"
_PATH = r"[A-Za-z0-9._~/+@%=,:-]+"
_SCP_STYLE = r"[A-Za-z0-9.-]+:/?[A-Za-z0-9._~+%][A-Za-z0-9._~/+@%=,:-]*"
_REPOSITORIES = (
    rf"https://{_HOST}/{_PATH}",
    rf"http://{_LOOPBACK}/{_PATH}",
    rf"ssh://{_USER}{_HOST}/{_PATH}",
    rf"{_USER}{_SCP_STYLE}",
    r"(file://)?/[^/].*",
)
REPOSITORY = f"^({'|'.join(_REPOSITORIES)})$"
FORGE = rf"^(https://{_HOST}|http://{_LOOPBACK})(/{_PATH})?/?$"
WITH_USER = r"^[A-Za-z][A-Za-z0-9+.-]*://[^/]*@"
SSH_USER = r"^ssh://[^/:@]*@"
PARENT_STEPS = r"(^|/)[.][.](/|$)"


def has_credential(text: str) -> bool:
    """True for an address with a user, or a password, in it; ssh needs a user and is none."""
    return matches_pattern(WITH_USER, text) and not matches_pattern(SSH_USER, text)


def is_repository(text: str) -> bool:
    """True for https, ssh, its short form, a path of this machine, and http to this machine."""
    return matches_pattern(REPOSITORY, text) and not matches_pattern(PARENT_STEPS, text)


def is_forge(text: str) -> bool:
    """True for https, and for http on this machine."""
    return matches_pattern(FORGE, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundHost:
    """A host that a credential may go to, as `holdfast.dev/hosts` names it."""

    host: str
    port: str = ""
    """Empty for the usual ones of https, http and ssh; `*` for any."""
    path: str = ""
    """What the path of a repository begins with, in whole steps; empty for any."""

    def fits(self, host: str, port: int, path: str | None = None) -> bool:
        """True for an address of this host; a `path` of None is not looked at."""
        host = host.lower().rstrip(".")
        if self.host.startswith("*."):
            if not host.endswith(self.host[1:]):
                return False
        elif self.host not in ("*", host):
            return False
        if self.port != "*" and not (
            str(port) == self.port if self.port else port in _DEFAULT_PORTS
        ):
            return False
        if path is None or not self.path:
            return True
        given = f"{path.strip('/').removesuffix('.git')}/"
        return given.startswith(f"{self.path}/")


def read_hosts(text: str) -> tuple[BoundHost, ...]:
    """Read hosts that are listed with commas or spaces. Raises ConfigurationError."""
    found = []
    for each in re.split(r"[\s,]+", text):
        if not each:
            continue
        host, slash, path = each.partition("/")
        entry = _BOUND_HOST.fullmatch(host.lower() + slash + path)
        steps = path.strip("/").split("/")
        if entry is None or (path.strip("/") and any(step in ("", ".", "..") for step in steps)):
            raise ConfigurationError(
                f"{HOSTS} has {quote_text(each)}, which is not a host.",
                hint="Write hosts such as git.example.com, *.example.com, git.example.com:8443 "
                "or git.example.com/team-a, with commas between them.",
            )
        found.append(
            BoundHost(
                host=entry["host"].strip("[]"),
                port=entry["port"] or "",
                path=path.strip("/").removesuffix(".git"),
            )
        )
    return tuple(found)
