"""Reads a book from end to end as JSON lines, a page at a time, for the controller's exports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime

from holdfast.reconcile.gitops.ports import Book, Entry, RecordKind
from holdfast.wire.book_jsonl import drift_to_json, entry_to_json, json_line

PAGE = 500
"""Lines held at a time, however many there are."""


async def journal_lines(book: Book, *, application: str, project: str) -> AsyncIterator[bytes]:
    """Give every line of the journal that an application had in a project, newest first."""
    async for entry in entries_of(book, application=application, project=project):
        yield json_line(entry_to_json(entry))


async def entries_of(
    book: Book,
    *,
    application: str,
    project: str,
    subject: str = "",
    since: datetime | None = None,
    before: int = 0,
) -> AsyncGenerator[Entry]:
    """Give the lines that a project may read: those written while the application was its own."""
    while True:
        page = await book.entries(
            application=application, subject=subject, since=since, before=before, limit=PAGE
        )
        for entry in page:
            if entry.detail.get("project") == project:
                yield entry
        if len(page) < PAGE:
            return
        before = page[-1].seq


async def drift_lines(book: Book, *, application: str, project: str) -> AsyncIterator[bytes]:
    """Give every drift once that an application had in a project, open or ended, by id."""
    after = ""
    while True:
        page = await book.records_after(
            RecordKind.DRIFT, application=application, after=after, limit=PAGE
        )
        for record in page:
            if record.body["project"] == project:
                yield json_line(drift_to_json(record))
        if len(page) < PAGE:
            return
        after = page[-1].key
