"""What every ledger store has in common: the rules its writes obey, and how it is exported.

The rules are pure, and called by each implementation of `LedgerStore` before or inside its
transaction, so that all behave alike. PostgreSQL sets the limits: it takes no NUL in a text and no
long text in an index. An export reads a page at a time.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeAlias

from holdfast.core.errors import Conflict, Problem, ValidationError
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import JournalEntry, LedgerStore, LedgerWrite, RecordKind
from holdfast.wire.ledger_jsonl import drift_to_json, entry_to_json, json_line

CLOSED = "closed"
"""The one state that `prune` removes records in: whatever else a state is called, it is kept."""
MAX_NAME_BYTES = 1024
"""Bytes of a name, so that application and key fit into one entry of an index."""

RecordName: TypeAlias = tuple[RecordKind, str, str]
"""Kind, application and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledRecord:
    """What a write leaves of one record."""

    state: str
    text: str | None
    """The body as JSON; None for a record that is removed."""
    version: int


def record_name(put: LedgerWrite) -> RecordName:
    """Return what a record is found by."""
    return put.kind, put.application, put.key


def settle_writes(
    puts: Sequence[LedgerWrite], versions: Mapping[RecordName, int]
) -> dict[RecordName, SettledRecord]:
    """Carry out puts, one after the other, on the versions that are there; 0 is not there.

    The answer has each record once, the last changed last. Raises Conflict for a put that saw
    another version, ValidationError for what cannot be kept.
    """
    settled: dict[RecordName, SettledRecord] = {}
    for put in puts:
        name = record_name(put)
        before = settled.pop(name, None)
        version = versions.get(name, 0) if before is None else _present_version(before)
        if put.seen != version:
            raise Conflict(
                f"Record {' '.join(name)} is at version {version}, not at {put.seen}.",
                hint="Read it again.",
            )
        if put.body is None:
            settled[name] = SettledRecord(state=put.state, text=None, version=version)
        else:
            settled[name] = SettledRecord(
                state=put.state, text=record_to_json(put.body), version=version + 1
            )
    return settled


def check_names(puts: Sequence[LedgerWrite], entries: Sequence[JournalEntry]) -> None:
    """Refuse names that not every ledger can keep."""
    names = [
        (field, text)
        for put in puts
        for field, text in (
            ("application", put.application),
            ("key", put.key),
            ("state", put.state),
        )
    ] + [
        (field, text)
        for entry in entries
        for field, text in (
            ("application", entry.application),
            ("subject", entry.subject),
            ("action", entry.action),
        )
    ]
    problems = [
        Problem(field=field, reason=reason, fix="Use a shorter or plainer one.")
        for field, text in names
        if (reason := _name_problem(text))
    ]
    if problems:
        raise ValidationError(problems=problems)


def stored_entry(entry: JournalEntry, seq: int) -> JournalEntry:
    """Return a line as it is kept: its number given, its time in UTC, its prose storable."""
    return replace(
        entry,
        seq=seq,
        at=entry.at.astimezone(UTC),
        actor=_storable(entry.actor),
        summary=_storable(entry.summary),
    )


def record_to_json(fields: Fields) -> str:
    """Write a body or detail. Raises ValidationError for what JSON does not have."""
    try:
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        # Not the error's own text: it may show the value.
        raise ValidationError(
            f"A record or line holds something that is not JSON ({type(error).__name__})."
        ) from None
    return text


def record_from_json(text: str) -> Fields:
    """Read a body or detail."""
    fields: Fields = json.loads(text)
    return fields


def _present_version(settled: SettledRecord) -> int:
    return 0 if settled.text is None else settled.version


def _name_problem(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "it is not Unicode."
    if "\0" in text:
        return "it has a NUL character."
    return f"it is {size} bytes, and {MAX_NAME_BYTES} fit." if size > MAX_NAME_BYTES else ""


def _storable(prose: str) -> str:
    """Replace what a database refuses: no line is lost for a character in its summary."""
    return prose.replace("\0", "\ufffd").encode(errors="replace").decode()


EXPORT_PAGE = 500
"""Lines held at a time, however many there are."""


async def export_journal(
    ledger_store: LedgerStore, *, application: str, project: str
) -> AsyncIterator[bytes]:
    """Give every line of the journal that an application had in a project, newest first."""
    async for entry in iter_entries(ledger_store, application=application, project=project):
        yield json_line(entry_to_json(entry))


async def iter_entries(
    ledger_store: LedgerStore,
    *,
    application: str,
    project: str,
    subject: str = "",
    actions: Collection[str] = (),
    since: datetime | None = None,
    before: int = 0,
) -> AsyncGenerator[JournalEntry]:
    """Give the lines that a project may read: those written while the application was its own."""
    while True:
        page = await ledger_store.entries(
            application=application,
            subject=subject,
            actions=actions,
            since=since,
            before=before,
            limit=EXPORT_PAGE,
        )
        for entry in page:
            if entry.detail.get("project") == project:
                yield entry
        if len(page) < EXPORT_PAGE:
            return
        before = page[-1].seq


async def export_drifts(
    ledger_store: LedgerStore, *, application: str, project: str
) -> AsyncIterator[bytes]:
    """Give every drift once that an application had in a project, open or ended, by id."""
    after = ""
    while True:
        page = await ledger_store.records_after(
            RecordKind.DRIFT, application=application, after=after, limit=EXPORT_PAGE
        )
        for record in page:
            if record.body["project"] == project:
                yield json_line(
                    drift_to_json(record.body, version=record.version, changed_at=record.changed_at)
                )
        if len(page) < EXPORT_PAGE:
            return
        after = page[-1].key
