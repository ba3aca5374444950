"""Files that someone else replaces while we run: rotated tokens, certificates, authorities."""

from __future__ import annotations

import contextlib
from pathlib import Path

from holdfast.core.errors import ConfigurationError


class RotatedFile:
    """A small file that is read again whenever it has changed.

    While a rotation leaves it unreadable or empty, what was read last still counts.
    """

    def __init__(self, path: Path, *, what: str, source: str) -> None:
        self.path = path
        self._what = what
        self._source = source
        self._seen: tuple[int, int, int] | None = None
        self._content = b""

    def read(self) -> bytes:
        """Return the content. Raises ConfigurationError if it could never be read."""
        try:
            found = self.path.stat()
            mark = (found.st_mtime_ns, found.st_size, found.st_ino)
            if mark != self._seen:
                fresh = self.path.read_bytes()
                if fresh.strip() or not self._content:
                    self._content = fresh
                self._seen = mark
        except OSError as error:
            if not self._content:
                raise ConfigurationError(
                    f"The {self._what} {self.path}, named by {self._source}, cannot be read: "
                    f"{error.strerror}.",
                    todo="Check the path and its permissions.",
                ) from None
        if not self._content.strip():
            raise ConfigurationError(
                f"The {self._what} {self.path}, named by {self._source}, is empty.",
                todo="Wait until it is written, or write it again.",
            )
        return self._content

    def forget(self) -> bool:
        """Read anew next time, also when the file looks the same. True if it has changed."""
        before = self._content
        self._seen = None
        with contextlib.suppress(ConfigurationError):
            self.read()
        return self._content != before
