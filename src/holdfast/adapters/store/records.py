"""What the store keeps, as values: projects, tokens, workloads with their declarations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.core.live import Live, Status, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.people import Person
from holdfast.core.tree import Fields


class TokenScope(StrEnum):
    """What a token may do."""

    READ = "read"
    WRITE = "write"
    APPROVE = "approve"
    """Decide about drift that waits for a review. Who may write may not decide by that alone."""
    ADMIN = "admin"

    @property
    def implied(self) -> frozenset[TokenScope]:
        """This scope and the ones it includes: admin has all, write and approve can read."""
        return (
            frozenset(TokenScope)
            if self is TokenScope.ADMIN
            else frozenset({TokenScope.READ, self})
        )


class TokenKind(StrEnum):
    """What a token is for."""

    SDK = "sdk"
    """The control plane, in one project."""
    LIVE = "live"
    """The data plane, for one workload or for every one of a project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A name space for workloads and tokens."""

    id: str
    slug: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A credential, without its secret: only a hash of it is kept."""

    id: str
    kind: TokenKind
    project: str
    name: str
    scopes: frozenset[TokenScope]
    secret_hash: bytes
    created_at: datetime
    workload_uid: str | None = None
    """Of a data key: the workload that it opens; None opens every one of the project."""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    person: Person | None = None
    """Whose it is, where that is known."""
    session_id: str = ""
    """Set by the server where a session brought it; never stored."""

    def allows(self, scope: TokenScope) -> bool:
        """True when one of the token's scopes includes this one."""
        return any(scope in held.implied for held in self.scopes)

    def active(self, now: datetime) -> bool:
        """True until the token is revoked or has expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


SESSION_IDLE = timedelta(hours=12)
"""A session that nobody used for this long has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedInSession:
    """Somebody who is signed in, by a cookie of which only a hash is kept."""

    id: str
    secret_hash: bytes
    created_at: datetime
    last_seen: datetime
    expires_at: datetime
    """Its end, however much it is used."""
    token_id: str | None = None
    """The token that it stands for, and with which it ends; None for a person."""
    provider: str = ""
    """Which issuer of the people file the person signed in at."""
    person: Person | None = None
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of a person: what the issuer said of them, as far as a rule asks for it."""
    agent: str = ""
    peer: str = ""

    def active(self, now: datetime) -> bool:
        """True until it ends by itself."""
        return now < min(self.expires_at, self.last_seen + SESSION_IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRecord:
    """A stored workload.

    `fields` is what is written now; `declared` is what its owner wrote, so the difference is
    drift. `version` changes with every change of `fields` and must not be read for more.
    """

    id: WorkloadId
    uid: str
    version: str
    generation: int
    fields: Fields
    declared: Fields | None
    declared_by: str | None
    """The tool that declared it."""
    declared_actor: str | None
    """The credential that tool used."""
    writers: Mapping[str, Writer]
    created_at: datetime
    updated_at: datetime

    def live(self, status: Status) -> Live:
        """Show it as the live side of a comparison."""
        return Live(
            id=self.id,
            uid=self.uid,
            version=self.version,
            generation=self.generation,
            fields=self.fields,
            writers=self.writers,
            status=status,
            created_at=self.created_at,
            updated_at=self.updated_at,
        )

    def is_declared_by(self, writer: Writer) -> bool:
        """True when this tool, with this credential, is the one that declared the workload.

        What anyone else writes is not a declaration; it may be drift.
        """
        return (self.declared_by, self.declared_actor) == (writer.manager, writer.actor)
