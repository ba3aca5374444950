"""Workloads inside one transaction: created, updated, deleted, each with its audit row.

The store hands a `Transaction` to the work it was given; nothing is kept unless that work
returns and the commit succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import apsw

from holdfast.adapters.store import rows
from holdfast.adapters.store.queries import StoreQueries
from holdfast.adapters.store.records import (
    SESSION_IDLE,
    Project,
    SignedInSession,
    Token,
    TokenKind,
    TokenScope,
    WorkloadRecord,
)
from holdfast.adapters.store.rows import Row, to_microseconds
from holdfast.core.diff import same_value
from holdfast.core.drift import DriftedField, DriftKind, find_drift
from holdfast.core.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    Problem,
    RefusedByPolicy,
    ValidationError,
)
from holdfast.core.ledger import (
    DriftEntry,
    DriftRecord,
    HistoryEntry,
    drift_entry_of,
    redact_at_path,
)
from holdfast.core.live import Status, Writer
from holdfast.core.names import WorkloadId, is_slug
from holdfast.core.normalize import normalize_workload
from holdfast.core.people import Person
from holdfast.core.plan import AMOUNT_FIELDS, declared_after_write, fields_after_write
from holdfast.core.redact import redact, redact_tree
from holdfast.core.tree import Fields, Tree, parse_pointer, show_path
from holdfast.core.workload import IDENTITY_FIELDS, Desired
from holdfast.wire.spec_v1 import spec_from_fields

OUTCOME_RETENTION = timedelta(hours=24)
"""How long the answer to a request is kept for its repetition."""
FIELDS_SUBJECT = ""
"""The subject of the one open drift that is about a workload's fields."""

HOLDFAST = Writer(manager="holdfast")
"""The writer of what Holdfast does by itself."""

T = TypeVar("T")


