"""The key that marks the values of Secrets, so that they can be compared without being kept.

Made once and kept beside the store, not in it: who has a copy of the ledger alone can try no
values. With another key every Secret looks changed, and the guard asks a person before more than
a few objects are written.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from holdfast.core.errors import ConfigurationError

LENGTH = 32
LARGEST = 4096


def key_of(path: Path) -> bytes:
    """Read the key that somebody else keeps, such as a mounted Secret."""
    found = _read(path)
    if found is None:
        raise ConfigurationError(
            f"There is no key file {path}.", todo="Write at least 32 random bytes to it."
        )
    return _checked(found, path)


def own_key(path: Path) -> bytes:
    """Read our own key, making it the first time."""
    found = _read(path)
    if found is None:
        found = _made(path)
    return _checked(found, path)


def _checked(key: bytes, path: Path) -> bytes:
    if len(key) < LENGTH:
        raise ConfigurationError(
            f"The key file {path} has {len(key)} bytes, and a key needs {LENGTH}.",
            todo="Restore it; with a new key every Secret is looked at as if it had changed.",
        )
    return key


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"The key file {path} cannot be read: {error.strerror}.") from None


def _made(path: Path) -> bytes:
    """Write a whole key or none: it is linked into place, so that only the first one counts."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, secrets.token_bytes(LENGTH))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # another process was first, and its key counts
        finally:
            draft.unlink()
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigurationError(
            f"The key file {path} cannot be written: {error.strerror}.",
            todo="Choose a store in a directory that this user may write, or give --key-file.",
        ) from None
    return _read(path) or b""
