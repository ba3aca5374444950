"""What Git's complaints mean.

Git tells its callers little but text. This is the one place that reads it: `diagnose` gives each
complaint a kind, and `unavailable` says it in words that a person can act on. The text itself was
cleaned of credentials before it comes here.
"""

from __future__ import annotations

import re
from enum import StrEnum

from holdfast.adapters.git.address import Address
from holdfast.core.errors import NOTHING_CHANGED
from holdfast.reconcile.gitops.ports import SourceUnavailable

_SHOWN = 300


class Trouble(StrEnum):
    """Why a Git command failed."""

    LATE = "late"
    TOO_MUCH = "too-much"
    NO_PROGRAM = "no-program"
    NO_SPACE = "no-space"
    CREDENTIAL = "credential"
    FORBIDDEN = "forbidden"
    MISSING = "missing"
    NO_REVISION = "no-revision"
    BUSY = "busy"
    SERVER = "server"
    MOVED = "moved"
    HOST_KEY = "host-key"
    CERTIFICATE = "certificate"
    CONNECTION = "connection"
    REFUSED_OBJECTS = "refused-objects"
    MOVED_MEANWHILE = "moved-meanwhile"
    DECLINED = "declined"
    DAMAGED = "damaged"
    """The local copy is not what it should be; a new one may help."""
    OTHER = "other"


class GitFailed(Exception):
    """A Git command did not do its work. Stays inside this package."""

    def __init__(self, trouble: Trouble, said: str = "") -> None:
        super().__init__(trouble, said)
        self.trouble = trouble
        self.said = said


