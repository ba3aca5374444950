"""What the store answered lately, good until anybody commits anything.

Every commit raises the store's serial, in this process or in another. Only while it stands
still are credentials and workloads taken from here, so a revoked token is refused from the next
request on, as if it were read each time. The serial is read once for all requests that one turn
of the event loop handles: each of them had arrived before that turn began.
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from holdfast.adapters.store import Record, Scope, Store, Token
from holdfast.core.live import Status
from holdfast.core.names import WorkloadId

MOST = 4_096

Bearer: TypeAlias = tuple[Token, frozenset[Scope]]
"""A good credential, and every scope that it includes."""


class Recent:
    """One per server. Used from the event loop only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._serial = -1
        self._checked = False
        self._bearers: dict[bytes, Bearer] = {}
        self._records: dict[tuple[str, str], Record] = {}
        self._bodies: dict[str, tuple[Record, Status, bytes]] = {}

    def refresh(self) -> None:
        """Forget everything if there was a commit. Call it first in each request."""
        if self._checked:
            return
        serial = self._store.serial
        self._checked = True
        asyncio.get_running_loop().call_soon(self._next_turn)
        if serial != self._serial:
            self._serial = serial
            self._bearers.clear()
            self._records.clear()
            self._bodies.clear()

    def _next_turn(self) -> None:
        self._checked = False

    def bearer(self, header: bytes) -> Bearer | None:
        """Return what an Authorization header that was found good stands for."""
        return self._bearers.get(header)

    def remember_bearer(self, header: bytes, token: Token) -> Bearer:
        """Keep a header that was found good."""
        if len(self._bearers) >= MOST:
            self._bearers.clear()
        scopes = frozenset(scope for scope in Scope if token.allows(scope))
        bearer = self._bearers[header] = (token, scopes)
        return bearer

    def record(self, project: str, slug: str) -> Record | None:
        """Return a workload. Only for code that has not awaited since `refresh`."""
        found = self._records.get((project, slug))
        if found is None:
            found = self._store.record(WorkloadId(project=project, slug=slug))
            if found is not None:
                if len(self._records) >= MOST:
                    self._records.clear()
                    self._bodies.clear()
                self._records[project, slug] = found
        return found

    def body(self, record: Record, status: Status) -> bytes | None:
        """Return the answer that was given for this workload in this state."""
        found = self._bodies.get(record.uid)
        if found is not None and found[0] is record and (found[1] is status or found[1] == status):
            return found[2]
        return None

    def remember_body(self, record: Record, status: Status, body: bytes) -> None:
        """Keep an answer."""
        self._bodies[record.uid] = (record, status, body)
