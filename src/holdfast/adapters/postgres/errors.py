"""Says what is wrong with PostgreSQL without saying how it is reached.

The one place where asyncpg's exceptions become ours. An address may hold a password, and a
mistyped one ends up where a host or port was meant to be: so only what can be told apart from
it is shown.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    AuthError,
    ConfigurationError,
    HoldfastError,
    TargetUnavailable,
)
from holdfast.core.quantity import shown_seconds
from holdfast.core.redact import Secret, redact

FOREIGN = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # a time-out is one
)
"""Whatever asyncpg raises when a server or a network fails."""

_REFUSED = asyncpg.InvalidAuthorizationSpecificationError
_LOST = (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, ConnectionError)
_UNFIT = (
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UnsupportedClientFeatureError,
    asyncpg.UnsupportedServerFeatureError,
)


def place_of(dsn: Secret) -> str:
    """Name the server for messages: host and database, never user or password.

    Raises ConfigurationError for an address that is none.
    """
    text = dsn.reveal()
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    # With a second `@`, a `/` or a `#` in a password, part of it would be taken for the host.
    host = parts.netloc.rpartition("@")[2]
    if (
        parts.scheme not in ("postgresql", "postgres")
        or text.count("@") > ("@" in parts.netloc)
        or not re.fullmatch(r"[\w.,:%\[\]-]*", host)
    ):
        raise ConfigurationError(
            "The address of the database cannot be read.",
            todo="Write postgresql://user@host:port/database, with every special character of a "
            "password percent-encoded (@ is %40, / is %2F, # is %23), or leave the password to "
            "PGPASSWORD or a password file.",
        )
    return f"{host or 'this machine'}{parts.path}"


def was_lost(error: BaseException) -> bool:
    """True when the connection ended, as it does when a server is restarted."""
    return isinstance(error, _LOST) or (
        isinstance(error, asyncpg.InterfaceError) and "closed" in str(error)
    )


def translated(
    error: BaseException, place: str, *, patience: float, committing: bool = False
) -> TargetUnavailable:
    """Turn a failure during work into one of ours."""
    return TargetUnavailable(
        _said(error, place, patience),
        changed=OUTCOME_UNKNOWN if committing else NOTHING_CHANGED,
        todo="Read the record again once it answers." if committing else "Try again later.",
    )


def refused(error: BaseException, place: str, *, patience: float) -> HoldfastError:
    """Turn a failure to open into one of ours, told apart by who can mend it."""
    said = _said(error, place, patience)
    if isinstance(error, _REFUSED):
        return AuthError(said, todo="Check the user and the password.")
    if isinstance(error, _UNFIT):
        return ConfigurationError(
            said, todo="Name a database in which this user may create and write tables."
        )
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return ConfigurationError(
            "The address of the database cannot be read.",
            todo="Check its port, its parameters and its certificates.",
        )
    return translated(error, place, patience=patience)


def _said(error: BaseException, place: str, patience: float) -> str:
    if isinstance(error, TimeoutError):
        return f"PostgreSQL at {place} gave no answer in {shown_seconds(patience)}."
    if isinstance(error, asyncpg.PostgresError):
        # The first line only: those behind it quote rows.
        message = redact(str(error).partition("\n")[0])[:200].rstrip(".")
        return f"PostgreSQL at {place} answered: {message} ({error.sqlstate})."
    if isinstance(error, OSError):
        why = error.strerror or str(error) or type(error).__name__
        return f"PostgreSQL at {place} could not be reached ({why})."
    return f"The connection to PostgreSQL at {place} failed ({type(error).__name__})."
