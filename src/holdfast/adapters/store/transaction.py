"""Workloads inside one transaction: created, updated, deleted, each with its audit row.

The store hands a `Transaction` to the work it was given; nothing is kept unless that work
returns and the commit succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast.adapters.store import rows
from holdfast.adapters.store.access import Access
from holdfast.adapters.store.ledger import FIELDS, changed_fields
from holdfast.adapters.store.records import Record
from holdfast.core.declaration import declared_by, written
from holdfast.core.desired import Desired
from holdfast.core.diff import same
from holdfast.core.drift import DriftedField, find_drift
from holdfast.core.errors import AlreadyExists, Conflict, NotFound, Problem, ValidationError
from holdfast.core.live import Status, Writer
from holdfast.core.normalize import normalize_workload
from holdfast.core.plan import AMOUNT
from holdfast.core.tree import Fields, Tree
from holdfast.core.workload import IDENTITY
from holdfast.wire.spec_v1 import spec_from_fields


class Transaction(Access):
    """Everything that can be read and written between one begin and one commit."""

    def create_workload(self, desired: Desired, *, writer: Writer, declare: bool = True) -> Record:
        """Make a workload. Raises AlreadyExists when there is one of this slug.

        The project must be there: see `ensure_project`.
        """
        where = desired.id
        if self.project(where.project) is None:
            raise NotFound(f"There is no project {where.project}.", todo="Create it first.")
        if self.record(where) is not None:
            raise AlreadyExists(
                f"Workload {where} already exists.", todo="Observe it and update it instead."
            )
        fields = _checked(where.slug, desired.fields)
        by = replace(writer, at=self.now)
        uid = self._new_id()
        record = Record(
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
        self._note_write(record, "created", by, "was created", {"fields": fields})
        return record

    def update_workload(
        self,
        uid: str,
        write: Mapping[str, Tree],
        *,
        version: str | None,
        writer: Writer,
        declare: bool = True,
    ) -> Record:
        """Write top-level fields whole; None clears one.

        Raises NotFound when the workload is gone, Conflict when `version` is given and is not
        the present one. Writing what is there already changes nothing at all.
        """
        before = self._guarded(uid, version)
        if before is None:
            raise NotFound(f"There is no workload {uid}.", todo="List the workloads that are.")
        after_fields = written(before.fields, write)
        changed = _changed(before.fields, after_fields)
        if changed:
            checked = _checked(before.id.slug, after_fields)
            if checked != after_fields:  # a spec may spell a value in its own way
                changed = _changed(before.fields, checked)
            after_fields = checked
        if not changed:
            after_fields = before.fields
        declared = (
            declared_by(
                [*write, *changed],
                declared=before.declared or {},
                before=before.fields,
                after=after_fields,
            )
            if declare
            else before.declared
        )
        claimed = declare and not same(declared, before.declared)
        if not changed and not claimed:
            return before
        by = replace(writer, at=self.now)
        generation = before.generation + bool(changed)
        record = Record(
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
        self._note_write(record, action, by, f"{action}: {names}"[:400], detail)
        if not declare or self._has_open_drift(uid, FIELDS):
            resolution = "declared" if claimed else "reconciled" if declare else "reverted"
            self._judge(record, _drifted_fields(record), resolution, by)
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
        self._note_write(record, "deleted", by, "was deleted", None)
        return True

    def _guarded(self, uid: str, version: str | None) -> Record | None:
        record = self.record_by_uid(uid)
        if record is not None and version is not None and record.version != version:
            raise Conflict(
                f"Workload {record.id} was changed meanwhile: it is at {record.version}, "
                f"not at {version[:80]}.",
                todo="Observe it again.",
            )
        return record

    def _version(self, uid: str, generation: int) -> str:
        """Name a version. The epoch tells a generation from its namesake in a lost future."""
        return f"{uid[:8]}.{generation}" + (f".{self._epoch}" if self._epoch else "")

    def _note_write(
        self, record: Record, action: str, by: Writer, summary: str, detail: Fields | None
    ) -> None:
        self._audit(
            record.id,
            action,
            by,
            summary,
            detail,
            uid=record.uid,
            generation=record.generation,
        )


def _checked(slug: str, fields: Mapping[str, Tree]) -> Fields:
    """Return the fields as a spec writes them, or refuse them as a whole."""
    misplaced = [
        Problem(field=name, reason="it is the workload's identity.", fix="It cannot be written.")
        for name in IDENTITY & fields.keys()
    ]
    if misplaced:
        raise ValidationError(problems=misplaced)
    return rows.plain_fields(spec_from_fields(slug, fields).fields())


def _changed(before: Fields, after: Fields) -> list[str]:
    """Name the fields that differ in meaning, not in spelling, in a stable order."""
    names = sorted(
        name for name in before.keys() | after.keys() if not same(before.get(name), after.get(name))
    )
    if not names:
        return []
    compared = {*names, *AMOUNT}
    old, new = (
        normalize_workload({name: tree[name] for name in compared if name in tree})
        for tree in (before, after)
    )
    amount = any(not same(old.get(name), new.get(name)) for name in AMOUNT)
    return [
        name
        for name in names
        if (amount if name in AMOUNT else not same(old.get(name), new.get(name)))
    ]


def _drifted_fields(record: Record) -> tuple[DriftedField, ...]:
    if record.declared is None:
        return ()
    desired = Desired(id=record.id, fields=record.declared)
    return find_drift(desired=desired, live=record.live(Status())).fields