class Transaction(StoreQueries):
    """Everything that can be read and written between one begin and one commit."""

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        now: datetime,
        new_id: Callable[[], str],
        epoch: int,
        one_project: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connection = connection
        self.now = now
        self._new_id = new_id
        self._epoch = epoch
        self._one_project = one_project
        """Whether the server that has the file open takes no second project."""
        self.touched: set[WorkloadId] = set()

    def create_project(self, slug: str, *, writer: Writer = HOLDFAST) -> Project:
        """Make a project. Raises Conflict when there is one of this slug."""
        if not is_slug(slug):
            problem = Problem(
                field="project",
                reason=f"{slug[:80]!a} is not a project slug.",
                fix="Use lower-case letters, digits and dashes, 63 at most.",
            )
            raise ValidationError(problems=[problem])
        if self.project(slug) is not None:
            raise AlreadyExists(f"Project {slug} already exists.", hint="Choose another slug.")
        others = self.projects()
        if others and self._one_project():
            raise RefusedByPolicy(
                f"Project {slug} was not created: the server that has this store open runs the "
                f"workloads of project {others[0].slug}, and a command that is run there can read "
                "every project's secrets and tokens.",
                hint="Start that server with --shared-runner if all projects trust each other, "
                "with --no-run if it need not run workloads, or give the project a server and a "
                "store of its own.",
            )
        project = Project(id=self._new_id(), slug=slug, created_at=self.now)
        self._execute(rows.PROJECTS.insert, rows.project_row(project))
        self._note_access(slug, "project-created", writer, f"project {slug}")
        return project

    def ensure_project(self, slug: str, *, writer: Writer = HOLDFAST) -> Project:
        """Return the project of this slug, making it when there is none."""
        return self.project(slug) or self.create_project(slug, writer=writer)

    def create_token(
        self,
        *,
        id: str,
        kind: TokenKind,
        project: str,
        name: str,
        scopes: Iterable[TokenScope],
        secret_hash: bytes,
        workload_uid: str | None = None,
        elsewhere: bool = False,
        expires_at: datetime | None = None,
        person: Person | None = None,
        writer: Writer = HOLDFAST,
    ) -> Token:
        """Keep a token that the caller has made; its secret never comes here.

        `elsewhere` says that another target keeps the workload, and that the caller found it.
        """
        if self.project(project) is None:
            raise NotFound(f"There is no project {project}.", hint="Create it first.")
        workload = self.record_by_uid(workload_uid) if workload_uid else None
        unknown = workload is None or workload.id.project != project
        if workload_uid and unknown and not elsewhere:
            raise NotFound(f"There is no workload {workload_uid} in project {project}.")
        if self.token(id) is not None:
            raise AlreadyExists(f"Token {id} already exists.", hint="Create it again.")
        token = Token(
            id=id,
            kind=kind,
            project=project,
            name=name,
            scopes=frozenset(scopes),
            secret_hash=secret_hash,
            created_at=self.now,
            workload_uid=workload_uid,
            expires_at=expires_at,
            person=person,
        )
        self._execute(rows.TOKENS.insert, rows.token_row(token))
        if person is not None:
            self._execute(rows.TOKEN_OWNERS.insert, rows.token_owner_row(id, person))
        self._note_access(project, "token-created", writer, f"token {name} ({id})")
        return token

    def revoke_token(self, id: str, *, writer: Writer = HOLDFAST) -> bool:
        """End a token at once and for good; False when it was not valid any more."""
        token = self.token(id)
        if token is None or token.revoked_at is not None:
            return False
        row = rows.token_row(replace(token, revoked_at=self.now))
        self._execute(
            "UPDATE tokens SET revoked_at = ?, seal = ? WHERE id = ?", (row[-2], row[-1], id)
        )
        self._execute("DELETE FROM sessions WHERE token_id = ?", (id,))
        self._note_access(token.project, "token-revoked", writer, f"token {token.name} ({id})")
        return True

    def create_session(self, session: SignedInSession, *, limit: int) -> None:
        """Keep a session, without its secret; what has expired, and the oldest of too many, goes.

        `limit` is how many one token or one person may have.
        """
        self._execute(
            "DELETE FROM sessions WHERE expires_at <= ? OR last_seen <= ?",
            (to_microseconds(self.now), to_microseconds(self.now - SESSION_IDLE)),
        )
        person_id = session.person.id if session.person else None
        own = self.sessions(token_id=session.token_id, person_id=person_id)
        for each in own[: max(0, len(own) - limit + 1)]:
            self.end_session(each.id)
        self._execute(rows.SESSIONS.insert, rows.session_row(session))

    def touch_session(self, id: str) -> None:
        """Note that a session was used just now, if it still is one."""
        session = self.session(id)
        if session is not None and session.active(self.now):
            row = rows.session_row(replace(session, last_seen=self.now))
            self._execute(
                "UPDATE sessions SET last_seen = ?, seal = ? WHERE id = ?", (row[-3], row[-1], id)
            )

    def end_session(self, id: str) -> bool:
        """End a session at once; False when there was none."""
        return bool(self._execute("DELETE FROM sessions WHERE id = ? RETURNING id", (id,)))

    def create_workload(
        self, desired: Desired, *, writer: Writer, declare: bool = True
    ) -> WorkloadRecord:
        """Make a workload. Raises AlreadyExists when there is one of this slug.

        The project must be there: see `ensure_project`.
        """
        where = desired.id
        if self.project(where.project) is None:
            raise NotFound(f"There is no project {where.project}.", hint="Create it first.")
        if self.record(where) is not None:
            raise AlreadyExists(
                f"Workload {where} already exists.", hint="Observe it and update it instead."
            )
        fields = _check_fields(where.slug, desired.fields)
        by = replace(writer, at=self.now)
        uid = self._new_id()
        record = WorkloadRecord(
            id=where,
            uid=uid,
            version=self._version(uid, 1),
            generation=1,
            fields=fields,
            declared=fields if declare else None,
            declared_by=writer.manager if declare else None,
            declared_actor=writer.actor if declare else None,
            writers=dict.fromkeys(fields, by),
            created_at=self.now,
            updated_at=self.now,
        )
        self._execute(rows.WORKLOADS.insert, rows.workload_row(record))
        self._audit_record(record, "created", by, "was created", {"fields": fields})
        return record

    def update_workload(
        self,
        uid: str,
        write: Mapping[str, Tree],
        *,
        version: str | None,
        writer: Writer,
        declare: bool = True,
    ) -> WorkloadRecord:
        """Write top-level fields whole; None clears one.

        Raises NotFound when the workload is gone, Conflict when `version` is given and is not
        the present one. Writing what is there already changes nothing at all.
        """
        before = self._guarded(uid, version)
        if before is None:
            raise NotFound(f"There is no workload {uid}.", hint="List the workloads that are.")
        after_fields = fields_after_write(before.fields, write)
        changed = _changed_names(before.fields, after_fields)
        if changed:
            checked = _check_fields(before.id.slug, after_fields)
            if checked != after_fields:  # a spec may spell a value in its own way
                changed = _changed_names(before.fields, checked)
            after_fields = checked
        if not changed:
            after_fields = before.fields
        declared = (
            declared_after_write(
                [*write, *changed],
                declared=before.declared or {},
                before=before.fields,
                after=after_fields,
            )
            if declare
            else before.declared
        )
        claimed = declare and not same_value(declared, before.declared)
        if not changed and not claimed:
            return before
        by = replace(writer, at=self.now)
        generation = before.generation + bool(changed)
        record = WorkloadRecord(
            id=before.id,
            uid=uid,
            version=self._version(uid, generation) if changed else before.version,
            generation=generation,
            fields=after_fields,
            declared=declared,
            declared_by=writer.manager if declare else before.declared_by,
            declared_actor=writer.actor if declare else before.declared_actor,
            writers={**before.writers, **dict.fromkeys(changed, by)},
            created_at=before.created_at,
            updated_at=self.now if changed else before.updated_at,
        )
        self._execute(
            "UPDATE workloads SET version = ?, generation = ?, fields = ?, declared = ?,"
            " declared_by = ?, declared_actor = ?, writers = ?, created_at = ?, updated_at = ?,"
            " seal = ? WHERE uid = ?",
            (*rows.workload_row(record)[3:], uid),
        )
        detail = changed_fields(before.fields, after_fields, changed)
        action = "updated" if changed else "declared"
        names = ", ".join(changed or write)
        self._audit_record(record, action, by, f"{action}: {names}"[:400], detail)
        if not declare or self._open_drifts(uid, FIELDS_SUBJECT):
            resolution = "declared" if claimed else "reconciled" if declare else "reverted"
            self._update_field_drift(record, _drifted_fields(record), resolution, by)
        return record

    def delete_workload(self, uid: str, *, version: str | None, writer: Writer) -> bool:
        """End a workload, its data keys and its drifts; False when it is gone already."""
        record = self._guarded(uid, version)
        if record is None:
            return False
        by = replace(writer, at=self.now)
        self._resolve_all(record, "deleted", by)
        self._revoke_data_keys(uid, by)
        self._execute("DELETE FROM workloads WHERE uid = ?", (uid,))
        self._audit_record(record, "deleted", by, "was deleted", None)
        return True

    def note(
        self,
        workload: WorkloadId,
        action: str,
        writer: Writer,
        summary: str,
        detail: Mapping[str, Tree] | None = None,
    ) -> HistoryEntry:
        """Write an audit row about a workload that is there."""
        record = self.record(workload)
        if record is None:
            raise NotFound(f"There is no workload {workload} to note anything about.")
        return self._audit_record(record, action, writer, summary, detail)

    def open_drift(
        self,
        workload: WorkloadId,
        entries: Sequence[DriftEntry],
        *,
        subject: str | None = None,
        writer: Writer = HOLDFAST,
    ) -> DriftRecord:
        """Note that a workload has drifted.

        A workload has one open drift a subject. The subject is its fields, or, for drift of
        its resources such as a process that died, the path of the first entry unless another
        is given. While a drift is open it is brought up to date, not repeated.
        """
        record = self.record(workload)
        if record is None:
            raise NotFound(f"There is no workload {workload} that could drift.")
        resource = bool(entries) and all(entry.kind is DriftKind.RESOURCE for entry in entries)
        if subject is None:
            subject = entries[0].path if resource else FIELDS_SUBJECT
        return self._put_drift(record, subject, [_mask_entry(entry) for entry in entries], writer)

    def resolve_drift(self, id: str, resolution: str, *, writer: Writer = HOLDFAST) -> bool:
        """Close a drift; False when it is not open."""
        found = self._execute(f"{rows.DRIFTS.select} WHERE id = ? AND resolved_at IS NULL", (id,))
        for row in found:
            self._close_drift(row, resolution, writer)
        return bool(found)

    def remember(self, key: str, request_digest: str, answer: bytes) -> None:
        """Keep the answer to a request, so that its repetition has no second effect."""
        self._execute(
            "DELETE FROM answers WHERE at < ?", (to_microseconds(self.now - OUTCOME_RETENTION),)
        )
        kept_as = rows.key_digest(key)
        self._execute("DELETE FROM answers WHERE key = ?", (kept_as,))
        self._execute(
            rows.ANSWERS.insert,
            rows.seal_row(kept_as, request_digest, answer, to_microseconds(self.now)),
        )

    def _update_field_drift(
        self,
        record: WorkloadRecord,
        drifted: Sequence[DriftedField],
        resolution: str,
        writer: Writer,
    ) -> None:
        """Open, bring up to date or close the drift of a workload's fields."""
        if drifted:
            self._put_drift(
                record, FIELDS_SUBJECT, [_drift_entry(field) for field in drifted], writer
            )
        else:
            self._resolve_all(record, resolution, writer, subject=FIELDS_SUBJECT)

    def _resolve_all(
        self, record: WorkloadRecord, resolution: str, writer: Writer, *, subject: str | None = None
    ) -> None:
        for row in self._open_drifts(record.uid, subject):
            self._close_drift(row, resolution, writer)

    def _audit(
        self,
        workload: WorkloadId,
        action: str,
        writer: Writer,
        summary: str,
        detail: Mapping[str, Tree] | None,
        *,
        uid: str,
        generation: int,
    ) -> HistoryEntry:
        masked = redact_tree(dict(detail or {}))
        entry = HistoryEntry(
            seq=self._execute("SELECT coalesce(max(seq), 0) + 1 FROM history")[0][0],
            at=self.now,
            workload=workload,
            action=action,
            writer=replace(writer, at=self.now),
            generation=generation,
            summary=redact(summary),
            detail=masked if isinstance(masked, dict) else {},
        )
        self._execute(rows.HISTORY.insert, rows.history_row(entry, uid))
        self.touched.add(workload)
        return entry

    def _put_drift(
        self, record: WorkloadRecord, subject: str, entries: Sequence[DriftEntry], writer: Writer
    ) -> DriftRecord:
        held = self._open_drifts(record.uid, subject)
        known = rows.drift_of(held[0]) if held else None
        drift = DriftRecord(
            id=known.id if known else f"drift-{self._new_id().replace('-', '')[:12]}",
            workload=record.id,
            kinds=rows.kinds_of(entries),
            fields=tuple(entries),
            first_seen=known.first_seen if known else self.now,
        )
        if drift == known:
            return drift
        row = rows.drift_row(drift, uid=record.uid, subject=subject)
        if known:
            self._execute(
                "UPDATE drifts SET entries = ?, seal = ? WHERE id = ?", (row[5], row[-1], drift.id)
            )
        else:
            self._execute(rows.DRIFTS.insert, row)
            paths: list[Tree] = [entry.path for entry in entries]
            self._audit_record(
                record,
                "drifted",
                writer,
                f"{', '.join(drift.kinds)} drift: {_first_paths(entries)}",
                {"drift": drift.id, "paths": paths},
            )
        self.touched.add(record.id)
        return drift

    def _close_drift(self, held: Row, resolution: str, writer: Writer) -> None:
        drift = rows.drift_of(held)
        uid, subject = held[3], held[4]
        done = replace(drift, resolved_at=self.now, resolution=resolution)
        row = rows.drift_row(done, uid=uid, subject=subject)
        self._execute(
            "UPDATE drifts SET resolved_at = ?, resolution = ?, seal = ? WHERE id = ?",
            (*row[-3:], drift.id),
        )
        found = self.record(drift.workload)
        self._audit(
            drift.workload,
            "resolved",
            writer,
            f"drift was {resolution}",
            {"drift": drift.id, "resolution": resolution},
            uid=uid,
            generation=found.generation if found and found.uid == uid else 0,
        )

    def _open_drifts(self, uid: str, subject: str | None) -> list[Row]:
        where, values = ("", ()) if subject is None else (" AND subject = ?", (subject,))
        return self._execute(
            f"{rows.DRIFTS.select} WHERE uid = ? AND resolved_at IS NULL{where}", (uid, *values)
        )

    def _revoke_data_keys(self, uid: str, writer: Writer) -> None:
        found = self._execute(
            "SELECT id FROM tokens WHERE workload_uid = ? AND revoked_at IS NULL", (uid,)
        )
        for (id,) in found:
            self.revoke_token(id, writer=writer)

    def _note_access(self, project: str, action: str, writer: Writer, summary: str) -> None:
        everything = WorkloadId(project=project, slug="")
        self._audit(everything, action, writer, summary, None, uid="", generation=0)
        self.touched.discard(everything)

    def _guarded(self, uid: str, version: str | None) -> WorkloadRecord | None:
        record = self.record_by_uid(uid)
        if record is not None and version is not None and record.version != version:
            raise Conflict(
                f"Workload {record.id} was changed meanwhile: it is at {record.version}, "
                f"not at {version[:80]}.",
                hint="Observe it again.",
            )
        return record

    def _version(self, uid: str, generation: int) -> str:
        """Name a version. The epoch keeps numbers from before a roll-back apart."""
        return f"{uid[:8]}.{generation}" + (f".{self._epoch}" if self._epoch else "")

    def _audit_record(
        self,
        record: WorkloadRecord,
        action: str,
        by: Writer,
        summary: str,
        detail: Mapping[str, Tree] | None,
    ) -> HistoryEntry:
        return self._audit(
            record.id, action, by, summary, detail, uid=record.uid, generation=record.generation
        )

    def query(self, sql: str, values: Sequence[Any], read: Callable[[Row], T]) -> list[T]:
        # Not translated: the writer has to see which kind of failure it was.
        return [read(row) for row in self._execute(sql, values)]

    def _execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except UnicodeDecodeError as error:
            raise apsw.CorruptError("a text is not UTF-8") from error