# In the order in which they are tried: a full disk also looks like damage, a lost connection
# also looks like a broken pack.
_SIGNS: tuple[tuple[Trouble, str], ...] = (
    (Trouble.NO_SPACE, r"No space left on device|Disk quota exceeded|File too large"),
    (Trouble.MOVED_MEANWHILE, r"\(stale info\)|\(fetch first\)|\(non-fast-forward\)"),
    (Trouble.MOVED_MEANWHILE, r"\[remote rejected\].*\((?:failed to update ref|.*cannot lock ref)"),
    (Trouble.DECLINED, r"\[remote rejected\]|hook declined|protected branch"),
    (Trouble.HOST_KEY, r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED"),
    (
        Trouble.CERTIFICATE,
        r"certificate verification failed|SSL certificate problem|[Cc]ertificate .*(?:expired"
        r"|not trusted|verify)|does not match target host name|SSL_ERROR|gnutls_handshake",
    ),
    (
        Trouble.CREDENTIAL,
        r"returned error: 401|Authentication failed|could not read (?:Username|Password)"
        r"|Permission denied \(|Invalid username or (?:password|token)",
    ),
    (Trouble.FORBIDDEN, r"returned error: 403"),
    (Trouble.BUSY, r"returned error: 429|Too Many Requests"),
    (Trouble.MOVED, r"returned error: 30[0-9]|unable to update url base from redirection"),
    (Trouble.SERVER, r"returned error: 5\d\d"),
    (
        Trouble.NO_REVISION,
        r"couldn't find remote ref|not our ref|unadvertised object|no such remote ref",
    ),
    (
        Trouble.MISSING,
        r"returned error: 4\d\d|repository '.*' not found|[Rr]epository not found"
        r"|does not appear to be a git repository|not a git repository|does not exist"
        r"|not valid: is this a git repository",
    ),
    (Trouble.REFUSED_OBJECTS, r"fsck error in packed object|fsck error in pack objects"),
    (
        Trouble.CONNECTION,
        r"Could not resolve host|Failed to connect|[Cc]onnection (?:refused|reset|timed out|closed)"
        r"|Operation (?:timed out|too slow)|early EOF|unexpected disconnect|RPC failed"
        r"|remote end hung up|Empty reply from server|transfer closed|Name or service not known"
        r"|No route to host|Network is unreachable|Recv failure|invalid server response"
        r"|bad line length|unexpected flush packet|Temporary failure in name resolution",
    ),
    (
        Trouble.DAMAGED,
        r"\.lock': File exists|cannot lock ref|unable to (?:read|write|create)|corrupt|bad object"
        r"|bad tree|is empty|packfile|inflate|missing (?:blob|tree|commit)|invalid object"
        r"|Not a valid (?:object|commit)|bad (?:signature|config|revision)|missing object"
        r"|index-pack failed|did not send all necessary objects|[Cc]ould not (?:parse|read)"
        r"|invalid index-pack output|is not a (?:commit|valid)|hash mismatch|unable to access"
        r"|broken",
    ),
)
_PATTERNS = tuple((trouble, re.compile(pattern)) for trouble, pattern in _SIGNS)

_WORDS: dict[Trouble, tuple[str, str]] = {
    Trouble.LATE: ("gave no answer in time", "Check the host and the network on the way to it."),
    Trouble.TOO_MUCH: (
        "is larger than a local copy may be",
        "Use a smaller repository, or raise the limit for copies.",
    ),
    Trouble.NO_PROGRAM: ("was not asked: git could not be started", "Install git, 2.32 or newer."),
    Trouble.NO_SPACE: (
        "could not be copied: there is no space left on this machine's disk",
        "Free some space where repositories are kept; nothing has to be restarted.",
    ),
    Trouble.CREDENTIAL: (
        "did not accept the credential",
        "Give a token or key that may read this repository.",
    ),
    Trouble.FORBIDDEN: (
        "does not permit this to the credential",
        "Give the token or key access to this repository.",
    ),
    Trouble.MISSING: (
        "is not there, or the credential may not know of it",
        "Check the address, and whether the credential may read it.",
    ),
    Trouble.NO_REVISION: (
        "has no such revision",
        "Check the branch, tag or commit; it may have been deleted or renamed.",
    ),
    Trouble.BUSY: ("asks to be asked less often", "It is asked again later."),
    Trouble.SERVER: ("answered with an error of its own", "Check the health of the host."),
    Trouble.MOVED: (
        "redirects to another address, which is not followed because of the credential",
        "Write the new address.",
    ),
    Trouble.HOST_KEY: (
        "has a host key that known_hosts does not have",
        "Compare the key with what the host publishes, then add it to known_hosts.",
    ),
    Trouble.CERTIFICATE: (
        "has a certificate that is not trusted",
        "Give the certificate of its authority, or fix the host's.",
    ),
    Trouble.CONNECTION: (
        "could not be reached, or broke off",
        "Check the host and the network on the way to it.",
    ),
    Trouble.REFUSED_OBJECTS: (
        "sent objects that Git itself calls malformed, so none of them was taken",
        "Run `git fsck` in the repository and fix what it finds.",
    ),
    Trouble.DAMAGED: (
        "could not be read: its local copy is damaged, and making a new one did not help",
        "Check the disk where repositories are kept.",
    ),
}
_UNREACHABLE = frozenset({Trouble.LATE, Trouble.CONNECTION, Trouble.SERVER, Trouble.BUSY})
"""The same for everybody who asks that address now."""
_OTHER = ("could not be read", "Check the address and the host.")


def diagnose(said: str) -> Trouble:
    """Give a complaint its kind."""
    for trouble, pattern in _PATTERNS:
        if pattern.search(said):
            return trouble
    return Trouble.OTHER


def unavailable(
    failed: GitFailed, address: Address, what: str, *, changed: str = NOTHING_CHANGED
) -> SourceUnavailable:
    """Say a failure in full. `what` is the revision or branch that the repository was asked for."""
    happened, todo = _WORDS.get(failed.trouble, _OTHER)
    said = f" Git said: {failed.said[:_SHOWN]}." if failed.said else ""
    error = SourceUnavailable(
        f"Repository {address} {happened}; it was asked for {what}.{said}",
        changed=changed,
        todo=todo,
    )
    error.unreachable = failed.trouble in _UNREACHABLE
    return error
