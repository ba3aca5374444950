"""Reads a book from end to end as JSON lines, a page at a time, for the controller's exports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from holdfast.reconcile.gitops.ports import Book, RecordKind
from holdfast.wire.book_jsonl import drift_to_json, entry_to_json, json_line

PAGE = 500
"""Lines held at a time, however long the journal is."""


async def journal_lines(
    book: Book, *, application: str = "", subject: str = "", since: datetime | None = None
) -> AsyncIterator[bytes]:
    """Give every line of the journal that was there at the start, newest first."""
    before = 0
    while True:
        page = await book.entries(
            application=application, subject=subject, since=since, before=before, limit=PAGE
        )
        for entry in page:
            yield json_line(entry_to_json(entry))
        if len(page) < PAGE:
            return
        before = page[-1].seq


async def drift_lines(
    book: Book, *, application: str = "", state: str = ""
) -> AsyncIterator[bytes]:
    """Give every drift, the last changed first. The book hands out records all at once."""
    for record in await book.records(RecordKind.DRIFT, application=application, state=state):
        yield json_line(drift_to_json(record))
