"""What the address of a repository or forge has to look like in an Application.

Only the form: the adapter that fetches takes an address apart by its own, stricter reading, and
says which hosts it may go to. The patterns are the API server's as well, so they are plain enough
for both.
"""

from __future__ import annotations

from holdfast.core.shape_check import matches

_HOST = r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"
_LOOPBACK = r"(localhost|127[.][0-9.]+|\[::1\])(:[0-9]{1,5})?"
_USER = r"([A-Za-z0-9_][A-Za-z0-9._-]*@)?"
_PATH = r"[A-Za-z0-9._~/+@%=,:-]+"
_SHORT = r"[A-Za-z0-9.-]+:/?[A-Za-z0-9._~+%][A-Za-z0-9._~/+@%=,:-]*"
_REPOSITORIES = (
    rf"https://{_HOST}/{_PATH}",
    rf"http://{_LOOPBACK}/{_PATH}",
    rf"ssh://{_USER}{_HOST}/{_PATH}",
    rf"{_USER}{_SHORT}",
    r"(file://)?/[^/].*",
)
REPOSITORY = f"^({'|'.join(_REPOSITORIES)})$"
FORGE = rf"^(https://{_HOST}|http://{_LOOPBACK})(/{_PATH})?/?$"
WITH_USER = r"^[A-Za-z][A-Za-z0-9+.-]*://[^/]*@"
SSH_USER = r"^ssh://[^/:@]*@"
STEPS_UP = r"(^|/)[.][.](/|$)"


def has_credential(text: str) -> bool:
    """True for an address with a user, or a password, in it; ssh needs a user and is none."""
    return matches(WITH_USER, text) and not matches(SSH_USER, text)


def is_repository(text: str) -> bool:
    """True for https, ssh, its short form, a path of this machine, and http to this machine."""
    return matches(REPOSITORY, text) and not matches(STEPS_UP, text)


def is_forge(text: str) -> bool:
    """True for https, and for http on this machine."""
    return matches(FORGE, text)
