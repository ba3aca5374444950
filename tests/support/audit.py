"""Reads what happened from the API server's own audit log.

The server counts requests better than any client can, and says who sent them. Called by tests
through `Cluster.audit_events`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One request that was answered."""

    time: str
    user: str
    user_agent: str
    verb: str
    resource: str
    """The plural, with its subresource: `deployments/scale`. Empty for a bare URL."""
    namespace: str
    name: str
    code: int
    uri: str
    """Path and query: shows `dryRun`, `fieldManager` and `force` of an apply."""

    @property
    def wrote(self) -> bool:
        """Whether it changed something, or would have; a dry run or a refusal did not."""
        return self.verb in WRITES and self.code < 400 and "dryRun=All" not in self.uri


def read_events(log: Path, *, containing: str = "") -> Iterator[AuditEvent]:
    """Give every event of the log, oldest first.

    `containing` skips lines without that text before they are parsed: a long run logs a lot.
    """
    wanted = containing.encode()
    with log.open("rb") as lines:
        for line in lines:
            # The last line may be half written.
            if wanted in line and line.endswith(b"\n"):
                yield _event(json.loads(line))


def _event(record: dict[str, Any]) -> AuditEvent:  # Any: a line of JSON
    about = record.get("objectRef", {})
    parts = [about.get("resource", ""), about.get("subresource", "")]
    return AuditEvent(
        time=record["stageTimestamp"],
        user=record["user"].get("username", ""),
        user_agent=record.get("userAgent", ""),
        verb=record["verb"],
        resource="/".join(part for part in parts if part),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        code=record.get("responseStatus", {}).get("code", 0),
        uri=record["requestURI"],
    )
