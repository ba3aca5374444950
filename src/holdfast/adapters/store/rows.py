"""Turns values into rows and back.

Every row ends with a seal, a checksum of its other columns: SQLite notices a damaged page by
its structure only, and a flipped bit in a command line or a scope must not be served.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import apsw
import msgspec

from holdfast.adapters.store.records import (
    Project,
    SignedInSession,
    Token,
    TokenKind,
    TokenScope,
    WorkloadRecord,
)
from holdfast.core.drift import DriftKind
from holdfast.core.ledger import DriftEntry, DriftRecord, HistoryEntry
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId
from holdfast.core.people import Person
from holdfast.core.tree import Fields

Row: TypeAlias = tuple[Any, ...]  # Any: what SQLite gives, one type a column by its schema


class Table:
    """A table, its columns in the order of its rows, and the statements made of them."""

    def __init__(self, name: str, columns: str) -> None:
        names = columns.split()
        self.name = name
        # The parts are constants of this module: nothing that came from outside is in them.
        self.select = f"SELECT {', '.join(names)} FROM {name}"  # noqa: S608
        self.insert = (
            f"INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
        )


PROJECTS = Table("projects", "id slug created_at seal")
WORKLOADS = Table(
    "workloads",
    "project slug uid version generation fields declared declared_by declared_actor writers"
    " created_at updated_at seal",
)
TOKENS = Table(
    "tokens",
    "id kind project workload_uid name scopes secret_hash created_at expires_at revoked_at seal",
)
HISTORY = Table("history", "seq at project slug uid action writer generation summary detail seal")
DRIFTS = Table(
    "drifts", "id project slug uid subject entries first_seen resolved_at resolution seal"
)
ANSWERS = Table("answers", "key request answer at seal")
RECORDS = Table("records", "turn kind application key state body version changed_at seal")
JOURNAL = Table("journal", "seq at application subject action actor summary detail seal")
SESSIONS = Table(
    "sessions",
    "id secret_hash token_id provider person_id person claims agent peer created_at last_seen"
    " expires_at seal",
)
TOKEN_OWNERS = Table("token_owners", "token_id person seal")
TABLES = (
    PROJECTS,
    WORKLOADS,
    TOKENS,
    HISTORY,
    DRIFTS,
    ANSWERS,
    RECORDS,
    JOURNAL,
    SESSIONS,
    TOKEN_OWNERS,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Any]).decode  # Any: a tree
_writers = msgspec.json.Decoder(dict[str, Writer]).decode
_writer = msgspec.json.Decoder(Writer).decode
_person = msgspec.json.Decoder(Person).decode
_claims = msgspec.json.Decoder(dict[str, tuple[str, ...]]).decode
_drift_entries = msgspec.json.Decoder(tuple[DriftEntry, ...]).decode


def key_digest(key: str) -> str:
    """Say under what an idempotency key is kept: a caller may have made it of anything."""
    return hashlib.sha256(key.encode()).hexdigest()


def seal_row(*columns: object) -> Row:
    """Append the seal to a row about to be written."""
    return (*columns, _checksum(columns))


def open_row(row: Row) -> Row:
    """Check the seal of a row that was read."""
    if _checksum(row[:-1]) != row[-1]:
        raise apsw.CorruptError("a row does not match its checksum")
    return row


def to_microseconds(at: datetime) -> int:
    """Write a time as microseconds since 1970."""
    return (at - _EPOCH) // _MICROSECOND


def from_microseconds(stamped: int) -> datetime:
    """Read a time."""
    return _EPOCH + timedelta(microseconds=stamped)


def to_json_text(value: object) -> str:
    """Write a JSON column."""
    return _encode(value).decode()


def project_row(project: Project) -> Row:
    """Write a project."""
    return seal_row(project.id, project.slug, to_microseconds(project.created_at))


def project_of(row: Row) -> Project:
    """Read a project."""
    name, slug, created_at, _ = open_row(row)
    return Project(id=name, slug=slug, created_at=from_microseconds(created_at))


def workload_row(record: WorkloadRecord) -> Row:
    """Write a workload."""
    return seal_row(
        record.id.project,
        record.id.slug,
        record.uid,
        record.version,
        record.generation,
        to_json_text(record.fields),
        None if record.declared is None else to_json_text(record.declared),
        record.declared_by,
        record.declared_actor,
        to_json_text(record.writers),
        to_microseconds(record.created_at),
        to_microseconds(record.updated_at),
    )


def workload_of(row: Row) -> WorkloadRecord:
    """Read a workload."""
    project, slug, uid, version, generation, fields, declared, by, actor, writers, made, at, _ = (
        open_row(row)
    )
    return WorkloadRecord(
        id=WorkloadId(project=project, slug=slug),
        uid=uid,
        version=version,
        generation=generation,
        fields=_fields(fields),
        declared=None if declared is None else _fields(declared),
        declared_by=by,
        declared_actor=actor,
        writers=_writers(writers),
        created_at=from_microseconds(made),
        updated_at=from_microseconds(at),
    )


def token_row(token: Token) -> Row:
    """Write a token."""
    return seal_row(
        token.id,
        token.kind.value,
        token.project,
        token.workload_uid,
        token.name,
        " ".join(sorted(token.scopes)),
        token.secret_hash,
        to_microseconds(token.created_at),
        None if token.expires_at is None else to_microseconds(token.expires_at),
        None if token.revoked_at is None else to_microseconds(token.revoked_at),
    )


def token_of(row: Row) -> Token:
    """Read a token."""
    name, kind, project, uid, label, scopes, secret_hash, made, ends, revoked, _ = open_row(row)
    return Token(
        id=name,
        kind=TokenKind(kind),
        project=project,
        workload_uid=uid,
        name=label,
        scopes=frozenset(map(TokenScope, scopes.split())),
        secret_hash=secret_hash,
        created_at=from_microseconds(made),
        expires_at=None if ends is None else from_microseconds(ends),
        revoked_at=None if revoked is None else from_microseconds(revoked),
    )


def session_row(session: SignedInSession) -> Row:
    """Write a session."""
    return seal_row(
        session.id,
        session.secret_hash,
        session.token_id,
        session.provider,
        session.person.id if session.person else None,
        to_json_text(session.person) if session.person else None,
        to_json_text(session.claims),
        session.agent,
        session.peer,
        to_microseconds(session.created_at),
        to_microseconds(session.last_seen),
        to_microseconds(session.expires_at),
    )


def session_of(row: Row) -> SignedInSession:
    """Read a session."""
    name, secret_hash, token_id, provider, _, person, claims, agent, peer, made, at, ends, _ = (
        open_row(row)
    )
    return SignedInSession(
        id=name,
        secret_hash=secret_hash,
        token_id=token_id,
        provider=provider,
        person=None if person is None else _person(person),
        claims=_claims(claims),
        agent=agent,
        peer=peer,
        created_at=from_microseconds(made),
        last_seen=from_microseconds(at),
        expires_at=from_microseconds(ends),
    )


def token_owner_row(token_id: str, person: Person) -> Row:
    """Write whose a token is."""
    return seal_row(token_id, to_json_text(person))


def token_owner_of(row: Row) -> Person:
    """Read whose a token is."""
    return _person(open_row(row)[1])


def history_row(entry: HistoryEntry, uid: str) -> Row:
    """Write an audit row."""
    return seal_row(
        entry.seq,
        to_microseconds(entry.at),
        entry.workload.project,
        entry.workload.slug,
        uid,
        entry.action,
        to_json_text(entry.writer),
        entry.generation,
        entry.summary,
        to_json_text(entry.detail),
    )


def history_of(row: Row) -> HistoryEntry:
    """Read an audit row."""
    seq, at, project, slug, _uid, action, writer, generation, summary, detail, _ = open_row(row)
    return HistoryEntry(
        seq=seq,
        at=from_microseconds(at),
        workload=WorkloadId(project=project, slug=slug),
        action=action,
        writer=_writer(writer),
        generation=generation,
        summary=summary,
        detail=_fields(detail),
    )


def drift_row(drift: DriftRecord, *, uid: str, subject: str) -> Row:
    """Write a drift. `subject` distinguishes several open drifts of one workload."""
    return seal_row(
        drift.id,
        drift.workload.project,
        drift.workload.slug,
        uid,
        subject,
        to_json_text(drift.fields),
        to_microseconds(drift.first_seen),
        None if drift.resolved_at is None else to_microseconds(drift.resolved_at),
        drift.resolution,
    )


def drift_of(row: Row) -> DriftRecord:
    """Read a drift."""
    name, project, slug, _uid, _subject, entries, seen, resolved_at, resolution, _ = open_row(row)
    fields = _drift_entries(entries)
    return DriftRecord(
        id=name,
        workload=WorkloadId(project=project, slug=slug),
        kinds=kinds_of(fields),
        fields=fields,
        first_seen=from_microseconds(seen),
        resolved_at=None if resolved_at is None else from_microseconds(resolved_at),
        resolution=resolution,
    )


def kinds_of(entries: Sequence[DriftEntry]) -> tuple[DriftKind, ...]:
    """The kinds among drifted fields, each once, in the order of the enum."""
    found = {entry.kind for entry in entries}
    return tuple(kind for kind in DriftKind if kind in found)


def plain_fields(fields: Mapping[str, object]) -> Fields:
    """Copy a tree, so that what was stored and what the caller holds are not one object."""
    return _fields(_encode(fields))


def _checksum(columns: Sequence[object]) -> int:
    return zlib.crc32("\x1f".join(map(str, columns)).encode())
