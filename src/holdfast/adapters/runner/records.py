"""What is remembered of each replica on disk, so that a later server can take it over.

Written before the process starts and again with its number: whatever the server dies of in
between, the process is found by its marker and the rest stands here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from holdfast.core.tree import Fields

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRecord:
    """One replica. `pid` and `start` are 0 until the process runs."""

    uid: str
    replica: str
    group: str
    revision: str
    port: int
    argv_digest: str
    boot: str
    backend: str
    model: str
    health: str | None
    """With these two, how to judge it even when the declaration has moved on."""
    pid: int = 0
    start: int = 0
    generation: int = 0
    fields: Fields | None = None
    """What it was started from; a record of an earlier version does not say."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Of the secrets that it was given."""


class ReplicaRecords:
    """One small file per replica, replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, record: ReplicaRecord) -> None:
        """Put a record in place of the previous one of the same replica."""
        path = self._path(record.uid, record.replica)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(asdict(record)))
        os.replace(fresh, path)

    def remove(self, uid: str, replica: str) -> None:
        """Forget a replica that no longer runs."""
        path = self._path(uid, replica)
        path.unlink(missing_ok=True)
        with suppress(OSError):
            path.parent.rmdir()

    def all(self) -> list[ReplicaRecord]:
        """Return every readable record; half a file is no record."""
        records = []
        for path in sorted(self._folder.glob("*/*.json")):
            with suppress(OSError, ValueError, TypeError):
                records.append(ReplicaRecord(**json.loads(path.read_text())))
        return records

    def _path(self, uid: str, replica: str) -> Path:
        return self._folder / safe_name(uid) / f"{replica}.json"


def safe_name(uid: str) -> str:
    """Return the uid as a folder's name. Raises ValueError for one that could lead elsewhere."""
    if not _SAFE_NAME.fullmatch(uid):
        raise ValueError(f"{uid[:40]!a} is not a workload uid")
    return uid
