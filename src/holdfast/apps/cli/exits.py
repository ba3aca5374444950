"""What the exit code says. Pipelines depend on it, so 2 is never a usage error."""

from __future__ import annotations

from enum import IntEnum

from holdfast.core.errors import (
    AuthError,
    Conflict,
    DriftError,
    HoldfastError,
    PermissionDenied,
    RefusedByPolicy,
    WaitTimeout,
)


class Exit(IntEnum):
    """The exit codes, as `holdfast help exit-codes` lists them."""

    OK = 0
    ERROR = 1
    CHANGES = 2
    POLICY = 3
    AUTH = 4
    STALE = 5
    USAGE = 64
    TIMEOUT = 124
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "All is well, and without --exit-code also: there is drift or there are changes.",
    Exit.ERROR: "An error: invalid input, an unreachable target, a failed check.",
    Exit.CHANGES: "Drift or changes were found. Only with --exit-code.",
    Exit.POLICY: "The policy, a guard or a missing confirmation stopped it: --on-drift fail met "
    "drift, a plan or an application waits for a person, an object is another tool's, or there was "
    "nobody to ask.",
    Exit.AUTH: "The token is missing, not valid, or not allowed to do this.",
    Exit.STALE: "A saved plan is stale, or another writer was first.",
    Exit.USAGE: "The command line could not be understood.",
    Exit.TIMEOUT: "The time given with --timeout ended before what was waited for.",
    Exit.INTERRUPTED: "Interrupted with Ctrl-C.",
}


def exit_of(error: HoldfastError) -> Exit:
    """Say with which code an error ends the command."""
    match error:
        case DriftError() | RefusedByPolicy():
            return Exit.POLICY
        case AuthError() | PermissionDenied():
            return Exit.AUTH
        case Conflict():
            return Exit.STALE
        case WaitTimeout():
            return Exit.TIMEOUT
        case _:
            return Exit.ERROR