def _drift_entry(field: DriftedField) -> DriftEntry:
    writer = field.writer
    with_token = f" with token {writer.actor}" if writer and writer.actor else ""
    return drift_entry_of(
        field, f"{writer.operation} by {writer.manager}{with_token}" if writer else ""
    )


def _mask_entry(entry: DriftEntry) -> DriftEntry:
    path = tuple(entry.path.split("/"))
    return replace(
        entry,
        desired=redact_at_path(path, entry.desired),
        live=redact_at_path(path, entry.live),
        evidence=redact(entry.evidence),
    )


def changed_fields(before: Fields, after: Fields, names: Sequence[str]) -> Fields:
    """The detail of an audit row: the named fields as they were and as they are."""
    return {
        "before": {name: before[name] for name in names if name in before},
        "after": {name: after[name] for name in names if name in after},
    }


def _first_paths(entries: Sequence[DriftEntry]) -> str:
    """Name the first fields that moved, as people write them."""
    paths = [show_path(parse_pointer(entry.path)) for entry in entries]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more


def _check_fields(slug: str, fields: Mapping[str, Tree]) -> Fields:
    """Return the fields as a spec writes them, or refuse them as a whole."""
    misplaced = [
        Problem(field=name, reason="it is the workload's identity.", fix="It cannot be written.")
        for name in IDENTITY_FIELDS & fields.keys()
    ]
    if misplaced:
        raise ValidationError(problems=misplaced)
    return rows.plain_fields(spec_from_fields(slug, fields).fields())


def _changed_names(before: Fields, after: Fields) -> list[str]:
    """Name the fields that differ in meaning, not in spelling, in a stable order."""
    names = sorted(
        name
        for name in before.keys() | after.keys()
        if not same_value(before.get(name), after.get(name))
    )
    if not names:
        return []
    compared = {*names, *AMOUNT_FIELDS}
    old, new = (
        normalize_workload({name: tree[name] for name in compared if name in tree})
        for tree in (before, after)
    )
    amount = any(not same_value(old.get(name), new.get(name)) for name in AMOUNT_FIELDS)
    return [
        name
        for name in names
        if (amount if name in AMOUNT_FIELDS else not same_value(old.get(name), new.get(name)))
    ]


def _drifted_fields(record: WorkloadRecord) -> tuple[DriftedField, ...]:
    if record.declared is None:
        return ()
    desired = Desired(id=record.id, fields=record.declared)
    return find_drift(desired=desired, live=record.live(Status())).fields
