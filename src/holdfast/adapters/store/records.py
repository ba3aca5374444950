"""What the store keeps, as values: projects, tokens, workloads with their declarations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.core.live import Live, Status, Writer
from holdfast.core.names import WorkloadId
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
    """The data plane, for one workload."""


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
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def allows(self, scope: TokenScope) -> bool:
        """True when one of the token's scopes includes this one."""
        return any(scope in held.implied for held in self.scopes)

    def active(self, now: datetime) -> bool:
        """True until the token is revoked or has expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


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
